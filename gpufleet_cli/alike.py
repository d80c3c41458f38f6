"""Hypotheses that tell the same of the same ranks or node, made one; and two that are both true."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpufleet_cli.reason import Case
from gpufleet_cli.rules.claims import stopped_by_itself
from gpufleet_cli.verdict import Hypothesis, Kind, Remedy

BY_ITSELF = 2.4
"""What claims of one rank must weigh together to stand beside another fault: those of a rank whose own dump
convicts it for a part of the waiting (FAIR and WEAK) are enough."""
SAME_NODE_CLOSE = 1.0
DEATHS = frozenset({Kind.RANK_CRASHED, Kind.HOST_OOM, Kind.CUDA_OOM, Kind.HARDWARE})
CAUSES = DEATHS | {Kind.DATA_STALL}
STALLS = frozenset({Kind.RANK_MISSING, Kind.DATA_STALL})


def merge_same(hypotheses: Iterable[Hypothesis]) -> list[Hypothesis]:
    """Hypotheses of one kind about the same ranks or node are one, with all their claims."""
    merged: list[Hypothesis] = []
    alike: dict[tuple[object, ...], list[int]] = {}  # a whole fleet can have a fault on each node
    for hypothesis in hypotheses:
        near = sorted({index for key in _keys(hypothesis) for index in alike.get(key, ())})
        index = next((i for i in near if _same_culprits(merged[i], hypothesis)), len(merged))
        if index < len(merged):
            merged[index] = _joined(merged[index], hypothesis)
        else:
            merged.append(hypothesis)
        for key in _keys(merged[index]):
            if index not in alike.setdefault(key, []):
                alike[key].append(index)
    return merged


def _keys(hypothesis: Hypothesis) -> list[tuple[object, ...]]:
    """Hypotheses with the same culprits share one of these."""
    kind = hypothesis.kind
    found: list[tuple[object, ...]] = []
    if hypothesis.ranks:
        found.append((kind, "ranks", hypothesis.ranks))
    elif hypothesis.suspects:
        found.append((kind, "suspects", hypothesis.suspects))
    if hypothesis.nodes or not found:
        found.append((kind, "nodes", hypothesis.nodes, hypothesis.pods))
    return found


def _same_culprits(one: Hypothesis, other: Hypothesis) -> bool:
    if one.ranks or other.ranks:
        if one.ranks == other.ranks:
            return True
        return bool(one.nodes) and one.nodes == other.nodes and not (one.ranks and other.ranks)
    if one.suspects or other.suspects:
        return one.suspects == other.suspects
    return one.nodes == other.nodes and one.pods == other.pods


def _joined(known: Hypothesis, other: Hypothesis) -> Hypothesis:
    have = {(c.text, str(c.origin)) for c in known.claims}
    more = tuple(c for c in other.claims if (c.text, str(c.origin)) not in have)
    first, second = (known, other) if known.xid is not None or other.xid is None else (other, known)
    return replace(
        first,
        claims=known.claims + more,
        ranks=known.ranks or other.ranks,
        nodes=known.nodes or other.nodes,
        pods=known.pods or other.pods,
        collective=known.collective or other.collective,
        corrupts=known.corrupts or other.corrupts,
        gpu=known.gpu or other.gpu,
        onset_ns=known.onset_ns if known.onset_ns is not None else other.onset_ns,
        degrades=known.degrades if known.degrades is not None else other.degrades,
        worsens=first.worsens if first.worsens is not None else second.worsens,
    )


def without_unnamed_slowness(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """A change of pace that names nobody is evidence for whoever explains it, not a rival."""
    unnamed = [h for h in hypotheses if h.kind is Kind.STRAGGLER and not h.ranks and not h.nodes]
    named = [h for h in hypotheses if h.slowdown is not None and h not in unnamed]
    return [h for h in hypotheses if h not in unnamed] if named else hypotheses


def slow_rank_of_its_node(case: Case, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """A straggler on a node of which a slowing fault is known, and not the rank: one story."""
    slow = [h for h in hypotheses if h.kind is Kind.STRAGGLER and len(h.ranks) == 1]
    result, told = [], set()
    for hypothesis in hypotheses:
        joined = next(
            (
                h
                for h in slow
                if hypothesis.kind is Kind.HARDWARE
                and hypothesis.degrades
                and not hypothesis.ranks
                and len(hypothesis.nodes) == 1
                and case.topology.node_of(h.ranks[0]) in (hypothesis.nodes[0], None)
            ),
            None,
        )
        if joined is None:
            result.append(hypothesis)
            continue
        told.add(joined.ranks)
        claims = (*hypothesis.claims, *joined.claims)
        result.append(replace(hypothesis, ranks=joined.ranks, claims=claims))
    return [h for h in result if not (h.kind is Kind.STRAGGLER and h.ranks in told)]


def one_node(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Hardware faults of several GPUs of one node, about as strong: the node, with the rank open."""
    ranked = sorted(
        (h for h in hypotheses if h.kind is Kind.HARDWARE and h.remedy is Remedy.NODE),
        key=lambda h: -total(h),
    )
    if len(ranked) < 2:
        return hypotheses
    first = ranked[0]
    close = [
        h
        for h in ranked[1:]
        if len(first.nodes) == 1
        and h.nodes == first.nodes
        and h.ranks != first.ranks
        and total(first) - total(h) < SAME_NODE_CLOSE
    ]
    if not close:
        return hypotheses
    together = replace(
        first,
        ranks=(),
        gpu=None,
        summary=f"{first.nodes[0]}: several of its GPUs report faults: {first.summary}",
        claims=first.claims
        + tuple(c for h in close for c in h.claims if c.weight < 0.5 * total(h)),
    )
    return [together, *(h for h in hypotheses if h is not first and h not in close)]


