"""How quickly a thousand Flight Recorder dumps are read and judged, against the bare unpickler.

    python benchmarks/dumps.py [--ranks 1024] [--entries 2000] [--folder FOLDER]

Makes (once, seeded) the dumps of a job of tensor, pipeline and data groups with sends and
receives, in which one rank stalls in the middle of a step; then, with the files in the page cache:

1. loads them with a C unpickler that refuses classes and does nothing else, on 2 processes;
2. runs `gpufleet triage FOLDER -o json` as a person would, start and report included;
3. reads them with `parse_many` and judges them with `wait_graph.analyse`: the split.

Prints the walls, the ratio of 2 to 1 (the limit is 2), the split, the ratio of processor time (which a
busy machine does not distort), and the peak memory of all processes together with shared pages
counted once (PSS; the limit is 1 GiB). All that runs is bound to the same two cores.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

START_NS = 1_795_963_169_000_000_000
TIMEOUT_MS = 600_000
TP, PP = 8, 4
MICROBATCHES, LAYERS, BUCKETS = 4, 6, 8


# --- The job --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of one rank: `group` is (description, number), `peer` a rank in the group."""

    group: tuple[str, int]
    name: str
    size: tuple[int, ...]
    peer: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """tp is fastest, then dp, then pp."""

    ranks: int

    @property
    def dp(self) -> int:
        return self.ranks // (TP * PP)

    def place(self, rank: int) -> tuple[int, int, int]:
        return rank % TP, rank // TP % self.dp, rank // (TP * self.dp)

    def rank(self, tp: int, dp: int, pp: int) -> int:
        return tp + TP * (dp + self.dp * pp)

    def groups(self, rank: int) -> dict[tuple[str, int], Sequence[int]]:
        tp, dp, pp = self.place(rank)
        return {
            ("default_pg", 0): range(self.ranks),
            ("mesh_tp", dp + self.dp * pp): [self.rank(t, dp, pp) for t in range(TP)],
            ("mesh_dp", tp + TP * pp): [self.rank(tp, d, pp) for d in range(self.dp)],
            ("mesh_pp", tp + TP * dp): [self.rank(tp, dp, p) for p in range(PP)],
        }

    def step(self, rank: int) -> Iterator[Op]:
        """One training step: microbatches forward and back, gradients, the loss."""
        world, tensor, data, pipe = self.groups(rank)
        pp = self.place(rank)[2]
        for _ in range(MICROBATCHES):
            if pp > 0:
                yield Op(pipe, "recv", (4096, 1, 5120), pp - 1)
            for _ in range(LAYERS):
                yield Op(tensor, "all_reduce", (4096, 1, 5120))
            if pp < PP - 1:
                yield Op(pipe, "send", (4096, 1, 5120), pp + 1)
        for _ in range(MICROBATCHES):
            if pp < PP - 1:
                yield Op(pipe, "recv", (4096, 1, 5120), pp + 1)
            for _ in range(LAYERS):
                yield Op(tensor, "all_reduce", (4096, 1, 5120))
            if pp > 0:
                yield Op(pipe, "send", (4096, 1, 5120), pp - 1)
        for bucket in range(BUCKETS):
            yield Op(data, "all_reduce", (25_000_000 + bucket,))
        yield Op(world, "all_reduce", (1,))


def last_step(job: Job, stalled: int, at: int) -> tuple[list[list[Op]], list[int]]:
    """Run one step in which `stalled` enters no more than `at` operations: what each rank has
    entered, and how many of those are done."""
    programs = [list(job.step(rank)) for rank in range(job.ranks)]
    limit = [at if rank == stalled else len(p) for rank, p in enumerate(programs)]
    done = [0] * job.ranks
    arrived: dict[Any, set[int]] = defaultdict(set)
    need: dict[Any, Sequence[int]] = {}
    counts: list[dict[Any, int]] = [defaultdict(int) for _ in range(job.ranks)]
    entered = [0] * job.ranks
    members = [job.groups(rank) for rank in range(job.ranks)]
    ready = list(range(job.ranks))
    while ready:
        rank = ready.pop()
        if entered[rank] > done[rank] or entered[rank] >= limit[rank]:
            continue
        op = programs[rank][entered[rank]]
        if op.peer is None:
            key: Any = (op.group, counts[rank][op.group])
            counts[rank][op.group] += 1
            need[key] = members[rank][op.group]
        else:
            other = members[rank][op.group][op.peer]
            pair = (rank, other) if op.name == "send" else (other, rank)
            key = (pair, counts[rank][pair])
            counts[rank][pair] += 1
            need[key] = [rank, other]
        entered[rank] += 1
        arrived[key].add(rank)
        if len(arrived[key]) == len(need[key]):
            for member in need[key]:
                done[member] += 1
                ready.append(member)
    return [programs[rank][: entered[rank]] for rank in range(job.ranks)], done


