"""Tearing a gang down, from the first look to the line that says what stands.

    which gang -> may we -> look (a bundle), triage -> second look -> the guard -> a person -> the boundary, where one
    is waited for -> read again, the guard again -> its controller's means -> what stands, the audit log

Nothing here decides: `evict_guard` does, on facts read here. Between the last read and the change lies one request.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from gpufleet_cli.attempt_token import token_of
from gpufleet_cli.bundle import read_target
from gpufleet_cli.errors import Refused, SourceError, TargetError, UsageError
from gpufleet_cli.facts import JobNumbers
from gpufleet_cli.live import rights
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.gather import Hooks
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.live.session import Collected, LiveOptions, collect
from gpufleet_cli.operate import (
    audit,
    boundary,
    checkpoint_metric,
    evict_guard,
    evict_target,
    progress_look,
    tear_down,
    tear_down_run,
)
from gpufleet_cli.operate.audit import Deed
from gpufleet_cli.operate.evict_guard import EvictFacts, Second
from gpufleet_cli.operate.evict_target import Meant
from gpufleet_cli.operate.rulings import Ruling
from gpufleet_cli.operate.tear_down import Plan
from gpufleet_cli.operate.tear_down_run import BUDGET_S, Result
from gpufleet_cli.operate.writes import Writer
from gpufleet_cli.timestamps import format_clock
from gpufleet_cli.triage import triage_target
from gpufleet_cli.verdict import JobState, Triage

MOST_EVENTS = 4
"""On so many nodes of the gang an Event says what was done, where no node is to blame."""
WAIT_S = 4 * 3600.0
"""So long a checkpoint is waited for where nobody says --deadline."""
LEAST_SECOND_S, MOST_SECOND_S, STEPS = 5.0, 180.0, 3.0
BACK_S = 900
"""So far a node's clock may be behind: `sinceTime` goes by it."""
PROGRAM = "gpufleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the command line says. `place` is where the bundle goes; `numbers` what no log tells: prices alone."""

    word: str | None
    selector: str | None
    namespace: str | None
    options: LiveOptions
    place: Path
    numbers: JobNumbers
    wanted_token: str | None = None
    at_checkpoint: bool = False
    deadline_s: float | None = None
    grace_s: int | None = None
    dry_run: bool = False
    marker: Path | None = None
    metric: str = checkpoint_metric.USUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """Who hears what goes on, and who is asked: `confirm` raises where nobody agrees."""

    hooks: Callable[[], AbstractContextManager[Hooks]]
    say: Callable[[str], None]
    confirm: Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One look at the job: what may be done with it, and the triage of what was gathered."""

    which: Meant
    job: Job
    planned: Plan
    pods: tuple[Pod, ...]
    facts: EvictFacts
    found: Triage | None = None
    looked_ns: int = 0

    @property
    def uids(self) -> frozenset[str]:
        return frozenset(pod.state.uid for pod in self.pods if pod.state.uid is not None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where the Event goes: the culprit's node, the one that was named, else a few of the gang's."""
        named = () if self.found is None else self.found.recommendation.nodes
        if named:
            return named
        if self.which.node is not None:
            return (self.which.node,)
        return tuple(sorted({p.state.node for p in self.pods if p.state.node}))[:MOST_EVENTS]


def evict(api: Api, order: Order, talk: Talk) -> list[str]:
    """Tear the gang down; what is to be read on standard output. Refused, or an error, where it was not."""
    which = evict_target.meant(api, order.word, order.selector, order.namespace)
    if which is None:
        return [f"no gang holds {order.word}: nothing to tear down"]
    seen = _may(api, order, _first(api, which, order), talk)
    if not seen.facts.holds:
        return [f"{seen.job.shown}: {_idle(seen)}"]
    seen = _looked(api, order, seen, talk)
    ruling = evict_guard.rule(seen.facts)
    waits = order.at_checkpoint and not evict_guard.is_stopped(seen.facts)
    if waits:
        ruling = evict_guard.may_wait(seen.facts)
    if ruling.answer == "done":
        return [f"{seen.job.shown}: {ruling.why}"]
    if not ruling.goes:
        _refuse(api, order, seen, ruling, talk)
    _tell_before(seen, ruling, order, talk)
    if waits:
        _wait(api, order, seen, talk)
    return _act(api, order, seen, waits=waits, talk=talk)


# --- Before the look ------------------------------------------------------------------------------


