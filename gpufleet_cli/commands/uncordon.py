"""`gpufleet uncordon NODE...`: undo our own cordon, the node's health shown first."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.acting import DryRun, Yes, confirm
from gpufleet_cli.commands.cordon_answers import answer_of, begun, ended, names_of
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import look, say
from gpufleet_cli.cordon_card import CordonAnswer
from gpufleet_cli.errors import GpufleetError, Refused, SourceError, TargetError
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.live.api import Api
    from gpufleet_cli.live.node_look import XidHistory
    from gpufleet_cli.operate.cordon_facts import CordonFacts
    from gpufleet_cli.operate.cordoning import Done
    from gpufleet_cli.operate.writes import Writer

_WORDS = {"wrote": "uncordoned", "would": "would be uncordoned", "done": "not cordoned"}


def uncordon(
    *,
    nodes: Annotated[list[str], typer.Argument(metavar="NODE...", help="Names of nodes.")],
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Metrics with the GPUs' XID history.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    settings: Settings,
) -> int:
    """Undo a cordon of gpufleet's, and remove its annotations.

    Nobody else's cordon is touched.
    Exit status: 0, 5 refused, 4 a right, the node or the server is missing, 2 usage.

    Examples:
      gpufleet uncordon gpu-node-0417
      gpufleet uncordon gpu-node-0417 --dry-run
    """
    output = one_of(settings.output, ("text", "json"))
    names = names_of(nodes)
    from gpufleet_cli.live.stores import node_history
    from gpufleet_cli.operate.writes import Writer

    api = begun(settings, "uncordon", names)
    writer = Writer(api=api, dry_run=dry_run)
    history = node_history(api, prometheus)
    answers: list[CordonAnswer] = []
    failures: list[GpufleetError] = []
    for name in names:
        came = _one(writer, name, history, settings, yes=yes)
        answers.append(answer_of(came, _WORDS, dry_run=dry_run))
        if came.failed is not None:
            failures.append(came.failed)
    return ended(answers, failures, output, settings)


def _one(
    writer: Writer, name: str, history: XidHistory | None, settings: Settings, *, yes: bool
) -> Done:
    """Judge, show, ask, and only then write; what a person was shown is what is undone."""
    from gpufleet_cli.operate import cordon_facts, cordon_guard, cordoning

    api = writer.api
    try:
        shown = cordon_facts.read(cordoning.read(api, name))
    except (SourceError, TargetError) as exc:
        return cordoning.failed(name, exc)
    ruling = cordon_guard.may_uncordon(shown, expected=shown.marks, first_uid=None)
    came = cordoning.Done(node=name, ruling=ruling, facts=shown)
    if ruling.goes:
        _show_health(api, name, history, settings)
        came = _asked(writer, shown, yes=yes)
    why = came.ruling.why if came.wrote or not ruling.goes else f"{came.ruling.why}; {ruling.why}"
    cordoning.keep(api, "uncordon", came, say, dry_run=writer.dry_run, why=why)
    return came


def _asked(writer: Writer, shown: CordonFacts, *, yes: bool) -> Done:
    from gpufleet_cli.operate import cordon_guard, cordoning
    from gpufleet_cli.operate.rulings import no

    told = "" if shown.marks is None else f", cordoned {shown.marks.shown}"
    try:
        confirm(
            writer.api, f"uncordon {shown.node}{told}", shown.node, yes=yes, dry_run=writer.dry_run
        )
    except Refused as exc:
        return cordoning.Done(node=shown.node, ruling=no(exc.message), facts=shown)
    return cordoning.release(
        writer,
        shown.node,
        lambda facts, _: cordon_guard.may_uncordon(
            facts, expected=shown.marks, first_uid=shown.uid
        ),
    )


def _show_health(api: Api, name: str, history: XidHistory | None, settings: Settings) -> None:
    """On standard error: it belongs to the question."""
    from gpufleet_cli.live import node_look
    from gpufleet_cli.render.node_page import health_text

    try:
        card = node_look.look_at(api, name, history)
    except (SourceError, TargetError) as exc:
        say(f"the health of {name} is not known: {exc.message}")
        return
    sys.stderr.write(health_text(card, look(settings)))
