"""Work grows with the ranks and not with their square: lines that run are counted, no time is taken."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from recorder_worlds import Job, dumps, programs, run

from gpufleet_cli.bundle import Target
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import Fact, JobNumbers
from gpufleet_cli.reason.summary import facts_of, summarise
from gpufleet_cli.render import render
from gpufleet_cli.render.layout import Look
from gpufleet_cli.triage import decide

SMALL, TIMES = 64, 4
LIMIT = 1.5  # of a rank's work when the job is four times as large; a square would be 4


def _log(rank: int, stalled: int) -> bytes:
    lines = [
        f"2026-11-29T14:39:{n:02}.5Z [rank{rank}]: step: {n} loss: 2.1 step_time 1.0s"
        for n in range(20)
    ]
    if rank != stalled:
        lines.append(
            f"2026-11-29T14:49:20.6Z [rank{rank}]:[E1129 14:49:20.600000000 ProcessGroupNCCL.cpp:685]"
            f" [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=41,"
            " OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013"
            " milliseconds before timing out."
        )
    return "".join(f"{line}\n" for line in lines).encode()


def _facts(ranks: int, missing: Callable[[int], bool]) -> list[Fact]:
    """A rank stalls in the middle of a step; dumps of some are missing, logs are all there."""
    job = Job(tp=2, dp=ranks // 4, pp=2)
    stalled = ranks // 2 + 1
    made = run(job, programs(job, 2), stops={stalled: len(job.step(stalled)) + 5})
    logs = [
        Evidence(path=f"rank_{rank}.log", size_bytes=1, content=_log(rank, stalled))
        for rank in range(ranks)
    ]
    places = [{"rank": r, "pod": f"pod-{r // 8}", "node": f"node-{r // 8}"} for r in range(ranks)]
    table = json.dumps({"world_size": ranks, "ranks": places}).encode()
    topology = Evidence(path="topology.json", size_bytes=len(table), content=table)
    facts, _ = facts_of(summarise([topology, *logs]), ())
    return [*facts, *dumps(made.without(*filter(missing, range(ranks))))]


def _lines_run(call: Callable[[], object]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def _triage(facts: list[Fact]) -> Callable[[], object]:
    target = Target(kind="directory", name="x", evidences=(), gaps=())

    def call() -> object:
        found = decide(target, [JobNumbers(source="flag"), *facts], (), as_of_ns=None, strict=True)
        look = Look(color=False, unicode=True)
        return render(found, "json", look), render(found, "text", look)

    return call


MISSING: dict[str, Callable[[int], bool]] = {
    "no dump missing": lambda rank: False,
    "a fifth missing": lambda rank: rank % 5 == 2,
    "nearly all missing": lambda rank: rank % 20 != 7,
    "the guilty one's missing": lambda rank: rank in (SMALL // 2 + 1, SMALL * TIMES // 2 + 1),
    "no dump at all": lambda rank: True,
}


@pytest.mark.parametrize("missing", MISSING.values(), ids=MISSING)
def test_four_times_the_ranks_is_four_times_the_work(missing: Callable[[int], bool]) -> None:
    """One barrier of the whole world never becomes an edge for each pair of ranks."""
    small, large = (_triage(_facts(ranks, missing)) for ranks in (SMALL, SMALL * TIMES))
    small()  # what is made once is not counted
    assert _lines_run(large) < _lines_run(small) * TIMES * LIMIT
