"""Incidents on the tests' own cluster: what the pods of a job wrote, and how they ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from servers import pods
from servers.namespaces import Namespace

WATCHDOG_S = 600


def began(minutes_ago: float = 20.0) -> datetime:
    """A whole second so long ago."""
    return datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=minutes_ago)


def steps(first_rank: int, ranks: int, at: datetime, count: int) -> Iterable[tuple[datetime, str]]:
    """Steps of so many ranks, one a second."""
    for step in range(count):
        for local in range(ranks):
            rank = first_rank + local
            when = at + timedelta(seconds=step, milliseconds=10 * local)
            yield when, f"[rank{rank}]: step {1000 + step} loss 2.31 lr 1.0e-04"


def timeouts(first_rank: int, ranks: int, at: datetime) -> Iterable[tuple[datetime, str]]:
    """What the watchdogs of ranks that waited say, in the words of torch 2.6."""
    for local in range(ranks):
        rank = first_rank + local
        when = at + timedelta(milliseconds=70 * local + 3 * rank)
        stamp = f"{when:%H:%M:%S.%f}"
        yield (
            when,
            f"[rank{rank}]:[E{when:%m%d} {stamp}000 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective "
            f"operation timeout: WorkNCCL(SeqNum=8821, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, "
            f"Timeout(ms)={WATCHDOG_S * 1000}) ran for {WATCHDOG_S * 1000 + 31} milliseconds before timing out.",
        )


def stall(
    namespace: Namespace,
    names: Sequence[str],
    *,
    silent: int,
    at: datetime,
    ranks: int = 2,
    container: str = "trainer",
    last_words: Sequence[str] = (),
) -> None:
    """All ranks step for a minute; those of one pod fall silent, and the others time out."""
    end = at + timedelta(seconds=60)
    logs = {}
    for index, name in enumerate(names):
        lines = list(steps(index * ranks, ranks, at, 60))
        if index == silent:
            lines += [(end, word) for word in last_words]
        else:
            lines += timeouts(index * ranks, ranks, end + timedelta(seconds=WATCHDOG_S))
        logs[name] = lines
    pods.give_logs(namespace, logs, container=container)
