"""What follows from the facts: `Case` is all that rules may read; `build_case` joins it.

Order of work: choose the attempt, build the identity map, correct the clocks, then place every
fact on its rank and node and judge it against the onset of the incident.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gpufleet_cli.facts import (
    ClusterEvent,
    Fact,
    Gap,
    GpuReading,
    GroupStatus,
    HostEvent,
    IdentityLink,
    JobNumbers,
    KernelLogSpan,
    LogSign,
    NodeBoot,
    NodeLease,
    NodeState,
    Origin,
    PodState,
    Progress,
    RankDump,
    SchedulerJob,
    SchedulerNode,
    SeriesEnd,
    Sign,
    SxidEvent,
    WatchdogTimeout,
    Writes,
    XidEvent,
)
from gpufleet_cli.reason import (
    attempts,
    clocks,
    job_state,
    kernel_times,
    silence,
    timeline,
    topology,
    wait_graph,
    xid_history,
    years,
)
from gpufleet_cli.reason.placed import (
    NS,
    Checkpoints,
    Placed,
    PlacedHost,
    PlacedSign,
    PlacedSxid,
    PlacedXid,
    Silence,
    Steps,
    Stop,
)
from gpufleet_cli.reason.topology import Topology
from gpufleet_cli.reason.wait_graph import GraphFinding

DEFAULT_TIMEOUT_S = 600.0
LOOK_BACK_S = 2 * 3600.0

T = TypeVar("T", WatchdogTimeout, GroupStatus, LogSign, Progress)
F = TypeVar("F")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All facts of the subject attempt, placed; and the facts of earlier attempts that matter.

    `witnesses` are the ranks whose own watchdog gave up: they waited.
    """

    given: tuple[JobNumbers, ...]
    topology: Topology
    attempt: int | None
    cycle: int | None
    as_of_ns: int | None
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
    kernel_spans: tuple[KernelLogSpan, ...]
    pods: tuple[PodState, ...]
    nodes: tuple[NodeState, ...]
    events: tuple[ClusterEvent, ...]
    scheduler_jobs: tuple[SchedulerJob, ...]
    scheduler_nodes: tuple[SchedulerNode, ...]
    stop: Stop
    offsets: Mapping[str, clocks.Offset]
    gaps: tuple[Gap, ...]

    def signs_of(self, *wanted: Sign) -> tuple[PlacedSign, ...]:
        """The signs of some kinds, in order of time."""
        return tuple(sign for sign in self.signs if sign.fact.sign in wanted)

    @property
    def world(self) -> tuple[int, ...]:
        """All ranks of the job that are known to exist."""
        size = self.topology.world_size
        return tuple(self.topology.places) if size is None else tuple(range(size))


def build_case(facts: Iterable[Fact], *, as_of_ns: int | None, captured_ns: int | None) -> Case:
    """Join the facts of one target into the case of its subject attempt.

    The subject is the newest attempt that failed or stalled, if it ended within the look-back, even
    when a younger one runs; else the newest.
    """
    listed = tuple(facts)
    known = as_of_ns if as_of_ns is not None else captured_ns
    listed = tuple(years.with_years(listed, years.near(listed, known)))
    newest = _build(attempts.split(listed), as_of_ns=as_of_ns, captured_ns=captured_ns)
    if newest.stop.stopped or not any(
        s.fact.sign in job_state.ABORT_SIGNS for s in newest.earlier_signs
    ):
        return newest
    before = _build(
        attempts.split(listed, without_newest=True),
        as_of_ns=newest.as_of_ns,
        captured_ns=captured_ns,
    )
    ended = before.stop.ended_ns
    if not before.stop.stopped or before.stop.state == "exited" or ended is None:
        return newest
    if newest.as_of_ns is None or (newest.as_of_ns - ended) / NS > LOOK_BACK_S:
        return newest
    return before


