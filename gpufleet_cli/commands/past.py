"""The history as commands meet it: where it lies, at which rate healthy nodes fail, and a triage kept.

A share that does not answer must cost nobody the report: the report is out before, and the history has
some seconds.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from gpufleet_cli.commands.output import say
from gpufleet_cli.errors import GpufleetError, SourceError, UsageError
from gpufleet_cli.plain_text import visible
from gpufleet_cli.settings import Settings, keeps_state

if TYPE_CHECKING:
    from gpufleet_cli.evidence import Target
    from gpufleet_cli.history.folder import Kept
    from gpufleet_cli.history.place import Place
    from gpufleet_cli.history.record import Incident
    from gpufleet_cli.node_card import FaultRate
    from gpufleet_cli.verdict import Triage

WAIT_S = 5.0
"""So long a share may take with what nobody asked for."""
ASKED_S = 60.0
DAYS = 29
_DRILL = "gpufleet-drill-"  # `operate.drill.FOLDER`, which is dear to import beside every triage


def context_of(settings: Settings) -> str | None:
    """The context whose table of the settings file counts: the one asked for, else kubectl's current one."""
    from gpufleet_cli.completion import current_context

    if settings.context is not None:
        return settings.context
    environment = dict(os.environ)
    chosen = settings.kubeconfig or environment.get("KUBECONFIG") or ""
    return current_context(chosen, environment) or None


def place_of(settings: Settings, context: str | None) -> Place:
    from gpufleet_cli.history import place

    return place.chosen(settings.history, context)


def keep(found: Triage, read: Target, settings: Settings, *, is_verdict_shown: bool) -> None:
    """The incident into the history, never at the cost of the command; and beside a verdict, on standard
    error, what the history says of its nodes: no report ever depends on it."""
    from gpufleet_cli.history import record
    from gpufleet_cli.live.deadline import Deadline
    from gpufleet_cli.live.threads import Beside

    if not keeps_state() or _is_practice(read):
        return
    own = record.of_triage(found, read.manifest, now_ns=time.time_ns())
    if own is None:
        return
    try:
        place = place_of(settings, own.context or context_of(settings))
        rate = rate_of(None, own.context)
        told = Beside(
            lambda: _kept(place, own, rate, is_told=is_verdict_shown), deadline=Deadline(WAIT_S)
        ).result()
    except GpufleetError as exc:
        told = [f"not kept in the history: {exc.message}"]
    if told is None:
        told = [f"not kept in the history: {place.folder}: no answer in {WAIT_S:g} s"]
    for line in told:
        say(shown(line))


def _is_practice(read: Target) -> bool:
    """A folder that still has the name `gpufleet drill` gave it: no node of the fleet was ever ill of it."""
    if read.kind != "directory" or not read.name.startswith(_DRILL):
        return False
    from gpufleet_cli.operate.simulate.drill_id import decode

    return decode(read.name.removeprefix(_DRILL)) is not None


def _kept(place: Place, own: Incident, rate: FaultRate, *, is_told: bool) -> list[str]:
    """What there is to say of it. A folder that may only be read still tells of the node's past."""
    from gpufleet_cli.history import folder, tally

    told = []
    try:
        own = folder.keep(place.folder, own, is_own=place.is_own)
    except OSError as exc:
        told.append(f"not kept in the history: {place.folder}: {(exc.strerror or '').lower()}")
    if not is_told or own.at_ns is None or not own.is_node_fault:
        return told
    since_ns = max(0, own.at_ns - DAYS * 86_400 * 10**9)
    try:
        before = folder.read(place.folder, since_ns=since_ns).incidents
    except SourceError:
        return told
    known = before if any(one.id == own.id for one in before) else (*before, own)
    return [*told, *tally.beside_verdict(known, own, rate)]


def shown(line: str) -> str:
    """A line that may hold what evidence or a person said, fit for a terminal."""
    from gpufleet_cli.redact import redact

    return visible(redact(line))


def read_in_time(place: Place, seconds: float) -> Kept:
    """All that a folder holds; SourceError where it cannot be had, or not in time."""
    from gpufleet_cli.history import folder
    from gpufleet_cli.live.deadline import Deadline
    from gpufleet_cli.live.threads import Beside

    found = Beside(lambda: folder.read(place.folder), deadline=Deadline(seconds)).result()
    if found is None:
        told = f"the history {visible(str(place.folder))} did not answer in {seconds:g} s"
        raise SourceError(told, hint="--deadline 5m waits longer")
    return found


def of_place(place: Place) -> Kept | None:
    """What a folder holds, for a page that shows it among other things; None, and said, where it cannot be had."""
    try:
        return read_in_time(place, WAIT_S)
    except SourceError as exc:
        say(shown(exc.message))
        return None


def asked_s(settings: Settings) -> float:
    """How long a person waits for what they asked for."""
    return ASKED_S if settings.deadline_s is None else settings.deadline_s


class Stops(NamedTuple):
    """Stops of jobs in so many hours, and where that is known from."""

    seen: int
    hours: float
    folder: str
    told: str


def stops(settings: Settings) -> Stops:
    """How many stops of jobs the history has, in how many hours until now.

    The first one began the time that is counted and is none of them.
    """
    from gpufleet_cli.history import tally
    from gpufleet_cli.timestamps import format_ns

    place = place_of(settings, context_of(settings))
    now_ns = time.time_ns()
    kept = read_in_time(place, asked_s(settings)).incidents
    span = tally.span_of(kept, since_ns=None, as_of_ns=now_ns)
    if span is None:
        raise UsageError(
            f"no incident is kept in {visible(str(place.folder))}",
            hint="--interruptions and --observed-gpu-hours, or gpufleet history add BUNDLE...",
        )
    stopped = sum(one.stopped_a_job and span.has(one) for one in kept)
    since = format_ns(span.from_ns // 10**9 * 10**9)
    told = f"history: {stopped:,} stops of jobs in {place.folder} after the first one, {since}"
    return Stops(stopped, span.hours, str(place.folder), told)


# --- The rate of healthy nodes --------------------------------------------------------------------


def stated_rate(text: str | None) -> float | None:
    from gpufleet_cli.settings_file import NO_RATE, is_rate

    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not is_rate(value):
        told = f"--node-failures-per-day {visible(text)!r} is {NO_RATE}"
        raise UsageError(told, hint="write 0.0065, which is one failure in 154 days")
    return value


def rate_of(stated: float | None, context: str | None) -> FaultRate:
    """Flag over settings file over default."""
    from gpufleet_cli import settings_file
    from gpufleet_cli.node_card import FaultRate
    from gpufleet_cli.repeats import USUAL

    if stated is not None:
        return FaultRate(stated, "flag")
    of_file = settings_file.load().of(context).node_failures_per_day
    return USUAL if of_file is None else FaultRate(of_file, "file")
