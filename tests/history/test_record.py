"""What makes two records one incident, and how they become one."""

from __future__ import annotations

import itertools

import pytest
from incident_makers import NOW_NS, changed, incident

from gpufleet_cli.history.record import DAY_NS, HOUR_NS, Incident, joined, told_apart

MINUTE_NS = HOUR_NS // 60


def at(ns: int, **more: object) -> Incident:
    return incident(at_ns=ns, began_ns=ns, **more)


def test_who_triages_changes_no_identity() -> None:
    """The job's uid is the same for everybody; contexts are named by each person."""
    one = incident(uid="u-1", context="prod", server="https://a")
    other = incident(uid="u-1", context="arn:aws:eks:a", server="https://b", kind="network")
    assert one.id == other.id
    assert one.id != incident(uid="u-2").id
    assert one.id != incident(uid="u-1", attempt=1).id


def test_without_a_uid_the_cluster_tells_jobs_apart() -> None:
    """Two clusters may both run train in ml."""
    assert incident(server="https://a").id == incident(server="https://a", context="x").id
    assert incident(server="https://a").id != incident(server="https://b").id
    assert incident(context="a").id != incident(context="b").id


def test_the_turn_of_an_hour_makes_no_second_incident() -> None:
    """More evidence moves the beginning by seconds; the records have two ids, and are one incident."""
    turn = NOW_NS // HOUR_NS * HOUR_NS
    early, late = at(turn - MINUTE_NS), at(turn + MINUTE_NS, facts=200)
    assert early.id != late.id
    assert [late] == told_apart([late, early])


def test_a_job_that_fails_again_is_another_incident() -> None:
    """Two hours later, in the same attempt."""
    assert 2 == len(told_apart([at(NOW_NS), at(NOW_NS - 2 * HOUR_NS)]))


def test_a_job_that_is_slow_all_day_is_one_incident() -> None:
    """It runs on, so that each look sees another newest step."""
    noon = NOW_NS // DAY_NS * DAY_NS + 12 * HOUR_NS
    looks = [at(noon + hour * HOUR_NS, state="running", kind="straggler") for hour in range(5)]
    assert 1 == len(told_apart(looks))
    assert 2 == len(told_apart([looks[0], at(noon, state="aborted")]))


RECORDS = [
    incident(looked_ns=NOW_NS),
    incident(looked_ns=NOW_NS - 9, diagnosed_ns=NOW_NS + 1, facts=50),
    incident(kind="undecidable", confidence=0.5, facts=100, as_of_ns=NOW_NS),
    incident(kind="network", diagnosed_ns=NOW_NS + 3, facts=100, as_of_ns=NOW_NS),
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_joining_knows_no_order(order: tuple[int, ...]) -> None:
    """And joining again changes nothing: that is why no lock is needed."""
    whole = RECORDS[order[0]]
    for index in order[1:]:
        whole = joined(whole, RECORDS[index])
    assert "network" == whole.kind
    assert (NOW_NS - 9, NOW_NS + 1) == (whole.looked_ns, whole.diagnosed_ns)
    assert all(whole == joined(whole, one) for one in RECORDS)


def test_more_evidence_counts_whatever_it_says() -> None:
    """A late look at what is left of a job takes nothing back; more evidence does, a name too."""
    first = incident(facts=100)
    late = incident(facts=10, kind="undecidable", as_of_ns=NOW_NS)
    assert first == joined(first, late)
    richer = incident(facts=200, kind="undecidable", nodes=())
    assert richer == joined(first, richer)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, True),
        ({"remedy": None}, True),
        ({"remedy": None, "kind": "network"}, False),
        ({"remedy": "code", "kind": "rank-crashed"}, False),
        ({"remedy": "node", "kind": "network"}, True),
        ({"nodes": ()}, False),
        ({"kind": "undecidable"}, False),
    ],
)
def test_what_counts_against_a_node(more: dict[str, object], expected: bool) -> None:
    """The cause lies in it; a program's error on a node is none of the node's."""
    assert expected == changed(incident(), **more).is_node_fault
