"""What a watch tells: one event per change, and the job as it is at a look."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SCHEMA = "gpufleet.watch/v1"


class Kind(StrEnum):
    """What happened; the comment says who is told of it beside the reader."""

    WATCHING = "watching"  # what is looked at, and where each number came from
    LOOK = "look"  # the job as it is: `--once`
    ATTEMPT = "attempt"  # another run of the job: a new subject
    STEPS = "steps"  # its first step since the watch began
    PAUSE = "pause"  # no step for longer than its rhythm
    EXCUSED = "excused"  # no step for as long as a stall is noticed, and its habit explains it
    STALLED = "stalled"  # an alert
    MOVES = "moves"  # it steps again
    SLOWER = "slower"  # an alert
    PACE = "pace"  # the usual pace again
    CHECKPOINT_LATE = "checkpoint-late"  # an alert
    CHECKPOINT = "checkpoint"  # and there it is
    CANNOT_SEE = "cannot-see"  # an alert of its own: nothing is said of the job
    SEES = "sees"  # it can be read again
    UNREAD = "unread"  # one source cannot be read; another may do
    FAILED = "failed"  # an alert: a container ended with an error, or the job did
    EVIDENCE = "evidence"  # what was gathered, and where it lies
    TRIAGE = "triage"  # what the triage of that evidence says
    POSTED = "posted"  # alerts taken by Alertmanager
    NOT_POSTED = "not-posted"
    ENDED = "ended"  # the job ended
    STOPPED = "stopped"  # the watch was told to end


PROBLEMS = frozenset(
    {Kind.STALLED, Kind.FAILED, Kind.SLOWER, Kind.CHECKPOINT_LATE, Kind.CANNOT_SEE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One change. `at_ns` is our own clock. `quiet_s`: since the last step; `paged_s`: how long that may be before
    it is called a stall; `bundle`: where evidence lies; `report`: a triage as JSON."""

    kind: Kind
    at_ns: int
    text: str
    step: int | None = None
    quiet_s: float | None = None
    paged_s: float | None = None
    step_s: float | None = None
    usual_step_s: float | None = None
    checkpoint_age_s: float | None = None
    bundle: str | None = None
    report: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """The job at one look, for the line that is rewritten. `mode` is a word of the state machine."""

    mode: str
    step: int | None
    quiet_s: float | None
    step_s: float | None
    checkpoint_age_s: float | None
