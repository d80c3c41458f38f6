"""Where the waiting ends, and how much of it ends there.

Ends that share a waiting rank belong to one fault, others are faults of their own. Ranks whose own
dump convicts them come first; an end that lies among missing ranks counts only for the waiting that
no convicted rank explains, and of several such ends the fewest that explain it (a greedy cover).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpufleet_cli.parsers.recorder_program import is_full_sync
from gpufleet_cli.reason.recorder_finding import GraphClaim, Root, Terminal
from gpufleet_cli.reason.recorder_graph import Graph, Operation, Parts, components
from gpufleet_cli.reason.recorder_words import (
    claims_of_silent,
    claims_of_stalled,
    claims_of_unknown,
)
from gpufleet_cli.verdict import CollectiveRef

MOST_ENDS = 64
CONVICTED = (Terminal.GPU_STALLED, Terminal.HOST_SILENT)


@dataclass(frozen=True, slots=True)
class End:
    """One end of the waiting: a component that leads nowhere."""

    part: int
    kind: Terminal
    ranks: tuple[int, ...]
    operation: Operation | None


def roots(graph: Graph) -> tuple[list[Root], tuple[int, ...]]:
    """All roots, the ones that explain most first; and missing ranks that some waiting leads to as
    well, where a rank that its own dump convicts explains more."""
    waiting = sorted(graph.operation_of)
    parts = components(graph, waiting)
    backward = _backward(parts)
    ends = [
        end
        for i in range(len(parts.parts))
        if not parts.onward[i]
        for end in _ends(graph, parts, i)
    ]
    found: list[Root] = []
    for cluster in _clusters(parts, ends):
        found += _of_cluster(graph, parts, backward, cluster)
    kept, guesses = _without_guesses(graph, _merged(graph, found))
    kept.sort(key=lambda r: (-r.share, list(Terminal).index(r.kind), r.ranks))
    return kept, guesses


def _without_guesses(graph: Graph, found: Sequence[Root]) -> tuple[list[Root], tuple[int, ...]]:
    """Less the ends at missing ranks of which little is known, where a rank that its own dump
    convicts explains more: a lost dump is likelier than a second fault."""
    convicted = max((root.share for root in found if root.kind in CONVICTED), default=0.0)
    guesses = [
        root
        for root in found
        if root.kind is Terminal.HIDDEN
        and root.share <= convicted
        and not _is_sure(graph, [rank for rank in root.ranks if graph.is_ghost(rank)])
    ]
    ranks = {rank for root in guesses for rank in root.ranks if graph.is_ghost(rank)}
    return [root for root in found if root not in guesses], tuple(sorted(ranks))


def _merged(graph: Graph, found: Sequence[Root]) -> list[Root]:
    """Hidden ends as one where they share a rank, or where the groups that would join them left no
    dump at all: the waiting behind one missing rank may then lead to the other."""
    hidden = [root for root in found if root.kind is Terminal.HIDDEN]
    loose = [
        root
        for root in hidden
        if any(graph.ghosts[r].is_partly_known for r in root.ranks if r in graph.ghosts)
        or any(other is not root and set(other.ranks) & set(root.ranks) for other in hidden)
    ]
    if len(loose) < 2:
        return list(found)
    first = max(loose, key=lambda root: (root.share, [-r for r in root.ranks]))
    ranks = tuple(sorted({rank for root in loose for rank in root.ranks}))
    blocked = sum(root.blocked for root in loose)
    waits = len(graph.world.waits)
    claims = claims_of_unknown(graph, Terminal.HIDDEN, ranks, None, blocked)
    one = replace(
        first, ranks=ranks, blocked=blocked, share=min(1.0, blocked / waits), claims=claims
    )
    return [one, *(root for root in found if root not in loose)]


def _ends(graph: Graph, parts: Parts, part: int) -> list[End]:
    nodes = parts.parts[part]
    ranks = sorted(node for node in nodes if node >= 0)
    replayed = [rank for rank in ranks if graph.is_guess(rank)]
    if replayed:  # a circle through a place that was only worked out convicts nobody
        entered = {r for node in nodes if node < 0 for r in graph.operations[-1 - node].at}
        among = sorted({*replayed, *(entered & graph.ghosts.keys())})
        return [End(part, Terminal.HIDDEN, tuple(among), _operation_of(graph, replayed[0]))]
    if len(ranks) > 1:
        return [End(part, Terminal.CYCLE, tuple(ranks), _operation_of(graph, ranks[0]))]
    if ranks and ranks[0] in graph.stalled:
        return [End(part, Terminal.GPU_STALLED, tuple(ranks), _operation_of(graph, ranks[0]))]
    if ranks:
        if ranks[0] in graph.world.dumps:
            return [End(part, Terminal.HOST_SILENT, tuple(ranks), None)]
        return [End(part, Terminal.HIDDEN, tuple(ranks), None)]
    operations = [graph.operations[-1 - node] for node in sorted(nodes, reverse=True)]
    operation = operations[0]
    everyone = sorted({r for op in operations for r in (*op.at, *op.pair, *_ends_of(graph, op))})
    absent = [r for r in everyone if r not in graph.world.dumps and not graph.is_logged(r)]
    if not absent and not graph.world.groups[operation.group].stated:
        absent = _unseen(graph)  # who belongs to the group is known only of those with a dump
    if absent:
        return [End(part, Terminal.HIDDEN, tuple(absent), operation)]
    # A member that waits elsewhere by its log saw the end of it alone, or never called it.
    whole = not operation.wait.op.peers and not is_torn(graph, operation)
    members = graph.world.groups[operation.group].members if whole else ()
    past = {rank for rank in members if graph.is_logged(rank) and rank not in operation.behind}
    return [End(part, Terminal.IN_FLIGHT, tuple(sorted({*everyone, *past})), operation)]


def is_torn(graph: Graph, operation: Operation) -> bool:
    """Whether a member has completed what others wait in: then all had entered it, and nobody who is
    missing holds it up."""
    group = graph.world.groups[operation.group]
    op = operation.wait.op
    if op.is_p2p or op.peers or not is_full_sync(op.op):
        return False
    return any(
        (graph.world.completed(rank, group) or 0) >= op.seq
        and all(own.seq != op.seq for own in seen.open_ops)
        for rank, seen in group.seen.items()
    )


def _ends_of(graph: Graph, operation: Operation) -> list[int]:
    """Both ends of a send or receive; one whose own part is over is not behind."""
    group = graph.world.groups[operation.group]
    peers = operation.wait.op.peers
    found = [group.rank_at(place) for place, _ in peers] if len(peers) == 1 else []
    return [rank for rank in found if rank is not None]


def _unseen(graph: Graph) -> list[int]:
    """Ranks of the job that left no dump."""
    highest = max(graph.world.dumps, default=-1)
    lower = (rank for rank in range(highest) if rank not in graph.world.dumps)
    return sorted({*lower, *graph.ghosts})


def _perhaps(graph: Graph, absent: Sequence[int]) -> tuple[int, ...]:
    """The set that an end among missing ranks leaves.

    Where dumps show that a missing rank cannot have left its operation, which all others have
    entered, it is one of those in there. Else it may have gone on and wait itself, for another
    missing rank or for one that has a dump and nothing open: in a stall everybody else waits.
    """
    if _is_sure(graph, absent):
        return tuple(sorted(absent))
    waited_for = {rank for op in graph.operations for rank in (*op.behind, *op.at)}
    idle = {rank for rank in graph.world.dumps if rank not in graph.world.waits}
    perhaps = {r for r, ghost in graph.ghosts.items() if r in waited_for or not ghost.is_sure}
    return tuple(sorted({*absent, *perhaps, *idle}))


def _is_sure(graph: Graph, absent: Sequence[int]) -> bool:
    return all(rank in graph.ghosts and graph.ghosts[rank].is_sure for rank in absent)


def _operation_of(graph: Graph, rank: int) -> Operation | None:
    number = graph.operation_of.get(rank)
    return None if number is None else graph.operations[number]


def _backward(parts: Parts) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in parts.parts]
    for part, onward in enumerate(parts.onward):
        for target in onward:
            found[target].append(part)
    return found


def _clusters(parts: Parts, ends: Sequence[End]) -> list[list[End]]:
    """Ends that some waiting rank leads to both belong together."""
    parent = list(range(len(parts.parts)))

    def find(part: int) -> int:
        while parent[part] != part:
            parent[part] = parent[parent[part]]
            part = parent[part]
        return part

    for part, onward in enumerate(parts.onward):
        for target in onward:
            parent[find(part)] = find(target)
    found: dict[int, list[End]] = defaultdict(list)
    for end in ends:
        found[find(end.part)].append(end)
    return [found[key] for key in sorted(found)]


def _reaching(
    graph: Graph,
    parts: Parts,
    backward: Sequence[Sequence[int]],
    ends: Iterable[End],
    *,
    through_ghosts: bool = True,
) -> set[int]:
    """Present ranks that wait, directly or not, for one of the ends; convicted ones not counted."""
    todo = [end.part for end in ends]
    own = {rank for part in todo for rank in parts.parts[part] if rank >= 0}
    seen = set(todo)
    found: set[int] = set()
    while todo:
        for part in backward[todo.pop()]:
            if part in seen:
                continue
            ranks = [node for node in parts.parts[part] if node >= 0]
            if not through_ghosts and any(graph.is_ghost(rank) for rank in ranks):
                continue
            seen.add(part)
            todo.append(part)
            found.update(rank for rank in ranks if rank in graph.world.dumps)
    at = {
        rank
        for end in ends
        if end.operation is not None and end.kind not in CONVICTED
        for rank in (*end.operation.at, *end.operation.pair)
        if rank in graph.world.dumps
    }
    if all(end.kind in CONVICTED for end in ends):
        return found - own
    return found | at | {rank for rank in own if rank in graph.world.dumps}


def _of_cluster(
    graph: Graph, parts: Parts, backward: Sequence[Sequence[int]], cluster: Sequence[End]
) -> list[Root]:
    found: list[Root] = []
    explained: set[int] = set()
    for kind in CONVICTED:
        same = [end for end in cluster if end.kind is kind]
        if same:
            reached = _reaching(graph, parts, backward, same)
            direct = _reaching(graph, parts, backward, same, through_ghosts=False)
            found.append(_root(graph, kind, same, reached, virtual=bool(reached) and not direct))
            explained |= reached | {rank for end in same for rank in end.ranks}
    others = [end for end in cluster if end.kind not in CONVICTED]
    reach = {
        end.part: _reaching(graph, parts, backward, [end])
        for end in sorted(others, key=lambda end: (-len(backward[end.part]), end.part))[:MOST_ENDS]
    }
    by_part = {end.part: end for end in others}
    while reach:
        best = max(reach, key=lambda p: (len(reach[p] - explained), -_size(by_part[p]), -p))
        news = reach[best] - explained
        if not news:
            break
        kind = by_part[best].kind
        alike = [best]
        if kind is Terminal.HIDDEN:
            # Ends that explain the same are told apart by nothing, and an end of which little is
            # known may lead to any other: all of these stay in the set.
            hidden = [p for p in sorted(reach) if by_part[p].kind is Terminal.HIDDEN]
            sure = all(_is_sure(graph, by_part[p].ranks) for p in hidden)
            alike = [p for p in hidden if reach[p] >= news or not sure]
        reached = set().union(*(reach.pop(part) for part in alike)) & set(graph.world.waits)
        same = [by_part[best], *(by_part[part] for part in alike if part != best)]
        found.append(_root(graph, kind, same, reached - explained, virtual=False))
        explained |= reached
    return found


def _size(end: End) -> int:
    return len(end.ranks)


def _root(
    graph: Graph, kind: Terminal, ends: Sequence[End], reached: set[int], *, virtual: bool
) -> Root:
    ranks = tuple(sorted({rank for end in ends for rank in end.ranks}))
    if kind is Terminal.HIDDEN:
        ranks = _perhaps(graph, ranks)
    blocked = len(graph.world.waits)
    waited_on = _waited_on(graph, ranks, ends)
    claims: tuple[GraphClaim, ...]
    if kind is Terminal.HOST_SILENT:
        claims = claims_of_silent(graph, ranks, len(reached))
    elif kind is Terminal.GPU_STALLED:
        claims = claims_of_stalled(graph, ranks, len(reached))
    else:
        claims = claims_of_unknown(graph, kind, ranks, ends[0].operation, len(reached))
    return Root(
        kind=kind,
        ranks=ranks,
        share=len(reached | (set(ranks) & set(graph.world.waits))) / blocked if blocked else 0.0,
        blocked=len(reached),
        virtual=virtual,
        claims=claims,
        waited_on=waited_on,
        behind_by=max((graph.stalled[r].behind_by for r in ranks if r in graph.stalled), default=0),
    )


def _waited_on(graph: Graph, ranks: Sequence[int], ends: Sequence[End]) -> CollectiveRef:
    """The operation that most ranks wait in for these ends, or that is the end itself."""
    wanted = set(ranks)
    direct = [
        end.operation for end in ends if end.operation is not None and end.kind not in CONVICTED
    ]
    if not direct:
        direct = [op for op in graph.operations if not wanted.isdisjoint(op.behind)]
    if not direct:
        return CollectiveRef()
    best = max(direct, key=lambda op: (_present(graph.world.dumps, op), -op.number))
    return best.ref(graph.world)


def _present(dumps: Mapping[int, object], operation: Operation) -> int:
    return sum(rank in dumps for rank in operation.at)