# --- Two faults ---------------------------------------------------------------------------------


def total(hypothesis: Hypothesis) -> float:
    """The sum of the weights of its claims."""
    return sum(claim.weight for claim in hypothesis.claims)


def both_guilty(case: Case, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """A rank that ended or stopped for a cause of its own, and one of another node that stands still and
    waits for nobody: neither explains the other, so both are guilty (facts: localisation 2)."""
    hypotheses = _wider(hypotheses)
    causes = [h for h in hypotheses if h.kind in CAUSES and _is_one_rank(h)]
    stalls = [h for h in hypotheses if h.kind in STALLS and _is_one_rank(h)]
    pairs = [
        (total(one) + total(other), one, other)
        for one in causes
        for other in stalls
        if one is not other
        and (one.kind in DEATHS or other.generic)
        and _is_elsewhere(case, one.ranks[0], other.ranks[0])
        and stopped_by_itself(case, other.ranks[0], beside=case.topology.unit_of(one.ranks[0]))
    ]
    if not pairs:
        return hypotheses
    return _joined_faults(hypotheses, pairs)


def _wider(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Of several ranks that stand still by themselves one has a cause of its own: it explains no other."""
    pair = next((h for h in hypotheses if len(h.ranks) == 2 and total(h) >= BY_ITSELF), None)
    part = next(
        (
            h
            for h in hypotheses
            if pair is not None
            and h.kind in STALLS
            and len(h.ranks) == 1
            and h.ranks[0] in pair.ranks
        ),
        None,
    )
    if pair is not None and part is not None and not pair.generic:
        joined = replace(pair, claims=(*pair.claims, *part.claims[:1]))
        return [joined, *(h for h in hypotheses if h is not pair and h is not part)]
    wide = next((h for h in hypotheses if h.generic and len(h.ranks) == 2), None)
    if wide is None:
        return hypotheses
    one = next(
        (
            h
            for h in hypotheses
            if not h.generic
            and h.kind in (Kind.DATA_STALL, Kind.RANK_CRASHED, Kind.HOST_OOM)
            and len(h.ranks) == 1
            and h.ranks[0] in wide.ranks
        ),
        None,
    )
    if one is None:
        return hypotheses
    both = replace(
        one,
        ranks=wide.ranks,
        nodes=(),
        summary=f"Two faults. {one.summary} {wide.summary}",
        claims=(*wide.claims, *one.claims),
        collective=one.collective or wide.collective,
    )
    return [both, *(h for h in hypotheses if h is not one and h is not wide)]


def _joined_faults(
    hypotheses: list[Hypothesis], pairs: list[tuple[float, Hypothesis, Hypothesis]]
) -> list[Hypothesis]:
    _, one, other = max(pairs, key=lambda pair: (pair[0], pair[1].ranks, pair[2].ranks))
    both = replace(
        one,
        ranks=tuple(sorted((*one.ranks, *other.ranks))),
        nodes=tuple(sorted({*one.nodes, *other.nodes})),
        gpu=None,
        summary=f"Two faults. {one.summary} {other.summary}",
        claims=(*one.claims, *other.claims),
        collective=other.collective or one.collective,
        xid=None,
    )
    return [both, *(h for h in hypotheses if h is not one and h is not other)]


def _is_one_rank(hypothesis: Hypothesis) -> bool:
    return len(hypothesis.ranks) == 1 and total(hypothesis) >= BY_ITSELF


def _is_elsewhere(case: Case, one: int, other: int) -> bool:
    return other not in case.topology.unit_of(one) and one not in case.topology.unit_of(other)


def is_spread_over(case: Case, shared: Hypothesis, located: Hypothesis) -> bool:
    """Whether what several nodes share may have stopped these ranks: more than one, on its nodes."""
    ranks = located.ranks or located.suspects or located.touched
    nodes = {case.topology.node_of(r) for r in ranks}
    return len(ranks) > 1 and bool(nodes & {*shared.spread, None})


def is_nowhere(case: Case, fault: Hypothesis, located: Hypothesis) -> bool:
    """Whether a node that failed placed no rank, and the ranks in question have no node."""
    return (
        fault.kind in (Kind.HARDWARE, Kind.NETWORK, Kind.RANK_CRASHED, Kind.HOST_OOM)
        and not fault.ranks
        and len(fault.nodes) == 1
        and fault.nodes[0] not in case.topology.by_node
        and all(case.topology.node_of(r) is None for r in located.suspects)
    )


def is_of_one_rank(case: Case, specific: Hypothesis, located: Hypothesis) -> bool:
    """Whether a fault known by its node is that of one rank there, and somebody in question has a node."""
    known = any(case.topology.node_of(r) is not None for r in located.suspects)
    return known and (specific.xid is not None or specific.narrows)


def narrowed_to_rank(case: Case, specific: Hypothesis, located: Hypothesis) -> Hypothesis | None:
    """A GPU's fault on a node, with the one rank of that node that the others can be waiting for."""
    here = tuple(r for r in located.suspects if case.topology.node_of(r) in specific.nodes)
    return among(specific, located, here) if here else None


def among(specific: Hypothesis, located: Hypothesis, ranks: tuple[int, ...]) -> Hypothesis:
    """A fault of one of several ranks, with those that it and the waiting both leave in question."""
    return replace(
        specific,
        claims=specific.claims + located.claims[:1],
        ranks=ranks if len(ranks) == 1 else (),
        suspects=() if len(ranks) == 1 else ranks,
        nodes=specific.nodes or (located.nodes if ranks == located.suspects else ()),
        collective=specific.collective or located.collective,
    )
