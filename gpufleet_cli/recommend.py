"""The three questions, their prices, one action, and the commands to paste.

1. Does the action stop the job, and what recompute does that cost? 2. Is the fault degrading the run
now? 3. Does it get worse if we wait one more checkpoint interval? The arithmetic decides for a running
job when every input was measured or given; otherwise the rule does: never stop a running job unless
the fault slows it now or its state may be corrupt. A software cause is never answered with a cordon.
"""

from __future__ import annotations

from typing import Literal

from gpufleet_cli import attempt_token, cost, xid_catalog
from gpufleet_cli.next_commands import commands
from gpufleet_cli.prices import Prices, is_healthy, price
from gpufleet_cli.reason import Case, restart
from gpufleet_cli.reason.placed import NS
from gpufleet_cli.verdict import (
    Action,
    Ground,
    Hypothesis,
    JobState,
    Kind,
    Option,
    Question,
    Recommendation,
    Remedy,
    Verdict,
)


def recommend(
    case: Case, verdict: Verdict, chosen: Hypothesis | None, *, gathered_as: str | None = None
) -> Recommendation:
    """What to do about this verdict, why, and at what price. `gathered_as`: the job as a command finds it in its
    cluster again, ready for a shell, where the evidence was gathered by its name or labels."""
    prices = price(case, chosen)
    action, decided_by, why = _action(case, verdict, chosen, prices)
    nodes = _nodes(verdict, chosen, action)
    token = attempt_token.token_of(case.pods)
    return Recommendation(
        action=action,
        nodes=nodes,
        questions=_questions(case, chosen, prices, action),
        options=_options(case, chosen, prices),
        decided_by=decided_by,
        would_flip=_would_flip(case, chosen, prices, action),
        lost_gpu_hours=_rounded(prices.lost),
        lost_waiting_gpu_hours=_rounded(prices.waiting_gpu_hours),
        lost_recompute_gpu_hours=_rounded(prices.recompute_gpu_hours),
        commands=commands(case, verdict, chosen, action, nodes, token, gathered_as),
        why=why,
        inputs=prices.inputs,
        attempt_token=token,
        ground=_ground(case, chosen, action, decided_by),
        restart=restart.without(case.restart_rooms, nodes),
    )


def _ground(
    case: Case, chosen: Hypothesis | None, action: Action, decided_by: str
) -> Ground | None:
    """Why evicting now is right; the order is that of `_for_node`."""
    if action is not Action.EVICT_NOW:
        return None
    if case.stop.stopped:
        return "stopped"
    if chosen is not None and chosen.corrupts:
        return "corrupt"
    return "arithmetic" if decided_by == "arithmetic" else "slowed"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


# --- Action --------------------------------------------------------------------------------------

Decision = tuple[Action, Literal["rule", "arithmetic"], str]


def _action(case: Case, verdict: Verdict, chosen: Hypothesis | None, prices: Prices) -> Decision:
    if chosen is None:
        return (
            Action.COLLECT_MORE,
            "rule",
            f"undecided; this would settle it: {verdict.would_settle}",
        )
    match chosen.remedy:
        case Remedy.NOTHING:
            if chosen.kind is Kind.HEALTHY:
                return Action.NONE, "rule", "nothing is wrong with the job"
            return Action.WATCH, "rule", "no node is to blame"
        case Remedy.CODE:
            return (
                Action.FIX_CODE,
                "rule",
                "a restart would run into the same fault; no node is to blame",
            )
        case Remedy.OUTSIDE:
            if case.stop.stopped:
                return (
                    Action.RESTART_JOB,
                    "rule",
                    "no single node is to blame; restart when the cause is mended",
                )
            return Action.WATCH, "rule", "the cause lies outside the job's nodes"
        case Remedy.PROCESS:
            return _for_process(case, chosen)
        case Remedy.NODE:
            return _for_node(case, chosen, prices)


def _for_process(case: Case, chosen: Hypothesis) -> Decision:
    if case.stop.stopped:
        return (
            Action.RESTART_JOB,
            "rule",
            "the job is stopped, and nothing in the evidence blames the node",
        )
    if chosen.kind is Kind.NETWORK:
        return (
            Action.COLLECT_MORE,
            "rule",
            f"the peer or its link: {chosen.would_settle} would tell",
        )
    return (
        Action.WATCH,
        "rule",
        "nothing shows that the job has stopped, and nothing blames the node",
    )


