"""The job kinds beyond the first: Ray, MPI, LeaderWorkerSet, Volcano, and Kueue's workload beside a job."""

from __future__ import annotations

from dataclasses import replace

from servers import pods
from servers.api import Json
from servers.jobs import Shape, bare_pods, indexed_job, made, template
from servers.namespaces import Namespace
from servers.running import wait_until

_LWS = "leaderworkerset.sigs.k8s.io"


def raycluster(
    namespace: Namespace,
    name: str,
    shape: Shape | None = None,
    *,
    owner: Json | None = None,
    group: str = "gpu-group",
) -> Json:
    """A RayCluster: a head without GPUs, `shape.pods` workers of one group."""
    shape = shape or Shape()
    spec = {
        "suspend": shape.suspend,
        "headGroupSpec": {"rayStartParams": {}},
        "workerGroupSpecs": [{"groupName": group, "replicas": shape.pods, "numOfHosts": 1}],
    }
    top = made(namespace, "ray.io/v1", "RayCluster", name, spec=spec, owner=owner)
    origin = owner or top
    common = {
        "ray.io/cluster": name,
        "ray.io/is-ray-node": "yes",
        "ray.io/originated-from-cr-name": origin["metadata"]["name"],
        "ray.io/originated-from-crd": origin["kind"],
    }
    head = common | {"ray.io/node-type": "head", "ray.io/group": "headgroup"}
    headless = replace(shape, gpus=0, container="ray-head")
    bare_pods(namespace, headless, [f"{name}-head"], owner=top, labels=[head])
    workers = [
        common
        | {
            "ray.io/node-type": "worker",
            "ray.io/group": group,
            "ray.io/worker-group-replica-index": str(index),
            "ray.io/replica-host-index": "0",
        }
        for index in range(shape.pods)
    ]
    names = [f"{name}-{group}-worker-{index}" for index in range(shape.pods)]
    working = replace(shape, container="ray-worker")
    bare_pods(namespace, working, names, owner=top, labels=workers)
    return top


def rayjob(
    namespace: Namespace, name: str, shape: Shape | None = None, *, attempt: int = 0
) -> Json:
    """A RayJob, the RayCluster of its attempt, and the Job of its submitter.

    A later `attempt` of a RayJob that is there gets a new cluster and a new submitter beside the old ones.
    """
    cluster = f"{name}-{attempt:05x}"
    status = {
        "rayClusterName": cluster,
        "failed": attempt,
        "jobDeploymentStatus": "Running",
        "jobStatus": "RUNNING",
    }
    spec = {"entrypoint": "python train.py", "backoffLimit": 3}
    path = namespace.path(f"rayjobs/{name}", "/apis/ray.io/v1")
    if namespace.api.answers(path):
        top = namespace.api.patch(path, {"status": status})
        namespace.api.delete(
            namespace.path(f"jobs/{name}", "/apis/batch/v1"), propagationPolicy="Background"
        )
        wait_until(
            lambda: not pods.found(namespace, f"batch.kubernetes.io/job-name={name}"), "gone"
        )
    else:
        top = made(namespace, "ray.io/v1", "RayJob", name, spec=spec, status=status)
    raycluster(namespace, cluster, shape, owner=top)
    submitter = Shape(pods=1, gpus=0, container="ray-job-submitter", args=("train.py",))
    indexed_job(namespace, name, submitter, owner=top)
    return top


def mpijob(
    namespace: Namespace, name: str, shape: Shape | None = None, *, launcher_works: bool = False
) -> Json:
    """An MPIJob v2beta1: the launcher's Job, whose log carries all ranks, and bare workers that log sshd alone.

    With `launcher_works` the launcher holds the first ranks itself, and the workers are counted from 1.
    """
    shape = shape or Shape()
    spec = {
        "slotsPerWorker": shape.gpus,
        "runPolicy": {"suspend": shape.suspend},
        "runLauncherAsWorker": launcher_works,
        "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": shape.pods}},
    }
    top = made(namespace, "kubeflow.org/v2beta1", "MPIJob", name, spec=spec)
    prefix = "training.kubeflow.org"
    common = {f"{prefix}/job-name": name, f"{prefix}/operator-name": "mpi-operator"}
    launcher = common | {f"{prefix}/job-role": "launcher"}
    indexed_job(
        namespace,
        f"{name}-launcher",
        Shape(
            pods=1,
            gpus=shape.gpus if launcher_works else 0,
            container="launcher",
            args=shape.args,
            nodes=shape.nodes,
        ),
        owner=top,
        labels=launcher,
        spec={"completionMode": "NonIndexed", "backoffLimitPerIndex": None}
        | {"maxFailedIndexes": None, "backoffLimit": 6},
    )
    labels = [
        common | {f"{prefix}/job-role": "worker", f"{prefix}/replica-index": str(index)}
        for index in range(shape.pods)
    ]
    names = [f"{name}-worker-{index}" for index in range(shape.pods)]
    bare_pods(namespace, replace(shape, container="worker"), names, owner=top, labels=labels)
    return top


