"""Where the waiting ends, and how much of it ends there.

Ends that share a waiting rank belong to one fault, others are faults of their own. Ranks whose own
dump convicts them come first; an end that lies among missing ranks counts only for the waiting that
no convicted rank explains, and of several such ends the fewest that explain it (a greedy cover).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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


def roots(graph: Graph) -> list[Root]:
    """All roots, the ones that explain most first."""
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
    return sorted(found, key=lambda r: (-r.share, list(Terminal).index(r.kind), r.ranks))


def _ends(graph: Graph, parts: Parts, part: int) -> list[End]:
    nodes = parts.parts[part]
    ranks = sorted(node for node in nodes if node >= 0)
    if len(ranks) > 1:
        return [End(part, Terminal.CYCLE, tuple(ranks), _operation_of(graph, ranks[0]))]
    if len(nodes) > 1 or (ranks and ranks[0] in graph.stalled):
        return [End(part, Terminal.GPU_STALLED, tuple(ranks), _operation_of(graph, ranks[0]))]
    if ranks:
        kind = Terminal.HOST_SILENT if ranks[0] in graph.world.dumps else Terminal.HIDDEN
        return [End(part, kind, tuple(ranks), None)]
    operation = graph.operations[-1 - nodes[0]]
    everyone = sorted({*operation.at, *operation.pair})
    absent = tuple(rank for rank in everyone if rank not in graph.world.dumps)
    if absent:
        return [End(part, Terminal.HIDDEN, absent, operation)]
    return [End(part, Terminal.IN_FLIGHT, tuple(everyone), operation)]


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
    """Present ranks that wait, directly or not, for one of the ends (themselves not counted)."""
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
    return (found | at) - own if all(end.kind in CONVICTED for end in ends) else found | at


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
        part = max(reach, key=lambda p: (len(reach[p] - explained), -_size(by_part[p]), -p))
        news = reach.pop(part) - explained
        if not news:
            break
        end = by_part[part]
        reached = news | explained if end.kind is Terminal.HIDDEN and not found else news
        found.append(_root(graph, end.kind, [end], reached & set(graph.world.waits), virtual=False))
        explained |= news
    return found


def _size(end: End) -> int:
    return len(end.ranks)


def _root(
    graph: Graph, kind: Terminal, ends: Sequence[End], reached: set[int], *, virtual: bool
) -> Root:
    ranks = tuple(sorted({rank for end in ends for rank in end.ranks}))
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
    """The operation that most ranks wait in for these ends."""
    wanted = set(ranks)
    direct = [op for op in graph.operations if not wanted.isdisjoint(op.behind)]
    if not direct:
        direct = [end.operation for end in ends if end.operation is not None]
    if not direct:
        return CollectiveRef()
    best = max(direct, key=lambda op: (_present(graph.world.dumps, op), -op.number))
    return best.ref(graph.world)


def _present(dumps: Mapping[int, object], operation: Operation) -> int:
    return sum(rank in dumps for rank in operation.at)
