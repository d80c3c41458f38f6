"""By what means each kind goes down, and what is told beforehand."""

from __future__ import annotations

import shlex
from typing import Any, cast

import pytest

from gpufleet_cli.live import kinds
from gpufleet_cli.live.answers import Answer
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.pods import Pod, attempts_of, pods_of
from gpufleet_cli.operate import tear_down
from gpufleet_cli.operate.evict_look import restarted
from gpufleet_cli.operate.tear_down_run import _one, evict, in_order, patch
from gpufleet_cli.operate.writes import Writer

Json = dict[str, Any]


def pods(count: int = 2, *, owner: Json | None = None, **spec: object) -> list[Pod]:
    return pods_of(
        {
            "metadata": {
                "name": f"run-{index}", "namespace": "train", "uid": f"pod-{index}",
                "creationTimestamp": f"2026-03-11T03:00:0{index}Z",
                "ownerReferences": [owner] if owner else [],
            },
            "spec": {
                "nodeName": f"node-{index}",
                "terminationGracePeriodSeconds": 600,
                "containers": [{"name": "t", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
                **spec,
            },
            "status": {"phase": "Running"},
        }
        for index in range(count)
    )  # fmt: skip


def job(kind: str | None, top: Json | None = None, made: list[Pod] | None = None) -> Job:
    own = pods() if made is None else made
    found = next((one for one in kinds.KINDS if one.kind == kind), None)
    head: Json = {"metadata": {"name": "run", "namespace": "train", "uid": "u-1"}}
    if found is not None:
        head["apiVersion"] = f"{found.group}/{found.versions[0]}"
    return Job(
        name="run", namespace="train", kind=found, uid="u-1", objects=({**head, **(top or {})},),
        pods=tuple(own), attempts=tuple(attempts_of(own)), gang=len(own),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "path", "change"),
    [
        ("Job", "/apis/batch/v1/namespaces/train/jobs/run", {"spec": {"suspend": True}}),
        (
            "JobSet",
            "/apis/jobset.x-k8s.io/v1alpha2/namespaces/train/jobsets/run",
            {"spec": {"suspend": True}},
        ),
        (
            "PyTorchJob",
            "/apis/kubeflow.org/v1/namespaces/train/pytorchjobs/run",
            {"spec": {"runPolicy": {"suspend": True}}},
        ),
        (
            "MPIJob",
            "/apis/kubeflow.org/v2beta1/namespaces/train/mpijobs/run",
            {"spec": {"runPolicy": {"suspend": True}}},
        ),
        (
            "TrainJob",
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces/train/trainjobs/run",
            {"spec": {"suspend": True}},
        ),
        (
            "RayCluster",
            "/apis/ray.io/v1/namespaces/train/rayclusters/run",
            {"spec": {"suspend": True}},
        ),
    ],
)
def test_kinds_that_can_be_suspended_keep_their_object(kind: str, path: str, change: Json) -> None:
    """One field is set; the command that resumes sets it back, and names the kind with its group."""
    planned = tear_down.plan(job(kind), workloads=())
    assert ("suspend", path, change) == (planned.means, planned.path, planned.change)
    assert "patch" == planned.right.verb
    assert planned.undo is not None
    words = shlex.split(planned.undo)
    assert ["kubectl", "patch"] == words[:2]
    assert words[2].count(".") >= 1
    assert "true" not in words[-1] and "false" in words[-1]
    assert planned.by_hand == planned.undo.replace("false", "true")


def test_under_kueue_its_workload_is_made_inactive() -> None:
    """A suspend of ours would be lifted at once."""
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "metadata": {"name": "job-run-abc", "namespace": "train"},
    }
    planned = tear_down.plan(job("Job"), workloads=[workload])
    assert "/apis/kueue.x-k8s.io/v1beta1/namespaces/train/workloads/job-run-abc" == planned.path
    assert {"spec": {"active": False}} == planned.change
    assert planned.blocked is None
    assert tear_down.plan(job("Job"), workloads=None).blocked is not None
    assert tear_down.plan(job("Job"), workloads=[workload, workload]).blocked is not None


def test_a_ray_job_that_cannot_be_suspended_is_left_to_a_person() -> None:
    """KubeRay refuses `suspend` without `shutdownAfterJobFinishes`."""
    blocked = tear_down.plan(job("RayJob"), workloads=())
    assert blocked.blocked is not None and blocked.by_hand.startswith("kubectl delete rayjobs")
    fine = tear_down.plan(job("RayJob", {"spec": {"shutdownAfterJobFinishes": True}}), workloads=())
    assert fine.blocked is None


def test_groups_plain_pods_and_what_a_job_that_is_over_left_are_evicted() -> None:
    """No right to delete pods; an eviction asks their budgets."""
    for one in (
        job(None),
        job("LeaderWorkerSet"),
        job("PyTorchJob", {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}),
    ):
        planned = tear_down.plan(one, workloads=())
        assert ("evict", "pods/eviction") == (planned.means, planned.right.resource)
    still = {"status": {"conditions": [{"type": "Failed", "status": "False"}]}}
    assert "suspend" == tear_down.plan(job("PyTorchJob", still), workloads=()).means


