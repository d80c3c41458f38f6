"""The host or what it stands on: memory ran out, the node died, storage or the data source stalled.

Host OOM is claimed by the kernel's kill, joined to the pod by its uid and to the rank by the agent's
exit line (container pids differ from the kernel's). Storage is claimed when the kernels of several
nodes, or all ranks inside one save, name it: then nobody is to blame. A data stall is claimed of the
rank that retries its reads while the others wait. It cannot see a slow disk that logs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.facts import ContainerState, HostSign, NodeLease, NodeState, PodState, Sign
from gpufleet_cli.reason import Case, xid_history
from gpufleet_cli.reason.placed import NS, PlacedHost, PlacedSign
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import about, claim, ranks_text, waited_in
from gpufleet_cli.verdict import Claim, Hypothesis, JobState, Kind, Remedy

NAME = "host_fault"
KILL_TO_EXIT_S = 60.0
NODE_DEATH = {
    HostSign.PANIC: "kernel panic",
    HostSign.MACHINE_CHECK: "machine check",
    HostSign.LOCKUP: "CPU lockup",
    HostSign.PCIE_LINK_DOWN: "a PCIe link went down",
    HostSign.PCIE_ERROR: "a fatal PCIe error",
    HostSign.REBOOT: "the node rebooted",
}
MILDER = {HostSign.PCIE_LINK_DOWN: claims.MODEST, HostSign.PCIE_ERROR: claims.GOOD}
NODE_EVENTS = frozenset({"NodeNotReady", "NodeNotSchedulable", "TaintManagerEviction", "Rebooted"})


def propose(case: Case) -> Iterator[Hypothesis]:
    """Memory, then the node, then removed pods, then storage, then data."""
    yield from _oom(case)
    yield from _node_death(case)
    yield from _removed(case)
    yield from _storage(case)
    yield from _data(case)


# --- Memory --------------------------------------------------------------------------------------


def _oom(case: Case) -> Iterator[Hypothesis]:
    killed = [h for h in case.hosts if h.event.sign is HostSign.OOM_KILL and h.relevant]
    by_place: dict[tuple[str | None, str | None], list[PlacedHost]] = {}
    for host in killed:
        by_place.setdefault((host.node, host.pod or host.event.pod_uid), []).append(host)
    yield from (
        _oom_kernel(case, *place, by_place[place]) for place in sorted(by_place, key=str)
    )
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
    candidates = case.topology.by_pod.get(pod or "", ()) or case.topology.by_node.get(node or "", ())
    exits = _killed_exits(case, candidates, first.at_ns)
    found += [
        about(sign, f"its agent saw exit {sign.fact.exit_code} (SIGKILL) there", claims.GOOD)
        for sign in exits[:1]
    ]
    ranks = tuple(sorted({r for s in exits for r in _ranks(s, case) if r in candidates or not candidates}))
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


def _killed_exits(
    case: Case, candidates: tuple[int, ...], at_ns: int | None
) -> list[PlacedSign]:
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
        onset_ns=min((c.finished_ns for _p, c in killed if c.finished_ns is not None), default=None),
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


# --- The node ------------------------------------------------------------------------------------


def _node_death(case: Case) -> Iterator[Hypothesis]:
    found: dict[str, list[Claim]] = {}
    for host in case.hosts:
        if host.relevant and host.node is not None and host.event.sign in NODE_DEATH:
            if host.event.sign is HostSign.PCIE_ERROR and host.event.fatal is not True:
                continue
            weight = MILDER.get(host.event.sign, claims.STRONG)
            found.setdefault(host.node, []).append(
                claim(
                    f"{host.node}: {NODE_DEATH[host.event.sign]}: {host.event.text[:100]}",
                    host.event.origin,
                    weight,
                    rank=host.rank,
                    at_ns=host.at_ns,
                )
            )
    unknown = [n for n in case.nodes if n.ready == "Unknown"]
    blind = len(unknown) > 2 and len(unknown) * 2 > len(case.nodes)
    for node in case.nodes:
        if node.ready == "False" or (node.ready == "Unknown" and not blind):
            found.setdefault(node.name, []).append(
                claim(
                    f"{node.name} is not Ready ({node.ready_reason or node.ready})"
                    f"{claims.when(node.ready_since_ns)}",
                    node.origin,
                    claims.STRONG,
                    at_ns=node.ready_since_ns,
                )
            )
        for condition in node.bad_conditions[:2]:
            found.setdefault(node.name, []).append(
                claim(
                    f"{node.name}: condition {condition[0]}={condition[1]} {condition[2]}",
                    node.origin,
                    claims.FAIR,
                    at_ns=condition[4],
                )
            )
    for node in case.nodes:
        have, should = node.gpus_allocatable, node.gpus_capacity
        if have is not None and should is not None and have < should:
            yield _lost_gpus(case, node)
    for lease in _stale_leases(case):
        found.setdefault(lease.node, []).append(
            claim(
                f"{lease.node}'s kubelet last renewed its lease{claims.when(lease.renewed_ns)},"
                " while others went on",
                lease.origin,
                claims.GOOD,
                at_ns=lease.renewed_ns,
            )
        )
    for event in case.events:
        if event.reason in NODE_EVENTS and event.kind.lower() == "node":
            found.setdefault(event.name, []).append(
                claim(f"{event.name}: {event.reason}: {event.message[:90]}", event.origin, claims.GOOD)
            )
    for sign in case.signs_of(Sign.NODE_FAILED):
        name = sign.fact.peer or sign.node
        if name is not None:
            found.setdefault(name, []).append(about(sign, sign.fact.text[:140], claims.STRONG))
    for known in case.scheduler_nodes:
        if known.state.upper().startswith(("DOWN", "FAIL")):
            found.setdefault(known.name, []).append(
                claim(
                    f"{known.name} is {known.state}: {known.reason}{claims.when(known.since_ns)}",
                    known.origin,
                    claims.MODEST if known.since_ns is None else claims.GOOD,
                    at_ns=known.since_ns,
                )
            )
    job_nodes = set(case.topology.by_node)
    for name, listed in sorted(found.items()):
        timely = [c for c in listed if _is_timely(case, name, c)]
        if timely and (not job_nodes or name in job_nodes):
            yield _dead_node(case, name, timely)


def _is_timely(case: Case, node: str, death: Claim) -> bool:
    """A node that ended near the onset, and whose ranks did nothing afterwards.

    What comes after the first timeout is a consequence, or another story.
    """
    if death.at_ns is None or death.rank is not None:
        return True
    span = xid_history.window(case.onset_ns, case.as_of_ns, case.timeout_s)
    if case.stop.stopped and span is not None and not span[0] <= death.at_ns <= span[1]:
        return False
    if case.stop.state is JobState.RUNNING and not case.topology.by_node:
        return False
    later = death.at_ns + 60 * NS
    return not any(
        t.at_ns is not None and t.at_ns > later and t.node == node for t in case.timeouts
    ) and not any(
        (s.last_sign_ns or 0) > later
        for r, s in case.silence.items()
        if case.topology.node_of(r) == node
    )


def _lost_gpus(case: Case, node: NodeState) -> Hypothesis:
    """The device plugin took a GPU of this node out of service."""
    return Hypothesis(
        kind=Kind.HARDWARE,
        rule=NAME,
        summary=f"{node.name} has {node.gpus_allocatable} of {node.gpus_capacity} GPUs left.",
        claims=(
            claim(
                f"{node.name}: {node.gpus_allocatable} of {node.gpus_capacity} GPUs are allocatable:"
                " the device plugin marked one unhealthy",
                node.origin,
                claims.FAIR,
            ),
        ),
        remedy=Remedy.NODE,
        nodes=(node.name,),
        narrows=True,
        worsens=True,
        worsens_why="an unhealthy GPU stays out until the plugin restarts",
        reason_tag="GPU unhealthy",
        would_settle=f"the kernel log of {node.name}",
    )


def _stale_leases(case: Case) -> list[NodeLease]:
    """Leases that ended more than two durations before the newest: those kubelets are gone."""
    newest = max((lease.renewed_ns for lease in case.leases), default=0)
    return [
        lease
        for lease in case.leases
        if (newest - lease.renewed_ns) / NS > 2 * lease.duration_s + 20
    ]


def _dead_node(case: Case, name: str, listed: list[Claim]) -> Hypothesis:
    ranks = case.topology.by_node.get(name, ())
    alive = [r for r in ranks if r in case.witnesses]
    named = {c.rank for c in listed if c.rank is not None}
    found = listed[:4]
    if alive and not named:
        late = [t for t in case.timeouts if t.rank in alive]
        found.append(about(late[0], f"{ranks_text(alive)} on it reported a timeout: it lived", -2.0))
    return Hypothesis(
        kind=Kind.HARDWARE,
        rule=NAME,
        summary=f"{name} failed under its {len(ranks)} ranks." if ranks else f"{name} failed.",
        claims=tuple(found),
        remedy=Remedy.NODE,
        nodes=(name,),
        ranks=tuple(sorted(named)) if len(named) == 1 else (),
        narrows=bool(alive),
        onset_ns=min((c.at_ns for c in listed if c.at_ns is not None), default=None),
        worsens=True,
        worsens_why="a restart lands on it again",
        reason_tag="node failed",
        would_settle=f"console and kernel log of {name}",
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


# --- Storage and data ----------------------------------------------------------------------------


def _storage(case: Case) -> Iterator[Hypothesis]:
    down = [h for h in case.hosts if h.event.sign is HostSign.NFS_DOWN and h.relevant]
    hung = [
        h for h in case.hosts if h.event.sign in (HostSign.HUNG_TASK, HostSign.FS_ERROR) and h.relevant
    ]
    full = [
        s
        for s in case.signs_of(Sign.FS_ERROR)
        if s.at_ns is None or case.first_timeout_ns is None or s.at_ns < case.first_timeout_ns
    ]
    nodes = {h.node for h in [*down, *(h for h in hung if h.event.sign is HostSign.FS_ERROR)]}
    open_save = case.checkpoints.open_save
    if not down and not (open_save is not None and hung) and len({s.node for s in full}) < 2:
        return
    found = [
        claim(
            f"{h.node}: {h.event.text[:110]}",
            h.event.origin,
            claims.STRONG if i == 0 else claims.FAIR,
            at_ns=h.at_ns,
        )
        for i, h in enumerate(_one_a_node(down or hung))
    ][:4]
    if open_save is not None:
        found.append(claim("a save began and never finished", open_save.origin, claims.FAIR))
    found.extend(about(s, s.fact.text[:110], claims.FAIR) for s in full[:2])
    everywhere = len(nodes) > 1 or len(case.topology.by_node) <= 1
    server = next((h.event.server for h in down if h.event.server), None)
    yield Hypothesis(
        kind=Kind.STORAGE_STALL,
        rule=NAME,
        summary=f"Storage stalled{f' ({server})' if server else ''} on {len(nodes) or 'several'}"
        f" node{'s' if len(nodes) != 1 else ''}"
        + ("; a save was open" if open_save is not None else "")
        + ". No rank is to blame.",
        claims=tuple(found),
        remedy=Remedy.OUTSIDE,
        nodes=() if everywhere else tuple(sorted(n for n in nodes if n is not None)),
        onset_ns=min((h.at_ns for h in down if h.at_ns is not None), default=case.onset_ns),
        degrades=True,
        worsens=None,
        worsens_why="it lasts as long as the storage is away",
        reason_tag="storage",
        would_settle="the state of the file server",
    )


def _one_a_node(hosts: list[PlacedHost]) -> list[PlacedHost]:
    found: dict[str | None, PlacedHost] = {}
    for host in hosts:
        found.setdefault(host.node, host)
    return [found[node] for node in sorted(found, key=str)]


def _data(case: Case) -> Iterator[Hypothesis]:
    """The ranks that retry their reads while the others wait."""
    if not case.stop.stopped and not case.timeouts:
        return
    witnesses = case.witnesses
    retries = [
        s
        for s in case.signs_of(Sign.DATA_RETRY)
        if case.first_timeout_ns is None or s.at_ns is None or s.at_ns < case.first_timeout_ns
    ]
    by_rank: dict[int, list[PlacedSign]] = {}
    for sign in retries:
        if sign.rank is not None and sign.rank not in witnesses:
            by_rank.setdefault(sign.rank, []).append(sign)
    if not by_rank:
        return
    ranks = tuple(sorted(by_rank))
    many = len(ranks) > max(1, len(case.world) // 2)
    first = by_rank[ranks[0]]
    yield Hypothesis(
        kind=Kind.DATA_STALL,
        rule=NAME,
        summary=f"{claims.sentence(ranks_text(ranks))} waited for data while the others waited in"
        f" {claims.collective_text(waited_in(case))}.",
        claims=(
            about(
                first[-1],
                f"rank {ranks[0]} retried its data source {len(first)} times, last"
                f"{claims.when(first[-1].at_ns)}: {first[-1].fact.text[:80]}",
                claims.GOOD,
            ),
        ),
        remedy=Remedy.CODE,
        ranks=() if many else ranks,
        onset_ns=case.onset_ns,
        degrades=True,
        worsens=None,
        worsens_why="depends on the data source",
        reason_tag="data source",
        would_settle="the loader's stack on that rank and the state of the data source",
    )
