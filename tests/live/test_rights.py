"""What we may do: asked side by side, told with what is lost, and never a reason to stop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpufleet_cli.cli import main
from gpufleet_cli.live import rights
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.rights import Right
from live import fake_api
from live.fake_api import FakeApi

LOGS = Right(verb="get", resource="pods/log", namespace="ml", loses="what ranks wrote")
NODES = Right(verb="list", resource="nodes", loses="dead nodes")
JOB = "/apis/batch/v1/namespaces/ml/jobs"


@pytest.fixture
def job(fake: FakeApi) -> FakeApi:
    """A job of two pods that step."""
    meta = {"name": "train", "namespace": "ml", "uid": "uid-train"}
    fake.add(JOB, {"metadata": meta, "spec": {"completions": 2, "parallelism": 2}})
    for index in range(2):
        labels = {
            "batch.kubernetes.io/job-name": "train",
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        name = f"train-{index}"
        fake.add("/api/v1/namespaces/ml/pods", fake_api.pod(name, labels=labels))
        line = f"2026-08-20T03:10:00.000000000Z [rank{index}]: step 10 loss 2.0\n"
        fake.logs[(name, "trainer")] = line.encode()
    fake.add("/api/v1/nodes", fake_api.node("gpu-1"))
    return fake


def test_yes_no_and_not_sure(fake: FakeApi, api: Api) -> None:
    """A refusal beside an evaluation error is no firm no."""
    fake.denied.add(("get", "pods/log"))
    fake.unsure.add(("list", "nodes"))
    pods = Right(verb="list", resource="pods", namespace="ml", loses="pods")
    found = rights.review(api, (LOGS, NODES, pods))
    assert [False, None, True] == [one.allowed for one in found]
    assert "webhook: connection refused" == found[1].why
    assert "anna" == rights.who_am_i(api)


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_review_that_fails_says_nothing(fake: FakeApi, api: Api, status: int) -> None:
    """Not a no, and not an error."""
    fake.odd.append(lambda path, _: fake_api.failure(status) if "/authorization" in path else None)
    assert [None] == [one.allowed for one in rights.review(api, (LOGS,))]


def test_what_a_missing_right_loses(
    job: FakeApi, fake_kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error after the first facts, and in the manifest."""
    job.denied |= {("get", "pods/log"), ("get", "pods/exec")}
    bundle = tmp_path / "bundle"
    assert 3 == main(
        ["collect", "train", "--to", str(bundle), "--kubeconfig", str(fake_kubeconfig)]
    )
    told = capsys.readouterr().err
    assert "context fake at http://127.0.0.1" in told
    assert "not allowed: get pods/log in ml: not seen tonight: what every rank wrote" in told
    assert "binds gpufleet-capture and gpufleet-reader (deploy/rbac)" in told
    missing = {
        one["what"]: one for one in json.loads((bundle / "manifest.json").read_text())["missing"]
    }
    assert "not granted (gpufleet-reader)" == missing["the right to get pods/log in ml"]["why"]
    assert "the right to get pods/exec in ml" in missing
    assert "the right to get nodes" not in missing


def test_a_review_that_hangs_holds_nothing_up(
    job: FakeApi, fake_kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rest is gathered; what is not known is not said."""
    job.odd.append(lambda path, _: fake_api.Said(hold_s=20.0) if "accessreviews" in path else None)
    bundle = tmp_path / "bundle"
    main(["collect", "train", "--to", str(bundle), "--kubeconfig", str(fake_kubeconfig)])
    document = json.loads((bundle / "manifest.json").read_text())
    assert 2 == sum(path.endswith("current.log") for path in document["files"])
    assert not [one for one in document["missing"] if "the right to" in one["what"]]
    assert "not allowed" not in capsys.readouterr().err


def test_a_node_without_rights_to_its_events(
    job: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The card is shown, and what is not in it is said."""
    job.denied.add(("list", "events"))
    assert 0 == main(["node", "gpu-1", "--kubeconfig", str(fake_kubeconfig)])
    told = capsys.readouterr()
    assert "not allowed: list events in default: not seen tonight: its reboots" in told.err
    assert "gpu-1" in told.out
