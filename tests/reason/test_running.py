"""A job that runs: dumps taken from it, and the pace that the lines of all its ranks tell."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recorder_worlds import Job, dumps, programs, run
from rules.stories import STOPPED, S, places, running, sign, steps, writes

from gpufleet_cli.facts import Fact, JobNumbers, Origin, Progress, RankDump, Sign
from gpufleet_cli.reason import pauses, recorder_live
from gpufleet_cli.reason.build import build_case
from gpufleet_cli.reason.placed import Pause
from gpufleet_cli.reason.recorder_finding import GraphFinding, Root, Stall, Terminal
from gpufleet_cli.verdict import CollectiveRef, JobState

JOB = Job(1, 8, 1)


def stalled() -> list[RankDump]:
    """Dumps in which seven ranks wait for rank 3, without a time of their making."""
    return dumps(run(JOB, programs(JOB), stops={3: 9}))


def placed(found: list[RankDump], newest_ns: int) -> list[RankDump]:
    return [replace(dump, newest_ns=newest_ns, dumped_ns=None, timed_out=None) for dump in found]


@pytest.mark.parametrize(("age_s", "state"), [(2, JobState.RUNNING), (1200, JobState.STALLED)])
def test_waiting_in_dumps_is_no_stall_where_the_steps_go_on(age_s: int, state: JobState) -> None:
    """A snapshot of a job whose last step is two seconds old shows a job in mid-step."""
    facts = [*running(), *placed(stalled(), STOPPED - 3600 * S)]
    made = build_case(facts, as_of_ns=STOPPED + age_s * S, captured_ns=None)
    assert made.stop.state is state
    assert made.graph is not None
    assert (made.graph.no_fault, bool(made.graph.roots)) == (age_s == 2, age_s != 2)


def test_dumps_of_the_last_seconds_need_no_steps() -> None:
    """Logs without times: the newest operations are as old as the collection."""
    facts: list[Fact] = [*places(), *placed(stalled(), STOPPED)]
    made = build_case(facts, as_of_ns=STOPPED + 5 * S, captured_ns=None)
    assert made.graph is not None
    assert (made.graph.no_fault, made.stop.state) == (True, JobState.RUNNING)
    later = build_case(facts, as_of_ns=STOPPED + 900 * S, captured_ns=None)
    assert later.graph is not None
    assert not later.graph.no_fault


def test_nobody_told_when_the_dumps_were_taken() -> None:
    """Then the newest time of the evidence proves nothing."""
    made = build_case([*running(), *placed(stalled(), STOPPED)], as_of_ns=None, captured_ns=None)
    assert made.graph is not None
    assert not made.graph.no_fault


def test_one_rank_that_all_wait_for_is_kept_in_a_pause() -> None:
    """A save is open, and rank 3 alone is behind: the save does not explain why it is alone."""
    facts = [
        *running(sign(Sign.SAVE_STARTED, 0, STOPPED + S)),
        *placed(stalled(), STOPPED - 3600 * S),
    ]
    made = build_case(facts, as_of_ns=STOPPED + 100 * S, captured_ns=None)
    assert made.pause is not None
    assert made.graph is not None
    assert [root.ranks for root in made.graph.roots] == [(3,)]


def ends(kind: Terminal, count: int) -> GraphFinding:
    """A job of 64 ranks whose waiting ends in `count` ranks, each by itself."""
    roots = tuple(
        Root(
            kind=kind,
            ranks=(rank,),
            share=1 / count,
            blocked=1,
            virtual=False,
            claims=(),
            waited_on=CollectiveRef(desc="TENSOR_MODEL_PARALLEL_GROUP", seq=7),
        )
        for rank in range(count)
    )
    return GraphFinding(dumps=64, world_size=64, stall=Stall.BY_ORDER, roots=roots, blocked=64)


@pytest.mark.parametrize(("count", "is_kept"), [(1, True), (8, True), (32, False)])
def test_many_gpus_at_work_are_none_alone(count: int, is_kept: bool) -> None:
    """In a pause a rank that stands out is kept; half of the job that computes does not stand out."""
    pause = Pause(why="it paused before", since_ns=0, origin=None, is_announced=False)
    known = build_case(running(), as_of_ns=STOPPED, captured_ns=None).steps
    found = recorder_live.in_a_running_job(
        ends(Terminal.GPU_STALLED, count), known, pause, STOPPED + 100 * S, 600.0
    )
    assert found is not None
    assert bool(found.roots) is is_kept


@pytest.mark.parametrize(
    ("count", "is_late", "is_scattered"), [(2, False, False), (8, False, True), (8, True, False)]
)
def test_ends_all_over_the_job_single_nobody_out(
    count: int, is_late: bool, is_scattered: bool
) -> None:
    """One fault has one end; eight that do not wait for one another are a step that goes on, as long as
    nothing has timed out."""
    found = replace(
        ends(Terminal.IN_FLIGHT, count),
        timed_out_origin=Origin(path="dumps/rank_0", entry=3) if is_late else None,
    )
    assert recorder_live.is_scattered(found) is is_scattered
    left = recorder_live.without_ends(found)
    assert (left.roots, left.no_fault, left.stall) == ((), False, Stall.NONE)


# --- The pace -------------------------------------------------------------------------------------


def test_lines_of_all_ranks_tell_the_pace_where_each_rank_has_few() -> None:
    """Each rank has three of twenty-four steps, in one file: together they show all."""
    whole = [steps(rank, count=24) for rank in range(8)]
    few = [
        replace(
            series, points=tuple(p for p in series.points if p.step % 8 == rank or p.step == 23)
        )
        for rank, series in enumerate(whole)
    ]
    sparse: list[Fact] = [replace(series, path="all.log") for series in few]
    facts = [*places(), JobNumbers(source="file", world_size=8), *sparse]
    facts += [writes(rank, STOPPED) for rank in range(8)]
    made = build_case(facts, as_of_ns=STOPPED, captured_ns=None)
    assert made.steps.count == 24
    assert made.steps.interval_s == pytest.approx(2.0)


def test_steps_that_were_not_printed_are_no_pause() -> None:
    """Every tenth step is printed, and a few of those were read: the gaps are steps."""
    [series] = [f for f in [steps(count=100)] if isinstance(f, Progress)]
    shown = tuple(p for p in series.points if p.step % 10 == 0 and p.step not in (40, 50, 60))
    facts: list[Fact] = [*places(), replace(series, points=shown)]
    made = build_case(facts, as_of_ns=STOPPED, captured_ns=None)
    assert made.steps.longest_s == pytest.approx(20.0)
    assert pauses.rhythm_s(made.steps) == pytest.approx(60.0)
