"""A job that makes no step and is not stuck: its work of the moment, or a habit of pausing.

A line that begins an evaluation, a compilation or a save explains a pause until it has lasted
longer than such work usually does; where nothing tells how long that is, until half of the watchdog
timeout, at which a stall is noticed. A pause no longer than one that the log shows before explains
itself. What could look the same: a save or a loader that hangs since, which time settles.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpufleet_cli.facts import LogSign, Sign
from gpufleet_cli.reason.placed import NS, Checkpoints, Pause, Placed, Steps

RHYTHMS = 3.0
LEAST_RHYTHM_S = 30.0
NOTICED = 0.5  # of the watchdog timeout
USUAL, HABIT = 3.0, 1.5
BEFORE_ITS_STEP_S = 10.0  # some trainers print the step later; clocks of nodes differ
PHASES = {Sign.EVAL_STARTED: "an evaluation", Sign.COMPILE_STARTED: "a compilation"}


def rhythm_s(steps: Steps) -> float | None:
    """How old the last step may be without a question; None where too little was printed to tell."""
    if steps.interval_s is None:
        return None
    return max(RHYTHMS * steps.interval_s, LEAST_RHYTHM_S)


def age_s(steps: Steps, now_ns: int | None) -> float | None:
    """Seconds since the last step."""
    if steps.last_step_ns is None or now_ns is None:
        return None
    return (now_ns - steps.last_step_ns) / NS


def explained(
    steps: Steps,
    signs: Sequence[Placed[LogSign]],
    saves: Checkpoints,
    *,
    now_ns: int | None,
    timeout_s: float,
) -> Pause | None:
    """What explains that the last step is older than the rhythm; None where nothing does, or where
    nothing has to be explained. Without a dated step a save that is under way explains that no
    step is seen."""
    if now_ns is None:
        return None
    age, rhythm = age_s(steps, now_ns), rhythm_s(steps)
    if age is None:
        return _save(steps, saves, now_ns, timeout_s)
    if rhythm is None or age <= rhythm:
        return None
    found = [
        pause
        for pause in (
            _phase(steps, signs, now_ns, timeout_s),
            _save(steps, saves, now_ns, timeout_s),
        )
        if pause is not None
    ]
    if found:
        return max(found, key=lambda pause: pause.since_ns)
    return _habit(steps, age)


def open_work(
    steps: Steps,
    signs: Sequence[Placed[LogSign]],
    saves: Checkpoints,
    *,
    now_ns: int | None,
    timeout_s: float,
) -> Pause | None:
    """An evaluation, a compilation or a save that began since the last step and takes no longer than such work
    does, however short ago that step was: no step is missed while it lasts."""
    if now_ns is None:
        return None
    found = [_save(steps, saves, now_ns, timeout_s)]
    if steps.last_step_ns is not None:
        found.append(_phase(steps, signs, now_ns, timeout_s))
    return max(
        (one for one in found if one is not None), key=lambda one: one.since_ns, default=None
    )


def _phase(
    steps: Steps, signs: Sequence[Placed[LogSign]], now_ns: int, timeout_s: float
) -> Pause | None:
    """The newest evaluation or compilation that began since the last step."""
    assert steps.last_step_ns is not None
    begun = [
        (sign.at_ns, sign)
        for sign in signs
        if sign.fact.sign in PHASES
        and sign.at_ns is not None
        and steps.last_step_ns - BEFORE_ITS_STEP_S * NS <= sign.at_ns <= now_ns + NS
    ]
    if not begun:
        return None
    at_ns, sign = max(begun, key=lambda pair: (pair[0], str(pair[1].fact.origin)))
    lasted = (now_ns - at_ns) / NS
    habit = HABIT * (_longest_pause_s(steps) or 0.0)
    if lasted > max(NOTICED * timeout_s, habit):
        return None
    return Pause(
        why=f"{PHASES[sign.fact.sign]} began {max(0.0, lasted):,.0f} s ago",
        since_ns=at_ns,
        origin=sign.fact.origin,
        is_announced=True,
    )


def _save(steps: Steps, saves: Checkpoints, now_ns: int, timeout_s: float) -> Pause | None:
    """A save that began since the last step and takes no longer than saves do."""
    save = saves.open_save
    if save is None or save.started_ns is None or save.started_ns > now_ns + NS:
        return None
    slack = NS * max(BEFORE_ITS_STEP_S, steps.step_s or 0.0)
    if steps.last_step_ns is not None and save.started_ns < steps.last_step_ns - slack:
        return None
    lasted = max(0.0, (now_ns - save.started_ns) / NS)
    limit = NOTICED * timeout_s
    if saves.save_s is not None:
        limit = max(USUAL * saves.save_s, LEAST_RHYTHM_S)
    if lasted > max(limit, HABIT * (_longest_pause_s(steps) or 0.0)):
        return None
    known = f"; saves take {saves.save_s:,.0f} s" if saves.save_s is not None else ""
    return Pause(
        why=f"a save began {lasted:,.0f} s ago{known}",
        since_ns=save.started_ns,
        origin=save.origin,
        is_announced=True,
    )


def _habit(steps: Steps, age: float) -> Pause | None:
    """No line says what the job does, but it has paused for as long before and went on."""
    longest = _longest_pause_s(steps)
    if longest is None or steps.last_step_ns is None or age > HABIT * longest:
        return None
    return Pause(
        why=f"it paused for {longest:,.0f} s between two steps before, and went on",
        since_ns=steps.last_step_ns,
        origin=steps.longest_origin,
        is_announced=False,
    )


def _longest_pause_s(steps: Steps) -> float | None:
    """The longest time between two steps, where it was longer than the rhythm."""
    longest, rhythm = steps.longest_s, rhythm_s(steps)
    return longest if longest is not None and rhythm is not None and longest > rhythm else None
