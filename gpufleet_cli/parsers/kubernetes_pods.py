"""Pods as `kubectl get pods -o json` gives them, whole or cut down to what somebody thought mattered.

    {"metadata": {"name": "p-0", ...}, "spec": {"nodeName": "gpu-1", ...}, "status": {"phase": ...,
     "containerStatuses": [{"name": "pytorch", "state": {"terminated": {"exitCode": 137, ...}}}]}}
    {"pod": "p-0", "phase": "Failed", "containerStatuses": [...]}

A rank's life is its GPU container's status, never the pod's phase. API: core/v1 Pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpufleet_cli import timestamps
from gpufleet_cli.facts import ContainerState, Fact, IdentityLink, Link, Origin, PodState
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers import kubernetes_ranks, kubernetes_volumes
from gpufleet_cli.parsers.kubernetes_gpus import GPU_RESOURCE, gpus_of
from gpufleet_cli.parsers.kubernetes_ranks import Gang, NodeRank

MESSAGE_CHARS = 400
MOST_CONTAINERS = 200
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_ATTEMPTS = (
    "jobset.sigs.k8s.io/restart-attempt",
    "jobset.sigs.k8s.io/job-restart-attempt",
    "volcano.sh/job-version",
)
_SIDECAR = re.compile(
    r"istio|linkerd|envoy|proxy|sidecar|fluent|vector|promtail|daemon|agent|exporter|logger|sshd"
    r"|tcpx|fastrak|vault|otel|filebeat|tensorboard|wandb|metrics",
    re.IGNORECASE,
)


def time_of(value: object) -> int | None:
    """An RFC 3339 time."""
    found = timestamps.parse_rfc3339(value) if isinstance(value, str) else None
    return found[0] if found else None


def read(pod: Mapping[str, object], gang: Gang, origin: Origin) -> Iterator[Fact]:
    """The pod's state and what it ties together. Nothing without a name."""
    name = _first_text(pod, ("metadata", "name"), ("name",), ("pod",), ("podName",))
    if name is None:
        return
    status = js.mapping(pod.get("status")) or pod
    specs = js.items(js.at(pod, "spec", "containers"))
    states = tuple(_containers(pod, status, specs))
    rank_container = _rank_container(pod, specs, states)
    spec = next((s for s in specs if js.text_at(s, "name") == rank_container), None)
    gpus = sum(gpus_of(s) or 0 for s in specs) or None
    rank = kubernetes_ranks.node_rank(pod, spec, gpus_of(spec), gang)
    state = _state(pod, status, name, states, rank_container, gpus, rank, origin)
    yield state
    yield _link(state, origin)
    yield from _devices(state, status, origin)


def _first_text(pod: object, *paths: tuple[str, ...]) -> str | None:
    return next((t for p in paths if (t := js.text_at(pod, *p)) is not None), None)


def _state(
    pod: Mapping[str, object],
    status: Mapping[str, object],
    name: str,
    states: tuple[ContainerState, ...],
    rank_container: str | None,
    gpus: int | None,
    rank: NodeRank,
    origin: Origin,
) -> PodState:
    disruption = _condition(status, "DisruptionTarget")
    is_disrupted = js.text_at(disruption, "status") == "True"
    scheduled = _condition(status, "PodScheduled")
    node = _first_text(pod, ("spec", "nodeName"), ("nodeName",), ("node",))
    told = {"True": True, "False": False}.get(js.text_at(scheduled, "status") or "")
    labels = kubernetes_ranks.labels_of(pod)
    deleted_ns = time_of(js.at(pod, "metadata", "deletionTimestamp"))
    return PodState(
        name=name,
        namespace=_first_text(pod, ("metadata", "namespace"), ("namespace",)),
        uid=_first_text(pod, ("metadata", "uid"), ("uid",)),
        node=node,
        pod_ip=_first_text(status, ("podIP",), ("pod_ip",)),
        phase=js.text(status.get("phase")),
        reason=js.text(status.get("reason")),
        created_ns=time_of(js.at(pod, "metadata", "creationTimestamp")),
        deleted_ns=deleted_ns,
        containers=states,
        rank_container=rank_container,
        disruption=js.text_at(disruption, "reason") if is_disrupted else None,
        disrupted_ns=time_of(js.at(disruption, "lastTransitionTime")) if is_disrupted else None,
        gpus=gpus,
        labels=tuple(sorted(labels.items())),
        node_rank=rank.node_rank,
        owner=_owner(pod),
        origin=origin,
        scheduled=True if node is not None else told,
        unscheduled_why=_cut(js.text_at(scheduled, "message")) if told is False else None,
        nproc=rank.nproc,
        nnodes=rank.nnodes,
        rendezvous=rank.rendezvous,
        attempt=_attempt({**kubernetes_ranks.annotations_of(pod), **labels}),
        hostname=js.text_at(pod, "spec", "hostname"),
        sorts_as=_host_name(pod, name) if rank.sorts else None,
        terminating=deleted_ns is not None,
        dumps=kubernetes_volumes.dump_place(pod, rank_container),
    )


def _host_name(pod: object, name: str) -> str | None:
    """What the pod's processes call their host; on its node's network the machine's name, which need not be the
    node's (an address, on some clouds)."""
    if js.at(pod, "spec", "hostNetwork") is True:
        return None
    return js.text_at(pod, "spec", "hostname") or name


def _cut(text: str | None) -> str | None:
    return None if text is None else text[:MESSAGE_CHARS]


def _condition(status: Mapping[str, object], kind: str) -> object:
    conditions = js.items(status.get("conditions"))
    return next((c for c in conditions if js.at(c, "type") == kind), None)


