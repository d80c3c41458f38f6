"""What a watch knows: the plan, one look, and the state that looks are added to. No clock, no network.

Seconds named `_s` that are a moment (`now_s`, `moved_s`) are of our own clock that only goes forward; a mark's time is
of the clock of whoever wrote it, and is compared with marks of the same writer alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

PauseKind = Literal["save", "evaluation", "compilation", "start", "none"]
Mode = Literal["starting", "stepping", "paused", "excused", "stalled", "over"]
SHOWN: Mapping[PauseKind, str] = {
    "save": "a save",
    "evaluation": "an evaluation",
    "compilation": "a compilation",
    "start": "the start of a run",
    "none": "a pause that nothing announced",
}


class Mark(NamedTuple):
    """The newest step of one writer: its number (0 where it has none) and when, by the writer's clock."""

    step: int
    at_ns: int


class Voice(NamedTuple):
    """When a source last showed a new step, and the times between the last few that it showed."""

    moved_s: float
    gaps: tuple[float, ...] = ()


class Past(NamedTuple):
    """A pause that was over by itself."""

    kind: PauseKind
    seconds: float


class Unnamed(NamedTuple):
    """A pause that was over before anything told what it was, from and to a moment."""

    from_s: float
    to_s: float
    past: Past


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """How the job usually goes. `interval_s`: between two signs of a step that can be seen; `paces`: seconds a step."""

    interval_s: float | None = None
    paces: tuple[float, ...] = ()
    pauses: tuple[Past, ...] = ()
    save_every_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the command line, files and the job itself say."""

    timeout_s: float
    warn_at: float = 0.5
    poll_s: float = 15.0
    step_s: float | None = None
    checkpoint_interval_s: float | None = None

    @property
    def notice_s(self) -> float:
        """Seconds without a step after which a stall is told, unless the job's habit explains it."""
        return self.warn_at * self.timeout_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One run of the job, by a token of its pods. `is_over`: its controller will start no other."""

    token: str
    number: int
    state: Literal["pending", "running", "failed", "exited"]
    why: str = ""
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What one source tells now. `age_s`: the last step's age by clocks that may be wrong. `saved_before_s`: from the
    last durable checkpoint to the last step, by one clock; below zero where the checkpoint came after it."""

    source: Literal["metrics", "logs"]
    marks: Mapping[str, Mark]
    step: int | None = None
    age_s: float | None = None
    pace_s: float | None = None
    saved_ns: int | None = None
    saved_before_s: float | None = None
    opens: PauseKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look. `signs`: of each source that was read just now and is current; `unread`: why others were not."""

    now_s: float
    at_ns: int
    subject: Subject | None = None
    signs: tuple[Signs, ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What all looks say together.

    `moved_s`: when the last step was made, `seen_s`: when a look last saw that it had moved, or first saw the job. Their
    difference is what somebody else's clock says. `stalled_ns`: our wall clock when the stall began. `failed_s`: when a
    failure was seen, `goes_on`: a step was made after it. `from_start`: the run was watched before its first step;
    `moves`: looks that saw a new step of it. `heard_s`: when a log that tells steps was last read. `unnamed`: the last
    pause, where nothing told yet what it was.
    """

    began_s: float
    looked_s: float
    subject: Subject | None = None
    marks: Mapping[str, Mapping[str, Mark]] = field(default_factory=dict)
    voices: Mapping[str, Voice] = field(default_factory=dict)
    mode: Mode = "starting"
    moved_s: float | None = None
    seen_s: float | None = None
    step: int | None = None
    pace_s: float | None = None
    paced_s: float | None = None
    saved_ns: int | None = None
    saved_at_move_ns: int | None = None
    saved_before_s: float | None = None
    opens: PauseKind | None = None
    heard_s: float | None = None
    unnamed: Unnamed | None = None
    habit: Habit = Habit()
    stalled_ns: int | None = None
    slow_since_s: float | None = None
    is_slow: bool = False
    is_late: bool = False
    failed_s: float | None = None
    goes_on: bool = False
    from_start: bool = False
    moves: int = 0
    blind_since_s: float | None = None
    is_blind: bool = False

    def quiet_s(self, now_s: float) -> float | None:
        """Seconds since the last step; None where none was seen."""
        return None if self.moved_s is None else max(0.0, now_s - self.moved_s)

    def saved_age_s(self, now_s: float) -> float | None:
        """Seconds since the last durable checkpoint."""
        quiet = self.quiet_s(now_s)
        if self.saved_before_s is None or quiet is None:
            return None
        return max(0.0, self.saved_before_s + quiet)