def _for_node(case: Case, chosen: Hypothesis, prices: Prices) -> Decision:
    if case.stop.stopped:
        return (
            Action.EVICT_NOW,
            "rule",
            "the job is stopped: evicting costs nothing more, and a restart on that node fails again",
        )
    if chosen.corrupts:
        return (
            Action.EVICT_NOW,
            "rule",
            "state may be corrupt: the node must not take part in a save",
        )
    stakes = prices.stakes
    if stakes is not None:
        if prices.all_known:
            decided = cost.decide(stakes)
            return decided.action, "arithmetic", _price_words(decided)
        if chosen.degrades and chosen.slowdown is not None and chosen.kind is not Kind.STRAGGLER:
            return Action.EVICT_NOW, "rule", f"{chosen.degrades_why}: it degrades the run now"
    if chosen.xid is not None and _only_watch(chosen.xid):
        return Action.WATCH, "rule", f"XID {chosen.xid} asks for nothing by itself"
    return (
        Action.CORDON_AT_CHECKPOINT,
        "rule",
        f"{_state_words(case)}: cordon now (stops nothing), evict at the next boundary",
    )


def _price_words(decided: cost.Decision) -> str:
    evict, wait = decided.evict_gpu_hours, decided.wait_gpu_hours or 0.0
    if decided.action is Action.EVICT_NOW:
        return f"evicting costs {evict:,.0f} GPU-h, waiting {wait:,.0f}"
    tie = " (a tie: the less disruptive)" if decided.is_tie else ""
    return f"waiting costs {wait:,.0f} GPU-h, evicting {evict:,.0f}{tie}"


def _state_words(case: Case) -> str:
    if case.stop.state is JobState.RUNNING:
        return "the job runs"
    return "the job is not known to have stopped"


def _only_watch(xid: int) -> bool:
    return xid_catalog.xid(xid).disposition in ("watch", "ignore")


def _nodes(verdict: Verdict, chosen: Hypothesis | None, action: Action) -> tuple[str, ...]:
    """The nodes that the action is for; none for an action that is for no node."""
    if chosen is None or action not in (Action.EVICT_NOW, Action.CORDON_AT_CHECKPOINT):
        return ()
    named = {c.node for c in verdict.culprits if c.node is not None} | set(chosen.nodes)
    return tuple(sorted(named))


# --- Questions and options -----------------------------------------------------------------------


def _questions(
    case: Case, chosen: Hypothesis | None, prices: Prices, action: Action
) -> tuple[Question, ...]:
    return (
        _stops_job(case, prices, action),
        _degrading(case, chosen),
        _worse(case, chosen, prices),
    )


def _stops_job(case: Case, prices: Prices, action: Action) -> Question:
    if case.stop.stopped:
        what = "finished" if case.stop.state is JobState.EXITED else "stopped"
        return Question(id="stops-job", answer="no", why=f"already {what}", gpu_hours=0.0)
    if action in (Action.NONE, Action.WATCH, Action.COLLECT_MORE, Action.FIX_CODE):
        return Question(id="stops-job", answer="no", why="this action stops nothing", gpu_hours=0.0)
    evict = None if prices.stakes is None else round(cost.evict_gpu_hours(prices.stakes), 2)
    if action is Action.CORDON_AT_CHECKPOINT:
        would = "" if evict is None else f" ({evict:,.0f} GPU-h)"
        return Question(
            id="stops-job",
            answer="no",
            why=f"a cordon stops nothing; evicting would{would}",
            gpu_hours=0.0,
        )
    return Question(
        id="stops-job",
        answer="yes",
        why="recompute since the checkpoint, and a restart",
        gpu_hours=evict,
    )


def _degrading(case: Case, chosen: Hypothesis | None) -> Question:
    gpus = case.topology.world_size
    if chosen is not None and chosen.kind is Kind.HEALTHY:
        return Question(
            id="degrading-now", answer="no", why="nothing is slow", gpu_hours_per_hour=0.0
        )
    if case.stop.stopped and case.stop.state is not JobState.EXITED:
        held = "all GPUs" if gpus is None else f"{gpus:,} GPUs"
        return Question(
            id="degrading-now",
            answer="yes",
            why=f"{held} do nothing",
            gpu_hours_per_hour=None if gpus is None else float(gpus),
        )
    kept = None if chosen is None else _keeps_its_pace(case, chosen)
    if kept is not None:
        return Question(id="degrading-now", answer="no", why=kept, gpu_hours_per_hour=0.0)
    if chosen is None or chosen.degrades is None:
        return Question(id="degrading-now", answer="unknown", why="the evidence does not tell")
    if not chosen.degrades:
        why = chosen.degrades_why or "steps keep their pace"
        return Question(id="degrading-now", answer="no", why=why, gpu_hours_per_hour=0.0)
    if chosen.xid is not None and chosen.slowdown is None:
        why = f"XID {chosen.xid} often does; no slower step was read"
        return Question(id="degrading-now", answer="unknown", why=why)
    lost = None
    if gpus is not None and chosen.slowdown is not None and chosen.slowdown > 1:
        lost = round(gpus * (1 - 1 / chosen.slowdown), 2)
    return Question(
        id="degrading-now",
        answer="yes",
        why=chosen.degrades_why or "it slows the run",
        gpu_hours_per_hour=lost,
    )


