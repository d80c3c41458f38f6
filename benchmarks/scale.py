"""How triage grows from a thousand ranks to sixteen thousand, against the bare unpickler.

    python benchmarks/scale.py --folder FOLDER [--ranks 1024,4096,16384] [--rounds 3]

Makes (once, seeded, kept in the folder: about 9 GB for the three sizes) one incident for each size:
a dump of 2,000 entries and a log of some hundred step lines for every rank, and a topology file. One
rank stalls among its gradients; a few ranks wait for it there, all others in one barrier of the whole
world, and their watchdogs write. Then, round by round and size by size, with
the files in the page cache and bound to the same two cores:

1. the dumps alone are loaded by a C unpickler that refuses classes and does nothing else, on 2
   processes: what disk format and pickle allow;
2. `gpufleet triage FOLDER -o json` runs as a person would run it, start and report included.

Prints wall, processor time, peak memory of all processes together (PSS: shared pages once), time per
rank and the ratio of 2 to 1 of the same round, of walls and of processor time (which a busy machine
distorts less); then a table of medians, how the time of one rank grows
(limit: flat within 1.5), the ratio (limit: 2), the size of the JSON (limit: 5 MB), and where the time
goes that is not the loading of dumps. `--text` times the text report as well.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE.parent / "scripts")]

from dumps import (  # noqa: E402 - beside this file
    START_NS,
    TIMEOUT_MS,
    Job,
    Op,
    Watch,
    bare_wall,
    last_step,
    whole_run,
    whole_steps,
    write_one,
)
from train_run_7.logs import FAILED_STACK, WHY_TIMEOUT, c10  # noqa: E402
from train_run_7.world import MS, Node, rfc3339  # noqa: E402

ENTRIES = 2000
STEP_LINES = 200
OP_NS = 4_100_000  # what an operation takes in `dumps`, on average
RATIO_LIMIT, GROWTH_LIMIT, JSON_LIMIT = 2.0, 1.5, 5_000_000
GPUS = 8


# --- The incident ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class World:
    """The job, who stalled, and what each rank has entered and done in the last step."""

    job: Job
    stalled: int
    tails: list[list[Op]]
    done: list[int]


@cache
def world(ranks: int) -> World:
    """Made once in each process."""
    job, stalled = Job(ranks), ranks // 2 + 5
    backward = sum(op.group[0] in ("mesh_tp", "mesh_pp") for op in job.step(stalled))
    tails, done = last_step(job, stalled, at=backward + 2)
    return World(job, stalled, tails, done)


def make(folder: Path, ranks: int) -> None:
    """Write the incident if it is not there."""
    finished = folder / "topology.json"
    if finished.exists():
        return
    for part in ("dumps", "logs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    half = ranks // 2
    with multiprocessing.get_context("fork").Pool(2) as pool:
        parts = ((folder, ranks, range(half)), (folder, ranks, range(half, ranks)))
        pool.starmap(_make_some, parts, chunksize=1)
    rows = [
        {
            "rank": rank,
            "pod": f"train-{rank // GPUS}",
            "node": f"gpu-node-{rank // GPUS:04d}",
            "local_rank": rank % GPUS,
            "gpu_index": rank % GPUS,
        }
        for rank in range(ranks)
    ]
    finished.write_text(json.dumps({"world_size": ranks, "ranks": rows}))


def _make_some(folder: Path, ranks: int, some: range) -> None:
    made = world(ranks)
    for rank in some:
        write_one(folder / "dumps", made.job, rank, ENTRIES, made.tails[rank], made.done[rank])
        (folder / "logs" / f"rank_{rank}.log").write_text(log_of(made, rank))


def log_of(made: World, rank: int) -> str:
    """The log of one rank as `kubectl logs --timestamps` prints it; the stalled one's just ends."""
    rng = random.Random(f"log/{rank}")
    lines = list(_step_lines(made.job, rank, rng))
    if rank != made.stalled:
        lines += _storm(made, rank, rng)
    return "".join(f"{rfc3339(at)} {line}\n" for at, line in lines)


def _step_lines(job: Job, rank: int, rng: random.Random) -> Iterator[tuple[int, str]]:
    step_ns = len(list(job.step(rank))) * OP_NS
    last = whole_steps(job, ENTRIES)
    for number in range(last - STEP_LINES, last):
        at = START_NS + (number + 1) * step_ns + 2 * MS + rng.randrange(3 * MS)
        yield (
            at,
            f"[rank{rank}]: step: {number + 48_211}  loss: {2 + rng.random():7.4f}  grad_norm:"
            f"  0.{rng.randrange(500, 900)}  memory: 61.24GiB(77.31%)  tps: {rng.randrange(9_790, 9_804):,}"
            f"  tflops: 471.10  mfu: 47.63%",
        )


