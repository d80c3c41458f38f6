"""The groups of a LeaderWorkerSet: one is judged, and what is ill beside it is said everywhere."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpufleet_cli.cli import main
from live import fake_api
from live.fake_api import FakeApi

LWS = "leaderworkerset.sigs.k8s.io"
PODS = "/api/v1/namespaces/ml/pods"
SELECTOR = f"{LWS}/name=serve"
FAILED = {"terminated": {"exitCode": 1, "finishedAt": "2026-08-20T03:10:00Z"}}


@pytest.fixture
def four(fake: FakeApi) -> FakeApi:
    """Groups of two pods: 0 writes now, 1 and 3 have failed, 2 is held back."""
    states: dict[int, dict[str, Any]] = {
        1: {"phase": "Failed", "state": FAILED},
        2: {"phase": "Pending", "state": {"waiting": {"reason": "ContainerCreating"}}},
        3: {"phase": "Failed", "state": FAILED},
    }
    for group in range(4):
        for worker in range(2):
            labels = {
                f"{LWS}/name": "serve",
                f"{LWS}/group-index": str(group),
                f"{LWS}/worker-index": str(worker),
            }
            name = f"serve-{group}-{worker}"
            marks = {f"{LWS}/size": "2"}
            made = fake_api.pod(name, labels=labels, annotations=marks, **states.get(group, {}))
            fake.add(PODS, made)
            at = datetime.now(UTC) if group == 0 else datetime(2026, 8, 20, 3, 10, tzinfo=UTC)
            line = f"{at:%Y-%m-%dT%H:%M:%S}.000000000Z [rank{worker}]: step 10 loss 2.0\n"
            fake.logs[name, "trainer"] = line.encode()
    fake.add("/api/v1/nodes", fake_api.node("gpu-1"))
    return fake


@pytest.mark.usefixtures("four")
def test_the_other_ill_groups_are_told(
    fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On standard error, in JSON, on the first screen; what is missing names the ill ones first. In the bundle too."""
    way = ["-l", SELECTOR, "--kubeconfig", str(fake_kubeconfig)]
    main(["triage", *way, "-o", "json", "--save", str(tmp_path / "saved")])
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert "group 1 of 4 groups" in told.err
    assert "ill too: 2 (pending), 3 (failed); --group 2 chooses it" in told.err
    assert 1 == found["job"]["group"]
    states = {one["group"]: one["state"] for one in found["job"]["groups"]}
    assert ("failed", "pending", "failed") == (states[1], states[2], states[3])
    why = {one["what"]: one for one in found["missing_evidence"]}
    assert why["group 3 of serve"]["why"].startswith("it is ill too (failed), and ")
    assert why["group 3 of serve"]["would_settle"].endswith("-n ml --group 3")
    main(["triage", str(tmp_path / "saved")])
    screen = capsys.readouterr().out
    assert "ill too: 2 (pending), 3 (failed)" in "\n".join(screen.splitlines()[:3])
    main(["triage", str(tmp_path / "saved"), "-o", "json"])
    again = json.loads(capsys.readouterr().out)
    assert {**found, "target": None} == {**again, "target": None}


@pytest.mark.usefixtures("four")
def test_a_group_is_chosen(fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--group N`; one that is not there is a usage error that names those that are."""
    way = ["-l", SELECTOR, "--kubeconfig", str(fake_kubeconfig), "-o", "json"]
    main(["triage", *way, "--group", "3"])
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert {"serve-3-0", "serve-3-1"} >= {row["pod"] for row in found["ranks"] if row["pod"]}
    assert 3 == found["job"]["group"]
    assert "ill too: 1 (failed), 2 (pending)" in told.err
    assert 2 == main(["triage", *way, "--group", "9"])
    out, err = capsys.readouterr()
    assert ("", True) == (out, "there are: 0, 1, 2, 3" in err)


def test_a_job_without_groups(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Says so, and reads nothing more."""
    fake.add(PODS, fake_api.pod("train-0", labels={"app": "train"}))
    way = ["-l", "app=train", "--kubeconfig", str(fake_kubeconfig)]
    assert 2 == main(["triage", *way, "--group", "0"])
    assert "has no groups" in capsys.readouterr().err


@pytest.mark.usefixtures("four")
def test_doctor_of_one_group(fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pods of that group alone count; a group that is not there, or of no job, is refused in one line."""
    kubeconfig = ["--kubeconfig", str(fake_kubeconfig)]
    way = ["doctor", "-l", SELECTOR, "-o", "json", *kubeconfig]
    job = {}
    for more in ((), ("--group", "3")):
        main([*way, *more])
        found = json.loads(capsys.readouterr().out)["sources"]
        job[more] = next(one["what"] for one in found if one["source"] == "job")
    assert ": 8" in job[()]
    assert ", group 3: 2 of 2 pods, failed" in job["--group", "3"]
    for asked, why in (
        ([*way, "--group", "9"], "there are: 0, 1, 2, 3"),
        (["doctor", *kubeconfig, "--group", "3"], "--group 3 is a group of a job"),
    ):
        assert 2 == main(asked)
        out, err = capsys.readouterr()
        assert ("", True) == (out, why in err), err


def test_groups_that_were_not_looked_at_are_not_well(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Only so many are asked; the first screen says how many."""
    now = datetime.now(UTC)
    for group in range(70):
        labels = {f"{LWS}/name": "serve", f"{LWS}/group-index": str(group)}
        name = f"serve-{group}"
        fake.add(PODS, fake_api.pod(name, labels=labels, annotations={f"{LWS}/size": "1"}))
        fake.logs[name, "trainer"] = f"{now:%Y-%m-%dT%H:%M:%S}.000000000Z step 1\n".encode()
    fake.add("/api/v1/nodes", fake_api.node("gpu-1"))
    saved = str(tmp_path / "saved")
    way = ["-l", f"{LWS}/name=serve", "--kubeconfig", str(fake_kubeconfig)]
    main(["triage", *way, "--save", saved])
    screen = capsys.readouterr().out
    assert "group 0 of 70; 63 of the 69 others were looked at: none is ill" in screen
