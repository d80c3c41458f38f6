"""A gang that has not started: what holds it, since when, and the command that shows more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpufleet_cli.cli import main
from live import fake_api
from live.fake_api import FakeApi

PODS = "/api/v1/namespaces/ml/pods"
PULL = (
    'rpc error: code = NotFound desc = failed to pull and unpack image "registry.example/team/train:1.2":'
    ' failed to resolve reference "registry.example/team/train:1.2": not found'
)
FULL = (
    "0/40 nodes are available: 3 node(s) had untolerated taint {node.kubernetes.io/unreachable: },"
    " 5 node(s) were unschedulable, 32 Insufficient nvidia.com/gpu. preemption: 0/40 nodes are available."
)


def two(fake: FakeApi, image: str | None = None, unscheduled: str | None = None) -> None:
    """The pods of a gang; the second waits for an image or for room."""
    for index in range(2):
        waits = index == 1
        state = {"waiting": {"reason": "ErrImagePull", "message": image}} if waits else None
        made = fake_api.pod(
            f"train-{index}",
            labels={"app": "train"},
            phase="Pending" if waits else "Running",
            state=state,
        )
        if waits and unscheduled is not None:
            del made["spec"]["nodeName"], made["status"]["containerStatuses"]
            no = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            made["status"]["conditions"] = [{**no, "message": unscheduled}]
        fake.add(PODS, made)
    fake.add("/api/v1/nodes", fake_api.node("gpu-1"))
    fake.logs["train-0", "trainer"] = b"2026-08-20T03:00:09.000000000Z starting\n"


def told(
    kubeconfig: Path, capsys: pytest.CaptureFixture[str], *target: str
) -> tuple[dict[str, Any], str]:
    """The report, and the first screen in one line."""
    way = ["triage", *target, "--kubeconfig", str(kubeconfig)]
    assert 0 == main([*way, "-o", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert 0 == main(way)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    return found, " ".join(" ".join(lines).split())


def test_an_image_that_cannot_be_pulled(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The image's name and what the registry said, not the runtime's way to it."""
    two(fake, image=PULL)
    found, screen = told(fake_kubeconfig, capsys, "-l", "app=train", "-n", "ml")
    assert ("rendezvous-failure", "watch") == (
        found["verdict"]["kind"],
        found["recommendation"]["action"],
    )
    assert (
        "cannot start since 03:00:00 (ErrImagePull: registry.example/team/train:1.2, not found)"
        in screen
    )
    assert "kubectl describe pod train-1 -n ml # says what holds it" in screen


def test_a_pod_without_room(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is lacking stands before the nodes that were no choice anyhow."""
    two(fake, unscheduled=FULL)
    _, screen = told(fake_kubeconfig, capsys, "-l", "app=train", "-n", "ml")
    assert "0/40 nodes are available: 32 Insufficient nvidia.com/gpu" in screen
    assert "since 03:00:00" in screen
    assert "kubectl describe pod train-1 -n ml # says what holds it" in screen


def test_a_group_of_pods_that_kueue_holds(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain pods with a scheduling gate: the Workload of their group says why, not the gate."""
    why = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu"
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    for index in range(2):
        labels = {"kueue.x-k8s.io/pod-group-name": "run7", "kueue.x-k8s.io/managed": "true"}
        made = fake_api.pod(f"run7-{index}", labels=labels, phase="Pending")
        del made["spec"]["nodeName"], made["status"]["containerStatuses"]
        said = "Scheduling is blocked due to non-empty scheduling gates"
        made["status"]["conditions"] = [{**gate, "message": said}]
        fake.add(PODS, made)
    pending = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": why}
    workload = {"metadata": {"name": "run7", "namespace": "ml", "uid": "uid-run7"}}
    workload |= {"spec": {"queueName": "team"}, "status": {"conditions": [pending]}}
    fake.add("/apis/kueue.x-k8s.io/v1beta1/namespaces/ml/workloads", workload)
    target = ("-l", "kueue.x-k8s.io/pod-group-name=run7", "-n", "ml")
    found, screen = told(fake_kubeconfig, capsys, *target)
    assert ("rendezvous-failure", []) == (found["verdict"]["kind"], found["verdict"]["culprits"])
    assert f"Kueue has not admitted it (Pending: {why})" in screen
    assert "its queue: team" in screen
