"""An incident too large for one machine: its shards go out, few large parts come back.

Each shard is read by the newest time of its own logs. Where stamps without a year were read by a time that is
not the newest of all, that shard is read once more by the right one, so that its bytes need not travel. A
shard that cannot be had is a gap; Ctrl-C and the deadline end the wait and keep what came.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpufleet_cli.errors import ParseError, SourceError, TargetError
from gpufleet_cli.facts import Gap, Origin
from gpufleet_cli.operate.fleet.engine import Engine
from gpufleet_cli.operate.fleet.places import Listing, Order
from gpufleet_cli.operate.fleet.shards import File, cut
from gpufleet_cli.operate.fleet.tasks import Receipt
from gpufleet_cli.plain_text import visible
from gpufleet_cli.reason import parts
from gpufleet_cli.reason.parts import Part

SMALLEST, LARGEST = 64 << 20, 256 << 20
A_SLOT = 4
"""So many shards for each that an engine works on at a time: a slow one holds nobody up for long."""
POLL_S = 1.0
_SETTLES = "what the ranks of these files last did"

Told = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What came, and what did not. `moved_bytes`: what the client received."""

    parts: tuple[Part, ...]
    gaps: tuple[Gap, ...]
    interrupted: bool
    moved_bytes: int
    shards: int


@dataclass(frozen=True, slots=True)
class _Round:
    """How one round of shards ended."""

    receipts: dict[int, Receipt]
    failed: dict[int, str]
    interrupted: bool


def shards_of(files: Sequence[File], slots: int) -> list[tuple[File, ...]]:
    """Shards by size, some for each slot."""
    total = sum(file.size_bytes for file in files)
    return cut(files, most_bytes=min(max(SMALLEST, total // (A_SLOT * slots)), LARGEST))


def gather(
    engine: Engine,
    location: str,
    listing: Listing,
    *,
    deadline_s: float | None = None,
    told: Told | None = None,
) -> Gathered:
    """The parts of all files of a listing. TargetError where nothing came, KeyboardInterrupt where nothing had
    come when somebody pressed Ctrl-C."""
    until = None if deadline_s is None else time.monotonic() + deadline_s
    shards = shards_of(listing.files, engine.slots)
    orders = [Order(location=location, files=files) for files in shards]
    first = _round(engine, dict(enumerate(orders)), until, told)
    hints = [receipt[0] for receipt in first.receipts.values() if receipt[0] is not None]
    newest = max(hints, default=None)
    stale = [n for n, receipt in first.receipts.items() if any(ns != newest for ns in receipt[1])]
    again = _Round({}, {}, first.interrupted)
    if stale and not first.interrupted:
        orders_again = {n: replace(orders[n], near_ns=newest) for n in stale}
        again = _round(engine, orders_again, until, None)
    receipts = {**first.receipts, **again.receipts}
    failed = {**first.failed, **again.failed}
    had = sorted(set(receipts) - set(failed))
    found, moved, lost = _taken(engine, had, receipts)
    gaps = [*listing.gaps, *(_gap(shards[n], why) for n, why in sorted(failed.items())), *lost]
    if not found and (first.interrupted or again.interrupted):
        raise KeyboardInterrupt
    if not found:
        raise TargetError(f"{listing.shown}: {gaps[-1].why if gaps else 'nothing came'}")
    return Gathered(
        parts=tuple(found),
        gaps=tuple(gaps),
        interrupted=first.interrupted or again.interrupted,
        moved_bytes=moved,
        shards=len(shards),
    )


def _round(
    engine: Engine, orders: dict[int, Order], until: float | None, told: Told | None
) -> _Round:
    """Send shards out and wait for their receipts."""
    done: dict[int, Receipt | str] = {}
    interrupted = False
    try:
        for number, order in orders.items():
            engine.submit(number, order.encode())
        for number, found in _coming(engine, len(orders), until):
            done[number] = found
            if told is not None:
                told(len(orders[number].files))
        why = engine.trouble() or "not there by the deadline"
    except KeyboardInterrupt:
        interrupted, why = True, "interrupted"
        while not engine.done.empty():
            number, found = engine.done.get()
            done[number] = found
    found_or_why = {number: done.get(number, why) for number in orders}
    return _Round(
        {number: one for number, one in found_or_why.items() if not isinstance(one, str)},
        {number: one for number, one in found_or_why.items() if isinstance(one, str)},
        interrupted,
    )


def _coming(engine: Engine, count: int, until: float | None) -> Iterator[tuple[int, Receipt | str]]:
    """Receipts as they come, until all are there, time is over, or nothing can come any more."""
    while count:
        try:
            yield engine.done.get(timeout=POLL_S)
            count -= 1
        except queue.Empty:
            if engine.trouble() is not None:
                return
        if until is not None and time.monotonic() >= until:
            return


def _taken(
    engine: Engine, numbers: Sequence[int], receipts: dict[int, Receipt]
) -> tuple[list[Part], int, list[Gap]]:
    """The merged parts; one that is lost on the way is a gap."""
    found: list[Part] = []
    moved = 0
    lost: list[Gap] = []
    try:
        for data in engine.merged(numbers, [receipts[number][3] for number in numbers]):
            moved += len(data)
            try:
                found.append(parts.decode(data))
            except ParseError as exc:
                lost.append(
                    Gap(what="a part of the incident", why=exc.message, would_settle=_SETTLES)
                )
    except SourceError as exc:
        lost.append(Gap(what="parts of the incident", why=exc.message, would_settle=_SETTLES))
    return found, moved, lost


def _gap(files: Sequence[File], why: str) -> Gap:
    first = visible(files[0].name)
    what = f"file {first}" if len(files) == 1 else f"a shard of {len(files):,} files ({first}, ...)"
    return Gap(what=what, why=why, would_settle=_SETTLES, origin=Origin(path=first))