def test_volcano_is_told_by_a_command_about_this_very_job() -> None:
    """As `vcctl job suspend` does; the job's uid goes with it."""
    own = job("VolcanoJob")
    planned = tear_down.plan(own, workloads=())
    assert ("abort", "commands") == (planned.means, planned.right.resource)
    made = tear_down.command_of(own)
    assert "AbortJob" == made["action"]
    assert "u-1" == made["target"]["uid"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("owner", "kind", "answer"),
    [
        ({"apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet", "name": "gpu"}, None, "slinky"),
        ({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "controller": True}, None, "other"),
        ({"apiVersion": "batch/v1", "kind": "Job", "name": "run", "controller": True}, "Job", "known"),
        (None, None, "known"),
    ],
)  # fmt: skip
def test_who_makes_the_pods(owner: Json | None, kind: str | None, answer: str) -> None:
    """Slurm's pods are never evicted; pods of a controller that we do not know come back."""
    assert answer == tear_down.who_makes(job(kind, made=pods(owner=owner)))[0]


def test_what_goes_with_the_pods_is_told() -> None:
    """Logs, emptyDir volumes by name; and the idle grace of a gang that hangs: 2 x 8 GPUs x 600 s."""
    own = pods(volumes=[{"name": "dumps", "emptyDir": {}}, {"name": "data", "hostPath": {}}])
    told = "\n".join(tear_down.loses(own, one_by_one=False))
    assert "2 pods are deleted by their controller" in told
    assert "(dumps)" in told
    assert (600, 2.67) == tear_down.idle_grace(own)


def test_names_that_could_be_shell_text_are_quoted() -> None:
    """What is printed is pasted."""
    text = tear_down.patch_command("jobs.batch", "x; reboot", "$(id)", ("spec", "suspend"), True)
    words = shlex.split(text)
    assert ["x; reboot", "-n", "$(id)"] == words[3:6]


def test_the_newest_pod_goes_last() -> None:
    """So that the token of what is left is the same until the end; what was told to go is left alone."""
    own = list(reversed(pods(3)))
    assert ["run-0", "run-1", "run-2"] == [pod.name for pod in in_order(own)]


@pytest.mark.parametrize(
    ("read", "outcome"),
    [
        (Answer(status=404), None),
        (Answer(status=200, body=b'{"metadata": {"uid": "another"}}'), None),
        (
            Answer(status=200, body=b'{"metadata": {"uid": "pod-0", "deletionTimestamp": "x"}}'),
            None,
        ),
        (Answer(status=200, body=b'{"metadata": {"uid": "pod-0"}}'), "failed"),
        (Answer(status=200, body=b""), "unknown"),
        (Answer(status=200, body=b'{"metadata": {"na', cut=True), "unknown"),
        (Answer(status=0, failed="reset"), "unknown"),
    ],
    ids=["gone", "another", "leaving", "stands", "no body", "half a body", "lost"],
)
def test_an_eviction_without_an_answer_is_told_by_a_read(read: Answer, outcome: str | None) -> None:
    """Only a whole answer tells that a pod went; one that was cut off tells nothing."""

    class Server:
        def write(self, *_: object, **__: object) -> Answer:
            return Answer(status=0, failed="connection reset")

        def get(self, *_: object, **__: object) -> Answer:
            return read

    (pod,) = pods(1)
    writer = Writer(api=cast(Api, Server()))
    came = evict(writer, [pod], Deadline(5.0))
    # The first round of dry runs has no answer either: nothing is touched then.
    assert (came.outcome, came.stand) == ("failed", ("run-0",))
    found = _one(writer, pod, Deadline(5.0), None)
    assert (None if found is None else found[0]) == outcome


def test_what_changed_since_the_look_is_not_patched() -> None:
    """Asked between the read whose version the patch carries and the patch: a job that was resumed is another."""
    happened: list[str] = []

    class Server:
        def get(self, *_: object, **__: object) -> Answer:
            happened.append("read")
            return Answer(status=200, body=b'{"metadata": {"uid": "u-1", "resourceVersion": "7"}}')

        def write(self, *_: object, **__: object) -> Answer:
            happened.append("written")
            return Answer(status=200, body=b'{"spec": {"suspend": true}}')

    def again(reason: str | None) -> str | None:
        happened.append("asked")
        return reason

    planned = tear_down.plan(job("Job"), workloads=())
    writer = Writer(api=cast(Api, Server()))
    came = patch(writer, planned, "u-1", lambda: again("new pods came: run-7"))
    assert ("changed", ["read", "asked"]) == (came.outcome, happened)
    assert "done" == patch(writer, planned, "u-1", lambda: again(None)).outcome
    assert ["read", "asked", "written"] == happened[2:]


def test_a_container_that_began_anew_in_place_is_told_by_its_start_or_its_count() -> None:
    """The kubelet may have forgotten the one before it; another pod of the name is no restart."""
    before = pods(3)

    def with_status(pod: Pod, *, restarts: int, started: str, uid: str | None = None) -> Pod:
        raw = {**pod.raw, "status": {"phase": "Running", "containerStatuses": [
            {"name": "t", "restartCount": restarts, "state": {"running": {"startedAt": started}}}]}}  # fmt: skip
        if uid is not None:
            raw["metadata"] = {**cast(Json, pod.raw["metadata"]), "uid": uid}
        return pods_of([raw])[0]

    at, later = "2026-03-11T03:00:05Z", "2026-03-11T03:10:05Z"
    known = [with_status(pod, restarts=0, started=at) for pod in before]
    assert () == restarted(known, known)
    now = [
        with_status(before[0], restarts=1, started=at),
        with_status(before[1], restarts=0, started=later),
        with_status(before[2], restarts=3, started=later, uid="another"),
    ]
    assert ("run-0", "run-1") == restarted(known, now)
