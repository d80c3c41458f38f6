"""Who waits for whom, by the Flight Recorder dumps of all ranks, and where that waiting ends.

The order of the argument (facts: localisation, sections 1 to 7): choose the dumps of one attempt and
one moment; find where ranks run different programs; give ranks without a dump the place that a
healthy one would have; draw the waiting over all process groups; take its ends. Sequence numbers
decide and clocks only date, so clocks that are hours apart change nothing.

It cannot see what a rank waits for outside the recorder (a store, a file, another backend), nor how
long an operation was open where the dump's own times do not tell; `Stall` says which it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from gpufleet_cli.facts import Fact, Gap, Origin, RankDump
from gpufleet_cli.reason import (
    programs,
    recorder_cast,
    recorder_graph,
    recorder_order,
    recorder_replay,
    recorder_roles,
    recorder_select,
    recorder_suppose,
)
from gpufleet_cli.reason.recorder_clocks import clock_offsets as clock_offsets
from gpufleet_cli.reason.recorder_finding import (
    GraphClaim as GraphClaim,
)
from gpufleet_cli.reason.recorder_finding import (
    GraphFinding as GraphFinding,
)
from gpufleet_cli.reason.recorder_finding import (
    Mismatch,
    Root,
    Stall,
    Terminal,
)
from gpufleet_cli.reason.recorder_graph import Graph, Operation
from gpufleet_cli.reason.recorder_report import explain_rank as explain_rank
from gpufleet_cli.reason.recorder_report import report, standings
from gpufleet_cli.reason.recorder_roots import CONVICTED, is_torn, roots
from gpufleet_cli.reason.recorder_select import Selection
from gpufleet_cli.reason.recorder_words import claims_of_unknown
from gpufleet_cli.reason.recorder_world import World
from gpufleet_cli.verdict import CollectiveRef

NS = 1_000_000_000
MOST_EARLY = 0.25
MOST_WAIT, NEARLY_ALL_WAIT, FEW_ENDS = 0.75, 0.8, 0.25
YOUNG_S, YOUNG_PART = 1.0, 0.05
NODE_LOST_PART = 0.5
MOST_EDGES = 256
MOST_LATE = 1024


def recorded_world_size(dumps: Sequence[RankDump]) -> int | None:
    """The size of the largest group, which is the default group, or what the ranks at hand need."""
    sizes = [len(group.members) for dump in dumps for group in dump.groups if group.members]
    ranks = [dump.rank + 1 for dump in dumps]
    return max([*sizes, *ranks], default=None)


def analyse(
    dumps: Sequence[RankDump],
    *,
    world_size: int | None,
    node_of: Mapping[int, str],
    unreadable: Collection[int] = (),
    logged: Mapping[int, recorder_cast.Logged] = MappingProxyType({}),
) -> GraphFinding:
    """All that the dumps show. `unreadable` are ranks whose file is there and cannot be read;
    `logged` is what ranks say themselves of the operation that they wait in."""
    chosen = recorder_select.select(dumps, node_of)
    is_moving = _is_moving(chosen)
    if chosen.early and not is_moving:
        chosen = recorder_select.drop(chosen, chosen.early)
    world = chosen.world
    missing = _missing(world, world_size)
    parts = {} if is_moving else recorder_cast.cast(world, missing, logged)
    ghosts = recorder_replay.ghosts(world, parts)
    graph = recorder_graph.build(world, ghosts)
    base = GraphFinding(
        dumps=len(dumps),
        world_size=world_size,
        stall=Stall.NONE,
        blocked=len(world.waits),
        newest_ns=max((d.newest_ns for d in world.dumps.values() if d.newest_ns), default=None),
        timeout_s=_timeout_s(world),
        timed_out_origin=_timed_out(world),
        missing=tuple(sorted(missing)),
        unreadable=tuple(sorted(set(unreadable) & missing)),
        stale=chosen.stale,
        early=chosen.early,
        whole_nodes=_whole_nodes(world, missing, node_of),
        clock_offsets=clock_offsets(list(world.dumps.values()), node_of),
        gaps=(*chosen.gaps, *_missing_gaps(missing, chosen, unreadable)),
    )
    quiet = _no_fault(world, chosen, graph, is_moving=is_moving)
    if quiet is not None and base.timed_out_origin is None:
        finding = replace(base, no_fault=True, no_fault_claims=quiet)
    else:
        finding = _with_roots(base, graph, parts)
    finding = replace(finding, standing=standings(finding, graph), edges=_edges(graph))
    return replace(finding, report=report(finding, graph))


# --- Which ranks are there ------------------------------------------------------------------------


def _missing(world: World, world_size: int | None) -> set[int]:
    known = {rank for group in world.groups if group.stated for rank in group.members}
    if world_size is not None:
        known = {rank for rank in known if rank < world_size} | set(range(world_size))
    return known - set(world.dumps)


def _missing_gaps(
    missing: Collection[int], chosen: Selection, unreadable: Collection[int]
) -> list[Gap]:
    told = {*chosen.stale, *chosen.early, *unreadable}
    return [
        Gap(
            what=f"flight recorder dump of rank {rank}",
            why="no file",
            would_settle=f"where rank {rank} stopped",
            rank=rank,
        )
        for rank in sorted(set(missing) - told)
    ]


def _whole_nodes(
    world: World, missing: Collection[int], node_of: Mapping[int, str]
) -> tuple[str, ...]:
    """Nodes that left no dump at all, where most others did."""
    by_node: dict[str, list[int]] = defaultdict(list)
    for rank, node in node_of.items():
        by_node[node].append(rank)
    lost = [node for node, ranks in by_node.items() if all(rank in missing for rank in ranks)]
    return tuple(sorted(lost)) if len(lost) <= NODE_LOST_PART * len(by_node) else ()


def _timeout_s(world: World) -> float | None:
    known = [d.timeout_ms for d in world.dumps.values() if d.timeout_ms is not None]
    return min(known) / 1000 if known else None


def _timed_out(world: World) -> Origin | None:
    """An entry that its dump shows to be older than its timeout: the job has stopped."""
    for rank in sorted(world.dumps):
        dump = world.dumps[rank]
        if dump.timed_out is not None:
            return Origin(path=dump.path, entry=dump.timed_out)
    return None


# --- Whether anything is stuck --------------------------------------------------------------------


def _is_moving(chosen: Selection) -> bool:
    """Whether the job went on between its dumps: too many were left behind for a few lost ones."""
    if not chosen.early:
        return False
    world = chosen.world
    rest = set(world.dumps) - set(chosen.early)
    waiting = sum(rank in world.waits for rank in rest)
    few = len(chosen.early) <= MOST_EARLY * len(world.dumps)
    return not (few and waiting >= NEARLY_ALL_WAIT * len(rest))


def _no_fault(
    world: World, chosen: Selection, graph: Graph, *, is_moving: bool
) -> tuple[GraphClaim, ...] | None:
    """What shows that nothing is stuck; None where something may be."""
    if not world.dumps:
        return None
    if is_moving:
        return _moving_claims(world, chosen)
    if programs.mismatches(world) or graph.stalled:
        return None
    count, waiting = len(world.dumps), len(world.waits)
    first = world.dumps[min(world.dumps)].origin
    if not waiting:
        return (_claim(f"none of {count:,} ranks with a dump has an operation open", first),)
    young = _young(world)
    if young is not None:
        return young
    idle = {rank for op in graph.operations for rank in op.behind if rank in world.dumps}
    idle -= world.waits.keys()
    if waiting + len(idle) < MOST_WAIT * count or len(idle) > max(2, FEW_ENDS * count):
        text = f"only {waiting:,} of {count:,} ranks have an operation open: a job in mid-step"
        return (_claim(text, first),)
    return None


def _claim(text: str, origin: Origin | None, rank: int | None = None) -> GraphClaim:
    return GraphClaim(text=text, origin=origin, rank=rank)


def _moving_claims(world: World, chosen: Selection) -> tuple[GraphClaim, ...]:
    early = chosen.early[0]
    ahead = next((r for r in sorted(world.dumps) if r not in set(chosen.early)), early)
    text = (
        f"the job moved on while it was dumped: peers completed collectives that {len(chosen.early):,}"
        f" of {len(world.dumps):,} ranks had not entered by their dumps, and none had timed out"
    )
    return (
        _claim(text, world.dumps[ahead].origin),
        _claim(f"rank {early} had not entered them yet", world.dumps[early].origin, early),
    )


def _young(world: World) -> tuple[GraphClaim, ...] | None:
    """Where dumps tell when they were made, operations that were opened just before are no stall."""
    ages = []
    for rank, wait in sorted(world.waits.items()):
        dump = world.dumps[rank]
        if wait.op.gave_up:
            return None
        if dump.dumped_ns is not None and wait.op.created_ns is not None:
            limit = max(YOUNG_S, YOUNG_PART * (wait.op.timeout_ms or 0) / 1000)
            ages.append(((dump.dumped_ns - wait.op.created_ns) / NS, limit, rank))
    if len(ages) * 2 < len(world.waits) or any(age > limit for age, limit, _ in ages):
        return None
    age, _, rank = max(ages)
    text = f"the oldest open operation was {age:.1f} s old when its dump was made"
    return (_claim(text, world.dumps[rank].origin, rank),)


# --- The roots ------------------------------------------------------------------------------------


def _with_roots(
    base: GraphFinding, graph: Graph, parts: Mapping[int, recorder_cast.Part]
) -> GraphFinding:
    world = graph.world
    mismatched = programs.mismatches(world)
    ends, unsettled = roots(graph)
    ends = _without_cleared(graph, parts, ends)
    in_question = _in_question(graph, ends, mismatched)
    diverged = recorder_roles.divergences(world, in_question, _logged_places(graph))
    miscounted = [] if diverged else recorder_roles.miscounts(world, in_question)
    if diverged or miscounted:
        left = (
            recorder_roles.mismatch(world, diverged)
            if diverged
            else recorder_roles.miscount_mismatch(world, miscounted)
        )
        mismatched.insert(0, left)
        found = [r for r in ends if r.kind not in (Terminal.CYCLE, Terminal.HIDDEN)]
    else:
        found, ordered = _resolve_circles(graph, ends)
        mismatched += ordered
    disputed = {(m.collective.group, m.collective.desc, m.collective.seq) for m in mismatched}
    found = [
        _dated(root, graph, base)
        for root in found
        if root.kind not in (Terminal.IN_FLIGHT, Terminal.CYCLE)
        or (root.waited_on.group, root.waited_on.desc, root.waited_on.seq) not in disputed
    ]
    stall = _stall(base, found, mismatched)
    main = found[0] if found else None
    if mismatched:
        waited_on: CollectiveRef | None = mismatched[0].collective
    else:
        waited_on = main.waited_on if main is not None else None
    onset = main.onset_ns if main is not None else _onset(graph, sorted(world.dumps))
    culprits = {
        r
        for root in found
        if root.kind in (Terminal.HOST_SILENT, Terminal.GPU_STALLED)
        for r in root.ranks
    }
    return replace(
        base,
        stall=stall,
        roots=tuple(found),
        mismatches=tuple(mismatched),
        waiting=frozenset(world.waits) - culprits if found or mismatched else frozenset(),
        waited_on=waited_on,
        onset_ns=onset,
        unsettled=unsettled,
    )


def _without_cleared(
    graph: Graph, parts: Mapping[int, recorder_cast.Part], found: Sequence[Root]
) -> list[Root]:
    """Hidden ends as one: of the ranks any of which explains all of them by having stopped alone, else
    of an operation that explains them by hanging in flight.

    Where nothing alone explains all, there is more than one fault and the ends stay as they are. Where
    ranks that have dumps wait for one another in a circle, what the missing ones do explains nothing.
    """
    hidden = [root for root in found if root.kind is Terminal.HIDDEN]
    rest = [root for root in found if root.kind is not Terminal.HIDDEN]
    if not hidden:
        return list(found)
    if any(root.kind is Terminal.CYCLE for root in rest):
        return rest
    suspects = {rank for root in hidden for rank in root.ranks}
    torn = [op for op in graph.operations if is_torn(graph, op)]
    innocent = (
        recorder_suppose.cleared(graph.world, parts, graph.operations, suspects)
        if not torn
        else suspects
    )
    left = tuple(sorted(suspects - innocent))
    flying = torn or recorder_suppose.in_flight(
        graph.world, parts, graph.operations, _undisturbed(graph)
    )
    if not left and not flying:
        return list(found)
    flight = _members(graph, max(flying, key=lambda op: len(op.at))) if flying else ()
    blocked = sum(root.blocked for root in hidden)
    kind = Terminal.HIDDEN if left else Terminal.IN_FLIGHT
    ranks = left or flight
    operation = None if left else flying[0]
    main = max(hidden, key=lambda root: (len(set(ranks) & set(root.ranks)), root.share))
    if not left and operation is not None:
        main = replace(main, waited_on=operation.ref(graph.world))
    one = replace(
        main,
        kind=kind,
        ranks=ranks,
        flight=flight if left else (),
        blocked=blocked,
        share=min(1.0, sum(root.share for root in hidden)),
        claims=_with_supposition(
            claims_of_unknown(graph, kind, ranks, operation, blocked), len(innocent), bool(left)
        ),
    )
    return [one, *rest]


def _with_supposition(
    claims: tuple[GraphClaim, ...], cleared: int, is_hidden: bool
) -> tuple[GraphClaim, ...]:
    """The first claim with why others without a dump are not in it."""
    if not cleared or not is_hidden:
        return claims
    others = "1 other" if cleared == 1 else f"{cleared:,} others"
    text = (
        f"{claims[0].text}; had one of {others} without one stopped instead, operations that are open"
        " would have ended"
    )
    return (replace(claims[0], text=text), *claims[1:])


def _undisturbed(graph: Graph) -> list[Operation]:
    """Operations in which ranks with a dump wait and no rank with a dump is behind."""
    present = graph.world.dumps
    return [
        op
        for op in graph.operations
        if any(rank in present for rank in op.at)
        and op.before is None
        and not any(rank in present for rank in op.behind)
    ]


def _members(graph: Graph, operation: Operation) -> tuple[int, ...]:
    """Those who may be in an operation: all that are not known to be elsewhere."""
    op = operation.wait.op
    if op.is_p2p or op.peers:
        return tuple(sorted({*operation.at, *operation.pair, *operation.behind}))
    group = graph.world.groups[operation.group]
    at = set(operation.at)
    known = {r for r in group.members if r in graph.world.dumps or graph.is_logged(r)}
    return tuple(r for r in sorted(group.members) if r in at or r not in known)


def _logged_places(graph: Graph) -> set[recorder_roles.Place]:
    """Operations that ranks without a dump wait in, by their logs."""
    return {
        (op.group, op.wait.op.is_p2p, op.wait.op.seq)
        for op in graph.operations
        if any(graph.is_logged(rank) for rank in op.at)
    }


def _in_question(graph: Graph, found: Sequence[Root], mismatched: Sequence[Mismatch]) -> set[int]:
    """Ranks with a dump whose program may differ from that of their role: in a circle, in an operation
    that nobody is behind in, on a side of a mismatch, behind where others wait while it waits itself.
    None where an odd side, or a rank that stopped, is known."""
    if any(m.odd_ranks for m in mismatched) or any(root.kind in CONVICTED for root in found):
        return set()
    among = {rank for root in found for rank in root.ranks}
    among.update(rank for m in mismatched for side in m.sides for rank in side.ranks)
    late = {rank for op in graph.operations for rank in op.behind if rank in graph.world.waits}
    return among | set(sorted(late)[:MOST_LATE])


def _stall(base: GraphFinding, found: Sequence[Root], mismatched: Sequence[Mismatch]) -> Stall:
    if base.timed_out_origin is not None:
        return Stall.TIMED_OUT
    if mismatched or any(root.kind is not Terminal.IN_FLIGHT for root in found):
        return Stall.BY_ORDER
    return Stall.UNPROVEN if found else Stall.NONE


def _resolve_circles(graph: Graph, found: Sequence[Root]) -> tuple[list[Root], list[Mismatch]]:
    """Circles as disagreements about order, or as one rank that is only late in its program."""
    kept: list[Root] = []
    ordered: list[Mismatch] = []
    for root in found:
        circle = [rank for rank in root.ranks if rank in graph.world.waits]
        if root.kind is not Terminal.CYCLE or not circle:
            kept.append(root)
            continue
        left, late, said = recorder_order.order_divergence(graph, circle)
        if late and not left:
            claims = tuple(
                GraphClaim(
                    text=f"rank {rank} stopped in its program before the collective that others"
                    " wait for; what it has open itself waits for them",
                    origin=graph.world.dumps[rank].origin,
                    rank=rank,
                )
                for rank in late
            )
            kept.append(
                replace(
                    root,
                    kind=Terminal.HOST_SILENT,
                    ranks=tuple(late),
                    claims=(*claims, *root.claims[1:]),
                )
            )
            continue
        kept.append(root)
        if said:
            ordered.append(recorder_order.order_mismatch(graph, circle, left, said, root.waited_on))
    return kept, ordered


def _dated(root: Root, graph: Graph, base: GraphFinding) -> Root:
    lost = tuple(node for node in base.whole_nodes if root.kind is Terminal.HIDDEN)
    return replace(root, onset_ns=_onset(graph, root.ranks), whole_nodes=lost)


def _onset(graph: Graph, ranks: Sequence[int]) -> int | None:
    """The last completion in the groups of these ranks, by the ranks' own dumps where they are."""
    world = graph.world
    own = [
        seen.last_done_ns
        for rank in ranks
        if rank in world.dumps
        for seen in world.dumps[rank].groups
        if seen.last_done_ns is not None
    ]
    if own:
        return max(own)
    wanted = set(ranks)
    shared = [
        seen.last_done_ns
        for group in world.groups
        if not wanted.isdisjoint(group.members)
        for seen in group.seen.values()
        if seen.last_done_ns is not None
    ]
    opened = [w.op.created_ns for w in world.waits.values() if w.op.created_ns is not None]
    return max(shared, default=min(opened, default=None))


def _edges(graph: Graph) -> tuple[tuple[int, int, str], ...]:
    """(waits, for, why) between ranks, a sample: the first rank in each operation."""
    found: list[tuple[int, int, str]] = []
    for operation in sorted(graph.operations, key=lambda op: (-len(op.at), op.number)):
        for behind in sorted(operation.behind):
            if len(found) == MOST_EDGES:
                return tuple(found)
            found.append((min(operation.at), behind, operation.behind[behind]))
    return tuple(found)


def unreadable_ranks(facts: Iterable[Fact]) -> tuple[int, ...]:
    """Ranks whose dump is there and cannot be read, by the gaps that its parser left."""
    return tuple(
        sorted(
            {
                fact.rank
                for fact in facts
                if isinstance(fact, Gap)
                and fact.rank is not None
                and fact.why.startswith("flight recorder dump")
            }
        )
    )