def _first(api: Api, which: Meant, order: Order) -> _Seen:
    """The job as the API server has it, its means, and whether we may use them."""
    job = evict_target.found(api, which)
    planned = tear_down.plan(job, workloads=evict_target.workloads(api, job))
    pods = evict_target.newest_pods(api, job)
    owner, name = tear_down.who_makes(job)
    means = planned.by_hand
    if owner == "other":
        means = f"kubectl describe {shlex.quote(name)} -n {shlex.quote(job.namespace)}"
    (review,) = rights.review(api, [planned.right])
    top = tear_down.top_of(job)
    facts = EvictFacts(
        state=JobState.UNKNOWN,
        owner=owner,
        owner_name=name,
        may=review.allowed,
        right=planned.right.shown,
        token=token_of([pod.state for pod in pods]),
        wanted_token=order.wanted_token,
        changed=_newest(pods),
        holds=_holds(job, planned) and not tear_down.is_down(top, planned),
        means=means,
        at_boundary=f"{PROGRAM} evict {which.words} --at-checkpoint",
        blocked=planned.blocked,
    )
    return _Seen(which=which, job=job, planned=planned, pods=pods, facts=facts)


def _holds(job: Job, planned: Plan) -> bool:
    """Whether there is something to take down. Of a job that its controller may start again, any pod is."""
    if planned.means != "evict":
        return bool(job.pods)
    return any(pod.is_running and not pod.state.terminating for pod in job.pods)


def _idle(seen: _Seen) -> str:
    """Why there is nothing to do, and what still stands."""
    left = [pod.name for pod in seen.job.pods if pod.is_running]
    stand = f"; {len(left)} pods still stand, told to go: {', '.join(left[:4])}" if left else ""
    if tear_down.is_down(tear_down.top_of(seen.job), seen.planned):
        return f"{'.'.join(seen.planned.field)} was set already{stand}"
    return f"no pod of it is left to take down{stand}"


def _newest(pods: Sequence[Pod]) -> str:
    """`the newest pod, run-3, was made at 03:58:12`."""
    made = [pod for pod in pods if pod.state.created_ns is not None]
    if not made:
        return ""
    last = max(made, key=lambda pod: pod.state.created_ns or 0)
    return f"the newest, {last.name}, was made at {format_clock(last.state.created_ns or 0)}"


def _may(api: Api, order: Order, seen: _Seen, talk: Talk) -> _Seen:
    """Refuse before anything is gathered what no look can mend."""
    if order.grace_s is not None and not seen.planned.is_one_by_one:
        raise UsageError(
            f"--grace-period: the controller of {seen.job.shown} keeps the pods' own",
            hint="leave it out",
        )
    if seen.facts.may is False:
        why = f"no right to {seen.facts.right}"
        _record(api, order, seen, talk, outcome="refused", why=why)
        raise SourceError(
            f"{seen.job.shown}: {why}: nothing was touched",
            hint=f"{tear_down.OPERATOR} has it (deploy/rbac)",
        )
    ruling = evict_guard.may_wait(seen.facts)
    if ruling.answer == "no":
        _refuse(api, order, seen, ruling, talk)
    return seen


# --- The look -------------------------------------------------------------------------------------


def _looked(api: Api, order: Order, seen: _Seen, talk: Talk) -> _Seen:
    """Gather the newest attempt and triage what was gathered; then look a second time where that tells more."""
    looked_ns = api.now_ns()
    with talk.hooks() as hooks:
        found = collect(_options(order, seen.which), order.place, hooks)
    if found.interrupted:
        raise KeyboardInterrupt
    read = read_target(order.place)
    read = replace(read, kind="job", name=found.job, namespace=found.namespace)
    # The state rests on what was read alone; given numbers may move a price, never a state.
    told = triage_target(read, JobNumbers(source="flag"))
    has_numbers = order.numbers != JobNumbers(source="flag")
    priced = triage_target(read, order.numbers) if has_numbers else told
    advice = priced.recommendation
    ground = advice.ground if advice.ground in ("corrupt", "slowed", "arithmetic") else None
    facts = replace(
        seen.facts,
        state=told.job.state,
        state_why=told.job.state_why,
        proof=told.job.state_proof,
        ground=ground,
        ground_why=advice.why,
        token=told.recommendation.attempt_token,
        gpu_hours=evict_guard.price(advice),
    )
    talk.say(_shown(found, told))
    if order.options.keeps:
        talk.say(f"the evidence is kept in {found.bundle}")
    looked = replace(seen, facts=facts, found=told, looked_ns=looked_ns)
    looked = replace(looked, pods=_of_bundle(seen.pods, read.manifest))
    return replace(looked, facts=replace(facts, second=_second(api, looked, talk)))


