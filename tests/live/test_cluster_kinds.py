"""Live triage on a real API server: the job is found, gathered and judged, for each kind of job."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from servers import jobs, nodes, other_jobs, pods
from servers.jobs import Shape
from servers.namespaces import Namespace

from gpufleet_cli.cli import main
from live import cluster_stories as stories

JOB_NAME = "batch.kubernetes.io/job-name"
SMALL = Shape(pods=3, gpus=2, args=("--nproc-per-node=2", "train.py"))


def run(
    capsys: pytest.CaptureFixture[str], kubeconfig: Path, *arguments: str
) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of one command."""
    code = main([*arguments, "--kubeconfig", str(kubeconfig)])
    told = capsys.readouterr()
    return code, told.out, told.err


def names(namespace: Namespace, selector: str, count: int) -> list[str]:
    """The pods in the order of their names, once all run."""
    return sorted(pod["metadata"]["name"] for pod in pods.wait(namespace, selector, count))


def test_an_indexed_job_whose_pod_was_killed_for_memory(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found by name alone, gathered, judged; the saved bundle gives the same JSON but for its target."""
    nodes.make(namespace, 3, gpus=2)
    jobs.indexed_job(namespace, f"train-{namespace.name}", SMALL)
    job = f"train-{namespace.name}"
    made = names(namespace, f"{JOB_NAME}={job}", 3)
    at = stories.began()
    stories.stall(namespace, made, silent=1, at=at)
    pods.kill_for_memory(namespace, made[1], at=at + timedelta(seconds=60))

    saved = tmp_path / "bundle"
    code, out, err = run(capsys, kubeconfig, "triage", job, "-o", "json", "--save", str(saved))
    assert 0 == code, err
    live = json.loads(out)
    assert "host-oom" == live["verdict"]["kind"]
    killed = pods.read(namespace, made[1])
    assert killed["spec"]["nodeName"] == live["verdict"]["culprits"][0]["node"]
    assert made[1] in live["verdict"]["summary"]
    assert {"kind": "job", "name": job, "namespace": namespace.name} == live["target"]
    assert "OOMKilled" in err, "first facts"

    again = _from_disk(capsys, saved)
    assert "bundle" == again.pop("target")["kind"]
    live.pop("target")
    assert json.dumps(live) == json.dumps(again)


def _from_disk(capsys: pytest.CaptureFixture[str], place: Path) -> dict[str, Any]:
    main(["triage", str(place), "-o", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def _json(capsys: pytest.CaptureFixture[str], kubeconfig: Path, *arguments: str) -> dict[str, Any]:
    code, out, err = run(capsys, kubeconfig, "triage", *arguments, "-o", "json")
    assert code in (0, 3), err
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_jobset_that_somebody_evicted(
    namespace: Namespace, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two Jobs of one replicatedJob; a pod taken away by node pressure; the gang is counted over both."""
    nodes.make(namespace, 4, gpus=2)
    jobs.jobset(namespace, "js", Shape(pods=2, gpus=2, args=SMALL.args), replicas=2)
    made = names(namespace, "jobset.sigs.k8s.io/jobset-name=js", 4)
    at = stories.began()
    stories.stall(namespace, made, silent=3, at=at)
    pods.evict(namespace, made[3], at=at + timedelta(seconds=60))
    found = _json(capsys, kubeconfig, "jobset/js", "-n", namespace.name)
    assert (8, "js") == (found["job"]["world_size"], found["job"]["name"])
    victim = pods.read(namespace, made[3])["spec"]["nodeName"]
    assert victim in {culprit["node"] for culprit in found["verdict"]["culprits"]}, found["verdict"]


def test_a_pytorchjob_whose_program_raised(
    namespace: Namespace, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`RANK` of a pod is a node rank (trap 2): the worker with index 1 has ranks 4 and 5."""
    nodes.make(namespace, 3, gpus=2)
    jobs.pytorchjob(namespace, "pt", SMALL)
    names(namespace, "training.kubeflow.org/job-name=pt", 3)
    ordered = ["pt-master-0", "pt-worker-0", "pt-worker-1"]
    at = stories.began()
    words = [
        "[rank4]: Traceback (most recent call last):",
        '[rank4]:   File "/app/train.py", line 88, in <module>',
        "[rank4]:     loss = model(batch[index])",
        "[rank4]: IndexError: index 50304 is out of bounds for dimension 0 with size 50257",
    ]
    stories.stall(namespace, ordered, silent=2, at=at, container="pytorch", last_words=words)
    pods.terminate(namespace, "pt-worker-1", exit_code=1, at=at + timedelta(seconds=61))
    found = _json(capsys, kubeconfig, "pt", "-n", namespace.name)
    assert "rank-crashed" == found["verdict"]["kind"], found["verdict"]["summary"]
    assert [(4, "pt-worker-1")] == [(c["rank"], c["pod"]) for c in found["verdict"]["culprits"]]
    assert 6 == found["job"]["world_size"]


def test_plain_pods_on_a_node_that_died(
    namespace: Namespace, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By selector; the lease is the clock; the kubelet that does not answer is said to be evidence."""
    made_nodes = nodes.make(namespace, 3, gpus=2)
    made = jobs.plain_pods(
        namespace, "run7", Shape(pods=3, gpus=2, nodes=made_nodes, args=SMALL.args)
    )
    names(namespace, "job-id=run7", 3)
    at = stories.began()
    stories.stall(namespace, made, silent=1, at=at)
    nodes.stop_kubelet(namespace.cluster, made_nodes[1])
    nodes.kill_at(namespace.cluster, made_nodes[1], at + timedelta(seconds=62))
    code, out, err = run(capsys, kubeconfig, "triage", "-l", "job-id=run7", "-o", "json")
    assert code in (0, 3), err
    found = json.loads(out)
    assert f"provisional: {made_nodes[1]} NotReady since" in err
    assert "holds ranks 2-3" in err
    assert {made_nodes[1]} == {c["node"] for c in found["verdict"]["culprits"]}, found["verdict"]
    missing = {one["what"]: one["why"] for one in found["missing_evidence"]}
    assert "evidence about the node" in missing["log of run7-1/trainer"]


def test_dumps_by_exec(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`cat` of the path in the pod's own environment while the container runs; else a gap with its reason."""
    (node,) = nodes.make(namespace, 1, gpus=8)
    folder = tmp_path / "pod"
    folder.mkdir()
    prefix = f"{folder}/nccl_trace_rank_"
    env = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": prefix}
    shape = Shape(pods=3, gpus=2, nodes=[node], env=env, args=SMALL.args)
    made = jobs.plain_pods(namespace, "run8", shape)
    names(namespace, "job-id=run8", 3)
    stories.stall(namespace, made, silent=1, at=stories.began())
    for rank in (0, 1):
        (folder / f"nccl_trace_rank_{rank}").write_bytes(b"\x80\x04}." + bytes(range(256)) * rank)
    for name in made:
        pods.allow_exec(namespace, name, folder)
    pods.terminate(namespace, made[2], exit_code=1)
    to = tmp_path / "bundle"
    code, out, err = run(capsys, kubeconfig, "collect", "-l", "job-id=run8", "--to", str(to))
    assert 3 == code, err
    assert 6 == json.loads(out)["ranks"]
    assert (folder / "nccl_trace_rank_1").read_bytes() == (
        to / "dumps/nccl_trace_rank_1"
    ).read_bytes()
    missing = {
        one["what"]: one["why"] for one in json.loads((to / "manifest.json").read_text())["missing"]
    }
    assert (
        "no such file: no dump was written there (yet)" == missing["Flight Recorder dump of rank 2"]
    )
    assert "terminated" in missing["Flight Recorder dump of rank 5"]


def test_a_raycluster_whose_image_cannot_be_pulled(
    namespace: Namespace, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A head without GPUs and workers that wait: the gang never began."""
    made_nodes = nodes.make(namespace, 2, gpus=2)
    shape = Shape(pods=2, gpus=2, nodes=made_nodes, hold=True, args=SMALL.args)
    other_jobs.raycluster(namespace, "rc", shape)
    for pod in ("rc-gpu-group-worker-0", "rc-gpu-group-worker-1"):
        pods.hold_back(namespace, pod)
    code, out, err = run(capsys, kubeconfig, "triage", "rc", "-n", namespace.name, "-o", "json")
    assert code in (0, 3), err
    found = json.loads(out)
    assert "provisional: rc-gpu-group-worker-0 waits: ImagePullBackOff" in err
    missing = {one["what"]: one["why"] for one in found["missing_evidence"]}
    why = missing["log of rc-gpu-group-worker-0"]
    assert "its container has not started: ImagePullBackOff" == why
