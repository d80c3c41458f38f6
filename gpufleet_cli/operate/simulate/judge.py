"""An answer against the truth: was the right one named, who was wronged, what did it cost.

Pure arithmetic over `Truth` and `Triage`; the drill and the measurements judge by the same rules.

Regret is priced against somebody who knows the truth, who decides at once, evicts the guilty nodes
and no other, and never restarts into the same fault. What even that person pays (work lost up to
the stop, one restart) is left out. The terms are those of `cost`: an unwanted eviction of a running
job is work since the checkpoint and a restart; one more failure is half an interval, detection and
a restart, as the third of the three questions prices it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpufleet_cli import cost
from gpufleet_cli.operate.simulate.story import HEALTHY
from gpufleet_cli.operate.simulate.truth import Truth
from gpufleet_cli.verdict import Action, Alternative, Kind, Triage, Verdict

HARDWARE_KINDS = frozenset({Kind.HARDWARE, Kind.NETWORK})
SOFTWARE_KINDS = frozenset(
    {Kind.RANK_CRASHED, Kind.COLLECTIVE_MISMATCH, Kind.CUDA_OOM, Kind.DATA_STALL}
)
FOR_NODES = frozenset({Action.EVICT_NOW, Action.CORDON_AT_CHECKPOINT})

# A bug that a restart meets again; other software faults may be gone after one.
REPEATING = frozenset({Kind.COLLECTIVE_MISMATCH, Kind.CUDA_OOM})

# --- Prices: judgement, but for those of `cost` and where a source is named ------------------------

LOOK_S = 900.0
"""One person's look at what the answer left open: a quarter of an hour in which the job idles."""
UNNOTICED_S = cost.DEFAULT_CHECKPOINT_INTERVAL_S
"""How long a stopped job stays down when the answer asks nobody to do anything."""
NODE_OUT_S = 4 * 3600.0
"""How long a healthy node is out of service once it was cordoned (the short repair of the facts)."""
RETRY_FAILS = 2 / 3
"""Automatic retries succeed one time in three (Lablup, arXiv 2605.09370)."""
SLOWDOWN = 1.346
"""A slowed job takes so much longer (GREYHOUND, ATC'25: 34.6 % in the mean)."""
LEFT_S = 4 * 3600.0
"""How long a fault that does not stop the job goes on when the answer leaves it alone."""
HAZARD_PER_HOUR = 0.5
"""Extra hazard of a faulty device that has not stopped the job yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What an answer was worth.

    `exact`: kind and culprits are right. `set_right`: nobody was named where the files single nobody
    out, and the suspects hold the guilty and nobody whom the files clear. `right` is the one that
    the world asks for. `held`: what `confidence` speaks of came true, whatever the files could tell
    (None where nothing was claimed): that is what calibration compares it with. `node_right` is None
    where no node is guilty or nobody was named; `set_size` is None unless the answer was a set. `acts`:
    the advice is to evict or cordon a node.
    """

    right: bool
    exact: bool
    set_right: bool
    held: bool | None
    confidence: float
    abstained: bool
    set_size: int | None
    node_right: bool | None
    acts: bool
    innocent_ranks: tuple[int, ...]
    innocent_nodes: tuple[str, ...]
    software_called_hardware: bool
    hardware_called_software: bool
    healthy_wrong: bool
    regret_gpu_hours: float

    @property
    def acted_on_innocents(self) -> bool:
        """Whether an eviction or a cordon was advised for somebody who did nothing."""
        return bool(self.innocent_ranks or self.innocent_nodes)


ENDLESS = frozenset({Kind.COLLECTIVE_MISMATCH, Kind.NETWORK})


def judge(truth: Truth, triage: Triage) -> Judged:
    """What this answer is worth, given the truth."""
    verdict = triage.verdict
    abstained = verdict.kind is Kind.UNDECIDABLE
    exact = verdict.kind in truth.kinds and _names_the_guilty(truth, verdict)
    set_right = not truth.decided and _leaves_the_right_set(truth, verdict)
    ranks, nodes = innocents(truth, triage)
    is_other_kind = verdict.kind not in truth.kinds
    return Judged(
        right=exact if truth.decided else set_right,
        exact=exact,
        set_right=set_right,
        held=_held(truth, verdict, exact=exact),
        confidence=verdict.confidence,
        abstained=abstained,
        set_size=len(suspects(verdict)) if abstained else None,
        node_right=_node_right(truth, verdict),
        acts=triage.recommendation.action in FOR_NODES,
        innocent_ranks=ranks,
        innocent_nodes=nodes,
        software_called_hardware=(
            truth.side == "software" and is_other_kind and verdict.kind in HARDWARE_KINDS
        ),
        hardware_called_software=(
            truth.side == "hardware" and is_other_kind and verdict.kind in SOFTWARE_KINDS
        ),
        healthy_wrong=truth.cls in HEALTHY
        and verdict.kind is not Kind.HEALTHY
        and not (abstained and not truth.decided),
        regret_gpu_hours=regret_gpu_hours(truth, triage, exact=exact),
    )


