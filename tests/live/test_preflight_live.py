"""`gpufleet preflight JOB`: the job's own objects, and what stands beside them in its namespace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import preflight_mistakes as mistakes
import pytest

from gpufleet_cli.cli import main
from live import fake_api
from live.fake_api import FakeApi, failure

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/train/jobsets"
PODS = "/api/v1/namespaces/train/pods"
PDBS = "/apis/policy/v1/namespaces/train/poddisruptionbudgets"
HPAS = "/apis/autoscaling/v2/namespaces/train/horizontalpodautoscalers"


def asked(
    capsys: pytest.CaptureFixture[str], kubeconfig: Path, *arguments: str, status: int
) -> dict[str, Any]:
    assert main(["preflight", *arguments, "--kubeconfig", str(kubeconfig), "-o", "json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def running(fake: FakeApi) -> dict[str, Any]:
    """The good JobSet with two of its pods."""
    found = mistakes.job(mistakes.good("jobset"))
    found["metadata"]["uid"] = "uid-llm"
    fake.add(JOBSETS, found)
    for index in range(2):
        labels = {"jobset.sigs.k8s.io/jobset-name": "llm"}
        fake.add(PODS, fake_api.pod(f"llm-workers-0-{index}", labels=labels, namespace="train"))
    return found


def test_a_good_job_in_the_cluster_is_silent(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found by its name, read as it stands there, and nothing is written."""
    running(fake)
    found = asked(capsys, fake_kubeconfig, "llm", "-n", "train", status=0)
    assert [(one["kind"], one["gpus"], one["taken_as"]) for one in found["read"]] == [
        ("JobSet", 32, "training gang")
    ]
    assert fake.changes == []


def test_what_stands_beside_it_is_looked_at(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A budget that lets one rank go, an autoscaler on the job: items of lists, which carry no type."""
    running(fake)
    selector = {"matchLabels": {"app": "llm"}}
    meta = {"namespace": "train"}
    fake.add(
        PDBS,
        {"metadata": {"name": "b", **meta}, "spec": {"maxUnavailable": 1, "selector": selector}},
    )
    target = {"kind": "JobSet", "name": "llm"}
    fake.add(HPAS, {"metadata": {"name": "h", **meta}, "spec": {"scaleTargetRef": target}})
    found = asked(capsys, fake_kubeconfig, "jobset/llm", status=10)
    standing = {one["id"] for one in found["findings"] if one["severity"] != "info"}
    assert standing == {"pdb", "hpa"}


def test_a_list_that_may_not_be_read_is_told_and_no_more(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Information: it is not the job's fault."""
    running(fake)
    fake.odd.append(lambda path, _: failure(403) if path == PDBS else None)
    found = asked(capsys, fake_kubeconfig, "llm", "-n", "train", status=0)
    told = [one["message"] for one in found["findings"] if one["id"] == "not-read"]
    assert len(told) == 1
    assert told[0].startswith("poddisruptionbudgets")


def test_a_name_that_is_nowhere_is_4(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both looks are named."""
    given = ["preflight", "nowhere", "-n", "train", "--kubeconfig", str(fake_kubeconfig)]
    assert main(given) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert "no job nowhere in namespace train" in err
