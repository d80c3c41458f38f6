"""The case: clocks, progress, checkpoints, silence and state, from facts of small incidents."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rules.stories import (
    GAVE_UP,
    STOPPED,
    S,
    case,
    ended_pod,
    hang,
    origin,
    places,
    running,
    sign,
    speaker,
    steps,
    timeout,
    writes,
    xid,
)

from gpufleet_cli.facts import Fact, JobNumbers, Origin, Progress, Sign, StepPoint
from gpufleet_cli.reason import job_state
from gpufleet_cli.reason.clocks import Offset
from gpufleet_cli.reason.silence import quieter_by_s
from gpufleet_cli.verdict import JobState

HOUR = 3600 * S


# --- Clocks --------------------------------------------------------------------------------------


def shifted(fact: Fact, by: int) -> Fact:
    """A fact as a node whose clock is `by` ahead would have written it."""
    if isinstance(fact, Progress):
        points = tuple(replace(p, at_ns=(p.at_ns or 0) + by) for p in fact.points)
        return replace(fact, points=points)
    changed = {
        name: value + by
        for name in ("at_ns", "first_ns", "last_ns", "last_normal_ns")
        if (value := getattr(fact, name, None)) is not None
    }
    return replace(fact, **changed) if changed else fact


def on_node(fact: Fact, node: int) -> bool:
    who = getattr(fact, "speaker", None)
    return (who is not None and who.pod == f"pod-{node}") or getattr(
        fact, "node", None
    ) == f"node-{node}"


@pytest.mark.parametrize("by", [HOUR, -HOUR, 15 * 60 * S])
def test_a_node_whose_clock_is_off_is_found_by_shared_steps(by: int) -> None:
    """The same steps on both nodes, one clock an hour off: the offset is measured."""
    facts = [shifted(f, by) if on_node(f, 1) else f for f in running()]
    found = case(facts).offsets
    difference = found["node-1"].offset_s - found["node-0"].offset_s
    assert difference == pytest.approx(by / S, abs=0.01)


def test_an_offset_is_also_learned_from_the_common_timeout() -> None:
    """Without shared steps, the collective that all timed out in tells the offset."""
    facts = [shifted(f, HOUR) if on_node(f, 1) else f for f in hang(quiet=(3,))]
    found = case(facts)
    assert found.offsets["node-1"].offset_s - found.offsets["node-0"].offset_s == pytest.approx(
        3600, abs=1
    )


def test_an_xid_keeps_its_place_when_its_nodes_clock_is_off() -> None:
    """Kernel log and job log of one node share its clock: the cause stays a second before."""
    facts = [shifted(f, HOUR) if on_node(f, 0) else f for f in hang(xid(79, gpu=3))]
    [placed] = case(facts).xids
    assert placed.relevant is True
    assert abs(placed.lead_s or 0) < 5


def test_small_offsets_change_nothing() -> None:
    """An offset within the error is left alone."""
    assert Offset(offset_s=0.9, error_s=0.1).matters is False
    assert Offset(offset_s=2.0, error_s=0.1).matters is True


# --- Progress and checkpoints --------------------------------------------------------------------


def test_pace_from_times_of_the_lines() -> None:
    """Two seconds a step where none is printed."""
    found = case(running(), STOPPED).steps
    assert (found.last_step, found.step_s, found.step_source) == (19, 2.0, "evidence")


def test_a_printed_pace_is_preferred() -> None:
    """`step_time 0.5` beats the difference of two lines ten steps apart."""
    points = tuple(StepPoint(at_ns=STOPPED + i * S, step=i, step_s=0.5, line=i) for i in range(10))
    series = Progress(speaker=speaker(0), points=points, total_steps=None, path="a")
    assert case([*places(), series]).steps.step_s == 0.5


def test_a_flag_wins_over_the_evidence() -> None:
    """--step-seconds says 7."""
    given = JobNumbers(source="flag", step_s=7.0)
    found = case([given, *running()]).steps
    assert (found.step_s, found.step_source) == (7.0, "flag")


def test_one_long_step_is_no_change_of_pace() -> None:
    """A save or an evaluation in the middle does not make the job slow."""
    times = [0, 2, 4, 6, 60, 62, 64, 66, 68]
    points = tuple(StepPoint(at_ns=t * S, step=i, step_s=None, line=i) for i, t in enumerate(times))
    series = Progress(speaker=speaker(0), points=points, total_steps=None, path="a")
    found = case([series]).steps
    assert (found.before_s, found.after_s) == (None, None)


def test_a_lasting_change_of_pace_is_found_where_it_began() -> None:
    """Two seconds a step, then five from step 10 on."""
    points = tuple(
        StepPoint(at_ns=(2 * i if i < 10 else 20 + 5 * (i - 10)) * S, step=i, step_s=None, line=i)
        for i in range(20)
    )
    found = case([Progress(speaker=speaker(0), points=points, total_steps=None, path="a")]).steps
    assert (found.before_s, found.after_s) == (2.0, 5.0)
    assert found.changed_ns == 25 * S


def test_a_finished_save_counts_and_a_staged_one_never_does() -> None:
    """Step 100 is durable; step 200 was only staged."""
    facts = hang(
        sign(Sign.SAVE_STARTED, 0, STOPPED - 900 * S, step=100),
        sign(Sign.SAVE_DURABLE, 0, STOPPED - 890 * S, step=100),
        sign(Sign.SAVE_STARTED, 0, STOPPED - 100 * S, step=200),
        sign(Sign.SAVE_STAGED, 0, STOPPED - 99 * S, step=200, detail="scheduled"),
    )
    found = case(facts).checkpoints
    assert (found.last_step, found.last_ns, found.save_s) == (100, STOPPED - 890 * S, 10.0)


def test_a_save_after_the_onset_is_not_the_one_to_restart_from() -> None:
    """What is written after the fault began is not taken as the last good one."""
    facts = hang(
        sign(Sign.SAVE_DURABLE, 0, STOPPED - 890 * S, step=100),
        sign(Sign.SAVE_DURABLE, 0, GAVE_UP, step=200),
    )
    assert case(facts).checkpoints.last_step == 100


def test_the_tracker_says_which_save_is_the_last() -> None:
    """The line of step 200 says scheduled; the tracker names it, so it is whole: at its start, then."""
    saves = [
        sign(Sign.SAVE_STARTED, 0, STOPPED - 900 * S, step=100),
        sign(Sign.SAVE_DURABLE, 0, STOPPED - 890 * S, step=100),
        sign(Sign.SAVE_STARTED, 0, STOPPED - 300 * S, step=200),
    ]
    tracker = JobNumbers(source="file", last_checkpoint_step=200, origin=Origin(path="latest"))
    found = case([tracker, *hang(*saves)]).checkpoints
    assert (found.last_step, found.last_ns) == (200, STOPPED - 300 * S)


def test_one_checkpoint_told_by_eight_ranks_is_one() -> None:
    """The interval is from one checkpoint to the next, not from one rank's line to another's."""
    told = [
        sign(Sign.SAVE_DURABLE, rank, STOPPED - ago_s * S + rank * 1_000_000, step=step)
        for ago_s, step in ((4000, 1), (2200, 2), (400, 3))
        for rank in range(8)
    ]
    assert case(hang(*told)).checkpoints.interval_s == pytest.approx(1800, abs=0.1)


def test_a_save_that_began_and_never_finished_is_open() -> None:
    """Started without an end."""
    facts = hang(sign(Sign.SAVE_STARTED, 0, STOPPED - 5 * S, step=200))
    found = case(facts).checkpoints
    assert found.open_save is not None
    assert (found.last_ns, found.open_save.step) == (None, 200)


# --- Silence -------------------------------------------------------------------------------------


def test_silence_is_measured_against_the_other_ranks() -> None:
    """Rank 3 wrote its last line eleven minutes before the median of the others."""
    assert quieter_by_s(case(hang()).silence, 3) == 660.0


def test_frames_after_a_complaint_are_no_sign_of_life() -> None:
    """Lines under another prefix after the timeout do not count as ordinary."""
    late = replace(
        writes(1, GAVE_UP + 5 * S, normal=GAVE_UP + 5 * S),
        speaker=replace(speaker(1), local_rank=1),
    )
    assert case(hang(late)).silence[1].last_sign_ns == STOPPED


def test_a_filtered_rank_has_unknown_silence() -> None:
    """A launcher's filter keeps it out of the log."""
    facts = [*places(), replace(writes(2, STOPPED), rank_filtered=True)]
    assert case(facts).silence[2].known is False


