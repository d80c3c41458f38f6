"""From facts to a Case, in order: choose the attempt, build the identity map, correct the clocks, then place
every fact on its rank and node and judge it against the onset of the incident.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from gpufleet_cli.facts import (
    ClusterEvent,
    Fact,
    GangHeld,
    Gap,
    GpuReading,
    GroupStatus,
    HostEvent,
    IdentityLink,
    JobNumbers,
    KernelLogSpan,
    KubeletReply,
    LogSign,
    NodeBoot,
    NodeLease,
    NodeState,
    PodState,
    Progress,
    RankDump,
    RestartRoom,
    SchedulerJob,
    SchedulerNode,
    SeriesEnd,
    SxidEvent,
    WatchdogTimeout,
    Writes,
    XidEvent,
)
from gpufleet_cli.reason import (
    Case,
    attempts,
    clocks,
    job_state,
    kernel_times,
    onset,
    pauses,
    recorder_cast,
    recorder_live,
    silence,
    timeline,
    topology,
    wait_graph,
    world_size,
    xid_history,
    years,
)
from gpufleet_cli.reason.placed import (
    NS,
    Checkpoints,
    Pause,
    Placed,
    PlacedSign,
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


def build_case(
    facts: Iterable[Fact],
    *,
    as_of_ns: int | None,
    captured_ns: int | None,
    gathered_world_size: int | None = None,
) -> Case:
    """Join the facts of one target into the case of its subject attempt.

    The subject is the newest attempt that failed or stalled, if it ended within the look-back, even
    when a younger one runs; else the newest. `gathered_world_size` is what a bundle's manifest says that
    the pods start.
    """
    build = partial(_build, captured_ns=captured_ns, gathered=gathered_world_size)
    listed = tuple(facts)
    known = as_of_ns if as_of_ns is not None else captured_ns
    listed = tuple(years.with_years(listed, years.near(listed, known)))
    newest = build(attempts.split(listed), as_of_ns=as_of_ns)
    if newest.stop.stopped or not any(
        s.fact.sign in job_state.ABORT_SIGNS for s in newest.earlier_signs
    ):
        return newest
    before = build(attempts.split(listed, without_newest=True), as_of_ns=newest.as_of_ns)
    ended = before.stop.ended_ns
    if not before.stop.stopped or before.stop.state == "exited" or ended is None:
        return newest
    if newest.as_of_ns is None or (newest.as_of_ns - ended) / NS > LOOK_BACK_S:
        return newest
    return replace(before, stop=replace(before.stop, proof="older-attempt"))


def _build(
    subject: attempts.Attempts,
    *,
    as_of_ns: int | None,
    captured_ns: int | None,
    gathered: int | None,
) -> Case:
    facts = subject.current
    given = tuple(
        sorted(_of(facts, JobNumbers), key=lambda n: (n.source != "flag", str(n.origin or "")))
    )
    dumps = _of(facts, RankDump)
    places = _topology(subject, given, dumps, gathered)
    graph = _graph(facts, dumps, places)
    offsets = clocks.offsets(
        _of(facts, Progress),
        _of(facts, WatchdogTimeout),
        places,
        {} if graph is None else graph.clock_offsets,
    )
    logs = _log_views(subject, given, places, offsets)
    when = _situation(facts, given, logs, graph, as_of_ns=as_of_ns, captured_ns=captured_ns)
    graph = when.graph
    xids, hosts, sxids = _kernel_events(facts, given, when)
    return Case(
        given=given,
        topology=places,
        attempt=subject.attempt,
        cycle=subject.cycle,
        as_of_ns=when.now_ns,
        is_as_of_told=as_of_ns is not None or captured_ns is not None,
        timeout_s=when.timeout_s,
        timeout_source=when.timeout_source,
        onset_ns=when.onset_ns,
        first_timeout_ns=min((t.at_ns for t in logs.timeouts if t.at_ns is not None), default=None),
        timeouts=logs.timeouts,
        witnesses=frozenset(t.rank for t in logs.timeouts if t.rank is not None),
        statuses=_placed(_of(facts, GroupStatus), places, offsets),
        signs=logs.signs,
        earlier_signs=logs.earlier_signs,
        steps=logs.steps,
        checkpoints=when.saves,
        pause=when.pause,
        silence=logs.silence,
        writes=_of(facts, Writes),
        init_links=tuple(link for link in _of(facts, IdentityLink) if link.comm is not None),
        graph=graph,
        xids=xid_history.place_xids(xids, places, offsets, when.span, when.onset_ns),
        sxids=xid_history.place_sxids(sxids, places, offsets, when.span),
        hosts=xid_history.place_hosts(hosts, places, offsets, when.span),
        series_ends=_of(facts, SeriesEnd),
        readings=_of(facts, GpuReading),
        leases=_of(facts, NodeLease),
        kubelets=_of(facts, KubeletReply),
        kernel_spans=_of(facts, KernelLogSpan),
        pods=_of(facts, PodState),
        nodes=_of(facts, NodeState),
        events=_date_events(_of(facts, ClusterEvent), when.now_ns),
        held=_of(facts, GangHeld),
        restart_rooms=_of(facts, RestartRoom),
        scheduler_jobs=_of(facts, SchedulerJob),
        scheduler_nodes=_of(facts, SchedulerNode),
        stop=when.stop,
        offsets=offsets,
        gaps=_of(facts, Gap),
    )


def _graph(
    facts: Sequence[Fact], dumps: Sequence[RankDump], places: Topology
) -> GraphFinding | None:
    if not dumps:
        return None
    return wait_graph.analyse(
        dumps,
        world_size=places.world_size,
        node_of={rank: p.node for rank, p in places.places.items() if p.node is not None},
        unreadable=wait_graph.unreadable_ranks(facts),
        logged=_logged_waits(facts, places),
    )


def _logged_waits(facts: Sequence[Fact], places: Topology) -> dict[int, recorder_cast.Logged]:
    """By rank, the oldest operation that its own watchdog gave up on."""
    statuses = {
        (s.rank, s.fact.work): s.fact.group
        for s in _placed(_of(facts, GroupStatus), places, {})
        if s.fact.group is not None and s.fact.work is not None
    }
    found: dict[int, tuple[int, recorder_cast.Logged]] = {}
    for timeout in _placed(_of(facts, WatchdogTimeout), places, {}):
        rank, fact = timeout.rank, timeout.fact
        if rank is None or fact.seq is None or timeout.at_ns is None:
            continue
        group = fact.group or statuses.get((rank, fact.seq))
        began = timeout.at_ns - fact.ran_ms * 1_000_000
        logged = recorder_cast.Logged(
            group=None if group is None else group.name,
            seq=fact.seq,
            op=fact.op,
            desc=None if group is None else group.desc,
        )
        if rank not in found or began < found[rank][0]:
            found[rank] = began, logged
    return {rank: logged for rank, (_, logged) in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logs:
    """What the logs say, placed."""

    timeouts: tuple[Placed[WatchdogTimeout], ...]
    signs: tuple[PlacedSign, ...]
    earlier_signs: tuple[PlacedSign, ...]
    steps: Steps
    silence: Mapping[int, Silence]


def _log_views(
    subject: attempts.Attempts,
    given: Sequence[JobNumbers],
    places: Topology,
    offsets: Mapping[str, clocks.Offset],
) -> _Logs:
    timeouts = _placed(_of(subject.current, WatchdogTimeout), places, offsets)
    complained: dict[int, int] = {}
    for timeout in timeouts:
        if timeout.rank is not None and timeout.at_ns is not None:
            complained.setdefault(timeout.rank, timeout.at_ns)
    progress = _place_progress(_of(subject.current, Progress), places, offsets)
    return _Logs(
        timeouts=timeouts,
        signs=_placed(_of(subject.current, LogSign), places, offsets),
        earlier_signs=_placed(_of(subject.earlier, LogSign), places, offsets),
        steps=timeline.steps(progress, _of(subject.earlier, Progress), given),
        silence=silence.by_rank(_of(subject.current, Writes), places, offsets, complained),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Situation:
    """When it is, when it began, whether it has stopped, and the times in which a cause may lie."""

    now_ns: int | None
    onset_ns: int | None
    timeout_s: float
    timeout_source: str
    saves: Checkpoints
    pause: Pause | None
    graph: GraphFinding | None
    stop: Stop
    span: tuple[int, int] | None


def _situation(
    facts: Sequence[Fact],
    given: Sequence[JobNumbers],
    logs: _Logs,
    graph: GraphFinding | None,
    *,
    as_of_ns: int | None,
    captured_ns: int | None,
) -> _Situation:
    timeout_s, timeout_source = _timeout(given, logs.timeouts, graph)
    now = as_of_ns
    if now is None:
        now = _newest(
            given, captured_ns, logs.signs, logs.timeouts, logs.steps, logs.silence, graph
        )
        now = now if captured_ns is not None else _newest_of_hosts(facts, now)
    pause = pauses.explained(
        logs.steps,
        logs.signs,
        timeline.checkpoints(logs.signs, logs.earlier_signs, given, None),
        now_ns=now,
        timeout_s=timeout_s,
    )
    is_told = as_of_ns is not None or captured_ns is not None
    taken = now if is_told and not logs.timeouts else None
    dumped = [dump.newest_ns for dump in _of(facts, RankDump) if dump.newest_ns is not None]
    graph = recorder_live.in_a_running_job(graph, logs.steps, pause, taken, timeout_s, dumped)
    if graph is not None and not logs.timeouts and recorder_live.is_scattered(graph):
        graph = recorder_live.without_ends(graph)
    onset_ns = onset.began_ns(logs.timeouts, graph, logs.signs, logs.steps)
    stop = job_state.judge(
        given=given,
        signs=logs.signs,
        timeouts=logs.timeouts,
        steps=logs.steps,
        pods=_of(facts, PodState),
        scheduler=_of(facts, SchedulerJob),
        graph=graph,
        as_of_ns=now,
        pause=pause,
        dumped=dumped,
    )
    saves = timeline.checkpoints(logs.signs, logs.earlier_signs, given, onset_ns)
    if stop.state == "running":
        onset_ns = logs.steps.changed_ns
    return _Situation(
        now_ns=now,
        onset_ns=onset_ns,
        timeout_s=timeout_s,
        timeout_source=timeout_source,
        saves=saves,
        pause=pause,
        graph=graph,
        stop=stop,
        span=xid_history.window(onset_ns, now, timeout_s),
    )


def _kernel_events(
    facts: Sequence[Fact], given: Sequence[JobNumbers], when: _Situation
) -> tuple[list[XidEvent], list[HostEvent], list[SxidEvent]]:
    """Kernel events with year, boot time and zone put in, each once."""
    near = when.now_ns if when.now_ns is not None else when.onset_ns
    boots = kernel_times.boots(given, _of(facts, NodeBoot))
    xids = kernel_times.dated(_of(facts, XidEvent), near, boots)
    hosts = kernel_times.dated(_of(facts, HostEvent), near, boots)
    sxids = kernel_times.dated(_of(facts, SxidEvent), near, boots)
    shift = xid_history.zone_shift_s([*xids, *hosts], when.span, when.onset_ns)
    return (
        kernel_times.in_zone(xids, shift),
        kernel_times.in_zone(hosts, shift),
        kernel_times.in_zone(sxids, shift),
    )


def _of(facts: Iterable[Fact], kind: type[F]) -> tuple[F, ...]:
    return tuple(fact for fact in facts if isinstance(fact, kind))


def _topology(
    subject: attempts.Attempts,
    given: Sequence[JobNumbers],
    dumps: Sequence[RankDump],
    gathered: int | None,
) -> Topology:
    recorded = wait_graph.recorded_world_size(dumps)
    timeouts = _of(subject.current, WatchdogTimeout)
    return topology.build(
        links=_of(subject.current, IdentityLink),
        speakers=[s for s in map(attempts.speaker_of, subject.current) if s is not None],
        pods=_of(subject.current, PodState),
        nodes=_of(subject.current, NodeState),
        stated_world_size=world_size.stated(given, timeouts, recorded),
        recorder_world_size=recorded,
        gpus_per_node=next((n.gpus_per_node for n in given if n.gpus_per_node is not None), None),
        gathered_world_size=gathered,
    )


def _placed(
    facts: Sequence[T], places: Topology, offsets: Mapping[str, clocks.Offset]
) -> tuple[Placed[T], ...]:
    found = []
    for fact in facts:
        at_ns = None if isinstance(fact, Progress) else fact.at_ns
        rank = places.by_speaker.get(fact.speaker)
        clock = places.clock_of(fact.speaker)
        if rank is None and isinstance(fact, WatchdogTimeout | GroupStatus):
            rank = _rank_in_world(fact, places)
        found.append(
            Placed(
                fact=fact,
                rank=rank,
                node=places.node_of_speaker(fact.speaker),
                at_ns=clocks.corrected(at_ns, clock, offsets),
                clock=clock,
                clock_error_s=clocks.error_s(clock, offsets, unknown_s=clocks.UNKNOWN_ERROR_S),
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
                p.fact.points[-1].at_ns if p.fact.points else None,
                places.clock_of(p.fact.speaker),
                offsets,
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


def _date_events(events: Sequence[ClusterEvent], now: int | None) -> tuple[ClusterEvent, ...]:
    """Relative ages counted back from the time of the analysis."""
    dated = [
        replace(e, at_ns=now - round(e.age_s * NS))
        if e.at_ns is None and e.age_s is not None and now is not None
        else e
        for e in events
    ]
    return tuple(sorted(dated, key=lambda e: (e.at_ns or 0, str(e.origin))))
