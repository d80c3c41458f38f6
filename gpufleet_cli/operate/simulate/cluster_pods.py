"""pods.json: the pods of a job as `kubectl get pods -o json` prints them.

One pod a node. Where its ranks are told by the object, they are told as the real controllers do it:
the completion index of an Indexed Job, Volcano's task index, or nothing but torchrun's own sorting
(an elastic PyTorchJob of at most ten pods, where sorting names gives their order).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Literal

from gpufleet_cli.operate.simulate import gathered, identities
from gpufleet_cli.operate.simulate.identities import CONTAINER, NAMESPACE
from gpufleet_cli.operate.simulate.story import Class, Clue, Ending, Fault, Story
from gpufleet_cli.verdict import Kind

IMAGE = "registry.example.net/ml/train:v41"
PATH = "pods.json"
GRACE_S = 40.0
EVICTED_AFTER_S = 300.0
CLEARLY_FIRST_S = 30.0
MOST_ELASTIC = 10

Json = dict[str, object]
Absence = Literal["unschedulable", "image", "unseen"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """How the rank container of a node ended: `end_s` None while it runs, or seems to."""

    index: int
    end_s: float | None
    code: int
    reason: str


def stamp(story: Story, at_s: float, index: int | None = None) -> str:
    """Kubernetes writes whole seconds."""
    at = datetime.fromtimestamp(story.wall_ns(at_s, index) // 10**9, tz=UTC)
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def job_name(story: Story) -> str:
    """What the pods are named after."""
    return story.layout.pods[0].rpartition("-")[0].removesuffix("-worker")


def created_s(story: Story) -> float:
    """When the pods were made: a while before the first step."""
    return -story.steps_before * story.step_seconds - 150.0


def absence(story: Story) -> Absence:
    """Why a pod is not at the rendezvous; in some worlds nobody can see it."""
    found: tuple[Absence, ...] = ("unschedulable", "image", "unseen")
    return gathered.draw(story, "absence").choices(found, (6, 2, 2))[0]


def is_elastic(story: Story) -> bool:
    """Whether the pods carry no index that is sure to be that of their ranks."""
    if "-worker-" not in story.layout.pods[0] or len(story.layout.nodes) > MOST_ELASTIC:
        return False
    return gathered.draw(story, "controller").random() < 0.5


# --- Lives ------------------------------------------------------------------------------------------


def lives(story: Story, rng: Random) -> list[Life]:
    """One a pod. The agent exits with 1 whatever its children did; some launchers pass the code on."""
    passes_on = gathered.draw(story, "exit code").random() < 0.3
    return [
        _life(story, index, passes_on=passes_on, rng=rng)
        for index in range(len(story.layout.nodes))
    ]


def _life(story: Story, index: int, *, passes_on: bool, rng: Random) -> Life:
    endings = [story.endings[rank] for rank in story.layout.ranks_of(index)]
    ended = [(e.at_s, e) for e in endings if e.at_s is not None and e.how != "vanished"]
    after_s = rng.uniform(0.5, 3.0)
    if len(ended) < len(endings):
        return Life(index=index, end_s=None, code=0, reason="")
    end = max(at for at, _ in ended) + after_s
    first = min(ended, key=lambda e: e[0])[1]
    if first.how == "oom-kill" and gathered.draw(story, "OOM group").random() < 0.5:
        return Life(index=index, end_s=end, code=137, reason="OOMKilled")
    return Life(index=index, end_s=end, code=_exit(first, passes_on=passes_on), reason="Error")


def _exit(first: Ending, *, passes_on: bool) -> int:
    if first.code is None or not passes_on:
        return 1
    return first.code if first.code > 0 else 128 - first.code


# --- Objects ----------------------------------------------------------------------------------------


def items(story: Story, found: Sequence[Life]) -> list[Json]:
    """All pods by name, as kubectl sorts them."""
    deaths = {
        index: fault.at_s
        for fault in story.faults
        if fault.cls is Class.NODE_DEATH
        for index in gathered.nodes_of(story, fault)
    }
    absent = {
        index
        for fault in story.faults
        if fault.cls is Class.RENDEZVOUS
        for index in gathered.nodes_of(story, fault)
    }
    pods = []
    for life in found:
        if life.index in absent and absence(story) != "unseen":
            pods.append(_absent(story, life.index))
        elif life.index in deaths:
            pods.append(_on_dead_node(story, life.index, deaths[life.index]))
        else:
            pods.append(_pod(story, life.index, _status(story, life)))
    return sorted(pods, key=lambda pod: story.layout.pods.index(str(pod.pop("name"))))


def _pod(story: Story, index: int, status: Json) -> Json:
    name = story.layout.pods[index]
    labels, owner, env, args = _controller(story, index)
    gpus = str(len(story.layout.ranks_of(index)))
    container: Json = {
        "name": CONTAINER,
        "image": IMAGE,
        "command": ["torchrun"],
        "args": [
            f"--nnodes={len(story.layout.nodes)}",
            f"--nproc-per-node={gpus}",
            *args,
            "train.py",
        ],
        "env": env,
        "resources": {"limits": {"nvidia.com/gpu": gpus}, "requests": {"nvidia.com/gpu": gpus}},
    }
    return {
        "name": name,
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": identities.pod_uid(story, index),
            "creationTimestamp": stamp(story, created_s(story)),
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": story.layout.nodes[index],
            "hostname": name,
            "restartPolicy": "Never",
            "containers": [container],
        },
        "status": status,
    }


def _controller(story: Story, index: int) -> tuple[Json, Json, list[Json], list[str]]:
    """(labels, owner, environment, arguments) as the controller of this kind of job gives them."""
    job, number = job_name(story), str(index)
    owner: Json = {"name": job, "uid": gathered.uuid(story, "job"), "controller": True}
    address = story.layout.pods[0]
    if "-worker-" not in address:
        labels: Json = {
            "batch.kubernetes.io/job-name": job,
            "batch.kubernetes.io/job-completion-index": number,
            "job-name": job,
        }
        path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        env: list[Json] = [
            {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}}
        ]
        args = ["--node-rank=$(JOB_COMPLETION_INDEX)", f"--master-addr={address}"]
        return labels, {"apiVersion": "batch/v1", "kind": "Job", **owner}, env, args
    if is_elastic(story):
        count = len(story.layout.nodes)
        labels = {
            "training.kubeflow.org/job-name": job,
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": number,
        }
        env = [
            {"name": "PET_RDZV_BACKEND", "value": "c10d"},
            {"name": "PET_RDZV_ENDPOINT", "value": f"{address}:23456"},
            {"name": "PET_NNODES", "value": f"{count}:{count}"},
        ]
        return labels, {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **owner}, env, []
    labels = {
        "volcano.sh/job-name": job,
        "volcano.sh/task-spec": "worker",
        "volcano.sh/task-index": number,
    }
    env = [{"name": "VC_TASK_INDEX", "value": number}]
    args = ["--node-rank=$(VC_TASK_INDEX)", f"--master-addr={address}"]
    return labels, {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", **owner}, env, args


def _condition(kind: str, at: str, status: str = "True", **more: str) -> Json:
    return {"type": kind, "status": status, "lastTransitionTime": at, **more}


def _status(story: Story, life: Life) -> Json:
    """Running, or over."""
    began = stamp(story, created_s(story) + 35, life.index)
    container: Json = {
        "name": CONTAINER,
        "image": IMAGE,
        "restartCount": 0,
        "ready": life.end_s is None,
        "containerID": f"containerd://{gathered.container_id(story, life.index)}",
    }
    scheduled = _condition("PodScheduled", stamp(story, created_s(story)))
    base: Json = {"podIP": identities.address(story, life.index), "startTime": began}
    if life.end_s is None:
        container["state"] = {"running": {"startedAt": began}}
        ready = _condition("Ready", began)
        return {
            "phase": "Running",
            "conditions": [scheduled, ready],
            **base,
            "containerStatuses": [container],
        }
    over = stamp(story, life.end_s, life.index)
    container["state"] = {
        "terminated": {
            "exitCode": life.code,
            "reason": life.reason,
            "startedAt": began,
            "finishedAt": over,
        }
    }
    ready = _condition("Ready", over, "False", reason="PodFailed")
    return {
        "phase": "Failed",
        "conditions": [scheduled, ready],
        **base,
        "containerStatuses": [container],
    }


def _on_dead_node(story: Story, index: int, at_s: float) -> Json:
    """Nobody is left to say that the containers ended; later the taint manager marks the pod."""
    pod = _pod(story, index, _status(story, Life(index=index, end_s=None, code=0, reason="")))
    status, metadata = pod["status"], pod["metadata"]
    assert isinstance(status, dict)
    assert isinstance(metadata, dict)
    if story.captured_s >= at_s + GRACE_S:
        status["conditions"][-1] = _condition("Ready", stamp(story, at_s + GRACE_S), "False")
    gone_s = at_s + GRACE_S + EVICTED_AFTER_S
    if story.captured_s >= gone_s:
        metadata["deletionTimestamp"] = stamp(story, gone_s + 30)
        reason = "DeletionByTaintManager"
        status["conditions"].append(
            _condition("DisruptionTarget", stamp(story, gone_s), reason=reason)
        )
    return pod


def unschedulable(story: Story) -> str:
    """The scheduler's message."""
    count = len(story.layout.nodes)
    return (
        f"0/{count + 3} nodes are available: {count + 3} Insufficient nvidia.com/gpu."
        " preemption: 0/1 nodes are available: No preemption victims found for incoming pod."
    )