def leaderworkerset(
    namespace: Namespace, name: str, shape: Shape | None = None, *, groups: int = 1
) -> Json:
    """A LeaderWorkerSet: leaders by one StatefulSet, the workers of each group by one that the leader owns.

    `shape.pods` is the size of a group. The real StatefulSet controller makes the pods; the index labels, which the
    LWS webhook sets, are put on them here, so all pods exist when this returns.
    """
    shape = replace(shape or Shape(), restart_policy="Always")
    spec = {"replicas": groups, "leaderWorkerTemplate": {"size": shape.pods}}
    top = made(namespace, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, spec=spec)
    _stateful(namespace, shape, name, name, owner=top, replicas=groups, first=0)
    for group in range(groups):
        leader = f"{name}-{group}"
        _index_labels(namespace, leader, group, 0)
        pod = {"apiVersion": "v1", "kind": "Pod"} | pods.read(namespace, leader)
        _stateful(namespace, shape, name, leader, owner=pod, replicas=shape.pods - 1, first=1)
        for index in range(1, shape.pods):
            _index_labels(namespace, f"{leader}-{index}", group, index)
    return top


def _stateful(
    namespace: Namespace,
    shape: Shape,
    lws: str,
    name: str,
    *,
    owner: Json,
    replicas: int,
    first: int,
) -> None:
    """A StatefulSet of leaders or of one group's workers."""
    leader = lws if name == lws else name
    pod = template(
        namespace,
        shape,
        labels={f"{_LWS}/name": lws, "set": name},
        annotations={f"{_LWS}/size": str(shape.pods)},
        env={"LWS_LEADER_ADDRESS": f"{leader}.{lws}", "LWS_GROUP_SIZE": str(shape.pods)},
    )
    index = {"fieldRef": {"fieldPath": f"metadata.labels['{_LWS}/worker-index']"}}
    pod["spec"]["containers"][0]["env"].append({"name": "LWS_WORKER_INDEX", "valueFrom": index})
    spec = {
        "serviceName": lws,
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "ordinals": {"start": first},
        "selector": {"matchLabels": {"set": name}},
        "template": pod,
    }
    made(namespace, "apps/v1", "StatefulSet", name, spec=spec, owner=owner)


def _index_labels(namespace: Namespace, pod: str, group: int, worker: int) -> None:
    """Wait for the pod and put on it what the LWS webhook would have."""
    path = namespace.path(f"pods/{pod}")
    wait_until(lambda: namespace.api.answers(path), f"{pod} was made")
    labels = {f"{_LWS}/group-index": str(group), f"{_LWS}/worker-index": str(worker)}
    namespace.api.patch(path, {"metadata": {"labels": labels}})


def volcano_job(namespace: Namespace, name: str, shape: Shape | None = None) -> Json:
    """A Volcano Job of one task with the pytorch plugin, its PodGroup and its pods."""
    shape = shape or Shape()
    task = "worker"
    spec = {"minAvailable": shape.pods, "tasks": [{"name": task, "replicas": shape.pods}]}
    top = made(namespace, "batch.volcano.sh/v1alpha1", "Job", name, spec=spec)
    group = f"{name}-{top['metadata']['uid']}"
    made(
        namespace,
        "scheduling.volcano.sh/v1beta1",
        "PodGroup",
        group,
        spec={"minMember": shape.pods},
        status={"phase": "Running"},
        owner=top,
    )
    indices = [str(index) for index in range(shape.pods)]
    prefix = "volcano.sh"
    bare_pods(
        namespace,
        shape,
        [f"{name}-{task}-{index}" for index in indices],
        owner=top,
        labels=[
            {f"{prefix}/job-name": name, f"{prefix}/task-spec": task, f"{prefix}/task-index": index}
            for index in indices
        ],
        annotations={
            "scheduling.k8s.io/group-name": group,
            f"{prefix}/job-version": "0",
            f"{prefix}/job-retry-count": "0",
            f"{prefix}/task-spec": task,
        },
        env=[{"VC_TASK_INDEX": index, "VK_TASK_INDEX": index} for index in indices],
    )
    return top


def kueue_workload(
    namespace: Namespace,
    job: Json,
    *,
    queue: str = "team",
    count: int = 4,
    conditions: tuple[Json, ...] = (),
) -> Json:
    """Kueue's Workload of a job. A condition is `{"type": "Admitted", "status": "True", "reason": ..., "message": ...}`."""
    name = job["metadata"]["name"]
    return made(
        namespace,
        "kueue.x-k8s.io/v1beta1",
        "Workload",
        f"{job['kind'].lower()}-{name}-{job['metadata']['uid'][:5]}",
        labels={"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]},
        spec={"queueName": queue, "podSets": [{"name": "main", "count": count}]},
        status={"conditions": list(conditions)},
        owner=job,
    )
