"""Turns of the state machine about rates: how old the last checkpoint is, and how long a step takes. Pure."""

from __future__ import annotations

from dataclasses import replace

from gpufleet_cli.operate.watch import habits
from gpufleet_cli.operate.watch.model import Look, Plan, Signs, State
from gpufleet_cli.operate.watch.telling import Told, event
from gpufleet_cli.render.layout import duration
from gpufleet_cli.watch_card import Kind

NS = 1_000_000_000
SLOWER, AS_USUAL = 1.3, 1.15
SLOW_FOR_S = 300.0
PACE_EVERY_S = 30.0
LATE = 1.5


# --- Checkpoints ----------------------------------------------------------------------------------


def saves(state: State, look: Look, plan: Plan) -> Told:
    told = next((one for one in look.signs if one.saved_before_s is not None), None)
    if told is None:
        return state, []
    old, new = state.saved_ns, told.saved_ns
    if old is not None and new is not None and new - old > habits.SAVE_APART_S * NS:
        habit = habits.with_save(state.habit, (new - old) / NS)
        state = replace(state, habit=habit)
    if new is not None and new != old:
        state = _named(state, look, told, plan)
    return replace(state, saved_ns=told.saved_ns, saved_before_s=told.saved_before_s), []


def _named(state: State, look: Look, told: Signs, plan: Plan) -> State:
    """A log shows the step that ends a pause before the metrics, scraped later, show the checkpoint made in it."""
    pause = state.unnamed
    if pause is None or told.age_s is None or told.saved_before_s is None:
        return state
    saved_s = look.now_s - told.age_s - told.saved_before_s
    slack = plan.poll_s + habits.SAME_MOMENT_S
    if not pause.from_s - slack <= saved_s <= pause.to_s + slack:
        return state
    return replace(state, unnamed=None, habit=habits.with_save_in(state.habit, pause))


def lateness(state: State, look: Look, plan: Plan) -> Told:
    every = plan.checkpoint_interval_s or state.habit.save_every_s
    age = state.saved_age_s(look.now_s)
    if every is None or age is None or state.mode != "stepping" or not look.signs:
        return state, []
    longest = max((p.seconds for p in state.habit.pauses if p.kind == "save"), default=0.0)
    if age > LATE * every + longest and not state.is_late:
        text = f"no checkpoint for {duration(age)}, and one is made each {duration(every)}"
        late = replace(state, is_late=True)
        return late, [event(late, look, Kind.CHECKPOINT_LATE, text)]
    if age <= every and state.is_late:
        state = replace(state, is_late=False)
        return state, [event(state, look, Kind.CHECKPOINT, "a checkpoint was made")]
    return state, []


# --- Pace -----------------------------------------------------------------------------------------


def pace(state: State, look: Look, plan: Plan) -> Told:
    now = next((one.pace_s for one in look.signs if one.pace_s is not None), None)
    if now is None or state.mode != "stepping":
        return state, []
    state = replace(state, pace_s=now)
    usual = habits.usual_step_s(state.habit, plan.step_s)
    if usual is None or now < SLOWER * usual:
        return _not_slow(state, look, now, usual)
    since = look.now_s if state.slow_since_s is None else state.slow_since_s
    state = replace(state, slow_since_s=since)
    if state.is_slow or look.now_s - since < SLOW_FOR_S:
        return state, []
    slow = replace(state, is_slow=True)
    text = (
        f"a step takes {duration(now)} for {duration(look.now_s - since)} now,"
        f" {now / usual - 1:.0%} more than the usual {duration(usual)}"
    )
    return slow, [event(slow, look, Kind.SLOWER, text)]


def _not_slow(state: State, look: Look, pace: float, usual: float | None) -> Told:
    """Learnt from, at most every so often; a pace between the two limits ends no alert."""
    due = state.paced_s is None or look.now_s - state.paced_s >= PACE_EVERY_S
    if due and not state.is_slow:
        habit = habits.with_pace(state.habit, pace)
        state = replace(state, habit=habit, paced_s=look.now_s)
    state = replace(state, slow_since_s=None)
    if not state.is_slow or usual is None or pace > AS_USUAL * usual:
        return state, []
    state = replace(state, is_slow=False)
    return state, [event(state, look, Kind.PACE, f"a step takes {duration(pace)} again")]
