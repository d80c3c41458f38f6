"""What a postmortem says: small records that `operate/postmortem` fills and `render/postmortem` lays out.

Times are Unix nanoseconds UTC, None where the evidence has none. A `Moment` carries the place that it stands
on; `claims` are the ids (`e1`) of the verdict's claims that stand on the same place.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from gpufleet_cli.facts import Gap, Origin
from gpufleet_cli.spec_check import Preflight
from gpufleet_cli.verdict import CollectiveRef, Culprit, HardwareEvent, RankStanding, Triage

SCHEMA = "gpufleet.postmortem/v1"

Part = Literal["before", "cause", "sign", "consequence", "end", "diagnosis", "recovery"]
"""What a moment is in the story: what led to it, the first cause, what could be seen, what followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened. `until_ns`, `count`: the last of several alike, and how many they are."""

    at_ns: int
    what: str
    part: Part
    origin: Origin | None = None
    until_ns: int | None = None
    count: int = 1
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """One of the four times of an incident, and on what it rests; None, and why it is not known."""

    at_ns: int | None
    why: str
    origin: Origin | None = None
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """`first_cause` and `detected` are there wherever there is a fault and any time at all."""

    first_cause: Instant
    detected: Instant
    diagnosed: Instant
    recovered: Instant
    ended_ns: int | None


# --- Pictures -------------------------------------------------------------------------------------

Tone = Literal["culprit", "suspect", "waited", "silent", "well", "unknown"]
"""How a rank stands, as far as a picture tells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceRow:
    """Ranks that fell silent alike. `first_ns` to `last_ns`: the earliest and the latest last line among them;
    `sign_ns`: the last ordinary line of those who are blamed."""

    label: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    pods: int
    tone: Tone
    first_ns: int | None
    last_ns: int | None
    sign_ns: int | None
    quiet_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One node (or pod, or a run of ranks that nothing places) with the tones of its ranks, in their order."""

    name: str
    ranks: tuple[int, ...]
    tones: tuple[Tone, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceMap:
    """Ranks by time and by node. `start_ns` to `end_ns` is the time that is drawn; None: no line has a time."""

    rows: tuple[SilenceRow, ...]
    tiles: tuple[Tile, ...]
    start_ns: int | None
    end_ns: int | None
    by: Literal["node", "pod", "rank"]
    tiles_left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitBox:
    """Ranks that wait in one operation (or in several alike), or an end of the waiting."""

    title: str
    ranks: tuple[int, ...]
    detail: str
    kind: Literal["waits", "culprit", "suspect", "absent", "behind"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitPicture:
    """Who waits for whom. `arrows` are (index of the box that waits, index of the one that it waits for)."""

    boxes: tuple[WaitBox, ...]
    arrows: tuple[tuple[int, int], ...]
    told_by: str
    left_out: int = 0


# --- The parts ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line as it stands in the evidence. `mark`: the last ordinary one, before the rank complained."""

    number: int
    text: str
    mark: bool = False


class Whose(StrEnum):
    """Whose lines are shown beside a rank."""

    OWN = "Its last lines"
    ABOUT = "No line is known to be its own; up to one that speaks of it"
    POD = "No line is known to be its own; the last ones of its pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What a rank was doing. `alike`: further ranks of which the same is told."""

    rank: int | None
    culprit: Culprit | None
    standing: RankStanding
    pod: str | None
    node: str | None
    stack: tuple[str, ...]
    stack_from: str
    stack_origin: Origin | None
    collective: CollectiveRef
    last_step: int | None
    last_sign_ns: int | None
    last_text: str
    origin: Origin | None
    lines: tuple[LogLine, ...]
    lines_of: str
    whose: Whose = Whose.OWN
    alike: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeEvents:
    """Events of one code and one role on several GPUs: the first of them, how many, and on which nodes."""

    first: HardwareEvent
    count: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareHistory:
    """What is known of the hardware: XIDs, other kernel lines and states, and how far back the logs go.

    `events` are of the nodes that are blamed (`left_out` more are not listed), `elsewhere` of all others."""

    nodes: tuple[str, ...]
    events: tuple[HardwareEvent, ...]
    left_out: int
    elsewhere: tuple[AlikeEvents, ...]
    states: tuple[tuple[str, str, Origin | None], ...]
    reach: tuple[tuple[str, int | None, int | None, Origin], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """One line of the bill with its arithmetic, and from when to when. `counted` is False for what is not in
    the sum."""

    name: str
    gpu_hours: float | None
    arithmetic: str
    span: tuple[int, int] | None = None
    counted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingId:
    """A name under which other systems know this run: what it is, its value, and where it stood."""

    kind: Literal["run_id", "job_uid", "image_digest", "commit"]
    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """Something that was not there, and how to have it next time."""

    gap: Gap
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A cited place with the line that stands there; `text` None where it is no line of text."""

    id: str
    origin: Origin
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Postmortem:
    """All of it. `quotes` are the places that the page cites: claims first, by their ids."""

    triage: Triage
    summary: tuple[str, str, str]
    times: Times
    timeline: tuple[Moment, ...]
    timeline_left_out: int
    silence: SilenceMap
    waits: WaitPicture | None
    doing: tuple[Doing, ...]
    hardware: HardwareHistory
    bill: tuple[BillLine, ...]
    specs: Preflight | None
    specs_read_as: str
    tracking: tuple[TrackingId, ...]
    lacking: tuple[Lacking, ...]
    quotes: tuple[Quote, ...]
