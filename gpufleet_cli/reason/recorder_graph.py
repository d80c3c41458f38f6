"""The wait-for graph over all process groups, and where its waiting ends.

A rank points at the operation it waits in, an operation at the members that are behind it. One node
stands for an operation of a whole group, so a barrier of the world costs one edge a rank, never a
pair. All of a node's successors must move before it can, so the ends explain the stall.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpufleet_cli.parsers.recorder_program import is_full_sync
from gpufleet_cli.reason.recorder_cast import other_number
from gpufleet_cli.reason.recorder_replay import Ghost, has_passed
from gpufleet_cli.reason.recorder_world import Group, Wait, World
from gpufleet_cli.verdict import CollectiveRef

HOST_BEHIND = "host-behind"
STREAM_BEHIND = "stream-behind"
GPU_BEHIND = "gpu-behind"
UNKNOWN = "unknown"
PAST = "past"
LEAST_LOST = 2
"""One collective that some members completed and others did not may be a link that broke in its
middle; peers cannot complete a second one without the rank."""


@dataclass(slots=True)
class Operation:
    """One operation that ranks wait in. `at` are the ranks in it, `behind` how others lag.

    `before` is the number of an operation of the same group that comes first. `pair` is the other
    side of a send or receive that stands at its end of the same operation.
    """

    number: int
    group: int
    wait: Wait
    at: list[int] = field(default_factory=list)
    behind: dict[int, str] = field(default_factory=dict)
    before: int | None = None
    pair: list[int] = field(default_factory=list)

    def ref(self, world: World) -> CollectiveRef:
        return world.groups[self.group].ref(self.wait.op.op, self.wait.op.seq)


@dataclass(slots=True)
class Stalled:
    """A rank whose own completions stopped: `behind_by` collectives that `peer` completed with it.
    0: its kernel alone has not started."""

    rank: int
    group: int
    behind_by: int
    peer: int | None
    own_completed: int
    peer_completed: int


@dataclass(slots=True)
class Graph:
    """`operation_of[rank]` is where a rank waits; stalled ranks wait for nobody."""

    world: World
    ghosts: Mapping[int, Ghost]
    operations: list[Operation]
    operation_of: dict[int, int]
    stalled: dict[int, Stalled]

    def is_ghost(self, rank: int) -> bool:
        return rank in self.ghosts

    def is_logged(self, rank: int) -> bool:
        """Whether a rank without a dump says in its log where it waits."""
        return rank in self.ghosts and self.ghosts[rank].is_logged

    def is_guess(self, rank: int) -> bool:
        """Whether nothing but its role says where a rank waits."""
        return rank in self.ghosts and not self.ghosts[rank].is_logged

    def successors(self, node: int) -> list[int]:
        """Ranks are nodes >= 0, operation i is node -1 - i."""
        if node >= 0:
            if node in self.stalled or node not in self.operation_of:
                return []
            return [-1 - self.operation_of[node]]
        operation = self.operations[-1 - node]
        found = sorted(operation.behind)
        if operation.before is not None:
            found.append(-1 - operation.before)
        # A batch on the other side may wait for a third.
        found += [-1 - self.operation_of[r] for r in operation.pair if r in self.operation_of]
        return found


def build(world: World, ghosts: Mapping[int, Ghost]) -> Graph:
    """All operations that ranks wait in, and who is behind them."""
    graph = Graph(world, ghosts, [], {}, {})
    collectives: dict[int, dict[int, list[Wait]]] = defaultdict(lambda: defaultdict(list))
    pairs: list[Wait] = []
    for wait in _all_waits(world, ghosts):
        if wait.op.is_p2p or wait.op.peers:
            pairs.append(wait)
        else:
            collectives[wait.group][wait.op.seq].append(wait)
    for number, levels in sorted(collectives.items()):
        _add_group(graph, world.groups[number], levels)
    for wait in pairs:
        _add_pair(graph, wait)
    graph.stalled.update(_stopped_completions(world))
    _never_started(graph)
    _hold_others(graph)
    return graph


def _all_waits(world: World, ghosts: Mapping[int, Ghost]) -> Iterable[Wait]:
    for rank in sorted(world.waits):
        yield world.waits[rank]
    for rank in sorted(ghosts):
        wait = ghosts[rank].wait
        if wait is not None:
            yield wait


# --- Collectives ----------------------------------------------------------------------------------


def _add_group(graph: Graph, group: Group, levels: Mapping[int, list[Wait]]) -> None:
    """The operations of one group, each member at or behind at most one of them."""
    here: set[int] = set()
    added: list[Operation] = []
    for seq in sorted(levels):
        operation = Operation(len(graph.operations), group.number, levels[seq][0])
        operation.at = [wait.rank for wait in levels[seq]]
        operation.before = added[-1].number if added else None
        here.update(operation.at)
        for rank in operation.at:
            graph.operation_of[rank] = operation.number
        graph.operations.append(operation)
        added.append(operation)
    for member in group.members:
        if member in here:
            continue
        entered, completed, known = _counters(graph, member, group)
        if not known:
            added[0].behind[member] = UNKNOWN
            continue
        for operation in added:
            seq = operation.wait.op.seq
            if completed < seq:
                operation.behind[member] = HOST_BEHIND if entered < seq else STREAM_BEHIND
                break


def _counters(graph: Graph, rank: int, group: Group) -> tuple[int, int, bool]:
    """(last entered, last completed, whether that is known) of a member of a group."""
    ghost = graph.ghosts.get(rank)
    if ghost is not None:
        known = group.number in ghost.entered
        return ghost.entered.get(group.number, 0), ghost.completed.get(group.number, 0), known
    if rank not in graph.world.dumps:
        return 0, 0, False
    entered = graph.world.entered(rank, group)
    if entered is None:
        # What others entered just now would be in its ring, if it had one.
        return -1, -1, graph.world.dumps[rank].entries > 0
    completed = graph.world.completed(rank, group)
    return entered, entered if completed is None else completed, True


# --- Sends and receives ---------------------------------------------------------------------------


def _add_pair(graph: Graph, wait: Wait) -> None:
    """A send, a receive, or a batch of them: one operation over the other sides.

    Pairs are matched by order from the newest completed one on, since rings may have wrapped
    differently: the first open send of one side belongs to the first open receive of the other.
    """
    world = graph.world
    group = world.groups[wait.group]
    operation = Operation(len(graph.operations), wait.group, wait, [wait.rank])
    graph.operations.append(operation)
    graph.operation_of[wait.rank] = operation.number
    own = group.index(wait.rank)
    for place, is_send in wait.op.peers:
        other = group.rank_at(place)
        if other is None or other == wait.rank:
            continue
        ghost = graph.ghosts.get(other)
        if ghost is not None or other not in world.dumps:
            behind = _ghost_lag(ghost, wait, own, is_send)
        else:
            behind = _pair_lag(world, group, other, own, is_send)
            if behind == HOST_BEHIND and len(wait.op.peers) == 1:
                behind = PAST if _has_ended_own(graph, group, wait, other) else behind
        if behind == PAST:
            continue
        if behind == "":
            operation.pair.append(other)
        elif operation.behind.get(other) != HOST_BEHIND:
            operation.behind[other] = behind


def _has_ended_own(graph: Graph, group: Group, wait: Wait, other: int) -> bool:
    """Whether the other side has its part of a transfer behind it: a small send ends without its
    receiver, and what is on its way is nobody's delay."""
    if wait.rank in graph.world.dumps:
        number = other_number(graph.world, wait.rank, group, wait.op)
    else:
        number = graph.ghosts[wait.rank].opposite if graph.is_logged(wait.rank) else None
    last = group.seen[other].last_p2p if other in group.seen else None
    if number is None or last is None or last < number:
        return False
    return all(op.seq != number for op in group.seen[other].open_ops if op.is_p2p)


