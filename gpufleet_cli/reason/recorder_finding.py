"""What the recorders of a job show: the roots of a stall, who waits, and what cannot be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from gpufleet_cli.facts import Gap, Origin
from gpufleet_cli.verdict import CollectiveRef, DumpsReport


class Terminal(StrEnum):
    """Where waiting ends (facts: localisation 2)."""

    HOST_SILENT = "host-silent"  # done with all that it entered, and entered less than its peers
    GPU_STALLED = "gpu-stalled"  # its own completions stopped, or its kernel never started
    IN_FLIGHT = "in-flight"  # every member entered and nobody is behind: link, adapter or kernel
    CYCLE = "cycle"  # ranks wait for one another: a program error
    HIDDEN = "hidden"  # among ranks whose dump is missing


class Stall(StrEnum):
    """What says that the job stands still rather than that it was caught in a step."""

    TIMED_OUT = "timed-out"  # an entry is older than its own timeout
    BY_ORDER = "by-order"  # most ranks wait, directly or not, for ranks that are behind
    UNPROVEN = "unproven"  # open operations, but nothing says for how long
    NONE = "none"  # nothing is stuck


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphClaim:
    """One sentence that stands on one dump."""

    text: str
    origin: Origin | None
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """One end of the waiting. `ranks` are the culprits of host-silent and gpu-stalled, else the set
    that it may be. `share` is the part of all waiting ranks that leads here, `blocked` how many.
    `virtual`: no waiting rank leads here but through ranks that have no dump. `behind_by` is how
    many full-sync collectives peers completed with a stalled rank that it never saw complete.
    `flight` are the members of an operation that may as well hang in flight, with the missing ranks of
    a hidden root healthy.
    `whole_nodes` are nodes none of whose ranks left a dump while most others did.
    """

    kind: Terminal
    ranks: tuple[int, ...]
    share: float
    blocked: int
    virtual: bool
    claims: tuple[GraphClaim, ...]
    waited_on: CollectiveRef
    onset_ns: int | None = None
    behind_by: int = 0
    flight: tuple[int, ...] = ()
    whole_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Ranks that agree with one another in a mismatch, and what they called."""

    call: str
    ranks: tuple[int, ...]
    frames: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Ranks that disagree about one collective. `sides[0]` is the majority where there is one.

    `odd_ranks` is empty where nothing tells which side is wrong; `decided_by` says what told.
    """

    what: Literal["operation", "size", "dtype", "order"]
    collective: CollectiveRef
    sides: tuple[Side, ...]
    odd_ranks: tuple[int, ...]
    decided_by: Literal["majority", "sibling groups", "role", ""]
    summary: str
    claims: tuple[GraphClaim, ...]


Standing = Literal["waits", "silent", "stalled", "done", "missing", "early", "stale", "unreadable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWait:
    """Where one rank stands: `waits` in its oldest open operation, for `waits_for` (a few of them).

    `collective` is that operation, else the last one that it entered. `why` says in words.
    """

    rank: int
    standing: Standing
    collective: CollectiveRef
    since_ns: int | None = None
    waits_for: tuple[int, ...] = ()
    frames: tuple[str, ...] = ()
    origin: Origin | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFinding:
    """All that the dumps say together.

    `roots` are strongest first; `suspects` are the ranks of hidden and in-flight roots. `waiting`
    are ranks with an open operation that leads to a root. `no_fault` is True only where the dumps
    show positively that nothing is stuck (`no_fault_claims`); False means a fault or not known.
    `is_live`: operations began or ended just before the evidence was taken.
    `unsettled` are ranks without a dump that some waiting leads to as well as to a convicted rank.
    `early` dumps were made before their rank moved on; `stale` ones belong to an earlier attempt.
    `clock_offsets` are seconds that a node's clock is ahead, with the error.
    """

    dumps: int
    world_size: int | None
    stall: Stall
    roots: tuple[Root, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    waiting: frozenset[int] = frozenset()
    blocked: int = 0
    waited_on: CollectiveRef | None = None
    onset_ns: int | None = None
    newest_ns: int | None = None
    timeout_s: float | None = None
    timed_out_origin: Origin | None = None
    no_fault: bool = False
    no_fault_claims: tuple[GraphClaim, ...] = ()
    is_live: bool = False
    missing: tuple[int, ...] = ()
    unreadable: tuple[int, ...] = ()
    stale: tuple[int, ...] = ()
    early: tuple[int, ...] = ()
    whole_nodes: tuple[str, ...] = ()
    unsettled: tuple[int, ...] = ()
    standing: Mapping[int, RankWait] = field(default_factory=dict)
    edges: tuple[tuple[int, int, str], ...] = ()
    clock_offsets: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()
    report: DumpsReport | None = None

    @property
    def culprits(self) -> tuple[int, ...]:
        """Ranks that a present dump convicts."""
        sure = (Terminal.HOST_SILENT, Terminal.GPU_STALLED)
        return tuple(sorted({r for root in self.roots if root.kind in sure for r in root.ranks}))

    @property
    def suspects(self) -> tuple[int, ...]:
        """Ranks among which the guilty one may be, where no present dump convicts."""
        open_ends = (Terminal.HIDDEN, Terminal.IN_FLIGHT)
        return tuple(
            sorted({r for root in self.roots if root.kind in open_ends for r in root.ranks})
        )
