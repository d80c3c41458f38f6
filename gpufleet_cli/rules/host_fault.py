"""The host ran out of memory and killed a rank, or a rank's pod was taken away from outside.

Host OOM is claimed by the kernel's kill, joined to the pod by its uid and to the rank by the agent's exit
line (container pids differ from the kernel's); by a container that ended as OOMKilled; or by Slurm's
words. A removed pod did not die by itself. It cannot tell which process of a pod the kernel killed
without the agent's line.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.facts import ContainerState, HostSign, PodState, Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import NS, PlacedHost, PlacedSign
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import about, claim, ranks_text
from gpufleet_cli.rules.node_fault import NODE_EVENTS
from gpufleet_cli.verdict import Hypothesis, Kind, Remedy

NAME = "host_fault"
KILL_TO_EXIT_S = 60.0


def propose(case: Case) -> Iterator[Hypothesis]:
    """Memory, then removed pods."""
    yield from _oom(case)
    yield from _removed(case)


# --- Memory --------------------------------------------------------------------------------------


def _oom(case: Case) -> Iterator[Hypothesis]:
    killed = [h for h in case.hosts if h.event.sign is HostSign.OOM_KILL and h.relevant]
    by_place: dict[tuple[str | None, str | None], list[PlacedHost]] = {}
    for host in killed:
        by_place.setdefault((host.node, host.pod or host.event.pod_uid), []).append(host)
    yield from (_oom_kernel(case, *place, by_place[place]) for place in sorted(by_place, key=str))
    if not killed:
        yield from _oom_pods(case)
        yield from _oom_words(case)


def _oom_kernel(
    case: Case, node: str | None, pod: str | None, hosts: list[PlacedHost]
) -> Hypothesis:
    first = hosts[0]
    found = [
        claim(
            f"the kernel of {node} killed process {first.event.pid} for memory"
            f"{claims.when(first.at_ns)}" + (f", in {pod}" if pod else ""),
            first.event.origin,
            claims.STRONG,
            at_ns=first.at_ns,
        )
    ]
    candidates = case.topology.by_pod.get(pod or "", ()) or case.topology.by_node.get(
        node or "", ()
    )
    exits = _killed_exits(case, candidates, first.at_ns)
    found += [
        about(sign, f"its agent saw exit {sign.fact.exit_code} (SIGKILL) there", claims.GOOD)
        for sign in exits[:1]
    ]
    ranks = tuple(
        sorted({r for s in exits for r in _ranks(s, case) if r in candidates or not candidates})
    )
    if not ranks and len(candidates) == 1:
        ranks = candidates
    return Hypothesis(
        kind=Kind.HOST_OOM,
        rule=NAME,
        summary=f"{claims.sentence(ranks_text(ranks) if ranks else node or 'a node')} ran out of host"
        " memory and was killed.",
        claims=tuple(found),
        remedy=Remedy.CODE,
        ranks=ranks,
        nodes=() if node is None else (node,),
        onset_ns=first.at_ns,
        degrades=True,
        worsens=True,
        worsens_why="the next run meets the same limit",
        reason_tag="host OOM",
        would_settle="" if ranks else "the agent's exit line: which local rank was killed",
    )


def _killed_exits(case: Case, candidates: tuple[int, ...], at_ns: int | None) -> list[PlacedSign]:
    found = []
    for sign in case.signs_of(Sign.ROOT_CAUSE_BLOCK, Sign.CHILD_FAILED, Sign.TASK_EXIT):
        if sign.fact.exit_code not in (-9, 137):
            continue
        after = None if at_ns is None or sign.at_ns is None else (sign.at_ns - at_ns) / NS
        if after is not None and not -60.0 <= after <= KILL_TO_EXIT_S:
            continue
        if not candidates or any(r in candidates for r in _ranks(sign, case)):
            found.append(sign)
    return found


def _ranks(sign: PlacedSign, case: Case) -> tuple[int, ...]:
    if sign.fact.named_ranks:
        return sign.fact.named_ranks
    local, pod = sign.fact.local_rank, sign.fact.speaker.pod
    if local is None:
        return () if sign.rank is None else (sign.rank,)
    unit = case.topology.by_pod.get(pod or "", ()) or case.topology.by_node.get(sign.node or "", ())
    return tuple(r for r in unit if case.topology.places[r].local_rank == local)


def _oom_pods(case: Case) -> Iterator[Hypothesis]:
    killed = [
        (pod, container)
        for pod in case.pods
        for container in pod.containers
        if _oom_killed(pod, container, case)
    ]
    if not killed:
        return
    ranks = tuple(sorted(r for pod, _c in killed for r in case.topology.by_pod.get(pod.name, ())))
    single = all(len(case.topology.by_pod.get(pod.name, ())) == 1 for pod, _c in killed)
    names = ", ".join(sorted(pod.name for pod, _c in killed)[:3])
    many = "was" if len(killed) == 1 else "were"
    yield Hypothesis(
        kind=Kind.HOST_OOM,
        rule=NAME,
        summary=f"{names} {many} killed for memory (OOMKilled).",
        claims=tuple(
            claim(
                f"container {container.name} of {pod.name} ended as OOMKilled"
                f"{claims.when(container.finished_ns)}",
                pod.origin,
                claims.STRONG if i == 0 else claims.WEAK,
                at_ns=container.finished_ns,
            )
            for i, (pod, container) in enumerate(killed[:3])
        ),
        remedy=Remedy.CODE,
        ranks=ranks if single else (),
        nodes=tuple(sorted({pod.node for pod, _c in killed if pod.node is not None})),
        onset_ns=min(
            (c.finished_ns for _p, c in killed if c.finished_ns is not None), default=None
        ),
        degrades=True,
        reason_tag="host OOM",
        would_settle="the kernel logs of their nodes: which process was killed",
    )


def _oom_killed(pod: PodState, container: ContainerState, case: Case) -> bool:
    """The rank container was killed for memory: now, or in its last instance within this incident."""
    if pod.rank_container is not None and container.name != pod.rank_container:
        return False
    if container.reason == "OOMKilled":
        return True
    ended = container.last_finished_ns
    if container.last_reason != "OOMKilled" or ended is None or case.as_of_ns is None:
        return False
    start = case.onset_ns if case.onset_ns is not None else case.as_of_ns
    return container.state != "running" or abs(start - ended) / NS < KILL_TO_EXIT_S * 15


def _oom_words(case: Case) -> Iterator[Hypothesis]:
    """The job's own log or Slurm says so; the line that names a task or host speaks for the rest."""
    signs = sorted(
        case.signs_of(Sign.HOST_OOM),
        key=lambda s: (s.rank is None, s.node is None and s.fact.speaker.host is None),
    )
    if not signs:
        return
    first = signs[0]
    node = first.node or first.fact.speaker.host
    who = ranks_text((first.rank,)) if first.rank is not None else node or "a task"
    yield Hypothesis(
        kind=Kind.HOST_OOM,
        rule=NAME,
        summary=f"{who[:1].upper()}{who[1:]} was killed for memory.",
        claims=tuple(
            about(s, s.fact.text[:160], claims.STRONG if i == 0 else claims.WEAK)
            for i, s in enumerate(signs[:2])
        ),
        remedy=Remedy.CODE,
        ranks=() if first.rank is None else (first.rank,),
        nodes=() if node is None else (node,),
        onset_ns=first.at_ns,
        degrades=True,
        reason_tag="host OOM",
        would_settle="the kernel log of its node",
    )


