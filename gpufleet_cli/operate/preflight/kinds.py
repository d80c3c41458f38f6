"""The kinds of workload: where each keeps its pod templates, how many pods, and what its controller fills in.

Defaults were read in the controllers' sources of August 2026 (JobSet v1alpha2, training-operator 1.9,
mpi-operator v2beta1, Trainer 2.3, KubeRay v1, LeaderWorkerSet v1, Volcano batch/v1alpha1); each that a
finding rests on names its version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpufleet_cli.operate.preflight.containers import container_of
from gpufleet_cli.operate.preflight.documents import Document, Object, Path, yaml_value
from gpufleet_cli.operate.preflight.shell import Env
from gpufleet_cli.operate.preflight.train_job import train_job_parts
from gpufleet_cli.parsers import json_documents as js

POD_DEFAULT = "the API server (core/v1) fills in Always"
JOBSET_DEFAULT = "JobSet's webhook (read in v1alpha2) fills in OnFailure"
KUBEFLOW_DEFAULT = "training-operator (read in 1.9) fills in OnFailure"
MPI_LAUNCHER_DEFAULT = "mpi-operator (read in v2beta1) gives the launcher OnFailure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A role before its containers are looked at."""

    name: str
    pods: int
    template: Object
    path: Path
    in_world: int | None = None
    restart: str | None = None
    restart_by: str | None = None
    restart_path: Path | None = None
    sets_world: bool = False
    nproc: str | None = None
    given: Env | None = None
    runs: Sequence[str] | None = None
    document: Document | None = None
    is_driver: bool = False


def whole(value: object, default: int) -> int:
    found = js.integer(value)
    return default if found is None or found < 0 else found


def policy(template: Object, filled: str | None, by: str | None) -> tuple[str | None, str | None]:
    """The restart policy, and who filled it in where it was not written."""
    written = js.text_at(template, "spec", "restartPolicy")
    return (written, None) if written else (filled, by)


def _job(found: Document, beside: Sequence[Document]) -> Iterator[Part]:
    base: Path = ("spec",) if found.kind == "Job" else ("spec", "jobTemplate", "spec")
    spec = js.at(found.raw, *[str(step) for step in base])
    parallelism = whole(js.at(spec, "parallelism"), 1)
    completions = js.integer(js.at(spec, "completions"))
    pods = parallelism if completions is None else min(parallelism, max(completions, 0))
    template = js.mapping(js.at(spec, "template"))
    restart, by = policy(template, "Always", "a Job takes only Never or OnFailure, and")
    yield Part(
        name="pods", pods=pods, template=template, path=(*base, "template"),
        restart=restart, restart_by=by,
    )  # fmt: skip


def replicated(spec: object, base: Path) -> Iterator[tuple[str, int, Object, Path]]:
    """The replicated jobs of a JobSet: name, pods, template, path."""
    for index, one in enumerate(js.items(js.at(spec, "replicatedJobs"))):
        inner = js.at(one, "template", "spec")
        pods = whole(js.at(one, "replicas"), 1) * whole(js.at(inner, "parallelism"), 1)
        path = (*base, "replicatedJobs", index, "template", "spec", "template")
        yield (
            js.text_at(one, "name") or str(index),
            pods,
            js.mapping(js.at(inner, "template")),
            path,
        )


def _job_set(found: Document, beside: Sequence[Document]) -> Iterator[Part]:
    for name, pods, template, path in replicated(js.at(found.raw, "spec"), ("spec",)):
        restart, by = policy(template, "OnFailure", JOBSET_DEFAULT)
        yield Part(
            name=name, pods=pods, template=template, path=path, restart=restart, restart_by=by
        )


