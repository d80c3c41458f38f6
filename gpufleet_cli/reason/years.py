"""Years for log times that have none: c10 and syslog stamps state month and day only.

A log in which nothing states a year is read in a placeholder year. Whatever else dates the incident (the
time of the analysis, a scheduler, a kernel log) tells the year, New Year allowed for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from gpufleet_cli.facts import (
    Fact,
    GroupStatus,
    LogSign,
    Progress,
    SchedulerJob,
    WatchdogTimeout,
    Writes,
    XidEvent,
)

NS = 1_000_000_000
PLACEHOLDER_FROM = round(datetime(2000, 1, 1, tzinfo=UTC).timestamp()) * NS
PLACEHOLDER_TO = round(datetime(2001, 1, 1, tzinfo=UTC).timestamp()) * NS
DAY = 86_400 * NS


def near(facts: Iterable[Fact], as_of_ns: int | None) -> int | None:
    """A time close to the incident that has a year."""
    if as_of_ns is not None:
        return as_of_ns
    times = [f.ended_ns for f in facts if isinstance(f, SchedulerJob) and f.ended_ns is not None]
    times += [
        f.at_ns for f in facts if isinstance(f, XidEvent) and f.at_ns is not None and f.year_stated
    ]
    return max(times, default=None)


def with_years(facts: Iterable[Fact], near_ns: int | None) -> list[Fact]:
    """Log facts of the placeholder year moved to the year before or at `near_ns`."""
    listed = list(facts)
    if near_ns is None:
        return listed
    return [_moved(fact, near_ns) for fact in listed]


def _moved(fact: Fact, near_ns: int) -> Fact:
    match fact:
        case WatchdogTimeout() | GroupStatus() | LogSign():
            if not _has_no_year(fact.at_ns):
                return fact
            return replace(fact, at_ns=_year_of(fact.at_ns, near_ns))
        case Writes():
            if not _has_no_year(fact.last_ns):
                return fact
            return replace(
                fact,
                first_ns=_year_of(fact.first_ns, near_ns),
                last_ns=_year_of(fact.last_ns, near_ns),
                last_normal_ns=_year_of(fact.last_normal_ns, near_ns),
            )
        case Progress():
            if not fact.points or not _has_no_year(fact.points[-1].at_ns):
                return fact
            points = tuple(replace(p, at_ns=_year_of(p.at_ns, near_ns)) for p in fact.points)
            return replace(fact, points=points)
        case _:
            return fact


def _has_no_year(at_ns: int | None) -> bool:
    return at_ns is not None and PLACEHOLDER_FROM <= at_ns < PLACEHOLDER_TO


def _year_of(at_ns: int | None, near_ns: int) -> int | None:
    """The same day and time in the latest year that is no more than a day after `near_ns`.

    >>> near = 1776158597 * NS  # 2026-04-14
    >>> moved = _year_of(PLACEHOLDER_FROM + 5 * NS, near)
    >>> datetime.fromtimestamp(moved // NS, UTC).isoformat()
    '2026-01-01T00:00:05+00:00'
    """
    if at_ns is None or not _has_no_year(at_ns):
        return at_ns
    when = datetime.fromtimestamp(at_ns // NS, UTC)
    year = datetime.fromtimestamp((near_ns + DAY) // NS, UTC).year
    for candidate in (year, year - 1):
        try:
            moved = when.replace(year=candidate)
        except ValueError:  # 29 February
            continue
        found = round(moved.timestamp()) * NS + at_ns % NS
        if found <= near_ns + DAY:
            return found
    return at_ns
