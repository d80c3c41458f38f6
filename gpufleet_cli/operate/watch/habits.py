"""The job's own habit: how long a pause may be before it is a stall. Pure.

A stall is noticed at a part of the watchdog timeout. A pause of the kind that the job made before, and went on after,
is given half as long again, and at least what it once took; but where that would come too late to look at a job that
is still alive, it is looked at in time all the same, unless it paused for so long before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from gpufleet_cli.operate.watch.model import SHOWN, Habit, Past, PauseKind, Plan, State, Unnamed
from gpufleet_cli.reason.pauses import BEFORE_ITS_STEP_S, HABIT, LEAST_RHYTHM_S, RHYTHMS

MOST_PAUSES = 64
MOST_PACES = 120
FEW_PACES = 5
DUE = 0.8
"""A save is due this part of the usual interval after the last one."""
AGAIN = 1.05
"""So much longer than the longest pause of its kind may one be that would else be looked at too late."""
MARGIN, MOST_MARGIN_S = 0.1, 60.0
"""The part of the timeout before its end in which nothing is asked of the job any more."""
LOOKING, LEAST_LOOKING_S = 0.15, 30.0
SAME_MOMENT_S = 2.0
SAVE_APART_S = 10.0
HOLE = 3.0
FIRST_MOVES = 3
RECENT = 0.1


class Limit(NamedTuple):
    """How long there may be no step, and what explains that; empty where nothing does."""

    seconds: float
    why: str = ""


def rhythm_s(habit: Habit, plan: Plan) -> float:
    """How old the last step may be without a question."""
    usual = max(RHYTHMS * (habit.interval_s or 0.0), LEAST_RHYTHM_S)
    return min(usual, plan.notice_s)


def margin_s(timeout_s: float) -> float:
    return min(MOST_MARGIN_S, MARGIN * timeout_s)


def last_call_s(timeout_s: float) -> float:
    """The last moment of a silence at which there is time to look before the watchdog ends the job."""
    return timeout_s - margin_s(timeout_s) - min(LEAST_LOOKING_S, LOOKING * timeout_s)


def limit(state: State, plan: Plan) -> Limit:
    """How long this silence may last, given what is open and what the job did before."""
    best = Limit(plan.notice_s)
    if state.habit.interval_s is None:
        best = Limit(max(best.seconds, last_call_s(plan.timeout_s)), "its rhythm is not known yet")
    for kind, reason in _kinds(state, plan):
        longest = max((past.seconds for past in state.habit.pauses if past.kind == kind), default=0)
        if longest <= 0:
            continue
        seconds = HABIT * longest
        last = last_call_s(plan.timeout_s)
        if seconds > last:
            seconds = max(last, AGAIN * longest)
        if seconds > best.seconds:
            best = Limit(
                seconds, f"{reason}; the job paused for {longest:.0f} s before, and went on"
            )
    return best


def is_unexplained(state: State, plan: Plan) -> bool:
    """Whether a log was read since its silence began that shows nothing open, no save is due, and no habit has a part
    in it."""
    if not _was_heard(state, plan) or state.opens is not None:
        return False
    return not _save_is_due(state, plan) and not limit(state, plan).why


def _was_heard(state: State, plan: Plan) -> bool:
    """Whether the log was read when steps were missing already: what it did not announce by then it will not. That the
    read fails in the very look that tells the stall takes nothing away from it."""
    if state.heard_s is None or state.moved_s is None:
        return False
    told_s = max(RHYTHMS * (state.habit.interval_s or 0.0), BEFORE_ITS_STEP_S)
    return state.heard_s - state.moved_s >= min(told_s, plan.notice_s)


def _kinds(state: State, plan: Plan) -> Iterable[tuple[PauseKind, str]]:
    """What kinds of pause this silence may be, each with what says so."""
    if state.opens is not None:
        yield state.opens, f"{SHOWN[state.opens]} is open"
    if state.opens != "save" and _save_is_due(state, plan):
        yield "save", "a save is due"
    if is_starting(state):
        yield "start", "the run has just begun"
    yield "none", "its habit"


def is_starting(state: State) -> bool:
    """Whether the run has made its first steps just now: what compiles and warms up does so here."""
    return state.from_start and state.moves < FIRST_MOVES


def _save_is_due(state: State, plan: Plan) -> bool:
    """By the time of its last save: near the interval, or done since the last step."""
    every = plan.checkpoint_interval_s or state.habit.save_every_s
    before = state.saved_before_s
    if before is None:
        return False
    took = max((past.seconds for past in state.habit.pauses if past.kind == "save"), default=0.0)
    return before < 0 or (every is not None and before >= DUE * (every - min(took, every)))


def usual_step_s(habit: Habit, stated_s: float | None = None) -> float | None:
    """Seconds a step as stated, else as it mostly was."""
    if stated_s is not None:
        return stated_s
    return median(habit.paces) if len(habit.paces) >= FEW_PACES else None


# --- Learning -------------------------------------------------------------------------------------


def with_pause(habit: Habit, past: Past) -> Habit:
    return replace(habit, pauses=(*habit.pauses, past)[-MOST_PAUSES:])


def with_save_in(habit: Habit, pause: Unnamed) -> Habit:
    """That pause was a save: as one without a name it would explain any silence."""
    others = list(habit.pauses)
    if pause.past in others:
        others.remove(pause.past)
    return replace(habit, pauses=(*others, Past("save", pause.past.seconds))[-MOST_PAUSES:])


def with_gap(habit: Habit, seconds: float) -> Habit:
    """A time between two steps that was no pause: what is usual follows slowly."""
    known = habit.interval_s
    return replace(
        habit, interval_s=seconds if known is None else known + RECENT * (seconds - known)
    )


def with_save(habit: Habit, seconds: float) -> Habit:
    """A time between two checkpoints."""
    known = habit.save_every_s
    return replace(habit, save_every_s=seconds if known is None else (known + seconds) / 2)


def with_pace(habit: Habit, pace_s: float) -> Habit:
    return replace(habit, paces=(*habit.paces, pace_s)[-MOST_PACES:])


def together(older: Habit, newer: Habit) -> Habit:
    """Two accounts of one job; what the newer one does not know, the older one says."""
    return Habit(
        interval_s=newer.interval_s if newer.interval_s is not None else older.interval_s,
        paces=(newer.paces or older.paces)[-MOST_PACES:],
        pauses=(*older.pauses, *(p for p in newer.pauses if p not in older.pauses))[-MOST_PAUSES:],
        save_every_s=newer.save_every_s if newer.save_every_s is not None else older.save_every_s,
    )


def of_both(metrics: Habit, logs: Habit) -> Habit:
    """What both histories of one run show. A pause that one of them has no name for, of a length that the other has
    one for, is that: else it would explain any silence."""
    pauses = (*_named_by(metrics.pauses, logs.pauses), *_named_by(logs.pauses, metrics.pauses))
    return Habit(
        interval_s=metrics.interval_s if metrics.interval_s is not None else logs.interval_s,
        paces=metrics.paces or logs.paces,
        pauses=pauses[-MOST_PAUSES:],
        save_every_s=metrics.save_every_s or logs.save_every_s,
    )


def _named_by(pauses: Sequence[Past], others: Sequence[Past]) -> list[Past]:
    named = [past.seconds for past in others if past.kind != "none"]
    return [
        past
        for past in pauses
        if past.kind != "none" or not any(_alike(past.seconds, one) for one in named)
    ]


def _alike(one: float, other: float) -> bool:
    return one <= HABIT * other and other <= HABIT * one


class Stretch(NamedTuple):
    """From one step to the next that was seen, by the clock of who made them. `kind` None: not known yet."""

    from_s: float
    to_s: float
    kind: PauseKind | None = None


def of_stretches(
    stretches: Sequence[Stretch], saves_s: Iterable[float], *, paces: Sequence[float] = ()
) -> Habit:
    """The habit that a history shows. Saves are times of durable checkpoints, by the same clock."""
    saves = _apart(saves_s)
    gaps = [one.to_s - one.from_s for one in stretches if one.to_s > one.from_s]
    interval = median(gaps) if gaps else None
    least = max(RHYTHMS * (interval or 0.0), SAME_MOMENT_S)
    pauses = [
        Past(one.kind or _kind(one, saves), one.to_s - one.from_s)
        for one in stretches
        if one.to_s - one.from_s > least
    ]
    between = [later - earlier for earlier, later in pairwise(saves)]
    return Habit(
        interval_s=interval,
        paces=tuple(paces)[-MOST_PACES:],
        pauses=tuple(pauses)[-MOST_PAUSES:],
        save_every_s=median(between) if between else None,
    )


def _kind(one: Stretch, saves: Sequence[float]) -> PauseKind:
    within = any(one.from_s - SAME_MOMENT_S <= at <= one.to_s + SAME_MOMENT_S for at in saves)
    return "save" if within else "none"


def _apart(saves_s: Iterable[float]) -> list[float]:
    """One time for each checkpoint: every rank may tell of the same one, seconds apart."""
    kept: list[float] = []
    for at in sorted(saves_s):
        if not kept or at - kept[-1] > SAVE_APART_S:
            kept.append(at)
    return kept


def of_samples(
    steps: Sequence[tuple[float, float]], saves: Iterable[float], *, paces: Sequence[float] = ()
) -> tuple[list[Stretch], Habit]:
    """The habit by a gauge that holds the time of the last step: (when it was read, its value), oldest first.

    A hole in the readings explains nothing, and a value that goes back is a clock that was set.
    """
    reads = [later[0] - earlier[0] for earlier, later in pairwise(steps)]
    usual = median(reads) if reads else 0.0
    stretches = [
        Stretch(before, after)
        for (read, before), (again, after) in pairwise(steps)
        if after > before and again - read <= HOLE * max(usual, 1.0)
    ]
    return stretches, of_stretches(stretches, saves, paces=paces)