def _pair_lag(world: World, group: Group, other: int, own: int | None, is_send: bool) -> str:
    """How a present rank lags in the counterpart of an operation; "" when it stands in it."""
    seen = group.seen.get(other)
    wanted = (own, not is_send)
    if seen is None or not any(wanted in op.peers for op in seen.open_ops):
        empty = not world.dumps[other].entries and not any(
            g.from_status for g in world.dumps[other].groups
        )
        return UNKNOWN if empty else HOST_BEHIND
    wait = world.waits[other]
    return "" if wait.group == group.number and wanted in wait.op.peers else STREAM_BEHIND


def _ghost_lag(ghost: Ghost | None, wait: Wait, own: int | None, is_send: bool) -> str:
    if ghost is None or ghost.wait is None:
        return UNKNOWN
    same = ghost.wait.group == wait.group and (own, not is_send) in ghost.wait.op.peers
    if ghost.part is not None and own is not None:
        group = next((g for g in ghost.part.own.values() if g.number == wait.group), None)
        if group is not None and has_passed(ghost.part, group, (own, not is_send), wait.op.seq):
            return PAST
    if same and ghost.opposite is not None:
        return "" if ghost.opposite == wait.op.seq else HOST_BEHIND
    return "" if same and ghost.wait.op.seq >= wait.op.seq else HOST_BEHIND