REMOVAL_EVENTS = frozenset({"Preempted", "Preempting", "Evicted", "TaintManagerEviction"})


def _removed_by_events(case: Case) -> Iterator[Hypothesis]:
    """Events that say that a pod of this job was taken away, where no pod list says it."""
    known = {pod.name for pod in case.pods if pod.disruption is not None}
    done: set[str] = set()
    dying = {e.name for e in case.events if e.reason in NODE_EVENTS and e.kind.lower() == "node"}
    for event in case.events:
        if event.reason not in REMOVAL_EVENTS or event.kind.lower() != "pod":
            continue
        ranks = case.topology.by_pod.get(event.name, ())
        if not ranks or event.name in known or event.name in done:
            continue
        if case.topology.node_of_pod.get(event.name, "") in dying:
            continue
        done.add(event.name)
        yield Hypothesis(
            kind=Kind.RANK_CRASHED,
            rule=NAME,
            summary=f"{event.name} was removed from outside: {event.message[:90]}",
            claims=(
                claim(
                    f"{event.name}: {event.reason}: {event.message[:90]}",
                    event.origin,
                    claims.GOOD,
                    at_ns=event.at_ns,
                ),
            ),
            remedy=Remedy.OUTSIDE,
            ranks=ranks,
            onset_ns=event.at_ns,
            degrades=True,
            worsens_why="depends on priority and quota",
            reason_tag="pod removed",
            would_settle="events of the pod and of its node",
        )


REMOVED_BY = {
    "EvictionByEvictionAPI": "somebody evicted it",
    "PreemptionByScheduler": "the scheduler preempted it",
    "DeletionByPodGC": "its node was gone and the pod collector removed it",
    "TerminationByKubelet": "the kubelet ended it for node pressure",
}


def _removed(case: Case) -> Iterator[Hypothesis]:
    """A pod that somebody removed did not die by itself: nobody's node is to blame."""
    yield from _removed_by_events(case)
    dead = {n.name for n in case.nodes if n.ready in ("False", "Unknown")}
    for pod in case.pods:
        evicted = "TerminationByKubelet" if pod.reason == "Evicted" else ""
        why = REMOVED_BY.get(pod.disruption or evicted)
        if why is None or pod.node in dead:
            continue
        ranks = case.topology.by_pod.get(pod.name, ())
        yield Hypothesis(
            kind=Kind.RANK_CRASHED,
            rule=NAME,
            summary=f"{pod.name} was removed from outside: {why}.",
            claims=(
                claim(
                    f"{pod.name}: {pod.disruption or pod.reason}{claims.when(pod.disrupted_ns)}",
                    pod.origin,
                    claims.STRONG,
                    at_ns=pod.disrupted_ns,
                ),
            ),
            remedy=Remedy.OUTSIDE,
            ranks=ranks,
            onset_ns=pod.disrupted_ns,
            degrades=True,
            worsens=None,
            worsens_why="depends on priority and quota",
            reason_tag="pod removed",
            would_settle="events of the pod and of its node",
        )