# --- State ---------------------------------------------------------------------------------------


def test_quiet_logs_alone_leave_the_state_unknown() -> None:
    """No step, no error: unknown, which is treated as running."""
    facts = [*places(), *[writes(r, STOPPED) for r in range(8)]]
    found = case(facts, STOPPED + HOUR).stop
    assert (found.state, found.stopped) == (JobState.UNKNOWN, False)


def test_timeouts_stop_and_abort_lines_end() -> None:
    """A watchdog's line is a stall, its abort an end."""
    assert case(hang()).stop.state is JobState.STALLED
    assert case(hang(sign(Sign.ABORT, 1, GAVE_UP + 60 * S))).stop.state is JobState.ABORTED


def test_steps_after_the_complaints_mean_that_it_runs() -> None:
    """An elastic job that went on without the rank is running."""
    facts = [f for f in hang() if not isinstance(f, Progress)]
    assert case([*facts, steps(until=GAVE_UP + 600 * S)]).stop.state is JobState.RUNNING


def test_a_given_state_wins() -> None:
    """--state running is believed."""
    assert (
        case([JobNumbers(source="flag", state="running"), *hang()]).stop.state is JobState.RUNNING
    )


def test_an_older_failure_is_the_subject_when_the_younger_attempt_runs() -> None:
    """Attempt 0 failed a minute ago, attempt 1 steps: the question is attempt 0."""
    old = [
        replace(f, speaker=replace(f.speaker, attempt=0)) for f in hang() if hasattr(f, "speaker")
    ]
    old.append(
        replace(
            sign(Sign.ABORT, 1, GAVE_UP),
            speaker=replace(speaker(1), attempt=0),
            origin=origin(1, 97),
        )
    )
    new = [
        replace(steps(r, until=GAVE_UP + 100 * S), speaker=replace(speaker(r), attempt=1))
        for r in range(8)
    ]
    found = case([*places(), JobNumbers(source="file", world_size=8), *old, *new])
    assert (found.attempt, found.stop.stopped) == (0, True)
    assert "older-attempt" == found.stop.proof


