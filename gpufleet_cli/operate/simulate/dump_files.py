"""Flight Recorder dumps of a story, as each torch release writes them.

Schema and traps: https://github.com/pytorch/pytorch (FlightRecorder; read per release). An entry of
a batch of sends and receives never completes; the batch's own entry tells. A completion stamp is
when the watchdog looked, not when the kernel ended.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections import defaultdict
from dataclasses import dataclass
from random import Random
from typing import Any

from gpufleet_cli.operate.simulate import programs
from gpufleet_cli.operate.simulate.engine import EXCHANGED
from gpufleet_cli.operate.simulate.layout import Group
from gpufleet_cli.operate.simulate.programs import Op
from gpufleet_cli.operate.simulate.story import Story

SCHEMAS = {"2.1": "2.1", "2.4": "2.1", "2.6": "2.4", "2.8": "2.9", "2.10": "2.10"}
PREFIXES = ("nccl_trace_rank_", "comm_lib_trace_rank_", "rank_")
Document = dict[str, Any]


@dataclass(slots=True)
class _Counters:
    """Of one group on one rank: collectives, sends and receives, all operations."""

    collective: int = 0
    p2p: int = 0
    every: int = 0
    completed: int = -1


def write(story: Story, rng: Random, *, ranks: list[int]) -> dict[str, bytes]:
    """One file per rank of `ranks` under `dumps/`."""
    prefix = rng.choice(PREFIXES)
    return {
        f"dumps/{prefix}{rank}": encode(document(story, rank, rng), as_json=story.style.as_json)
        for rank in ranks
    }


def encode(found: Document, *, as_json: bool) -> bytes:
    """A document as torch's pickle or JSON form has it."""
    if not as_json:
        return pickle.dumps(found, protocol=2)
    plain = {
        key: {name: str(value) for name, value in counters.items()}
        for key, counters in found.get("pg_status", {}).items()
    }
    entries = [
        {
            **{key: value for key, value in entry.items() if key != "frames"},
            "time_discovered_started_ns": entry["time_discovered_started_ns"] or 0,
            "time_discovered_completed_ns": entry["time_discovered_completed_ns"] or 0,
        }
        for entry in found["entries"]
    ]
    shown = {**found, "nccl_comm_state": {}, "entries": entries}
    if "pg_status" in found:
        shown["pg_status"] = plain
    if not entries:
        del shown["entries"]
    return json.dumps(shown).encode()


def document(story: Story, rank: int, rng: Random) -> Document:
    """The recorder of one rank at the moment of its dump."""
    recorder = _Recorder(story, rank, rng)
    entries = recorder.entries()
    version = SCHEMAS[story.style.torch]
    groups = recorder.groups
    found: Document = {
        "version": version,
        "pg_config": {
            str(g.number): {"name": str(g.number), "desc": g.desc, "ranks": str(list(g.members))}
            for g in groups
        },
        "entries": entries,
    }
    if version != "2.1":
        found["pg_status"] = recorder.status()
    if version == "2.9":
        found["nccl_version"] = "2.26.2"
    if version == "2.10":
        found["comm_lib_version"] = "2.27.5"
    return found


