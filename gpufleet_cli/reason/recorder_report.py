"""What `gpufleet dumps` and `explain --rank` show of the dumps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nsmallest

from gpufleet_cli.reason.recorder_finding import GraphFinding, RankWait, Stall, Standing, Terminal
from gpufleet_cli.reason.recorder_graph import Graph, Operation
from gpufleet_cli.reason.recorder_words import (
    called,
    ranks_text,
    user_frame,
    wait_verb,
    why_behind,
)
from gpufleet_cli.verdict import CollectiveRef, DumpsReport, GroupReport

MOST_NAMED = 4
MOST_GROUPS = 64


def standings(finding: GraphFinding, graph: Graph) -> Mapping[int, RankWait]:
    """Where every rank of the job stands."""
    found: dict[int, RankWait] = {}
    for rank in finding.missing:
        found[rank] = RankWait(
            rank=rank, standing=_absence(finding, rank), collective=CollectiveRef()
        )
    guilty = {rank: root for root in finding.roots for rank in root.ranks}
    behind = [_waited_for(graph, operation) for operation in graph.operations]
    for rank in sorted(graph.world.dumps):
        root = guilty.get(rank)
        found[rank] = _present(graph, rank, None if root is None else root.kind, behind)
    return dict(sorted(found.items()))


def _absence(finding: GraphFinding, rank: int) -> Standing:
    if rank in finding.unreadable:
        return "unreadable"
    if rank in finding.stale:
        return "stale"
    return "early" if rank in finding.early else "missing"


def _present(
    graph: Graph, rank: int, kind: Terminal | None, waited_for: Sequence[Sequence[int]]
) -> RankWait:
    world = graph.world
    dump = world.dumps[rank]
    wait = world.waits.get(rank)
    if wait is None:
        last = dump.last_op
        ref = CollectiveRef()
        if last is not None:
            ref = world.groups[world.own[rank][last.group]].ref(last.op, last.seq)
        return RankWait(
            rank=rank,
            standing="silent" if kind is Terminal.HOST_SILENT else "done",
            collective=ref,
            since_ns=None if last is None else last.created_ns,
            origin=dump.origin,
        )
    number = graph.operation_of.get(rank)
    operation = None if number is None else graph.operations[number]
    behind = () if number is None or rank in graph.stalled else waited_for[number]
    standing: Standing = "stalled" if kind is Terminal.GPU_STALLED else "waits"
    if kind is Terminal.HOST_SILENT:
        standing = "silent"
    return RankWait(
        rank=rank,
        standing=standing,
        collective=world.groups[wait.group].ref(wait.op.op, wait.op.seq),
        since_ns=wait.op.created_ns,
        waits_for=tuple(behind),
        frames=wait.op.frames,
        origin=dump.origin,
        why=""
        if operation is None or not behind
        else why_behind(graph, behind[0], operation.behind.get(behind[0], "")),
    )


def _waited_for(graph: Graph, operation: Operation) -> list[int]:
    """The first few who are behind an operation, else of its members without a dump: looked up once
    for all that wait in it, since everybody may wait in one."""
    if operation.behind:
        return nsmallest(MOST_NAMED, operation.behind)
    absent = (rank for rank in (*operation.at, *operation.pair) if graph.is_ghost(rank))
    return nsmallest(MOST_NAMED, absent)


# --- gpufleet dumps -------------------------------------------------------------------------------


def report(finding: GraphFinding, graph: Graph) -> DumpsReport:
    """The analysis by process group, the groups that most ranks wait in first."""
    present = graph.world.dumps
    ordered = sorted(
        graph.operations,
        key=lambda op: (-sum(rank in present for rank in op.at), op.group, op.wait.op.seq),
    )
    return DumpsReport(
        dumps=finding.dumps,
        versions=tuple(sorted({dump.version for dump in present.values()})),
        groups=tuple(_group(graph, op) for op in ordered[:MOST_GROUPS]),
        roots=finding.culprits or finding.suspects,
        finding=sentence(finding),
        edges=finding.edges,
        missing=finding.missing,
        unreadable=finding.unreadable,
        stale=finding.stale,
        early=finding.early,
        waiting=len(graph.world.waits),
        groups_known=len(graph.world.groups),
    )


def _group(graph: Graph, operation: Operation) -> GroupReport:
    group = graph.world.groups[operation.group]
    at = sorted(rank for rank in operation.at if rank in graph.world.dumps)
    absent = {rank for rank in (*operation.at, *operation.behind) if rank not in graph.world.dumps}
    behind = sorted(rank for rank in operation.behind if rank in graph.world.dumps)
    if behind:
        note = "; ".join(
            f"rank {rank} {why_behind(graph, rank, operation.behind[rank])}"
            for rank in behind[:MOST_NAMED]
        )
    elif absent:
        note = f"{ranks_text(sorted(absent))} left no usable dump"
    elif operation.before is not None:
        note = "an older collective of the same group is open"
    else:
        note = "every member entered it"
    return GroupReport(
        name=group.name,
        desc=group.desc,
        members=group.members,
        op=operation.wait.op.op,
        seq=operation.wait.op.seq,
        waiting=tuple(at),
        behind=tuple(behind),
        missing=tuple(sorted(absent)),
        note=note,
    )


def sentence(finding: GraphFinding) -> str:
    """The finding in one sentence."""
    if finding.mismatches:
        return finding.mismatches[0].summary
    if finding.no_fault:
        claim = finding.no_fault_claims[0].text
        return f"No fault shown: {claim}."
    if not finding.roots:
        return "The dumps do not show what the ranks wait for."
    root = finding.roots[0]
    who, where = ranks_text(root.ranks), called(root.waited_on)
    verb = wait_verb(root.blocked)
    waits = f"{root.blocked:,} {'rank' if root.blocked == 1 else 'ranks'} {verb} for it"
    match root.kind:
        case Terminal.HOST_SILENT:
            text = f"{who.capitalize()} never entered {where}; {waits}"
        case Terminal.GPU_STALLED:
            text = f"{who.capitalize()}: completions stopped that peers saw complete; {waits}"
        case Terminal.HIDDEN:
            text = f"{where} waits for {who}, without a usable dump"
        case Terminal.CYCLE:
            text = f"{who.capitalize()} wait for one another: an order of collectives that differs"
        case Terminal.IN_FLIGHT:
            text = f"{where} is in flight on all of {who} and does not end"
    if finding.stall is Stall.UNPROVEN:
        text += "; nothing says for how long it has been open"
    return text + "."


# --- gpufleet explain -----------------------------------------------------------------------------


def explain_rank(finding: GraphFinding, rank: int) -> list[str]:
    """What the dumps say about one rank, in sentences."""
    wait = finding.standing.get(rank)
    said: list[str] = []
    if wait is None:
        return [f"No dump speaks of rank {rank}."]
    if wait.standing in ("missing", "unreadable", "stale", "early"):
        said.append(_absent_text(wait))
    elif wait.standing in ("waits", "stalled") or wait.waits_for:
        said.append(f"Rank {rank} waits in {called(wait.collective)}.")
        if wait.waits_for and wait.standing == "waits":
            said.append(f"There it waits for {ranks_text(wait.waits_for)}, which {wait.why}.")
    else:
        last = (
            f"; the last was {called(wait.collective)}" if wait.collective.seq is not None else ""
        )
        said.append(f"Rank {rank} has completed all that it entered{last}.")
    if rank in finding.unsettled:
        said.append("Some of the waiting leads to it too; its dump would settle whether it moved.")
    for root in finding.roots:
        if rank in root.ranks:
            said += [_sentence(claim.text) for claim in root.claims]
    for mismatch in finding.mismatches:
        if any(rank in side.ranks for side in mismatch.sides):
            said.append(mismatch.summary)
    ends = finding.culprits or finding.suspects
    if rank in finding.waiting and ends and rank not in ends:
        said.append(f"It is a witness: its waiting leads to {ranks_text(ends)}.")
    if wait.frames:
        said.append(f"It called from {user_frame(wait.frames)}.")
    return said


def _absent_text(wait: RankWait) -> str:
    return {
        "missing": f"Rank {wait.rank} left no dump.",
        "unreadable": f"Rank {wait.rank} wrote a dump that cannot be read: it lived when it wrote.",
        "stale": f"The dump of rank {wait.rank} belongs to an earlier attempt and was not used.",
        "early": f"The dump of rank {wait.rank} was made before it moved on and was not used.",
    }[wait.standing]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
