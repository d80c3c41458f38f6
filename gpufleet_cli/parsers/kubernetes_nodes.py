"""Nodes, their conditions by product, and the leases that are the best clock of a node's death.

Polarity differs by who wrote a condition: `AcceleratedHardwareReady=False` is bad (EKS agent),
`XIDErrors=True` is bad (AKS), `SysLogsXIDError=True` is bad (NVSentinel). Types that no source at hand
describes go by their ending (`...Ready`, `...Healthy`, `...Available` bad when not True, others bad
when True) and are doubtful: shown, never scored alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from gpufleet_cli.facts import Fact, NodeLease, NodeState, Origin
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_pods import time_of
from gpufleet_cli.parsers.kubernetes_ranks import labels_of

MESSAGE_CHARS = 400
MOST_CONDITIONS = 200
CLIQUE = "nvidia.com/gpu.clique"
_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi")

_BAD_WHEN_TRUE = frozenset(
    {
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
        "NetworkUnavailable",
        "GPUMissing",
        "NVLinkStatusInactive",
        "XIDErrors",
        "IBLinkFlapping",
        "KubeletProblem",
        "FilesystemCorruptionProblem",
        "KernelDeadlock",
        "ReadonlyFilesystem",
        "FrequentKubeletRestart",
        "FrequentDockerRestart",
        "FrequentContainerdRestart",
        "ContainerRuntimeProblem",
        "SysLogsXIDError",
        "SysLogsSXIDError",
        "SysLogsGPUFallenOff",
        "NVSwitchFatalError",
        "MultipleRemediations",
    }
)
_BAD_WHEN_NOT_TRUE = frozenset(
    {
        "AcceleratedHardwareReady",
        "KernelReady",
        "NetworkingReady",
        "StorageReady",
        "ContainerRuntimeReady",
    }
)
_NVSENTINEL_WATCH = re.compile(r"Gpu\w{1,40}Watch")
_GOOD_NEWS = frozenset({"EtcdIsVoter"})
HEALTH_LABELS = {
    "sagemaker.amazonaws.com/node-health-status": ("Schedulable",),
    "dgxc.nvidia.com/nvsentinel-state": ("remediation-succeeded",),
}

Condition = tuple[str, str, str, str, int | None]


def read(node: Mapping[str, object], origin: Origin) -> Iterator[Fact]:
    """The node's state; nothing without a name."""
    name = js.text_at(node, "metadata", "name") or js.text_at(node, "name")
    if name is None:
        return
    conditions = js.items(js.at(node, "status", "conditions"))[:MOST_CONDITIONS]
    ready = next((c for c in conditions if js.at(c, "type") == "Ready"), None)
    labels = labels_of(node)
    yield NodeState(
        name=name,
        ready=_ready(js.text_at(ready, "status")),
        ready_since_ns=time_of(js.at(ready, "lastTransitionTime")),
        ready_reason=js.text_at(ready, "reason"),
        unschedulable=js.at(node, "spec", "unschedulable") is True,
        bad_conditions=(*_bad(conditions), *_by_label(labels)),
        gpus_capacity=_gpus(js.at(node, "status", "capacity"), labels),
        gpus_allocatable=_gpus(js.at(node, "status", "allocatable"), {}),
        nvlink_domain=labels.get(CLIQUE) or None,
        provider_id=js.text_at(node, "spec", "providerID"),
        internal_ip=_address(node),
        created_ns=time_of(js.at(node, "metadata", "creationTimestamp")),
        labels=tuple(sorted(labels.items())),
        taints=tuple(_taints(node)),
        origin=origin,
        uid=js.text_at(node, "metadata", "uid"),
        boot_id=js.text_at(node, "status", "nodeInfo", "bootID"),
        doubtful_conditions=tuple(_doubtful(conditions)),
    )


def _ready(status: str | None) -> Literal["True", "False", "Unknown"] | None:
    match status:
        case "True" | "False" | "Unknown":
            return status
        case _:
            return None


def _read(condition: object) -> Condition | None:
    kind, status = js.text_at(condition, "type"), js.text_at(condition, "status")
    if kind is None or status is None:
        return None
    return (
        kind,
        status,
        js.text_at(condition, "reason") or "",
        (js.text_at(condition, "message") or "")[:MESSAGE_CHARS],
        time_of(js.at(condition, "lastTransitionTime")),
    )


def _bad(conditions: list[object]) -> Iterator[Condition]:
    """Conditions whose product says that this status is ill. `Unknown` of the core types only says
    that the kubelet is gone, which Ready says already."""
    for condition in conditions:
        found = _read(condition)
        if found is None or not is_known(found[0]):
            continue
        is_bad = found[1] == "False" if found[0] in _BAD_WHEN_NOT_TRUE else found[1] == "True"
        if is_bad:
            yield found


def is_known(kind: str) -> bool:
    """Whether a source at hand says what a condition of this type means."""
    return (
        kind in _BAD_WHEN_TRUE
        or kind in _BAD_WHEN_NOT_TRUE
        or _NVSENTINEL_WATCH.fullmatch(kind) is not None
    )


def _doubtful(conditions: list[object]) -> Iterator[Condition]:
    for condition in conditions:
        found = _read(condition)
        if found is None or found[0] == "Ready" or is_known(found[0]) or found[0] in _GOOD_NEWS:
            continue
        if found[1] == ("False" if is_positive(found[0]) else "True"):
            yield found


def is_positive(kind: str) -> bool:
    """Whether True is the good value of this type: all that end so, whoever writes them."""
    return kind.endswith(("Ready", "Healthy", "Available")) or kind in _GOOD_NEWS


def _by_label(labels: Mapping[str, str]) -> Iterator[Condition]:
    """Products that say it in a label: SageMaker HyperPod, NVSentinel."""
    for key, fine in HEALTH_LABELS.items():
        value = labels.get(key)
        if value and value not in fine:
            yield key, value, "label", "", None


def _gpus(resources: object, labels: Mapping[str, str]) -> int | None:
    for name in _GPUS:
        found = js.integer(js.at(resources, name))
        if found is not None and found >= 0:
            return found
    return js.integer(labels.get("nvidia.com/gpu.count"))


def _address(node: object) -> str | None:
    for address in js.items(js.at(node, "status", "addresses")):
        if js.at(address, "type") == "InternalIP":
            return js.text_at(address, "address")
    return None


def _taints(node: object) -> Iterator[str]:
    """`key=value:effect`, as kubectl writes them."""
    for taint in js.items(js.at(node, "spec", "taints"))[:MOST_CONDITIONS]:
        key = js.text_at(taint, "key")
        if key is not None:
            value = js.text_at(taint, "value")
            effect = js.text_at(taint, "effect") or ""
            yield f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def read_lease(lease: Mapping[str, object], origin: Origin) -> Iterator[Fact]:
    """A node's lease; leases of leader elections are none."""
    name = js.text_at(lease, "metadata", "name")
    renewed_ns = time_of(js.at(lease, "spec", "renewTime"))
    if name is None or renewed_ns is None:
        return
    owners = [js.at(o, "kind") for o in js.items(js.at(lease, "metadata", "ownerReferences"))]
    if js.at(lease, "metadata", "namespace") == "kube-node-lease" or "Node" in owners:
        yield NodeLease(
            node=name,
            renewed_ns=renewed_ns,
            duration_s=js.number(js.at(lease, "spec", "leaseDurationSeconds")) or 40.0,
            origin=origin,
        )