class _Recorder:
    def __init__(self, story: Story, rank: int, rng: Random) -> None:
        self.story, self.rank, self.rng = story, rank, rng
        self.groups: list[Group] = list(story.layout.groups_of[rank].values())
        self.ids = {group.number: i for i, group in enumerate(self.groups)}
        self.counters: dict[int, _Counters] = defaultdict(_Counters)
        self.dumped_s = story.dumped[rank]
        self.node = story.layout.node_index(rank)
        self.frames: dict[str, list[dict[str, Any]]] = {}
        self.thread = str(139_000_000_000_000 + rank * 4096)
        self.version = SCHEMAS[story.style.torch]
        self.record = 0
        self.is_handled = rng.random() < 0.15
        self.found: list[dict[str, Any]] = []

    def entries(self) -> list[dict[str, Any]]:
        """Steps before the window that the ring still holds, then the window up to the dump."""
        story = self.story
        program = story.programs[self.rank]
        first = programs.step(story.layout, self.rank, seconds=1.0)
        per_step = sum(self._recorded(op) for op in first)
        window = sum(self._recorded(op) for op in program)
        kept = min(
            story.steps_before, -(-max(0, story.style.ring - window // 3) // max(1, per_step))
        )
        self._skip(first, story.steps_before - kept)
        enqueued, started, done = (
            m[self.rank]
            for m in (story.moments.enqueued, story.moments.started, story.moments.done)
        )
        for step in range(kept, 0, -1):
            back = step * story.step_seconds
            for i, op in enumerate(first):
                if op.does in EXCHANGED:
                    at = enqueued[i] if enqueued[i] is not None else 0.0
                    assert at is not None
                    self._add(op, at - back, at - back, at - back + 0.02, steps_ago=step)
        for i, op in enumerate(program):
            at = enqueued[i]
            if op.does in EXCHANGED and at is not None and at <= self.dumped_s:
                self._add(op, at, started[i], done[i], steps_ago=0)
        found = self.found[-story.style.ring :]
        if story.style.only_active:
            found = [entry for entry in found if entry["state"] != "completed"]
        return found

    def _recorded(self, op: Op) -> int:
        return 3 if op.does == "ring" else int(op.does in EXCHANGED)

    def _skip(self, first: list[Op], steps: int) -> None:
        """Count steps that the ring has lost."""
        for op in first:
            if op.does not in EXCHANGED:
                continue
            assert op.group is not None
            counters = self.counters[op.group.number]
            self.record += steps * self._recorded(op)
            if op.does in ("send", "recv"):
                counters.p2p += steps
                counters.every += steps
            elif op.does == "ring":
                counters.collective += steps
                counters.p2p += steps
                counters.every += 3 * steps
            else:
                counters.collective += steps
                counters.every += steps
            if op.does not in ("send", "recv"):
                counters.completed = counters.collective

    def _add(
        self, op: Op, enqueued: float, started: float | None, done: float | None, *, steps_ago: int
    ) -> None:
        group = op.group
        assert group is not None
        counters = self.counters[group.number]
        own = group.members.index(self.rank)
        if op.does == "ring":
            counters.collective += 1
            counters.p2p += 1
            size = len(group.members)
            for name in (f"send {own}->{(own + 1) % size}", f"recv {own}<-{(own - 1) % size}"):
                counters.every += 1
                self._entry(op, name, counters, enqueued, None, None, p2p=True, in_batch=True)
            counters.every += 1
            self._entry(op, "coalesced", counters, enqueued, started, done, p2p=True)
        elif op.peer is not None:
            counters.p2p += 1
            counters.every += 1
            arrow = "->" if op.does == "send" else "<-"
            name = f"{op.does} {own}{arrow}{op.peer}"
            self._entry(op, name, counters, enqueued, started, done, p2p=True)
            return
        else:
            counters.collective += 1
            counters.every += 1
            self._entry(op, op.name, counters, enqueued, started, done, p2p=False)
        if done is not None and done <= self.dumped_s:
            counters.completed = max(counters.completed, counters.collective)

    def _entry(
        self,
        op: Op,
        name: str,
        counters: _Counters,
        enqueued: float,
        started: float | None,
        done: float | None,
        *,
        p2p: bool,
        in_batch: bool = False,
    ) -> None:
        group = op.group
        assert group is not None
        story, style = self.story, self.story.style
        seen_done = None if done is None else done + self.rng.random() * 0.3
        is_done = done is not None and done <= self.dumped_s
        is_started = style.timing and started is not None and started <= self.dumped_s
        if seen_done is not None:
            seen_done = min(seen_done, self.dumped_s)
        # The watchdog dumps before it takes what timed out from its list, and sometimes after.
        late = self.is_handled and enqueued + story.timeout_s < self.dumped_s
        entry: dict[str, Any] = {
            "record_id": self.record,
            "pg_id": self.ids[group.number],
            "process_group": (str(group.number), group.desc),
            "collective_seq_id": counters.collective,
            "p2p_seq_id": counters.p2p,
            "op_id": counters.every,
            "profiling_name": sys.intern(f"nccl:{name}"),
            "time_created_ns": self._ns(enqueued),
            "input_sizes": [list(op.size)],
            "input_dtypes": [op.dtype],
            "output_sizes": [list(op.size)],
            "output_dtypes": [op.dtype],
            "state": "completed" if is_done else "started" if is_started else "scheduled",
            "time_discovered_started_ns": self._ns(started)
            if is_started and started is not None
            else None,
            "time_discovered_completed_ns": self._ns(seen_done)
            if is_done and seen_done is not None
            else None,
            "retired": not in_batch and (is_done or late),
            "is_p2p": p2p,
        }
        if style.frames:
            entry["frames"] = self._frames(op)
        if self.version != "2.1":
            entry["timeout_ms"] = round(story.timeout_s * 1000)
        if self.version in ("2.9", "2.10"):
            entry["thread_id"] = self.thread
            entry["thread_name"] = "python3"
        if style.timing and is_done and started is not None and done is not None:
            entry["duration_ms"] = round((done - started) * 1000, 3)
        self.record += 1
        self.found.append(entry)

    def _frames(self, op: Op) -> list[dict[str, Any]]:
        key = f"{op.phase}/{op.does}"
        if key not in self.frames:
            library = "/usr/local/lib/python3.11/dist-packages/torch/distributed"
            line = 40 + 17 * len(self.frames)
            self.frames[key] = [
                {
                    "name": op.name or op.does,
                    "filename": f"{library}/distributed_c10d.py",
                    "line": 3245,
                },
                {"name": op.phase, "filename": "/workspace/train.py", "line": line},
                {"name": "main", "filename": "/workspace/train.py", "line": 462},
            ]
        return self.frames[key]

    def _ns(self, at_s: float) -> int:
        return self.story.wall_ns(at_s, self.node)

    def status(self) -> dict[str, dict[str, int]]:
        found = {}
        for group in self.groups:
            counters = self.counters.get(group.number, _Counters())
            enqueued = counters.collective or -1
            found[str(self.ids[group.number])] = {
                "last_enqueued_collective": enqueued,
                "last_started_collective": counters.completed if self.story.style.timing else -1,
                "last_completed_collective": counters.completed,
            }
        return found
