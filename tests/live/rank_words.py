"""What the ranks of a job on the tests' cluster wrote: steps, watchdog storms, tracebacks, reads tried again.

In the words of torch 2.6; who prefixes them, and how, is the affair of `job_voices`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

WATCHDOG_S = 600
ABORT_S = 60  # from its first words to its last: the watchdog waits for dumps
STEPS = 60
FIRST_STEP = 1000
SEQ = 8821

_WORK = (
    f"WorkNCCL(SeqNum={SEQ}, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, "
    f"Timeout(ms)={WATCHDOG_S * 1000})"
)
_TIMED_OUT = (
    f"Watchdog caught collective operation timeout: {_WORK} ran for {WATCHDOG_S * 1000 + 31}"
    " milliseconds before timing out."
)
_BEHIND = f"last enqueued work: {SEQ + 2}, last completed work: {SEQ - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One line of one rank, before anybody's prefix. `by`: what wrote it, which decides the prefix."""

    at: datetime
    rank: int
    text: str
    by: Literal["step", "python", "c10", "agent"] = "python"


def steps(rank: int, begin: datetime, count: int = STEPS) -> Iterable[Said]:
    """A step a second; the text is its number."""
    for step in range(count):
        when = begin + timedelta(seconds=step, milliseconds=3 * rank)
        yield Said(at=when, rank=rank, text=str(FIRST_STEP + step), by="step")


def storm(rank: int, begin: datetime, *, aborts: bool) -> Iterable[Said]:
    """A rank that waited: its watchdog's lines, and a minute later the end of its process."""
    group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
    at = begin + timedelta(milliseconds=7 * rank)
    for line, text in (
        (629, f"[Rank {rank}] {_TIMED_OUT}"),
        (
            2168,
            f"{group}  failure detected by watchdog at work sequence id: {SEQ} PG status: {_BEHIND}",
        ),
        (
            667,
            "Stack trace of the failed collective not found, potentially because FlightRecorder is disabled. You can"
            " enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value.",
        ),
        (
            1683,
            f"{group} Received a dump signal due to a collective timeout from this local rank and we will try our"
            f" best to dump the debug info. Last enqueued NCCL work: {SEQ + 2}, last completed NCCL work: {SEQ - 1}."
            "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks.",
        ),
        (1471, f"{group} ProcessGroupNCCL preparing to dump debug info. Include stack trace: 1"),
    ):
        yield _c10(rank, at, line, text)
    if aborts:
        yield from _abort(rank, at + timedelta(seconds=ABORT_S), group)


def _abort(rank: int, at: datetime, group: str) -> Iterable[Said]:
    for line, text in (
        (
            681,
            f"[Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA"
            " kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        ),
        (
            695,
            f"[Rank {rank}] To avoid data inconsistency, we are taking the entire process down.",
        ),
        (
            1895,
            f"{group} Process group watchdog thread terminated with exception: [Rank {rank}] {_TIMED_OUT}",
        ),
    ):
        yield _c10(rank, at, line, text)


def told_to_dump(rank: int, at: datetime) -> Said:
    """A rank that lives and waits for nobody hears of the others' timeout through the store."""
    group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]"
    text = f"{group} Observed flight recorder dump signal from another rank via TCPStore."
    return _c10(rank, at, 1618, text)


def _c10(rank: int, at: datetime, line: int, text: str) -> Said:
    """A line of PyTorch's C++: month without a zero, nine digits."""
    stamp = f"{at.month}{at:%d %H:%M:%S.%f}000"
    return Said(at=at, rank=rank, text=f"[E{stamp} ProcessGroupNCCL.cpp:{line}] {text}", by="c10")


def traceback(rank: int, at: datetime) -> Iterable[Said]:
    """An exception of the user's program."""
    for row in (
        "Traceback (most recent call last):",
        '  File "/app/train.py", line 212, in <module>',
        "    main()",
        '  File "/app/train.py", line 164, in main',
        "    hidden = self.embedding(batch[index])",
        "IndexError: index 50304 is out of bounds for dimension 0 with size 50257",
    ):
        yield Said(at=at, rank=rank, text=row)