# --- Who was named -------------------------------------------------------------------------------


def suspects(verdict: Verdict) -> frozenset[int]:
    """The set that an undecided verdict leaves; empty where it leaves none."""
    first: Alternative | None = next(iter(verdict.alternatives), None)
    return frozenset() if first is None else frozenset(first.ranks)


def has_culprits(truth: Truth) -> bool:
    """Whether somebody is to blame."""
    return bool(truth.culprits or (truth.by_node and truth.nodes))


def _names_the_guilty(truth: Truth, verdict: Verdict) -> bool:
    """All of them and nobody else. Where nobody is to blame, a world may accept to be told so little."""
    if verdict.kind is Kind.UNDECIDABLE:
        return not has_culprits(truth) and _leaves_the_right_set(truth, verdict)
    ranks = {c.rank for c in verdict.culprits if c.rank is not None}
    loose = [c.node for c in verdict.culprits if c.rank is None]
    if not has_culprits(truth):
        return not loose and ranks <= truth.may_name
    if ranks == truth.culprits and all(node in truth.nodes for node in loose):
        return True
    return truth.by_node and ranks <= truth.culprits and _named_nodes(truth, verdict) == truth.nodes


def _named_nodes(truth: Truth, verdict: Verdict) -> set[str | None]:
    """Nodes of the culprits: as stated, else where the rank is in truth."""
    return {
        c.node if c.node is not None else _home(truth, c.rank) if c.rank is not None else None
        for c in verdict.culprits
    }


def _home(truth: Truth, rank: int) -> str | None:
    return truth.node_of[rank] if 0 <= rank < len(truth.node_of) else None


def _node_right(truth: Truth, verdict: Verdict) -> bool | None:
    """By the nodes that stand in the verdict: one that is not stated cannot be cordoned."""
    if not (has_culprits(truth) and truth.nodes and verdict.culprits):
        return None
    return {c.node for c in verdict.culprits} == truth.nodes


def _leaves_the_right_set(truth: Truth, verdict: Verdict) -> bool:
    """Where the files single nobody out: a set that is neither too small nor too large.

    A node whose rank is left open is a set of its ranks. Where nobody is to blame there is no guilty
    one to hold: no suspects, all ranks, or those who may be named. A mismatch whose odd side is not
    told, or a network fault without one end, names nobody, and need not.
    """
    if verdict.kind is not Kind.UNDECIDABLE:
        if not verdict.culprits and verdict.kind in ENDLESS & truth.kinds:
            return True
        if not (verdict.kind in truth.kinds and _names_the_node(truth, verdict)):
            return False
        ranks = {r for r, node in enumerate(truth.node_of) if node in truth.nodes}
        told = truth.told or frozenset()
        return ranks <= told or (truth.by_node and told <= ranks)
    left = suspects(verdict)
    if not has_culprits(truth):
        return left <= truth.may_name or len(left) == truth.size
    if not left:  # nobody is singled out and nobody cleared
        left = frozenset(range(truth.size))
    return truth.culprits <= left and (truth.told is None or left <= truth.told)


def _names_the_node(truth: Truth, verdict: Verdict) -> bool:
    """The guilty nodes and no rank."""
    named = verdict.culprits
    return (
        has_culprits(truth)
        and all(c.rank is None for c in named)
        and {c.node for c in named} == truth.nodes
    )


def _held(truth: Truth, verdict: Verdict, *, exact: bool) -> bool | None:
    """Whether kind and culprits are right, a rank that is left open included; of a set, whether the
    guilty are in it."""
    if verdict.kind is not Kind.UNDECIDABLE:
        return exact or (verdict.kind in truth.kinds and _names_the_node(truth, verdict))
    left = suspects(verdict)
    if not left:
        return None
    return bool(truth.culprits) and truth.culprits <= left


