"""What `gpufleet history` answers: incidents, offenders, how often and how fast; `render` lays it out.

None means not known. Times are Unix nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpufleet_cli.node_card import FaultRate, Missing, RepeatTest

Interval = tuple[float, float | None]
"""Low and high; no high one where nothing was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One past incident."""

    id: str
    at_ns: int | None
    began_ns: int | None
    ended_ns: int | None
    looked_ns: int | None
    diagnosed_ns: int | None
    kind: str
    action: str
    state: str
    confidence: float
    cluster: str | None
    namespace: str | None
    job: str | None
    attempt: int | None
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    xids: tuple[int, ...]
    is_node_fault: bool
    lost_gpu_hours: float | None
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """A node with two faults or more in four weeks, or three incidents that single it out.

    `test` is of its faults, None without any; it alone may flag. `singled_out` counts incidents in four weeks
    for a fault of the node or a rank that was lost there for no known cause; `singled_out_chance` that any
    node has as many where all are alike, None where the nodes are not counted. `named`: incidents that
    name it, in all.
    """

    node: str
    cluster: str | None
    named: int
    singled_out: int
    singled_out_chance: float | None
    test: RepeatTest | None

    @property
    def is_flagged(self) -> bool:
        return self.test is not None and self.test.is_flagged


@dataclass(frozen=True, slots=True, kw_only=True)
class HowOften:
    """How often something came. `seen` counts within `hours`; what each is per is in `hours_each` and, where
    the GPUs are known, `gpu_hours_each`, with the exact interval of 90 %. `without_first`: one more began the
    time that is counted, and is not in it."""

    what: str
    name: str
    seen: int
    without_first: bool
    hours: float | None
    hours_each: float | None
    interval90_hours: Interval | None
    gpu_hours_each: float | None
    interval90_gpu_hours: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HowFast:
    """A median in seconds, of so many incidents that knew it."""

    what: str
    name: str
    median_s: float | None
    known: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCard:
    """The page. `rows`, newest first, are those that were asked for, of `kept` in the folder. `from_ns`: since
    when incidents are counted, by `--since` or (`from_first`) since the first one, which is then left out of
    the counts. `innocents`: healthy nodes of `nodes` that the test of offenders would name today."""

    folder: str
    source: str
    as_of_ns: int
    kept: int
    from_ns: int | None
    from_first: bool
    rows: tuple[HistoryRow, ...]
    offenders: tuple[Offender, ...]
    rate: FaultRate
    rate_interval90: tuple[float, float] | None
    nodes: int | None
    gpus: int | None
    chance_flagged: float
    innocents: float | None
    often: tuple[HowOften, ...]
    fast: tuple[HowFast, ...]
    not_read: tuple[Missing, ...]
