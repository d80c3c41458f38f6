"""GPU nodes: made, cordoned, killed, and their kubelets broken."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from servers.api import Json, in_parallel
from servers.cluster import Cluster
from servers.namespaces import OWNER, Namespace
from servers.running import free_ports, wait_until
from servers.stages import MANAGED

_GRACE_S = 60  # the controllers set Ready to Unknown some 20 s after the last lease


def make(
    namespace: Namespace,
    count: int,
    *,
    gpus: int = 8,
    labels: Mapping[str, str] | None = None,
    prefix: str = "node",
) -> list[str]:
    """So many Ready nodes that are this test's own; their names, unique in the cluster.

    Pods of `jobs` are kept to them by a node selector.
    """
    stem = f"{prefix}-{namespace.name.removeprefix('test-')}"
    names = [f"{stem}-{index}" for index in range(count)]
    make_named(namespace, names, gpus=gpus, labels=labels)
    return names


def make_named(
    namespace: Namespace,
    names: Sequence[str],
    *,
    gpus: int = 8,
    labels: Mapping[str, str] | None = None,
) -> None:
    """Nodes of these very names, which no other test may use at the same time; Ready when this returns."""
    api = namespace.api
    manifests = [_manifest(namespace, name, gpus, labels or {}) for name in names]
    in_parallel(api.create, manifests)
    wanted = set(names)
    own = f"{OWNER}={namespace.name}"
    wait_until(
        lambda: (
            wanted
            <= {
                node["metadata"]["name"]
                for node in api.items("/api/v1/nodes", labelSelector=own)
                if ready_status(node) == "True"
            }
        ),
        f"{len(names)} nodes are Ready",
        within_s=30 + len(names) / 5,
    )


def _manifest(namespace: Namespace, name: str, gpus: int, labels: Mapping[str, str]) -> Json:
    """A node with eight GPUs as the GPU operator labels it."""
    size = {"cpu": "192", "memory": "2000Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    own = {
        MANAGED: "on",
        OWNER: namespace.name,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": str(gpus),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**own, **labels}},
        "status": {
            "allocatable": size,
            "capacity": size,
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": f"boot-of-{name}",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.8.0-1029-nvidia",
                "kubeProxyVersion": "v1.34.4",
                "kubeletVersion": "v1.34.4",
                "machineID": f"machine-of-{name}",
                "operatingSystem": "linux",
                "osImage": "Ubuntu 24.04.3 LTS",
                "systemUUID": f"system-of-{name}",
            },
        },
    }


def ready_status(node: Json) -> str | None:
    """`True`, `False` or `Unknown`, as the condition says."""
    for condition in node.get("status", {}).get("conditions", ()):
        if condition["type"] == "Ready":
            return str(condition["status"])
    return None


def read(cluster: Cluster, node: str) -> Json:
    """The node as it is now."""
    return cluster.api.get(f"/api/v1/nodes/{node}")


def kill(cluster: Cluster, node: str, *, wait: bool = False) -> None:
    """The node falls silent: no lease, no status, no pod changes. `wait` until the controllers say Unknown (20-30 s)."""
    cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {MANAGED: None}}})
    if wait:
        wait_until(
            lambda: ready_status(read(cluster, node)) == "Unknown",
            f"{node} is Unknown",
            within_s=_GRACE_S,
        )


def kill_at(cluster: Cluster, node: str, at: datetime) -> None:
    """The node fell silent at that time in the past: lease and conditions as the controllers would have left them."""
    kill(cluster, node)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
    wait_until(lambda: cluster.api.answers(lease), f"{node} has a lease")
    cluster.api.patch(lease, {"spec": {"renewTime": f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}})
    stamp = _second(at)
    for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure"):
        set_condition(
            cluster,
            node,
            kind,
            status="Unknown",
            reason="NodeStatusUnknown",
            message="Kubelet stopped posting node status.",
            at=at,
            heartbeat=stamp,
        )


def wait_for_taint(
    cluster: Cluster, node: str, key: str = "node.kubernetes.io/unreachable"
) -> None:
    """Wait until the node controller has tainted the node."""
    wait_until(
        lambda: any(taint["key"] == key for taint in read(cluster, node)["spec"].get("taints", ())),
        f"{node} has the taint {key}",
    )


def revive(cluster: Cluster, node: str) -> None:
    """The kubelet is back."""
    cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {MANAGED: "on"}}})


def set_condition(
    cluster: Cluster,
    node: str,
    kind: str,
    *,
    status: str,
    reason: str,
    message: str = "",
    at: datetime | None = None,
    heartbeat: str | None = None,
) -> None:
    """Write one condition, of any product's type."""
    stamp = _second(at or datetime.now(UTC))
    made = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp,
        "lastHeartbeatTime": heartbeat or stamp,
    }
    change = {"status": {"conditions": [made]}}
    cluster.api.patch(f"/api/v1/nodes/{node}/status", change, how="strategic")


def lose_gpus(cluster: Cluster, node: str, *, left: int) -> None:
    """The device plugin calls the others unhealthy."""
    change = {"status": {"allocatable": {"nvidia.com/gpu": str(left)}}}
    cluster.api.patch(f"/api/v1/nodes/{node}/status", change, how="strategic")


def stop_kubelet(cluster: Cluster, node: str) -> None:
    """Logs and exec of the node's pods answer 500 `connection refused` at once; the lease goes on."""
    _move_kubelet(cluster, node, free_ports(1)[0])


@contextmanager
def hanging_kubelet(cluster: Cluster, node: str) -> Iterator[None]:
    """Logs and exec of the node's pods answer 500 `TLS handshake timeout` after 10 s; the lease goes on."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(128)  # the system accepts for us, and nobody answers
        _move_kubelet(cluster, node, silent.getsockname()[1])
        yield
        _move_kubelet(cluster, node, cluster.kubelet_port)


def _move_kubelet(cluster: Cluster, node: str, port: int) -> None:
    """Tell the API server another port of the node's kubelet."""
    change = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}
    cluster.api.patch(f"/api/v1/nodes/{node}/status", change, how="strategic")


def _second(at: datetime) -> str:
    """As the API writes a time."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