# --- The files ------------------------------------------------------------------------------------


def write(folder: Path, ranks: int, entries: int, seed: int = 1) -> int:
    """Write the dumps of the job; returns the rank that stalled."""
    job = Job(ranks)
    stalled = ranks // 2 + 5
    tails, done = last_step(job, stalled, at=17)
    for rank in range(ranks):
        write_one(folder, job, rank, entries, tails[rank], done[rank], seed)
    return stalled


def write_one(
    folder: Path, job: Job, rank: int, entries: int, tail: list[Op], done: int, seed: int = 1
) -> None:
    """Write the dump of one rank, given what it entered in the last step and how much is done."""
    rng = random.Random(f"{seed}/{rank}")
    dump = _dump(job, rank, entries, tail, done, rng)
    (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))


def whole_steps(job: Job, entries: int) -> int:
    """The steps before the last one: as many for all, since numbers must agree."""
    return entries // len(list(job.step(0))) + 2


def _dump(
    job: Job, rank: int, wanted: int, tail: list[Op], done: int, rng: random.Random
) -> dict[str, Any]:
    steps = whole_steps(job, wanted)
    program = [op for _ in range(steps) for op in job.step(rank)] + tail
    open_from = len(program) - (len(tail) - done)
    groups = job.groups(rank)
    names = {g: ("0" if g[0] == "default_pg" else f"{g[0]}/{g[1]}", g[0]) for g in groups}
    ids = {group: i for i, group in enumerate(groups)}
    counts = {group: [0, 0, 0] for group in groups}
    frames = {name: _frames(name) for name in ("all_reduce", "send", "recv")}
    shared = {"thread": str(140_000_000_000_000 + rank), "dtype": "BFloat16"}
    at_ns = START_NS + rng.randrange(50_000_000)
    found = []
    for number, op in enumerate(program):
        collective, p2p, total = counts[op.group]
        is_p2p = op.peer is not None
        counts[op.group] = [collective + (not is_p2p), p2p + is_p2p, total + 1]
        at_ns += 4_000_000 + rng.randrange(200_000)
        own = groups[op.group].index(rank)
        arrow = "" if op.peer is None else f" {own}{'->' if op.name == 'send' else '<-'}{op.peer}"
        is_open = number >= open_from
        found.append(
            {
                "frames": frames[op.name],
                "record_id": number + 50_000,
                "pg_id": ids[op.group],
                "process_group": names[op.group],
                "thread_name": "python3",
                "thread_id": shared["thread"],
                "collective_seq_id": counts[op.group][0],
                "p2p_seq_id": counts[op.group][1],
                "op_id": counts[op.group][2],
                "profiling_name": sys.intern(f"nccl:{op.name}{arrow}"),
                "time_created_ns": at_ns,
                "input_sizes": [list(op.size)],
                "input_dtypes": [shared["dtype"]],
                "output_sizes": [list(op.size)],
                "output_dtypes": [shared["dtype"]],
                "state": "scheduled" if is_open else "completed",
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": None if is_open else at_ns + rng.randrange(10**8),
                "retired": not is_open,
                "timeout_ms": TIMEOUT_MS,
                "is_p2p": is_p2p,
            }
        )
    return {
        "version": "2.10",
        "pg_config": {
            names[g][0]: {"name": names[g][0], "desc": names[g][1], "ranks": str(list(members))}
            for g, members in groups.items()
        },
        "pg_status": {
            str(ids[g]): {
                "last_enqueued_collective": counts[g][0],
                "last_started_collective": -1,
                "last_completed_collective": counts[g][0],
            }
            for g in groups
        },
        "comm_lib_version": "2.27.5",
        "entries": found[-wanted:],
    }


def _frames(name: str) -> list[dict[str, Any]]:
    library = "/usr/local/lib/python3.11/dist-packages/torch/distributed"
    return [
        {"name": name, "filename": f"{library}/distributed_c10d.py", "line": 3245},
        {"name": "wrapper", "filename": f"{library}/c10d_logger.py", "line": 83},
        *({"name": f"layer_{i}", "filename": "/workspace/train.py", "line": i} for i in range(5)),
    ]


# --- The measurement ------------------------------------------------------------------------------


class Bare(pickle.Unpickler):
    """The C unpickler without classes."""

    def find_class(self, module_name: str, global_name: str) -> Any:  # noqa: ANN401
        raise pickle.UnpicklingError(f"{module_name}.{global_name}")