def _absent(story: Story, index: int) -> Json:
    """A pod that never came up: without a node, or without its image."""
    pod = _pod(story, index, {})
    at = stamp(story, created_s(story))
    if absence(story) == "unschedulable":
        spec = pod["spec"]
        assert isinstance(spec, dict)
        del spec["nodeName"]
        why = {"reason": "Unschedulable", "message": unschedulable(story)}
        pod["status"] = {
            "phase": "Pending",
            "conditions": [_condition("PodScheduled", at, "False", **why)],
        }
        return pod
    waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{IMAGE}"'}
    pod["status"] = {
        "phase": "Pending",
        "conditions": [_condition("PodScheduled", at), _condition("Ready", at, "False")],
        "containerStatuses": [
            {"name": CONTAINER, "image": IMAGE, "restartCount": 0, "ready": False}
            | {"state": {"waiting": waiting}}
        ],
    }
    return pod


# --- What they say ----------------------------------------------------------------------------------


def clues(story: Story, found: Sequence[Life]) -> list[Clue]:
    """What pods.json says of each fault."""
    return [clue for fault in story.faults for clue in _clues(story, fault, found)]


def _clues(story: Story, fault: Fault, found: Sequence[Life]) -> list[Clue]:
    indexes = gathered.nodes_of(story, fault)
    if len(indexes) != 1:
        return []
    life, ranks = found[indexes[0]], gathered.ranks_on(story, indexes)

    def clue(text: str, *kinds: Kind, loud: bool = True) -> list[Clue]:
        return [
            Clue(ranks=ranks, path=PATH, text=text, kinds=kinds, loud=loud, nodes=tuple(indexes))
        ]

    if fault.cls is Class.RENDEZVOUS:
        how = absence(story)
        reason = {"unschedulable": "Unschedulable", "image": "ImagePullBackOff"}.get(how)
        return clue(f'"reason": "{reason}"', Kind.RENDEZVOUS_FAILURE) if reason else []
    if fault.cls is Class.NODE_DEATH:
        if story.captured_s < fault.at_s + GRACE_S + EVICTED_AFTER_S:
            return []
        return clue('"reason": "DeletionByTaintManager"', Kind.HARDWARE)
    if life.reason == "OOMKilled":
        return clue('"reason": "OOMKilled"', Kind.HOST_OOM)
    if fault.cls is Class.SEGFAULT and life.code == 139:
        return clue('"exitCode": 139', Kind.RANK_CRASHED)
    if life.end_s is not None and _is_clearly_first(story, life, found):
        return clue(f'"finishedAt": "{stamp(story, life.end_s, life.index)}"', loud=False)
    return []


def _is_clearly_first(story: Story, life: Life, found: Sequence[Life]) -> bool:
    """By what is written, it ended well before any other: more than agents differ by."""
    ends = {o.index: o.end_s + story.skew_s[o.index] for o in found if o.end_s is not None}
    mine = ends.pop(life.index)
    return mine + CLEARLY_FIRST_S < min(ends.values(), default=float("inf"))