def _options(order: Order, which: Meant) -> LiveOptions:
    """The newest attempt, whatever failed before it: that is the one which would be torn down."""
    return replace(
        order.options,
        target=which.wanted.target,
        selector=which.wanted.selector,
        namespace=which.wanted.namespace,
        lookback_s=0.0,
        looked_on_disk=False,
    )


def _of_bundle(pods: tuple[Pod, ...], manifest: object) -> tuple[Pod, ...]:
    """The pods that were looked at: of those we found, the ones that the bundle is about."""
    told = manifest.get("pods") if isinstance(manifest, dict) else None
    uids = set(told) if isinstance(told, list) else set()
    return tuple(pod for pod in pods if pod.state.uid in uids)


def _shown(found: Collected, told: Triage) -> str:
    state = f"{told.job.state}: {told.job.state_why}" if told.job.state_why else told.job.state
    return f"{found.job}: {state}; verdict {told.verdict.kind} ({told.verdict.confidence:.2f})"


def _second(api: Api, seen: _Seen, talk: Talk) -> Second:
    """What the ranks that still run write now. A mere hint waits for three step times, the rest does not."""
    assert seen.found is not None
    job = seen.found.job
    if seen.facts.proof in (None, "terminated"):
        return "unseen"
    is_hint = seen.facts.proof == "hint"
    if is_hint and job.step_s is None:
        return "unseen"
    if is_hint:
        wait = min(MOST_SECOND_S, max(LEAST_SECOND_S, STEPS * (job.step_s or 0.0)))
        talk.say(f"a second look in {wait:.0f} s: does it still step?")
        api.deadline.pause(wait)
    tasks = progress_look.logs_of([pod for pod in seen.pods if pod.is_running])
    if not tasks:
        return "unseen"
    heard = progress_look.listen(api, tasks, seen.looked_ns - BACK_S * progress_look.NS)
    if progress_look.moves(heard, last_step=job.last_step, seen_ns=seen.looked_ns):
        return "moves"
    return "still" if heard.answered == {task.pod for task in tasks} else "unseen"


# --- A person, and the boundary -------------------------------------------------------------------


def _tell_before(seen: _Seen, ruling: Ruling, order: Order, talk: Talk) -> None:
    """What goes with the pods, and what it costs, before anybody is asked."""
    planned = seen.planned
    talk.say(f"{seen.job.shown}: {ruling.why}")
    talk.say(planned.says)
    for line in tear_down.loses(seen.pods, one_by_one=planned.is_one_by_one):
        talk.say(line)
    grace, hours = tear_down.idle_grace(seen.pods)
    if hours and evict_guard.is_stopped(seen.facts) and order.grace_s is None:
        offer = "; --grace-period shortens it" if planned.is_one_by_one else ""
        talk.say(f"the pods have {grace} s to end, idle: at most {hours:,.2f} GPU-h{offer}")
    name = seen.which.node or seen.job.name
    talk.confirm(f"{PROGRAM} evict: tear down {seen.job.shown}, {len(seen.pods)} pods", name)


def _wait(api: Api, order: Order, seen: _Seen, talk: Talk) -> None:
    """Until the boundary; anything else ends it, and nothing was touched."""
    assert seen.found is not None
    job = seen.found.job
    metric = checkpoint_metric.reader(
        api,
        [pod.name for pod in seen.pods],
        flag=order.options.prometheus,
        metric=order.metric,
    )
    limit = order.deadline_s or WAIT_S
    talk.say(f"waiting for the next durable checkpoint, {limit:g} s at most")
    ended = boundary.wait(
        api,
        seen.pods,
        lambda: _pods_now(api, seen),
        rhythm=boundary.Rhythm(step_s=job.step_s, watchdog_s=job.watchdog_timeout_s),
        deadline=Deadline(limit),
        marker=order.marker,
        metric=metric,
        say=talk.say,
    )
    if ended.how == "boundary":
        talk.say(f"boundary: {ended.why}")
        return
    why = f"{ended.why} while it was waited for: nothing was touched"
    _record(api, order, seen, talk, outcome="refused", why=why)
    token = token_of([pod.state for pod in _pods_now(api, seen)])
    bound = "" if token is None else f" --if-attempt {token}"
    more = " --at-checkpoint" if ended.how == "late" else ""
    raise Refused(
        f"{seen.job.shown}: {why}",
        hint=f"{PROGRAM} triage {seen.which.words}; {PROGRAM} evict {seen.which.words}{more}{bound}",
    )