def _build(subject: attempts.Attempts, *, as_of_ns: int | None, captured_ns: int | None) -> Case:
    given = tuple(
        sorted(
            _of(subject.current, JobNumbers),
            key=lambda n: (n.source != "flag", str(n.origin or "")),
        )
    )
    dumps = _of(subject.current, RankDump)
    places = _topology(subject, given, dumps)
    progress = _of(subject.current, Progress)
    graph = (
        wait_graph.analyse(
            dumps,
            world_size=places.world_size,
            node_of={rank: p.node for rank, p in places.places.items() if p.node is not None},
        )
        if dumps
        else None
    )
    offsets = clocks.offsets(
        progress,
        _of(subject.current, WatchdogTimeout),
        places,
        {} if graph is None else graph.clock_offsets,
    )

    timeouts = _placed(_of(subject.current, WatchdogTimeout), places, offsets)
    signs = _placed(_of(subject.current, LogSign), places, offsets)
    earlier_signs = _placed([f for f in subject.earlier if isinstance(f, LogSign)], places, offsets)
    placed_progress = _place_progress(progress, places, offsets)
    steps = timeline.steps(
        placed_progress, [f for f in subject.earlier if isinstance(f, Progress)], given
    )
    writes = _of(subject.current, Writes)
    complained: dict[int, int] = {}
    for timeout in timeouts:
        if timeout.rank is not None and timeout.at_ns is not None:
            complained.setdefault(timeout.rank, timeout.at_ns)
    quiet = silence.by_rank(writes, places, offsets, complained)
    timeout_s, timeout_source = _timeout(given, timeouts, graph)
    newest = _newest(given, captured_ns, signs, timeouts, steps, quiet, graph)
    if captured_ns is None:
        newest = _newest_of_hosts(subject.current, newest)
    now = as_of_ns if as_of_ns is not None else newest
    onset = _onset(timeouts, graph, signs, steps)
    saves = timeline.checkpoints(signs, earlier_signs, given, onset)
    stop = job_state.judge(
        given=given,
        signs=signs,
        timeouts=timeouts,
        steps=steps,
        pods=_of(subject.current, PodState),
        scheduler=_of(subject.current, SchedulerJob),
        graph=graph,
        as_of_ns=now,
    )
    if stop.state == "running":
        onset = steps.changed_ns
    near = now if now is not None else onset
    boots = kernel_times.boots(given, _of(subject.current, NodeBoot))
    span = xid_history.window(onset, now, timeout_s)
    xids = kernel_times.dated(_of(subject.current, XidEvent), near, boots)
    hosts = kernel_times.dated(_of(subject.current, HostEvent), near, boots)
    sxids = kernel_times.dated(_of(subject.current, SxidEvent), near, boots)
    shift = xid_history.zone_shift_s([*xids, *hosts], span, onset)
    xids, hosts, sxids = (
        kernel_times.in_zone(xids, shift),
        kernel_times.in_zone(hosts, shift),
        kernel_times.in_zone(sxids, shift),
    )
    return Case(
        given=given,
        topology=places,
        attempt=subject.attempt,
        cycle=subject.cycle,
        as_of_ns=now,
        timeout_s=timeout_s,
        timeout_source=timeout_source,
        onset_ns=onset,
        first_timeout_ns=min((t.at_ns for t in timeouts if t.at_ns is not None), default=None),
        timeouts=timeouts,
        witnesses=frozenset(t.rank for t in timeouts if t.rank is not None),
        statuses=_placed(_of(subject.current, GroupStatus), places, offsets),
        signs=signs,
        earlier_signs=earlier_signs,
        steps=steps,
        checkpoints=saves,
        silence=quiet,
        writes=writes,
        init_links=tuple(
            link for link in _of(subject.current, IdentityLink) if link.comm is not None
        ),
        graph=graph,
        xids=xid_history.place_xids(xids, places, offsets, span, onset),
        sxids=xid_history.place_sxids(sxids, places, offsets, span),
        hosts=xid_history.place_hosts(hosts, places, offsets, span),
        series_ends=_of(subject.current, SeriesEnd),
        readings=_of(subject.current, GpuReading),
        leases=_of(subject.current, NodeLease),
        kernel_spans=_of(subject.current, KernelLogSpan),
        pods=_of(subject.current, PodState),
        nodes=_of(subject.current, NodeState),
        events=_date_events(_of(subject.current, ClusterEvent), now),
        scheduler_jobs=_of(subject.current, SchedulerJob),
        scheduler_nodes=_of(subject.current, SchedulerNode),
        stop=stop,
        offsets=offsets,
        gaps=_of(subject.current, Gap),
    )


