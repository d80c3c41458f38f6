"""Where a watch goes on: one small file per job in `gpufleet/watch/` of the user's state folder.

Written whole beside the old one and put in its place. What is torn, foreign, or holds numbers that cannot be is passed
over, with a line that says so: it costs itself. Times are of our wall clock; where that was set since, or the machine
was started anew, no silence is carried over.
"""

from __future__ import annotations

import math
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpufleet_cli import whole_file
from gpufleet_cli.operate.watch.habits import MOST_PACES, MOST_PAUSES
from gpufleet_cli.operate.watch.model import Habit, Mark, Past, PauseKind, State, Subject
from gpufleet_cli.settings import keeps_state, state_folder

SCHEMA = "gpufleet.watch-state/v1"
NS = 1_000_000_000
MOST_BYTES = 1 << 20
MOST_MARKS = 64
MOST_S = 30 * 86_400.0
MOST_NS = 4_102_444_800 * NS
CLOCK_S = 5.0
"""So far wall clock and steady clock may differ between two runs before the wall clock was set."""


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file. `steady_s` is our clock that only goes forward, which a restart of the machine sets back;
    `timeout_s`: the watchdog's, as a log told it."""

    schema: str
    wrote_ns: int
    steady_s: float
    token: str
    number: int
    marks: dict[str, dict[str, tuple[int, int]]] = {}
    moved_ns: int | None = None
    seen_ns: int | None = None
    step: int | None = None
    saved_ns: int | None = None
    saved_at_move_ns: int | None = None
    saved_before_s: float | None = None
    opens: PauseKind | None = None
    stalled_ns: int | None = None
    has_failed: bool = False
    is_slow: bool = False
    is_late: bool = False
    interval_s: float | None = None
    save_every_s: float | None = None
    paces: list[float] = []
    pauses: list[tuple[PauseKind, float]] = []
    alerts: dict[str, int] = {}
    bundle: str | None = None
    timeout_s: float | None = None


class Loaded(NamedTuple):
    """What was kept. `note`: why nothing of a file that is there was used."""

    kept: Kept | None
    note: str = ""


def place(context: str | None, namespace: str, kind: str, name: str) -> Path:
    """The file of one job of one context."""
    key = "\n".join((context or "", namespace, kind, name))
    digest = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return state_folder() / "watch" / f"{digest}.json"


def load(path: Path) -> Loaded:
    """The file, where it can be used."""
    if not keeps_state():
        return Loaded(None)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return Loaded(None)
    except OSError as exc:
        return Loaded(None, f"{path} cannot be read: {(exc.strerror or '').lower()}")
    try:
        kept = msgspec.json.decode(data, type=Kept)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return Loaded(None, f"{path} is torn or foreign: begun anew")
    wrong = _wrong(kept)
    return Loaded(None, f"{path}: {wrong}: begun anew") if wrong else Loaded(kept)


def _wrong(kept: Kept) -> str:
    """What cannot be; empty where all can."""
    if kept.schema != SCHEMA:
        return "of another version"
    times = [
        kept.wrote_ns, kept.moved_ns, kept.seen_ns, kept.saved_ns, kept.saved_at_move_ns, kept.stalled_ns,
        *kept.alerts.values(), *(at for own in kept.marks.values() for _, at in own.values()),
    ]  # fmt: skip
    if any(at is not None and not 0 <= at < MOST_NS for at in times):
        return "a time that cannot be"
    spans = [
        kept.timeout_s, kept.interval_s, kept.save_every_s, *kept.paces, *(seconds for _, seconds in kept.pauses)
    ]  # fmt: skip
    if any(s is not None and not (math.isfinite(s) and 0 < s < MOST_S) for s in spans):
        return "a duration that cannot be"
    others = [kept.steady_s, kept.saved_before_s]
    if any(s is not None and not (math.isfinite(s) and abs(s) < 1e10) for s in others):
        return "a number that cannot be"
    sizes = (len(kept.paces) <= MOST_PACES, len(kept.pauses) <= MOST_PAUSES, len(kept.alerts) <= 16)
    if not all(sizes) or any(len(own) > MOST_MARKS for own in kept.marks.values()):
        return "more than a watch keeps"
    return ""


