"""The client of a fleet: what came is decided upon, what did not is a gap."""

from __future__ import annotations

import queue
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpufleet_cli.errors import TargetError
from gpufleet_cli.operate.fleet import gather as gathering
from gpufleet_cli.operate.fleet import tasks
from gpufleet_cli.operate.fleet.engine import Done
from gpufleet_cli.operate.fleet.gather import gather
from gpufleet_cli.operate.fleet.places import Order, folder_url, listing, read_shard
from gpufleet_cli.operate.fleet.shards import File
from gpufleet_cli.reason import parts


class Here:
    """An engine that reads in this process, but for the shards that `fate` speaks of."""

    slots = 1

    def __init__(self, fate: Callable[[Order], str | None] = lambda order: None) -> None:
        self.done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self.fate = fate
        self.parts: dict[int, bytes] = {}
        self.orders: list[Order] = []

    def submit(self, number: int, order: bytes) -> None:
        told = Order.decode(order)
        self.orders.append(told)
        match self.fate(told):
            case "never":
                return
            case "interrupt":
                raise KeyboardInterrupt
            case None:
                self.parts[number] = parts.encode(read_shard(told))
                self.done.put((number, tasks.receipt_of(self.parts[number])))
            case why:
                self.done.put((number, str(why)))

    def trouble(self) -> str | None:
        return "no worker is left" if self.fate is lonely else None

    def merged(self, numbers: Sequence[int], sizes: Sequence[int]) -> Iterator[bytes]:
        assert [len(self.parts[number]) for number in numbers] == list(sizes)
        yield from (self.parts[number] for number in numbers)

    def close(self) -> None:
        pass


def lonely(order: Order) -> str | None:
    return "never" if order.files[0].name == "rank_2.log" else None


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Four logs, a shard each."""
    monkeypatch.setattr(gathering, "SMALLEST", 1)
    monkeypatch.setattr(gathering, "LARGEST", 1)
    for rank in range(4):
        lines = [f"2026-03-11T03:41:{n:02}Z [rank{rank}]: step: {n} loss: 2.0\n" for n in range(30)]
        (tmp_path / f"rank_{rank}.log").write_text("".join(lines))
    return folder_url(str(tmp_path))


def names(found: gathering.Gathered) -> list[str]:
    return [frame.path for part in found.parts for frame in part.frames]


def test_all_that_came(place: str) -> None:
    heard: list[int] = []
    found = gather(Here(), place, listing(place), told=heard.append)
    assert [f"rank_{n}.log" for n in range(4)] == names(found)
    assert ((), False, 4, [1, 1, 1, 1]) == (found.gaps, found.interrupted, found.shards, heard)


@pytest.mark.parametrize(
    ("fate", "why"),
    [
        (lambda order: "it is gone" if "2" in order.files[0].name else None, "it is gone"),
        (lonely, "no worker is left"),
    ],
)
def test_a_shard_that_did_not_come_is_a_gap(
    place: str, fate: Callable[[Order], str | None], why: str
) -> None:
    found = gather(Here(fate), place, listing(place))
    assert ["rank_0.log", "rank_1.log", "rank_3.log"] == names(found)
    assert [("file rank_2.log", why)] == [(gap.what, gap.why) for gap in found.gaps]


def test_the_deadline_keeps_what_came(place: str) -> None:
    found = gather(
        Here(lambda order: "never" if "3" in order.files[0].name else None),
        place,
        listing(place),
        deadline_s=0.05,
    )
    assert "not there by the deadline" in {gap.why for gap in found.gaps}
    assert names(found)


def test_ctrl_c_keeps_what_came(place: str) -> None:
    """What has come is decided upon; the rest is lost with the wait, and said."""
    engine = Here(lambda order: "interrupt" if "2" in order.files[0].name else None)
    found = gather(engine, place, listing(place))
    assert (True, ["rank_0.log", "rank_1.log"]) == (found.interrupted, names(found))
    assert ["interrupted"] * 2 == [gap.why for gap in found.gaps]
    with pytest.raises(KeyboardInterrupt):
        gather(Here(lambda order: "interrupt"), place, listing(place))


def test_nothing_at_all_is_one_line(place: str) -> None:
    with pytest.raises(TargetError, match="no way there"):
        gather(Here(lambda order: "no way there"), place, listing(place))


def test_shards_without_a_year_are_read_again_where_they_are(place: str, tmp_path: Path) -> None:
    """By the newest time of all, once that is known; the others are not."""
    line = (
        "[rank9]:[E1231 23:59:57.000000000 ProcessGroupNCCL.cpp:685] [Rank 9] Watchdog caught collective"
        " operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=8, NumelOut=8,"
        " Timeout(ms)=600000) ran for 600009 milliseconds before timing out.\n"
    )
    (tmp_path / "rank_9.log").write_text(line)
    engine = Here()
    found = gather(engine, place, listing(place))
    again = [order for order in engine.orders if order.near_ns is not None]
    assert [["rank_9.log"]] == [[file.name for file in order.files] for order in again]
    whole = parts.merge(found.parts)
    assert "not of all" not in repr(parts.summary_of(whole))
    assert {again[0].near_ns} == {parts.narrow(f.near_ns) for f in whole.frames if f.year_given}


def test_a_file_that_ends_its_reader_costs_itself(place: str) -> None:
    """Halved until it is found: its neighbours are read."""
    files = listing(place).files
    asked: list[int] = []

    def read(order: Order) -> bytes | str:
        asked.append(len(order.files))
        if any("rank_1" in file.name for file in order.files):
            return "reading it ended the reader (signal 9)"
        return parts.encode(read_shard(order))

    part = parts.decode(tasks.summarised(Order(location=place, files=files), read))
    assert ["rank_0.log", "rank_2.log", "rank_3.log"] == [frame.path for frame in part.frames]
    gaps = parts.target_of(part).gaps
    assert [("file rank_1.log", "reading it ended the reader (signal 9)")] == [
        (gap.what, gap.why) for gap in gaps
    ]
    assert [4, 2, 1, 1, 2] == asked


def test_what_is_wrong_with_the_place_is_no_fault_of_a_file(place: str) -> None:
    """A package that a worker lacks, a store that does not answer: the shard is tried again, not halved."""
    files = listing(place).files
    order = Order(location="nosuch://somewhere/run7", files=files)
    with pytest.raises(tasks.ShardLost, match="nosuch"):
        tasks.summarise_shard(order.encode())


def test_a_child_that_is_ended_leaves_nothing(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a shard are a gigabyte before long: gone with the child, also when it is killed."""
    room = tmp_path / "room"
    room.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    order = Order(location=place, files=listing(place).files)
    assert parts.decode(tasks.summarise_shard(order.encode())).frames
    children = tasks.Children()
    monkeypatch.setattr(tasks, "PATIENCE_S", -1.0)  # ended at once
    assert "it never ends" == children(order)
    assert [] == list(room.iterdir())
    children.close()
    with pytest.raises(tasks.ShardLost, match="interrupted"):
        children(order)


def test_orders_travel() -> None:
    """Any name that a store can hold, also one that is no Unicode."""
    files = (File(name="a b/\u00e9\udc80.log", size_bytes=5), File(name="../x", size_bytes=0))
    order = Order(location="s3://b/x", files=files, near_ns=1 << 70, keep_content=True)
    assert order == Order.decode(order.encode())
    assert order != replace(order, near_ns=None)
