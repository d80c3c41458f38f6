"""What the incidents say together: who repeats, how often something fails, how fast it was found."""

from __future__ import annotations

from random import Random

import pytest
from incident_makers import NOW_NS, changed, incident

from gpufleet_cli import repeats
from gpufleet_cli.chances import chance_of_at_least
from gpufleet_cli.cost_fleet import interval90_gpu_hours
from gpufleet_cli.history import tally
from gpufleet_cli.history.record import DAY_NS, HOUR_NS
from gpufleet_cli.history.tally import Wanted
from gpufleet_cli.node_card import FaultRate
from gpufleet_cli.repeats import USUAL

S = 1_000_000_000


def job(number: int) -> dict[str, object]:
    return {"uid": f"u-{number}"}


def test_an_offender_and_what_luck_would_give() -> None:
    """Three faults in four weeks; a program's errors on another node make none of it."""
    kept = [
        *(incident(days, **job(days)) for days in (3, 12, 20)),
        *(incident(days, "gpu-2", remedy="code", kind="rank-crashed") for days in (1, 2, 4)),
        incident(5, "gpu-3"),
        incident(70, "gpu-1"),
    ]
    (found,) = tally.offenders(kept, as_of_ns=NOW_NS, nodes=2048, rate=USUAL)
    assert ("gpu-1", 4, True) == (found.node, found.named, found.is_flagged)
    assert found.test is not None
    assert found.test.innocents == pytest.approx(1.796, abs=0.01)


def test_one_incident_told_by_two_jobs_is_one_fault_of_the_node() -> None:
    """Within an hour."""
    kept = [incident(3, uid="a"), incident(3.02, uid="b")]
    assert () == tally.offenders(kept, as_of_ns=NOW_NS, nodes=None, rate=USUAL)


def test_two_faults_in_four_weeks_are_what_chance_gives() -> None:
    """Shown, and not called an offender."""
    kept = [incident(10), incident(20)]
    (found,) = tally.offenders(kept, as_of_ns=NOW_NS, nodes=2048, rate=USUAL)
    assert not found.is_flagged


def test_a_node_that_loses_ranks_for_no_known_cause_is_shown_and_not_accused() -> None:
    """Three times in four weeks; with the nodes counted, how likely that is where all nodes are alike."""
    lost = {"remedy": "process", "kind": "rank-missing", "action": "restart-job"}
    kept = [
        *(incident(days, **lost) for days in (3, 12, 20)),
        *(incident(days, "gpu-2", **lost) for days in (4, 40)),
        *(incident(days, "gpu-3", remedy="code") for days in (5, 6, 7)),
    ]
    (found,) = tally.offenders(kept, as_of_ns=NOW_NS, nodes=None, rate=USUAL)
    assert ("gpu-1", 3, None, None, False) == (
        found.node, found.singled_out, found.singled_out_chance, found.test, found.is_flagged,
    )  # fmt: skip
    span = tally.span_of(kept, since_ns=NOW_NS - 56 * DAY_NS, as_of_ns=NOW_NS)
    (found,) = tally.offenders(kept, as_of_ns=NOW_NS, nodes=100, rate=USUAL, span=span)
    assert found.singled_out_chance == pytest.approx(chance_of_at_least(3, 5 / 100 / 2))
    assert not found.is_flagged


def test_a_node_of_another_cluster_is_another_node() -> None:
    """Told by the server; a context that stands beside one server is that one."""
    mine = [
        incident(1, server="https://a", context="prod"),
        incident(2, server="https://a", context="arn:a"),
        incident(3, context="prod"),
        incident(4, server="https://b", context="b"),
    ]
    (found,) = tally.offenders(mine, as_of_ns=NOW_NS, nodes=None, rate=USUAL)
    assert ("https://a", 3) == (found.cluster, found.test and found.test.faults)
    past = tally.of_node(mine, "gpu-1", context="prod", server="https://a")
    assert [1, 2, 3] == [round((NOW_NS - one.at_ns) / DAY_NS) for one in past if one.at_ns]
    assert 1 == len(tally.of_node(mine, "gpu-1", context="x", server="https://b"))
    assert 5 == len(tally.of_node([*mine, incident(6)], "gpu-1", context=None))


def test_the_span_begins_with_the_first_incident_which_is_not_counted() -> None:
    """Time that begins with an event says nothing of that event; `--since` leaves none out."""
    kept = [incident(days) for days in (30, 20, 10)]
    span = tally.span_of(kept, since_ns=None, as_of_ns=NOW_NS)
    assert span is not None
    assert (720.0, [False, True, True]) == (span.hours, [span.has(one) for one in kept])
    node_faults, stopped = tally.how_often(kept, span, gpus=1000)
    assert (2, 360.0) == (node_faults.seen, node_faults.hours_each)
    assert interval90_gpu_hours(2, 720.0) == node_faults.interval90_hours
    assert interval90_gpu_hours(2, 720_000.0) == stopped.interval90_gpu_hours
    assert 360_000.0 == stopped.gpu_hours_each
    asked = tally.span_of(kept, since_ns=NOW_NS - 40 * DAY_NS, as_of_ns=NOW_NS)
    assert asked is not None
    assert [True] * 3 == [asked.has(one) for one in kept]


