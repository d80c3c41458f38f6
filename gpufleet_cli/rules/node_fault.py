"""The node died, or its GPUs were taken out of service.

Claims it from the kernel (panic, machine check, lockup, PCIe), node conditions and leases, events, and the
scheduler's words. What could look the same: a control plane that lost sight of all nodes, a condition
that is older than this incident or younger than its first timeout, a node whose ranks went on working.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.facts import HostSign, NodeLease, NodeState, Sign
from gpufleet_cli.reason import Case, xid_history
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
NODE_EVENTS = frozenset({"NodeNotReady", "NodeNotSchedulable", "TaintManagerEviction", "Rebooted"})


def propose(case: Case) -> Iterator[Hypothesis]:
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
                claim(
                    f"{event.name}: {event.reason}: {event.message[:90]}", event.origin, claims.GOOD
                )
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
        found.append(
            about(late[0], f"{ranks_text(alive)} on it reported a timeout: it lived", -2.0)
        )
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