def _of(facts: Iterable[Fact], kind: type[F]) -> tuple[F, ...]:
    return tuple(fact for fact in facts if isinstance(fact, kind))


def _topology(
    subject: attempts.Attempts, given: Sequence[JobNumbers], dumps: Sequence[RankDump]
) -> Topology:
    stated: tuple[int, str] | None = next(
        ((n.world_size, n.source) for n in given if n.world_size is not None), None
    )
    recorded = wait_graph.recorded_world_size(dumps)
    if stated is None and recorded is None:
        size = _size_by_numels(_of(subject.current, WatchdogTimeout))
        stated = None if size is None else (size, "evidence")
    return topology.build(
        links=_of(subject.current, IdentityLink),
        speakers=[s for s in map(attempts.speaker_of, subject.current) if s is not None],
        pods=_of(subject.current, PodState),
        nodes=_of(subject.current, NodeState),
        stated_world_size=stated,
        recorder_world_size=recorded,
        gpus_per_node=next((n.gpus_per_node for n in given if n.gpus_per_node is not None), None),
    )


def _size_by_numels(timeouts: Sequence[WatchdogTimeout]) -> int | None:
    """An all-gather of the default group puts out as many times what it takes in as there are ranks,
    a reduce-scatter the other way round."""
    for timeout in timeouts:
        group = timeout.group
        if (
            group is None
            or group.desc != "default_pg"
            or not timeout.numel_in
            or not timeout.numel_out
        ):
            continue
        small, large = sorted((timeout.numel_in, timeout.numel_out))
        if timeout.op.strip("_").startswith(("ALLGATHER", "REDUCE_SCATTER")) and large % small == 0:
            return large // small if large > small else None
    return None


def _placed(
    facts: Sequence[T], places: Topology, offsets: Mapping[str, clocks.Offset]
) -> tuple[Placed[T], ...]:
    found = []
    for fact in facts:
        node = places.node_of_speaker(fact.speaker)
        at_ns = None if isinstance(fact, Progress) else fact.at_ns
        rank = places.by_speaker.get(fact.speaker)
        if rank is None and isinstance(fact, WatchdogTimeout | GroupStatus):
            rank = _rank_in_world(fact, places)
        found.append(
            Placed(
                fact=fact,
                rank=rank,
                node=node,
                at_ns=clocks.corrected(at_ns, node, offsets),
            )
        )
    return tuple(
        sorted(
            found,
            key=lambda p: (p.at_ns is None, p.at_ns or 0, *_origin_key(p.fact)),
        )
    )


def _rank_in_world(fact: WatchdogTimeout | GroupStatus, places: Topology) -> int | None:
    """The rank that a line of the default group states: inside that group it is the global rank.

    Lines of torch up to 2.2 name no group; there the default group is assumed, as long as the
    number fits the world.
    """
    group = fact.group
    is_default = (
        group is None or group.desc == "default_pg" or (group.name, group.desc) == ("0", None)
    )
    if fact.group_rank is None or not is_default:
        return None
    size = places.world_size
    return fact.group_rank if size is None or fact.group_rank < size else None


def _origin_key(fact: WatchdogTimeout | GroupStatus | LogSign | Progress) -> tuple[str, int, int]:
    if isinstance(fact, Progress):
        return fact.path, fact.points[-1].line or 0 if fact.points else 0, 0
    return fact.origin.path, fact.origin.line or 0, fact.origin.entry or 0


def _place_progress(
    progress: Sequence[Progress], places: Topology, offsets: Mapping[str, clocks.Offset]
) -> tuple[Placed[Progress], ...]:
    """Progress with the corrected time of its last point."""
    placed = _placed(progress, places, offsets)
    return tuple(
        replace(
            p,
            at_ns=clocks.corrected(
                p.fact.points[-1].at_ns if p.fact.points else None, p.node, offsets
            ),
        )
        for p in placed
    )


