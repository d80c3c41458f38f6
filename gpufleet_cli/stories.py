"""One story out of several: hypotheses that speak of the same rank or node lend each other claims.

A rule that only localises (rank-missing) lends its claims to a rule that says why, when both name the
same rank or node: the most specific kind that the evidence supports wins. Sets of suspects narrow one
another. Nothing here sets a confidence: `weigh` does.
"""

from __future__ import annotations

from dataclasses import replace

from gpufleet_cli.alike import (
    among,
    both_guilty,
    is_nowhere,
    is_of_one_rank,
    is_spread_over,
    narrowed_to_rank,
    one_node,
    slow_rank_of_its_node,
    total,
)
from gpufleet_cli.alike import without_unnamed_slowness as _paced
from gpufleet_cli.reason import Case
from gpufleet_cli.verdict import Hypothesis, Kind, Remedy

OWN_STORY = 1.0
LENT = 1.1
GRAVE = 1.7
"""What one claim of a fault must weigh to explain a rank whose node is not known."""


def stories(case: Case, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """The hypotheses that stand beside one another as rivals, each with all claims that are its own."""
    paced = slow_rank_of_its_node(case, _placed(case, _lend(case, hypotheses)))
    return both_guilty(case, one_node(paced))


def _lend(case: Case, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Give the claims that localise to the specific explanations of the same rank or node.

    A generic hypothesis that a specific one explains leaves the contest: it is the same story told
    with less.
    """
    located = _agreed([h for h in hypotheses if h.generic and h.kind is Kind.RANK_MISSING])
    crashed = _told_twice([h for h in hypotheses if h.generic and h.kind is not Kind.RANK_MISSING])
    causes = [h for h in hypotheses if not h.generic]
    first = _explained(case, [*causes, *crashed], located)
    still_crashed = [h for h in first if h.generic and h.kind is not Kind.RANK_MISSING]
    return _paced(_explained(case, [h for h in first if h not in still_crashed], still_crashed))


def _told_twice(crashed: list[Hypothesis]) -> list[Hypothesis]:
    """A crash that a rank's own log tells, and the one that the kernel of its node tells: one crash."""
    by_rank = [h for h in crashed if len(h.ranks) == 1]
    by_node = [h for h in crashed if not h.ranks and h.suspects]
    if len(by_rank) != 1 or len(by_node) != 1:
        return crashed
    told, kernel = by_rank[0], by_node[0]
    if told.kind is not kernel.kind or told.ranks[0] not in kernel.suspects:
        return crashed
    both = replace(
        told, claims=(*told.claims, *kernel.claims[:1]), nodes=told.nodes or kernel.nodes
    )
    return [both, *(h for h in crashed if h is not told and h is not kernel)]


def _agreed(located: list[Hypothesis]) -> list[Hypothesis]:
    """Sets of suspects that share ranks are one story: the guilty one is where they overlap.

    Dumps and logs each leave a set; a set that holds a smaller one says less of the same, and lends
    it a claim. Sets that share nobody stay rivals.
    """
    found: list[Hypothesis] = []
    for one in sorted(_together(located), key=lambda h: (len(h.ranks or h.suspects), -total(h))):
        mine = set(one.ranks or one.suspects)
        at = next((i for i, h in enumerate(found) if _overlaps(h, one, mine)), None)
        if at is None:
            found.append(one)
            continue
        first = found[at]
        both = tuple(sorted(set(first.ranks or first.suspects) & mine))
        lent = [replace(c, weight=min(c.weight, LENT)) for c in one.claims[:1]]
        claims_of_both = (*first.claims, *lent)
        if len(both) == len(first.ranks or first.suspects):
            found[at] = replace(first, claims=claims_of_both, nodes=first.nodes or one.nodes)
        else:
            single = len(both) == 1
            found[at] = replace(
                first,
                claims=claims_of_both,
                ranks=both if single else (),
                suspects=() if single else both,
                summary=_narrowed(first, both),
                nodes=(),
            )
    return found


def _together(located: list[Hypothesis]) -> list[Hypothesis]:
    """Ranks that are named together take the claims of those that name one of them alone."""
    wide = next((h for h in located if len(h.ranks) > 1), None)
    if wide is None:
        return located
    parts = [h for h in located if h is not wide and h.ranks and set(h.ranks) < set(wide.ranks)]
    lent = tuple(replace(c, weight=min(c.weight, LENT)) for h in parts for c in h.claims[:1])
    rest = [h for h in located if h is not wide and h not in parts]
    return [replace(wide, claims=(*wide.claims, *lent)), *rest]


def _overlaps(first: Hypothesis, one: Hypothesis, mine: set[int]) -> bool:
    """Whether two findings may be about one rank: several named ranks are several faults."""
    if len(first.ranks) > 1 or one.ranks:
        return False
    return bool(set(first.ranks or first.suspects) & mine)


def _narrowed(first: Hypothesis, both: tuple[int, ...]) -> str:
    if len(both) > 1:
        return first.summary
    return f"Rank {both[0]} is the only one that both the dumps and the logs leave in question."


def _explained(
    case: Case, specific: list[Hypothesis], generic: list[Hypothesis]
) -> list[Hypothesis]:
    """Specific hypotheses with the claims of the generic ones they explain, and those left over."""
    explained: set[int] = set()
    result: list[Hypothesis] = []
    for hypothesis in specific:
        lent = hypothesis
        for index, located in enumerate(generic):
            if total(hypothesis) < OWN_STORY or total(located) <= 0:
                continue  # what speaks against itself lends nothing
            joined = _explains(case, lent, located)
            if joined is not None:
                lent = joined
                explained.add(index)
        result.append(lent)
    result.extend(h for index, h in enumerate(generic) if index not in explained)
    return result


def _placed(case: Case, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """A GPU that the dumps convict, and the one node whose own log or metrics have a grave fault of a GPU
    that no rank is known of: the same story where the rank is there, or nothing tells where it is."""
    bare = [h for h in hypotheses if h.kind is Kind.HARDWARE and len(h.ranks) == 1 and not h.nodes]
    faults = [
        h
        for h in hypotheses
        if h.kind is Kind.HARDWARE
        and h.xid is not None
        and len(h.nodes) == 1
        and not h.ranks
        and _is_grave(h)
    ]
    if len(bare) != 1 or len(faults) != 1 or not case.stop.stopped:
        return hypotheses
    rank_, fault = bare[0], faults[0]
    if case.topology.node_of(rank_.ranks[0]) not in (None, *fault.nodes):
        return hypotheses
    together = replace(
        fault,
        ranks=rank_.ranks,
        claims=fault.claims + rank_.claims,
        collective=fault.collective or rank_.collective,
    )
    return [together, *(h for h in hypotheses if h is not rank_ and h is not fault)]


def _explains(case: Case, specific: Hypothesis, located: Hypothesis) -> Hypothesis | None:
    """The specific hypothesis with the other's claims, where they are about the same culprit."""
    if specific.remedy is Remedy.NOTHING:
        return None
    if specific.spread and not specific.ranks:
        if not is_spread_over(case, specific, located):
            return None
        return replace(specific, claims=specific.claims + located.claims[:1])
    if located.touched:
        return None
    if not located.ranks and not specific.ranks and is_of_one_rank(case, specific, located):
        return narrowed_to_rank(case, specific, located)
    if located.ranks:
        ranks = _of_both(case, specific, located)
        if ranks is None:
            return None
        return replace(
            specific,
            claims=specific.claims + located.claims,
            ranks=ranks,
            collective=specific.collective or located.collective,
        )
    shared = tuple(sorted(set(specific.suspects) & set(located.suspects)))
    is_death = specific.kind in (Kind.RANK_CRASHED, Kind.HOST_OOM)
    if is_death and shared and not specific.ranks and not specific.nodes:
        return among(specific, located, shared)
    inside = bool(specific.ranks) and set(specific.ranks) <= set(located.suspects)
    on_node = (
        not specific.ranks
        and bool(specific.nodes)
        and any(case.topology.node_of(r) in specific.nodes for r in located.suspects)
    )
    in_pod = (
        not specific.ranks
        and bool(specific.pods)
        and {_pod_of(case, rank) for rank in located.suspects} <= {None, *specific.pods}
    )
    nowhere = is_nowhere(case, specific, located) and _is_grave(specific)
    if not (inside or on_node or in_pod or nowhere):
        return None
    return replace(
        specific,
        claims=specific.claims + located.claims[:1],
        collective=specific.collective or located.collective,
    )


def _pod_of(case: Case, rank: int) -> str | None:
    place = case.topology.places.get(rank)
    return None if place is None else place.pod


def _of_both(case: Case, specific: Hypothesis, located: Hypothesis) -> tuple[int, ...] | None:
    """The ranks of a story that names some, told with a cause; None where they are two stories."""
    mine, theirs = set(specific.ranks), set(located.ranks)
    nodes = {case.topology.node_of(rank) for rank in theirs}
    if mine:
        beside = set().union(*(case.topology.unit_of(rank) for rank in mine))
        is_adapter = specific.kind is Kind.NETWORK and (theirs <= beside or mine < theirs)
        # Any rank beside an adapter, and any of its peers, may be the first to miss it.
        if theirs <= mine or is_adapter:
            return specific.ranks
        # Several stopped, each for itself, and one of them says why.
        several = mine < theirs and located.kind is Kind.RANK_MISSING
        return tuple(sorted(theirs)) if several else None
    if not specific.nodes or not nodes <= {*specific.nodes, None}:
        return None
    is_same_kind = specific.kind is located.kind
    if None in nodes:
        is_hardware = specific.kind is Kind.HARDWARE and _is_grave(specific)
        is_of_them = is_same_kind and theirs <= set(specific.suspects)
        if not (is_hardware and case.stop.stopped) and not is_of_them:
            return None
    narrows = specific.xid is not None or specific.narrows or is_same_kind
    narrows = narrows and len(theirs) == 1
    return located.ranks if narrows else ()


def _is_grave(hypothesis: Hypothesis) -> bool:
    """Whether one line alone weighs enough to explain what nothing places on its node."""
    return max((claim.weight for claim in hypothesis.claims), default=0.0) >= GRAVE
