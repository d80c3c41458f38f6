"""What happened, in true time, before anybody writes it down; and what the writers may leave behind.

Times are seconds from `Story.start_ns`, the begin of a window of three steps; earlier steps went as
the first of the window did. A writer adds the skew of its node's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from gpufleet_cli.operate.simulate.engine import Moments, Programs
from gpufleet_cli.operate.simulate.layout import Layout
from gpufleet_cli.verdict import Kind


class Class(StrEnum):
    """What goes wrong in a world."""

    LOADER_STALL = "loader-stall"
    GC_STALL = "gc-stall"
    CHECKPOINT_STALL = "checkpoint-stall"
    LOCK_STALL = "lock-stall"
    PYTHON_CRASH = "python-crash"
    SEGFAULT = "segfault"
    OOM_KILL = "oom-kill"
    GPU_STALL = "gpu-stall"
    XID_79 = "xid-79"
    XID_119 = "xid-119"
    XID_48 = "xid-48"
    XID_94 = "xid-94"
    XID_95 = "xid-95"
    NODE_DEATH = "node-death"
    NIC_DOWN = "nic-down"
    RAIL_FLAP = "rail-flap"
    LINK_IN_FLIGHT = "link-in-flight"
    PARTIAL = "partial-completion"
    SWITCH = "switch"
    SKIPPED = "skipped-collective"
    REORDERED = "reordered-collectives"
    MISMATCH = "mismatched-collective"
    P2P_DEADLOCK = "p2p-deadlock"
    STORAGE = "storage-outage"
    RENDEZVOUS = "rendezvous-failure"
    SLOW_GPU = "slow-gpu"
    SLOW_LINK = "slow-link"
    IMBALANCE = "imbalance"
    TWO_FAULTS = "two-faults"
    RED_HERRING = "red-herring"
    LONG_STEP = "healthy-long-step"
    COMPILE = "healthy-compile"
    CHECKPOINT = "healthy-checkpoint"
    OTHER_JOB = "other-job"


HEALTHY = frozenset({Class.LONG_STEP, Class.COMPILE, Class.CHECKPOINT})
RUNNING = HEALTHY | {Class.SLOW_GPU, Class.SLOW_LINK, Class.IMBALANCE}

# How a process ended. `alive`: it had not when the evidence was taken; `frozen`: alive and deaf
# (its interpreter lock is held); `vanished`: with its node, and nobody was left to say so.
How = Literal[
    "alive",
    "frozen",
    "exception",
    "segfault",
    "oom-kill",
    "cuda-error",
    "network-error",
    "agent-sigterm",
    "watchdog-abort",
    "vanished",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong. `ranks` are the guilty ones, `node_indexes` the guilty nodes of a
    fault of nodes; `cls` is never a class that stands for a mixture."""

    cls: Class
    at_s: float
    ranks: tuple[int, ...] = ()
    node_indexes: tuple[int, ...] = ()
    call: int | None = None
    kinds: tuple[Kind, ...] = ()
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the process of a rank ended. `code` as an agent shows it: negative for a signal."""

    rank: int
    how: How
    at_s: float | None
    code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """A watchdog's timeout: `call` is the number of the call in the rank's program."""

    rank: int
    call: int
    at_s: float
    ran_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A checkpoint; `ended_s` None: not when the evidence was taken."""

    step: int
    began_s: float
    ended_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A time in which no rank made a step, behind the end of `after_step`: a save, an evaluation, a
    compilation, or a step that took long."""

    after_step: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How this job writes: drawn once a world, the same for all its files.

    `framework` picks the step and checkpoint lines, `wrapper` the layout and prefixes of log files,
    `torch` the release (watchdog wording, dump schema). `identity`: what ties ranks to nodes and
    GPUs: a topology.json with PCI bus ids, pods.json with NCCL's init lines, or the log tree alone.
    """

    framework: str
    wrapper: str
    torch: str
    timing: bool
    frames: bool
    ring: int
    as_json: bool
    only_active: bool
    identity: Literal["topology", "pods", "logs"]
    rank0_only: bool
    lost_prefixes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All that happened. Steps count from `first_step` at the begin of the window; programs hold its
    three steps one after another. `step_ends[rank]` are the seconds at which the rank ended steps
    `first_step`, `first_step + 1`, ... of the window, as far as it came; `steps_before` steps of
    `step_seconds` each went before.  `signalled[rank]`: when its watchdog saw another rank's timeout;
    `dumped[rank]`: when its recorder was written. `decoys` happened too, and stopped nothing.
    `rests` are the earlier pauses of a healthy job that pauses now, newest first, as long as this one.
    `captured_s`: when the evidence was taken. `lost_logs`: ranks whose log the collection lost."""

    seed: int
    cls: Class
    layout: Layout
    style: Style
    programs: Programs
    moments: Moments
    start_ns: int
    first_step: int
    step_seconds: float
    steps_before: int
    step_ends: tuple[tuple[float, ...], ...]
    faults: tuple[Fault, ...]
    decoys: tuple[Fault, ...]
    firings: tuple[Firing, ...]
    signalled: Mapping[int, float]
    dumped: Mapping[int, float]
    endings: tuple[Ending, ...]
    saves: tuple[Save, ...]
    timeout_s: float
    checkpoint_every: int
    captured_s: float
    skew_s: tuple[float, ...]
    lost_logs: frozenset[int] = field(default_factory=frozenset)
    rests: tuple[Rest, ...] = ()

    def ended_s(self, step: int) -> float:
        """When a step before the window ended."""
        rested = sum(rest.seconds for rest in self.rests if rest.after_step >= step)
        return (step + 1 - self.first_step) * self.step_seconds - rested

    def wall_ns(self, at_s: float, node_index: int | None = None) -> int:
        """Unix nanoseconds by the true clock, or as the node's clock shows it."""
        skew = 0.0 if node_index is None else self.skew_s[node_index]
        return self.start_ns + round((at_s + skew) * 1e9)

    @property
    def is_running(self) -> bool:
        return all(ending.how == "alive" for ending in self.endings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clue:
    """What a written file says of the true fault: `text` is in the file at `path`.

    `ranks` is the set it leaves when read alone (all of a node where it names the node). `loud`: it
    says what the cause is, not only where it is. `nodes` are the indexes of nodes that it, or where it
    stands, calls by name; empty where it names a rank or a pod.
    """

    ranks: tuple[int, ...]
    path: str
    text: str
    kinds: tuple[Kind, ...] = ()
    loud: bool = True
    nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Files by path, with what they say. `timed_out`: ranks whose own timeout line is in a file, and
    the call that it names; `complete`: ranks whose log is there to its end."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    clues: tuple[Clue, ...] = ()
    timed_out: Mapping[int, int] = field(default_factory=dict)
    complete: frozenset[int] = frozenset()
