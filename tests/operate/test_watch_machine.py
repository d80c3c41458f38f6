"""The state machine of a watch, look by look: what pages, what does not, and what is told of a job that is not seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pytest

from gpufleet_cli.operate.watch import habits, machine
from gpufleet_cli.operate.watch.model import (
    Habit,
    Look,
    Mark,
    Past,
    PauseKind,
    Plan,
    Signs,
    State,
    Subject,
)
from gpufleet_cli.watch_card import PROBLEMS, Event, Kind

NS = 1_000_000_000
PLAN = Plan(timeout_s=600.0, poll_s=15.0)
RUN = Subject(token="uid/0/0", number=0, state="running")
USUAL = Habit(interval_s=15.0, paces=(1.0,) * 10)
SAVES = replace(USUAL, pauses=(Past("save", 360.0),), save_every_s=1800.0)


@dataclass
class Job:
    """A job whose steps end at `until_s`, told by metrics and logs whose clock is `ahead_s` wrong."""

    until_s: float
    ahead_s: float = 0.0
    opens: PauseKind | None = None
    saved_at_s: float | None = None
    pace_s: float | None = 1.0

    def signs(self, now_s: float, source: str = "metrics") -> Signs:
        at = min(now_s, self.until_s)
        saved = self.saved_at_s
        return Signs(
            source="logs" if source == "logs" else "metrics",
            marks={"": Mark(int(at) if source == "logs" else 0, round((at + self.ahead_s) * NS))},
            step=int(at) if source == "logs" else None,
            age_s=now_s - at - self.ahead_s,
            pace_s=self.pace_s,
            saved_ns=None if saved is None else round((saved + self.ahead_s) * NS),
            saved_before_s=None if saved is None else at - saved,
            opens=self.opens if source == "logs" else None,
        )


def look(
    now_s: float, *signs: Signs, subject: Subject | None = RUN, unread: Sequence[str] = ()
) -> Look:
    return Look(
        now_s=now_s, at_ns=round(now_s * NS), subject=subject, signs=signs, unread=tuple(unread)
    )


def run(
    looks: Iterable[Look], *, habit: Habit = USUAL, plan: Plan = PLAN, state: State | None = None
) -> tuple[State, list[Event]]:
    """All looks one after the other."""
    state = replace(machine.begun(0.0), habit=habit) if state is None else state
    told: list[Event] = []
    for one in looks:
        state, events = machine.step(state, one, plan)
        told += events
    return state, told


def each(job: Job, begin: float, end: float, *sources: str) -> list[Look]:
    """A look each 15 s, by these sources."""
    times = [begin + 15.0 * n for n in range(int((end - begin) // 15) + 1)]
    return [look(at, *(job.signs(at, s) for s in sources or ("metrics",))) for at in times]


def kinds(events: Iterable[Event]) -> list[Kind]:
    return [one.kind for one in events]


def pages(events: Iterable[Event]) -> list[Event]:
    return [one for one in events if one.kind in PROBLEMS]


# --- A stall --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead_s", [0.0, -300.0, 300.0, -7200.0, 7200.0])
@pytest.mark.parametrize("source", ["metrics", "logs"])
def test_a_stall_is_told_once_at_half_the_timeout(source: str, ahead_s: float) -> None:
    """Within one look of it, whatever the clock of the job says."""
    job = Job(until_s=1000.0, ahead_s=ahead_s)
    _, told = run(each(job, 900.0, 1600.0, source))
    assert [Kind.STALLED] == kinds(pages(told))
    (stalled,) = pages(told)
    assert 300.0 - 15.0 <= stalled.at_ns / NS - 1000.0 <= 300.0 + 2 * 15.0
    assert stalled.quiet_s is not None and 285.0 <= stalled.quiet_s <= 330.0


def test_a_job_that_steps_is_left_alone_for_hours() -> None:
    assert [Kind.STEPS] == kinds(run(each(Job(until_s=1e9), 0.0, 7200.0, "metrics", "logs"))[1])


def test_warn_at_moves_the_page() -> None:
    """A quarter of the timeout is a quarter of the silence."""
    plan = replace(PLAN, warn_at=0.25)
    (stalled,) = pages(run(each(Job(until_s=1000.0), 900.0, 1600.0), plan=plan)[1])
    assert 150.0 <= stalled.at_ns / NS - 1000.0 <= 180.0


def test_it_moves_again_and_the_stall_is_over() -> None:
    """And a stall that was paged is no habit: the next one is paged as soon."""
    looks = [*each(Job(until_s=1000.0), 900.0, 1400.0), *each(Job(until_s=2000.0), 1415.0, 2600.0)]
    state, told = run(looks)
    assert [Kind.STALLED, Kind.MOVES, Kind.STALLED] == [
        one.kind for one in told if one.kind in (Kind.STALLED, Kind.MOVES)
    ]
    assert () == state.habit.pauses


@pytest.mark.parametrize("ahead_s", [-400.0, 0.0])
def test_the_first_look_never_pages(ahead_s: float) -> None:
    """A node's clock alone says that it is old; our own has seen nothing yet. Then it steps: nobody is paged."""
    quiet = look(1000.0, Job(until_s=600.0, ahead_s=ahead_s).signs(1000.0))
    assert [] == pages(run([quiet])[1])
    steps = look(1015.0, Job(until_s=1e9, ahead_s=ahead_s).signs(1015.0))
    assert [] == pages(run([quiet, steps])[1])
    again = look(1100.0, Job(until_s=600.0, ahead_s=ahead_s).signs(1100.0))
    assert [Kind.STALLED] == kinds(pages(run([quiet, again])[1]))


