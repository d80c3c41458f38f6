"""Manifests after public documentation, reviewed by hand; servers; and a server's pod spec pasted onto a job."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import preflight_mistakes as mistakes
import pytest

from gpufleet_cli import cost
from gpufleet_cli.operate.preflight.check import checked
from gpufleet_cli.operate.preflight.documents import read_text
from gpufleet_cli.spec_check import Preflight

FIXTURES = Path(__file__).parents[2] / "fixtures" / "preflight"
SERVING = sorted((FIXTURES / "serving").glob("*.yaml"))

# What stands at warning or above, as a person found it right.
EXPECTED: dict[str, set[str]] = {
    "jobset-failure-rules": set(),
    "jobset-pytorch": {"restart-policy"},
    "jobset-simple": set(),
    "jobset-tpu": set(),
    "kubeflow-mpijob-benchmarks": {
        "restart-policy", "nccl-debug-log", "gang-scheduling", "grace-period",
    },
    "kubeflow-mpijob-pi": {"restart-policy", "evidence-ttl"},
    "kubeflow-pytorchjob-cpu": set(),
    "kubeflow-pytorchjob-elastic": {"retries-many", "hpa"},
    "kubeflow-pytorchjob-mnist": {
        "restart-policy", "recorder-off", "shared-memory", "gang-scheduling", "grace-period",
    },
    "kubeflow-trainjob": {
        "restart-policy", "recorder-off", "shared-memory", "rdma", "gang-scheduling", "grace-period",
    },
    "kubeflow-trainjob-own-runtime": set(),
    "kuberay-raycluster": set(),
    "kuberay-rayjob-train": {"recorder-off", "evidence-ttl", "gang-scheduling", "grace-period"},
    "kueue-gpu-array": set(),
    "kueue-pytorchjob": {"restart-policy"},
    "kueue-sample-job": set(),
    "kueue-topology-job": {
        "single-rank-retry", "recorder-lost", "shared-memory", "rdma", "grace-period",
    },
    "lws-sample": set(),
    "volcano-mpi": set(),
    "volcano-pytorch": {
        "restart-policy", "recorder-off", "shared-memory", "min-available", "grace-period",
    },
}  # fmt: skip


def of_file(path: Path) -> Preflight:
    found, unread = read_text(path.name, path.read_bytes())
    assert not unread
    return checked(found)


def standing(found: Preflight) -> set[str]:
    return {one.id for one in found.findings if one.severity != "info"}


def test_every_example_was_reviewed() -> None:
    """Twenty of them, none left out."""
    assert {one.stem for one in (FIXTURES / "examples").glob("*.yaml")} == set(EXPECTED)
    assert len(EXPECTED) == 20


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_an_example_has_the_findings_that_a_person_confirmed(name: str) -> None:
    """No more and no fewer."""
    assert standing(of_file(FIXTURES / "examples" / f"{name}.yaml")) == EXPECTED[name]


@pytest.mark.parametrize("path", SERVING, ids=lambda path: path.stem)
def test_a_server_gets_nothing_at_warning_or_above(path: Path) -> None:
    """Its probes, budgets and rolling updates are right where they are."""
    found = of_file(path)
    assert standing(found) == set()
    assert [one.taken_as for one in found.read] == ["serving"]


def test_there_are_nine_servers() -> None:
    """Deployment, StatefulSet, LeaderWorkerSet, RayService, KServe, a Pod, a List."""
    assert len(SERVING) == 9


INSTINCTS = {
    "restart-policy", "retries-stacked", "recorder-off", "shared-memory", "hpa", "pdb", "liveness-probe",
    "rolling-update", "evictable", "grace-period", "gang-scheduling", "rdma", "evidence-ttl",
    "checkpoint-in-container", "nccl-debug-log", "secret-in-env", "vpa", "toleration-short",
}  # fmt: skip


def pasted() -> mistakes.Documents:
    """A JobSet of 4 x 8 GPUs with all that a serving team's template brings along."""
    documents = mistakes.good("jobset")
    job = mistakes.job(documents)
    job["metadata"].pop("labels")
    job["spec"] |= {"strategy": {"type": "RollingUpdate"}, "ttlSecondsAfterFinished": 600}
    child = job["spec"]["replicatedJobs"][0]["template"]["spec"]
    child["backoffLimit"] = 6
    served = copy.deepcopy(child["template"])
    served["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    mistakes.container(served).update(
        env=[
            {"name": "HF_TOKEN", "value": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"},
            {"name": "NCCL_DEBUG", "value": "INFO"},
        ],
        livenessProbe=mistakes.PROBE, readinessProbe=mistakes.PROBE, volumeMounts=[],
        resources={"limits": {"nvidia.com/gpu": 8}},
    )  # fmt: skip
    served["spec"].update(restartPolicy="OnFailure", terminationGracePeriodSeconds=30, volumes=[])
    child["template"] = served
    for edit in (
        mistakes.HPA,
        mistakes.VPA,
        mistakes.budget(maxUnavailable=1),
        mistakes.toleration(30),
    ):
        edit(documents)
    return documents


def test_every_instinct_of_a_serving_team_is_caught_with_its_price() -> None:
    """Those that cost GPU-hours say how many, by the functions that triage uses and 32 GPUs."""
    found = read_text("pasted.json", json.dumps(pasted()).encode())[0]
    result = checked(found)
    assert standing(result) == INSTINCTS
    priced = {one.id: one.costs for one in result.findings if one.severity != "info" and one.costs}
    assert INSTINCTS - set(priced) == {"rdma", "secret-in-env"}
    kill = cost.gpu_hours(32, cost.DEFAULT_CHECKPOINT_INTERVAL_S / 2 + cost.DEFAULT_RESTART_S)
    wait = cost.gpu_hours(32, cost.DEFAULT_WATCHDOG_S)
    for id_ in ("liveness-probe", "hpa", "pdb", "rolling-update", "evictable", "grace-period"):
        assert priced[id_] is not None and priced[id_].startswith(f"each time {kill:.0f} GPU-h")
    for id_ in ("restart-policy", "retries-stacked"):
        assert f"{wait:.1f} GPU-h idle" in priced[id_]
    assert f"{kill + wait:.0f} GPU-h" in priced["recorder-off"]
