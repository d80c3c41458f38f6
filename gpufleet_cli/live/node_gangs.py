"""Which gangs hold a node: its pods with GPUs, the jobs above them, and the ranks where they are sure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpufleet_cli.live import kinds
from gpufleet_cli.live.kinds import JobKind, Object
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.node_card import HeldGang, HeldPod, PodPhase
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_pods import time_of

MOST_HOPS = 6
BY_SPEC = "the pod's spec"
BY_INDEX = "the pod's index, if its launcher keeps to it"

PLAIN = "pods"
"""The kind of pods that no controller made and a label holds together; its name is that label."""
STRONG_LABELS = ("job-id", "job-name", "job", "app.kubernetes.io/instance")
PLAIN_LABELS = (*STRONG_LABELS, "app.kubernetes.io/name", "app", "run")

_KUBEFLOW = {
    "pytorchjob-controller": "PyTorchJob",
    "mpi-operator": "MPIJob",
    "mpijob-controller": "MPIJob",
}
_LABELS = (
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("volcano.sh/job-name", "VolcanoJob"),
    ("ray.io/cluster", "RayCluster"),
    ("kueue.x-k8s.io/pod-group-name", "PodGroup"),
    ("batch.kubernetes.io/job-name", "Job"),
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class JobRef:
    """The job a pod belongs to."""

    namespace: str
    kind: str
    name: str

    @property
    def job_kind(self) -> JobKind | None:
        return next((one for one in kinds.KINDS if one.kind == self.kind), None)


def job_of(pod: Pod, owners: Mapping[str, Object]) -> JobRef:
    """The highest training job above a pod: by owner references, by labels where those end early.

    `owners` are the controllers that could be read, by uid.
    """
    known = [one for one in _chain(pod.raw, owners) if one[0] is not None]
    above = known[-1][0] if known else None
    labelled = _by_labels(pod)
    if above is not None and (labelled is None or above != "Job"):
        return JobRef(namespace=pod.namespace, kind=above, name=known[-1][1])
    if labelled is not None:
        return JobRef(namespace=pod.namespace, kind=labelled[0], name=labelled[1])
    kind, _, name = (pod.state.owner or f"Pod/{pod.name}").partition("/")
    return JobRef(namespace=pod.namespace, kind=kind, name=name)


def whose(pod: Pod, owners: Mapping[str, Object]) -> JobRef:
    """As `job_of`; pods that no controller made are held together by a label, where they have one."""
    ref = job_of(pod, owners)
    if ref.kind != "Pod":
        return ref
    marks = pod.marks
    key = next((key for key in PLAIN_LABELS if marks.get(key)), None)
    if key is None:
        return ref
    return JobRef(namespace=pod.namespace, kind=PLAIN, name=f"{key}={marks[key]}")


def _chain(raw: Object, owners: Mapping[str, Object]) -> Iterable[tuple[str | None, str]]:
    """(our kind, name) of every controller above, the nearest first; the last may be unread."""
    found: Object | None = raw
    for _ in range(MOST_HOPS):
        owner = next(
            (
                one
                for one in js.items(js.at(found, "metadata", "ownerReferences"))
                if js.at(one, "controller") is True
            ),
            None,
        )
        if owner is None:
            return
        version, kind = js.text_at(owner, "apiVersion") or "", js.text_at(owner, "kind") or ""
        known = kinds.kind_of(version, kind)
        yield (None if known is None else known.kind), js.text_at(owner, "name") or "?"
        found = owners.get(js.text_at(owner, "uid") or "")


def _by_labels(pod: Pod) -> tuple[str, str] | None:
    marks = pod.marks
    made_by = marks.get("ray.io/originated-from-cr-name")
    if made_by:
        return marks.get("ray.io/originated-from-crd") or "RayCluster", made_by
    kubeflow = marks.get("training.kubeflow.org/job-name")
    if kubeflow:
        operator = marks.get("training.kubeflow.org/operator-name", "")
        return _KUBEFLOW.get(operator, "PyTorchJob"), kubeflow
    return next(((kind, marks[key]) for key, kind in _LABELS if marks.get(key)), None)


def selectors_of(job: JobRef, owners: Iterable[Object]) -> tuple[str, ...]:
    """Label selectors of all pods of a job; none for what is no training job."""
    if job.kind == PLAIN:
        return (job.name,)
    if job.kind == "RayJob":
        made = f"ray.io/originated-from-cr-name={job.name},ray.io/originated-from-crd=RayJob"
        clusters = [
            name
            for one in owners
            if js.text_at(one, "kind") == "RayJob"
            and js.text_at(one, "metadata", "name") == job.name
            and (name := js.text_at(one, "status", "rayClusterName"))
        ]
        return made, *(f"ray.io/cluster={name}" for name in clusters)
    if job.kind == "PodGroup":
        return (f"kueue.x-k8s.io/pod-group-name={job.name}",)
    kind = job.job_kind
    return () if kind is None else (f"{kind.label}={job.name}",)


def size_of(job: JobRef, owners: Iterable[Object], pods: Sequence[Pod]) -> int | None:
    """Pods of the gang as its object says, else as many as hold GPUs."""
    kind = job.job_kind
    for one in owners:
        if (
            kind is not None
            and js.text_at(one, "metadata", "name") == job.name
            and kinds.kind_of(js.text_at(one, "apiVersion") or "", js.text_at(one, "kind") or "")
            is kind
        ):
            stated = kind.gang(one)
            if stated is not None:
                return stated
    counted = sum(bool(pod.state.gpus) and not _is_over(pod) for pod in pods)
    return counted or None


class Mates:
    """All pods of the jobs that hold some nodes: only together do they give sure ranks and the gang's size.

    Grouped once, however many nodes ask: a gang of a thousand pods holds hundreds of them.
    """

    def __init__(
        self, pods: Iterable[Pod], owners: Mapping[str, Object], objects: Sequence[Object]
    ) -> None:
        self._owners = owners
        self._objects = objects
        self._known: dict[tuple[str, str], tuple[JobRef, Pod]] = {}
        self._by_job: dict[JobRef, list[Pod]] = {}
        self._sizes: dict[JobRef, int | None] = {}
        self._began: dict[JobRef, int | None] = {}
        for pod in pods:
            job = job_of(pod, owners)
            self._known[pod.namespace, pod.name] = job, pod
            self._by_job.setdefault(job, []).append(pod)

    def of(self, pod: Pod) -> tuple[JobRef, Pod]:
        """The pod's job, and the pod as it was read with the others of that job."""
        known = self._known.get((pod.namespace, pod.name))
        return known or (job_of(pod, self._owners), pod)

    def size(self, job: JobRef, own: Sequence[Pod]) -> int | None:
        """Pods of the gang; `own` are those of a node, where no others are known."""
        if job not in self._by_job:
            return size_of(job, self._objects, own)
        if job not in self._sizes:
            self._sizes[job] = size_of(job, self._objects, self._by_job[job])
        return self._sizes[job]

    def began_ns(self, own: Iterable[Pod]) -> int | None:
        """When the first of the pods that still run with GPUs began, of the jobs of these pods."""
        jobs = {self.of(pod)[0] for pod in own}
        for job in jobs - self._began.keys():
            self._began[job] = began_ns(self._by_job.get(job, ()))
        return min((at for job in jobs if (at := self._began[job]) is not None), default=None)