def _owner(pod: object) -> str | None:
    """The controlling owner as KIND/NAME."""
    for owner in js.items(js.at(pod, "metadata", "ownerReferences")):
        if js.at(owner, "controller") is True:
            return f"{js.text_at(owner, 'kind') or '?'}/{js.text_at(owner, 'name') or '?'}"
    return None


def _attempt(marks: Mapping[str, str]) -> int | None:
    for key in _ATTEMPTS:
        found = js.integer(marks.get(key))
        if found is not None and found >= 0:
            return found
    return None


# --- Containers ---------------------------------------------------------------------------------


def _containers(
    pod: Mapping[str, object], status: Mapping[str, object], specs: list[object]
) -> Iterator[ContainerState]:
    """Every container; of the init containers those that have not simply ended well."""
    gpu_names = {js.text_at(s, "name") for s in specs if gpus_of(s)}
    seen: set[str] = set()
    for entry in js.items(status.get("containerStatuses"))[:MOST_CONTAINERS]:
        state = _container(entry, gpu_names)
        if state is not None:
            seen.add(state.name)
            yield state
    is_pending = js.text(status.get("phase")) == "Pending"
    for spec in specs[:MOST_CONTAINERS]:
        name = js.text_at(spec, "name")
        if name is not None and name not in seen:
            yield _unstarted(name, is_pending=is_pending, has_gpu=name in gpu_names)
    for entry in js.items(status.get("initContainerStatuses"))[:MOST_CONTAINERS]:
        state = _container(entry, gpu_names)
        if state is not None and not (state.state == "terminated" and state.exit_code == 0):
            yield state


def _unstarted(name: str, *, is_pending: bool, has_gpu: bool) -> ContainerState:
    return ContainerState(
        name=name,
        state="waiting" if is_pending else "unknown",
        reason=None,
        message=None,
        exit_code=None,
        started_ns=None,
        finished_ns=None,
        restarts=0,
        has_gpu=has_gpu,
    )


def _container(entry: object, gpu_names: set[str | None]) -> ContainerState | None:
    name = js.text_at(entry, "name")
    if name is None:
        return None
    now = js.mapping(js.at(entry, "state"))
    ended = js.mapping(now.get("terminated"))
    waiting = js.mapping(now.get("waiting"))
    last = js.mapping(js.at(entry, "lastState", "terminated"))
    detail = ended or waiting
    started = time_of(ended.get("startedAt")) or time_of(js.at(now, "running", "startedAt"))
    container_id = js.text_at(entry, "containerID") or js.text(ended.get("containerID")) or ""
    return ContainerState(
        name=name,
        state="terminated"
        if "terminated" in now and now["terminated"] is not None
        else "waiting"
        if "waiting" in now and now["waiting"] is not None
        else "running"
        if "running" in now and now["running"] is not None
        else "unknown",
        reason=js.text(detail.get("reason")),
        message=_cut(js.text(detail.get("message"))),
        exit_code=js.integer(ended.get("exitCode")),
        started_ns=started,
        finished_ns=time_of(ended.get("finishedAt")),
        restarts=max(js.integer(js.at(entry, "restartCount")) or 0, 0),
        has_gpu=name in gpu_names,
        last_exit_code=js.integer(last.get("exitCode")),
        last_reason=js.text(last.get("reason")),
        last_finished_ns=time_of(last.get("finishedAt")),
        container_id=container_id.rpartition("://")[2] or None,
    )


def _rank_container(
    pod: Mapping[str, object], specs: list[object], states: tuple[ContainerState, ...]
) -> str | None:
    """The container with GPU limits, else kubectl's default, else the first that is no sidecar."""
    default = kubernetes_ranks.annotations_of(pod).get(DEFAULT_CONTAINER)
    with_gpu = [name for s in specs if gpus_of(s) and (name := js.text_at(s, "name")) is not None]
    if with_gpu:
        return default if default in with_gpu else with_gpu[0]
    names = [name for s in specs if (name := js.text_at(s, "name")) is not None]
    names = names or [state.name for state in states]
    if default in names:
        return default
    return next((n for n in names if not _SIDECAR.search(n)), names[0] if names else None)


# --- Links --------------------------------------------------------------------------------------


def _link(state: PodState, origin: Origin) -> IdentityLink:
    return IdentityLink(
        how=Link.POD_SPEC,
        origin=origin,
        node_rank=state.node_rank if state.rendezvous != "c10d" else None,
        pod=state.name,
        pod_uid=state.uid,
        container=state.rank_container,
        namespace=state.namespace,
        node=state.node,
        host=state.hostname,
        pod_ip=state.pod_ip,
        attempt=state.attempt,
    )


def _devices(state: PodState, status: Mapping[str, object], origin: Origin) -> Iterator[Fact]:
    """GPUs that the kubelet says it gave to a container (feature gate ResourceHealthStatus)."""
    for entry in js.items(status.get("containerStatuses"))[:MOST_CONTAINERS]:
        for resource in js.items(js.at(entry, "allocatedResourcesStatus")):
            if not GPU_RESOURCE.match(js.text_at(resource, "name") or ""):
                continue
            for device in js.items(js.at(resource, "resources")):
                uuid = js.text_at(device, "resourceID")
                if uuid is not None and uuid.startswith(("GPU-", "MIG-")):
                    yield IdentityLink(
                        how=Link.POD_SPEC,
                        origin=origin,
                        pod=state.name,
                        pod_uid=state.uid,
                        container=js.text_at(entry, "name"),
                        namespace=state.namespace,
                        node=state.node,
                        gpu_uuid=uuid,
                    )