def test_two_sources_one_of_which_moves() -> None:
    """A log that is buffered is silent for long, and the metrics say that it steps."""
    looks = [
        look(at, Job(until_s=1e9).signs(at), Job(until_s=1000.0).signs(at, "logs"))
        for at in range(900, 2000, 15)
    ]
    assert [] == pages(run(looks)[1])


def test_a_source_that_tells_steps_seldom_alone_pages_nobody_soon() -> None:
    """Its log has a step each 10 minutes, and the metrics, which have each, are lost: it cannot be told."""

    def seldom(at: float) -> Signs:
        return Job(until_s=at // 600 * 600).signs(at, "logs")

    looks = [look(at, Job(until_s=1e9).signs(at), seldom(at)) for at in range(0, 3010, 15)]
    looks += [look(at, seldom(3010.0), unread=["metrics: lost"]) for at in range(3015, 3600, 15)]
    assert [] == pages(run(looks)[1])


# --- Clocks, counters, values ---------------------------------------------------------------------


def test_a_clock_that_is_set_back_is_movement() -> None:
    """The gauge has an earlier time than before: somebody wrote it anew."""
    looks = [look(at, Job(until_s=1e9).signs(at)) for at in range(0, 600, 15)]
    looks += [look(at, Job(until_s=1e9, ahead_s=-3600.0).signs(at)) for at in range(600, 1500, 15)]
    assert [] == pages(run(looks)[1])


def test_step_numbers_that_go_down_after_a_restart_in_process() -> None:
    """It began anew at an older checkpoint: lower numbers, later times."""

    def logs(at: float) -> Signs:
        step = int(at) if at < 600 else int(at) - 500
        return Signs(source="logs", marks={"p-0": Mark(step, round(at * NS))}, step=step, age_s=0.0)

    state, told = run([look(at, logs(at)) for at in range(0, 1500, 15)])
    assert [] == pages(told)
    assert 1485 - 500 == state.step


def test_of_several_ranks_any_one_that_moves_counts() -> None:
    """Pods whose clocks are hours apart; rank 0 is silent from 300 on, the other one steps on."""

    def logs(at: float) -> Signs:
        first = min(at, 300.0)
        marks = {
            "p-0": Mark(int(first), round((first + 7200) * NS)),
            "p-9": Mark(int(at), round(at * NS)),
        }
        return Signs(source="logs", marks=marks, step=int(at), age_s=0.0)

    assert [] == pages(run([look(at, logs(at)) for at in range(0, 1500, 15)])[1])


def test_a_writer_that_was_not_read_before_is_no_movement() -> None:
    """Another pod is followed in place of one that is gone: its old step is not a new one."""

    def logs(at: float) -> Signs:
        pod = "p-0" if at < 450 else "p-1"
        return Signs(source="logs", marks={pod: Mark(300, 300 * NS)}, step=300, age_s=at - 300)

    looks = [look(at, Job(until_s=1e9).signs(at, "logs")) for at in range(0, 300, 15)]
    _, told = run([*looks, *(look(at, logs(at)) for at in range(300, 900, 15))])
    assert [Kind.STALLED] == kinds(pages(told))


# --- Habit ----------------------------------------------------------------------------------------


def test_a_long_checkpoint_as_before_pages_nobody_and_beyond_habit_does() -> None:
    """Saves took 6 minutes of a timeout of 10; one is due. At 1.5 times that, or when time is short, it is told."""
    job = Job(until_s=1000.0, saved_at_s=1000.0 - 1500.0)
    _, told = run(each(job, 900.0, 1000.0 + 360.0), habit=SAVES)
    assert [] == pages(told)
    assert Kind.EXCUSED in kinds(told)
    (stalled,) = pages(run(each(job, 900.0, 1600.0), habit=SAVES)[1])
    assert stalled.quiet_s is not None and 360.0 * 1.2 < stalled.quiet_s < 600.0 - 60.0


def test_a_stall_between_two_checkpoints_is_no_checkpoint() -> None:
    """The last save was two minutes ago, and one is made each half hour."""
    job = Job(until_s=1000.0, saved_at_s=880.0)
    (stalled,) = pages(run(each(job, 900.0, 1600.0), habit=SAVES)[1])
    assert stalled.quiet_s is not None and stalled.quiet_s <= 330.0


@pytest.mark.parametrize("kind", ["save", "evaluation", "compilation"])
def test_what_the_log_announces_has_its_own_habit(kind: PauseKind) -> None:
    """It is open, and took 6 minutes before; of a kind that is not known the page comes at half the timeout."""
    habit = replace(USUAL, pauses=(Past(kind, 360.0),))
    looks = each(Job(until_s=1000.0, opens=kind), 900.0, 1000.0 + 400.0, "metrics", "logs")
    assert [] == pages(run(looks, habit=habit)[1])
    assert [Kind.STALLED] == kinds(pages(run(looks)[1]))
    silent = each(Job(until_s=1000.0), 900.0, 1000.0 + 400.0, "metrics", "logs")
    assert [Kind.STALLED] == kinds(pages(run(silent, habit=habit)[1]))


def test_a_pause_is_learnt_with_its_kind() -> None:
    """What was saved meanwhile makes it a save, what was open an evaluation, else it has no name."""
    for opens, saved, kind in (
        (None, 1250.0, "save"),
        ("evaluation", None, "evaluation"),
        (None, None, "none"),
    ):
        before = Job(until_s=1000.0, opens=opens, saved_at_s=100.0 if saved else None)  # type: ignore[arg-type]
        after = Job(until_s=1e9, saved_at_s=saved)
        looks = [
            *each(before, 900.0, 1200.0, "metrics", "logs"), *each(after, 1255.0, 1300.0, "metrics", "logs")
        ]  # fmt: skip
        (past,) = run(looks)[0].habit.pauses
        assert kind == past.kind
        assert 240.0 <= past.seconds <= 260.0


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "as-before"])
def test_a_save_whose_end_the_log_shows_before_the_metrics_is_a_save(is_first: bool) -> None:
    """The log says nothing of saves, and shows the next step before the scrape that tells the checkpoint. Neither that
    pause nor the checkpoint explains a stall later on; also where its page came first."""
    silent, before = Job(until_s=1000.0), Job(until_s=1000.0, saved_at_s=100.0)
    steps = Job(until_s=1500.0)
    saved = replace(steps, saved_at_s=1350.0)
    habit = USUAL if is_first else replace(SAVES, save_every_s=1200.0)
    looks = [
        *(look(at, before.signs(at), silent.signs(at, "logs")) for at in range(900, 1360, 15)),
        look(1365.0, before.signs(1365.0), steps.signs(1365.0, "logs")),
        *(look(at, saved.signs(at), steps.signs(at, "logs")) for at in range(1380, 1500, 15)),
    ]
    state, told = run(looks, habit=habit)
    assert {"save"} == {past.kind for past in state.habit.pauses}
    assert ([Kind.STALLED] if is_first else []) == kinds(pages(told))
    later = [look(at, saved.signs(at), steps.signs(at, "logs")) for at in range(1500, 1860, 15)]
    state, told = run(later, state=state)
    (stalled,) = pages(told)
    assert stalled.quiet_s is not None and stalled.quiet_s <= 330.0
    assert habits.is_unexplained(state, PLAN)


