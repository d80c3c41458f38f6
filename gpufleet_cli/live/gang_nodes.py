"""Which nodes of a whole cluster are ill or cordoned, without taking all of them apart.

A node object is 10 to 40 kB, of which ten fields tell whether there is anything to say. Those are decoded
alone (10,000 nodes in a fraction of a second); a node that is not plainly well is then read in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from gpufleet_cli.gang_card import MarkedNode
from gpufleet_cli.live import first_facts, node_view
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.node_look import name_of
from gpufleet_cli.live.node_view import Seen
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_nodes import HEALTH_LABELS
from gpufleet_cli.parsers.kubernetes_pods import time_of

_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi")
_COUNT = "nvidia.com/gpu.count"


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct):
    conditions: list[_Condition]
    capacity: dict[str, str] = msgspec.field(default_factory=dict)
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)


class _Spec(msgspec.Struct):
    unschedulable: bool = False


class _Meta(msgspec.Struct):
    name: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class _Head(msgspec.Struct):
    metadata: _Meta
    status: _Status
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _LeaseSpec(msgspec.Struct):
    renewTime: str = ""


class _Lease(msgspec.Struct):
    metadata: _Meta
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


def marked(
    nodes: Iterable[msgspec.Raw], leases: Iterable[msgspec.Raw], now_ns: int
) -> dict[str, MarkedNode]:
    """The nodes that there is something to say of, by name."""
    renewed = dict(_renewed(leases))
    fine: dict[tuple[str, str], bool] = {}
    found = {}
    for raw in nodes:
        try:
            head = msgspec.json.decode(raw, type=_Head)
        except (msgspec.DecodeError, ValueError, RecursionError):
            head = None
        if head is not None:
            lease_ns = renewed.get(head.metadata.name)
            is_fresh = lease_ns is None or now_ns - lease_ns <= first_facts.STALE_S * 1e9
            if is_fresh and _is_plain(head, fine):
                continue
        one = _looked_at(_object(raw), renewed.get(name_of(raw)), now_ns)
        if one is not None:
            found[one.name] = one
    return found


def _renewed(leases: Iterable[msgspec.Raw]) -> Iterator[tuple[str, int]]:
    for raw in leases:
        try:
            lease = msgspec.json.decode(raw, type=_Lease)
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
        at_ns = time_of(lease.spec.renewTime)
        if at_ns is not None:
            yield lease.metadata.name, at_ns


def _is_plain(head: _Head, fine: dict[tuple[str, str], bool]) -> bool:
    """Nothing about it that could be ill: those are read whole."""
    if head.spec.unschedulable or not head.status.conditions:
        return False
    for one in head.status.conditions:
        key = one.type, one.status
        if key not in fine:
            fine[key] = node_view.mark_of(*key) == "fine"
        if not fine[key]:
            return False
    labels, there = head.metadata.labels, head.status.allocatable
    if any(key in labels for key in HEALTH_LABELS):
        return False
    if any(there.get(key) != head.status.capacity.get(key) for key in _GPUS):
        return False
    return _COUNT not in labels or labels[_COUNT] == there.get("nvidia.com/gpu")


def _object(raw: msgspec.Raw) -> Object:
    try:
        return js.mapping(msgspec.json.decode(raw))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}


def _looked_at(node: Object, renewed_ns: int | None, now_ns: int) -> MarkedNode | None:
    """The node in full, where it is ill or cordoned."""
    name = js.text_at(node, "metadata", "name")
    if name is None:
        return None
    lease: Mapping[str, object] = {}
    card = node_view.card(
        Seen(name=name, node=node, lease=lease, pods=None),
        now_ns=now_ns, context=None, server=None,
    )  # fmt: skip
    states = first_facts.nodes_of([{"kind": "Node", **node}])
    seen = first_facts.Node(name=name, state=states[name].state, renewed_ns=renewed_ns)
    what = first_facts.illness(seen, now_ns)
    if what is None and card.gpus.lost:
        what = f"has lost {card.gpus.lost} of {card.gpus.capacity} GPUs"
    if what is None and card.bad:
        what = f"{card.bad[0].kind}={card.bad[0].status}"
    if what is not None:
        return MarkedNode(name=name, what=what, is_ill=True)
    if card.cordon is None:
        return None
    by = f" by {card.cordon.by}" if card.cordon.by else ""
    reason = f": {card.cordon.reason}" if card.cordon.reason else ""
    return MarkedNode(name=name, what=f"cordoned{by}{reason}", is_ill=False)