def innocents(truth: Truth, triage: Triage) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Ranks and nodes that an advised eviction or cordon wrongs."""
    if triage.recommendation.action not in FOR_NODES:
        return (), ()
    named = triage.verdict.culprits
    ranks = {c.rank for c in named if c.rank is not None} - truth.culprits
    nodes = {*triage.recommendation.nodes, *(c.node for c in named if c.rank is None and c.node)}
    return tuple(sorted(ranks)), tuple(sorted(nodes - truth.nodes))


# --- Regret --------------------------------------------------------------------------------------


def regret_gpu_hours(truth: Truth, triage: Triage, *, exact: bool) -> float:
    """GPU-hours that following this advice loses against knowing the truth."""
    advice = triage.recommendation
    acts = advice.action in FOR_NODES
    evicted = frozenset(advice.nodes) if acts else frozenset()
    faulty = truth.nodes if truth.side == "hardware" else frozenset()
    idle = _node_gpu_hours(truth, evicted - faulty)
    if truth.stopped:
        return idle + _stopped(truth, advice.action, evicted, exact=exact)
    return idle + _running(truth, advice.action, evicted)


def _wants_eviction(truth: Truth) -> bool:
    return truth.side == "hardware" and has_culprits(truth) and bool(truth.nodes)


def _stopped(truth: Truth, action: Action, evicted: frozenset[str], *, exact: bool) -> float:
    """A job that is down: what the wrong next step costs."""
    gpus = truth.size
    look = cost.gpu_hours(gpus, LOOK_S)
    again = one_more_failure_gpu_hours(gpus)
    if action is Action.COLLECT_MORE:
        return look
    if action in (Action.NONE, Action.WATCH):
        return cost.gpu_hours(gpus, UNNOTICED_S)
    late = look if action is Action.CORDON_AT_CHECKPOINT else 0.0  # no boundary comes
    if _wants_eviction(truth):
        if truth.nodes <= evicted:
            return late
        return again + late + (look if action is Action.FIX_CODE else 0.0)
    if action is Action.FIX_CODE:
        is_pointed = truth.side == "software" and exact
        return 0.0 if is_pointed else look
    if truth.side == "software" and truth.kinds & REPEATING:
        return RETRY_FAILS * again + late
    if action is Action.RESTART_JOB:
        return 0.0
    return RETRY_FAILS * again + late


def _running(truth: Truth, action: Action, evicted: frozenset[str]) -> float:
    """A job that runs: stopped for nothing, or left with a fault that costs more."""
    is_ill = _wants_eviction(truth)
    stakes = _stakes(truth, is_ill=is_ill)
    prices = {
        Action.EVICT_NOW: cost.evict_gpu_hours(stakes),
        Action.CORDON_AT_CHECKPOINT: cost.wait_gpu_hours(stakes),
        Action.RESTART_JOB: cost.evict_gpu_hours(stakes),
    }
    leave = cost.leave_gpu_hours(stakes, LEFT_S) if is_ill else 0.0
    best = min(prices[Action.EVICT_NOW], prices[Action.CORDON_AT_CHECKPOINT]) if is_ill else 0.0
    paid = prices.get(action, 0.0)
    if not (is_ill and action in FOR_NODES and truth.nodes <= evicted):
        paid += leave
    return max(0.0, paid - best)


def _stakes(truth: Truth, *, is_ill: bool) -> cost.Stakes:
    """The defaults of the three questions, half an interval after the last checkpoint."""
    is_slow = is_ill and Kind.STRAGGLER in truth.kinds
    return cost.Stakes(
        gpus=truth.size,
        interval_s=cost.DEFAULT_CHECKPOINT_INTERVAL_S,
        since_checkpoint_s=cost.DEFAULT_CHECKPOINT_INTERVAL_S / 2,
        save_s=cost.DEFAULT_SAVE_S,
        restart_s=cost.DEFAULT_RESTART_S,
        planned_restart_s=cost.DEFAULT_RESTART_S,
        detection_s=cost.DEFAULT_WATCHDOG_S,
        slowdown=SLOWDOWN if is_slow else 1.0,
        hazard_per_hour=HAZARD_PER_HOUR if is_ill and not is_slow else 0.0,
    )


def one_more_failure_gpu_hours(gpus: int) -> float:
    """Half a checkpoint interval of work, its detection and a restart.

    >>> one_more_failure_gpu_hours(64)
    32.0
    """
    seconds = (
        cost.DEFAULT_CHECKPOINT_INTERVAL_S / 2 + cost.DEFAULT_WATCHDOG_S + cost.DEFAULT_RESTART_S
    )
    return cost.gpu_hours(gpus, seconds)


def _node_gpu_hours(truth: Truth, nodes: Iterable[str]) -> float:
    """What innocent nodes would have computed until somebody gave them back."""
    each = max((truth.node_of.count(node) for node in set(truth.node_of)), default=0)
    return sum(cost.gpu_hours(truth.node_of.count(n) or each, NODE_OUT_S) for n in set(nodes))
