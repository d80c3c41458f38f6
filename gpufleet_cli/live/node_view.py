"""From what the API server says of a node to its card: pure functions on raw JSON.

Polarity is the product's: a type that ends in Ready, Healthy or Available is bad when not True, others
are bad when True, and a third party's type is shown and never scored alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpufleet_cli.facts import ClusterEvent, NodeState, Origin
from gpufleet_cli.live import node_gangs, node_words
from gpufleet_cli.live.first_facts import NS, STALE_S
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.node_card import (
    Mark,
    Missing,
    NodeCard,
    NodeCondition,
    NodeCordon,
    NodeGpus,
    NodeTaint,
    XidSeen,
)
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers import kubernetes_events, kubernetes_nodes
from gpufleet_cli.parsers.kubernetes_pods import time_of
from gpufleet_cli.parsers.kubernetes_ranks import annotations_of, labels_of
from gpufleet_cli.timestamps import format_ns

MESSAGE_CHARS = 200
MOST_EVENTS = 4
_ORIGIN = Origin(path="nodes")
_OURS = "gpufleet/"
_SENTINEL = "k8saas.nvidia.com/"
_PLACES = (
    "nvidia.com/gpu.clique",
    "fabric.topograph.run/tier-0",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "network.topology.nvidia.com/leaf",
    "cloud.google.com/gce-topology-subblock",
    "topology.k8s.aws/network-node-layer-3",
    "backend.coreweave.cloud/leafgroup-name",
    "topology.kubernetes.io/zone",
)
_SAID_ALREADY = frozenset({"NodeReady", "NodeHasSufficientMemory", "NodeHasNoDiskPressure",
                           "NodeHasSufficientPID", "NodeAllocatableEnforced", "Starting",
                           "RegisteredNode", "NodeSchedulable", "NodeNotSchedulable"})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Everything that was read for one node. `node` None: it could not be read."""

    name: str
    node: Object | None
    lease: Object | None
    pods: Sequence[Pod] | None
    mates: Sequence[Pod] = ()
    owners: Sequence[Object] = ()
    events: Sequence[Object] = ()
    missing: Sequence[Missing] = ()
    xids: Sequence[XidSeen] | None = None
    together: node_gangs.Mates | None = None
    """In place of `mates` where many nodes are looked at."""


def card(seen: Seen, *, now_ns: int, context: str | None, server: str | None) -> NodeCard:
    """One node as a person asks for it."""
    node: Object = seen.node or {}
    state = _state(node)
    renewed_ns = time_of(js.at(seen.lease, "spec", "renewTime"))
    age_s = None if renewed_ns is None else max(0.0, (now_ns - renewed_ns) / NS)
    lasts_s = max(js.number(js.at(seen.lease, "spec", "leaseDurationSeconds")) or 40.0, STALE_S)
    by_uid = {uid: one for one in seen.owners if (uid := js.text_at(one, "metadata", "uid"))}
    mates = seen.together or node_gangs.Mates(seen.mates, by_uid, seen.owners)
    gangs, others = node_gangs.gangs(seen.pods or (), mates)
    active = sum(pod.gpus for gang in gangs if not gang.is_over for pod in gang.pods)
    return NodeCard(
        name=seen.name,
        context=context,
        server=server,
        read_at_ns=now_ns,
        ready=None if state is None else state.ready,
        ready_since_ns=None if state is None else state.ready_since_ns,
        renewed_ns=renewed_ns,
        lease_age_s=age_s,
        is_silent=None if age_s is None else age_s > lasts_s,
        cordon=cordon(node),
        conditions=tuple(conditions(node, state)),
        taints=tuple(taints(node)),
        gpus=gpus(node, state, active),
        gangs=gangs,
        other_pods=None if seen.pods is None else others,
        uid=None if state is None else state.uid,
        created_ns=None if state is None else state.created_ns,
        boot_id=None if state is None else state.boot_id,
        provider_id=None if state is None else state.provider_id,
        place=_place(node),
        notes=tuple(_notes(node, state, seen)),
        missing=tuple(seen.missing),
        xids=None if seen.xids is None else tuple(seen.xids),
    )


def _state(node: Object) -> NodeState | None:
    found = kubernetes_nodes.read(node, _ORIGIN)
    return next((one for one in found if isinstance(one, NodeState)), None)


# --- Conditions and taints ------------------------------------------------------------------------


def conditions(node: Object, state: NodeState | None) -> Iterator[NodeCondition]:
    """All conditions, ill ones first; `Ready` leads among them. `state` is what was read of the node."""
    found = [
        _condition(one)
        for one in js.items(js.at(node, "status", "conditions"))[: kubernetes_nodes.MOST_CONDITIONS]
        if js.text_at(one, "type")
    ]
    order: Mapping[Mark, int] = {"bad": 0, "third-party": 1, "fine": 2}
    found.sort(key=lambda one: (order[one.mark], one.kind != "Ready", one.kind))
    labels = {label for label, *_ in (state.bad_conditions if state else ())}
    said = {one.kind for one in found}
    for kind, status, reason, message, since_ns in state.bad_conditions if state else ():
        if kind in labels - said:  # products that say it in a label
            yield NodeCondition(
                kind=kind, status=status, reason=reason, message=message,
                since_ns=since_ns, mark="bad", words="a label says that it is ill",
            )  # fmt: skip
    yield from found