def test_what_is_not_known_is_none() -> None:
    """No GPUs said: nothing per GPU-hour; none seen: no rate; no incident: no span."""
    assert tally.span_of([], since_ns=None, as_of_ns=NOW_NS) is None
    span = tally.span_of([incident(9)], since_ns=None, as_of_ns=NOW_NS)
    faults, _ = tally.how_often([incident(9)], span, gpus=None)
    assert (0, None, None, None) == (
        faults.seen, faults.hours_each, faults.gpu_hours_each, faults.interval90_gpu_hours,
    )  # fmt: skip
    assert faults.interval90_hours is not None
    assert faults.interval90_hours[1] is None
    assert faults.without_first
    assert not tally.how_often([incident(8, uid="x")], span, gpus=None)[0].without_first
    bare, _ = tally.how_often([incident(9)], None, gpus=8)
    assert (1, None) == (bare.seen, bare.interval90_hours)


def test_stops_and_node_faults_are_not_mixed() -> None:
    """A crash of a program stops a job and is no fault of a node; a slow node stops none."""
    kept = [
        incident(1),
        incident(2, remedy="code", kind="rank-crashed"),
        incident(3, state="running", kind="straggler"),
        incident(4, state="unknown", kind="undecidable", nodes=()),
    ]
    span = tally.span_of(kept, since_ns=NOW_NS - 5 * DAY_NS, as_of_ns=NOW_NS)
    assert [2, 2] == [one.seen for one in tally.how_often(kept, span, gpus=None)]


def test_medians_say_how_many_knew() -> None:
    """Detected by the job's end or by somebody's look, whichever came first."""
    begin = NOW_NS - DAY_NS
    kept = [
        incident(ended_ns=begin + 600 * S, looked_ns=begin + 900 * S, diagnosed_ns=begin + 900 * S),
        incident(looked_ns=begin + 300 * S),
        incident(ended_ns=begin + 500 * S),
        incident(began_ns=None, ended_ns=begin, looked_ns=begin),
        incident(ended_ns=begin - 5 * S),
    ]
    detect, diagnose = tally.how_fast(kept)
    assert (500.0, 3, 5) == (detect.median_s, detect.known, detect.of)
    assert (900.0, 1, 5) == (diagnose.median_s, diagnose.known, diagnose.of)
    assert tally.how_fast([])[0].median_s is None


def test_the_rate_of_the_fleet_from_enough_faults_of_known_nodes() -> None:
    """With its interval; from nine, or of unknown nodes, there is none."""
    many = [incident(30), *(incident(n / 10, f"gpu-{n}") for n in range(1, 11))]
    span = tally.span_of(many, since_ns=None, as_of_ns=NOW_NS)
    own = tally.own_rate(many, span, 100)
    assert own is not None
    (rate, source), (low, high) = own
    assert (10 / 3000, "history") == (pytest.approx(rate), source)
    assert (5.425 / 3000, 16.962 / 3000) == (pytest.approx(low, 1e-3), pytest.approx(high, 1e-3))
    assert tally.own_rate(many, span, None) is None
    assert tally.own_rate(many[:-1], span, 100) is None


@pytest.mark.parametrize("rate", [2e-3, 6.5e-3, 2e-2, 5e-2])
def test_innocents_come_at_the_stated_rate(rate: float) -> None:
    """Healthy nodes that are named by luck, in a simulation of their own, are as many as is said."""
    draw = Random(f"innocents/{rate}")
    nodes = 20_000
    days = [[draw.uniform(0, 28) for _ in range(_poisson(draw, 28 * rate))] for _ in range(nodes)]
    named = 0
    for times in days:
        at = (NOW_NS - round(one * DAY_NS) for one in times)
        test = repeats.judge(at, now_ns=NOW_NS, nodes=nodes, rate=FaultRate(rate, "flag"))
        named += test is not None and test.is_flagged
    expected = nodes * repeats.chance_flagged(rate)
    assert abs(named - expected) <= 4 * expected**0.5 + 1, (named, expected)


def _poisson(draw: Random, mean: float) -> int:
    events, left = 0, draw.expovariate(1.0)
    while left < mean:
        events += 1
        left += draw.expovariate(1.0)
    return events


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted(), 3),
        (Wanted(since_ns=NOW_NS - 5 * DAY_NS), 1),
        (Wanted(node="gpu-2"), 1),
        (Wanted(job="train"), 3),
        (Wanted(job="ml/train"), 3),
        (Wanted(job="other/train"), 0),
        (Wanted(kind="network", node="gpu-1"), 1),
        (Wanted(namespace="ml"), 3),
        (Wanted(namespace="other"), 0),
    ],
)
def test_which_incidents_are_asked_for(wanted: Wanted, expected: int) -> None:
    """By time, node, job and kind; one without a time is never after a time."""
    kept = [incident(1), incident(9, "gpu-2"), incident(at_ns=None, kind="network")]
    assert expected == sum(wanted.has(one) for one in kept)


def test_beside_a_verdict_stands_what_the_node_did_in_four_weeks() -> None:
    """Up to this incident, whatever came after it; and nothing where it is the first."""
    own = incident(2, uid="now")
    before = [incident(8), incident(20), incident(40), incident(1, uid="later")]
    told = tally.beside_verdict([*before, own], own, USUAL)
    assert ["history: gpu-1: 3 faults in 28 d, by luck 1 in 1,140 healthy nodes"] == told
    assert [] == tally.beside_verdict([own, before[2]], own, USUAL)
    assert [] == tally.beside_verdict([*before, own], changed(own, remedy="code"), USUAL)
    assert [] == tally.beside_verdict([*before, own], changed(own, at_ns=None), USUAL)


def test_rows_are_newest_first() -> None:
    """With the cluster by the name that everybody gives it."""
    kept = [incident(9), incident(1, server="https://a")]
    assert ["https://a", None] == [one.cluster for one in tally.rows(kept)]
    assert HOUR_NS * 24 == NOW_NS - (tally.rows(kept)[0].at_ns or 0)