def _storm(made: World, rank: int, rng: random.Random) -> Iterator[tuple[int, str]]:
    """What torch 2.8 prints for a rank that waited: its timeout, its dump, its end."""
    job, tail, done = made.job, made.tails[rank], made.done[rank]
    op = tail[done]
    alike = [
        (one.group, one.peer is None) == (op.group, op.peer is None) for one in tail[: done + 1]
    ]
    in_step = sum(
        (one.group, one.peer is None) == (op.group, op.peer is None) for one in job.step(rank)
    )
    seq = whole_steps(job, ENTRIES) * in_step + sum(alike)
    name = {"all_reduce": "ALLREDUCE", "send": "SEND", "recv": "RECV"}[op.name]
    numel = 1
    for width in op.size:
        numel *= width
    members = job.groups(rank)[op.group]
    inside = members.index(rank)
    uid = 0 if op.group[0] == "default_pg" else op.group[1] + 1
    group = f"[PG ID {uid} PG GUID {uid}({op.group[0]}) Rank {inside}]"
    step_ns = len(list(job.step(rank))) * OP_NS
    entered = START_NS + whole_steps(job, ENTRIES) * step_ns + (done + 1) * OP_NS
    ran_ms = TIMEOUT_MS + 9 + rng.randrange(84)
    at = entered + ran_ms * MS
    work = (
        f"[Rank {inside}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
        f"OpType={name}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)={TIMEOUT_MS}) "
        f"ran for {ran_ms} milliseconds before timing out."
    )
    node = Node(index=rank // GPUS, offset_ns=0, rng=rng)
    status = f"last enqueued work: {seq}, last completed work: {seq - 1}"
    yield at, c10(node, at, rank, 685, work)
    yield (
        at,
        c10(
            node,
            at,
            rank,
            2252,
            f"{group}  failure detected by watchdog at work sequence id: {seq} PG status: {status}",
        ),
    )
    yield at, c10(node, at, rank, 732, "Stack trace of the failed collective: ")
    for frame in FAILED_STACK:
        yield at, f"[rank{rank}]:{frame}"
    for after_ms, source, text in (
        (
            300,
            1794,
            f"{group} Received a dump signal due to a collective timeout from this local rank and we"
            f" will try our best to dump the debug info. Last enqueued NCCL work: {seq}, last"
            f" completed NCCL work: {seq - 1}.{WHY_TIMEOUT}",
        ),
        (
            301,
            1589,
            f"{group} ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1, only"
            " active collectives: 0",
        ),
        (
            60_000,
            746,
            f"[Rank {inside}] Some NCCL operations have failed or timed out. Due to the asynchronous"
            " nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete"
            " data.",
        ),
        (
            60_000,
            760,
            f"[Rank {inside}] To avoid data inconsistency, we are taking the entire process down.",
        ),
        (
            60_001,
            2068,
            f"{group} Process group watchdog thread terminated with exception: {work}",
        ),
    ):
        yield at + after_ms * MS, c10(node, at + after_ms * MS, rank, source, text)


# --- The measurement ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """One size in one round."""

    ranks: int
    bare_s: float
    bare_cpu_s: float
    wall_s: float
    cpu_s: float
    peak_mib: float
    json_bytes: int

    @property
    def ratio(self) -> float:
        return self.wall_s / self.bare_s

    @property
    def cpu_ratio(self) -> float:
        return self.cpu_s / self.bare_cpu_s

    @property
    def per_rank_ms(self) -> float:
        return 1000 * self.wall_s / self.ranks


def measure(folder: Path, ranks: int, *, text: bool) -> Run:
    files = sorted((folder / "dumps").iterdir())
    with Watch(every_s=0.25) as watch_bare:
        bare = bare_wall(files)
    with Watch(every_s=0.25) as watch:
        wall, report = whole_run(folder, "json")
    found = json.loads(report)["verdict"]
    run = Run(ranks, bare, watch_bare.cpu_s, wall, watch.cpu_s, watch.peak_kib / 1024, len(report))
    said = ""
    if text:
        said = f" | text {whole_run(folder, 'text')[0]:.1f} s"
    culprits = [one["rank"] for one in found["culprits"]]
    print(
        f"{ranks:6,} ranks: bare {bare:6.2f} s | triage {wall:6.2f} s, processor {run.cpu_s:6.1f} s, peak"
        f" {run.peak_mib:5,.0f} MiB | {run.per_rank_ms:.2f} ms a rank | ratio {run.ratio:.2f}, of"
        f" processor time {run.cpu_ratio:.2f}{said}"
        f" | {found['kind']} {culprits}",
        flush=True,
    )
    if culprits != [ranks // 2 + 5]:
        raise SystemExit(f"wrong: rank {ranks // 2 + 5} stalled")
    return run


def table(runs: list[Run]) -> None:
    """Medians, and what they say about the limits."""
    print("\n ranks   bare s  triage s   cpu s  peak MiB  ms/rank  ratio  of cpu  JSON MB")
    sizes = sorted({run.ranks for run in runs})
    flat: dict[int, float] = {}
    for ranks in sizes:
        own = [run for run in runs if run.ranks == ranks]

        def mid(name: str, own: list[Run] = own) -> float:
            return median(getattr(run, name) for run in own)

        flat[ranks] = mid("per_rank_ms")
        print(
            f"{ranks:6,}  {mid('bare_s'):7.2f}  {mid('wall_s'):8.2f}  {mid('cpu_s'):6.1f}"
            f"  {mid('peak_mib'):8,.0f}  {flat[ranks]:7.2f}  {mid('ratio'):5.2f}"
            f"  {mid('cpu_ratio'):6.2f}  {mid('json_bytes') / 1e6:7.2f}"
        )
    growth = max(flat.values()) / min(flat.values())
    worst = max(median(r.ratio for r in runs if r.ranks == ranks) for ranks in sizes)
    largest = max(run.json_bytes for run in runs)
    for what, value, limit in (
        ("time of one rank, largest over smallest", growth, GROWTH_LIMIT),
        ("triage over the bare unpickler, worst size", worst, RATIO_LIMIT),
        ("JSON bytes", largest, JSON_LIMIT),
    ):
        word = "kept" if value <= limit else "NOT KEPT"
        print(f"{what}: {value:,.2f} (limit {limit:,}): {word}")


# --- Where the time goes --------------------------------------------------------------------------


def stages(folder: Path) -> None:
    """Run the pipeline in this process with a clock around its parts, and print them."""
    from gpufleet_cli import triage
    from gpufleet_cli.bundle import read_target
    from gpufleet_cli.facts import JobNumbers
    from gpufleet_cli.render import render
    from gpufleet_cli.render.layout import Look

    spent: dict[str, float] = {}

    def clocked(name: str, call: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        begun = time.perf_counter()
        found = call(*args, **options)
        spent[name] = time.perf_counter() - begun
        return found

    target = clocked("list the files", read_target, folder)
    facts, files = clocked("read them", triage.read_facts, target)
    numbers = JobNumbers(source="flag")
    found = clocked(
        "reason and weigh",
        triage.decide,
        target,
        [numbers, *facts],
        files,
        as_of_ns=None,
        strict=False,
    )
    clocked("render JSON", render, found, "json", Look(color=False, unicode=True))
    clocked("render text", render, found, "text", Look(color=False, unicode=True))
    print("; ".join(f"{name} {seconds:.2f} s" for name, seconds in spent.items()), flush=True)


def split(root: Path, ranks: int) -> None:
    """Where the time goes: the whole, the dumps alone and the logs alone, each in a fresh process."""
    folder = root / str(ranks)
    for name in ("", "dumps", "logs"):
        print(f"{name or 'all'}: ", end="", flush=True)
        subprocess.run(
            [sys.executable, __file__, "--stages", str(folder / name)],
            env={**os.environ, "GPUFLEET_NO_STATE": "1"},
            check=True,
        )


def main() -> None:
    """Make the sets that are not there, then measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", default="1024,4096,16384", help="multiples of 32")
    parser.add_argument("--folder", type=Path, help="the incidents are made and kept here")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--text", action="store_true", help="time the text report as well")
    parser.add_argument("--stages", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if sys.platform == "linux":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    if options.stages is not None:
        stages(options.stages)
        return
    if options.folder is None:
        parser.error("--folder is needed: the three sizes take about 9 GB")
    sizes = [int(size) for size in options.ranks.split(",")]
    for ranks in sizes:
        folder = options.folder / str(ranks)
        begun = time.perf_counter()
        make(folder, ranks)
        every = list(folder.rglob("*"))
        size = sum(file.stat().st_size for file in every)
        bare_wall([file for file in every if file.parent.name == "dumps"])  # the page cache
        print(
            f"{ranks:6,} ranks: {size / 1e6:,.0f} MB, {time.perf_counter() - begun:.0f} s to prepare"
        )
    runs = [
        measure(options.folder / str(ranks), ranks, text=options.text)
        for _ in range(options.rounds)
        for ranks in sizes
    ]
    table(runs)
    print(f"\nWhere the time goes at {sizes[-1]:,} ranks, by part and by kind of file:")
    split(options.folder, sizes[-1])


if __name__ == "__main__":
    main()