def test_a_pause_without_a_save_in_it_keeps_no_name() -> None:
    """A checkpoint minutes after it is another matter."""
    silent, before = Job(until_s=1000.0), Job(until_s=1000.0, saved_at_s=100.0)
    steps = Job(until_s=1e9)
    early, saved = replace(steps, saved_at_s=100.0), replace(steps, saved_at_s=1400.0)
    looks = [
        *(look(at, before.signs(at), silent.signs(at, "logs")) for at in range(900, 1240, 15)),
        *(look(at, early.signs(at), steps.signs(at, "logs")) for at in range(1255, 1410, 15)),
        *(look(at, saved.signs(at), steps.signs(at, "logs")) for at in range(1410, 1500, 15)),
    ]
    assert ["none"] == [past.kind for past in run(looks)[0].habit.pauses]


@pytest.mark.parametrize(
    ("read_until", "is_proof"), [(1300.0, True), (1285.0, True), (1060.0, True), (1005.0, False)]
)
def test_a_log_that_is_not_read_when_the_stall_is_told_has_spoken_before(
    read_until: float, is_proof: bool
) -> None:
    """Of a stall that the metrics tell: where the log was last read when steps were missing, nothing was open. Of a log
    that was not read since nobody knows."""
    job = Job(until_s=1000.0)
    looks = [
        look(at, *(job.signs(at, s) for s in ("metrics", "logs") if s == "metrics" or at <= read_until))
        for at in range(900, 1320, 15)
    ]  # fmt: skip
    state, told = run(looks)
    assert [Kind.STALLED] == kinds(pages(told))
    assert is_proof == habits.is_unexplained(state, PLAN)