def _condition(raw: object) -> NodeCondition:
    kind, status = js.text_at(raw, "type") or "?", js.text_at(raw, "status") or "Unknown"
    since_ns = time_of(js.at(raw, "lastTransitionTime"))
    mark = mark_of(kind, status)
    told = node_words.of_condition(kind)
    repair_ns = None
    if mark == "bad" and told is not None and told.repair_s is not None and since_ns is not None:
        repair_ns = since_ns + round(told.repair_s * NS)
    return NodeCondition(
        kind=kind,
        status=status,
        reason=js.text_at(raw, "reason") or "",
        message=" ".join((js.text_at(raw, "message") or "").split())[:MESSAGE_CHARS],
        since_ns=since_ns,
        mark=mark,
        source=None if told is None else told.source,
        words=None if told is None else told.words,
        repair_at_ns=repair_ns,
    )


def mark_of(kind: str, status: str) -> Mark:
    """Bad by its product's polarity, or a third party's and perhaps bad.

    `Unknown` of a type that is bad when True only says that its writer is silent.

    >>> mark_of("AcceleratedHardwareReady", "Unknown"), mark_of("DiskPressure", "Unknown")
    ('bad', 'fine')
    >>> mark_of("VendorThingHealthy", "False"), mark_of("VendorThing", "False")
    ('third-party', 'fine')
    """
    is_ill = status != "True" if kubernetes_nodes.is_positive(kind) else status == "True"
    if not is_ill:
        return "fine"
    return "bad" if kind == "Ready" or kubernetes_nodes.is_known(kind) else "third-party"


def taints(node: Object) -> Iterator[NodeTaint]:
    """All taints, as kubectl writes them, with their meaning where it is known."""
    for raw in js.items(js.at(node, "spec", "taints"))[: kubernetes_nodes.MOST_CONDITIONS]:
        key = js.text_at(raw, "key")
        if key is None:
            continue
        value, effect = js.text_at(raw, "value"), js.text_at(raw, "effect") or ""
        told = node_words.of_taint(key)
        words = None if told is None else told.words
        if words is not None and effect == "NoExecute":
            words += "; pods go when their toleration ends (300 s by default)"
        yield NodeTaint(
            shown=f"{key}={value}:{effect}" if value else f"{key}:{effect}", words=words
        )


# --- Cordon ---------------------------------------------------------------------------------------


def cordon(node: Object) -> NodeCordon | None:
    """Who made the node unschedulable: our annotations, NVSentinel's labels, else who wrote the field."""
    if js.at(node, "spec", "unschedulable") is not True:
        return None
    marks, labels = annotations_of(node), labels_of(node)
    ours = marks.get(f"{_OURS}cordoned-by")
    if ours and wrote_together(node):
        return NodeCordon(
            by=ours,
            told_by="gpufleet's annotations",
            at_ns=time_of(marks.get(f"{_OURS}cordoned-at")),
            reason=marks.get(f"{_OURS}reason"),
            incident=marks.get(f"{_OURS}incident"),
        )
    sentinel = _sentinel(labels, marks)
    if sentinel is not None:
        return sentinel
    manager, at_ns = _field_manager(node)
    return NodeCordon(by=manager, told_by=manager and "managedFields", at_ns=at_ns)


def wrote_together(node: Object) -> bool:
    """Whether who wrote our annotations made the cordon that is there now, as far as managedFields tell.

    Annotations stay when a person uncordons by hand; the next cordon is then whoever's made it.
    """
    cordons, marks = set(), set()
    for one in js.items(js.at(node, "metadata", "managedFields")):
        manager = js.text_at(one, "manager")
        fields = js.at(one, "fieldsV1")
        if "f:unschedulable" in js.mapping(js.at(fields, "f:spec")):
            cordons.add(manager)
        if f"f:{_OURS}cordoned-by" in js.mapping(js.at(fields, "f:metadata", "f:annotations")):
            marks.add(manager)
    return not cordons or not marks or bool(cordons & marks)


def _sentinel(labels: Mapping[str, str], marks: Mapping[str, str]) -> NodeCordon | None:
    """NVSentinel's quarantine; the prefix of its labels can be configured."""
    prefix = next(
        (key.removesuffix("cordon-by") for key in labels if key.endswith("/cordon-by")), None
    )
    if prefix is None and marks.get("quarantineHealthEvent", "") in ("", "[]", "{}"):
        return None
    own = prefix or _SENTINEL
    when = labels.get(f"{own}cordon-timestamp")
    return NodeCordon(
        by=labels.get(f"{own}cordon-by") or "NVSentinel",
        told_by="NVSentinel's labels" if prefix else "NVSentinel's annotation",
        at_ns=_label_time(when),
        reason=labels.get(f"{own}cordon-reason"),
    )


