"""Small jobs whose recorders are simulated, so that tests know who is guilty.

`Job` lays ranks out (tensor fastest, then data, then pipeline) and gives each its program of one
step. `run` executes steps until nothing moves: a rank's host goes through its program and waits at
each blocking call; an operation ends when all its members have entered it with equal calls. `dumps`
writes what torch's recorder would have written, through the real parser.
"""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import RankDump
from gpufleet_cli.parsers import flight_recorder

BASE_NS = 1_795_963_169_000_000_000
MS = 1_000_000
TIMEOUT_MS = 600_000
GroupKey = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Call:
    """One call of a program. `peer` is a rank inside the group, for sends and receives."""

    group: GroupKey
    op: str = "all_reduce"
    sizes: tuple[tuple[int, ...], ...] = ((64, 64),)
    dtype: str = "Float"
    peer: int | None = None
    blocks: bool = True


@dataclass(frozen=True)
class Job:
    tp: int = 2
    dp: int = 2
    pp: int = 2
    ranks_per_node: int = 4

    @property
    def size(self) -> int:
        return self.tp * self.dp * self.pp

    def place(self, rank: int) -> tuple[int, int, int]:
        return rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)

    def rank(self, tp: int, dp: int, pp: int) -> int:
        return tp + self.tp * (dp + self.dp * pp)

    def group(self, desc: str, rank: int) -> GroupKey:
        tp, dp, pp = self.place(rank)
        members = {
            "default_pg": tuple(range(self.size)),
            "mesh_tp": tuple(self.rank(t, dp, pp) for t in range(self.tp)),
            "mesh_dp": tuple(self.rank(tp, d, pp) for d in range(self.dp)),
            "mesh_pp": tuple(self.rank(tp, dp, p) for p in range(self.pp)),
        }
        return desc, members[desc]

    def groups(self) -> list[GroupKey]:
        found = {
            self.group(desc, rank): None
            for desc in ("default_pg", "mesh_tp", "mesh_dp", "mesh_pp")
            for rank in range(self.size)
        }
        return list(found)

    def nodes(self) -> dict[int, str]:
        return {rank: f"node-{rank // self.ranks_per_node}" for rank in range(self.size)}

    def step(self, rank: int) -> list[Call]:
        """Forward, backward, two gradient buckets that the host does not wait for, the loss."""
        pp = self.place(rank)[2]
        tensor, data = self.group("mesh_tp", rank), self.group("mesh_dp", rank)
        pipe, world = self.group("mesh_pp", rank), self.group("default_pg", rank)
        calls: list[Call] = []
        if pp > 0:
            calls.append(Call(pipe, "recv", peer=pp - 1))
        calls += [Call(tensor), Call(tensor)]
        if pp < self.pp - 1:
            calls += [Call(pipe, "send", peer=pp + 1), Call(pipe, "recv", peer=pp + 1)]
        calls += [Call(data, sizes=((256,),), blocks=False), Call(tensor), Call(tensor)]
        if pp > 0:
            calls.append(Call(pipe, "send", peer=pp - 1))
        calls += [Call(data, sizes=((4096,),), blocks=False), Call(world, sizes=((1,),))]
        return calls


Programs = dict[int, list[Call]]


def programs(job: Job, steps: int = 5) -> Programs:
    return {rank: job.step(rank) * steps for rank in range(job.size)}


@dataclass
class Record:
    """One recorded operation: when entered, when done (None: open), when its kernel started."""

    call: Call
    seq: int
    p2p_seq: int
    entered_ms: int
    done_ms: int | None = None
    started: bool = False


@dataclass
class Run:
    """What every rank has recorded when nothing moves any more."""

    job: Job
    records: dict[int, list[Record]]
    clock_ms: int = 0
    absent: set[int] = field(default_factory=set)

    def without(self, *ranks: int) -> Run:
        return replace(self, absent=self.absent | set(ranks))