def _keeps_its_pace(case: Case, chosen: Hypothesis) -> str | None:
    """Steps at the old pace since the fault: it does not slow the run, whatever the code usually does."""
    steps = case.steps
    if steps.after_s is not None or steps.step_s is None or chosen.slowdown is not None:
        return None
    if chosen.onset_ns is None or steps.last_step_ns is None:
        return None
    if (steps.last_step_ns - chosen.onset_ns) / NS < 3 * steps.step_s:
        return None
    return f"{steps.step_s:.2f} s a step before and since"


def _worse(case: Case, chosen: Hypothesis | None, prices: Prices) -> Question:
    """Priced as one more failure of the same kind: half an interval, detection and a restart."""
    if chosen is None:
        return Question(id="worse-if-left", answer="unknown", why="the cause is not known")
    answer: Literal["yes", "no", "unknown"] = (
        "unknown" if chosen.worsens is None else "yes" if chosen.worsens else "no"
    )
    if case.stop.stopped and chosen.remedy is Remedy.NODE and chosen.worsens is not False:
        answer, why = "yes", "a restart lands on it again"
    elif case.stop.stopped and chosen.remedy is Remedy.CODE:
        answer, why = "yes", "a restart runs into the same bug"
    else:
        unknown = "nothing is wrong" if is_healthy(chosen) else "the evidence does not tell"
        why = chosen.worsens_why or unknown
    gpu_hours = None
    if answer == "yes" and prices.stakes is not None:
        s = prices.stakes
        gpu_hours = round(cost.gpu_hours(s.gpus, s.interval_s / 2 + s.detection_s + s.restart_s), 2)
    return Question(
        id="worse-if-left", answer=answer, why=why, gpu_hours=0.0 if answer == "no" else gpu_hours
    )


def _options(case: Case, chosen: Hypothesis | None, prices: Prices) -> tuple[Option, ...]:
    stakes = prices.stakes
    if case.stop.stopped:
        return (
            Option(option="evict-now", gpu_hours=0.0),
            Option(option="wait-for-boundary", gpu_hours=None),
            Option(option="leave", gpu_hours=None),
        )
    if stakes is None or chosen is None:
        return (
            Option(option="evict-now", gpu_hours=None),
            Option(option="wait-for-boundary", gpu_hours=None),
            Option(option="leave", gpu_hours=None),
        )
    return (
        Option(option="evict-now", gpu_hours=round(cost.evict_gpu_hours(stakes), 2)),
        Option(option="wait-for-boundary", gpu_hours=round(cost.wait_gpu_hours(stakes), 2)),
        Option(option="leave", gpu_hours=round(cost.leave_gpu_hours(stakes, stakes.interval_s), 2)),
    )


def _would_flip(case: Case, chosen: Hypothesis | None, prices: Prices, action: Action) -> str:
    if chosen is None:
        return "evidence that singles out a rank or a node"
    if chosen.corrupts and not case.stop.stopped:
        return "a contained error (XID 94) on the same GPU: then the boundary"
    if chosen.remedy is Remedy.OUTSIDE and chosen.kind is Kind.HARDWARE:
        return "errors on one node of the domain only: then evict that node"
    if case.stop.stopped or prices.stakes is None or chosen.remedy is not Remedy.NODE:
        if action is Action.EVICT_NOW:
            return "a step completed after the fault (the job runs after all), or another culprit"
        if action is Action.RESTART_JOB:
            return "an XID or a kernel fault on that rank's node: then evict it"
        if action is Action.FIX_CODE:
            return "the same fault on the same node in another job: then it is the node"
        return "a newer step, or an error line, in later evidence"
    slowdown = cost.break_even_slowdown(prices.stakes)
    hazard = cost.break_even_hazard_per_hour(prices.stakes)
    parts = []
    if slowdown is not None:
        parts.append(f"steps {slowdown:.2f} times as long")
    if hazard is not None:
        parts.append(f"an extra hazard of {hazard:.2f} per hour")
    evict, wait = cost.evict_gpu_hours(prices.stakes), cost.wait_gpu_hours(prices.stakes)
    side = "above" if wait <= evict else "below"
    return f"{side} {' or '.join(parts)}" if parts else "a boundary that is closer"
