"""Ranks disagree on operation, size, dtype or order of a collective: user code, never a node.

Claims it from dumps (same group and number, different operation or sizes; a role that diverges), from
fingerprints of TORCH_DISTRIBUTED_DEBUG=DETAIL, and from watchdogs of one group and number that name
different operations. The odd side is named only against a clear majority; 1 to 1 names nobody.
What could look the same: equal numbers of different groups, which is why the group must agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from gpufleet_cli.facts import Sign, WatchdogTimeout
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import Placed
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import about, claim, in_one_language, ranks_text
from gpufleet_cli.verdict import Claim, CollectiveRef, Hypothesis, Kind, Remedy

NAME = "collective_mismatch"


def propose(case: Case) -> Iterator[Hypothesis]:
    """One hypothesis: dumps, watchdogs and fingerprints tell of the same disagreement, and the first
    that names the odd side speaks for all."""
    found = [
        *_from_graph(case),
        *_from_watchdogs(case),
        *_from_fingerprints(case),
        *_one_ahead(case),
        *_from_circle(case),
    ]
    if not found:
        return
    best = next((h for h in found if h.ranks), found[0])
    more = tuple(c for h in found if h is not best for c in h.claims)
    yield replace(best, claims=best.claims + more[:3])


def _mismatch(
    summary: str,
    found: tuple[Claim, ...],
    ranks: tuple[int, ...],
    where: CollectiveRef,
    case: Case,
) -> Hypothesis:
    return Hypothesis(
        kind=Kind.COLLECTIVE_MISMATCH,
        rule=NAME,
        summary=summary,
        claims=found,
        remedy=Remedy.CODE,
        ranks=ranks,
        collective=where,
        onset_ns=case.onset_ns,
        reason_tag="collective mismatch",
        degrades=True,
        worsens=False,
        worsens_why="a restart runs into the same code",
        would_settle="the stack of that collective on both sides (recorder frames)",
    )


def _from_graph(case: Case) -> Iterator[Hypothesis]:
    graph = case.graph
    if graph is None:
        return
    for mismatch in graph.mismatches[:1]:
        ranks = mismatch.odd_ranks
        yield _mismatch(
            mismatch.summary,
            tuple(
                claim(c.text, c.origin, claims.DECISIVE if i == 0 else claims.WEAK, rank=c.rank)
                for i, c in enumerate(mismatch.claims)
            ),
            ranks,
            in_one_language(mismatch.collective),
            case,
        )


Signature = tuple[str, int | None, int | None]
# Each side of a transfer calls its own operation, and a batch is of another size on each rank.
OF_TWO = frozenset({"SEND", "RECV", "COALESCED", "ALLTOALL", "ALLTOALL_BASE"})


def _from_watchdogs(case: Case) -> Iterator[Hypothesis]:
    groups: dict[tuple[str | None, str | None, int | None], dict[int, Placed[WatchdogTimeout]]] = (
        defaultdict(dict)
    )
    named = {
        (t.rank, t.fact.seq): t.fact.group
        for t in case.timeouts
        if t.fact.group is not None and t.rank is not None
    }
    status = {
        (s.rank, s.fact.work): s.fact.group
        for s in case.statuses
        if s.fact.group is not None and s.rank is not None and s.fact.work is not None
    }
    for timeout in case.timeouts:
        if timeout.rank is None or timeout.fact.seq is None or timeout.fact.op in OF_TWO:
            continue
        key = (timeout.rank, timeout.fact.seq)
        group = timeout.fact.group or named.get(key) or status.get(key)
        if group is None and timeout.fact.group_rank != timeout.rank:
            continue
        guid = None if group is None else group.name
        described = None if group is None else group.desc
        groups[guid, described, timeout.fact.seq].setdefault(timeout.rank, timeout)
    for (name, desc, seq), members in sorted(groups.items(), key=lambda kv: str(kv[0])):
        if (name, desc) == (None, None) and len(members) * 2 <= len(case.world):
            continue
        sides: dict[Signature, list[int]] = defaultdict(list)
        for rank, timeout in sorted(members.items()):
            fact = timeout.fact
            sides[fact.op, fact.numel_in, fact.numel_out].append(rank)
        if len(sides) > 1:
            yield _watchdog_hypothesis(case, members, dict(sides), (name, desc, seq))


def _watchdog_hypothesis(
    case: Case,
    members: dict[int, Placed[WatchdogTimeout]],
    sides: dict[Signature, list[int]],
    key: tuple[str | None, str | None, int | None],
) -> Hypothesis:
    ordered = sorted(sides.items(), key=lambda item: (-len(item[1]), item[1]))
    majority, odd = ordered[0], [rank for _s, ranks in ordered[1:] for rank in ranks]
    clear = len(majority[1]) >= 2 and len(majority[1]) > len(odd)
    ranks = tuple(sorted(odd)) if clear else ()
    name, desc, seq = key
    where = CollectiveRef(group=name, desc=desc, op=majority[0][0], seq=seq)
    found = [
        about(
            members[ranks_[0]],
            f"{ranks_text(ranks_)}: {sign[0]} of {sign[1]} elements as number {seq}",
            claims.DECISIVE / 2,
        )
        for sign, ranks_ in ordered[:3]
    ]
    sides_text = "; ".join(
        f"{ranks_text(ranks_)}: {sign[0]}"
        + ("" if sign[1] is None else f" of {sign[1]:,} elements")
        for sign, ranks_ in sorted(ordered[:3], key=lambda item: len(item[1]))
    )
    even = "" if clear else " The sides are even, so nobody is named."
    return _mismatch(
        f"Ranks disagree on collective {seq}. {claims.sentence(sides_text)}.{even}",
        tuple(found),
        ranks,
        where,
        case,
    )


def _from_circle(case: Case) -> Iterator[Hypothesis]:
    """Ranks that wait for one another entered their collectives in different orders."""
    graph = case.graph
    if graph is None:
        return
    for root in graph.roots:
        if root.kind == "cycle":
            # What a member without a dump waits for is inferred.
            is_seen = not set(root.ranks) & set(graph.missing)
            weight = claims.STRONG if is_seen else claims.MODEST
            yield _mismatch(
                f"{claims.sentence(ranks_text(root.ranks))} wait for one another: their orders of"
                " collectives differ; the odd side is not told.",
                tuple(
                    claim(c.text, c.origin, weight if i == 0 else claims.WEAK, rank=c.rank)
                    for i, c in enumerate(root.claims)
                ),
                (),
                in_one_language(root.waited_on),
                case,
            )
            return


def _one_ahead(case: Case) -> Iterator[Hypothesis]:
    """One rank alone timed out, one ahead of all others, who are idle: an operation of its own."""
    if len(case.witnesses) != 1 or len(case.world) < 3:
        return
    rank = next(iter(case.witnesses))
    own = [s for s in case.statuses if s.rank == rank and s.fact.last_enqueued is not None]
    idle = {
        s.rank: s.fact.last_enqueued
        for s in case.statuses
        if s.rank is not None
        and s.rank != rank
        and s.fact.last_enqueued is not None
        and s.fact.last_enqueued == s.fact.last_completed
    }
    if not own or len(idle) < len(case.world) - 1 or len(set(idle.values())) != 1:
        return
    ahead = max(s.fact.last_enqueued or 0 for s in own)
    if ahead != next(iter(idle.values())) + 1:
        return
    timeout = next(t for t in case.timeouts if t.rank == rank)
    yield _mismatch(
        f"Rank {rank} alone entered {timeout.fact.op} {ahead}; the {len(idle)} others were done"
        f" with {ahead - 1} and idle.",
        (
            about(own[0], f"rank {rank} enqueued {ahead}, all others {ahead - 1}", claims.STRONG),
            about(timeout, f"rank {rank} is the only one that timed out", claims.FAIR),
        ),
        (rank,),
        CollectiveRef(op=timeout.fact.op, seq=timeout.fact.seq),
        case,
    )


def _from_fingerprints(case: Case) -> Iterator[Hypothesis]:
    signs = case.signs_of(Sign.MISMATCH)
    if not signs:
        return
    accused: dict[int, set[int]] = defaultdict(set)
    for sign in signs:
        named = sign.fact.named_ranks
        if len(named) == 2:
            accused[named[1]].add(named[0])
            accused[named[0]].add(named[1])
    ranks: tuple[int, ...] = ()
    if len(case.world) >= 3:
        worst = max(accused, key=lambda r: (len(accused[r]), -r), default=None)
        if worst is not None and len(accused[worst]) >= 2 and _clear(accused, worst):
            ranks = (worst,)
    first = signs[0]
    yield _mismatch(
        "Ranks ran different collectives at the same time"
        + (
            f": {ranks_text(ranks)} against the others." if ranks else "; the odd side is not told."
        ),
        (
            about(
                first,
                f"the fingerprints differ: {(first.fact.detail or '')[:160]}",
                claims.DECISIVE,
            ),
        ),
        ranks,
        CollectiveRef(seq=first.fact.step),
        case,
    )


def _clear(accused: dict[int, set[int]], worst: int) -> bool:
    return all(len(who) < len(accused[worst]) for rank, who in accused.items() if rank != worst)