def store(path: Path, kept: Kept) -> None:
    """Put the file in the place of the old one. OSError where that cannot be."""
    if not keeps_state():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    whole_file.put(path, msgspec.json.encode(kept), is_private=True)


# --- To and from the state ------------------------------------------------------------------------


def kept_of(
    state: State,
    now_s: float,
    at_ns: int,
    *,
    alerts: dict[str, int],
    bundle: str | None,
    timeout_s: float | None = None,
) -> Kept | None:
    """What goes into the file; None before a run was seen."""
    if state.subject is None:
        return None

    def wall(moment: float | None) -> int | None:
        return None if moment is None else max(0, at_ns - round((now_s - moment) * NS))

    habit = state.habit
    return Kept(
        schema=SCHEMA,
        wrote_ns=at_ns,
        steady_s=now_s,
        token=state.subject.token,
        number=state.subject.number,
        marks={source: dict(_few(own)) for source, own in state.marks.items()},
        moved_ns=wall(state.moved_s),
        seen_ns=wall(state.seen_s),
        step=state.step,
        saved_ns=state.saved_ns,
        saved_at_move_ns=state.saved_at_move_ns,
        saved_before_s=state.saved_before_s,
        opens=state.opens,
        stalled_ns=state.stalled_ns,
        has_failed=state.failed_s is not None,
        is_slow=state.is_slow,
        is_late=state.is_late,
        interval_s=habit.interval_s or None,
        save_every_s=habit.save_every_s or None,
        paces=[pace for pace in habit.paces if 0 < pace < MOST_S],
        pauses=[(past.kind, past.seconds) for past in habit.pauses if 0 < past.seconds < MOST_S],
        alerts=alerts,
        bundle=bundle,
        timeout_s=timeout_s,
    )


def _few(own: object) -> list[tuple[str, tuple[int, int]]]:
    assert isinstance(own, dict)
    return [(pod, (mark.step, mark.at_ns)) for pod, mark in sorted(own.items())[:MOST_MARKS]]


def state_of(kept: Kept, fresh: State, now_s: float, at_ns: int) -> State:
    """The state to go on from. Its run is compared with the one that is there by the first look."""
    habit = Habit(
        interval_s=kept.interval_s,
        paces=tuple(kept.paces),
        pauses=tuple(Past(kind, seconds) for kind, seconds in kept.pauses),
        save_every_s=kept.save_every_s,
    )
    subject = Subject(token=kept.token, number=kept.number, state="running")
    state = replace(fresh, habit=habit, subject=subject)
    walled, steady = (at_ns - kept.wrote_ns) / NS, now_s - kept.steady_s
    if kept.moved_ns is None or kept.seen_ns is None or abs(walled - steady) > CLOCK_S:
        return state
    return replace(
        state,
        marks={
            source: {pod: Mark(*mark) for pod, mark in own.items()}
            for source, own in kept.marks.items()
        },
        moved_s=now_s - max(0.0, (at_ns - kept.moved_ns) / NS),
        seen_s=now_s - max(0.0, (at_ns - kept.seen_ns) / NS),
        looked_s=kept.steady_s,
        step=kept.step,
        saved_ns=kept.saved_ns,
        saved_at_move_ns=kept.saved_at_move_ns,
        saved_before_s=kept.saved_before_s,
        opens=kept.opens,
        mode="stalled" if kept.stalled_ns is not None else "stepping",
        stalled_ns=kept.stalled_ns,
        failed_s=now_s if kept.has_failed else None,
        is_slow=kept.is_slow,
        is_late=kept.is_late,
    )
