"""What pods, nodes and leases alone make certain, said before any log is read, and marked provisional."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpufleet_cli.facts import Fact, NodeLease, NodeState, Origin
from gpufleet_cli.live.pods import Object, Pod
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers import kubernetes_nodes
from gpufleet_cli.timestamps import format_clock

NS = 1_000_000_000
STALE_S = 50.0
"""The condition flips 40 s (50 s from 1.32) after the last renewal: older is a dead node's."""
MOST_LINES = 8
_ORIGIN = Origin(path="nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as its object and its lease tell."""

    name: str
    state: NodeState | None
    renewed_ns: int | None

    def is_suspect(self, now_ns: int) -> bool:
        """Not Ready, or its lease is stale: its kubelet will not answer."""
        if self.state is not None and self.state.ready not in ("True", None):
            return True
        return self.renewed_ns is not None and now_ns - self.renewed_ns > STALE_S * NS


def nodes_of(objects: Sequence[Object]) -> dict[str, Node]:
    """The nodes among Node and Lease objects."""
    states: dict[str, NodeState] = {}
    renewed: dict[str, int] = {}
    for one in objects:
        facts: Iterator[Fact] = (
            kubernetes_nodes.read_lease(one, _ORIGIN)
            if js.text_at(one, "kind") == "Lease"
            else kubernetes_nodes.read(one, _ORIGIN)
        )
        for fact in facts:
            if isinstance(fact, NodeState):
                states[fact.name] = fact
            elif isinstance(fact, NodeLease):
                renewed[fact.node] = fact.renewed_ns
    return {
        name: Node(name=name, state=states.get(name), renewed_ns=renewed.get(name))
        for name in sorted({*states, *renewed})
    }


def lines(pods: Sequence[Pod], nodes: dict[str, Node], gang: int | None, now_ns: int) -> list[str]:
    """What is already certain, worst first, a line each."""
    found = [*_ill_nodes(pods, nodes, now_ns), *ended(pods), *waiting(pods, gang)]
    if len(found) > MOST_LINES:
        found = [*found[:MOST_LINES], f"and {len(found) - MOST_LINES} more"]
    return found


def _ill_nodes(pods: Sequence[Pod], nodes: dict[str, Node], now_ns: int) -> Iterator[str]:
    held: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.state.node is not None:
            held[pod.state.node].append(pod)
    for name, own in sorted(held.items()):
        node = nodes.get(name)
        if node is None:
            continue
        what = illness(node, now_ns)
        if what is not None:
            yield f"{name} {what}, holds {_ranks(own)}"


def illness(node: Node, now_ns: int) -> str | None:
    state = node.state
    if node.is_suspect(now_ns):
        since = node.renewed_ns or (state.ready_since_ns if state else None)
        when = f" since {format_clock(since)}" if since is not None else ""
        ready = state is None or state.ready in ("True", None)
        return f"{'its lease is stale' if ready else 'NotReady'}{when}"
    if state is None:
        return None
    if state.gpus_capacity and (state.gpus_allocatable or 0) < state.gpus_capacity:
        return f"has {state.gpus_allocatable or 0} of {state.gpus_capacity} GPUs left"
    if state.bad_conditions:
        kind, status, reason, _message, _since = state.bad_conditions[0]
        return f"{kind}={status} ({reason})"
    return None


def _ranks(pods: Sequence[Pod]) -> str:
    """The ranks that a static rendezvous gives these pods, else their names."""
    spans = []
    for pod in pods:
        state = pod.state
        if state.node_rank is None or not state.nproc or state.rendezvous != "static":
            names = ", ".join(p.name for p in pods[:3])
            return names + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")
        first = state.node_rank * state.nproc
        spans.append(f"{first}-{first + state.nproc - 1}" if state.nproc > 1 else str(first))
    return f"ranks {', '.join(spans)}"


def ended(pods: Sequence[Pod]) -> Iterator[str]:
    """The first containers that ended badly, and pods that somebody took away."""
    ends = []
    for pod in pods:
        for one in pod.state.containers:
            if one.state == "terminated" and one.exit_code:
                why = "OOMKilled" if one.reason == "OOMKilled" else f"exit {one.exit_code}"
                at = one.finished_ns or 0
                when = f" at {format_clock(at)}" if at else ""
                ends.append((at, f"{pod.name} ended{when}: {why}{_on(pod)}"))
        if pod.state.disruption is not None:
            when = f" at {format_clock(pod.state.disrupted_ns)}" if pod.state.disrupted_ns else ""
            ends.append(
                (pod.state.disrupted_ns or 0, f"{pod.name} {pod.state.disruption}{when}{_on(pod)}")
            )
    yield from (text for _, text in sorted(ends))


def _on(pod: Pod) -> str:
    return f", on {pod.state.node}" if pod.state.node else ""


def waiting(pods: Sequence[Pod], gang: int | None) -> Iterator[str]:
    for pod in pods:
        if pod.state.scheduled is False:
            why = (pod.state.unscheduled_why or "no reason given")[:90]
            yield f"{pod.name} is not scheduled: {why}"
            continue
        for one in pod.state.containers:
            if one.state == "waiting" and one.reason not in (
                None,
                "ContainerCreating",
                "PodInitializing",
            ):
                yield f"{pod.name} waits: {one.reason}{_on(pod)}"
    if gang is not None and len(pods) < gang:
        yield f"{len(pods)} of {gang} pods of the gang are there"