def test_a_state_says_on_what_it_rests() -> None:
    """A watchdog's line or an abort is the attempt's own; what was given is a hint, and running needs none."""
    assert "own-lines" == case(hang()).stop.proof
    assert "own-lines" == case(hang(sign(Sign.ABORT, 1, GAVE_UP + 60 * S))).stop.proof
    assert "hint" == case([JobNumbers(source="flag", state="aborted"), *running()]).stop.proof
    assert case(running(), STOPPED).stop.proof is None
    raised = case([*running(), sign(Sign.PYTHON_EXCEPTION, 1, STOPPED + 1 * S)], STOPPED + HOUR)
    assert (JobState.ABORTED, "hint") == (raised.stop.state, raised.stop.proof)


def test_a_timeout_of_a_group_without_a_name_is_of_the_world() -> None:
    """Lines of old torch name no group: `[Rank 1]` is global then."""
    bare = replace(timeout(1), group=None, speaker=replace(speaker(1), rank=None, pod=None))
    assert case([JobNumbers(source="file", world_size=4), bare]).witnesses == {1}


@pytest.mark.parametrize(("seconds", "is_old"), [(-5, False), (5, True)])
def test_dumps_of_a_run_before_are_not_those_of_this_one(seconds: int, is_old: bool) -> None:
    """They lie where this run's would: every one ends before any of its containers began."""
    pod = ended_pod(0, STOPPED + HOUR)
    container = replace(pod.containers[0], started_ns=STOPPED + seconds * S)
    own = [replace(pod, containers=(container,))]
    assert is_old is job_state._before_all(own, [STOPPED - S, STOPPED])
    assert not job_state._before_all(own, [])
