"""Pods as the finder and the gatherer need them, and which of them make one attempt.

Attempts are counted from 0 by creation, whatever made them: a restart label, a Job made again under its
name, a new RayCluster, or a pod that took the place of one with the same index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpufleet_cli.facts import Origin, PodState
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers import kubernetes_pods, kubernetes_ranks

Object = Mapping[str, object]

_RESTARTS = (
    "jobset.sigs.k8s.io/restart-attempt",
    "jobset.sigs.k8s.io/job-restart-attempt",
    "volcano.sh/job-version",
)
RAY_CLUSTER = "ray.io/cluster"
_MAKERS = ("batch.kubernetes.io/controller-uid", "jobset.sigs.k8s.io/jobset-uid", RAY_CLUSTER)
_INDEXES = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/job-index",
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "ray.io/node-type",
    "ray.io/group",
    "ray.io/worker-group-replica-index",
    "ray.io/replica-host-index",
    "volcano.sh/task-spec",
    "volcano.sh/task-index",
    "kueue.x-k8s.io/pod-group-pod-index",
    "apps.kubernetes.io/pod-index",
    "index",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod: the object as it came, and what the parser reads in it."""

    raw: Object
    state: PodState

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def namespace(self) -> str:
        return self.state.namespace or "default"

    @property
    def marks(self) -> dict[str, str]:
        return {
            **kubernetes_ranks.annotations_of(self.raw),
            **kubernetes_ranks.labels_of(self.raw),
        }

    @property
    def is_running(self) -> bool:
        return self.state.phase in ("Running", "Pending", None)

    @property
    def ended_ns(self) -> int | None:
        """When its last container ended, None while one may run."""
        if self.is_running:
            return None
        ends = [c.finished_ns for c in self.state.containers if c.finished_ns is not None]
        return max(ends, default=self.state.disrupted_ns)

    @property
    def has_failed(self) -> bool:
        bad = any(c.state == "terminated" and c.exit_code for c in self.state.containers)
        return bad or self.state.phase == "Failed" or self.state.disruption is not None


def pods_of(items: Iterable[Object]) -> list[Pod]:
    """The pods among objects, in the order of their names."""
    objects = [o for o in items if js.text_at(o, "metadata", "name") is not None]
    gang = kubernetes_ranks.gang_of(objects)
    found = [
        Pod(raw=one, state=fact)
        for one in objects
        for fact in kubernetes_pods.read(one, gang, Origin(path="pods"))
        if isinstance(fact, PodState)
    ]
    return sorted(found, key=lambda pod: (pod.namespace, _natural(pod.name)))


def _natural(name: str) -> tuple[object, ...]:
    """`w-2` before `w-10`."""
    return tuple(
        (0, int(word), "") if word.isascii() and word.isdecimal() else (1, 0, word)
        for word in name.replace(".", "-").split("-")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One life of the gang. `state`: running, failed, exited, pending."""

    number: int
    pods: tuple[Pod, ...]
    state: str
    started_ns: int | None
    ended_ns: int | None


def attempts_of(pods: Sequence[Pod], *, newest: int | None = None) -> list[Attempt]:
    """The attempts, oldest first; at least one where there is a pod. Attempts whose pods are all gone count
    too, where a restart label tells, or the job's own object does: `newest` is the number it gives the last."""
    lives: dict[tuple[int, str], list[Pod]] = defaultdict(list)
    for pod in pods:
        lives[_life(pod)].append(pod)
    ordered = sorted(
        _with_their_cluster(list(lives.values())),
        key=lambda group: (_first_life(group), _created(group)),
    )
    found: list[tuple[int, tuple[Pod, ...]]] = []
    for group in ordered:
        for again, one in enumerate(_replacements(group)):
            least = found[-1][0] + 1 if found else 0
            found.append((max(least, _first_life(group) + again), one))
    shift = max(0, newest - found[-1][0]) if found and newest is not None else 0
    return [_attempt(number + shift, group) for number, group in found]


def _with_their_cluster(lives: list[list[Pod]]) -> list[list[Pod]]:
    """A RayJob's submitter is in no RayCluster: it belongs to the one that was made last before it."""
    clusters = sorted((group for group in lives if RAY_CLUSTER in group[0].marks), key=_created)
    if not clusters:
        return lives
    for group in lives:
        if RAY_CLUSTER not in group[0].marks:
            before = [one for one in clusters if _created(one) <= _created(group)]
            (before or clusters)[-1 if before else 0].extend(group)
    return clusters


def _life(pod: Pod) -> tuple[int, str]:
    """What pods of one attempt share, where labels tell."""
    marks = pod.marks
    restarts = [int(marks[key]) for key in _RESTARTS if marks.get(key, "").isdecimal()]
    maker = ""
    if not restarts:
        maker = next((marks[key] for key in _MAKERS if key in marks), "")
        if "jobset.sigs.k8s.io/jobset-name" in marks or "training.kubeflow.org/job-name" in marks:
            maker = marks.get("jobset.sigs.k8s.io/jobset-uid", "")
        if RAY_CLUSTER in marks:
            maker = marks[RAY_CLUSTER]
    return max(restarts, default=0), maker


def _first_life(group: Sequence[Pod]) -> int:
    return _life(group[0])[0]


def _created(group: Sequence[Pod]) -> int:
    return min((pod.state.created_ns or 0 for pod in group), default=0)


def place_of(pod: Pod) -> tuple[str, ...]:
    """Its place in the gang; the name where no index tells."""
    marks = pod.marks
    found = tuple(f"{key}={marks[key]}" for key in _INDEXES if key in marks)
    return found if any(part[-1:].isdecimal() for part in found) else (pod.name,)


def _replacements(group: Sequence[Pod]) -> list[tuple[Pod, ...]]:
    """The n-th attempt has each place's n-th pod; a place with fewer has its last one in it."""
    places: dict[tuple[str, ...], list[Pod]] = defaultdict(list)
    for pod in group:
        places[place_of(pod)].append(pod)
    for own in places.values():
        own.sort(key=lambda pod: (pod.state.created_ns or 0, pod.name))
    count = max(len(own) for own in places.values())
    kept = [tuple(own[min(n, len(own) - 1)] for own in places.values()) for n in range(count)]
    return [tuple(sorted(one, key=lambda pod: _natural(pod.name))) for one in kept]


def _attempt(number: int, pods: tuple[Pod, ...]) -> Attempt:
    started = [p.state.created_ns for p in pods if p.state.created_ns is not None]
    ends = [pod.ended_ns for pod in pods]
    known = [end for end in ends if end is not None]
    if any(pod.has_failed for pod in pods):
        state = "failed"
    elif all(pod.state.phase == "Succeeded" for pod in pods):
        state = "exited"
    elif any(pod.state.phase == "Running" for pod in pods):
        state = "running"
    else:
        state = "pending"
    is_over = all(end is not None for end in ends)
    return Attempt(
        number=number,
        pods=pods,
        state=state,
        started_ns=min(started, default=None),
        ended_ns=max(known, default=None) if is_over or state == "failed" else None,
    )
