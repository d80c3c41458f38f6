"""A namespace's ResourceQuota that refuses pods: the API server's own words, none or some of the gang made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from servers import jobs, nodes, pods
from servers.namespaces import Namespace
from servers.running import wait_until

from gpufleet_cli.cli import main

GPUS_A_POD = 8


def _quota(namespace: Namespace, gpus: int) -> None:
    """So many GPUs for the namespace; enforced once the controller has counted what is used."""
    jobs.made(
        namespace,
        "v1",
        "ResourceQuota",
        "gpus",
        spec={"hard": {"requests.nvidia.com/gpu": str(gpus)}},
    )
    path = namespace.path("resourcequotas/gpus")
    wait_until(
        lambda: namespace.api.get(path).get("status", {}).get("used"), "the quota is counted"
    )


def _refused(namespace: Namespace) -> list[dict[str, Any]]:
    events = namespace.api.items(namespace.path("events"))
    return [e for e in events if "exceeded quota" in str(e.get("message"))]


def _triage(
    namespace: Namespace, kubeconfig: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, str, str]:
    code = main(["triage", "train", "-n", namespace.name, "--kubeconfig", str(kubeconfig), *more])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.parametrize("room", [0, 2], ids=["no pod made", "half of the gang made"])
def test_a_quota_that_refuses_pods(
    room: int, namespace: Namespace, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The quota and what it leaves are told, nobody is named, and the command shows the rest."""
    nodes.make(namespace, 4, gpus=GPUS_A_POD)
    _quota(namespace, room * GPUS_A_POD)
    jobs.indexed_job(namespace, "train")
    wait_until(lambda: _refused(namespace), "a pod was refused")
    pods.wait(namespace, "job-name=train", room)
    code, out, err = _triage(namespace, kubeconfig, capsys, "-o", "json")
    assert 0 == code, err
    found: dict[str, Any] = json.loads(out)
    verdict, advice = found["verdict"], found["recommendation"]
    assert ("rendezvous-failure", []) == (verdict["kind"], verdict["culprits"]), out
    assert ("watch", []) == (advice["action"], advice["nodes"]), out
    told = verdict["summary"]
    assert f"exceeded quota: gpus, requested: requests.nvidia.com/gpu={GPUS_A_POD}" in told
    assert ("2 others wait for it" in told) is (room == 2)
    assert f"{GPUS_A_POD // 2 - room} of its pods were refused" in told or room == 0
    shown = f"kubectl describe resourcequota gpus -n {namespace.name}"
    assert [shown] == [one["run"] for one in advice["commands"] if "describe" in one["run"]]


def test_a_quota_that_was_raised_is_no_reason_any_more(
    namespace: Namespace, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The event stands for an hour; a gang that is whole is not told to lack pods."""
    nodes.make(namespace, 4, gpus=GPUS_A_POD)
    _quota(namespace, 0)
    jobs.indexed_job(namespace, "train")
    wait_until(lambda: _refused(namespace), "a pod was refused")
    hard = {"spec": {"hard": {"requests.nvidia.com/gpu": str(4 * GPUS_A_POD)}}}
    namespace.api.patch(namespace.path("resourcequotas/gpus"), hard)
    pods.wait(namespace, "job-name=train", 4)
    _, out, err = _triage(namespace, kubeconfig, capsys, "-o", "json")
    assert "quota" not in json.loads(out)["verdict"]["summary"], err


def test_a_job_that_ended_and_lost_its_pods_is_not_waiting(
    namespace: Namespace, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a refusal of its first minutes still stands: 4, the pods are gone."""
    nodes.make(namespace, 4, gpus=GPUS_A_POD)
    _quota(namespace, 0)
    jobs.indexed_job(namespace, "train", spec={"activeDeadlineSeconds": 2})
    wait_until(lambda: _refused(namespace), "a pod was refused")
    path = f"/apis/batch/v1/namespaces/{namespace.name}/jobs/train"
    wait_until(lambda: _has_failed(namespace.api.get(path)), "the job has failed")
    code, out, err = _triage(namespace, kubeconfig, capsys)
    assert (4, "") == (code, out)
    assert "no pods" in err


def _has_failed(job: dict[str, Any]) -> bool:
    return any(
        (one["type"], one["status"]) == ("Failed", "True")
        for one in job.get("status", {}).get("conditions", [])
    )
