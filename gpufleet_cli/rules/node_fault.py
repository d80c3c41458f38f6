"""The node died, or its GPUs were taken out of service.

Claims it from the kernel (panic, machine check, lockup, PCIe), node conditions and leases, events, and the
scheduler's words. What could look the same: a control plane that lost sight of all nodes, a condition
that is older than this incident or younger than its first timeout, a node whose ranks went on working.
A kubelet that did not reply adds to these and never makes a dead node by itself (see `silent_kubelet`).
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.facts import ClusterEvent, HostSign, KubeletReply, NodeLease, NodeState, Sign
from gpufleet_cli.reason import Case, kubelets, xid_history
from gpufleet_cli.reason.placed import NS
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import about, claim, ranks_text
from gpufleet_cli.verdict import Claim, Hypothesis, JobState, Kind, Remedy

NAME = "node_fault"
NODE_DEATH = {
    HostSign.PANIC: "kernel panic",
    HostSign.MACHINE_CHECK: "machine check",
    HostSign.LOCKUP: "CPU lockup",
    HostSign.PCIE_LINK_DOWN: "a PCIe link went down",
    HostSign.PCIE_ERROR: "a fatal PCIe error",
    HostSign.REBOOT: "the node rebooted",
}
MILDER = {HostSign.PCIE_LINK_DOWN: claims.MODEST, HostSign.PCIE_ERROR: claims.GOOD}
MOST_CLAIMS = 4
NOTICED_S = 60
"""A node controller calls a node not ready some 40 to 50 s after its last sign."""
MOST_THAT_LIVED = 4
"""So many nodes may be called not ready although ranks on them went on: with more it is the control plane that saw
nothing, and no node's story."""
NODE_EVENTS = frozenset({"NodeNotReady", "NodeNotSchedulable", "TaintManagerEviction", "Rebooted"})


def propose(case: Case) -> Iterator[Hypothesis]:
    """A hypothesis a node that ended in time, from everything that speaks of it; then lost GPUs."""
    silent = {reply.node: reply for reply in kubelets.silent_nodes(case.kubelets)}
    ended = deaths(case)
    by_kernel = {name for name, _ in _kernel_words(case)}
    lived = {name for name in ended if name not in by_kernel and _alive(case, name)}
    for name, timely in ended.items():
        if name in lived and len(lived) > MOST_THAT_LIVED:
            continue
        reply = silent.get(name)
        more = [] if reply is None else [silence(reply, claims.FAIR)]
        yield _dead_node(case, name, [*timely[: MOST_CLAIMS - len(more)], *more])
    for node in case.nodes:
        have, should = node.gpus_allocatable, node.gpus_capacity
        if have is not None and should is not None and have < should:
            yield _lost_gpus(case, node)


def deaths(case: Case) -> dict[str, list[Claim]]:
    """The nodes of this job that ended in time, each with what says so."""
    found: dict[str, list[Claim]] = {}
    for words in (_kernel_words, _conditions, _cluster_words, _scheduler_words):
        for name, death in words(case):
            found.setdefault(name, []).append(death)
    job_nodes = set(case.topology.by_node)
    homeless = _homeless(case)
    timely = {
        name: [death for death in listed if _is_timely(case, name, death)]
        for name, listed in sorted(found.items())
        if not job_nodes or homeless or name in job_nodes
    }
    return {name: listed for name, listed in timely.items() if listed}


def silence(reply: KubeletReply, weight: float) -> Claim:
    """Undated: it was silent when it was asked, which says nothing of when it began."""
    asked = f" when asked{claims.when(reply.at_ns)}" if reply.at_ns is not None else ""
    said = f": {reply.said}" if reply.said else ""
    return claim(
        f"the kubelet of {reply.node} did not reply{asked}, while others did{said}",
        reply.origin,
        weight,
    )


def _homeless(case: Case) -> tuple[int, ...]:
    """Ranks that no file places on a node."""
    return tuple(r for r in case.world if case.topology.node_of(r) is None)


Death = tuple[str, Claim]


def _kernel_words(case: Case) -> Iterator[Death]:
    for host in case.hosts:
        sign = host.event.sign
        if not host.relevant or host.node is None or sign not in NODE_DEATH:
            continue
        if sign is HostSign.PCIE_ERROR and host.event.fatal is not True:
            continue
        yield (
            host.node,
            claim(
                f"{host.node}: {NODE_DEATH[sign]}: {host.event.text[:100]}",
                host.event.origin,
                MILDER.get(sign, claims.STRONG),
                rank=host.rank,
                at_ns=host.at_ns,
            ),
        )