def run(
    job: Job,
    of: Programs,
    *,
    stops: Mapping[int, int] | None = None,
    gpu_stops: Mapping[int, int] | None = None,
    limit: int | None = None,
) -> Run:
    """Run until nothing moves. `stops[rank]` is how many calls its host makes; `gpu_stops[rank]`
    the call from which on its own record of completion stops (peers still complete `lag` more,
    as they do where only the record died); `limit` cuts the run after so many events (a live dump).
    """
    stops, gpu_stops = dict(stops or {}), dict(gpu_stops or {})
    found = Run(job, {rank: [] for rank in range(job.size)})
    state = _State(found, of, stops, gpu_stops)
    moved = True
    while moved:
        moved = False
        for rank in range(job.size):
            while state.advance(rank):
                moved = True
                if limit is not None and found.clock_ms >= limit:
                    return found
    return found


class _State:
    def __init__(
        self, found: Run, of: Programs, stops: Mapping[int, int], gpu_stops: Mapping[int, int]
    ) -> None:
        self.run = found
        self.of = of
        self.stops = stops
        self.gpu_stops = gpu_stops
        self.counts: dict[tuple[int, GroupKey], list[int]] = defaultdict(lambda: [0, 0])
        self.pairs: dict[tuple[int, GroupKey, int, bool], int] = defaultdict(int)
        self.arrived: dict[Any, dict[int, Record]] = defaultdict(dict)

    def advance(self, rank: int) -> bool:
        """Let one host make one call, if it is not waiting."""
        records = self.run.records[rank]
        at = len(records)
        if at >= len(self.of[rank]) or at >= self.stops.get(rank, at + 1):
            return False
        if any(record.done_ms is None for record in records if record.call.blocks):
            return False
        call = self.of[rank][at]
        if call.group[0] == "default_pg" and any(record.done_ms is None for record in records):
            return False  # the optimizer waits for the gradients
        self.run.clock_ms += 1
        records.append(self._enter(rank, call))
        return True

    def _enter(self, rank: int, call: Call) -> Record:
        counts = self.counts[rank, call.group]
        counts[call.peer is not None] += 1
        record = Record(call, counts[0], counts[1], self.run.clock_ms)
        members = call.group[1]
        if call.peer is None:
            key: Any = (call.group, record.seq)
            need = set(members)
        else:
            is_send = call.op == "send"
            other = members[call.peer]
            self.pairs[rank, call.group, other, is_send] += 1
            nth = self.pairs[rank, call.group, other, is_send]
            ends = (rank, other) if is_send else (other, rank)
            key, need = (call.group, ends, nth), {rank, other}
        here = self.arrived[key]
        here[rank] = record
        record.started = True
        if set(here) == need and self._agree(here.values()):
            self._finish(here)
        return record

    def _agree(self, records: Iterable[Record]) -> bool:
        """A size that differs hangs NCCL; all-to-all may differ."""
        calls = [record.call for record in records]
        if calls[0].peer is not None or calls[0].op == "all_to_all":
            return True
        return len({(call.op, call.sizes, call.dtype) for call in calls}) == 1

    def _finish(self, here: Mapping[int, Record]) -> None:
        for rank, record in here.items():
            place = next(i for i, r in enumerate([*self.run.records[rank], record]) if r is record)
            if place >= self.gpu_stops.get(rank, place + 1):
                record.call = replace(record.call, blocks=False)
                continue
            record.done_ms = self.run.clock_ms


# --- Files ----------------------------------------------------------------------------------------


def raw(
    found: Run,
    rank: int,
    *,
    timing: bool = False,
    shift_ms: int = 0,
    ring: int = 2000,
    names: Callable[[int], str] = str,
    fresh: bool = False,
) -> dict[str, Any]:
    """One dump as torch 2.10 writes it. `fresh`: completed entries are not retired yet."""
    groups = [group for group in found.job.groups() if rank in group[1]]
    all_groups = found.job.groups()
    ids = {group: i for i, group in enumerate(groups)}
    name_of = {group: names(all_groups.index(group)) for group in groups}
    entries = [
        _entry(record, number, rank, ids, name_of, timing, shift_ms, fresh)
        for number, record in enumerate(found.records[rank])
    ]
    status = {}
    for group, number in ids.items():
        own = [r for r in found.records[rank] if r.call.group == group and r.call.peer is None]
        done = [r.seq for r in own if r.done_ms is not None]
        status[str(number)] = {
            "last_enqueued_collective": max((r.seq for r in own), default=-1),
            "last_started_collective": -1,
            "last_completed_collective": max(done, default=-1),
        }
    return {
        "version": "2.10",
        "pg_config": {
            name_of[g]: {"name": name_of[g], "desc": g[0], "ranks": str(list(g[1]))} for g in groups
        },
        "pg_status": status,
        "comm_lib_version": "2.27.5",
        "entries": entries[-ring:],
    }


