"""Facts that have found their rank and node, and the views that rules read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from gpufleet_cli.facts import HostEvent, LogSign, Origin, SxidEvent, XidEvent
from gpufleet_cli.verdict import JobState, Proof
from gpufleet_cli.xid_catalog import XidReading

T = TypeVar("T")

NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed(Generic[T]):
    """A fact with the rank and node it belongs to; `at_ns` is corrected for its node's clock.

    `clock` names the clock that stamped it; `clock_error_s` is how wrong that time can be against the
    job's other clocks.
    """

    fact: T
    rank: int | None
    node: str | None
    at_ns: int | None
    clock: str | None = None
    clock_error_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """One rank's last signs of life. `last_sign_ns` is the last ordinary line, corrected for clock.

    `error_s` is how wrong the comparison with other ranks can be. `known` is False when no line of
    this rank is at hand or a filter keeps it out. `order` orders undated writes within one stream.
    """

    rank: int
    last_ns: int | None
    last_sign_ns: int | None
    habit_s: float | None
    error_s: float
    known: bool
    complained: bool
    buffered: bool
    order: int
    text: str
    origin: Origin | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Progress of the job. `before_s`/`after_s` are medians around the last lasting change of pace.

    `data_by_rank` is each rank's usual wait for data of late, in seconds a step, where it prints one.
    `longest_s` is the longest time between two printed steps, the later of which is its origin.
    """

    last_step: int | None
    last_step_ns: int | None
    last_origin: Origin | None
    step_s: float | None
    step_source: Literal["flag", "file", "evidence", "unknown"]
    interval_s: float | None
    before_s: float | None
    after_s: float | None
    changed_ns: int | None
    change_origin: Origin | None
    by_rank: Mapping[int, int]
    count: int
    data_by_rank: Mapping[int, tuple[float, Origin]]
    longest_s: float | None = None
    longest_origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Why a job may make no step just now; `is_announced`: a line says so, else its habit does."""

    why: str
    since_ns: int
    origin: Origin | None
    is_announced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """One checkpoint save that began; `done_ns` when it was durable, None when it never was."""

    step: int | None
    started_ns: int | None
    done_ns: int | None
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Last durable checkpoint and the habit of saving."""

    last_ns: int | None
    last_step: int | None
    source: Literal["flag", "file", "evidence", "unknown"]
    interval_s: float | None
    interval_source: Literal["flag", "file", "evidence", "default", "unknown"]
    save_s: float | None
    open_save: Save | None
    origin: Origin | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedXid:
    """An Xid on its GPU and rank, judged against the onset.

    `relevant` is True when it lies in [onset - 15 min, onset + timeout], clocks allowed for.
    """

    event: XidEvent
    reading: XidReading
    rank: int | None
    node: str | None
    at_ns: int | None
    relevant: bool
    lead_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedHost:
    """A kernel line that is no Xid, on its node, judged against the onset."""

    event: HostEvent
    node: str | None
    rank: int | None
    pod: str | None
    at_ns: int | None
    relevant: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSxid:
    """An NVSwitch error on its node, judged against the onset."""

    event: SxidEvent
    node: str | None
    at_ns: int | None
    relevant: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Whether the job has stopped, and the positive evidence for it; `proof` None where it has not."""

    state: JobState
    why: str
    origin: Origin | None
    ended_ns: int | None
    stopped: bool
    proof: Proof | None = None


PlacedSign = Placed[LogSign]
