"""Kinds of job whose attempts, groups or queues are their own, on a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from servers import jobs, nodes, other_jobs, pods, store
from servers.api import Json
from servers.jobs import Shape
from servers.namespaces import Namespace
from servers.running import wait_until

from gpufleet_cli.cli import main
from live import rank_words
from live.rank_words import Said

TWO = Shape(pods=2, gpus=2, args=("--nproc-per-node=2", "train.py"))
Output = pytest.CaptureFixture[str]


def triaged(capsys: Output, kubeconfig: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """The report and what stood on standard error; a verdict was reached."""
    code = main(["triage", *arguments, "-o", "json", "--kubeconfig", str(kubeconfig)])
    told = capsys.readouterr()
    assert 0 == code, told.err + told.out
    return json.loads(told.out), told.err


def culprits(found: dict[str, Any]) -> list[tuple[int | None, str | None]]:
    return [(one["rank"], one["pod"]) for one in found["verdict"]["culprits"]]


def ago(seconds: float) -> datetime:
    return datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=seconds)


def stall(silent: Iterable[int], fell: datetime, *, ranks: int = 4) -> list[Said]:
    """All step until then; who is not silent times out ten minutes later."""
    lines: list[Said] = []
    noticed = fell + timedelta(seconds=rank_words.WATCHDOG_S)
    quiet = set(silent)
    for rank in range(ranks):
        lines += rank_words.steps(rank, fell - timedelta(seconds=rank_words.STEPS))
        if rank not in quiet:
            lines += rank_words.storm(rank, noticed, aborts=False)
    return sorted(lines, key=lambda said: said.at)


def plain(said: Said) -> str:
    """As Python and c10 prefix it."""
    return f"[rank{said.rank}]:" + (
        f" step {said.text} loss 2.3" if said.by == "step" else said.text
    )


# --- RayJob --------------------------------------------------------------------------------------


def _driver_log(namespace: Namespace, cluster: str, lines: Iterable[Said]) -> list[pods.Line]:
    """What `ray job submit` prints in the submitter for all workers."""
    listed = list(lines)
    ip = [
        pods.read(namespace, f"{cluster}-gpu-group-worker-{index}")["status"]["podIP"]
        for index in range(2)
    ]
    began = listed[0].at
    log = [
        (
            began,
            f"(TorchTrainer pid=611) - (node_id=c0de, ip={ip[rank // 2]}, pid={900 + rank})"
            f" world_rank={rank}, local_rank={rank % 2}, node_rank={rank // 2}",
        )
        for rank in range(4)
    ]
    return log + [
        (said.at, f"(RayTrainWorker pid={900 + said.rank}, ip={ip[said.rank // 2]}) {plain(said)}")
        for said in listed
    ]


def _submitter(namespace: Namespace, name: str) -> str:
    (pod,) = pods.wait(namespace, f"batch.kubernetes.io/job-name={name}", 1)
    return str(pod["metadata"]["name"])


def test_a_rayjob_is_tried_again_under_a_new_cluster(
    namespace: Namespace, kubeconfig: Path, capsys: Output
) -> None:
    """The controller deleted the cluster that failed: attempt 1 is the one that is there, with its submitter's log."""
    nodes.make(namespace, 2, gpus=2)
    other_jobs.rayjob(namespace, "rj", TWO, attempt=1)
    pods.wait(namespace, "ray.io/cluster=rj-00001", 3)
    fell = ago(690)
    log = _driver_log(namespace, "rj-00001", stall([2, 3], fell))
    pods.give_logs(namespace, {_submitter(namespace, "rj"): log}, container="ray-job-submitter")
    victim = "rj-00001-gpu-group-worker-1"
    pods.kill_for_memory(namespace, victim, at=fell)
    found, _ = triaged(capsys, kubeconfig, "rayjob/rj", "-n", namespace.name)
    assert ("host-oom", [(None, victim)]) == (found["verdict"]["kind"], culprits(found))
    assert (4, 2) == (found["job"]["world_size"], found["job"]["nodes"])
    assert [1] == [one["attempt"] for one in found["job"]["attempts"]]


