"""Live triage on a real API server: the job is found, gathered and judged, for each kind of job."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from live import cluster_stories as stories
from servers import jobs, nodes, pods
from servers.jobs import Shape
from servers.namespaces import Namespace

from gpufleet_cli.cli import main

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
