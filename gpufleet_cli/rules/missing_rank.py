"""A rank that never reached the collective that everybody waited in; cause not in the evidence.

Claims it from the wait-for graph of Flight Recorder dumps, and from logs: the rank whose log is at
hand and which alone has no watchdog timeout of its own. What could look the same: a rank whose
log was cut, buffered or filtered; a sibling that the agent ended; a group with a longer timeout.
It cannot see why the rank stopped; rules that can claim the same rank with a more specific kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpufleet_cli.facts import Sign, WatchdogTimeout
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import Placed
from gpufleet_cli.reason.recorder_finding import Root
from gpufleet_cli.reason.silence import quieter_by_s
from gpufleet_cli.rules import adapters, claims
from gpufleet_cli.rules.claims import (
    about,
    claim,
    collective_text,
    ranks_text,
    waited_in,
)
from gpufleet_cli.verdict import Claim, Hypothesis, Kind, Remedy

NAME = "missing_rank"
MOST_SHOWN = 4
MOST_TOGETHER = 8


def propose(case: Case) -> Iterator[Hypothesis]:
    """From dumps, from logs, or from both; one hypothesis a culprit set."""
    from_logs = _log_claims(case)
    many = [ranks for ranks, single, _ in from_logs if single and _is_shared(case, ranks)]
    silent = tuple(rank for root in _silent(case) for rank in root.ranks)
    many += [silent] if _is_shared(case, silent) else []
    touched = tuple(sorted({rank for ranks in many for rank in ranks}))
    if touched:
        yield _of_many(case, touched, [c for _, _, found in from_logs for c in found])
        from_logs = [f for f in from_logs if len(f[0]) == 1 or not set(f[0]) <= set(touched)]
    from_graph = [f for f in _graph_claims(case, touched) if not set(f[0]) <= set(touched)]
    merged: dict[tuple[tuple[int, ...], bool], list[Claim]] = defaultdict(list)
    for ranks, single, found in [*from_graph, *from_logs]:
        merged[ranks, single].extend(found)
    for (ranks, single), found in sorted(merged.items()):
        made = _hypothesis(case, ranks, tuple(found), single=single)
        node = None if single else _whole_node(case, ranks)
        yield made if node is None else _of_node(made, node)


def _whole_node(case: Case, ranks: tuple[int, ...]) -> str | None:
    """The node whose ranks are exactly these, in a job of several nodes: then it is the node that went."""
    if case.signs_of(Sign.SHIPPER_LOSS):
        return None  # a log pipeline that loses lines makes a node look silent
    nodes = {case.topology.node_of(rank) for rank in ranks}
    node = nodes.pop() if len(nodes) == 1 else None
    if node is None or len(ranks) < 2 or len(case.topology.by_node) < 2:
        return None
    return node if set(case.topology.by_node[node]) == set(ranks) else None


def _of_node(made: Hypothesis, node: str) -> Hypothesis:
    """The same, said of the node: the rank stays open (facts: localisation 8, whole node missing)."""
    first = made.claims[0]
    text = f"all {len(made.suspects)} ranks of {node} are missing, and no others"
    return replace(
        made,
        nodes=(node,),
        summary=f"All {len(made.suspects)} ranks of {node} fell silent, and no others: the node, or what"
        " runs on it; which rank was first is not told.",
        claims=(*made.claims, claim(text, first.origin, claims.OUTLIER)),
        would_settle=f"the kernel log and the state of {node}",
    )


def _is_shared(case: Case, ranks: Sequence[int]) -> bool:
    """Whether these are ranks of several nodes, and more than stop by themselves at once."""
    if len(ranks) <= max(MOST_TOGETHER, len(case.world) // 50):
        return False
    places = [case.topology.places.get(rank) for rank in ranks]
    units = {None if place is None else place.node or place.pod for place in places}
    return len(units) > 1 or None in units


def _silent(case: Case) -> list[Root]:
    roots = () if case.graph is None else case.graph.roots
    return [root for root in roots if root.kind == "host-silent"]


def _of_many(case: Case, touched: tuple[int, ...], by_logs: Sequence[Claim]) -> Hypothesis:
    """Many at once have one cause that stands elsewhere, and are its victims."""
    where = waited_in(case)
    by_dumps = [
        claim(c.text, c.origin, claims.GOOD, rank=c.rank)
        for root in _silent(case)
        for c in root.claims[:1]
    ]
    parts = [*by_dumps, *by_logs][:3]
    nodes = {case.topology.node_of(rank) for rank in touched} - {None}
    on = f" of {len(nodes)} nodes" if len(nodes) > 1 else ""
    return Hypothesis(
        kind=Kind.RANK_MISSING,
        rule=NAME,
        summary=f"{len(touched)} ranks{on} stood still at once and never reached"
        f" {collective_text(where)}: what they share stopped them (storage, a data source, the"
        " network), and none of them is to blame.",
        claims=tuple(
            replace(c, weight=claims.GOOD if i == 0 else claims.WEAK) for i, c in enumerate(parts)
        ),
        remedy=Remedy.OUTSIDE,
        generic=True,
        touched=touched,
        collective=where,
        onset_ns=case.onset_ns,
        would_settle="stacks of those ranks, kernel logs of their nodes, the state of the file server",
    )


def _hypothesis(
    case: Case, ranks: tuple[int, ...], found: tuple[Claim, ...], *, single: bool
) -> Hypothesis:
    where = waited_in(case)
    waiting = len(case.witnesses - set(ranks))
    waited = f" {waiting:,} waited for it in {collective_text(where)}." if waiting else ""
    if single:
        summary = (
            f"{claims.sentence(ranks_text(ranks))} never reached {collective_text(where)}.{waited}"
        )
    else:
        summary = (
            f"Somebody among {ranks_text(ranks)} never reached {collective_text(where)};"
            " the evidence does not tell who."
        )
    return Hypothesis(
        kind=Kind.RANK_MISSING,
        rule=NAME,
        summary=summary,
        claims=found,
        remedy=Remedy.PROCESS,
        generic=True,
        ranks=ranks if single else (),
        suspects=() if single else ranks,
        collective=where,
        onset_ns=case.onset_ns,
        would_settle=f"logs, stacks or Flight Recorder dumps of {ranks_text(ranks)}",
    )


Found = tuple[tuple[int, ...], bool, list[Claim]]


def _graph_claims(case: Case, touched: tuple[int, ...]) -> list[Found]:
    graph = case.graph
    if graph is None:
        return []
    out: list[Found] = []
    silent = _silent(case)
    if not touched and len(silent) > 1 and sum(root.share for root in silent) >= 0.95:
        # Faults that share no waiting rank: each is needed to explain its own part, so all are guilty.
        together = tuple(sorted({rank for root in silent for rank in root.ranks}))
        parts = [c for root in silent for c in root.claims[:1]]
        weights = [claims.GOOD] + [claims.WEAK] * min(2, len(parts)) + [0.0] * len(parts)
        found = [
            claim(c.text, c.origin, weight, rank=c.rank)
            for c, weight in zip(parts, weights, strict=False)
        ]
        out.append((together, True, found))
    told_together = bool(touched or out)
    for root in graph.roots:
        if root in silent and told_together:
            continue
        if root.kind == "host-silent":
            weight = claims.DECISIVE if root.share >= 0.95 else claims.FAIR
            if root.virtual:
                weight += -0.92
            out.append(
                (
                    root.ranks,
                    True,
                    [
                        claim(c.text, c.origin, weight if i == 0 else claims.WEAK / 2, rank=c.rank)
                        for i, c in enumerate(root.claims)
                    ],
                )
            )
        elif root.kind == "hidden":
            single = len(root.ranks) == 1 and not claims.may_fly(case, root)
            weight = claims.hidden_weight(root)
            if single and set(root.ranks) <= set(graph.unreadable):
                # It lived when it wrote, and may have entered something else.
                weight -= claims.GOOD - claims.FAIR
            out.append(
                (
                    root.ranks,
                    single,
                    [claim(c.text, c.origin, weight, rank=c.rank) for c in root.claims[:1]],
                )
            )
    if graph.unsettled and graph.roots:
        text = f"some of the waiting leads to {ranks_text(graph.unsettled)} too, without a dump"
        found = [claim(text, graph.roots[0].claims[0].origin, claims.WEAK)]
        out.append((graph.unsettled, len(graph.unsettled) == 1, found))
    return out


def _log_claims(case: Case) -> list[Found]:
    """The ranks that did not complain while the others did."""
    witnesses = case.witnesses
    if not witnesses:
        return []
    ended = claims.ended_by_agent(case)
    crashed = _exited_first(case)
    seen = {rank for rank, silence in case.silence.items() if silence.known} | witnesses
    waiting = _explained(case) | _cut_off(case)
    quiet = sorted((seen - witnesses) - ended - waiting)
    known = seen | ended | waiting
    absent = [rank for rank in case.world if rank not in known]
    if not quiet:
        return _absent(case, witnesses, absent)
    behind = _behind(case, quiet)
    signalled = {s.rank for s in case.signs_of(Sign.DUMP_SIGNAL_OTHER) if s.rank is not None} & set(
        quiet
    )
    named = sorted(behind or set(quiet))
    if len(named) > 1 and len(crashed & set(named)) == 1:
        named = sorted(crashed & set(named))
    if len(named) > 1 and len(signalled) == 1 and not behind:
        named = sorted(signalled)
    single = len(named) == 1 or bool(behind)
    share = len(witnesses) / max(1, len(seen | ended))
    gap = _group_gap(case, set(quiet) | set(absent))
    if gap is not None:
        return [gap, *_beside(case, gap[0], len(witnesses))]
    if len(named) > max(1, len(seen) // 2):
        return []
    base = claims.DECISIVE if share > 0.8 and not absent else claims.GOOD
    if not single:
        base = claims.FAIR
    if case.signs_of(Sign.SHIPPER_LOSS):
        base -= claims.FAIR
    if any(case.silence[rank].buffered for rank in named if rank in case.silence):
        base -= claims.FAIR
    first = (tuple(named), single, _silence_claims(case, named, base, len(witnesses), behind))
    return [first, *_beside(case, first[0], len(witnesses))]


def _beside(case: Case, ranks: tuple[int, ...], waiting: int) -> list[Found]:
    """One more rank that stopped by itself, on another node than the one that others say stopped."""
    if len(ranks) != 1:
        return []
    unit = case.topology.unit_of(ranks[0])
    others = sorted(claims.quiet_ranks(case) - unit)
    if len(others) != 1 or not claims.stopped_by_itself(case, others[0], beside=unit):
        return []
    found = _silence_claims(case, others, claims.GOOD, waiting, set())
    return [(tuple(others), True, found)] if found else []


def _explained(case: Case) -> frozenset[int]:
    """Ranks that wait by the dumps: those with one, and those without to which no waiting leads."""
    graph = case.graph
    if graph is None:
        return frozenset()
    if not graph.roots:
        return graph.waiting
    open_ = {r for root in graph.roots for r in (*root.ranks, *root.flight)} | set(graph.unsettled)
    return graph.waiting | (frozenset(graph.missing) - open_)


def _cut_off(case: Case) -> frozenset[int]:
    """Ranks whose own error says that a peer is out of reach, while another node reports its own adapter:
    they fell silent because of that node."""
    faulty = set(adapters.own_events(case))
    if not faulty:
        return frozenset()
    return frozenset(
        s.rank
        for s in case.signs_of(Sign.PEER_UNREACHABLE)
        if s.rank is not None and adapters.unit_of(case, s) not in faulty
    )


def _group_gap(case: Case, candidates: set[int]) -> Found | None:
    """The members of one process group that did not complain where all others of it did.

    A watchdog prints the rank inside its group. Where the witnesses of a group show how that rank
    maps to the global one (members at equal distances), the missing numbers are ranks.
    """
    members: dict[tuple[str | None, str | None], dict[int, int]] = defaultdict(dict)
    first: dict[tuple[str | None, str | None], Placed[WatchdogTimeout]] = {}
    groups = {
        (s.rank, s.fact.work): s.fact.group
        for s in case.statuses
        if s.fact.group is not None and s.fact.work is not None
    }
    for timeout in case.timeouts:
        seq = timeout.fact.seq
        group = timeout.fact.group or (None if seq is None else groups.get((timeout.rank, seq)))
        if group is None or timeout.rank is None or timeout.fact.group_rank is None:
            continue
        key = (group.name, group.desc)
        members[key].setdefault(timeout.fact.group_rank, timeout.rank)
        first.setdefault(key, timeout)
    found: list[tuple[int, ...]] = []
    where: list[tuple[str | None, str | None]] = []
    for key, known in sorted(members.items(), key=lambda item: str(item[0])):
        ranks = _unseen_members(known)
        if ranks and set(ranks) <= candidates:
            found.append(ranks)
            where.append(key)
    if len(found) != 1 or len(found[0]) > 1:
        return None
    key, ranks = where[0], found[0]
    text = (
        f"{len(members[key]):,} members of {key[1] or key[0]} waited;"
        f" the one between them is {ranks_text(ranks)}"
    )
    return ranks, True, [about(first[key], text, claims.GOOD)]


def _unseen_members(known: dict[int, int]) -> tuple[int, ...]:
    """Global ranks of the group ranks below the highest that are not in `known`."""
    inside = sorted(known)
    if len(inside) < 3 or len(inside) * 2 <= inside[-1]:
        return ()
    step = (known[inside[-1]] - known[inside[0]]) / (inside[-1] - inside[0])
    start = known[inside[0]] - inside[0] * step
    if step != int(step) or any(known[i] != start + i * step for i in inside):
        return ()
    return tuple(int(start + i * step) for i in range(inside[-1] + 1) if i not in known)


def _silence_claims(
    case: Case, named: list[int], base: float, waiting: int, behind: set[int]
) -> list[Claim]:
    found: list[Claim] = []
    for rank in named[:MOST_SHOWN]:
        silence = case.silence.get(rank)
        if silence is None:
            continue
        quieter = quieter_by_s(case.silence, rank)
        longer = "" if quieter is None or quieter <= 0 else f", {quieter:,.1f} s before the others"
        found.append(
            claim(
                f"rank {rank} wrote its last ordinary line{claims.when(silence.last_sign_ns)}"
                f"{longer}, and reported no timeout while {waiting:,} others did",
                silence.origin,
                base if not found else claims.WEAK / 4,
                rank=rank,
                at_ns=silence.last_sign_ns,
            )
        )
    for status in case.statuses:
        if status.rank in behind:
            found.append(
                about(
                    status,
                    f"rank {status.rank} had enqueued only {status.fact.last_enqueued}"
                    f" where the waiting ranks had enqueued more",
                    claims.MODEST,
                )
            )
            break
    for sign in case.signs_of(Sign.DUMP_SIGNAL_OTHER):
        if sign.rank in named:
            found.append(
                about(
                    sign,
                    f"rank {sign.rank}'s process was alive and its own watchdog saw no timeout",
                    claims.WEAK,
                )
            )
            break
    return found


def _absent(case: Case, witnesses: frozenset[int], absent: list[int]) -> list[Found]:
    """Everybody at hand waited, so the one that stopped is among those not at hand."""
    if not absent:
        return []
    share = len(witnesses) / max(1, len(case.world))
    single = len(absent) == 1
    weight = claims.GOOD if single else claims.FAIR
    if share <= 0.5:  # few logs at hand: that others are not says little
        weight = claims.WEAK
    first = min(case.timeouts, key=lambda t: (t.at_ns or 0, str(t.fact.origin)))
    at_hand = "the one rank" if len(witnesses) == 1 else f"all {len(witnesses)} ranks"
    text = f"{at_hand} at hand waited; nothing of {ranks_text(absent)} was collected"
    return [(tuple(absent), single, [about(first, text, weight)])]


def _exited_first(case: Case) -> set[int]:
    """Ranks that an agent saw exit by themselves, not by its own SIGTERM and not by abort."""
    found: set[int] = set()
    for sign in case.signs_of(Sign.ROOT_CAUSE_BLOCK):
        if sign.fact.exit_code not in (-15, 143, -6, 134):
            found.update(sign.fact.named_ranks)
    return found


def _behind(case: Case, quiet: list[int]) -> set[int]:
    """Quiet ranks whose counters of a group stand below what every witness of that group enqueued."""
    enqueued: dict[tuple[str | None, str | None], dict[int, int]] = defaultdict(dict)
    for status in case.statuses:
        fact = status.fact
        if status.rank is None or fact.last_enqueued is None or fact.last_enqueued < 0:
            continue
        group = (None, None) if fact.group is None else (fact.group.name, fact.group.desc)
        known = enqueued[group].get(status.rank)
        enqueued[group][status.rank] = max(known or 0, fact.last_enqueued)
    behind: set[int] = set()
    witnesses = case.witnesses
    for counts in enqueued.values():
        waited = [n for rank, n in counts.items() if rank in witnesses]
        if len(waited) < 2:
            continue
        behind |= {rank for rank in quiet if rank in counts and counts[rank] < min(waited)}
    return behind
