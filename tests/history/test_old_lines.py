"""The file of lines that an older gpufleet kept is read once, and set aside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpufleet_cli.history import folder, place
from gpufleet_cli.settings import state_folder

LINE = {
    "id": "00000000000000aa",
    "kind": "hardware",
    "schema": "gpufleet.incident/v1",
    "at_ns": 1_773_200_467_118_000_000,
    "context": "prod",
    "job": "train-run-7",
    "namespace": "train",
    "attempt": 3,
    "confidence": 0.97,
    "action": "evict-now",
    "nodes": ["gpu-node-0417"],
    "xids": [79],
}


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUFLEET_NO_STATE")


def write(*lines: object) -> Path:
    old = state_folder() / "history.jsonl"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"".join(_line(line) for line in lines) + b'{"id": "torn')
    return old


def _line(line: object) -> bytes:
    return line + b"\n" if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"


def test_lines_become_files_once() -> None:
    """The last line of an id counts; what cannot be read is passed over; the second run finds nothing to do."""
    newer = {**LINE, "kind": "network", "confidence": 0.99}
    other = {**LINE, "id": "b", "attempt": 4}
    huge = {**LINE, "id": "c", "attempt": 5, "at_ns": 1 << 70}
    foreign = {**LINE, "id": "d", "schema": "gpufleet.incident/v9", "attempt": 6}
    old = write(LINE, newer, other, huge, foreign, b"\xff\xfe", [1], b"")
    own = place.chosen(None, None)
    assert own.is_own
    found = folder.read(own.folder)
    assert [("network", 3), ("hardware", 4)] == sorted(
        ((one.kind, one.attempt) for one in found.incidents), key=str, reverse=True
    )
    assert [True, False] == sorted((one.is_node_fault for one in found.incidents), reverse=True)
    assert not old.exists()
    assert old.with_name("history.jsonl.moved").is_file()
    assert own == place.chosen(None, None)
    assert found == folder.read(own.folder)


def test_a_file_that_cannot_be_moved_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk costs nothing that was kept."""
    old = write(LINE)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "_write", full)
    place.chosen(None, None)
    assert old.is_file()


def test_without_state_nothing_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUFLEET_NO_STATE=1."""
    old = write(LINE)
    monkeypatch.setenv("GPUFLEET_NO_STATE", "1")
    place.chosen(None, None)
    assert old.is_file()


def test_a_shared_folder_takes_no_lines_of_one_person(tmp_path: Path) -> None:
    """What was kept before a team shared a folder stays the person's."""
    old = write(LINE)
    assert not place.chosen(str(tmp_path), None).is_own
    assert old.is_file()