def load_bare(path: Path) -> int:
    """Load one file and drop it."""
    with path.open("rb") as file:
        return len(Bare(file).load()["entries"])


def bare_wall(files: list[Path]) -> float:
    """Seconds for the bare loader on 2 processes, their start included."""
    begun = time.perf_counter()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(load_bare, files, chunksize=16)
    return time.perf_counter() - begun


def ours(files: list[Path]) -> tuple[float, float, str]:
    """Seconds to read, seconds to reason, and what was found."""
    from gpufleet_cli.evidence import Evidence
    from gpufleet_cli.facts import RankDump
    from gpufleet_cli.parsers import flight_recorder
    from gpufleet_cli.reason import wait_graph

    begun = time.perf_counter()
    evidences = [
        Evidence(path=file.name, size_bytes=file.stat().st_size, file=file) for file in files
    ]
    evidences = [e for e in evidences if flight_recorder.matches(e.path, e.head)]
    results = [found for _, found in flight_recorder.parse_many(evidences)]
    facts = [fact for found in results if isinstance(found, list) for fact in found]
    ranks = [fact for fact in facts if isinstance(fact, RankDump)]
    read_at = time.perf_counter()
    nodes = {rank: f"gpu-node-{rank // 8:04d}" for rank in range(len(files))}
    finding = wait_graph.analyse(ranks, world_size=len(files), node_of=nodes)
    ended = time.perf_counter()
    said = "; ".join(f"{root.kind} {list(root.ranks)[:8]}" for root in finding.roots)
    return read_at - begun, ended - read_at, said


def whole_wall(folder: Path) -> float:
    """Seconds for the command as a person runs it."""
    return whole_run(folder, "json")[0]


def whole_run(folder: Path, output: str) -> tuple[float, bytes]:
    """Seconds for the command as a person runs it, and what it prints."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "gpufleet_cli", "triage", str(folder), "-o", output],
        env={**os.environ, "GPUFLEET_NO_STATE": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    return time.perf_counter() - begun, done.stdout


class Watch:
    """Samples the memory (PSS) and processor time of this process and its children."""

    def __init__(self, every_s: float = 0.05) -> None:
        self.every_s = every_s

    def __enter__(self) -> Watch:
        self.peak_kib = 0
        self._ticks: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._before = self._sample()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._sample()
        self._stop.set()
        self._thread.join()

    @property
    def cpu_s(self) -> float:
        used = sum(self._ticks.values()) - self._before
        return used / os.sysconf("SC_CLK_TCK")

    def _watch(self) -> None:
        while not self._stop.wait(self.every_s):
            self._sample()

    def _sample(self) -> int:
        members = family(os.getpid())
        for pid in members:
            self._ticks[pid] = max(self._ticks.get(pid, 0), ticks(pid))
        self.peak_kib = max(self.peak_kib, sum(map(pss_kib, members)))
        return sum(self._ticks.values())


def ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def family(root: int) -> list[int]:
    parents: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.read_text().rpartition(")")[2].split()[1])].append(
                int(stat.parent.name)
            )
        except (OSError, ValueError, IndexError):
            continue
    found = [root]
    for pid in found:
        found.extend(parents[pid])
    return found


def pss_kib(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:"), 0)


def main() -> None:
    """Make the set if it is not there, then measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=1024, help="a multiple of 32")
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--folder", type=Path, default=None, help="keep the dumps here")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.glob("nccl_trace_rank_*")):
            write(folder, options.ranks, options.entries)
        files = sorted(folder.glob("nccl_trace_rank_*"))
        size = sum(file.stat().st_size for file in files)
        print(f"{len(files):,} dumps, {size / 1e6:,.0f} MB")
        if sys.platform == "linux":
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
        bare_wall(files)  # the page cache
        for _ in range(options.rounds):
            _round(folder, files)


def _round(folder: Path, files: list[Path]) -> None:
    with Watch() as watch_bare:
        bare = bare_wall(files)
    with Watch() as watch:
        whole = whole_wall(folder)
    gc.collect()
    reading, reasoning, said = ours(files)
    print(
        f"bare {bare:.2f} s | triage {whole:.2f} s (reading {reading:.2f}, reasoning {reasoning:.2f},"
        f" start and rendering {whole - reading - reasoning:.2f}) | ratio {whole / bare:.2f}, of"
        f" processor time {watch.cpu_s / watch_bare.cpu_s:.2f} | peak {watch.peak_kib / 1024:,.0f} MiB"
        f" | {said}"
    )


if __name__ == "__main__":
    main()
