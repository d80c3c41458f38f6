"""Repeat offenders: what counts as a fault of the node, and what chance alone would give."""

from __future__ import annotations

import pytest

from gpufleet_cli.live.node_past import DAY_NS, repeat_test
from gpufleet_cli.node_card import PastIncident, XidSeen

NOW = 1_000 * DAY_NS


def seen(days_ago: float, xid: int = 79) -> XidSeen:
    return XidSeen(at_ns=NOW - round(days_ago * DAY_NS), xid=xid)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([seen(20), seen(10), seen(3)], (3, 28, True, 1.8)),
        ([seen(6), seen(1)], (2, 7, True, 2.1)),
        ([seen(20), seen(10)], (2, 28, False, 30.1)),
        ([seen(20)], (1, 28, False, 340.8)),
        ([seen(3), seen(3.01), seen(3.02, 48)], (1, 28, False, 340.8)),
        ([seen(20, 31), seen(10, 13), seen(3, 45), seen(2, 43)], None),
        ([seen(29), seen(29.5)], None),
        ([], None),
    ],
)
def test_thresholds_and_innocents(
    found: list[XidSeen], expected: tuple[int, int, bool, float] | None
) -> None:
    """Three in 28 days or two in seven; programs' faults and echoes do not count, a burst counts once."""
    test = repeat_test(found, [], now_ns=NOW, nodes=2048)
    if expected is None:
        assert test is None
        return
    assert test is not None
    assert test.innocents is not None
    assert expected == (test.faults, test.days, test.is_flagged, round(test.innocents, 1))


def test_past_incidents_count_with_the_xids() -> None:
    """The incident that an XID made is the same fault; one of a network is none of the node's."""
    past = [
        PastIncident(at_ns=NOW - 3 * DAY_NS + 60 * 10**9, kind="hardware", action="evict-now"),
        PastIncident(at_ns=NOW - 9 * DAY_NS, kind="hardware", action="evict-now"),
        PastIncident(at_ns=NOW - 5 * DAY_NS, kind="network", action="none"),
    ]
    test = repeat_test([seen(3)], past, now_ns=NOW, nodes=None)
    assert test is not None
    assert (2, 28, None) == (test.faults, test.days, test.innocents)