def test_a_warm_up_as_before_pages_nobody() -> None:
    """The first steps of a run take long: paged once, where it is not known; the next run is given as much."""
    first = [
        *(look(n * 15.0) for n in range(4)),
        *each(Job(until_s=60.0), 60.0, 460.0),
        *each(Job(until_s=1e9), 475.0, 700.0),
    ]
    state, told = run(first)
    assert [Kind.STALLED] == kinds(pages(told))
    (past,) = state.habit.pauses
    assert "start" == past.kind
    second = replace(RUN, token="uid/1/0", number=1)
    later = [replace(one, subject=second, now_s=one.now_s + 1000.0) for one in first]
    _, told = run(later, state=state)
    assert [] == pages(told)


def test_the_first_run_that_is_ever_watched_teaches_its_warm_up() -> None:
    """Without any rhythm the page waits until time is short, and what came is remembered as a start."""
    job = Job(until_s=60.0)
    looks = [look(0.0), *each(job, 60.0, 460.0), *each(Job(until_s=1e9), 475.0, 700.0)]
    state, told = run(looks, habit=Habit())
    assert [] == pages(told)
    assert ["start"] == [past.kind for past in state.habit.pauses]
    assert state.habit.interval_s is not None and state.habit.interval_s < 20.0


def test_intervals_are_learnt_on_the_way() -> None:
    """A run that is watched from its start: its rhythm, and how often it saves."""
    saves = [Job(until_s=1e9, saved_at_s=at // 600 * 600.0) for at in range(15, 3000, 15)]
    seen = [look(at, job.signs(at)) for at, job in zip(range(15, 3000, 15), saves, strict=True)]
    looks = [look(0.0), *seen]
    habit = run(looks, habit=Habit())[0].habit
    assert habit.interval_s is not None and 10.0 < habit.interval_s < 20.0
    assert 600.0 == habit.save_every_s


# --- What is not seen -----------------------------------------------------------------------------


def test_reads_that_fail_never_page_about_the_job() -> None:
    """For hours nothing is read: one event says so, after a stated time; then it is seen, and steps."""
    looks = [
        *each(Job(until_s=1e9), 0.0, 300.0),
        *(look(at, subject=None, unread=["no answer"]) for at in range(315, 7200, 15)),
        *each(Job(until_s=1e9), 7215.0, 7300.0),
    ]
    _, told = run(looks)
    assert [Kind.CANNOT_SEE] == kinds(pages(told))
    assert Kind.SEES in kinds(told)
    (blind,) = pages(told)
    assert 300.0 + 120.0 <= blind.at_ns / NS <= 300.0 + 150.0
    assert "no answer" in blind.text


def test_the_api_server_alone_tells_no_steps() -> None:
    """Pods are there, and neither logs nor metrics can be read any more."""
    looks = [
        *each(Job(until_s=1e9), 0.0, 300.0), *(look(at, unread=["kubelet"]) for at in range(315, 2000, 15))
    ]  # fmt: skip
    assert [Kind.CANNOT_SEE] == kinds(pages(run(looks)[1]))


def test_a_silence_that_was_not_seen_is_still_told_afterwards() -> None:
    """The same last step before and after ten minutes without a read: our own two looks are the proof."""
    looks = [
        *each(Job(until_s=1000.0), 900.0, 1005.0),
        look(1400.0, Job(until_s=1000.0).signs(1400.0)),
    ]
    assert [Kind.STALLED] == kinds(pages(run(looks)[1]))


def test_a_job_without_a_step_pages_nobody() -> None:
    """It starts, and nothing tells a step: after a long while that is said, as what cannot be seen."""
    looks = [look(at) for at in range(0, 590, 15)]
    assert [] == run(looks)[1]
    assert [Kind.CANNOT_SEE] == kinds(run([look(at) for at in range(0, 1200, 15)])[1])


def test_a_job_that_is_suspended_is_neither_stalled_nor_lost() -> None:
    """Its pods are gone, and the API server says so."""
    waits = replace(RUN, state="pending")
    looks = [
        *each(Job(until_s=1000.0), 900.0, 1000.0), *(look(at, subject=waits) for at in range(1015, 4000, 15))
    ]  # fmt: skip
    assert [] == pages(run(looks)[1])


def test_a_new_writer_with_a_later_step_is_movement() -> None:
    """Rank 0's kubelet is gone, and the one that is followed in its place is further on."""

    def logs(at: float) -> Signs:
        pod = "p-0" if at < 450 else "p-1"
        return Signs(
            source="logs", marks={pod: Mark(int(at), round(at * NS))}, step=int(at), age_s=0.0
        )

    state, told = run([look(at, logs(at)) for at in range(0, 900, 15)])
    assert [] == pages(told)
    assert 885 == state.step


# --- Another run, the end -------------------------------------------------------------------------


def test_another_attempt_is_a_new_subject() -> None:
    """Its steps begin from anew and its silence too; the habit stays."""
    second = replace(RUN, token="uid/1/0", number=1)
    looks = [
        *each(Job(until_s=1000.0), 900.0, 1250.0),
        *(look(at, subject=second) for at in range(1260, 1700, 15)),
    ]
    state, told = run(looks, habit=SAVES)
    assert Kind.ATTEMPT in kinds(told)
    assert [] == pages(told)
    assert state.step is None
    assert SAVES.pauses == state.habit.pauses


def test_a_failed_container_is_told_at_once_and_no_stall_after_it() -> None:
    """The others wait for it: one page, not two."""
    bad = replace(RUN, state="failed", why="p-3 ended: exit 1")
    looks = [
        *each(Job(until_s=1000.0), 900.0, 1000.0),
        *(look(at, Job(until_s=1000.0).signs(at), subject=bad) for at in range(1015, 1900, 15)),
    ]
    (failed,) = pages(run(looks)[1])
    assert Kind.FAILED is failed.kind
    assert "p-3" in failed.text


def test_a_job_that_steps_on_after_a_failure_is_told_too() -> None:
    """An elastic job: the page is over."""
    bad = replace(RUN, state="failed", why="p-3 ended: exit 1")
    looks = [
        *each(Job(until_s=1e9), 900.0, 1000.0),
        *(look(at, Job(until_s=1e9).signs(at), subject=bad) for at in range(1015, 1900, 15)),
    ]
    told = run(looks)[1]
    assert [Kind.FAILED, Kind.MOVES] == [one.kind for one in told if one.kind is not Kind.STEPS]


def test_a_job_that_ended_is_no_stall() -> None:
    done = replace(RUN, state="exited")
    looks = [
        *each(Job(until_s=1000.0), 900.0, 1000.0),
        *(look(at, subject=done) for at in range(1015, 3000, 15)),
    ]
    state, told = run(looks)
    assert Kind.ENDED in kinds(told)
    assert [] == pages(told)
    assert "over" == state.mode


# --- Pace and checkpoints -------------------------------------------------------------------------


@pytest.mark.parametrize(("pace_s", "is_told"), [(1.08, False), (1.35, True), (4.0, True)])
def test_a_slower_step_is_told_where_it_lasts(pace_s: float, is_told: bool) -> None:
    """30 % for five minutes, never 8 %; it ends when the pace is back."""
    looks = [
        *each(Job(until_s=1e9), 0.0, 300.0), *each(Job(until_s=1e9, pace_s=pace_s), 315.0, 1200.0),
        *each(Job(until_s=1e9), 1215.0, 1300.0),
    ]  # fmt: skip
    told = [one.kind for one in run(looks)[1] if one.kind in (Kind.SLOWER, Kind.PACE)]
    assert ([Kind.SLOWER, Kind.PACE] if is_told else []) == told


def test_a_short_slow_stretch_is_not_told() -> None:
    looks = [*each(Job(until_s=1e9, pace_s=3.0), 0.0, 200.0), *each(Job(until_s=1e9), 215.0, 900.0)]
    assert [] == pages(run(looks)[1])


def test_a_checkpoint_that_does_not_come_is_late() -> None:
    """One and a half intervals and what a save takes; a new one ends it."""
    plan = replace(PLAN, checkpoint_interval_s=600.0)
    looks = [
        *each(Job(until_s=1e9, saved_at_s=0.0), 0.0, 1500.0),
        *each(Job(until_s=1e9, saved_at_s=1500.0), 1515.0, 1600.0),
    ]
    told = [one for one in run(looks, plan=plan)[1] if one.kind is not Kind.STEPS]
    assert [Kind.CHECKPOINT_LATE, Kind.CHECKPOINT] == kinds(told)
    assert 900.0 < told[0].at_ns / NS <= 930.0
