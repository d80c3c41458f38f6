"""How findings from dumps are worded: one sentence each, standing on one entry of one dump."""

from __future__ import annotations

from collections.abc import Sequence

from gpufleet_cli.facts import Origin
from gpufleet_cli.reason.recorder_finding import GraphClaim, Terminal
from gpufleet_cli.reason.recorder_graph import (
    GPU_BEHIND,
    HOST_BEHIND,
    Graph,
    Operation,
)
from gpufleet_cli.verdict import CollectiveRef

MOST_NAMED = 4
MOST_CLAIMS = 6


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks in words, long lists cut.

    >>> ranks_text([5]), ranks_text([9, 14]), ranks_text([0, 1, 2, 3]), ranks_text(range(0, 12, 2))
    ('rank 5', 'ranks 9 and 14', 'ranks 0-3', 'ranks 0, 2, 4 and 3 more')
    """
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"ranks {ordered[0]}-{ordered[-1]}"
    if len(ordered) > MOST_NAMED:
        named = ", ".join(map(str, ordered[:3]))
        return f"ranks {named} and {len(ordered) - 3:,} more"
    return f"ranks {', '.join(map(str, ordered[:-1]))} and {ordered[-1]}"


def called(ref: CollectiveRef) -> str:
    """`all_reduce 45 of mesh_tp`, as far as known."""
    words = [ref.op or "a collective"]
    if ref.seq is not None:
        words.append(str(ref.seq))
    if ref.desc or ref.group:
        words.append(f"of {ref.desc or ref.group}")
    return " ".join(words)


def user_frame(frames: Sequence[str]) -> str:
    """The innermost frame of the user's own code, "" where there is no frame.

    >>> user_frame(["send (/x/dist-packages/torch/distributed/c.py:1)", "step (/w/train.py:7)"])
    'step (/w/train.py:7)'
    """
    own = (f for f in frames if "-packages/" not in f and "/torch/" not in f)
    return next(own, frames[-1] if frames else "")


def wait_verb(count: int) -> str:
    return "waits" if count == 1 else "wait"


def origin_of(graph: Graph, rank: int) -> Origin | None:
    """The dump of a rank, at the entry that it waits in."""
    dump = graph.world.dumps.get(rank)
    if dump is None:
        return None
    wait = graph.world.waits.get(rank)
    return dump.origin if wait is None else Origin(path=dump.path, entry=wait.op.entry)


def _waiting_for(graph: Graph, rank: int) -> list[Operation]:
    """Operations that wait directly for a rank, those with most ranks in them first."""
    found = [op for op in graph.operations if rank in op.behind]
    present = graph.world.dumps
    return sorted(found, key=lambda op: (-sum(r in present for r in op.at), op.number))


def claims_of_silent(graph: Graph, ranks: Sequence[int], reached: int) -> tuple[GraphClaim, ...]:
    """A rank whose own dump shows all done, and less entered than its peers wait for."""
    found: list[GraphClaim] = []
    for rank in ranks[:MOST_CLAIMS]:
        for operation in _waiting_for(graph, rank)[:1]:
            at = [r for r in operation.at if r in graph.world.dumps]
            found.append(
                GraphClaim(
                    text=f"rank {rank} has completed all that it entered and never entered"
                    f" {called(operation.ref(graph.world))}, where {ranks_text(at or operation.at)}"
                    f" {wait_verb(len(at or operation.at))}",
                    origin=origin_of(graph, rank),
                    rank=rank,
                )
            )
            found += [_witness(graph, operation, witness) for witness in at[:1]]
    return (*found, *_total(graph, ranks, reached))


def claims_of_stalled(graph: Graph, ranks: Sequence[int], reached: int) -> tuple[GraphClaim, ...]:
    """A rank whose own completions stopped early, or whose kernel alone never started."""
    found = []
    for rank in ranks[:MOST_CLAIMS]:
        stalled = graph.stalled[rank]
        group = graph.world.groups[stalled.group]
        name = group.desc or group.name
        if stalled.behind_by:
            text = (
                f"rank {rank}'s completions in {name} stop at {stalled.own_completed} while rank"
                f" {stalled.peer} completed {stalled.peer_completed} with it:"
                f" {stalled.behind_by} collectives whose end its GPU never reported"
            )
        elif stalled.peer is None:
            text = (
                f"rank {rank} waits in collective {stalled.own_completed + 1} of {name}, of which"
                " it is the only member: nobody but its own GPU can end it"
            )
        else:
            text = (
                f"the kernel of collective {stalled.own_completed + 1} of {name} has started on"
                f" rank {stalled.peer} and its peers, and not on rank {rank}, which had enqueued it"
            )
        found.append(GraphClaim(text=text, origin=origin_of(graph, rank), rank=rank))
    return (*found, *_total(graph, ranks, reached))


def claims_of_unknown(
    graph: Graph, kind: Terminal, ranks: Sequence[int], operation: Operation | None, reached: int
) -> tuple[GraphClaim, ...]:
    """Ends that name a set: missing ranks, an operation in flight, ranks that wait in a circle."""
    at = [] if operation is None else [r for r in operation.at if r in graph.world.dumps]
    where = "" if operation is None else called(operation.ref(graph.world))
    if kind is Terminal.HIDDEN and operation is not None and at:
        text = (
            f"{ranks_text(at)} {wait_verb(len(at))} in {where} and nobody with a dump is behind:"
            f" of its members only {ranks_text(ranks)} left no usable dump"
        )
    elif kind is Terminal.HIDDEN:
        text = f"the waiting leads to {ranks_text(ranks)}, without a usable dump"
    elif kind is Terminal.CYCLE:
        text = (
            f"{ranks_text(ranks)} wait for one another, each in an operation that another skipped"
        )
    else:
        text = (
            f"all of {ranks_text(ranks)} entered {where} and nobody is behind:"
            " it is in flight and does not end"
        )
    present = [rank for rank in ranks if rank in graph.world.dumps]
    witness = (at or present or _direct(graph, ranks) or sorted(graph.world.waits))[:1]
    origin = origin_of(graph, witness[0]) if witness else None
    first = GraphClaim(text=text, origin=origin, rank=ranks[0] if len(ranks) == 1 else None)
    return (first, *_total(graph, ranks, reached))


def _direct(graph: Graph, ranks: Sequence[int]) -> list[int]:
    found = [r for rank in ranks for op in _waiting_for(graph, rank)[:1] for r in op.at]
    return [rank for rank in found if rank in graph.world.dumps]


def _witness(graph: Graph, operation: Operation, rank: int) -> GraphClaim:
    wait = graph.world.waits[rank]
    group = graph.world.groups[wait.group]
    return GraphClaim(
        text=f"rank {rank} waits in {called(group.ref(wait.op.op, wait.op.seq))}",
        origin=origin_of(graph, rank),
        rank=rank,
    )


def _total(graph: Graph, ranks: Sequence[int], reached: int) -> tuple[GraphClaim, ...]:
    blocked = len(graph.world.waits)
    if not reached or not blocked:
        return ()
    first = min(rank for rank in graph.world.waits)
    text = (
        f"{reached:,} of {len(graph.world.dumps):,} ranks with a dump wait for"
        f" {ranks_text(ranks)}, directly or through others"
    )
    return (GraphClaim(text=text, origin=origin_of(graph, first), rank=None),)


def why_behind(graph: Graph, rank: int, lag: str) -> str:
    """What a lag means, in words."""
    if rank not in graph.world.dumps:
        return "left no usable dump"
    if lag == HOST_BEHIND:
        return "has not entered it"
    return (
        "its kernel has not started" if lag == GPU_BEHIND else "has entered it, behind an older one"
    )
