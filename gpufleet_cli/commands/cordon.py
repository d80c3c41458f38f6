"""`gpufleet cordon NODE...`: no new pods on a node, and why, in the replacement queue. Stops nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.acting import DryRun
from gpufleet_cli.commands.cordon_answers import answer_of, begun, ended, names_of
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import say
from gpufleet_cli.cordon_card import CordonAnswer
from gpufleet_cli.errors import ExitCode, GpufleetError, SourceError, TargetError
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.operate.cordon_facts import Marks
    from gpufleet_cli.operate.writes import Writer

_WORDS = {"wrote": "cordoned", "would": "would be cordoned", "done": "already"}
_AT_ONCE = 8


def cordon(
    *,
    nodes: Annotated[list[str], typer.Argument(metavar="NODE...", help="Names of nodes.")],
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; kept on the node, e.g. 'XID 79'.")
    ],
    incident: Annotated[
        str | None, typer.Option(metavar="ID", help="The incident it belongs to.")
    ] = None,
    dry_run: DryRun = False,
    settings: Settings,
) -> int:
    """Mark nodes unschedulable and queue them for replacement.

    It stops nothing that runs. A node that somebody else cordoned is left alone and not queued: exit 0.
    Exit status: 0, 5 refused, 4 a right, the node or the server is missing, 2 usage.

    Examples:
      gpufleet cordon gpu-node-0417 --reason 'XID 79'
      gpufleet cordon gpu-node-0417 gpu-node-0418 --reason 'NVLink 1-2' --dry-run
    """
    output = one_of(settings.output, ("text", "json"))
    names = names_of(nodes)
    from gpufleet_cli.live import threads
    from gpufleet_cli.operate import cordoning
    from gpufleet_cli.operate.writes import Writer
    from gpufleet_cli.settings_file import load

    kept, tag = cordoning.reason_of(reason), cordoning.incident_of(incident)
    api = begun(settings, "cordon", names)
    owner = cordoning.owner_of(api, load().of(api.access.context).owner)
    writer = Writer(api=api, dry_run=dry_run)
    wanted = cordoning.marks(api, owner=owner, reason=kept, incident=tag)
    asked = threads.each(
        lambda name: _one(writer, name, wanted),
        names,
        threads=min(api.threads, _AT_ONCE),
        deadline=api.deadline,
    )
    came = dict(asked)
    answers, failures = [], []
    for name in names:
        answer, failure = came.get(name) or _late(name)
        answers.append(answer)
        if failure is not None:
            failures.append(failure)
    return ended(answers, failures, output, settings)


def _one(writer: Writer, name: str, wanted: Marks) -> tuple[CordonAnswer, GpufleetError | None]:
    """Cordon one node, keep what came of it, and tell what it sets off."""
    from gpufleet_cli.operate import cordoning

    came = cordoning.cordon(writer, name, wanted)
    incident = f", incident {wanted.incident}" if wanted.incident else ""
    why = f"{wanted.reason} (by {wanted.by}{incident})"
    if not came.wrote:
        why = f"{came.ruling.why}; asked for: {why}"
    cordoning.keep(
        writer.api, "cordon", came, say, dry_run=writer.dry_run, why=why, incident=wanted.incident
    )
    answer = answer_of(came, _WORDS, dry_run=writer.dry_run)
    return (answer if answer.code else _told(writer, answer)), came.failed


def _told(writer: Writer, answer: CordonAnswer) -> CordonAnswer:
    """With what holds the node and what the cordon sets off, as far as that can be read."""
    from gpufleet_cli.live import node_look
    from gpufleet_cli.operate import side_effects

    try:
        seen = node_look.see(writer.api, answer.node)
    except (SourceError, TargetError) as exc:
        return replace(answer, sets_off=(f"not known: {exc.message}",))
    card = node_look.card_of(writer.api, seen)
    gangs = side_effects.holders(card)
    holds = [f"{side_effects.held_words(gang)}: it goes on" for gang in gangs]
    if seen.pods is None:
        holds = ["not known: its pods could not be read"]
    return replace(
        answer,
        sets_off=tuple(side_effects.sets_off(seen, card)),
        holds=tuple(holds),
        then=tuple(step for gang in gangs if (step := side_effects.next_step(gang)) is not None),
    )


def _late(name: str) -> tuple[CordonAnswer, GpufleetError]:
    why = "not there by the deadline: it may have been cordoned or not"
    exc = SourceError(f"{name}: {why}", hint="run it again with --deadline 60s")
    answer = CordonAnswer(
        node=name, answer="failed", why=why, code=int(ExitCode.UNREADABLE), instead=exc.hint
    )
    return answer, exc