def began_ns(pods: Iterable[Pod]) -> int | None:
    """When the first of those that run with GPUs began."""
    times = (started_ns(pod) for pod in pods if pod.is_running and pod.state.gpus)
    return min((at for at in times if at is not None), default=None)


def started_ns(pod: Pod) -> int | None:
    return time_of(js.at(pod.raw, "status", "startTime"))


def gangs(pods: Sequence[Pod], mates: Mates) -> tuple[tuple[HeldGang, ...], int]:
    """The gangs of a node's pods, those that hold it first, and how many other pods there are."""
    groups: dict[JobRef, list[Pod]] = {}
    for pod in pods:
        job, better = mates.of(pod)
        groups.setdefault(job, []).append(better)
    found, others = [], 0
    for job, own in groups.items():
        if not any(pod.state.gpus for pod in own):
            others += len(own)
            continue
        found.append(_gang(job, own, mates.size(job, own)))
    found.sort(key=lambda gang: (gang.is_over, -gang.gpus, gang.namespace, gang.name))
    return tuple(found), others


def _gang(job: JobRef, own: Sequence[Pod], size: int | None) -> HeldGang:
    held = tuple(
        HeldPod(
            name=pod.name,
            phase=phase_of(pod),
            gpus=pod.state.gpus or 0,
            ranks=ranks_of(pod),
        )
        for pod in own
    )
    ways = {_ranks_by(pod) for pod in own if pod.state.gpus}
    return HeldGang(
        kind=job.kind,
        name=job.name,
        namespace=job.namespace,
        size=size,
        pods=held,
        ranks_by=ways.pop() if len(ways) == 1 else None,
    )


def _ranks_by(pod: Pod) -> str | None:
    if ranks_of(pod) is None:
        return None
    return BY_SPEC if pod.state.rendezvous == "static" else BY_INDEX


def ranks_of(pod: Pod) -> tuple[int, int] | None:
    """First and last rank, where torchrun's agents do not sort themselves."""
    state = pod.state
    if state.node_rank is None or not state.nproc or state.rendezvous == "c10d":
        return None
    first = state.node_rank * state.nproc
    return first, first + state.nproc - 1


def phase_of(pod: Pod) -> PodPhase:
    """How the pod is, in the words that a person uses."""
    if pod.state.phase == "Failed":
        return "failed"
    if pod.state.phase == "Succeeded":
        return "exited"
    if pod.state.terminating:
        return "terminating"
    return "running" if pod.state.phase == "Running" else "pending"


def _is_over(pod: Pod) -> bool:
    return phase_of(pod) in ("failed", "exited")