def test_two_clusters_of_one_rayjob_are_two_attempts(
    namespace: Namespace, kubeconfig: Path, capsys: Output
) -> None:
    """The one that failed is the subject while the next one runs; a submitter is no attempt of its own."""
    nodes.make(namespace, 4, gpus=2)
    other_jobs.rayjob(namespace, "rj", TWO)
    pods.wait(namespace, "ray.io/cluster=rj-00000", 3)
    fell = ago(690)
    log = _driver_log(namespace, "rj-00000", stall([2, 3], fell))
    pods.give_logs(namespace, {"rj-00000-head": log}, container="ray-head")
    victim = "rj-00000-gpu-group-worker-1"
    pods.kill_for_memory(namespace, victim, at=fell)
    other_jobs.rayjob(namespace, "rj", TWO, attempt=1)
    pods.wait(namespace, "ray.io/cluster=rj-00001", 3)
    _submitter(namespace, "rj")
    found, _ = triaged(capsys, kubeconfig, "rayjob/rj", "-n", namespace.name)
    assert ("host-oom", [(None, victim)]) == (found["verdict"]["kind"], culprits(found))
    told = [(one["attempt"], one["state"]) for one in found["job"]["attempts"]]
    assert ([(0, "failed"), (1, "running")], 0) == (told, found["job"]["attempt"])


# --- LeaderWorkerSet -----------------------------------------------------------------------------


