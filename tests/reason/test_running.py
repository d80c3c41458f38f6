"""A job that runs: dumps taken from it, and the pace that the lines of all its ranks tell."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recorder_worlds import Job, dumps, programs, run
from rules.stories import STOPPED, S, places, running, sign, steps, writes

from gpufleet_cli.facts import Fact, JobNumbers, Progress, RankDump, Sign
from gpufleet_cli.reason import pauses
from gpufleet_cli.reason.build import build_case
from gpufleet_cli.verdict import JobState

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
    assert made.graph.no_fault
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
