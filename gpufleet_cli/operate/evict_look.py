"""What is seen of a gang before it is torn down: its object and means, the evidence, a second look.

The look is that of any triage: gather the newest attempt, triage what was gathered. No flag says the state.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from gpufleet_cli.attempt_token import token_of
from gpufleet_cli.bundle import read_target
from gpufleet_cli.errors import TargetError, UsageError
from gpufleet_cli.facts import JobNumbers
from gpufleet_cli.live import drain_look, pack, rights, spare_look
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.gather import Hooks
from gpufleet_cli.live.log_tasks import is_sidecar
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.live.session import Collected, LiveOptions, collect
from gpufleet_cli.operate import (
    checkpoint_metric,
    evict_guard,
    evict_target,
    second_look,
    tear_down,
)
from gpufleet_cli.operate.evict_guard import EvictFacts
from gpufleet_cli.operate.evict_target import Meant
from gpufleet_cli.operate.second_look import First
from gpufleet_cli.operate.tear_down import Plan
from gpufleet_cli.render.drain_page import spares_words
from gpufleet_cli.timestamps import format_clock
from gpufleet_cli.triage import triage_target
from gpufleet_cli.verdict import Ground, JobState, Triage

MOST_EVENTS = 4
"""On so many nodes of the gang an Event says what was done, where no node is to blame."""
CORRUPTING = frozenset({48, 95})
OF_NODES = ("kernel/", "metrics/")
"""Under these a bundle has what nodes say. All else, logs and files of dumps, a job may have written itself."""
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
class Seen:
    """One look at the job: what may be done with it, and the triage of what was gathered."""

    which: Meant
    job: Job
    planned: Plan
    pods: tuple[Pod, ...]
    facts: EvictFacts
    found: Triage | None = None
    first: First | None = None

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


def first_look(api: Api, which: Meant, order: Order) -> Seen:
    """The job as the API server has it, its means, and whether we may use them."""
    job = evict_target.found(api, which)
    planned = tear_down.plan(job, workloads=evict_target.workloads(api, job))
    pods = evict_target.newest_pods(api, job, number=order.options.group)
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
    return Seen(which=which, job=job, planned=planned, pods=pods, facts=facts)


def _holds(job: Job, planned: Plan) -> bool:
    """Whether there is something to take down. Of a job that its controller may start again, any pod is."""
    if planned.means != "evict":
        return bool(job.pods)
    return any(pod.is_running and not pod.state.terminating for pod in job.pods)


def idle(seen: Seen) -> str:
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


def look(api: Api, order: Order, seen: Seen, talk: Talk) -> Seen:
    """Gather the newest attempt and triage what was gathered; then look a second time where that tells more."""
    _must_be_new(order.place)
    looked_ns = api.now_ns()
    with talk.hooks() as hooks:
        found = collect(_options(order, seen.which), order.place, hooks)
    if found.interrupted:
        raise KeyboardInterrupt
    read = read_target(order.place)
    read = replace(read, kind="job", name=found.job, namespace=found.namespace)
    # The state rests on what was read alone; given numbers may move a price, never a state.
    told = triage_target(read, JobNumbers(source="flag"))
    numbers = _gaps_alone(order.numbers, told)
    priced = triage_target(read, numbers) if numbers != JobNumbers(source="flag") else told
    advice = priced.recommendation
    doubt = _doubt(told, advice.ground)
    slows = advice.ground in ("corrupt", "slowed", "arithmetic") and not doubt
    facts = replace(
        seen.facts,
        state=told.job.state,
        state_why=told.job.state_why,
        proof=told.job.state_proof,
        ground=advice.ground if slows else None,
        ground_why=advice.why,
        doubt=doubt,
        token=told.recommendation.attempt_token,
        gpu_hours=evict_guard.price(advice),
        by_default=evict_guard.price_defaults(advice),
    )
    talk.say(_shown(found, told))
    if order.options.keeps:
        talk.say(f"the evidence is kept in {found.bundle}")
    first = second_look.first_of(read, told, looked_ns)
    pods = _of_bundle(seen.pods, read.manifest)
    busy = _still_busy(pods) if facts.proof == "terminated" else ""
    if busy:
        facts = replace(facts, proof=None, second_why=busy)
    looked = replace(seen, facts=facts, found=told, pods=pods, first=first)
    return _with_second(looked, second_look.look(api, pods, first, facts.proof, talk.say))


def _must_be_new(place: Path) -> None:
    """What an earlier look left would be gone on with: it says how the job was then, not how it is."""
    folder = pack.working_folder(place) if pack.is_packed(place.name) else place
    if place.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UsageError(
            f"{place} is taken, and evict looks anew", hint="give a new place to --save"
        )


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


def after_the_answer(api: Api, seen: Seen) -> Seen:
    """A person may take minutes to answer: whether the job has begun to step meanwhile."""
    if seen.first is None or seen.facts.second == "unseen":
        return seen
    found = second_look.again(api, seen.pods, seen.first, seen.facts.proof)
    return _with_second(seen, found)


def restarted(before: Sequence[Pod], now: Sequence[Pod]) -> tuple[str, ...]:
    """Pods in which a container began anew in place. By its start and by the count: a kubelet may have forgotten the
    one before it, which the token goes by."""
    lives = {
        (pod.state.uid, one.name): (one.restarts, one.started_ns)
        for pod in before
        for one in pod.state.containers
    }

    def began_anew(pod: Pod) -> bool:
        for one in pod.state.containers:
            restarts, started = lives.get((pod.state.uid, one.name), (one.restarts, None))
            if one.restarts > restarts:
                return True
            if None not in (started, one.started_ns) and started != one.started_ns:
                return True
        return False

    return tuple(pod.name for pod in now if began_anew(pod))


def _with_second(seen: Seen, found: second_look.Look) -> Seen:
    why = found.why or seen.facts.second_why
    return replace(seen, facts=replace(seen.facts, second=found.second, second_why=why))


def _still_busy(pods: Sequence[Pod]) -> str:
    """Of a job without GPUs nothing but names and annotations says which container holds the rank: none may run."""
    for pod in pods:
        if any(one.has_gpu for one in pod.state.containers):
            continue
        for one in pod.state.containers:
            if one.state == "running" and not is_sidecar(one.name):
                return f"container {one.name} of {pod.name} runs"
    return ""


def _gaps_alone(numbers: JobNumbers, told: Triage) -> JobNumbers:
    """The given numbers without those that the evidence tells itself: where a running job may be stopped by the
    arithmetic, a flag does not overrule what was measured."""
    measured = {one.name for one in told.recommendation.inputs if one.source == "evidence"}
    is_told = "checkpoint_interval" in measured
    return replace(
        numbers, checkpoint_interval_s=None if is_told else numbers.checkpoint_interval_s
    )


def _doubt(told: Triage, ground: Ground | None) -> str:
    """Why its XIDs are not enough to stop a job that runs: a job prints what it likes, and the node's own kernel log and
    the metrics of its GPUs are what tells. What may corrupt it must stand there itself, whatever else does."""
    codes = {one.xid for one in told.hardware if one.role == "cause" and one.xid is not None}
    if ground == "corrupt":
        codes = {one.xid for one in told.hardware if one.xid in CORRUPTING}
    of_nodes = {
        one.xid
        for one in told.hardware
        if one.origin is not None and one.origin.path.startswith(OF_NODES)
    }
    if not codes or codes & of_nodes:
        return ""
    shown = ", ".join(f"XID {code}" for code in sorted(code for code in codes if code is not None))
    return (
        f"{shown} stands in what the job wrote itself alone: the node's kernel log (--kernel-logs) or the metrics"
        " (--prometheus) would show it"
    )


def spare_lines(api: Api, seen: Seen) -> Iterator[str]:
    """Whether the gang would find room without the node that is to blame, or that was named."""
    known = None if seen.found is None else seen.found.recommendation.restart
    node = seen.which.node
    if known is not None:
        yield f"without {known.node}: {spares_words(known.spares)}"
    elif node is not None:
        looked = drain_look.look(api, [node])
        for one in spare_look.of_node(spare_look.Fleets(api), looked, node):
            job = one.name.partition(" group ")[0]  # of a LeaderWorkerSet it has its group in it
            if (one.namespace, job) == (seen.job.namespace, seen.job.name):
                yield f"without {node}: {spares_words(one.spares)}"


def pods_now(api: Api, seen: Seen) -> Sequence[Pod]:
    """The gang's pods as they are; none where the job is gone."""
    try:
        job = evict_target.found(api, seen.which)
    except TargetError:
        return ()
    return evict_target.newest_pods(api, job, group_of=seen.uids)
