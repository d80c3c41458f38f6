"""Pods that somebody took away: by the Eviction API, the scheduler, the kubelet, or as events tell.

A removed pod did not die by itself, and nobody's node is to blame. What could look the same: a pod of a
dead node, which the controllers delete; a pod that was removed because of the stall, after it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.facts import ClusterEvent
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.xid_history import window
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import claim
from gpufleet_cli.rules.node_fault import NODE_EVENTS
from gpufleet_cli.verdict import Claim, Hypothesis, Kind, Remedy

RULE = "host_fault"
REMOVAL_EVENTS = frozenset({"Preempted", "Preempting", "Evicted", "TaintManagerEviction"})


def _by_events(case: Case) -> Iterator[Hypothesis]:
    """Events that say that a pod of this job was taken away, where no pod list says it."""
    known = {pod.name for pod in case.pods if pod.disruption is not None}
    done: set[str] = set()
    dying = {e.name for e in case.events if e.reason in NODE_EVENTS and e.kind.lower() == "node"}
    for event in case.events:
        if event.reason not in REMOVAL_EVENTS or event.kind.lower() != "pod":
            continue
        ranks = case.topology.by_pod.get(event.name, ())
        if not (ranks or _is_sibling(case, event)) or event.name in known | done:
            continue
        if case.topology.node_of_pod.get(event.name, "") in dying or claims.is_after(
            case, event.at_ns
        ):
            continue
        done.add(event.name)
        yield _removed(
            event.name,
            event.message[:90],
            claim(
                f"{event.name}: {event.reason}: {event.message[:90]}",
                event.origin,
                claims.GOOD,
                at_ns=event.at_ns,
            ),
            ranks,
        )


def _removed(pod: str, why: str, shown: Claim, ranks: tuple[int, ...]) -> Hypothesis:
    return Hypothesis(
        kind=Kind.RANK_CRASHED,
        rule=RULE,
        summary=f"{pod} was removed from outside: {why}",
        claims=(shown,),
        remedy=Remedy.OUTSIDE,
        ranks=ranks,
        pods=() if ranks else (pod,),
        onset_ns=shown.at_ns,
        degrades=True,
        worsens_why="depends on priority and quota",
        reason_tag="pod removed",
        would_settle="events of the pod and of its node",
    )


def _is_sibling(case: Case, event: ClusterEvent) -> bool:
    """A pod that is gone, lost in this incident, and named like those of the job: the same but for its index
    and what a controller adds."""
    span = window(case.onset_ns, case.as_of_ns, case.timeout_s)
    if span is None or event.at_ns is None or not span[0] <= event.at_ns <= span[1]:
        return False
    stems = {stem for pod in case.pods for stem in _stems(pod.name)}
    return event.name not in {pod.name for pod in case.pods} and bool(stems & _stems(event.name))


def _stems(name: str) -> set[str]:
    """`job-3` and `job-3-x7k2p` without their last parts, where those are an index, or an index and letters.

    >>> sorted(_stems("run-a-1")), sorted(_stems("run-a-1-x7k2p")), sorted(_stems("run-a"))
    (['run-a'], ['run-a'], [])
    """
    first, _, last = name.rpartition("-")
    if last.isdecimal():
        return {first}
    stem, _, index = first.rpartition("-")
    return {stem} if index.isdecimal() and len(last) == 5 else set()


REMOVED_BY = {
    "EvictionByEvictionAPI": "somebody evicted it",
    "PreemptionByScheduler": "the scheduler preempted it",
    "DeletionByPodGC": "its node was gone and the pod collector removed it",
    "TerminationByKubelet": "the kubelet ended it for node pressure",
}


def hypotheses(case: Case) -> Iterator[Hypothesis]:
    """A pod that somebody removed did not die by itself: nobody's node is to blame."""
    yield from _by_events(case)
    dead = {n.name for n in case.nodes if n.ready in ("False", "Unknown")}
    for pod in case.pods:
        evicted = "TerminationByKubelet" if pod.reason == "Evicted" else ""
        why = REMOVED_BY.get(pod.disruption or evicted)
        if why is None or pod.node in dead or claims.is_after(case, pod.disrupted_ns):
            continue
        ranks = case.topology.by_pod.get(pod.name, ())
        yield _removed(
            pod.name,
            f"{why}.",
            claim(
                f"{pod.name}: {pod.disruption or pod.reason}{claims.when(pod.disrupted_ns)}",
                pod.origin,
                claims.STRONG,
                at_ns=pod.disrupted_ns,
            ),
            ranks,
        )
