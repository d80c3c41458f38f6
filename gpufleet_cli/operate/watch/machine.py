"""The state machine of a watch: a state, a plan and one look give the next state and what is to be told. Pure.

A stall needs three things: a source that tells steps was read just now and is current; no step for as long as the limit
of `habits`; and that we saw with our own clock, over two looks at least, that nothing moved. So neither a node whose
clock is wrong nor a read that fails ever makes a stall. What cannot be seen is an event of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from gpufleet_cli.operate.watch import habits, rates
from gpufleet_cli.operate.watch.model import (
    SHOWN,
    Look,
    Mark,
    Mode,
    Past,
    PauseKind,
    Plan,
    Signs,
    State,
    Subject,
    Unnamed,
    Voice,
)
from gpufleet_cli.operate.watch.telling import Told, event
from gpufleet_cli.reason.pauses import LEAST_RHYTHM_S, RHYTHMS
from gpufleet_cli.render.layout import duration
from gpufleet_cli.watch_card import Event, Glance, Kind

NS = 1_000_000_000
LEAST_CONFIRM_S, STEPS = 5.0, 3.0
MOST_GAPS = 9
BLIND_S, BLIND_POLLS = 120.0, 4
NOTHING_S = 600.0


def begun(now_s: float) -> State:
    """The state before the first look."""
    return State(began_s=now_s, looked_s=now_s)


def step(state: State, look: Look, plan: Plan) -> tuple[State, tuple[Event, ...]]:
    """One look added to the state, and what it changes."""
    events: list[Event] = []
    for turn in TURNS:
        state, told = turn(state, look, plan)
        events += told
    return replace(state, looked_s=look.now_s), tuple(events)


def glance(state: State, now_s: float) -> Glance:
    """The job as it is, for a line that is rewritten."""
    return Glance(
        mode="cannot see" if state.is_blind else state.mode,
        step=state.step,
        quiet_s=state.quiet_s(now_s),
        step_s=state.pace_s,
        checkpoint_age_s=state.saved_age_s(now_s),
    )


def confirm_s(state: State, plan: Plan) -> float:
    """So long we have to see by our own clock that nothing moves."""
    usual = max(LEAST_CONFIRM_S, STEPS * (state.habit.interval_s or LEAST_CONFIRM_S))
    return min(usual, plan.notice_s / 2)


def blind_s(plan: Plan) -> float:
    """So long nothing can be seen before that is told."""
    return max(BLIND_POLLS * plan.poll_s, min(BLIND_S, plan.notice_s))


# --- Which run ------------------------------------------------------------------------------------


def _subject(state: State, look: Look, plan: Plan) -> Told:
    new, old = look.subject, state.subject
    if new is None:
        return state, []
    if old is not None and old.token != new.token:
        return _another(state, look, new)
    events = []
    state = replace(state, subject=new)
    if new.state == "failed" and state.failed_s is None:
        state = replace(state, failed_s=look.now_s)
        events.append(event(state, look, Kind.FAILED, f"attempt {new.number} failed: {new.why}"))
    if new.state == "exited" and state.mode != "over":
        state = replace(state, mode="over")
        how = f": {new.why}" if new.why else " well"
        events.append(event(state, look, Kind.ENDED, f"attempt {new.number} ended{how}"))
    return state, events


def _another(state: State, look: Look, new: Subject) -> Told:
    """A new run: nothing is carried over but the habit."""
    fresh = State(
        began_s=look.now_s,
        looked_s=look.now_s,
        subject=new,
        habit=state.habit,
        is_blind=state.is_blind,
        blind_since_s=state.blind_since_s,
    )
    why = f": {new.why}" if new.why else ""
    events = [event(fresh, look, Kind.ATTEMPT, f"attempt {new.number} is watched now{why}")]
    if new.state == "failed":
        fresh = replace(fresh, failed_s=look.now_s)
        events.append(event(fresh, look, Kind.FAILED, f"attempt {new.number} failed{why}"))
    return fresh, events


# --- Whether it can be seen -----------------------------------------------------------------------


def _tells(signs: Sequence[Signs]) -> bool:
    """Whether any source that was read tells steps."""
    return any(one.marks for one in signs)


def _sight(state: State, look: Look, plan: Plan) -> Told:
    if state.mode == "over":
        return state, []
    since = state.blind_since_s
    subject = look.subject
    if subject is not None and not _tells(look.signs):
        state = replace(state, from_start=state.from_start or state.moved_s is None)
    waits = subject is not None and (state.moved_s is None or subject.state == "pending")
    if _tells(look.signs) or waits:
        told = []
        nothing = _nothing(state, look, plan)
        if state.is_blind and nothing is None:
            told = [event(state, look, Kind.SEES, "the job can be seen again")]
        if nothing is not None and not state.is_blind:
            told = [event(state, look, Kind.CANNOT_SEE, nothing)]
        return replace(state, blind_since_s=None, is_blind=nothing is not None), told
    since = state.looked_s if since is None else since
    state = replace(state, blind_since_s=since)
    for_s = look.now_s - since
    if state.is_blind or for_s < blind_s(plan):
        return state, []
    why = "; ".join(look.unread) or "nothing that was read tells its steps any more"
    text = f"the job cannot be seen for {duration(for_s)}, which says nothing of it: {why}"
    return replace(state, is_blind=True), [event(state, look, Kind.CANNOT_SEE, text)]


def _nothing(state: State, look: Look, plan: Plan) -> str | None:
    """A job that runs for long and shows no step at all: that nobody tells them is likelier than a stall."""
    if state.moved_s is not None or _tells(look.signs):
        return None
    subject = look.subject or state.subject
    for_s = look.now_s - state.began_s
    if subject is None or subject.state != "running" or for_s < max(NOTHING_S, plan.timeout_s):
        return None
    why = "; ".join(look.unread) or "no metric and no followed log has one"
    return f"no step was seen in {duration(for_s)}: the job is at its start, or nothing tells its steps ({why})"


# --- Whether it moves -----------------------------------------------------------------------------


def _progress(state: State, look: Look, plan: Plan) -> Told:
    if not look.signs or state.mode == "over":
        return state, []
    moved = [one for one in look.signs if _has_moved(state.marks.get(one.source), one)]
    first = state.moved_s is None and _tells(look.signs)
    kind = _kind(state, look.signs)
    state = replace(state, marks=_merged(state.marks, look.signs))
    if any(one.source == "logs" for one in look.signs):
        state = replace(state, opens=_opens(look.signs), heard_s=look.now_s)
    state = replace(state, voices=_voices(state.voices, look, moved))
    steps = [one.step for one in (moved or look.signs) if one.step is not None]
    if first:
        age = min((one.age_s for one in look.signs if one.age_s is not None), default=0.0)
        began = replace(
            state,
            moved_s=look.now_s - max(0.0, age),
            seen_s=look.now_s,
            step=max(steps, default=None),
            mode="stepping",
            saved_at_move_ns=_saved_ns(look.signs, state.saved_ns),
        )
        since = began.quiet_s(look.now_s) or 0.0
        shown = "a step" if began.step is None else f"step {began.step:,}"
        text = f"it steps: {shown} was made {duration(since)} ago, by its own clock"
        return began, [event(began, look, Kind.STEPS, text)]
    if not moved:
        return state, []
    return _moved(state, look, moved, max(steps, default=state.step), kind, plan)


def _has_moved(before: Mapping[str, Mark] | None, now: Signs) -> bool:
    """A step that its writer had not made when it was last read. A run that began anew at an older checkpoint has
    lower numbers and later times; a gauge of a clock that was set back has another value; of a writer that was not
    read before a step beyond all that are known is new."""
    if before is None:
        return False
    for writer, mark in now.marks.items():
        old = before.get(writer)
        if old is None:
            if before and mark.step > max(other.step for other in before.values()):
                return True
            continue
        if mark.step > old.step or mark.at_ns > old.at_ns:
            return True
        if now.source == "metrics" and mark.at_ns != old.at_ns:
            return True
    return False


def _voices(before: Mapping[str, Voice], look: Look, moved: Sequence[Signs]) -> dict[str, Voice]:
    """When each source showed a new step, by our clock; at its first reading that is now."""
    found = dict(before)
    for one in look.signs:
        old = found.get(one.source)
        if old is None and one.marks:
            found[one.source] = Voice(look.now_s)
        elif old is not None and one in moved:
            gaps = (*old.gaps, look.now_s - old.moved_s)[-MOST_GAPS:]
            found[one.source] = Voice(look.now_s, gaps)
    return found


def _merged(
    before: Mapping[str, Mapping[str, Mark]], signs: Sequence[Signs]
) -> dict[str, Mapping[str, Mark]]:
    """The newest mark of each writer that was read; those that were not stay as they were."""
    return {**before, **{one.source: {**before.get(one.source, {}), **one.marks} for one in signs}}


def _opens(signs: Sequence[Signs]) -> PauseKind | None:
    return next((one.opens for one in signs if one.opens is not None), None)


def _saved_ns(signs: Sequence[Signs], otherwise: int | None) -> int | None:
    return next((one.saved_ns for one in signs if one.saved_ns is not None), otherwise)


def _moved(
    state: State,
    look: Look,
    moved: Sequence[Signs],
    last_step: int | None,
    kind: PauseKind,
    plan: Plan,
) -> Told:
    """A step was made since the last look; when in between, the clock of who made it may say."""
    assert state.moved_s is not None and state.seen_s is not None
    room = max(0.0, look.now_s - max(state.looked_s, state.moved_s))
    ages = [one.age_s for one in moved if one.age_s is not None]
    at_s = look.now_s - min(max(0.0, min(ages, default=0.0)), room)
    silent = at_s - state.moved_s
    rhythm = habits.rhythm_s(state.habit, plan)
    was = state.mode
    habit = state.habit
    sure = silent if state.seen_s - state.moved_s <= rhythm else at_s - state.seen_s
    if kind == "none" and habits.is_starting(state):
        kind = "start"
    is_pause = sure > rhythm or (kind == "start" and sure > LEAST_RHYTHM_S)
    unnamed = state.unnamed
    if not is_pause or (habit.interval_s is None and kind != "start"):
        habit = habits.with_gap(habit, sure)
    else:
        past = Past(kind, sure)
        unnamed = Unnamed(state.moved_s, at_s, past) if kind == "none" else None
        if not (was == "stalled" and kind == "none"):  # a stall is no habit
            habit = habits.with_pause(habit, past)
    after = replace(
        state,
        moved_s=at_s,
        seen_s=look.now_s,
        moves=state.moves + 1,
        step=last_step,
        mode="stepping",
        habit=habit,
        unnamed=unnamed,
        stalled_ns=None,
        saved_at_move_ns=_saved_ns(look.signs, state.saved_ns),
    )
    if state.failed_s is not None and not state.goes_on and at_s > state.failed_s:
        after = replace(after, goes_on=True)
        return after, [event(after, look, Kind.MOVES, "it steps on after the failure")]
    if was not in ("paused", "excused", "stalled"):
        return after, []
    shown = "" if last_step is None else f": step {last_step:,}"
    return after, [
        event(after, look, Kind.MOVES, f"it steps again after {duration(silent)}{shown}")
    ]


def _kind(state: State, signs: Sequence[Signs]) -> PauseKind:
    """What the pause that just ended was."""
    now = _saved_ns(signs, state.saved_ns)
    if now is not None and now != state.saved_at_move_ns:
        return "save"
    return state.opens or "none"


# --- Silence --------------------------------------------------------------------------------------


def _silence(state: State, look: Look, plan: Plan) -> Told:
    quiet = state.quiet_s(look.now_s)
    if quiet is None or state.seen_s is None or state.mode in ("over", "stalled"):
        return state, []
    if not any(_is_quiet(state, one, look.now_s) for one in look.signs):
        return state, []
    if state.failed_s is not None and state.failed_s >= state.seen_s:  # told already
        return state, []
    limit = habits.limit(state, plan)
    if quiet >= limit.seconds and look.now_s - state.seen_s >= confirm_s(state, plan):
        began_ns = look.at_ns - round(quiet * NS)
        stalled = replace(state, mode="stalled", stalled_ns=began_ns)
        text = _stall_words(stalled, quiet, plan, limit.why)
        return stalled, [event(stalled, look, Kind.STALLED, text, limit.seconds)]
    mode: Mode = state.mode
    if quiet >= plan.notice_s and mode != "excused" and limit.why:
        excused = replace(state, mode="excused")
        text = f"no step for {duration(quiet)}, not paged: {limit.why}. Paged at {duration(limit.seconds)}"
        return excused, [event(excused, look, Kind.EXCUSED, text, limit.seconds)]
    if quiet > habits.rhythm_s(state.habit, plan) and mode == "stepping":
        paused = replace(state, mode="paused")
        what = "" if state.opens is None else f": {SHOWN[state.opens]} is open"
        text = f"no step for {duration(quiet)}{what}"
        return paused, [event(paused, look, Kind.PAUSE, text, limit.seconds)]
    return state, []


def _is_quiet(state: State, one: Signs, now_s: float) -> bool:
    """Whether the silence of this source says something: it tells steps, and more often than that."""
    voice = state.voices.get(one.source)
    if not one.marks or voice is None or one.source not in state.marks:
        return False
    if not voice.gaps:
        return True
    return now_s - voice.moved_s >= RHYTHMS * median(voice.gaps)


def _stall_words(state: State, quiet: float, plan: Plan, why: str) -> str:
    last = "" if state.step is None else f" after step {state.step:,}"
    left = plan.timeout_s - quiet
    fires = f"it fires in {duration(left)}" if left > 0 else "its time is over"
    beyond = f", beyond its habit ({why})" if why else ""
    return (
        f"no step{last} for {duration(quiet)}{beyond}; watchdog {duration(plan.timeout_s)}, {fires}"
    )


TURNS = (_subject, _sight, _progress, rates.saves, _silence, rates.pace, rates.lateness)
"""In their order: what a later one judges, an earlier one has read."""