def _kubeflow(found: Document, beside: Sequence[Document]) -> Iterator[Part]:
    """PyTorchJob, MPIJob, TFJob and the like: a map of replica specs, each with its restart policy."""
    spec = js.mapping(js.at(found.raw, "spec"))
    field = next((key for key in spec if key.endswith("ReplicaSpecs")), "")
    roles = js.mapping(spec.get(field))
    is_mpi = found.kind == "MPIJob"
    nproc = (
        js.at(spec, "elasticPolicy", "nProcPerNode") or js.at(spec, "nprocPerNode") or "auto"
        if found.kind == "PyTorchJob"
        else None
    )
    for name, one in roles.items():
        written = js.text_at(one, "restartPolicy")
        filled, by = _kubeflow_default(found, name)
        is_launcher = is_mpi and name.lower() == "launcher"
        yield Part(
            name=name,
            pods=whole(js.at(one, "replicas"), 1),
            template=js.mapping(js.at(one, "template")),
            path=("spec", field, name, "template"),
            restart=written or filled,
            restart_by=None if written else by,
            restart_path=("spec", field, name, "restartPolicy"),
            sets_world=found.kind == "PyTorchJob",
            nproc=None if nproc is None else str(nproc),
            given=_mpi_given(roles) if is_mpi and not is_launcher else None,
            is_driver=is_launcher and spec.get("runLauncherAsWorker") is not True,
        )


def _kubeflow_default(found: Document, role: str) -> tuple[str, str]:
    if found.kind == "MPIJob":
        if found.version == "v2beta1" and role.lower() == "launcher":
            return "OnFailure", MPI_LAUNCHER_DEFAULT
        return "Never", ""
    if found.kind == "PyTorchJob":
        return "OnFailure", KUBEFLOW_DEFAULT
    return "Never", ""


def _mpi_given(roles: Mapping[str, object]) -> Env:
    """What `mpirun -x NAME=VALUE` hands on to the ranks; a bare name takes the launcher's own value."""
    given: dict[str, str | None] = {}
    for name, one in roles.items():
        if name.lower() != "launcher":
            continue
        for raw in js.items(js.at(one, "template", "spec", "containers")):
            seen = container_of(raw, (), {})
            words = [word for command in seen.commands for word in command]
            for flag, value in pairwise(words):
                if flag in ("-x", "-genv"):
                    key, equals, stated = value.partition("=")
                    given[key] = stated if equals else seen.env.get(key)
    return given


def _train_job(found: Document, beside: Sequence[Document]) -> Iterator[Part]:
    for one in train_job_parts(found, beside):
        restart, by = policy(one.template, "OnFailure", f"{JOBSET_DEFAULT}{one.of_runtime}")
        yield Part(
            name=one.name, pods=one.pods, template=one.template, path=one.path,
            restart=restart, restart_by=by, sets_world=one.sets_world, nproc=one.nproc,
            document=one.document, is_driver=one.is_driver,
        )  # fmt: skip


def _ray(found: Document, beside: Sequence[Document]) -> Iterator[Part]:
    base: Path = ("spec",)
    for field in ("rayClusterSpec", "rayClusterConfig"):
        if js.at(found.raw, "spec", field) is not None:
            base = ("spec", field)
    cluster = js.at(found.raw, *[str(step) for step in base])
    entry = js.text_at(found.raw, "spec", "entrypoint")
    runs = None if entry is None else ("sh", "-c", entry)
    given = _runtime_env(found.raw)
    head = js.mapping(js.at(cluster, "headGroupSpec", "template"))
    yield Part(
        name="head", pods=1, template=head, path=(*base, "headGroupSpec", "template"),
        restart="Always", runs=runs, given=given, is_driver=True,
    )  # fmt: skip
    for index, group in enumerate(js.items(js.at(cluster, "workerGroupSpecs"))):
        pods = whole(js.at(group, "replicas"), whole(js.at(group, "minReplicas"), 0))
        yield Part(
            name=js.text_at(group, "groupName") or str(index),
            pods=pods * whole(js.at(group, "numOfHosts"), 1),
            template=js.mapping(js.at(group, "template")),
            path=(*base, "workerGroupSpecs", index, "template"),
            restart="Always",
            runs=runs,
            given=given,
        )


def _runtime_env(raw: Object) -> Env:
    """`env_vars` of a RayJob's runtime environment: what its workers get."""
    text = js.text_at(raw, "spec", "runtimeEnvYAML")
    value = js.at(raw, "spec", "runtimeEnv") if text is None else yaml_value(text)
    variables = js.mapping(js.at(value, "env_vars"))
    return {name: str(one) for name, one in variables.items()}