def _conditions(case: Case) -> Iterator[Death]:
    """Not Ready, and conditions known to mean ill. When most nodes are Unknown, the control plane is."""
    unknown = [n for n in case.nodes if n.ready == "Unknown"]
    blind = len(unknown) > 2 and len(unknown) * 2 > len(case.nodes)
    for node in case.nodes:
        if node.ready == "False" or (node.ready == "Unknown" and not blind):
            why = f"{node.name} is not Ready ({node.ready_reason or node.ready})"
            since = node.ready_since_ns
            yield (
                node.name,
                claim(f"{why}{claims.when(since)}", node.origin, claims.STRONG, at_ns=since),
            )
        for kind, status, reason, _message, since in node.bad_conditions[:2]:
            text = f"{node.name}: condition {kind}={status} {reason}"
            yield node.name, claim(text, node.origin, claims.FAIR, at_ns=since)


def _cluster_words(case: Case) -> Iterator[Death]:
    """Leases that were not renewed, and events of nodes."""
    for lease in _stale_leases(case):
        text = (
            f"{lease.node}'s kubelet last renewed its lease{claims.when(lease.renewed_ns)},"
            " while others went on"
        )
        yield lease.node, claim(text, lease.origin, claims.GOOD, at_ns=lease.renewed_ns)
    for pod in case.pods:
        if pod.disruption == "DeletionByTaintManager" and pod.node is not None:
            text = f"{pod.name} was marked for deletion because its node {pod.node} did not answer"
            at = pod.disrupted_ns
            yield pod.node, claim(f"{text}{claims.when(at)}", pod.origin, claims.GOOD)
    for event in case.events:
        is_of_node = event.reason in NODE_EVENTS and event.kind.lower() == "node"
        if is_of_node and not _is_of_another_time(case, event):
            text = f"{event.name}: {event.reason}: {event.message[:90]}"
            yield event.name, claim(text, event.origin, claims.GOOD)


def _scheduler_words(case: Case) -> Iterator[Death]:
    for sign in case.signs_of(Sign.NODE_FAILED):
        name = sign.fact.peer or sign.node
        if name is not None:
            yield name, about(sign, sign.fact.text[:140], claims.STRONG)
    for known in case.scheduler_nodes:
        if known.state.upper().startswith(("DOWN", "FAIL")):
            since = known.since_ns
            text = f"{known.name} is {known.state}: {known.reason}{claims.when(since)}"
            weight = claims.MODEST if since is None else claims.GOOD
            yield known.name, claim(text, known.origin, weight, at_ns=since)


def _is_of_another_time(case: Case, event: ClusterEvent) -> bool:
    """Whether all that was seen of it lies before this stop could have been caused, or well after it:
    a cluster goes on having events while somebody looks at a job that is over."""
    first = event.at_ns if event.first_ns is None else event.first_ns
    span = xid_history.window(case.onset_ns, case.as_of_ns, case.timeout_s)
    if event.at_ns is None or first is None or span is None or not case.stop.stopped:
        return False
    return event.at_ns < span[0] or first > span[1] + NOTICED_S * NS


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


def _alive(case: Case, name: str) -> tuple[int, ...]:
    """Ranks of a node that complained of others: it lived."""
    return tuple(r for r in case.topology.by_node.get(name, ()) if r in case.witnesses)


def _dead_node(case: Case, name: str, listed: list[Claim]) -> Hypothesis:
    ranks = case.topology.by_node.get(name, ())
    lost = of_unplaced(case) if not ranks else ()
    alive = _alive(case, name)
    named = {c.rank for c in listed if c.rank is not None}
    found = listed[:MOST_CLAIMS]
    if alive and not named:
        late = [t for t in case.timeouts if t.rank in alive]
        found.append(
            about(late[0], f"{ranks_text(alive)} on it reported a timeout: it lived", -2.0)
        )
    count = len(ranks or lost)
    return Hypothesis(
        kind=Kind.HARDWARE,
        rule=NAME,
        summary=f"{name} failed under its {count} ranks." if count else f"{name} failed.",
        claims=tuple(found),
        remedy=Remedy.NODE,
        nodes=(name,),
        ranks=tuple(sorted(named)) if len(named) == 1 else lost,
        narrows=bool(alive),
        onset_ns=min((c.at_ns for c in listed if c.at_ns is not None), default=None),
        worsens=True,
        worsens_why="a restart lands on it again",
        reason_tag="node failed",
        would_settle=f"console and kernel log of {name}",
    )


def of_unplaced(case: Case) -> tuple[int, ...]:
    """The ranks without a node, where they are as many as one node holds: they ran on the one node that
    placed no rank."""
    homeless = _homeless(case)
    largest = max((len(ranks) for ranks in case.topology.by_node.values()), default=0)
    waited = any(r in case.witnesses for r in homeless)
    return homeless if 0 < len(homeless) <= largest and not waited else ()
