"""`gpufleet doctor`: each source once, what would be lacking, what to do, and the exit status."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from servers.metrics import Series, held, xid_series
from servers.victoria import Stream

from gpufleet_cli.cli import main
from gpufleet_cli.live import doctor_job, doctor_stores
from gpufleet_cli.live.metric_probe import WORTH_HAVING
from gpufleet_cli.live.pods import Pod, pods_of
from live import fake_api
from live.fake_api import FakeApi

PREFIX = "/dumps/nccl_trace_rank_"
GOOD = {
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": PREFIX,
}


def asked(
    capsys: pytest.CaptureFixture[str], *arguments: str, status: int
) -> dict[str, dict[str, Any]]:
    """The sources by name."""
    assert status == main(["doctor", *arguments, "-o", "json"])
    document = json.loads(capsys.readouterr().out)
    return {one["source"]: one for one in document["sources"]}


def pod(volume: dict[str, Any] | None = None, **env: str) -> Pod:
    """A pod whose rank container has this environment, and a volume where dumps go."""
    made = fake_api.pod("train-0", env=env)
    if volume is not None:
        made["spec"]["volumes"] = [{"name": "dumps", **volume}]
        made["spec"]["containers"][0]["volumeMounts"] = [{"name": "dumps", "mountPath": "/dumps"}]
    return pods_of([made])[0]


def test_nothing_configured(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server, the user and every right are named; what is missing has an action."""
    found = asked(capsys, "--kubeconfig", str(fake_kubeconfig), status=3)
    what = found["API server"]["what"]
    assert f"context fake, {fake.url} (v1.34.4), user anna" == what
    assert found["right to get pods/log in ml"]["ok"]
    assert "--prometheus URL" in found["metrics"]["action"]
    assert "XID history" in found["metrics"]["would_lack"]
    assert not found["log store"]["ok"]
    assert found["settings file"]["ok"]
    assert "gpufleet doctor JOB tries it" in found["dumps"]["what"]


