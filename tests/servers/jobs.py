"""Training jobs as their controllers leave them: objects, owner references, labels, environment.

Job and StatefulSet controllers are real here, so an Indexed Job, the Jobs of a JobSet and the groups of a
LeaderWorkerSet get their pods from them. Pods of the other kinds are made by hand, as their controllers' source has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from servers.api import Json, in_parallel
from servers.namespaces import OWNER, Namespace
from servers.stages import HOLD

PORT = "29500"
_COMPLETION = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the pods of a job look like."""

    pods: int = 4
    gpus: int = 8
    env: Mapping[str, str | Json] = field(default_factory=dict)  # a value, or where it comes from
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    args: Sequence[str] = ("--nproc-per-node=8", "train.py")
    container: str = "trainer"
    others: Sequence[Json] = ()  # further containers
    init: Sequence[Json] = ()
    volumes: Sequence[Json] = ()
    mounts: Sequence[Json] = ()
    restart_policy: str = "Never"
    nodes: Sequence[
        str
    ] = ()  # pods made by hand are bound to these in turn; else the scheduler places them
    hold: bool = False  # created on their node and not started, see `pods.hold_back`
    suspend: bool = False


def template(
    namespace: Namespace,
    shape: Shape,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> Json:
    """A pod template: labels and spec."""
    main = {
        "name": shape.container,
        "image": "registry.example/train:1",
        "command": ["torchrun"],
        "args": list(shape.args),
        "env": [
            {"name": name, "value" if isinstance(value, str) else "valueFrom": value}
            for name, value in {**shape.env, **(env or {})}.items()
        ],
        "resources": {"limits": {"nvidia.com/gpu": str(shape.gpus)}} if shape.gpus else {},
        "volumeMounts": list(shape.mounts),
    }
    held = {HOLD: "true"} if shape.hold else {}
    return {
        "metadata": {
            "labels": {**shape.labels, **(labels or {})},
            "annotations": {**shape.annotations, **held, **(annotations or {})},
        },
        "spec": {
            "restartPolicy": shape.restart_policy,
            "nodeSelector": {OWNER: namespace.name},
            "containers": [main, *shape.others],
            "initContainers": list(shape.init),
            "volumes": list(shape.volumes),
        },
    }


def owned_by(owner: Json, *, controller: bool = True) -> Json:
    """An owner reference to what the API server made."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": controller,
        "blockOwnerDeletion": True,
    }


def made(
    namespace: Namespace,
    version: str,
    kind: str,
    name: str,
    *,
    spec: Json | None = None,
    status: Json | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: Json | None = None,
) -> Json:
    """Create one object; the API server's answer."""
    wanted: Json = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": namespace.name,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
            "ownerReferences": [owned_by(owner)] if owner else [],
        },
        "spec": spec or {},
    }
    return namespace.api.create(wanted | ({"status": status} if status else {}))


def bare_pods(
    namespace: Namespace,
    shape: Shape,
    names: Sequence[str],
    *,
    owner: Json | None = None,
    labels: Sequence[Mapping[str, str]] = (),
    annotations: Mapping[str, str] | None = None,
    env: Sequence[Mapping[str, str]] = (),
) -> list[str]:
    """Pods of these names, each with labels and environment of its own; their names."""

    def make(index: int) -> None:
        pod = template(
            namespace,
            shape,
            labels=labels[index] if labels else None,
            annotations=annotations,
            env=env[index] if env else None,
        )
        if shape.nodes:
            pod["spec"]["nodeName"] = shape.nodes[index % len(shape.nodes)]
        pod["metadata"].update(name=names[index], namespace=namespace.name)
        pod["metadata"]["ownerReferences"] = [owned_by(owner)] if owner else []
        namespace.api.create({"apiVersion": "v1", "kind": "Pod"} | pod)

    in_parallel(make, range(len(names)))
    return list(names)


def plain_pods(namespace: Namespace, name: str, shape: Shape | None = None) -> list[str]:
    """Pods without an owner, tied by the label `job-id`, with a static node rank."""
    shape = shape or Shape()
    names = [f"{name}-{index}" for index in range(shape.pods)]
    env = [_static(namespace, f"{name}-0", shape, index) for index in range(shape.pods)]
    labels = [{"job-id": name, "index": str(index)} for index in range(shape.pods)]
    return bare_pods(namespace, shape, names, labels=labels, env=env)


def indexed_job(
    namespace: Namespace,
    name: str,
    shape: Shape | None = None,
    *,
    owner: Json | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Json | None = None,
) -> Json:
    """An Indexed Job, whose pods the real Job controller makes. One failed pod leaves the others alone.

    With `spec={"backoffLimit": 0, "backoffLimitPerIndex": None, "maxFailedIndexes": None}` the first failure makes
    the controller delete the others and with them their logs. Labels and annotations are those of Job and pods.
    """
    shape = shape or Shape()
    wanted = {
        "completions": shape.pods,
        "parallelism": shape.pods,
        "completionMode": "Indexed",
        "backoffLimitPerIndex": 0,
        "maxFailedIndexes": shape.pods,
        "suspend": shape.suspend,
        "template": template(namespace, shape, labels=labels, annotations=annotations),
    }
    wanted.update(spec or {})
    return made(
        namespace,
        "batch/v1",
        "Job",
        name,
        spec=wanted,
        owner=owner,
        labels=labels,
        annotations=annotations,
    )


