"""`deploy/dask/`: what a real API server takes of it, and what it leaves to nobody."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from servers.cluster import Cluster

from gpufleet_cli import __version__

ROOT = Path(__file__).parents[2]
DASK = ROOT / "deploy" / "dask"
POD_KINDS = {"Deployment", "Job"}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DASK / name).read_text(encoding="utf-8")))


def pods() -> dict[str, dict[str, Any]]:
    """Every pod spec in the folder, by file and name."""
    found = {}
    for path in sorted(DASK.glob("*.yaml")):
        for one in documents(path.name):
            name = f"{path.name}/{one['metadata']['name']}"
            if one["kind"] in POD_KINDS:
                found[name] = one["spec"]["template"]["spec"]
            elif one["kind"] == "DaskCluster":
                found |= {
                    f"{name}/{role}": one["spec"][role]["spec"] for role in ("worker", "scheduler")
                }
    return found


@pytest.mark.parametrize("name", pods())
def test_pods_may_nothing(name: str) -> None:
    """No token, no root, nothing written but /tmp and the parts; one image, without a registry's name."""
    spec = pods()[name]
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "gpufleet-dask"
    assert spec["securityContext"]["runAsNonRoot"] is True
    (container,) = spec["containers"]
    assert container["image"] == f"gpufleet:{__version__}"
    closed = container["securityContext"]
    assert (closed["readOnlyRootFilesystem"], closed["allowPrivilegeEscalation"]) == (True, False)
    assert closed["capabilities"] == {"drop": ["ALL"]}
    assert {"requests", "limits"} == set(container["resources"])
    assert {one["mountPath"] for one in container["volumeMounts"]} <= {"/tmp", "/parts"}


def test_both_clusters_are_one() -> None:
    """The operator's and the plain one differ in who makes their pods."""
    made = pods()
    own, plain = made["operator.yaml/gpufleet/worker"], made["plain.yaml/gpufleet-dask-worker"]
    theirs = [one for one in own["containers"][0]["args"] if "DASK_WORKER_NAME" not in one]
    ours = [one for one in plain["containers"][0]["args"] if not one.startswith("tcp://")]
    assert [one for one in theirs if one != "--name"] == ours
    for spec in (own, plain):
        spec["containers"][0]["args"] = []
    assert own == plain
    assert made["operator.yaml/gpufleet/scheduler"] == made["plain.yaml/gpufleet-dask-scheduler"]


def test_no_place_of_anybodys_and_no_secret() -> None:
    """Nothing but names that a reader puts their own in."""
    for path in DASK.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\b[\w-]+\.(?:io|com|org)/[\w-]+/|:latest", text), path
        assert not re.search(r"(?:SECRET_ACCESS_KEY|password)\s*[:=]\s*[^.\s\"]", text), path


def test_the_job_shares_all_of_it() -> None:
    (job,) = documents("job.yaml")
    args = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--shard=$(JOB_COMPLETION_INDEX)/{job['spec']['completions']}" in args


def test_scripts_are_scripts() -> None:
    """Read by their own shell and by Python; dask-jobqueue is not installed here."""
    assert 0 == subprocess.run(["bash", "-n", DASK / "slurm_array.sh"], check=False).returncode
    compile((DASK / "slurm_cluster.py").read_text(encoding="utf-8"), "slurm_cluster.py", "exec")


def test_the_api_server_takes_them(cluster: Cluster, tmp_path: Path) -> None:
    """By the server's own dry run, unknown fields refused; the operator's pods as plain ones, since its kind is not there."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on PATH")
    admin = cluster.write_kubeconfig(tmp_path / "admin")
    made = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"dask-{role}"}, "spec": spec}
        for role, spec in (
            ("worker", pods()["operator.yaml/gpufleet/worker"]),
            ("scheduler", pods()["operator.yaml/gpufleet/scheduler"]),
        )
    ]
    for pod in made:
        del pod["spec"]["serviceAccountName"]  # admission wants the account to be there
        (tmp_path / f"{pod['metadata']['name']}.json").write_text(json.dumps(pod))
    files = [DASK / name for name in ("objects.yaml", "plain.yaml", "job.yaml")]
    for path in (*files, *tmp_path.glob("dask-*.json")):
        command = [kubectl, "--kubeconfig", str(admin), "apply", "--dry-run=server"]
        command += ["--validate=strict", "-n", "default", "-f", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert 0 == done.returncode, done.stderr
        assert "Warning" not in done.stderr
