"""Which GPU, node and pod a dcgm-exporter series speaks of.

    Hostname="gpu-b011", gpu="5", UUID="GPU-...", pci_bus_id="00000000:C3:00.0", pod="train-0"

`Hostname` became `hostname` in 2026 and is the pod's name where the exporter has no host network;
`node` of service discovery is sure. Under Prometheus' default `honor_labels: false` the job's pod is
`exported_pod`, and `pod` is the exporter. Old exporters write `pod_name`. `gpu` is NVML's index.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpufleet_cli.facts import IdentityLink, Link, Origin

_NODE_LABELS = ("node", "kubernetes_node", "node_name", "nodename", "Hostname", "hostname", "host")
_UUID_LABELS = ("UUID", "uuid", "gpu_uuid", "GPU_UUID")
_EXPORTER = ("dcgm-exporter", "dcgm_exporter", "nvidia-dcgm")


class Gpu(NamedTuple):
    """A GPU as its labels name it. Two series of one GPU give equal values."""

    node: str | None
    uuid: str | None
    pci_bus_id: str | None
    gpu_index: int | None
    instance: int | None = None

    @property
    def is_named(self) -> bool:
        return self.uuid is not None or self.pci_bus_id is not None or self.gpu_index is not None


def gpu_of(labels: Mapping[str, str]) -> Gpu:
    """The GPU of a series; fields are None where no label tells."""
    return Gpu(
        node_of(labels),
        next((labels[name] for name in _UUID_LABELS if labels.get(name)), None),
        labels.get("pci_bus_id") or labels.get("pciBusId") or None,
        _index(labels),
        _number(labels.get("GPU_I_ID")),
    )


def _index(labels: Mapping[str, str]) -> int | None:
    index = _number(labels.get("gpu"))
    if index is not None:
        return index
    device = labels.get("device", "")
    return _number(device.removeprefix("nvidia")) if device.startswith("nvidia") else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= 4 else None


def node_of(labels: Mapping[str, str]) -> str | None:
    """The node, else the address that was scraped, which may be the node's."""
    exporter = labels.get("pod") if labels.get("exported_pod") else None
    for name in _NODE_LABELS:
        value = labels.get(name)
        if value and value != exporter and not _is_exporter(value):
            return value
    instance = labels.get("instance", "")
    address, _, port = instance.rpartition(":")
    return (address if port.isdecimal() else instance) or None


def _is_exporter(name: str) -> bool:
    return any(word in name for word in _EXPORTER)


def pod_of(labels: Mapping[str, str]) -> tuple[str | None, str | None, str | None]:
    """(pod, namespace, container) that held the GPU, never the exporter's own."""
    for pod, namespace, container in (
        ("exported_pod", "exported_namespace", "exported_container"),
        ("pod", "namespace", "container"),
        ("pod_name", "pod_namespace", "container_name"),
    ):
        name = labels.get(pod)
        if not name:
            continue
        holder = labels.get(container) or None
        if _is_exporter(name) or _is_exporter(holder or "") or holder == "exporter":
            return None, None, None
        return name, labels.get(namespace) or None, holder
    return None, None, None


def link_of(labels: Mapping[str, str], origin: Origin) -> IdentityLink | None:
    """What the labels tie together, None when they name no GPU."""
    gpu = gpu_of(labels)
    if not gpu.is_named:
        return None
    pod, namespace, container = pod_of(labels)
    return IdentityLink(
        how=Link.METRICS_LABELS,
        origin=origin,
        pod=pod,
        namespace=namespace,
        container=container,
        node=gpu.node,
        gpu_index=gpu.gpu_index,
        pci_bus_id=gpu.pci_bus_id,
        gpu_uuid=gpu.uuid,
    )
