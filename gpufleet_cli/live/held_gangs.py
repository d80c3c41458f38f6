"""Which gangs there are among pods, with what is needed to mark their nodes or to price their end. Pure.

A gang is two pods or more that must run together and of which one at least holds a GPU. What a Deployment
or a StatefulSet made is none, unless its pods say that they rendezvous; pods of a controller that no table
of ours knows count as one, since calling them none would let a drain through. Each group of a
LeaderWorkerSet is a gang of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpufleet_cli.live import kinds, node_gangs
from gpufleet_cli.live.groups import GROUP, size_of_group
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.node_gangs import JobRef
from gpufleet_cli.live.pods import Pod, attempts_of
from gpufleet_cli.parsers import json_documents as js

SERVICES = frozenset(
    {"Pod", "Node", "DaemonSet", "Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The pods of one job, or of one group of a LeaderWorkerSet.

    `size` is how many pods must run together; `uid` that of the job's object, else of the controller
    that its pods name, and for pods that nobody made that of the oldest one in its newest attempt.
    """

    job: JobRef
    group: str | None
    pods: tuple[Pod, ...]
    newest: tuple[Pod, ...]
    size: int | None
    uid: str | None
    since_ns: int | None

    @property
    def shown(self) -> str:
        """The job's name; of a LeaderWorkerSet with the group."""
        return self.job.name if self.group is None else f"{self.job.name} group {self.group}"

    @property
    def living(self) -> tuple[Pod, ...]:
        """Its pods that run or start; what is being deleted goes already."""
        return tuple(pod for pod in self.pods if is_living(pod))

    @property
    def gpus(self) -> int:
        return sum(pod.state.gpus or 0 for pod in self.living)

    @property
    def nodes(self) -> frozenset[str]:
        """Where it is held: the nodes of its living pods."""
        return frozenset(pod.state.node for pod in self.living if pod.state.node is not None)

    @property
    def is_running(self) -> bool:
        """One pod runs at least: the others wait for it, or stall with it."""
        return any(pod.state.phase == "Running" for pod in self.living)

    @property
    def is_gang(self) -> bool:
        if not any(pod.state.gpus for pod in self.pods):
            return False
        if self.job.kind in SERVICES:
            return any(says_it_meets_others(pod) for pod in self.pods)
        return (self.size or 0) > 1


def says_it_meets_others(pod: Pod) -> bool:
    """Whether its own settings tell of a rendezvous of several nodes."""
    return (pod.state.nnodes or 0) > 1


def is_living(pod: Pod) -> bool:
    return node_gangs.phase_of(pod) in ("running", "pending")


def found_in(
    pods: Iterable[Pod],
    owners: Mapping[str, Object],
    known: Mapping[str, JobRef] | None = None,
) -> list[Gang]:
    """All groups of pods, gang or not, the largest first. `owners` are objects above them, by uid;
    `known` tells by a pod's uid whose it is, where that was asked and its owners were not read."""
    held: dict[tuple[JobRef, str | None], list[Pod]] = defaultdict(list)
    for pod in pods:
        told = (known or {}).get(pod.state.uid or "")
        held[told or node_gangs.whose(pod, owners), pod.marks.get(GROUP)].append(pod)
    tops = {ref: one for one in owners.values() if (ref := _ref(one)) is not None}
    gangs = [_gang(job, group, own, tops.get(job)) for (job, group), own in held.items()]
    return sorted(gangs, key=order)


def order(gang: Gang) -> tuple[object, ...]:
    """Running ones first, then by GPUs, then by pods, then by name."""
    return (
        not gang.is_running, -gang.gpus, -len(gang.living), gang.job, gang.group or "",
    )  # fmt: skip


def _gang(job: JobRef, group: str | None, own: Sequence[Pod], top: Object | None) -> Gang:
    newest = attempts_of(own)[-1]
    return Gang(
        job=job,
        group=group,
        pods=tuple(own),
        newest=newest.pods,
        size=_size(job, group, newest.pods, top),
        uid=js.text_at(top, "metadata", "uid") or _uid_of(newest.pods),
        since_ns=newest.started_ns,
    )


def _ref(one: Object) -> JobRef | None:
    kind = kinds.kind_of(js.text_at(one, "apiVersion") or "", js.text_at(one, "kind") or "")
    name = js.text_at(one, "metadata", "name")
    if kind is None or name is None:
        return None
    namespace = js.text_at(one, "metadata", "namespace") or "default"
    return JobRef(namespace=namespace, kind=kind.kind, name=name)


def _size(job: JobRef, group: str | None, pods: Sequence[Pod], top: Object | None) -> int | None:
    """Pods that run together: as the object states, and never fewer than hold GPUs. Without its word all that
    there are, ended ones too: one that lives alone may be the last of a gang."""
    stated = None
    if group is not None:
        stated = size_of_group(pods)
    elif top is not None and job.kind == "Job":
        # completions count the pods of its whole life; side by side run as many as its parallelism
        stated = js.integer(js.at(top, "spec", "parallelism"))
    elif top is not None and job.job_kind is not None:
        stated = job.job_kind.gang(top)
    if stated is None:
        return len(pods)
    return max(stated, sum(is_living(pod) and bool(pod.state.gpus) for pod in pods))


def _uid_of(pods: Sequence[Pod]) -> str | None:
    """Of the controller that the pods name, else of the oldest pod."""
    for pod in pods:
        for owner in js.items(js.at(pod.raw, "metadata", "ownerReferences")):
            if js.at(owner, "controller") is True and js.text_at(owner, "uid"):
                return js.text_at(owner, "uid")
    oldest = min(pods, key=lambda pod: (pod.state.created_ns or 0, pod.name), default=None)
    return None if oldest is None else oldest.state.uid
