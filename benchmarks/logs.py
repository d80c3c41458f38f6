"""Reading many large logs, against one pass of `grep` over the same bytes.

    python benchmarks/logs.py --folder /tmp/logs-bench --files 128 --megabytes 5

Makes FILES logs of MEGABYTES each (seeded): one log a rank, `kubectl logs --timestamps`, step lines and
INFO lines, a few warnings in the middle, and in the tail the storm of a watchdog timeout; one rank
stops early and says nothing. Then, files in the page cache, in one run:

    grep      LC_ALL=C.UTF-8 grep -r -c -E -f PATTERNS, one process, a dozen failure patterns (below)
    reading   all facts of all files (`training_log.parse_many`)
    triage    reading, reasoning and rendering of `gpufleet triage -o json`, in this process

and prints the times, their ratios to grep, and the peak memory. `--keep` leaves the files there.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpufleet_cli.bundle import read_target
from gpufleet_cli.facts import JobNumbers
from gpufleet_cli.parsers import training_log
from gpufleet_cli.timestamps import NS_PER_S, format_ns, parse_rfc3339

GREP_PATTERNS = (
    r"Watchdog caught collective operation timeout",
    r"\[E[0-9]{3,4} [0-9:.]+ ProcessGroupNCCL\.cpp",
    r"NCCL WARN",
    r"CUDA error: [a-z ]+",
    r"(torch\.cuda\.)?OutOfMemoryError",
    r"Traceback \(most recent call last\)",
    r"[A-Za-z.]+(Error|Exception): ",
    r"failed \(exitcode: -?[0-9]+\)",
    r"Got completion (from|with) .*(error|status)",
    r"Connection (closed by remote peer|reset by peer)",
    r"DataLoader worker \(pid",
    r"(Segmentation fault|No space left on device)",
)
"""What a person would grep for. They are failures only; gpufleet looks for some 400 more things."""

START = "2026-03-11T02:00:00Z"
STALL_S = 6_067
TIMEOUT_S = 600
CULPRIT = 3


def main() -> None:
    """Generate, measure, print, delete."""
    options = _options()
    folder = Path(options.folder)
    patterns = folder.parent / f"{folder.name}.patterns"
    patterns.write_text("\n".join(GREP_PATTERNS) + "\n")
    if not folder.exists():
        began = time.perf_counter()
        generate(folder, files=options.files, size=int(options.megabytes * 1_000_000))
        print(f"generated  {options.files} files in {time.perf_counter() - began:.1f} s")
    try:
        measure(folder, patterns, rounds=options.rounds)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
            patterns.unlink(missing_ok=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", required=True, help="where to put the logs")
    parser.add_argument("--files", type=int, default=1024)
    parser.add_argument("--megabytes", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="leave the logs there for the next run")
    return parser.parse_args()


def measure(folder: Path, patterns: Path, *, rounds: int) -> None:
    """Best of some rounds of each, one after the other, after one pass that fills the cache."""
    size = sum(path.stat().st_size for path in folder.iterdir())
    command = ["grep", "-r", "-c", "-E", "-f", str(patterns), str(folder)]
    grep = min(_timed(lambda: _run(command)) for _ in range(rounds + 1))
    print(f"bytes      {size / 1e6:10.0f} MB in {len(list(folder.iterdir()))} files")
    print(
        f"grep       {grep:10.2f} s  {size / grep / 1e6:8.0f} MB/s  one process, {len(GREP_PATTERNS)} patterns"
    )
    with PeakMemory() as watch:
        reading = min(_timed(lambda: _read(folder)) for _ in range(rounds))
        whole, reasoning, rendering = min(_triage(folder) for _ in range(rounds))
    print(
        f"reading    {reading:10.2f} s  {size / reading / 1e6:8.0f} MB/s  {reading / grep:5.2f} x grep"
    )
    print(
        f"triage     {whole:10.2f} s  {size / whole / 1e6:8.0f} MB/s  {whole / grep:5.2f} x grep"
        f"  (reading {whole - reasoning - rendering:.2f}, reasoning {reasoning:.2f}, rendering {rendering:.2f})"
    )
    print(
        f"memory     {watch.peak_kib / 1024:10.0f} MiB at most in all processes, shared pages counted once"
    )


class PeakMemory:
    """The most that this process and its children held together, looked at five times a second."""

    def __init__(self) -> None:
        self.peak_kib = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(0.2):
            self.peak_kib = max(self.peak_kib, sum(map(_pss_kib, _family(os.getpid()))))


def _family(root: int) -> list[int]:
    """A process and everything below it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def _pss_kib(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:"), 0)


def _timed(call: object) -> float:
    began = time.perf_counter()
    call()  # type: ignore[operator]
    return time.perf_counter() - began


def _run(command: list[str]) -> None:
    subprocess.run(
        command,
        stdout=subprocess.DEVNULL,
        check=False,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )


def _read(folder: Path) -> int:
    target = read_target(folder)
    return sum(
        len(facts)
        for _, facts in training_log.parse_many(list(target.evidences))
        if isinstance(facts, tuple | list)
    )


def _triage(folder: Path) -> tuple[float, float, float]:
    from gpufleet_cli.render import structured
    from gpufleet_cli.render.layout import Look
    from gpufleet_cli.triage import decide, read_facts

    began = time.perf_counter()
    target = read_target(folder)
    facts, files = read_facts(target)
    read = time.perf_counter()
    triage = decide(target, [JobNumbers(source="flag"), *facts], files, as_of_ns=None, strict=True)
    reasoned = time.perf_counter()
    structured.render_json(triage, Look())
    ended = time.perf_counter()
    print(
        f"           verdict: {triage.verdict.kind}, ranks {[c.rank for c in triage.verdict.culprits]}"
    )
    return ended - began, reasoned - read, ended - reasoned


# --- The logs -------------------------------------------------------------------------------------


def generate(folder: Path, *, files: int, size: int) -> None:
    """One log per rank. Bodies come from a few templates, since only their look matters."""
    folder.mkdir(parents=True)
    rng = random.Random(7)
    culprit = min(CULPRIT, files - 1)
    bodies = [_body(rng, size) for _ in range(min(8, files))]
    for rank in range(files):
        body = bodies[rank % len(bodies)].replace(b"@RANK@", str(rank).encode())
        lines = _quiet_tail(rank) if rank == culprit else _storm(rng, rank, files)
        tail = "\n".join(lines).encode() + b"\n"
        (folder / f"llm-worker-{rank}.log").write_bytes(body + tail)


def _stamp(seconds: float, rng: random.Random) -> str:
    found = parse_rfc3339(START)
    assert found is not None
    return format_ns(found[0] + int(seconds * 1000) * (NS_PER_S // 1000) + rng.randrange(1_000_000))


def _body(rng: random.Random, size: int) -> bytes:
    """Steps at an even pace up to the stall, with what a trainer says besides."""
    lines: list[str] = []
    count = size // 190
    for number in range(count):
        at = number * STALL_S / count
        stamp = _stamp(at, rng)
        own = format_ns(int(_ns(at)))[:19].replace("T", " ")
        prefix = f"{stamp} [rank@RANK@]:[titan] {own},{number % 1000:03} - root - "
        kind = number % 16
        if kind < 10:
            loss = 8 - 6 * number / count + rng.random() / 10
            text = f"INFO - step: {number}  loss: {loss:7.4f}  grad_norm: {rng.random():.4f}  memory: 61.24GiB(77.31%)  tps: {5000 + rng.randrange(200):,}  tflops: 301.18  mfu: 30.45%"
        elif kind < 14:
            text = f"INFO - loader: shard {rng.randrange(10**6):06} of s3://corpus/v3/train-{rng.randrange(4096):05}.tar, {rng.randrange(900)} documents, {rng.random():.3f} s"
        elif kind == 14:
            text = f"DEBUG - allocator: reserved {rng.randrange(60, 79)}.{rng.randrange(10)} GiB, active {rng.randrange(40, 60)} GiB, retries 0, fragmentation {rng.random():.3f}"
        else:
            text = f"INFO - metrics: forward {rng.random():.3f} backward {rng.random():.3f} optimizer {rng.random():.3f} comm {rng.random():.3f} data {rng.random():.3f}"
        lines.append(prefix + text)
        if number % 4000 == 2000:
            lines.append(
                f"{stamp} [rank@RANK@]: UserWarning: the lr scheduler was called before the optimizer step"
            )
        if number % 5000 == 4000:
            lines.append(prefix + "INFO - Finished saving the checkpoint in 5.53 seconds.")
    return "\n".join(lines).encode() + b"\n"


def _ns(seconds: float) -> float:
    found = parse_rfc3339(START)
    assert found is not None
    return found[0] + seconds * NS_PER_S


def _quiet_tail(rank: int) -> list[str]:
    return []


def _storm(rng: random.Random, rank: int, world: int) -> list[str]:
    """What a witness prints: timeout, dump signal, abort a minute later, and a stack."""
    at = STALL_S + TIMEOUT_S + rng.random()
    clock = format_ns(int(_ns(at)))
    c10 = f"[rank{rank}]:[E311 {clock[11:19]}.{rng.randrange(10**9):09} ProcessGroupNCCL.cpp:"
    group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
    work = f"WorkNCCL(SeqNum=88214, OpType=ALLREDUCE, NumelIn=268435456, NumelOut=268435456, Timeout(ms)={TIMEOUT_S * 1000})"
    ran = f"ran for {TIMEOUT_S * 1000 + rng.randrange(90)} milliseconds before timing out."
    timeout = f"[Rank {rank}] Watchdog caught collective operation timeout: {work} {ran}"
    texts = [
        f"{c10}632] {timeout}",
        f"{c10}2268] {group}  failure detected by watchdog at work sequence id: 88214 PG status: last enqueued work: 88216, last completed work: 88213",
        f"{c10}670] Stack trace of the failed collective not found, potentially because FlightRecorder is disabled. You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value.",
        f"{c10}2103] {group} First PG on this rank to signal dumping.",
        f"{c10}1743] {group} Received a dump signal due to a collective timeout from this local rank and we will try our best to dump the debug info. Last enqueued NCCL work: 88216, last completed NCCL work: 88213.This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks.",
        f"{c10}1533] {group} ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1",
        f"{c10}684] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        f"{c10}698] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.",
        f"{c10}1896] {group} Process group watchdog thread terminated with exception: {timeout}",
        "Exception raised from checkTimeout at ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:635 (most recent call first):",
        *(
            f"frame #{n}: c10d::ProcessGroupNCCL::part{n}() + 0x{rng.randrange(4096):x} (0x{rng.randrange(2**47):x} in /opt/conda/lib/libtorch_cuda.so)"
            for n in range(24)
        ),
        "",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        f"  what():  {group} Process group watchdog thread terminated with exception: {timeout}",
    ]
    ends = [0.0, 0.0, 0.0, 0.001, 0.002, 0.003] + [60.0] * (len(texts) - 6)
    return [f"{_stamp(at + extra, rng)} {text}" for extra, text in zip(ends, texts, strict=True)]


if __name__ == "__main__":
    main()
