"""The history file: one line an incident, written by many, read whatever is in it."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpufleet_cli.history import incidents
from gpufleet_cli.history.incidents import Incident

ROOT = Path(__file__).parents[2]
HOUR_NS = incidents.NS_AN_HOUR


def incident(number: int = 0, **more: object) -> Incident:
    made = {"id": f"{number:016x}", "kind": "hardware", "at_ns": number * HOUR_NS, "job": "train"}
    return Incident(**{**made, "nodes": ("gpu-1",), **more})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """State is kept, in the test's own folder."""
    monkeypatch.delenv("GPUFLEET_NO_STATE")


def test_the_same_incident_is_kept_once() -> None:
    """Said again it adds nothing; with more evidence its newest line counts."""
    incidents.remember(incident(1))
    incidents.remember(incident(2))
    incidents.remember(incident(1))
    assert 2 == incidents.place().read_bytes().count(b"\n")
    incidents.remember(incident(1, kind="network"))
    assert 3 == incidents.place().read_bytes().count(b"\n")
    assert [("hardware", 2), ("network", 1)] == [
        (one.kind, one.at_ns // HOUR_NS) for one in incidents.read() if one.at_ns is not None
    ]


def test_the_folder_is_the_users_own() -> None:
    """Jobs and nodes of a site are nobody else's business."""
    incidents.remember(incident(1))
    assert 0o700 == stat.S_IMODE(incidents.place().parent.stat().st_mode)


def test_lines_that_cannot_be_read_are_passed_over() -> None:
    """Torn, foreign, empty, of another schema; what stands behind them counts."""
    incidents.remember(incident(1))
    other = msgspec.json.encode(incident(3, schema="gpufleet.incident/v9"))
    with incidents.place().open("ab") as file:
        file.write(b'{"id": "half\n\n\xff\xfe\n[1, 2]\n' + other + b"\n" + b'{"id": "torn')
    incidents.remember(incident(2))
    assert [incident(1), incident(2)] == incidents.read()


def test_no_state_writes_and_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUFLEET_NO_STATE=1."""
    incidents.remember(incident(1))
    monkeypatch.setenv("GPUFLEET_NO_STATE", "1")
    incidents.remember(incident(2))
    assert [] == incidents.read()
    assert 1 == incidents.place().read_bytes().count(b"\n")


def test_many_write_at_once() -> None:
    """Each line whole, none lost, none twice."""
    code = (
        "import sys; from gpufleet_cli.history import incidents as i\n"
        "for n in range(40): i.remember(i.Incident(id=str(n % 20) + sys.argv[1], kind='network', summary='x' * 3000))"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(number)], cwd=ROOT) for number in range(4)
    ]
    assert [0] * 4 == [writer.wait() for writer in writers]
    assert 80 == len(incidents.read()) == incidents.place().read_bytes().count(b"\n")


def test_a_node_of_another_context_is_another_node() -> None:
    """Newest first; where no context is known the name decides."""
    found = [
        incident(1, context="a"),
        incident(2, context="b"),
        incident(3),
        incident(4, nodes=("gpu-2",), context="a"),
    ]
    named = incidents.of_node(found, "gpu-1", "a")
    assert [3 * HOUR_NS, HOUR_NS] == [one.at_ns for one in named]
