"""The kinds of training job: where they live, which pods are theirs, how large their gang is.

Labels, groups and versions as their controllers' sources have them (JobSet v1alpha2, LeaderWorkerSet v1,
training-operator 1.9, Trainer 2.3, mpi-operator v2beta1, KubeRay v1, Volcano batch/v1alpha1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpufleet_cli.parsers import json_documents as js

Object = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """One kind. `versions`: the known ones, the one to prefer first. `label`: pods carry it with the
    job's name; `gang` counts the pods that must run together, None where the object does not say."""

    kind: str
    group: str
    versions: tuple[str, ...]
    plural: str
    label: str
    gang: Callable[[Object], int | None]
    aliases: tuple[str, ...] = ()

    def root(self, version: str) -> str:
        return f"/apis/{self.group}/{version}"

    def answers_to(self, word: str) -> bool:
        """Whether KIND of `KIND/NAME` means this one: `job`, `jobs`, `jobs.batch`, `vcjob`."""
        low = word.lower()
        names = {self.kind.lower(), self.plural, f"{self.plural}.{self.group}", *self.aliases}
        return low in names


def _whole(value: object) -> int | None:
    found = js.integer(value)
    return found if found is not None and found >= 0 else None


def _job(job: Object) -> int | None:
    parallelism = _whole(js.at(job, "spec", "parallelism"))
    completions = _whole(js.at(job, "spec", "completions"))
    return parallelism if completions is None else max(completions, parallelism or 0)


def _job_set(job: Object) -> int | None:
    total = 0
    for one in js.items(js.at(job, "spec", "replicatedJobs")):
        replicas = _whole(js.at(one, "replicas"))
        pods = _whole(js.at(one, "template", "spec", "parallelism"))
        total += (1 if replicas is None else replicas) * (1 if pods is None else pods)
    return total or None


def _workers(field: str) -> Callable[[Object], int | None]:
    def count(job: Object) -> int | None:
        total = 0
        for role in js.mapping(js.at(job, "spec", field)).values():
            replicas = _whole(js.at(role, "replicas"))
            total += 1 if replicas is None else replicas
        return total or None

    return count


def _mpi(job: Object) -> int | None:
    workers = _whole(js.at(job, "spec", "mpiReplicaSpecs", "Worker", "replicas"))
    if workers is None:
        return None
    return workers + (js.at(job, "spec", "runLauncherAsWorker") is True)


def _train_job(job: Object) -> int | None:
    return _whole(js.at(job, "spec", "trainer", "numNodes"))


def _ray_cluster(job: Object) -> int | None:
    spec = js.at(job, "spec", "rayClusterSpec") or js.at(job, "spec")
    total = 0
    for group in js.items(js.at(spec, "workerGroupSpecs")):
        hosts = _whole(js.at(group, "numOfHosts"))
        total += (_whole(js.at(group, "replicas")) or 0) * (1 if hosts is None else hosts)
    return total or None


def _leader_worker_set(job: Object) -> int | None:
    size = _whole(js.at(job, "spec", "leaderWorkerTemplate", "size"))
    replicas = _whole(js.at(job, "spec", "replicas"))
    return None if size is None else size * (1 if replicas is None else replicas)


def _volcano(job: Object) -> int | None:
    total = sum(
        _whole(js.at(task, "replicas")) or 0 for task in js.items(js.at(job, "spec", "tasks"))
    )
    return total or _whole(js.at(job, "spec", "minAvailable"))


_KUBEFLOW = "training.kubeflow.org/job-name"

KINDS: tuple[JobKind, ...] = (
    JobKind(
        kind="Job", group="batch", versions=("v1",), plural="jobs",
        label="batch.kubernetes.io/job-name", gang=_job,
    ),
    JobKind(
        kind="JobSet", group="jobset.x-k8s.io", versions=("v1alpha2", "v1"), plural="jobsets",
        label="jobset.sigs.k8s.io/jobset-name", gang=_job_set,
    ),
    JobKind(
        kind="PyTorchJob", group="kubeflow.org", versions=("v1",), plural="pytorchjobs",
        label=_KUBEFLOW, gang=_workers("pytorchReplicaSpecs"),
    ),
    JobKind(
        kind="MPIJob", group="kubeflow.org", versions=("v2beta1", "v1"), plural="mpijobs",
        label=_KUBEFLOW, gang=_mpi,
    ),
    JobKind(
        kind="TrainJob", group="trainer.kubeflow.org", versions=("v1alpha1", "v1"), plural="trainjobs",
        label="jobset.sigs.k8s.io/jobset-name", gang=_train_job,
    ),
    JobKind(
        kind="RayJob", group="ray.io", versions=("v1", "v1alpha1"), plural="rayjobs",
        label="ray.io/cluster", gang=_ray_cluster,
    ),
    JobKind(
        kind="RayCluster", group="ray.io", versions=("v1", "v1alpha1"), plural="rayclusters",
        label="ray.io/cluster", gang=_ray_cluster,
    ),
    JobKind(
        kind="LeaderWorkerSet", group="leaderworkerset.x-k8s.io", versions=("v1", "v1alpha1"),
        plural="leaderworkersets", label="leaderworkerset.sigs.k8s.io/name",
        gang=_leader_worker_set, aliases=("lws",),
    ),
    JobKind(
        kind="VolcanoJob", group="batch.volcano.sh", versions=("v1alpha1",), plural="jobs",
        label="volcano.sh/job-name", gang=_volcano, aliases=("vcjob", "vj", "volcanojobs"),
    ),
)  # fmt: skip
"""In the order in which they are shown. Kueue's Workload is no kind of job: it stands beside one."""

WORKLOAD = JobKind(
    kind="Workload", group="kueue.x-k8s.io", versions=("v1beta2", "v1beta1"), plural="workloads",
    label="", gang=lambda one: None, aliases=("wl", "kueue"),
)  # fmt: skip
POD_GROUP = "kueue.x-k8s.io/pod-group-name"
"""The label of plain pods that Kueue admits together."""

OTHER_PLURALS = {
    "StatefulSet": "statefulsets", "ReplicaSet": "replicasets", "Deployment": "deployments",
    "Pod": "pods", "AppWrapper": "appwrappers",
}  # fmt: skip


def kinds_for(word: str) -> tuple[JobKind, ...]:
    """The kinds that KIND of `KIND/NAME` may mean."""
    return tuple(kind for kind in KINDS if kind.answers_to(word))


def kind_of(api_version: str, kind: str) -> JobKind | None:
    """The kind of an owner reference."""
    group = api_version.rpartition("/")[0]
    for one in KINDS:
        named = "Job" if one.kind == "VolcanoJob" else one.kind
        if one.group == group and named == kind:
            return one
    return None


def path_of(typed: str, namespace: str, name: str) -> str:
    """Where an owner (`apiVersion|kind`) is read: kinds not in the table get the usual plural."""
    api_version, _, kind = typed.partition("|")
    known = kind_of(api_version, kind)
    plural = known.plural if known else OTHER_PLURALS.get(kind, f"{kind.lower()}s")
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    return f"{root}/namespaces/{namespace}/{plural}/{name}"