def _label_time(text: str | None) -> int | None:
    """A label cannot hold `:`, so NVSentinel writes `2026-03-11T03-41-30Z`."""
    if text is None:
        return None
    day, mark, clock = text.partition("T")
    return time_of(f"{day}T{clock.replace('-', ':')}") if mark else time_of(text)


def _field_manager(node: Object) -> tuple[str | None, int | None]:
    """Who last wrote `spec.unschedulable`, and when."""
    found = [
        (time_of(js.at(one, "time")) or 0, js.text_at(one, "manager"))
        for one in js.items(js.at(node, "metadata", "managedFields"))
        if "f:unschedulable" in js.mapping(js.at(one, "fieldsV1", "f:spec"))
    ]
    if not found:
        return None, None
    at_ns, manager = max(found, key=lambda one: one[0])
    return manager, at_ns or None


# --- GPUs, place, notes ---------------------------------------------------------------------------


def gpus(node: Object, state: NodeState | None, held: int) -> NodeGpus:
    """Capacity, allocatable and what is lost between them; with MIG the label counts other things."""
    labels = labels_of(node)
    capacity = None if state is None else state.gpus_capacity
    allocatable = None if state is None else state.gpus_allocatable
    labelled = js.integer(labels.get("nvidia.com/gpu.count"))
    if labels.get("nvidia.com/mig.strategy", "none") not in ("", "none"):
        labelled = None
    there = max((one for one in (capacity, labelled) if one is not None), default=None)
    lost = None if there is None or allocatable is None else max(0, there - allocatable)
    return NodeGpus(
        product=labels.get("nvidia.com/gpu.product"),
        capacity=there,
        allocatable=allocatable,
        lost=lost,
        held=held,
        driver=labels.get("nvidia.com/cuda.driver-version.full") or _driver(labels),
    )


def _driver(labels: Mapping[str, str]) -> str | None:
    parts = [labels.get(f"nvidia.com/cuda.driver.{part}") for part in ("major", "minor", "rev")]
    return ".".join(part for part in parts if part) or None


def _place(node: Object) -> str | None:
    labels = labels_of(node)
    return next((f"{key}={labels[key]}" for key in _PLACES if labels.get(key)), None)


def _notes(node: Object, state: NodeState | None, seen: Seen) -> Iterator[str]:
    """What else a person would want to be told, certain things first."""
    marks, labels = annotations_of(node), labels_of(node)
    is_cordoned = js.at(node, "spec", "unschedulable") is True
    if f"{_OURS}cordoned-by" in marks and not is_cordoned:
        yield "in the replacement queue by its annotations, and schedulable: somebody uncordoned it"
    if is_cordoned and _sentinel(labels, marks) is not None:
        yield "NVSentinel quarantined it: uncordoning by hand cancels its repair"
    if "quarantinedNodeUncordonedManually" in marks:
        yield "a person uncordoned it after NVSentinel quarantined it"
    if labels.get(f"{_SENTINEL}ManagedByNVSentinel") == "false":
        yield "NVSentinel leaves it alone (label ManagedByNVSentinel=false)"
    upgrade = labels.get("nvidia.com/gpu-driver-upgrade-state")
    if upgrade and upgrade != "upgrade-done":
        yield f"the GPU operator is upgrading its driver ({upgrade})"
    yield from _replaced(state, seen)
    yield from _events(seen.events)


def _replaced(state: NodeState | None, seen: Seen) -> Iterator[str]:
    """A node that is younger than what runs on it, or than the gang it holds."""
    if state is None or state.created_ns is None:
        return
    own = [pod for pod in seen.pods or () if pod.state.gpus]
    starts = map(node_gangs.started_ns, own)
    first = min((at for at in starts if at is not None), default=None)
    of_gang = (
        node_gangs.began_ns(seen.mates) if seen.together is None else seen.together.began_ns(own)
    )
    since = f"registered {format_ns(state.created_ns)}"
    if first is not None and state.created_ns > first + NS:
        yield f"{since}, after its own pods started: replaced under the same name"
    elif of_gang is not None and state.created_ns > of_gang + NS:
        yield f"{since}, after its gang started: new, or replaced under the same name"


def _events(events: Iterable[Object]) -> Iterator[str]:
    """Reboots, then the newest warnings; the API server keeps an hour of them."""
    found = [
        fact
        for one in events
        for fact in kubernetes_events.read(one, _ORIGIN)
        if isinstance(fact, ClusterEvent) and fact.kind == "Node"
    ]
    found.sort(key=lambda one: (one.reason != "Rebooted", -(one.at_ns or 0), one.reason))
    kept = [one for one in found if one.reason not in _SAID_ALREADY]
    for one in kept[:MOST_EVENTS]:
        when = f"{format_ns(one.at_ns)} " if one.at_ns is not None else ""
        yield f"event {when}{one.reason}: {' '.join(one.message.split())[:MESSAGE_CHARS]}"
