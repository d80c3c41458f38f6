"""How far back a log must reach to show how a stall began.

A tail is deep enough when its oldest line is older than the first timeout line of the gang minus the
watchdog timeout minus two step times: a count of lines says nothing, eight ranks of stack frames fill
two thousand. Without a timeout line, the usual timeout and a margin before the newest line.

>>> tail = b"2026-08-20T03:21:07.5Z [rank1]: Watchdog caught collective operation timeout: Timeout(ms)=600000)\\n"
>>> told = told_by(tail)
>>> told.first_timeout_ns == told.oldest_ns, told.timeout_s
(True, 600.0)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from gpufleet_cli.timestamps import parse_rfc3339

NS = 1_000_000_000
DEFAULT_TIMEOUT_S = 600.0
DEFAULT_STEP_S = 30.0
MOST_STEP_S = 600.0
SKEW_S = 30.0
"""Clocks of nodes differ: what one saw first another may have written a little before."""

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d))[ \t]")
_TIMED_OUT = b"Watchdog caught collective operation timeout"
_TIMEOUT_MS = re.compile(rb"Timeout\(ms\)=(\d{1,12})")
_STEP_WORDS = (b"step", b"iter")
_STEP = re.compile(
    rb"(?<!\w)(?:global_)?(?:step|iter|iteration)\b[\"':=\s\[/]{1,6}(\d{1,12})", re.IGNORECASE
)
_STEP_BYTES = 262_144
_MOST_LINES = 4_000
_MOST_STEPS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the lines of one log say about depth."""

    oldest_ns: int | None
    newest_ns: int | None
    first_timeout_ns: int | None = None
    timeout_s: float | None = None
    step_s: float | None = None


def stamp_ns(text: bytes) -> int | None:
    found = parse_rfc3339(text.decode("ascii", "replace"))
    return found[0] if found else None


def told_by(data: bytes) -> Told:
    """First and last stamp, the first timeout line, the time of a step. Every log of a gang goes through
    here, so words are sought first, and only their lines are looked at."""
    first = _STAMP.search(data[:131_072])
    at_ns, timeout_s = _first_timeout(data)
    return Told(
        oldest_ns=stamp_ns(first[1]) if first else None,
        newest_ns=_newest_ns(data),
        first_timeout_ns=at_ns,
        timeout_s=timeout_s,
        step_s=_step_s(data[-_STEP_BYTES:]),
    )


def _line_ns(data: bytes, at: int) -> int | None:
    """The stamp of the line that holds this place."""
    found = _STAMP.match(data, data.rfind(b"\n", 0, at) + 1)
    return stamp_ns(found[1]) if found else None


def _newest_ns(data: bytes) -> int | None:
    """The stamp of the last line that has one."""
    end = len(data)
    while end > 0 and len(data) - end < 131_072:
        end = data.rfind(b"\n", 0, end)
        found = _STAMP.match(data, end + 1)
        if found:
            return stamp_ns(found[1])
    return None


def _first_timeout(data: bytes) -> tuple[int | None, float | None]:
    """When the first watchdog spoke, and how long it had waited."""
    at = data.find(_TIMED_OUT)
    while at >= 0:
        stamp = _line_ns(data, at)
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        if stamp is not None:
            ms = _TIMEOUT_MS.search(data, at, min(end, at + 2_000))
            return stamp, int(ms[1]) / 1000 if ms else None
        at = data.find(_TIMED_OUT, end)
    return None, None


def _step_s(data: bytes) -> float | None:
    """The middle of the times between two steps, over the newest ones."""
    places: dict[int, int] = {}
    for step, at in _newest_steps(data):
        if step not in places and len(places) == _MOST_STEPS:
            break
        places[step] = at  # ever earlier: of the ranks the first to say it
    steps = sorted((step, ns) for step, at in places.items() if (ns := _line_ns(data, at)))
    gaps = sorted(
        (after - before) / NS / (later - step)
        for (step, before), (later, after) in pairwise(steps)
        if after > before
    )
    return gaps[len(gaps) // 2] if gaps else None


def _newest_steps(data: bytes) -> Iterator[tuple[int, int]]:
    """(step, place) of the lines that tell one, newest first, by whichever word this log uses."""
    lowered = data.lower()
    for word in _STEP_WORDS:
        is_found = False
        end = len(data)
        for _ in range(_MOST_LINES):
            end = lowered.rfind(word, 0, end)
            if end < 0:
                break
            begin = end - 7 if lowered.endswith(b"global_", 0, end) else end
            found = _STEP.match(data, begin)
            if found:
                is_found = True
                yield int(found[1]), begin
        if is_found:
            return


def needed_since_ns(told: Iterable[Told]) -> int | None:
    """The time that every log of the gang has to reach back to, None when no log has a stamp."""
    all_told = list(told)
    timeouts = [t for t in all_told if t.first_timeout_ns is not None]
    steps = sorted(t.step_s for t in all_told if t.step_s is not None)
    step_s = min(steps[len(steps) // 2], MOST_STEP_S) if steps else DEFAULT_STEP_S
    stated = [t.timeout_s for t in timeouts if t.timeout_s is not None]
    margin_s = max(stated, default=DEFAULT_TIMEOUT_S) + 2 * step_s + SKEW_S
    starts = [t.first_timeout_ns for t in timeouts if t.first_timeout_ns is not None]
    if not starts:
        newest = [t.newest_ns for t in all_told if t.newest_ns is not None]
        if not newest:
            return None
        starts = [_of_the_first_silence(newest)]
    return min(starts) - round(margin_s * NS)


def _of_the_first_silence(newest: list[int]) -> int:
    """The last sign of who went quiet first, as long as that is not much before the others' end."""
    last = max(newest)
    return max(min(newest), last - round(2 * DEFAULT_TIMEOUT_S * NS))
