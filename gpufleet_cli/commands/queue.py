"""`gpufleet queue` and `gpufleet queue done NODE`: nodes that wait for replacement, and their way back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.acting import DryRun, Yes, confirm
from gpufleet_cli.commands.cluster_api import connected
from gpufleet_cli.commands.cordon_answers import answer_of, begun, ended, names_of
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit, look, say
from gpufleet_cli.cordon_card import GATE, CordonAnswer, GateItem
from gpufleet_cli.errors import GpufleetError, Refused, SourceError, TargetError, UsageError
from gpufleet_cli.settings import Settings, parse_duration

if TYPE_CHECKING:
    from gpufleet_cli.live.api import Api
    from gpufleet_cli.live.node_watch import NodeWatch
    from gpufleet_cli.operate.cordon_facts import CordonFacts
    from gpufleet_cli.operate.cordoning import Done
    from gpufleet_cli.operate.writes import Writer

_WORDS = {"wrote": "returned", "would": "would be returned", "done": "not queued"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gate:
    """How the gate is to be judged."""

    xid_free_s: float
    diagnostics: str | None
    stated: dict[str, str]
    yes: bool


def queue(
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="done NODE...", help="Return nodes to service.", show_default=False),
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="done: metrics with XIDs and boot times.")
    ] = None,
    xid_free: Annotated[
        str, typer.Option(metavar="TIME", help="done: so long without an XID.")
    ] = "1h",
    diagnostics: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="done: their result, 'dcgmi diag -r 3: pass'."),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ITEM=WHY",
            help=f"done: state an item that cannot be seen, of {', '.join(GATE)}.",
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    settings: Settings,
) -> int:
    """List the nodes that wait for replacement, or return one.

    `queue done NODE` returns it to service. The way back is a gate: a reset or reboot seen since the cordon, time without an XID, diagnostics, health.
    Exit status: 0, 5 refused, 4 a right, the node or the server is missing, 2 usage.

    Examples:
      gpufleet queue
      gpufleet queue -o json
      gpufleet queue done gpu-node-0417 --diagnostics 'dcgmi diag -r 3: pass'
    """
    output = one_of(settings.output, ("text", "json"))
    given = words or []
    if not given:
        return _list(settings, output)
    if given[0] != "done" or len(given) < 2:
        raise UsageError(
            f"queue {' '.join(given)!r}: not known",
            hint="gpufleet queue, or gpufleet queue done NODE",
        )
    gate = _Gate(
        xid_free_s=parse_duration(xid_free, "--xid-free"),
        diagnostics=" ".join(diagnostics.split()) if diagnostics else None,
        stated=_stated(accept or ()),
        yes=yes,
    )
    return _done(names_of(given[1:]), gate, prometheus, settings, output, dry_run=dry_run)


def _stated(accepted: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in accepted:
        item, _, why = one.partition("=")
        if item not in GATE or not why.strip():
            raise UsageError(
                f"--accept {one!r} is not ITEM=WHY", hint=f"items are {', '.join(GATE)}"
            )
        found[item] = " ".join(why.split())
    return found


def _list(settings: Settings, output: str) -> int:
    from gpufleet_cli.operate import queue_look
    from gpufleet_cli.render.cordon_page import queue_json, queue_text

    found = queue_look.look(connected(settings))
    emit(queue_json(found) if output == "json" else queue_text(found, look(settings)))
    return 0


# --- done -----------------------------------------------------------------------------------------


def _done(
    names: Sequence[str],
    gate: _Gate,
    prometheus: str | None,
    settings: Settings,
    output: str,
    *,
    dry_run: bool,
) -> int:
    from gpufleet_cli.operate.writes import Writer

    api = begun(settings, "queue-done", names)
    writer = Writer(api=api, dry_run=dry_run)
    watch = _watch(api, prometheus)
    answers: list[CordonAnswer] = []
    failures: list[GpufleetError] = []
    for name in names:
        came, items = _one(writer, name, gate, watch)
        answer = answer_of(came, _WORDS, dry_run=dry_run)
        answers.append(replace(answer, gate=items))
        if came.failed is not None:
            failures.append(came.failed)
    return ended(answers, failures, output, settings)


def _watch(api: Api, prometheus: str | None) -> NodeWatch | None:
    from gpufleet_cli.live.stores import node_watch_of

    try:
        return node_watch_of(api, prometheus)
    except SourceError as exc:
        say(f"metrics: {exc.message}")
        return None


def _one(
    writer: Writer, name: str, gate: _Gate, watch: NodeWatch | None
) -> tuple[Done, tuple[GateItem, ...]]:
    """Whose cordon it is, then the gate, then the patch; the record says what a person stated."""
    from gpufleet_cli.operate import cordon_facts, cordon_guard, cordoning

    api = writer.api
    items: tuple[GateItem, ...] = ()
    try:
        shown = cordon_facts.read(cordoning.read(api, name))
        ruling = cordon_guard.may_uncordon(shown, expected=shown.marks, first_uid=None)
        if ruling.goes:
            items = _judged(writer, shown, gate, watch)
    except (SourceError, TargetError) as exc:
        return cordoning.failed(name, exc), ()
    ruling = cordon_guard.may_return(shown, items, expected=shown.marks, first_uid=None)
    came = cordoning.Done(node=name, ruling=ruling, facts=shown)
    if ruling.goes:
        came = _released(writer, shown, items, gate)
    why = came.ruling.why
    if shown.marks is not None:
        why = f"{why} (cordoned {shown.marks.shown})"
    cordoning.keep(api, "queue-done", came, say, dry_run=writer.dry_run, why=why,
                   incident=None if shown.marks is None else shown.marks.incident)  # fmt: skip
    return came, items


def _judged(
    writer: Writer, shown: CordonFacts, gate: _Gate, watch: NodeWatch | None
) -> tuple[GateItem, ...]:
    from gpufleet_cli.live import node_look
    from gpufleet_cli.operate import service_gate, service_look

    seen = node_look.see(writer.api, shown.node)
    facts = service_look.facts(
        writer.api,
        seen,
        node_look.card_of(writer.api, seen),
        shown.marks,
        watch,
        xid_free_s=gate.xid_free_s,
        diagnostics=gate.diagnostics,
    )
    return service_gate.items(facts, gate.stated)


def _released(writer: Writer, shown: CordonFacts, items: tuple[GateItem, ...], gate: _Gate) -> Done:
    """A person at a terminal is asked; the gate itself is what holds a script back."""
    from gpufleet_cli.operate import cordon_guard, cordoning
    from gpufleet_cli.operate.rulings import no

    try:
        if sys.stdin.isatty():
            what = f"return {shown.node} to service"
            confirm(writer.api, what, shown.node, yes=gate.yes, dry_run=writer.dry_run)
    except Refused as exc:
        return cordoning.Done(node=shown.node, ruling=no(exc.message), facts=shown)
    return cordoning.release(
        writer,
        shown.node,
        lambda facts, _: cordon_guard.may_return(
            facts, items, expected=shown.marks, first_uid=shown.uid
        ),
    )