def jobset(
    namespace: Namespace,
    name: str,
    shape: Shape | None = None,
    *,
    replicated: str = "workers",
    replicas: int = 1,
    attempt: int = 0,
    owner: Json | None = None,
    labels: Mapping[str, str] | None = None,
) -> Json:
    """A JobSet of one replicatedJob; its Jobs are made as its controller would, their pods by the real Job controller.

    `shape.pods` are those of each Job. `labels` come on each Job beside the controller's own.
    """
    shape = shape or Shape()
    job_template = {"spec": {"parallelism": shape.pods, "completions": shape.pods}}
    spec = {
        "suspend": shape.suspend,
        "failurePolicy": {"maxRestarts": 3},
        "replicatedJobs": [{"name": replicated, "replicas": replicas, "template": job_template}],
    }
    version = "jobset.x-k8s.io/v1alpha2"
    top = made(
        namespace,
        version,
        "JobSet",
        name,
        spec=spec,
        status={"restarts": attempt},
        owner=owner,
    )
    for index in range(replicas):
        _job_of_set(namespace, top, shape, (replicated, index, replicas, attempt), labels or {})
    return top


def _job_of_set(
    namespace: Namespace,
    top: Json,
    shape: Shape,
    place: tuple[str, int, int, int],
    more: Mapping[str, str],
) -> None:
    """The Job at one place (replicatedJob, index, replicas, attempt) of a JobSet."""
    replicated, index, replicas, attempt = place
    name = top["metadata"]["name"]
    prefix = "jobset.sigs.k8s.io"
    keys = {
        f"{prefix}/jobset-name": name,
        f"{prefix}/jobset-uid": top["metadata"]["uid"],
        f"{prefix}/replicatedjob-name": replicated,
        f"{prefix}/replicatedjob-replicas": str(replicas),
        f"{prefix}/global-replicas": str(replicas),
        f"{prefix}/job-index": str(index),
        f"{prefix}/job-global-index": str(index),
        f"{prefix}/restart-attempt": str(attempt),
    }
    indexed_job(
        namespace,
        f"{name}-{replicated}-{index}",
        replace(shape, env={"MASTER_ADDR": f"{name}-{replicated}-0-0.{name}", **shape.env}),
        owner=top,
        labels={**keys, **more},
        annotations=keys,
    )


def trainjob(namespace: Namespace, name: str, shape: Shape | None = None) -> Json:
    """A TrainJob of Trainer v2, the JobSet of its name, and that one's Job `NAME-node-0`."""
    shape = shape or Shape()
    spec = {
        "runtimeRef": {"name": "torch-distributed"},
        "suspend": shape.suspend,
        "trainer": {"numNodes": shape.pods, "numProcPerNode": shape.gpus},
    }
    top = made(namespace, "trainer.kubeflow.org/v1alpha1", "TrainJob", name, spec=spec)
    env: dict[str, str | Json] = {
        "PET_NNODES": str(shape.pods),
        "PET_NPROC_PER_NODE": str(shape.gpus),
        "PET_NODE_RANK": {"fieldRef": {"fieldPath": f"metadata.annotations['{_COMPLETION}']"}},
        "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
        "PET_MASTER_PORT": PORT,
    }
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    shape = replace(shape, container="node", env={**env, **shape.env})
    jobset(namespace, name, shape, replicated="node", owner=top, labels=step)
    return top


def pytorchjob(namespace: Namespace, name: str, shape: Shape | None = None) -> Json:
    """A PyTorchJob of training-operator 1.9 with one master; node rank of a worker is its index + 1."""
    shape = replace(shape or Shape(), container="pytorch")
    roles = [("master", 0), *(("worker", index) for index in range(shape.pods - 1))]
    spec = {
        "runPolicy": {"suspend": shape.suspend},
        "nprocPerNode": str(shape.gpus),
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "restartPolicy": shape.restart_policy},
            "Worker": {"replicas": shape.pods - 1, "restartPolicy": shape.restart_policy},
        },
    }
    top = made(namespace, "kubeflow.org/v1", "PyTorchJob", name, spec=spec)
    prefix = "training.kubeflow.org"
    labels = [
        {
            f"{prefix}/job-name": name,
            f"{prefix}/operator-name": "pytorchjob-controller",
            f"{prefix}/replica-type": role,
            f"{prefix}/replica-index": str(index),
        }
        | ({f"{prefix}/job-role": "master"} if role == "master" else {})
        for role, index in roles
    ]
    names = [f"{name}-{role}-{index}" for role, index in roles]
    env = [_static(namespace, names[0], shape, rank) for rank in range(shape.pods)]
    bare_pods(namespace, shape, names, owner=top, labels=labels, env=env)
    return top


def _static(namespace: Namespace, master: str, shape: Shape, node_rank: int) -> dict[str, str]:
    """The environment of a static rendezvous. `RANK` here is the rank of the *node*."""
    return {
        "MASTER_ADDR": master,
        "MASTER_PORT": PORT,
        "WORLD_SIZE": str(shape.pods * max(shape.gpus, 1)),
        "RANK": str(node_rank),
        "PET_MASTER_ADDR": master,
        "PET_MASTER_PORT": PORT,
        "PET_NNODES": str(shape.pods),
        "PET_NPROC_PER_NODE": str(shape.gpus),
        "PET_NODE_RANK": str(node_rank),
    }
