"""The file that a watch goes on from: what it carries over, and what a torn or hostile one costs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpufleet_cli.operate.watch import machine, memory
from gpufleet_cli.operate.watch.model import Habit, Mark, Past, State, Subject

NS = 1_000_000_000
AT = 1_790_000_000 * NS
STATE = replace(
    machine.begun(100.0),
    subject=Subject(token="uid/2/0", number=2, state="running"),
    marks={"logs": {"p-0": Mark(4121, AT - 400 * NS)}},
    mode="stalled",
    moved_s=600.0,
    seen_s=605.0,
    step=4121,
    stalled_ns=AT - 400 * NS,
    habit=Habit(
        interval_s=1.0, paces=(0.4, 0.5), pauses=(Past("save", 44.0),), save_every_s=1800.0
    ),
)


@pytest.fixture(autouse=True)
def keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUFLEET_NO_STATE")


def kept(state: State = STATE) -> memory.Kept:
    found = memory.kept_of(
        state, 1000.0, AT, alerts={"GpufleetJobStalled": AT - 400 * NS}, bundle="here"
    )
    assert found is not None
    return found


def test_a_watch_goes_on_where_it_was(tmp_path: Path) -> None:
    """Ten seconds later on the same machine: silence, stall and habit are as they were."""
    path = tmp_path / "deep" / "state.json"
    memory.store(path, kept())
    loaded = memory.load(path)
    assert "" == loaded.note and loaded.kept is not None
    assert "here" == loaded.kept.bundle
    state = memory.state_of(loaded.kept, machine.begun(1010.0), 1010.0, AT + 10 * NS)
    assert "stalled" == state.mode
    assert STATE.marks == state.marks
    assert STATE.habit == state.habit
    assert state.quiet_s(1010.0) == pytest.approx(410.0)
    assert [path] == list(path.parent.iterdir())
    assert 0o600 == path.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("now_s", "at_ns"),
    [(3.0, AT + 10 * NS), (1010.0, AT + 3610 * NS), (1010.0, AT - 3600 * NS)],
    ids=["booted anew", "clock set forward", "clock set back"],
)
def test_no_silence_is_carried_over_a_clock_that_was_set(now_s: float, at_ns: int) -> None:
    """The habit is: it is no matter of a clock."""
    state = memory.state_of(kept(), machine.begun(now_s), now_s, at_ns)
    assert state.moved_s is None and {} == state.marks
    assert STATE.habit == state.habit


WHOLE = json.loads(memory.msgspec.json.encode(kept()))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe\x00",
        b"[]",
        b"{",
        json.dumps(WHOLE).encode()[:-40],
        json.dumps({**WHOLE, "schema": "gpufleet.watch-state/v9"}).encode(),
        json.dumps({**WHOLE, "moved_ns": -5}).encode(),
        json.dumps({**WHOLE, "moved_ns": 10**30}).encode(),
        json.dumps({**WHOLE, "moved_ns": "yesterday"}).encode(),
        json.dumps({**WHOLE, "paces": [-1.0]}).encode(),
        json.dumps({**WHOLE, "paces": [1.0] * 100_000}).encode(),
        json.dumps({**WHOLE, "pauses": [["save", 1e300]]}).encode(),
        json.dumps({**WHOLE, "pauses": [["party", 5.0]]}).encode(),
        json.dumps({**WHOLE, "steady_s": 1e300}).encode(),
        json.dumps({**WHOLE, "alerts": {str(n): 5 for n in range(99)}}).encode(),
        json.dumps({**WHOLE, "more": 1}).encode(),
        b'{"schema": ' + b"[" * 100_000,
        b"x" * (2 << 20),
    ],
)
def test_a_torn_or_hostile_file_costs_itself(data: bytes, tmp_path: Path) -> None:
    """One line says so, and the watch begins anew."""
    path = tmp_path / "state.json"
    path.write_bytes(data)
    loaded = memory.load(path)
    assert loaded.kept is None
    assert str(path) in loaded.note


def test_without_state_nothing_is_read_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    memory.store(path, kept())
    monkeypatch.setenv("GPUFLEET_NO_STATE", "1")
    assert memory.Loaded(None) == memory.load(path)
    memory.store(tmp_path / "other.json", kept())
    assert [path] == list(tmp_path.iterdir())


def test_jobs_of_one_name_have_files_of_their_own() -> None:
    places = {
        memory.place(context, namespace, kind, "run")
        for context in (None, "a", "b")
        for namespace in ("ml", "dev")
        for kind in ("Job", "JobSet")
    }
    assert 12 == len(places)
