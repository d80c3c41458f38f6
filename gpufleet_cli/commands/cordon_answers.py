"""What `cordon`, `uncordon` and `queue done` have in common: their beginning, and how answers end a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpufleet_cli.commands.acting import told
from gpufleet_cli.commands.cluster_api import connected
from gpufleet_cli.commands.output import emit, look, say
from gpufleet_cli.cordon_card import CordonAnswer
from gpufleet_cli.errors import ExitCode, GpufleetError, SourceError
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.live.api import Api
    from gpufleet_cli.node_card import NodeCard
    from gpufleet_cli.operate.cordoning import Done

_WORST = (ExitCode.OK, ExitCode.REFUSED, ExitCode.UNREADABLE)


def begun(settings: Settings, verb: str, nodes: Sequence[str]) -> Api:
    """Connected, and with the rights that it takes; a missing one is kept in the audit log.

    Asked by name: a role may be bound to some nodes alone.
    """
    from gpufleet_cli.live import rights
    from gpufleet_cli.operate import audit, permits

    api = connected(settings)
    try:
        needed = [replace(rights.PATCH_NODES, name=node) for node in nodes]
        what = "cordon" if verb == "cordon" else "uncordon"
        by_hand = f"kubectl {what} {' '.join(nodes)}"
        permits.require(api, needed, say, useful=(rights.WRITE_EVENTS,), by_hand=by_hand)
    except SourceError as exc:
        # No Event: who may not patch a node may not write those either.
        why = f"{', '.join(nodes)}: {exc.message}"
        audit.record(api, audit.Deed(verb=verb, outcome="refused", why=why), say)
        raise
    return api


def names_of(typed: Sequence[str]) -> list[str]:
    from gpufleet_cli.operate.cordoning import node_name

    return list(dict.fromkeys(node_name(one) for one in typed))


def answer_of(
    came: Done, words: Mapping[str, str], *, dry_run: bool, card: NodeCard | None = None
) -> CordonAnswer:
    """The record that is shown. `words` has `wrote`, `would`, `done` in the words of the command."""
    owner = came.facts.owner if came.facts is not None else None
    code, answer = ExitCode.OK, words["done"]
    if came.failed is not None:
        code, answer = ExitCode.UNREADABLE, "failed"
    elif came.ruling.answer == "no":
        code, answer = ExitCode.REFUSED, "refused"
    elif came.wrote:
        answer = words["would" if dry_run else "wrote"]
    elif owner is not None and owner.kind != "ours":
        answer = "not-ours"
    hint = came.failed.hint if came.failed is not None else came.ruling.instead
    return CordonAnswer(
        node=came.node, answer=answer, why=came.ruling.why, code=int(code), instead=hint,
        owner=None if owner is None else owner.name, dry_run=dry_run,
    )  # fmt: skip


def ended(answers: Sequence[CordonAnswer], failures: Sequence[GpufleetError], output: str,
          settings: Settings) -> int:  # fmt: skip
    """Show all answers; the exit status is that of the worst. Where nothing could be had at all, standard
    output stays empty."""
    from gpufleet_cli.render.cordon_page import answers_json, answers_text

    if answers and len(failures) == len(answers) == 1:
        raise failures[0]
    for one in answers:
        if one.code:
            hint = f" ({one.instead})" if one.instead else ""
            told(one.dry_run, f"{one.node}: {one.answer}: {_reason(one)}{hint}")
    if any(one.code != ExitCode.UNREADABLE for one in answers):
        emit(answers_json(answers) if output == "json" else answers_text(answers, look(settings)))
    codes = [ExitCode(one.code) for one in answers]
    return int(max(codes, key=_WORST.index, default=ExitCode.OK))


def _reason(one: CordonAnswer) -> str:
    """What of the gate is open by name alone: the report has the gate with its reasons."""
    still = [item.name for item in one.gate if not item.is_met]
    return f"the gate is not passed: {', '.join(still)}" if still else one.why