def _pods_now(api: Api, seen: _Seen) -> Sequence[Pod]:
    """The gang's pods as they are; none where the job is gone."""
    try:
        job = evict_target.found(api, seen.which)
    except TargetError:
        return ()
    return evict_target.newest_pods(api, job, group_of=seen.uids)


# --- The deed -------------------------------------------------------------------------------------


def _act(api: Api, order: Order, seen: _Seen, *, waits: bool, talk: Talk) -> list[str]:
    """Read again, rule again, and do it."""
    now = _pods_now(api, seen)
    facts = replace(
        seen.facts,
        strangers=tuple(pod.name for pod in now if pod.state.uid not in seen.uids),
        token=token_of([pod.state for pod in now]) if order.wanted_token else seen.facts.token,
        boundary="reached" if waits else "not-asked",
    )
    ruling = evict_guard.rule(facts)
    if ruling.answer == "done":
        return [f"{seen.job.shown}: {ruling.why}"]
    if not ruling.goes:
        _refuse(api, order, seen, ruling, talk)
    result = _done(api, order, seen, now)
    return _told(api, order, seen, result, talk)


def _done(api: Api, order: Order, seen: _Seen, now: Sequence[Pod]) -> Result:
    writer = Writer(api=api, dry_run=order.dry_run)
    planned = seen.planned
    if planned.means == "evict":
        stated = None if order.at_checkpoint else order.deadline_s
        limit = Deadline(BUDGET_S if stated is None else stated)
        return tear_down_run.evict(
            writer, now, limit, grace_s=order.grace_s, waits=stated is not None
        )
    if planned.means == "abort":
        return tear_down_run.command(writer, planned, seen.job)

    def again() -> str | None:
        """Whether the job is another by now, asked where somebody changed its object in between."""
        new = [pod.name for pod in _pods_now(api, seen) if pod.state.uid not in seen.uids]
        return f"new pods came: {', '.join(new[:4])}" if new else None

    return tear_down_run.patch(writer, planned, seen.job.uid, again)


def _told(api: Api, order: Order, seen: _Seen, result: Result, talk: Talk) -> list[str]:
    """The lines for a person; an error where it was not done, with what stands."""
    _record(api, order, seen, talk, outcome=_outcome(result), why=result.why)
    states = list(tear_down_run.standing_lines(result))
    if result.outcome != "done":
        finish = f"; again finishes it: {PROGRAM} evict {seen.which.words}" if result.gone else ""
        text = "; ".join([f"{seen.job.shown}: {result.why}", *states])
        if result.outcome in ("refused", "changed"):
            raise Refused(text + finish, hint=f"by its own means: {seen.planned.by_hand}")
        raise SourceError(text + finish)
    if order.dry_run:
        return [f"dry run: {seen.job.shown}: {result.why}"]
    lines = [f"{seen.job.shown}: {result.why}"]
    left = tear_down_run.leaving(lambda: _pods_now(api, seen), seen.uids)
    if left:
        more = ", ..." if len(left) > 4 else ""
        lines.append(f"{len(left)} pods still stand, told to go: {', '.join(left[:4])}{more}")
    if seen.planned.undo is not None:
        lines.append(f"it starts again with: {seen.planned.undo}")
    return lines


def _outcome(result: Result) -> audit.Outcome:
    return "refused" if result.outcome == "changed" else result.outcome


def _refuse(api: Api, order: Order, seen: _Seen, ruling: Ruling, talk: Talk) -> NoReturn:
    """End with 5: the reason, the price of what was asked, and what serves instead."""
    _record(api, order, seen, talk, outcome="refused", why=ruling.why, hours=ruling.gpu_hours)
    price = "" if ruling.gpu_hours is None else f" It would cost {ruling.gpu_hours:,.0f} GPU-h."
    raise Refused(f"{seen.job.shown}: not evicted: {ruling.why}.{price}", hint=ruling.instead)


def _record(
    api: Api,
    order: Order,
    seen: _Seen,
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
        nodes=() if seen.facts.may is False else seen.nodes,  # who may not evict may not tell
        job=seen.job.name,
        namespace=seen.job.namespace,
        gpu_hours=hours,
    )
    audit.record(api, deed, talk.say, dry_run=order.dry_run)
