"""Tearing a gang down, from the first look to the line that says what stands.

    which gang -> may we -> look (a bundle), triage -> second look -> the guard -> a person -> the boundary, where one
    is waited for -> read again, the guard again -> its controller's means -> what stands, the audit log

Nothing here decides: `evict_guard` does, on facts that `evict_look` reads. Between the last read and the change
lies one request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpufleet_cli.attempt_token import token_of
from gpufleet_cli.errors import UsageError
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.operate import (
    audit,
    boundary,
    checkpoint_metric,
    evict_guard,
    evict_look,
    evict_target,
    evict_told,
    permits,
    tear_down,
    tear_down_run,
)
from gpufleet_cli.operate.audit import Deed
from gpufleet_cli.operate.evict_look import PROGRAM, Order, Seen, Talk
from gpufleet_cli.operate.evict_told import Ended
from gpufleet_cli.operate.rulings import Ruling
from gpufleet_cli.operate.tear_down_run import BUDGET_S, Result
from gpufleet_cli.operate.writes import Writer

WAIT_S = 4 * 3600.0
"""So long a checkpoint is waited for where nobody says --deadline."""
AT_ONCE_NS = 10_000_000_000
"""An answer that took longer is of another moment than the look."""


def evict(api: Api, order: Order, talk: Talk) -> Ended:
    """Tear the gang down: what came of it, and the error that it ends with where it was not done."""
    if order.marker is not None:
        boundary.read_marker(order.marker)  # what cannot serve is told before anything is gathered
    which = evict_target.meant(api, order.word, order.selector, order.namespace)
    if which is None:
        return evict_told.no_gang(order.word)
    seen = evict_look.first_look(api, which, order)
    ended = _may_not(api, order, seen, talk)
    if ended is not None:
        return ended
    if not seen.facts.holds:
        return evict_told.already(order, seen, evict_look.idle(seen))
    seen = evict_look.look(api, order, seen, talk)
    ruling = evict_guard.rule(seen.facts)
    waits = order.at_checkpoint and not evict_guard.is_stopped(seen.facts)
    if waits:
        ruling = evict_guard.may_wait(seen.facts)
    if ruling.answer == "done":
        return evict_told.already(order, seen, ruling.why)
    if not ruling.goes:
        return _refused(api, order, seen, ruling, talk)
    if api.access.through_kubectl:
        return evict_told.by_hand(order, seen, ruling)
    asked_ns = api.now_ns()
    _tell_before(api, seen, ruling, order, talk)
    if waits:
        ended = _no_boundary(api, order, seen, talk)
        if ended is not None:
            return ended
    elif api.now_ns() - asked_ns > AT_ONCE_NS:
        seen = evict_look.after_the_answer(api, seen)
    return _act(api, order, seen, waits=waits, talk=talk)


# --- Before the look ------------------------------------------------------------------------------


def _may_not(api: Api, order: Order, seen: Seen, talk: Talk) -> Ended | None:
    """Refuse before anything is gathered what no look can mend."""
    if order.grace_s is not None and not seen.planned.is_one_by_one:
        raise UsageError(
            f"--grace-period: the controller of {seen.job.shown} keeps the pods' own",
            hint="leave it out",
        )
    if seen.facts.may is False:
        why = f"no right to {seen.facts.right}"
        _record(api, order, seen, talk, outcome="refused", why=why)
        return evict_told.no_right(order, seen, permits.refusal([seen.planned.right]))
    ruling = evict_guard.may_wait(seen.facts)
    return _refused(api, order, seen, ruling, talk) if ruling.answer == "no" else None


# --- A person, and the boundary -------------------------------------------------------------------


def _tell_before(api: Api, seen: Seen, ruling: Ruling, order: Order, talk: Talk) -> None:
    """What goes with the pods, and what it costs, before anybody is asked."""
    planned = seen.planned
    talk.say(f"{seen.job.shown}: {ruling.why}")
    talk.say(planned.says)
    for line in tear_down.loses(seen.pods, one_by_one=planned.is_one_by_one):
        talk.say(line)
    for line in evict_look.spare_lines(api, seen):
        talk.say(line)
    grace, hours = tear_down.idle_grace(seen.pods)
    if hours and evict_guard.is_stopped(seen.facts) and order.grace_s is None:
        offer = "; --grace-period shortens it" if planned.is_one_by_one else ""
        talk.say(f"the pods have {grace} s to end, idle: at most {hours:,.2f} GPU-h{offer}")
    name = seen.which.node or seen.job.name
    talk.confirm(f"{PROGRAM} evict: tear down {seen.job.shown}, {len(seen.pods)} pods", name)


def _no_boundary(api: Api, order: Order, seen: Seen, talk: Talk) -> Ended | None:
    """Wait until the boundary, None; anything else ends it, and nothing was touched."""
    assert seen.found is not None
    job = seen.found.job
    metric = checkpoint_metric.reader(
        api,
        [pod.name for pod in seen.pods],
        seen.job.namespace,
        flag=order.options.prometheus,
        metric=order.metric,
        say=talk.say,
    )
    limit = order.deadline_s or WAIT_S
    talk.say(f"waiting for the next durable checkpoint, {limit:g} s at most")
    ended = boundary.wait(
        api,
        seen.pods,
        lambda: evict_look.pods_now(api, seen),
        rhythm=boundary.Rhythm(step_s=job.step_s, watchdog_s=job.watchdog_timeout_s),
        deadline=Deadline(limit),
        marker=order.marker,
        metric=metric,
        say=talk.say,
    )
    if ended.how == "boundary":
        talk.say(f"boundary: {ended.why}")
        return None
    why = f"{ended.why} while it was waited for: nothing was touched"
    _record(api, order, seen, talk, outcome="refused", why=why)
    token = token_of([pod.state for pod in evict_look.pods_now(api, seen)])
    return evict_told.no_boundary(order, seen, why, is_late=ended.how == "late", token=token)


# --- The deed -------------------------------------------------------------------------------------


def _act(api: Api, order: Order, seen: Seen, *, waits: bool, talk: Talk) -> Ended:
    """Read again, rule again, and do it."""
    now = evict_look.pods_now(api, seen)
    facts = replace(
        seen.facts,
        strangers=tuple(pod.name for pod in now if pod.state.uid not in seen.uids),
        restarted=evict_look.restarted(seen.pods, now),
        token=token_of([pod.state for pod in now]),
        # Who gave none means the run that was looked at: its containers may have begun anew since.
        wanted_token=order.wanted_token or (seen.facts.token if now else None),
        boundary="reached" if waits else "not-asked",
    )
    ruling = evict_guard.rule(facts)
    if ruling.answer == "done":
        return evict_told.already(order, seen, ruling.why)
    if not ruling.goes:
        return _refused(api, order, seen, ruling, talk)
    result = _done(api, order, seen, now)
    _record(api, order, seen, talk, outcome=_outcome(result), why=result.why)
    left: list[str] = []
    if result.outcome == "done" and not order.dry_run:
        left = tear_down_run.leaving(lambda: evict_look.pods_now(api, seen), seen.uids)
    return evict_told.came(order, seen, result, left)


def _done(api: Api, order: Order, seen: Seen, now: Sequence[Pod]) -> Result:
    writer = Writer(api=api, dry_run=order.dry_run)
    planned = seen.planned
    if planned.means == "evict":
        stated = None if order.at_checkpoint else order.deadline_s
        limit = Deadline(BUDGET_S if stated is None else stated)
        return tear_down_run.evict(
            writer, now, limit, grace_s=order.grace_s, waits=stated is not None,
            again=lambda: _another(api, seen) or _steps_again(api, seen),
        )  # fmt: skip
    if planned.means == "abort":
        return tear_down_run.command(writer, planned, seen.job)

    return tear_down_run.patch(writer, planned, seen.job.uid, lambda: _another(api, seen))


def _another(api: Api, seen: Seen) -> str | None:
    """Why the job is another by now, None where it is the one that was looked at."""
    now = evict_look.pods_now(api, seen)
    new = [pod.name for pod in now if pod.state.uid not in seen.uids]
    if new:
        return f"new pods came: {', '.join(new[:4])}"
    anew = evict_look.restarted(seen.pods, now)
    return f"restarted in place: {', '.join(anew[:4])}" if anew else None


def _steps_again(api: Api, seen: Seen) -> str | None:
    """Why a job that had stopped when it was looked at has not any more."""
    if not evict_guard.is_stopped(seen.facts):
        return None
    facts = evict_look.after_the_answer(api, seen).facts
    return None if evict_guard.is_stopped(facts) else evict_guard.rule(facts).why


def _outcome(result: Result) -> audit.Outcome:
    return "refused" if result.outcome == "changed" else result.outcome


def _refused(api: Api, order: Order, seen: Seen, ruling: Ruling, talk: Talk) -> Ended:
    """End with 5, and keep that it was asked for."""
    _record(api, order, seen, talk, outcome="refused", why=ruling.why, hours=ruling.gpu_hours)
    return evict_told.refused(order, seen, ruling)


def _record(
    api: Api,
    order: Order,
    seen: Seen,
    talk: Talk,
    *,
    outcome: audit.Outcome,
    why: str,
    hours: float | None = None,
) -> None:
    deed = Deed(
        verb="evict",
        outcome=outcome,
        why=why,
        # Who may not evict may not tell, and through kubectl proxy nothing is written.
        nodes=() if seen.facts.may is False or api.access.through_kubectl else seen.nodes,
        job=seen.job.name,
        namespace=seen.job.namespace,
        gpu_hours=hours,
    )
    audit.record(api, deed, talk.say, dry_run=order.dry_run)