def test_each_group_of_a_leaderworkerset_is_a_world(
    namespace: Namespace, kubeconfig: Path, capsys: Output
) -> None:
    """Both groups have a rank 2; the one whose container was killed is judged, the other is named as not looked at."""
    nodes.make(namespace, 4, gpus=2)
    args = ("--nproc-per-node=2", "--node-rank=$(LWS_WORKER_INDEX)", "train.py")
    other_jobs.leaderworkerset(namespace, "lws", replace(TWO, args=args), groups=2)
    pods.wait(namespace, "leaderworkerset.sigs.k8s.io/name=lws", 4)
    fell = ago(690)
    healthy = [said for rank in range(4) for said in rank_words.steps(rank, ago(rank_words.STEPS))]
    logs: dict[str, list[pods.Line]] = {}
    for group, lines in ((0, healthy), (1, stall([2, 3], fell))):
        for index, pod in enumerate((f"lws-{group}", f"lws-{group}-1")):
            own = [said for said in lines if said.rank // 2 == index]
            logs[pod] = [(said.at, plain(said)) for said in sorted(own, key=lambda said: said.at)]
    pods.give_logs(namespace, logs)
    pods.restart(namespace, "lws-1-1", exit_code=137, reason="OOMKilled", at=fell)
    found, err = triaged(capsys, kubeconfig, "lws/lws", "-n", namespace.name)
    assert ("host-oom", [(None, "lws-1-1")]) == (found["verdict"]["kind"], culprits(found))
    assert (4, 2) == (found["job"]["world_size"], found["job"]["nodes"])
    assert {"lws-1", "lws-1-1"} == {row["pod"] for row in found["ranks"]}
    assert "group 1 of 2 groups, each a world of its own" in err
    assert "group 0 of lws" in {one["what"] for one in found["missing_evidence"]}
    assert (1, [{"group": 0, "state": "running"}, {"group": 1, "state": "failed"}]) == (
        found["job"]["group"],
        found["job"]["groups"],
    )


# --- Queues --------------------------------------------------------------------------------------


def _condition(kind: str, status: str, reason: str, message: str) -> Json:
    stamp = f"{ago(1200):%Y-%m-%dT%H:%M:%SZ}"
    return {"type": kind, "status": status, "reason": reason, "message": message} | {
        "lastTransitionTime": stamp
    }


def test_a_job_that_kueue_has_not_admitted(
    namespace: Namespace, kubeconfig: Path, capsys: Output
) -> None:
    """It has no pods at all; Kueue's own sentence is the verdict, and nobody is to blame."""
    name = f"queued-{namespace.name}"
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    job = jobs.indexed_job(namespace, name, replace(TWO, suspend=True), labels=labels)
    why = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 4 more needed"
    pending = _condition("QuotaReserved", "False", "Pending", why)
    other_jobs.kueue_workload(namespace, job, count=2, conditions=(pending,))
    found, _ = triaged(capsys, kubeconfig, name)
    assert ("rendezvous-failure", []) == (found["verdict"]["kind"], culprits(found))
    assert (
        "Kueue has not admitted it (Pending: couldn't assign flavors" in found["verdict"]["summary"]
    )
    assert ("watch", []) == (found["recommendation"]["action"], found["recommendation"]["nodes"])
    assert main(["triage", name, "--kubeconfig", str(kubeconfig)]) == 0
    assert "insufficient unused quota for nvidia.com/gpu" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_job_that_somebody_suspended(
    namespace: Namespace, kubeconfig: Path, capsys: Output
) -> None:
    """Without a queue it says no more than that."""
    jobs.pytorchjob(namespace, "pt", replace(TWO, suspend=True))
    for pod in pods.found(namespace):
        namespace.api.delete(namespace.path(f"pods/{pod['metadata']['name']}"))
    wait_until(lambda: not pods.found(namespace), "its pods are gone")
    found, _ = triaged(capsys, kubeconfig, "pytorchjob/pt", "-n", namespace.name)
    assert "PyTorchJob pt is suspended" in found["verdict"]["summary"]
    assert [] == culprits(found)


def test_a_gang_that_volcano_cannot_place(
    namespace: Namespace, kubeconfig: Path, capsys: Output
) -> None:
    """All its pods wait for room; the PodGroup says how much is missing."""
    nodes.make(namespace, 1, gpus=1)
    job = other_jobs.volcano_job(namespace, "vj", TWO)
    group = f"vj-{job['metadata']['uid']}"
    why = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; Pending: 2 Unschedulable"
    condition = _condition("Unschedulable", "True", "NotEnoughResources", why)
    root = "/apis/scheduling.volcano.sh/v1beta1"
    change = {"status": {"phase": "Inqueue", "conditions": [condition]}}
    namespace.api.patch(namespace.path(f"podgroups/{group}", root), change)
    selector = "volcano.sh/job-name=vj"
    wait_until(
        lambda: all(
            any(one["type"] == "PodScheduled" for one in pod["status"].get("conditions", ()))
            for pod in pods.found(namespace, selector)
        ),
        "the scheduler looked at them",
    )
    found, _ = triaged(capsys, kubeconfig, "vcjob/vj", "-n", namespace.name)
    assert ("rendezvous-failure", []) == (found["verdict"]["kind"], culprits(found))
    assert "NotEnoughResources: 2/2 tasks in gang unschedulable" in found["verdict"]["summary"]


# --- Preemption by the real scheduler ------------------------------------------------------------


@pytest.mark.parametrize("minutes", [0, 20])
def test_a_pod_that_the_scheduler_preempted(
    minutes: int, namespace: Namespace, kubeconfig: Path, capsys: Output
) -> None:
    """A pod of a higher priority took its place; its object is gone, the scheduler's event and its peers remain.

    When that was `minutes` after the stall, it is no cause of it, and nobody is named.
    """
    nodes.make(namespace, 2, gpus=2)
    jobs.plain_pods(namespace, "run9", TWO)
    listed = [pod["metadata"]["name"] for pod in pods.wait(namespace, "job-id=run9", 2)]
    fell = ago(690 + 60 * minutes)
    lines = stall([2, 3], fell)
    logs = {
        pod: [(said.at, plain(said)) for said in lines if said.rank // 2 == index]
        for index, pod in enumerate(listed)
    }
    pods.give_logs(namespace, logs)
    _preempt(namespace, pods.read(namespace, listed[1])["spec"]["nodeName"])
    wait_until(lambda: len(pods.found(namespace, "job-id=run9")) == 1, "its pod is gone")
    _back_date(namespace, "Preempted", fell + timedelta(minutes=minutes))
    config = ["-n", namespace.name, "-o", "json", "--kubeconfig", str(kubeconfig)]
    code = main(["triage", "-l", "job-id=run9", *config])
    found = json.loads(capsys.readouterr().out)
    assert [] == found["recommendation"]["nodes"], "nobody's node is to blame"
    assert (4, 2) == (found["job"]["world_size"], found["verdict"]["witnesses"]["count"])
    if minutes:
        assert listed[1] not in {pod for _, pod in culprits(found)}, found["verdict"]
        return
    assert 0 == code, found["verdict"]
    assert ("rank-crashed", [(None, listed[1])]) == (found["verdict"]["kind"], culprits(found))
    assert "restart-job" == found["recommendation"]["action"]


def _preempt(namespace: Namespace, node: str) -> None:
    """Let the real scheduler make room on that node for a pod of a class that every cluster has."""
    pod = jobs.template(namespace, replace(TWO, pods=1))
    pod["spec"] |= {
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/hostname": node},
    }
    pod["metadata"] |= {"name": "urgent", "namespace": namespace.name}
    namespace.api.create({"apiVersion": "v1", "kind": "Pod"} | pod)
    wait_until(lambda: _event(namespace, "Preempted"), "the scheduler preempted")


def _back_date(namespace: Namespace, reason: str, at: datetime) -> None:
    """Events of that reason were then: no client may write the time of one that is there."""
    text = f"{at:%Y-%m-%dT%H:%M:%S.000000Z}"
    for one in namespace.api.items(namespace.path("events")):
        if one["reason"] == reason:
            key = f"/registry/events/{namespace.name}/{one['metadata']['name']}"
            store.change(namespace.cluster, key, lambda stored: stored.update(eventTime=text))


def _event(namespace: Namespace, reason: str) -> bool:
    found = namespace.api.items(namespace.path("events"))
    return any(one["reason"] == reason for one in found)
