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
from collections.abc import Iterable
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
_TIMEOUT = re.compile(
    rb"^(?P<at>\S{20,40})[ \t][^\n]{0,4000}?Watchdog caught collective operation timeout(?:[^\n]{0,2000}?Timeout\(ms\)=(?P<ms>\d{1,12}))?",
    re.MULTILINE,
)
_STEP = re.compile(
    rb"^(?P<at>\S{20,40})[ \t][^\n]{0,400}?\b(?:step|iter|iteration|global_step)\b[\"':=\s\[/]{1,6}(?P<step>\d{1,12})",
    re.MULTILINE | re.IGNORECASE,
)
_MOST_STEPS = 400


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
    """First and last stamp, the first timeout line, the time of a step."""
    first = _STAMP.search(data[:131_072])
    newest = None
    tail = data[-131_072:]
    for found in _STAMP.finditer(tail):
        if found.start() == 0 or tail[found.start() - 1 : found.start()] == b"\n":
            newest = found
    timeout = _TIMEOUT.search(data) if b"Watchdog caught" in data else None
    return Told(
        oldest_ns=stamp_ns(first[1]) if first else None,
        newest_ns=stamp_ns(newest[1]) if newest else None,
        first_timeout_ns=stamp_ns(timeout["at"]) if timeout else None,
        timeout_s=int(timeout["ms"]) / 1000 if timeout and timeout["ms"] else None,
        step_s=_step_s(data),
    )


def _step_s(data: bytes) -> float | None:
    """The middle of the times between two steps, over the newest ones."""
    seen: dict[int, int] = {}
    for count, found in enumerate(_STEP.finditer(data[-262_144:])):
        at = stamp_ns(found["at"])
        if at is not None:
            seen.setdefault(int(found["step"]), at)
        if count > _MOST_STEPS:
            break
    steps = sorted(seen.items())
    gaps = sorted(
        (after - before) / NS / (later - step)
        for (step, before), (later, after) in pairwise(steps)
        if after > before
    )
    return gaps[len(gaps) // 2] if gaps else None


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
