"""Whether a node fails more often than chance: a Poisson tail at the fleet's usual rate, over two windows.

Flagged at 3 faults in 28 days or 2 in 7, where chance seldom gives as many; and always with how many healthy
nodes would show as many, since who looks at ten thousand nodes finds some by luck. What comes within
an hour is one fault.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpufleet_cli.chances import chance_of_at_least, chance_of_at_most, fewest
from gpufleet_cli.node_card import FaultRate, RepeatTest

NS = 1_000_000_000
DAY_NS = 86_400 * NS
FAULTS_A_NODE_DAY = 6.5e-3
"""Of large fleets of 8-GPU nodes (arXiv 2410.21680); the default where nobody measured one's own."""
USUAL = FaultRate(FAULTS_A_NODE_DAY, "default")
SELDOM = 0.01
"""A node is called an offender only where fewer healthy ones than this part would show as many faults."""
_APART_NS = 3_600 * NS
SHORT, LONG = (7, 2), (28, 3)
"""Days, and the fewest faults in them that are looked at twice."""
_WINDOWS = (SHORT, LONG)


def judge(
    times: Iterable[int], *, now_ns: int, nodes: int | None, rate: FaultRate = USUAL
) -> RepeatTest | None:
    """The test of one node's faults, before `now_ns`; None without any in 28 days."""
    faults = apart(times)
    counts = {
        days: sum(now_ns - days * DAY_NS <= at <= now_ns for at in faults) for days, _ in _WINDOWS
    }
    if not counts[LONG[0]]:
        return None
    many = [days for days, least in _WINDOWS if counts[days] >= least]
    tests = [_test(counts[days], days, nodes, rate, is_many=bool(many)) for days in many or (28,)]
    return min(tests, key=lambda one: one.chance)


def chance_flagged(rate: float) -> float:
    """The chance that a healthy node is flagged today, by either window.

    The last week is part of the four: so many in it and, given fewer, so many in all.

    >>> round(chance_flagged(6.5e-3), 6), round(2048 * chance_flagged(6.5e-3), 1)
    (0.00174, 3.6)
    """
    week, month = (_fewest_flagged(days, least, rate) for days, least in _WINDOWS)
    in_week, before = rate * SHORT[0], rate * (LONG[0] - SHORT[0])
    passed = sum(
        _exactly(few, in_week) * chance_of_at_most(month - 1 - few, before)
        for few in range(min(week, month))
    )
    return max(0.0, 1.0 - passed)


def _fewest_flagged(days: int, least: int, rate: float) -> int:
    return max(least, fewest(lambda many: chance_of_at_least(many, rate * days) <= SELDOM))


def _exactly(events: int, mean: float) -> float:
    return chance_of_at_least(events, mean) - chance_of_at_least(events + 1, mean)


def apart(times: Iterable[int]) -> list[int]:
    """The first of each group that came within an hour."""
    kept: list[int] = []
    last: int | None = None
    for at in sorted(times):
        if last is None or at - last > _APART_NS:
            kept.append(at)
        last = at
    return kept


def _test(
    faults: int, days: int, nodes: int | None, rate: FaultRate, *, is_many: bool
) -> RepeatTest:
    chance = chance_of_at_least(faults, rate.a_node_day * days)
    return RepeatTest(
        faults=faults,
        days=days,
        rate=rate,
        chance=chance,
        nodes=nodes,
        innocents=None if nodes is None else nodes * chance,
        is_flagged=is_many and chance <= SELDOM,
    )