# --- Stalled GPUs ---------------------------------------------------------------------------------


def _stopped_completions(world: World) -> dict[int, Stalled]:
    """Ranks that do not see done what peers completed with them (facts: localisation 6).

    A full-sync collective that a peer completed had this rank's data, so its own record stopped:
    its context is in error, the GPU is gone, or the thread that polls died.
    """
    found: dict[int, Stalled] = {}
    lost_of: Counter[int] = Counter()
    for group in world.groups:
        if all(not seen.open_ops for seen in group.seen.values()):
            continue
        counts = [
            (count, -rank)
            for rank in group.seen
            if not world.dumps[rank].retired_only
            and (count := world.completed(rank, group)) is not None
        ]
        if not counts:
            continue
        best, peer = max(counts)
        for rank, seen in group.seen.items():
            lost = [
                op.seq
                for op in seen.open_ops
                if op.seq <= best and not op.is_p2p and not op.peers and is_full_sync(op.op)
            ]
            if not lost or world.dumps[rank].retired_only:
                continue
            lost_of[rank] += len(lost)
            if rank not in found or found[rank].behind_by < len(lost):
                own = seen.last_completed or 0
                found[rank] = Stalled(rank, group.number, len(lost), -peer, own, best)
    return {rank: stalled for rank, stalled in found.items() if lost_of[rank] >= LEAST_LOST}


def _hold_others(graph: Graph) -> None:
    """Ranks that stand in one operation with a stalled one wait for it. An operation of a group of
    one waits for nobody but its own GPU."""
    for operation in graph.operations:
        group = graph.world.groups[operation.group]
        if group.stated and len(group.members) == 1 and operation.at[0] in graph.world.dumps:
            done = operation.wait.op.seq - 1
            alone = Stalled(operation.at[0], operation.group, 0, None, done, done)
            graph.stalled.setdefault(operation.at[0], alone)
        for rank in (*operation.at, *operation.pair):
            if rank in graph.stalled:
                operation.behind[rank] = GPU_BEHIND


def _never_started(graph: Graph) -> None:
    """Where kernels are timed, a rank whose oldest open kernel has not started is held up by its own
    GPU: all that was before it is over. Others that wait have started theirs."""
    world = graph.world
    stamped = sum(dump.has_start_stamps for dump in world.dumps.values()) * 2 > len(world.dumps)
    timed = [r for r in world.waits if stamped or world.dumps[r].has_start_stamps]
    started = [rank for rank in timed if world.waits[rank].op.started]
    idle = [rank for rank in timed if world.waits[rank].op.started is False]
    if not started or not idle or len(idle) * 2 > len(timed):
        return
    for rank in idle:
        operation = graph.operations[graph.operation_of[rank]]
        seq = operation.wait.op.seq
        operation.behind[rank] = GPU_BEHIND
        peer = next((r for r in operation.at if r in started), None)
        graph.stalled.setdefault(rank, Stalled(rank, operation.group, 0, peer, seq - 1, seq - 1))


# --- Components -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Parts:
    """Strongly connected components, each after all it leads to; `part_of` by node."""

    parts: list[list[int]]
    part_of: dict[int, int]
    onward: list[set[int]]


def components(graph: Graph, starts: Iterable[int]) -> Parts:
    """Tarjan's algorithm without recursion, over what the waiting ranks lead to."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found = Parts([], {}, [])
    for start in starts:
        if start in order:
            continue
        work = [(start, iter(graph.successors(start)))]
        order[start] = low[start] = len(order)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, onward = work[-1]
            for successor in onward:
                if successor not in order:
                    order[successor] = low[successor] = len(order)
                    stack.append(successor)
                    on_stack.add(successor)
                    work.append((successor, iter(graph.successors(successor))))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], order[successor])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == order[node]:
                    _close(graph, found, stack, on_stack, node)
    return found


def _close(graph: Graph, found: Parts, stack: list[int], on_stack: set[int], node: int) -> None:
    """Take one finished component off the stack."""
    part = []
    while True:
        member = stack.pop()
        on_stack.discard(member)
        found.part_of[member] = len(found.parts)
        part.append(member)
        if member == node:
            break
    own = len(found.parts)
    found.parts.append(part)
    found.onward.append(
        {
            found.part_of[successor]
            for member in part
            for successor in graph.successors(member)
            if found.part_of[successor] != own
        }
    )
