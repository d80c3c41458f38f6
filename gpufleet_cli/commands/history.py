"""`gpufleet history` and `gpufleet history add BUNDLE...`: past incidents, who repeats, how often, how fast."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.options import one_of, time_ns
from gpufleet_cli.commands.output import emit, look, say
from gpufleet_cli.commands.past import (
    asked_s,
    context_of,
    place_of,
    rate_of,
    read_in_time,
    shown,
    stated_rate,
)
from gpufleet_cli.errors import ExitCode, TargetError, UsageError
from gpufleet_cli.plain_text import visible
from gpufleet_cli.settings import Settings, keeps_state, parse_duration

if TYPE_CHECKING:
    from gpufleet_cli.history.folder import Kept
    from gpufleet_cli.history.place import Place
    from gpufleet_cli.history.record import Incident
    from gpufleet_cli.history.tally import Wanted
    from gpufleet_cli.history_card import HistoryCard
    from gpufleet_cli.node_card import FaultRate


def history(
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="add BUNDLE...",
            help="Triage bundles or folders and keep their incidents.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From then on: 30d, 2026-03-01.")
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Incidents that name this node.")
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this job: NAME or NAMESPACE/NAME.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="Of this kind: hardware, network, ...")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=10**9, help="GPUs of the fleet.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=10**7, help="Nodes of the fleet.")
    ] = None,
    node_failures_per_day: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Failures of a healthy node in a day: 0.0065."),
    ] = None,
    as_of: Annotated[str | None, typer.Option(metavar="TIME", help="The 'now' of it all.")] = None,
    settings: Settings,
) -> int:
    """Past incidents, nodes that repeat, how often and how fast.

    How often something fails, and how fast it was found.
    Triage keeps each incident; `history add` takes old bundles in. No verdict depends on it.
    Exit status: 0, 4 when the history or a bundle cannot be read, 2 usage.

    Examples:
      gpufleet history
      gpufleet history --since 30d --node gpu-node-0417
      gpufleet history add incident.tar.zst older/
    """
    output = one_of(settings.output, ("text", "json"))
    given = words or []
    if given and (given[0] != "add" or len(given) < 2):
        raise UsageError(
            f"history {visible(' '.join(given))!r}: not known",
            hint="gpufleet history, or gpufleet history add BUNDLE...",
        )
    place = place_of(settings, context_of(settings))
    if given:
        return _add(given[1:], place, output)
    now_ns = time_ns(as_of, "--as-of") if as_of not in (None, "now") else time.time_ns()
    assert now_ns is not None
    from gpufleet_cli.history.tally import Wanted
    from gpufleet_cli.render import history_page

    wanted = Wanted(
        since_ns=_since(since, now_ns),
        node=node,
        job=job,
        namespace=settings.namespace,
        kind=_kind(kind),
    )
    rate = rate_of(stated_rate(node_failures_per_day), context_of(settings))
    kept = read_in_time(place, asked_s(settings))
    card = _card(kept, place, wanted, now_ns, rate, gpus=gpus, nodes=nodes)
    emit(
        history_page.document(card) if output == "json" else history_page.text(card, look(settings))
    )
    return ExitCode.OK


def _since(text: str | None, now_ns: int) -> int | None:
    """So long ago, or a time."""
    if text is None:
        return None
    try:
        ago_s = parse_duration(text, "--since")
    except UsageError:
        ago_s = None
    if ago_s is not None and ago_s < 1e8:  # else plain seconds since 1970
        return max(0, now_ns - round(ago_s * 1e9))
    return time_ns(text, "--since")


def _kind(text: str | None) -> str | None:
    from gpufleet_cli.verdict import Kind

    kinds = tuple(str(one) for one in Kind if one is not Kind.HEALTHY)
    return None if text is None else one_of(text, kinds, "--kind")


# --- The page -------------------------------------------------------------------------------------


def _card(
    kept: Kept,
    place: Place,
    wanted: Wanted,
    now_ns: int,
    rate: FaultRate,
    *,
    gpus: int | None,
    nodes: int | None,
) -> HistoryCard:
    from gpufleet_cli import repeats
    from gpufleet_cli.history import tally
    from gpufleet_cli.history_card import HistoryCard
    from gpufleet_cli.node_card import Missing

    past = [one for one in kept.incidents if one.at_ns is None or one.at_ns <= now_ns]
    chosen = [one for one in past if wanted.has(one)]
    span = tally.span_of(past, since_ns=wanted.since_ns, as_of_ns=now_ns)
    own = tally.own_rate(past, span, nodes) if rate.source == "default" else None
    used = rate if own is None else own[0]
    chance = repeats.chance_flagged(used.a_node_day)
    found = tally.offenders(past, as_of_ns=now_ns, nodes=nodes, rate=used, span=span)
    return HistoryCard(
        folder=str(place.folder),
        source=place.source,
        as_of_ns=now_ns,
        kept=len(kept.incidents),
        from_ns=None if span is None else span.from_ns,
        from_first=wanted.since_ns is None,
        rows=tally.rows(chosen),
        offenders=tuple(one for one in found if wanted.node in (None, one.node)),
        rate=used,
        rate_interval90=None if own is None else own[1],
        nodes=nodes,
        gpus=gpus,
        chance_flagged=chance,
        innocents=None if nodes is None else nodes * chance,
        often=tally.how_often(chosen, span, gpus),
        fast=tally.how_fast(chosen),
        not_read=tuple(Missing(what=one.name, why=one.why) for one in kept.not_read),
    )


# --- add ------------------------------------------------------------------------------------------


def _add(bundles: Sequence[str], place: Place, output: str) -> int:
    """Each bundle by itself: one that cannot be read costs itself, and the exit status."""
    if not keeps_state():
        raise UsageError("GPUFLEET_NO_STATE=1: nothing is kept", hint="unset it to add incidents")
    added: list[dict[str, object]] = []
    failed = False
    for bundle in [one for given in bundles for one in _each(given)]:
        try:
            kept = _imported(bundle, place)
        except TargetError as exc:
            say(shown(exc.message))
            failed = True
            continue
        told = None if kept is None else kept.id
        added.append({"bundle": bundle, "id": told, "kind": None if kept is None else kept.kind})
        if output == "text":
            emit(shown(_line(bundle, kept)) + "\n")
    if output == "json":
        emit(json.dumps({"folder": str(place.folder), "added": added}, indent=2) + "\n")
    return ExitCode.UNREADABLE if failed else ExitCode.OK


def _each(given: str) -> list[str]:
    """A bundle as it is; of a folder that holds bundles each one: together they would be one incident of nobody."""
    from gpufleet_cli.history.bundles import bundles_in

    found = bundles_in(Path(given))
    return [given] if not found else [str(one) for one in found]


def _line(bundle: str, kept: Incident | None) -> str:
    if kept is None:
        return f"{bundle}: nothing to keep: the job is well, or nothing shows that it stopped"
    nodes = f" on {', '.join(kept.nodes[:3])}" if kept.nodes else ""
    return f"{bundle}: {kept.kind}{nodes}, kept as {kept.id}"


def _imported(bundle: str, place: Place) -> Incident | None:
    from gpufleet_cli.bundle import read_target
    from gpufleet_cli.facts import JobNumbers
    from gpufleet_cli.history import folder, record
    from gpufleet_cli.triage import triage_target

    read = read_target(bundle)
    found = triage_target(read, JobNumbers(source="flag"))
    own = record.of_triage(found, read.manifest, is_asked=True)
    if own is None:
        return None
    try:
        return folder.keep(place.folder, own, is_own=place.is_own)
    except OSError as exc:
        told = f"the history {place.folder} cannot be written: {(exc.strerror or '').lower()}"
        raise TargetError(told) from exc
