"""Repeat offenders: what counts as a fault of the node, and what chance alone would give."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from incident_makers import incident

from gpufleet_cli.cli import main
from gpufleet_cli.history.folder import keep
from gpufleet_cli.live.node_past import DAY_NS, repeat_test
from gpufleet_cli.node_card import FaultRate, PastIncident, XidSeen
from gpufleet_cli.settings import state_folder
from live import fake_api
from live.fake_api import FakeApi

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
        PastIncident(
            at_ns=NOW - 3 * DAY_NS + 60 * 10**9,
            kind="hardware",
            action="evict-now",
            is_node_fault=True,
        ),
        PastIncident(
            at_ns=NOW - 9 * DAY_NS, kind="hardware", action="evict-now", is_node_fault=True
        ),
        PastIncident(at_ns=NOW - 5 * DAY_NS, kind="network", action="none", is_node_fault=False),
    ]
    test = repeat_test([seen(3)], past, now_ns=NOW, nodes=None)
    assert test is not None
    assert (2, 28, None) == (test.faults, test.days, test.innocents)


@pytest.mark.parametrize(("rate", "expected"), [(0.0065, True), (0.002, True), (0.1, False)])
def test_a_fleet_that_fails_often_has_no_offender_by_chance(rate: float, expected: bool) -> None:
    """Three faults in 28 days are what one fault in ten days gives anyhow."""
    found = [seen(20), seen(10), seen(3)]
    test = repeat_test(found, [], now_ns=NOW, nodes=2048, rate=FaultRate(rate, "flag"))
    assert test is not None
    assert (3, expected) == (test.faults, test.is_flagged)


def faulty_node(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that one incident on this machine named, a minute ago."""
    fake.add("/api/v1/nodes", fake_api.node("gpu-1"))
    monkeypatch.delenv("GPUFLEET_NO_STATE", raising=False)
    at = time.time_ns() - 60 * 10**9
    made = incident(at_ns=at, context="fake", node="gpu-1")
    keep(state_folder() / "history", made, is_own=True)


def test_the_rate_and_who_stated_it(
    fake: FakeApi,
    fake_kubeconfig: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Flag over settings file over default, in text and JSON."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    faulty_node(fake, monkeypatch)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    asked = ["node", "gpu-1", "--kubeconfig", str(fake_kubeconfig)]

    def told(*more: str) -> tuple[float, str, str]:
        assert 0 == main([*asked, *more, "-o", "json"])
        test = json.loads(capsys.readouterr().out)["node"]["repeat_offender"]
        assert 0 == main([*asked, *more])
        text = " ".join(capsys.readouterr().out.split())
        rate = text.partition(" a node-day, ")[2].partition(")")[0]
        return test["faults_per_node_day"], test["faults_per_node_day_source"], rate

    assert (0.0065, "default", "a default") == told()
    file = tmp_path / "config" / "gpufleet" / "config.toml"
    file.parent.mkdir(parents=True)
    context = "fake"
    file.write_text(f'[contexts."{context}"]\nnode_failures_per_day = 0.004\n')
    assert (0.004, "file", "by the settings file") == told()
    flag = ("--node-failures-per-day", "0.02")
    assert (0.02, "flag", "by --node-failures-per-day") == told(*flag)

    for bad in ("0", "-1", "nan", "inf", "often", "25"):
        assert 2 == main([*asked, "--node-failures-per-day", bad])
        out, err = capsys.readouterr()
        assert ("", True) == (out, "no number of failures a day" in err.splitlines()[0]), err
    for bad in ("0", "true", '"1"', "nan"):
        file.write_text(f'[contexts."{context}"]\nnode_failures_per_day = {bad}\n')
        assert 2 == main(asked)
        assert "node_failures_per_day is no number" in capsys.readouterr().err
