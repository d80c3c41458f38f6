"""What follows from the facts: `Case` is all that rules may read; `reason.build` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpufleet_cli.facts import (
    ClusterEvent,
    GangHeld,
    Gap,
    GpuReading,
    GroupStatus,
    IdentityLink,
    JobNumbers,
    KernelLogSpan,
    KubeletReply,
    NodeLease,
    NodeState,
    PodState,
    RestartRoom,
    SchedulerJob,
    SchedulerNode,
    SeriesEnd,
    Sign,
    WatchdogTimeout,
    Writes,
)
from gpufleet_cli.reason.clocks import Offset
from gpufleet_cli.reason.placed import (
    Checkpoints,
    Pause,
    Placed,
    PlacedHost,
    PlacedSign,
    PlacedSxid,
    PlacedXid,
    Silence,
    Steps,
    Stop,
)
from gpufleet_cli.reason.recorder_finding import GraphFinding
from gpufleet_cli.reason.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All facts of the subject attempt, placed; and the facts of earlier attempts that matter.

    `pause` is why it makes no step just now, where something tells. `witnesses` are the ranks whose own watchdog gave up: they waited. `as_of_ns` is the newest time
    in the evidence where nobody told when it was collected (`is_as_of_told`).
    """

    given: tuple[JobNumbers, ...]
    topology: Topology
    attempt: int | None
    cycle: int | None
    as_of_ns: int | None
    is_as_of_told: bool
    timeout_s: float
    timeout_source: str
    onset_ns: int | None
    first_timeout_ns: int | None
    timeouts: tuple[Placed[WatchdogTimeout], ...]
    witnesses: frozenset[int]
    statuses: tuple[Placed[GroupStatus], ...]
    signs: tuple[PlacedSign, ...]
    earlier_signs: tuple[PlacedSign, ...]
    steps: Steps
    checkpoints: Checkpoints
    pause: Pause | None
    silence: Mapping[int, Silence]
    writes: tuple[Writes, ...]
    init_links: tuple[IdentityLink, ...]
    graph: GraphFinding | None
    xids: tuple[PlacedXid, ...]
    sxids: tuple[PlacedSxid, ...]
    hosts: tuple[PlacedHost, ...]
    series_ends: tuple[SeriesEnd, ...]
    readings: tuple[GpuReading, ...]
    leases: tuple[NodeLease, ...]
    kubelets: tuple[KubeletReply, ...]
    kernel_spans: tuple[KernelLogSpan, ...]
    pods: tuple[PodState, ...]
    nodes: tuple[NodeState, ...]
    events: tuple[ClusterEvent, ...]
    held: tuple[GangHeld, ...]
    restart_rooms: tuple[RestartRoom, ...]
    scheduler_jobs: tuple[SchedulerJob, ...]
    scheduler_nodes: tuple[SchedulerNode, ...]
    stop: Stop
    offsets: Mapping[str, Offset]
    gaps: tuple[Gap, ...]

    def signs_of(self, *wanted: Sign) -> tuple[PlacedSign, ...]:
        """The signs of some kinds, in order of time."""
        return tuple(sign for sign in self.signs if sign.fact.sign in wanted)

    @property
    def world(self) -> tuple[int, ...]:
        """All ranks of the job that are known to exist."""
        size = self.topology.world_size
        return tuple(self.topology.places) if size is None else tuple(range(size))