def _leader_worker_set(found: Document, beside: Sequence[Document]) -> Iterator[Part]:
    spec = js.at(found.raw, "spec")
    inner = js.mapping(js.at(spec, "leaderWorkerTemplate"))
    groups, size = whole(js.at(spec, "replicas"), 1), whole(inner.get("size"), 1)
    base: Path = ("spec", "leaderWorkerTemplate")
    leader = js.mapping(inner.get("leaderTemplate"))
    if leader:
        yield Part(
            name="leader", pods=groups, in_world=1, template=leader,
            path=(*base, "leaderTemplate"), restart="Always",
        )  # fmt: skip
    rest = size - 1 if leader else size
    if rest > 0:
        yield Part(
            name="worker", pods=groups * rest, in_world=rest, restart="Always",
            template=js.mapping(inner.get("workerTemplate")), path=(*base, "workerTemplate"),
        )  # fmt: skip


def _volcano(found: Document, beside: Sequence[Document]) -> Iterator[Part]:
    for index, task in enumerate(js.items(js.at(found.raw, "spec", "tasks"))):
        template = js.mapping(js.at(task, "template"))
        restart, by = policy(template, "Always", POD_DEFAULT)
        yield Part(
            name=js.text_at(task, "name") or str(index),
            pods=whole(js.at(task, "replicas"), 1),
            template=template,
            path=("spec", "tasks", index, "template"),
            restart=restart,
            restart_by=by,
        )


def _pod(found: Document, beside: Sequence[Document]) -> Iterator[Part]:
    restart, by = policy(found.raw, "Always", POD_DEFAULT)
    yield Part(
        name=found.name, pods=1, template=found.raw, path=(), restart=restart, restart_by=by,
        document=found,
    )  # fmt: skip


def _served(found: Document, beside: Sequence[Document]) -> Iterator[Part]:
    """Deployment, StatefulSet, ReplicaSet, DaemonSet: their pods always restart."""
    spec = js.at(found.raw, "spec")
    template = js.mapping(js.at(spec, "template"))
    yield Part(
        name="pods", pods=whole(js.at(spec, "replicas"), 1), template=template,
        path=("spec", "template"), restart="Always", restart_by=f"a {found.kind} takes only Always",
    )  # fmt: skip


def _inference_service(found: Document, beside: Sequence[Document]) -> Iterator[Part]:
    """KServe makes the pods of its own templates: nothing to look at here."""
    yield from ()


Reader = Callable[[Document, Sequence[Document]], Iterator[Part]]

READERS: dict[tuple[str, str], Reader] = {
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _job,
    ("jobset.x-k8s.io", "JobSet"): _job_set,
    ("kubeflow.org", "PyTorchJob"): _kubeflow,
    ("kubeflow.org", "MPIJob"): _kubeflow,
    ("kubeflow.org", "TFJob"): _kubeflow,
    ("kubeflow.org", "JAXJob"): _kubeflow,
    ("kubeflow.org", "XGBoostJob"): _kubeflow,
    ("kubeflow.org", "PaddleJob"): _kubeflow,
    ("trainer.kubeflow.org", "TrainJob"): _train_job,
    ("ray.io", "RayJob"): _ray,
    ("ray.io", "RayCluster"): _ray,
    ("ray.io", "RayService"): _ray,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): _leader_worker_set,
    ("batch.volcano.sh", "Job"): _volcano,
    ("serving.kserve.io", "InferenceService"): _inference_service,
    ("", "Pod"): _pod,
    ("apps", "Deployment"): _served,
    ("apps", "StatefulSet"): _served,
    ("apps", "ReplicaSet"): _served,
    ("apps", "DaemonSet"): _served,
}
"""By API group and kind, whatever the version: a field that a version lacks is simply not there."""

MADE_LABELS = {
    "Job": "batch.kubernetes.io/job-name",
    "JobSet": "jobset.sigs.k8s.io/jobset-name",
    "TrainJob": "jobset.sigs.k8s.io/jobset-name",
    "PyTorchJob": "training.kubeflow.org/job-name",
    "MPIJob": "training.kubeflow.org/job-name",
    "LeaderWorkerSet": "leaderworkerset.sigs.k8s.io/name",
    "VolcanoJob": "volcano.sh/job-name",
    "RayCluster": "ray.io/cluster",
}


def reader_of(found: Document) -> Reader | None:
    return READERS.get((found.group, found.kind))


def shown_kind(found: Document) -> str:
    """Two kinds are called Job."""
    return "VolcanoJob" if found.group == "batch.volcano.sh" else found.kind