def _entry(
    record: Record,
    number: int,
    rank: int,
    ids: Mapping[GroupKey, int],
    names: Mapping[GroupKey, str],
    timing: bool,
    shift_ms: int,
    fresh: bool,
) -> dict[str, Any]:
    call = record.call
    arrow = ""
    if call.peer is not None:
        own = call.group[1].index(rank)
        arrow = f" {own}{'->' if call.op == 'send' else '<-'}{call.peer}"
    is_done = record.done_ms is not None
    at_ns = BASE_NS + (record.entered_ms + shift_ms) * MS
    done_ns = None if record.done_ms is None else BASE_NS + (record.done_ms + shift_ms) * MS
    state = "completed" if is_done else "started" if timing and record.started else "scheduled"
    return {
        "frames": [{"name": "main", "filename": "/workspace/train.py", "line": 462}],
        "record_id": number,
        "pg_id": ids[call.group],
        "process_group": (names[call.group], call.group[0]),
        "thread_name": "python3",
        "thread_id": "139916681673600",
        "collective_seq_id": record.seq,
        "p2p_seq_id": record.p2p_seq,
        "op_id": record.seq + record.p2p_seq,
        "profiling_name": f"nccl:{call.op}{arrow}",
        "time_created_ns": at_ns,
        "input_sizes": [list(size) for size in call.sizes],
        "input_dtypes": [call.dtype],
        "output_sizes": [list(size) for size in call.sizes],
        "output_dtypes": [call.dtype],
        "state": state,
        "time_discovered_started_ns": at_ns if timing and record.started else None,
        "time_discovered_completed_ns": done_ns,
        "retired": is_done and not fresh,
        "timeout_ms": TIMEOUT_MS,
        "is_p2p": call.peer is not None,
    }


def parsed(document: Mapping[str, Any], rank: int, *, prefix: str = "nccl_trace_rank_") -> RankDump:
    """A document through the parser, as a pickle."""
    content = pickle.dumps(document, protocol=2)
    path = f"dumps/{prefix}{rank}"
    evidence = Evidence(path=path, size_bytes=len(content), content=content)
    return next(fact for fact in flight_recorder.parse(evidence) if isinstance(fact, RankDump))


def as_json(document: Mapping[str, Any]) -> bytes:
    """The document as torch's JSON form has it: 0 for no time, strings in pg_status."""
    status = {
        key: {name: str(value) for name, value in counters.items()}
        for key, counters in document["pg_status"].items()
    }
    entries = [
        {
            **{key: value for key, value in entry.items() if key != "frames"},
            "time_discovered_started_ns": entry["time_discovered_started_ns"] or 0,
            "time_discovered_completed_ns": entry["time_discovered_completed_ns"] or 0,
        }
        for entry in document["entries"]
    ]
    found = {**document, "pg_status": status, "nccl_comm_state": {}, "entries": entries}
    if not entries:
        del found["entries"]
    return json.dumps(found).encode()


def dumps(
    found: Run,
    *,
    timing: bool = False,
    ring: int = 2000,
    names: Callable[[int], str] = str,
    shift_ms: Mapping[str, int] | None = None,
    fresh: bool = False,
) -> list[RankDump]:
    """All dumps of a run, but those of absent ranks."""
    nodes, shift = found.job.nodes(), dict(shift_ms or {})
    return [
        parsed(
            raw(
                found,
                rank,
                timing=timing,
                ring=ring,
                names=names,
                shift_ms=shift.get(nodes[rank], 0),
                fresh=fresh,
            ),
            rank,
        )
        for rank in _present(found)
    ]


def _present(found: Run) -> Iterator[int]:
    return (rank for rank in range(found.job.size) if rank not in found.absent)