def test_a_missing_right_has_the_command_that_grants_it(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once a role, for the user as the server knows it; one that is not sure is said as that."""
    fake.denied |= {("get", "pods/log"), ("list", "events"), ("get", "pods/exec")}
    fake.unsure.add(("get", "nodes"))
    fake.user = "system:serviceaccount:ml:oncall"
    found = asked(capsys, "--kubeconfig", str(fake_kubeconfig), status=3)
    logs, events = found["right to get pods/log in ml"], found["right to list events in ml"]
    assert (False, "not allowed") == (logs["ok"], logs["what"])
    assert "who fell silent" in logs["would_lack"]
    assert (
        "kubectl apply -R -f deploy/rbac; kubectl create clusterrolebinding gpufleet-reader "
        "--clusterrole=gpufleet-reader --serviceaccount=ml:oncall" == logs["action"]
    )
    assert "" == events["action"]
    unsure = found["right to get nodes"]
    assert (True, True) == (unsure["ok"], unsure["would_lack"].startswith("perhaps"))
    assert "webhook" in unsure["what"]
    assert not found["dumps"]["ok"]
    assert 3 == main(["doctor", "--kubeconfig", str(fake_kubeconfig)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 36
    assert all(len(line) <= 80 for line in lines)


def test_a_store_behind_the_service_proxy_needs_a_right_of_its_own(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Said before it is asked, with the commands that grant it for this one Service; triage says it at its start."""
    fake.denied.add(("get", "services/proxy"))
    said = 'services "p:90" is forbidden: User "anna" cannot get resource "services/proxy"'
    fake.odd.append(lambda path, _: fake_api.failure(403, said) if "/proxy" in path else None)
    way = ["--kubeconfig", str(fake_kubeconfig), "--prometheus", "svc:mon/p:90"]
    found = asked(capsys, *way, "--log-store", "loki+https://loki", "--deadline", "9", status=3)
    right = found["right to get services/proxy in mon"]
    assert (False, doctor_stores.XIDS) == (right["ok"], right["would_lack"])
    assert "needs get on services/proxy in mon" in found["metrics"]["what"]
    role = "kubectl create role gpufleet-p -n mon --verb=get --resource=services/proxy"
    bound = "kubectl create rolebinding gpufleet-p -n mon --role=gpufleet-p --user=anna"
    assert f"{role} --resource-name=p:90; {bound}" == right["action"]
    fake.add("/api/v1/namespaces/ml/pods", fake_api.pod("w-0", labels={"job": "t"}))
    main(["collect", "-l", "job=t", "-n", "ml", "--to", str(tmp_path / "b"), *way])
    err = capsys.readouterr().err
    assert "not allowed: get services/proxy in mon: not seen tonight: the XID history" in err
    assert "needs get on services/proxy in mon" in (tmp_path / "b/manifest.json").read_text()


def test_nothing_reached_is_four(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said for each source; a folder of dumps that can be read is something, though."""
    monkeypatch.setenv("PATH", str(tmp_path))
    found = asked(capsys, status=4)
    assert "no kubeconfig" in found["API server"]["what"]
    assert "a second way into the cluster" == found["kubectl"]["would_lack"]
    (tmp_path / "dumps").mkdir()
    again = asked(capsys, "--dumps", str(tmp_path / "dumps"), status=3)
    assert again["dumps"]["ok"]
    gone = asked(capsys, "--dumps", str(tmp_path / "gone"), status=4)
    assert "no such file or directory" in gone["dumps"]["what"]


def test_a_wrong_settings_file_is_a_finding(
    fake_kubeconfig: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tonight's triage would stop at it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "gpufleet").mkdir()
    (tmp_path / "gpufleet" / "config.toml").write_text("[contexts", encoding="utf-8")
    found = asked(capsys, "--kubeconfig", str(fake_kubeconfig), status=3)["settings file"]
    assert (False, True) == (found["ok"], "everything" in found["would_lack"])


def test_all_is_there(
    fake: FakeApi,
    fake_kubeconfig: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    prometheus: Callable[..., str],
    victoria_logs: Callable[[Iterable[Stream]], str],
) -> None:
    """Real stores that hold what a triage asks for: exit 0, and a sample of each."""
    now = datetime.now(UTC).replace(microsecond=0)
    made = xid_series("gpu-1", 0, held(now - timedelta(minutes=50), now))
    series: list[Series] = [made, *(replace(made, name=name) for name in WORTH_HAVING)]
    labels = {"pod": "train-0", "namespace": "ml"}
    lines = Stream(labels=labels, lines=[(now - timedelta(minutes=2), "step 1")])
    fake.add("/api/v1/nodes", {**(one := fake_api.node("gpu-1")), "status": {
        **one["status"], "capacity": {"nvidia.com/gpu": "8"}}})  # fmt: skip
    given = ["--kubeconfig", str(fake_kubeconfig), "--dumps", str(tmp_path)]
    given += ["--prometheus", prometheus(series)]
    given += ["--log-store", f"victorialogs+{victoria_logs([lines])}"]
    found = asked(capsys, *given, status=0)
    assert "XID series such as DCGM_FI_DEV_XID_ERRORS{" in found["metrics"]["what"]
    assert "1 of 1 nodes by Hostname" in found["metrics"]["what"]
    assert "train-0" in found["log store"]["what"]
    assert "none given: XIDs come from the metrics" == found["kernel logs"]["what"]
    assert 0 == main(["doctor", *given])
    told = capsys.readouterr().out
    assert "Tonight's triage has what it needs." in told
    assert len(told.splitlines()) <= 24


def test_a_job_that_ended_and_records_nothing(
    fake: FakeApi, fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its pods' settings are read; exec is not tried in what has ended."""
    labels = {"batch.kubernetes.io/job-name": "train"}
    meta = {"name": "train", "namespace": "ml", "uid": "u"}
    fake.add("/apis/batch/v1/namespaces/ml/jobs", {"metadata": meta, "spec": {"completions": 1}})
    ended = {"terminated": {"exitCode": 1, "finishedAt": "2026-08-20T03:10:00Z"}}
    env = {**GOOD, "TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}
    made = fake_api.pod("train-0", labels=labels, phase="Failed", state=ended, env=env)
    fake.add("/api/v1/namespaces/ml/pods", made)
    found = asked(capsys, "train", "--kubeconfig", str(fake_kubeconfig), status=3)
    assert "Job ml/train: 1 of 1 pods, failed" == found["job"]["what"]
    assert "buffer size 0: records nothing" in found["recorder"]["what"]
    assert "TORCH_FR_BUFFER_SIZE=2000" in found["recorder"]["action"]
    assert "its container has terminated" in found["dumps"]["what"]
    gone = asked(capsys, "other", "--kubeconfig", str(fake_kubeconfig), status=3)
    assert "no job other" in gone["job"]["what"]


def test_what_the_recorder_would_leave() -> None:
    """Set and on a volume that outlives the pod; not set is not known; a ConfigMap's value neither."""
    good = doctor_job.recorder([pod({"hostPath": {"path": "/var/dumps"}}, **GOOD)])
    assert (True, "") == (good.ok, good.would_lack)
    assert f"{PREFIX} on hostPath dumps" in good.what
    empty = doctor_job.recorder([pod({"emptyDir": {}}, **GOOD)])
    assert (False, "dumps once the pod is gone") == (empty.ok, empty.would_lack)
    bare = doctor_job.recorder([pod({"nfs": {}}, TORCH_NCCL_DEBUG_INFO_TEMP_FILE=PREFIX)])
    assert (True, True) == (bare.ok, bare.would_lack.startswith("perhaps"))
    off = doctor_job.recorder([pod({"nfs": {}}, **{**GOOD, "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"})])
    assert (False, "dumps at a timeout") == (off.ok, off.would_lack)
    elsewhere = doctor_job.recorder(
        [pod({"nfs": {}}, **{**GOOD, "TORCH_NCCL_DUMP_ON_TIMEOUT": ""})]
    )
    assert (True, "not in the spec" in elsewhere.what) == (elsewhere.ok, True)
    closed = fake_api.pod("train-0", env=GOOD)
    closed["spec"]["containers"][0]["securityContext"] = {"readOnlyRootFilesystem": True}
    told = doctor_job.recorder(pods_of([closed]))
    assert (False, doctor_job.DUMPS) == (told.ok, told.would_lack)
    mixed = doctor_job.recorder([pod({"nfs": {}}, **GOOD), pod(None, **GOOD)])
    assert (False, True) == (mixed.ok, mixed.what.startswith("1 of 2 pods: "))


def test_yaml(fake_kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same document."""
    assert 3 == main(["doctor", "--kubeconfig", str(fake_kubeconfig), "-o", "yaml"])
    document = yaml.safe_load(capsys.readouterr().out)
    assert {"source", "ok", "what", "would_lack", "action"} == set(document["sources"][0])