def _timeout(
    given: Sequence[JobNumbers],
    timeouts: Sequence[Placed[WatchdogTimeout]],
    graph: GraphFinding | None,
) -> tuple[float, str]:
    for numbers in given:
        if numbers.watchdog_timeout_s is not None:
            return numbers.watchdog_timeout_s, numbers.source
    if timeouts:
        return min(t.fact.timeout_ms for t in timeouts) / 1000.0, "evidence"
    if graph is not None and graph.timeout_s is not None:
        return graph.timeout_s, "evidence"
    return DEFAULT_TIMEOUT_S, "default"


def _newest(
    given: Sequence[JobNumbers],
    captured_ns: int | None,
    signs: Sequence[PlacedSign],
    timeouts: Sequence[Placed[WatchdogTimeout]],
    steps: Steps,
    quiet: Mapping[int, Silence],
    graph: GraphFinding | None,
) -> int | None:
    """The capture time, else the newest time that the evidence holds."""
    if captured_ns is not None:
        return captured_ns
    for numbers in given:
        if numbers.captured_ns is not None:
            return numbers.captured_ns
    times = [s.at_ns for s in signs if s.at_ns is not None]
    times += [t.at_ns for t in timeouts if t.at_ns is not None]
    times += [s.last_ns for s in quiet.values() if s.last_ns is not None]
    if steps.last_step_ns is not None:
        times.append(steps.last_step_ns)
    if graph is not None and graph.newest_ns is not None:
        times.append(graph.newest_ns)
    return max(times, default=None)


def _newest_of_hosts(facts: Sequence[Fact], newest: int | None) -> int | None:
    """The newest time of logs, kernel lines and schedulers together; undated lines count for nothing."""
    times = [] if newest is None else [newest]
    times += [
        f.at_ns
        for f in facts
        if isinstance(f, HostEvent | XidEvent | SxidEvent) and f.at_ns is not None and f.year_stated
    ]
    times += [f.ended_ns for f in facts if isinstance(f, SchedulerJob) and f.ended_ns is not None]
    return max(times, default=None)


CAUSE_SIGNS = frozenset(
    {
        Sign.CUDA_OOM,
        Sign.HOST_OOM,
        Sign.ECC_ERROR,
        Sign.CUDA_ERROR,
        Sign.CUDA_PEER_ERROR,
        Sign.ILLEGAL_ACCESS,
        Sign.DEVICE_ASSERT,
        Sign.NIC_ERROR,
        Sign.LOADER_KILLED,
        Sign.PYTHON_EXCEPTION,
        Sign.MISMATCH,
        Sign.PEER_UNREACHABLE,
        Sign.FATAL_SIGNAL,
        Sign.NODE_FAILED,
        Sign.TASK_EXIT,
        Sign.CHILD_FAILED,
        Sign.ASYNC_ERROR,
        Sign.ROOT_CAUSE_BLOCK,
        Sign.FS_ERROR,
    }
)


def _onset(
    timeouts: Sequence[Placed[WatchdogTimeout]],
    graph: GraphFinding | None,
    signs: Sequence[PlacedSign],
    steps: Steps,
) -> int | None:
    """When it began: the earliest start of an operation that timed out, the last completion that
    the recorder saw, or the first line that is a cause."""
    started = [t.at_ns - t.fact.ran_ms * 1_000_000 for t in timeouts if t.at_ns is not None]
    causes = [s.at_ns for s in signs if s.fact.sign in CAUSE_SIGNS and s.at_ns is not None]
    if started:
        first = min(started)
        before = [at for at in causes if first - 120 * NS <= at < first]
        return min([first, *before])
    if graph is not None and graph.onset_ns is not None:
        return graph.onset_ns
    if causes:
        return min(causes)
    return steps.last_step_ns


def _date_events(events: Sequence[ClusterEvent], now: int | None) -> tuple[ClusterEvent, ...]:
    """Relative ages counted back from the time of the analysis."""
    dated = [
        replace(e, at_ns=now - round(e.age_s * NS))
        if e.at_ns is None and e.age_s is not None and now is not None
        else e
        for e in events
    ]
    return tuple(sorted(dated, key=lambda e: (e.at_ns or 0, str(e.origin))))


__all__ = [
    "NS",
    "Case",
    "Origin",
    "Placed",
    "PlacedHost",
    "PlacedSign",
    "PlacedXid",
    "Silence",
    "build_case",
]
