"""Hypotheses to one Verdict; the only place that sets confidence.

Log posterior = sum of log likelihood ratios, against an unnamed cause that always stands beside the
named ones. A rule that only localises (rank-missing) lends its claims to a rule that says why, when
both name the same rank or node: the most specific kind that the evidence supports wins. Below 0.8
nobody is named (facts: localisation 8).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpufleet_cli.alike import merge_same, total
from gpufleet_cli.facts import Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.quiet import quiet
from gpufleet_cli.reason.silence import quieter_by_s
from gpufleet_cli.stories import stories
from gpufleet_cli.verdict import (
    Alternative,
    CollectiveRef,
    Culprit,
    GpuRef,
    Hypothesis,
    JobState,
    Kind,
    Remedy,
    Verdict,
    Witness,
)

UNNAMED_CAUSE = 1.0
WORTH_A_WORD = 0.03
THRESHOLD = 0.8
CERTAIN = 0.99
PENDING_ON_RUNNING = 3.0
LOUDEST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """A hypothesis with its posterior."""

    hypothesis: Hypothesis
    posterior: float


def weigh(case: Case, hypotheses: Iterable[Hypothesis]) -> tuple[Verdict, Hypothesis | None]:
    """The verdict, and the hypothesis that it took (None when nothing was decided)."""
    ranked = rank(case, hypotheses)
    if not ranked:
        return _undecidable(case, ranked), None
    best = ranked[0]
    chosen = best.hypothesis
    confidence = _belief_in_culprits(ranked)
    named = chosen.ranks or chosen.nodes or chosen.pods
    if (chosen.suspects or chosen.touched) and not named:
        return _undecidable(case, ranked), None
    if confidence < THRESHOLD:
        return _undecidable(case, ranked), None
    return _verdict(case, ranked, min(confidence, CERTAIN)), chosen


def rank(case: Case, hypotheses: Iterable[Hypothesis]) -> list[Weighed]:
    """Hypotheses with posteriors, best first; ties by kind, then culprits."""
    merged = merge_same(hypotheses)
    lent = stories(case, merged)
    scored = [(h, _score(case, h, lent)) for h in lent]
    everything = math.exp(UNNAMED_CAUSE) + sum(math.exp(min(score, 50.0)) for _h, score in scored)
    weighed = [
        Weighed(hypothesis=h, posterior=math.exp(min(score, 50.0)) / everything)
        for h, score in scored
    ]
    return sorted(
        weighed,
        key=lambda w: (-w.posterior, w.hypothesis.kind, w.hypothesis.ranks, w.hypothesis.nodes),
    )


def _score(case: Case, hypothesis: Hypothesis, everyone: Sequence[Hypothesis]) -> float:
    score = sum(claim.weight for claim in hypothesis.claims)
    if hypothesis.kind is Kind.HEALTHY and any(
        other.kind in (Kind.HARDWARE, Kind.STRAGGLER, Kind.NETWORK) and total(other) > 1.0
        for other in everyone
    ):
        score -= PENDING_ON_RUNNING
    return score


def _belief_in_culprits(ranked: list[Weighed]) -> float:
    """The posterior of the best, with that of the others that name the same culprits."""
    best = ranked[0].hypothesis
    if not best.ranks and not best.nodes and not best.pods:
        return ranked[0].posterior
    return sum(
        w.posterior
        for w in ranked
        if w.hypothesis.ranks == best.ranks
        and (not best.ranks or bool(w.hypothesis.ranks))
        and (best.ranks or (w.hypothesis.nodes, w.hypothesis.pods) == (best.nodes, best.pods))
    )


# --- From the best hypothesis to a Verdict --------------------------------------------------------


def _verdict(case: Case, ranked: list[Weighed], confidence: float) -> Verdict:
    chosen = ranked[0].hypothesis
    culprits = culprits_of(case, chosen)
    guilty = {c.rank for c in culprits if c.rank is not None}
    waited = chosen.collective or CollectiveRef()
    return Verdict(
        kind=chosen.kind,
        culprits=culprits,
        confidence=round(confidence, 3),
        summary=chosen.summary + _innocents(case, chosen, guilty or _those_of(case, chosen)),
        collective=waited,
        evidence=tuple(sorted(chosen.claims, key=lambda c: -abs(c.weight))),
        witness_count=len(case.witnesses - guilty),
        loudest=_loudest(case, guilty, chosen),
        alternatives=_alternatives(ranked[1:]),
        remedy=chosen.remedy,
        would_settle=chosen.would_settle,
        settle_command=chosen.settle_command,
    )


def _those_of(case: Case, chosen: Hypothesis) -> set[int]:
    """All ranks of the pods or nodes that are named without a rank."""
    if chosen.pods:
        return {r for pod in chosen.pods for r in case.topology.by_pod.get(pod, ())}
    return {r for node in chosen.nodes for r in case.topology.by_node.get(node, ())}


def _innocents(case: Case, chosen: Hypothesis, guilty: set[int]) -> str:
    """The sentence that clears those who waited, where the summary does not say it yet."""
    waited = len(case.witnesses - guilty)
    where = chosen.collective
    if not guilty or waited == 0 or where is None or where.op is None or "waited" in chosen.summary:
        return ""
    if chosen.kind is Kind.COLLECTIVE_MISMATCH:
        return ""
    seq = "" if where.seq is None else f" {where.seq}"
    many = f"{waited:,} other ranks" if waited > 1 else "other rank"
    whom = "it" if len(guilty) == 1 else "them"
    return f" The {many} waited for {whom} in {where.op}{seq}; they are innocent."


def culprits_of(case: Case, chosen: Hypothesis) -> tuple[Culprit, ...]:
    """Culprit entries of a hypothesis: its ranks, else its pods or its nodes with the rank unknown."""
    if chosen.kind is Kind.HEALTHY:
        return ()
    if chosen.ranks:
        return tuple(_culprit(case, rank_, chosen) for rank_ in chosen.ranks)
    if chosen.remedy is Remedy.OUTSIDE and chosen.kind is Kind.STORAGE_STALL:
        return ()
    if chosen.pods:
        node_of = case.topology.node_of_pod
        return tuple(Culprit(rank=None, pod=pod, node=node_of.get(pod)) for pod in chosen.pods)
    gpu = chosen.gpu or GpuRef()
    return tuple(
        Culprit(rank=None, node=node, gpu=gpu if len(chosen.nodes) == 1 else GpuRef())
        for node in chosen.nodes
    )


def _culprit(case: Case, rank_: int, chosen: Hypothesis) -> Culprit:
    place = case.topology.places.get(rank_)
    silence = case.silence.get(rank_)
    known = silence is not None and silence.known
    gpu = GpuRef() if place is None else place.gpu
    if chosen.gpu is not None and len(chosen.ranks) == 1:
        gpu = GpuRef(
            index=gpu.index if gpu.index is not None else chosen.gpu.index,
            uuid=gpu.uuid or chosen.gpu.uuid,
            pci_bus_id=gpu.pci_bus_id or chosen.gpu.pci_bus_id,
        )
    node = None if place is None else place.node
    if node is None and len(chosen.nodes) == 1:
        node = chosen.nodes[0]
    return Culprit(
        rank=rank_,
        pod=None if place is None else place.pod,
        node=node,
        local_rank=None if place is None else place.local_rank,
        gpu=gpu,
        silent_since_ns=silence.last_sign_ns if silence is not None and known else None,
        quieter_by_s=quieter_by_s(case.silence, rank_) if known else None,
    )


def _alternatives(rest: Sequence[Weighed]) -> tuple[Alternative, ...]:
    found = []
    for weighed in rest[:5]:
        h = weighed.hypothesis
        against = [c for c in h.claims if not c.supports]
        why = against[0].text if against else f"{len(h.claims)} weaker claims: {h.summary}"
        found.append(
            Alternative(
                kind=h.kind,
                ranks=h.ranks or h.suspects,
                nodes=h.nodes,
                confidence=round(weighed.posterior, 3),
                why_less_likely=why,
            )
        )
    return tuple(found)


def _undecidable(case: Case, ranked: list[Weighed]) -> Verdict:
    """Nobody is named: the set that the evidence leaves, and what would settle it."""
    with_culprits = [w for w in ranked if w.hypothesis.kind is not Kind.HEALTHY]
    suspects: set[int] = set()
    for weighed in with_culprits:
        if weighed.posterior >= WORTH_A_WORD * with_culprits[0].posterior:
            suspects |= set(weighed.hypothesis.ranks) | set(weighed.hypothesis.suspects)
    top = ranked[0].hypothesis if ranked else None
    belief = sum(w.posterior for w in with_culprits if w.hypothesis.ranks or w.hypothesis.suspects)
    first = Alternative(
        kind=top.kind if top is not None else Kind.RANK_MISSING,
        ranks=tuple(sorted(suspects)),
        nodes=top.nodes if top is not None else (),
        confidence=round(min(belief, CERTAIN), 3),
        why_less_likely="the evidence does not single one out",
    )
    settle = next((w.hypothesis.would_settle for w in ranked if w.hypothesis.would_settle), "")
    return Verdict(
        kind=Kind.UNDECIDABLE,
        culprits=(),
        confidence=round(min(belief, CERTAIN), 3),
        summary=_undecided_summary(case, ranked, suspects),
        collective=(top.collective if top is not None else None) or CollectiveRef(),
        evidence=tuple(c for w in ranked[:3] for c in w.hypothesis.claims[:3]),
        witness_count=len(case.witnesses - suspects),
        loudest=_loudest(case, suspects, top),
        alternatives=(first, *_alternatives(ranked)) if suspects else _alternatives(ranked),
        remedy=Remedy.NOTHING,
        would_settle=settle or _what_would_settle(case),
        settle_command=next(
            (w.hypothesis.settle_command for w in ranked if w.hypothesis.settle_command), None
        ),
        ruled_out=_ruled_out(case, suspects),
    )


def _undecided_summary(case: Case, ranked: list[Weighed], suspects: set[int]) -> str:
    if suspects and len(suspects) < len(case.world):
        if len(suspects) == 1:
            only = next(iter(suspects))
            return f"The evidence points at rank {only}, but not surely enough to act on it."
        names = ", ".join(map(str, sorted(suspects)[:6])) + (", ..." if len(suspects) > 6 else "")
        return f"The evidence leaves {len(suspects)} ranks ({names}); it does not single one out."
    if ranked:
        return f"Not certain enough to act on: {ranked[0].hypothesis.summary}"
    if case.stop.state is JobState.RUNNING:
        return "Nothing wrong is shown, but too little was seen to call it healthy."
    still = quiet(case)
    if still is not None:
        return still.told()
    return "The evidence does not show what stopped this job, or that it stopped."


def _what_would_settle(case: Case) -> str:
    if not case.silence:
        return "logs of all ranks with times, and Flight Recorder dumps"
    if case.graph is None:
        return "Flight Recorder dumps of all ranks, kernel logs of their nodes"
    return "kernel logs of the nodes, and logs of the ranks that are missing"


def _ruled_out(case: Case, suspects: set[int]) -> tuple[str, ...]:
    innocent = sorted(case.witnesses - suspects)
    out = []
    if innocent:
        who = (
            f"{_names(set(innocent))}, which"
            if len(innocent) == 1
            else f"{len(innocent)} ranks that"
        )
        out.append(
            f"{who} reported a timeout: they waited"
            if len(innocent) > 1
            else f"{who} waited itself"
        )
    effects = sorted({p.event.xid for p in case.xids if p.reading.role == "effect"})
    if effects:
        out.append("XID " + ", ".join(map(str, effects)) + ": symptoms, never a cause")
    stale = [p for p in case.xids if not p.relevant and p.reading.role == "cause"]
    if stale:
        out.append(f"{len(stale)} older XID events outside the window of this incident")
    return tuple(out)


COMPLAINTS = frozenset(
    {
        Sign.DUMP_SIGNAL_OWN,
        Sign.ABORT,
        Sign.ASYNC_ERROR,
        Sign.PYTHON_EXCEPTION,
        Sign.PEER_CLOSED,
        Sign.PEER_UNREACHABLE,
        Sign.STORE_LOST,
        Sign.FATAL_SIGNAL,
        Sign.WATCHDOG_STUCK,
        Sign.REMOTE_ERROR,
    }
)


def error_lines(case: Case) -> Counter[int]:
    """Complaints per rank; the same line in two streams counts once."""
    seen: set[tuple[int, str, int | None]] = set()
    for timeout in case.timeouts:
        if timeout.rank is not None:
            seen.add((timeout.rank, f"timeout {timeout.fact.seq}", timeout.at_ns))
    for sign in case.signs:
        if sign.rank is not None and sign.fact.sign in COMPLAINTS:
            seen.add((sign.rank, sign.fact.text, None))
    return Counter(rank_ for rank_, _text, _at in seen)


def _loudest(case: Case, guilty: set[int], chosen: Hypothesis | None) -> tuple[Witness, ...]:
    counts = error_lines(case)
    innocent = sorted(
        ((count, rank_) for rank_, count in counts.items() if rank_ not in guilty),
        key=lambda item: (-item[0], item[1]),
    )
    waited = {t.rank: t for t in reversed(case.timeouts) if t.rank is not None}
    found = []
    for count, rank_ in innocent[:LOUDEST]:
        if rank_ in waited:
            timeout = waited[rank_].fact
            seq = "" if timeout.seq is None else f" {timeout.seq}"
            waited_for = chosen is not None and chosen.kind is not Kind.COLLECTIVE_MISMATCH
            for_whom = f" for {_names(guilty)}" if waited_for and 0 < len(guilty) <= 4 else ""
            why = (
                f"its watchdog waited {timeout.ran_ms / 1000:,.0f} s in {timeout.op}{seq}{for_whom}"
            )
        elif chosen is not None and chosen.kind is Kind.HEALTHY:
            why = "its errors came after the end of training"
        else:
            why = "its errors are consequences: peers or the store had gone"
        found.append(Witness(rank=rank_, error_lines=count, why_innocent=why))
    return tuple(found)


def _names(ranks: set[int]) -> str:
    listed = sorted(ranks)
    if len(listed) == 1:
        return f"rank {listed[0]}"
    return f"ranks {', '.join(map(str, listed[:-1]))} and {listed[-1]}"