def agent_saw(
    first_rank: int, rank: int, at: datetime, *, code: int, host: str, siblings: Sequence[int] = ()
) -> Iterable[Said]:
    """Torchrun's agent: whom it ended, who failed first on its node, and its block."""
    stamp = f"{at:%m%d %H:%M:%S.%f}"
    api = "site-packages/torch/distributed/elastic/multiprocessing/api.py"
    local = rank - first_rank
    rows = [
        f"W{stamp} 1 {api}:897] Sending process {71 + one - first_rank} closing signal SIGTERM"
        for one in siblings
    ]
    rows += [
        f"E{stamp} 1 {api}:869] failed (exitcode: {code}) local_rank: {local} (pid: {71 + local}) of binary:"
        " /usr/bin/python3",
        "============================================================",
        "train.py FAILED",
        "------------------------------------------------------------",
        "Failures:",
        "  <NO_OTHER_FAILURES>",
        "------------------------------------------------------------",
        "Root Cause (first observed failure):",
        "[0]:",
        f"  time      : {at:%Y-%m-%d_%H:%M:%S}",
        f"  host      : {host}",
        f"  rank      : {rank} (local_rank: {local})",
        f"  exitcode  : {code} (pid: {71 + local})" + (" (SIGABRT)" if code == -6 else ""),
        "  error_file: <N/A>",
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
        "============================================================",
    ]
    for row in rows:
        yield Said(at=at + timedelta(seconds=1), rank=first_rank, text=row, by="agent")


def agent_told(first_rank: int, at: datetime) -> Iterable[Said]:
    """What torchrun's agent writes when somebody ends its pod."""
    stamp = f"{at:%m%d %H:%M:%S.%f}"
    api = "site-packages/torch/distributed/elastic/agent/server/api.py"
    text = f"W{stamp} 1 {api}:719] Received Signals.SIGTERM death signal, shutting down workers"
    yield Said(at=at, rank=first_rank, text=text, by="agent")


def retries(rank: int, begin: datetime) -> Iterable[Said]:
    """A loader whose object store does not answer."""
    url = "https://data.example/shards/corpus-00417.parquet"
    for k in range(1, 6):
        at = begin + timedelta(seconds=30 * k)
        pool = (
            "HTTPSConnectionPool(host='data.example', port=443): Read timed out. (read timeout=10)"
        )
        yield Said(
            at=at,
            rank=rank,
            text=f"'(ReadTimeoutError(\"{pool}\"), '(Request ID: 6f1f)')' thrown while requesting GET {url}",
        )
        yield Said(at=at, rank=rank, text=f"Retrying in {min(8, 2**k)}s [Retry {k}/5].")


def loader_timed_out(rank: int, at: datetime) -> Iterable[Said]:
    """The loader gave up on its workers before the others' watchdogs did, and the program with it."""
    for row in (
        "Traceback (most recent call last):",
        '  File "/usr/local/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1251, in _try_get_data',
        "    data = self._data_queue.get(timeout=timeout)",
        '  File "/usr/local/lib/python3.11/multiprocessing/queues.py", line 114, in get',
        "    raise Empty",
        "_queue.Empty",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        '  File "/app/train.py", line 212, in <module>',
        "    main()",
        '  File "/app/train.py", line 158, in main',
        "    batch = next(batches)",
        '  File "/usr/local/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 708, in __next__',
        "    data = self._next_data()",
        "RuntimeError: DataLoader timed out after 300 seconds",
    ):
        yield Said(at=at, rank=rank, text=row)


def not_all_came(joined: int, expected: int, at: datetime) -> Iterable[Said]:
    """The master gave up waiting for the others."""
    for row in (
        "Traceback (most recent call last):",
        '  File "/usr/local/lib/python3.11/site-packages/torch/distributed/rendezvous.py", line 189, in _create_c10d_store',
        "    return TCPStore(",
        f"torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. {joined}/{expected}"
        " clients joined.",
    ):
        yield Said(at=at, rank=0, text=row, by="agent")
