"""Pods that are gone: their names by kind of job, and a job of which only the log store has something left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from servers.metrics import Series, held, xid_series
from servers.victoria import Stream

from gpufleet_cli.cli import main
from gpufleet_cli.live import gone_pods, kinds
from gpufleet_cli.live.find_job import Job
from live import cluster_stories as stories
from live import fake_api
from live.fake_api import FakeApi

JOBS = "/apis/batch/v1/namespaces/ml/jobs"
SPECS: dict[str, dict[str, Any]] = {
    "JobSet": {"replicatedJobs": [{"name": "w"}, {"name": "driver"}]},
    "PyTorchJob": {"pytorchReplicaSpecs": {"Master": {}, "Worker": {}}},
    "VolcanoJob": {"tasks": [{"name": "worker"}]},
}


def job(kind: str, name: str = "train") -> Job:
    found = next(one for one in kinds.KINDS if one.kind == kind)
    top = {"metadata": {"name": name, "namespace": "ml"}, "spec": SPECS.get(kind, {})}
    return Job(
        name=name, namespace="ml", kind=found, uid="u", objects=(top,), pods=(), attempts=(), gang=2
    )


@pytest.mark.parametrize(
    ("kind", "own", "others"),
    [
        ("Job", ["train-0-x7k2p", "train-x7k2p"], ["train-2-0-x7k2p", "train-v2-0-x7k2p", "trained-x7k2p"]),
        ("JobSet", ["train-w-0-1-x7k2p", "train-driver-0-x7k2p"], ["train-2-w-0-1-x7k2p", "train-v-0-1-x7k2p"]),
        ("TrainJob", ["train-node-0-1-x7k2p"], ["train-0-x7k2p"]),
        ("PyTorchJob", ["train-master-0", "train-worker-11"], ["train-2-worker-0", "train-eval-0"]),
        ("MPIJob", ["train-worker-3", "train-launcher-x7k2p"], ["train-2-worker-3"]),
        ("LeaderWorkerSet", ["train-0", "train-0-3"], ["train-2-0-3", "train-b-0"]),
        ("VolcanoJob", ["train-worker-0"], ["train-2-worker-0", "train-ps-0"]),
        ("RayCluster", ["train-head", "train-gpu-group-worker-x7k2p"], ["trained-head"]),
        ("RayJob", ["train-raycluster-x7k2p-gpu-worker-abcde", "train-x7k2p"], ["trained-x7k2p"]),
    ],
)  # fmt: skip
def test_names_by_kind(kind: str, own: list[str], others: list[str]) -> None:
    """Those of the job; never those of a job whose name begins like it."""
    pattern = gone_pods.names(job(kind))
    assert own == [one for one in (*own, *others) if pattern.fullmatch(one)]


def test_a_job_without_a_pod_is_read_from_the_log_store(
    fake: FakeApi,
    fake_kubeconfig: Path,
    tmp_path: Path,
    victoria_logs: Callable[[Iterable[Stream]], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its pods were deleted with it (TTL); not the lines of an earlier run, nor of a job whose name begins so."""
    at = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=30)
    made, ended = at - timedelta(seconds=5), at + timedelta(seconds=stories.WATCHDOG_S + 90)
    meta = {"name": "train", "namespace": "ml", "uid": "uid-train"}
    failed = {
        "type": "Failed",
        "status": "True",
        "lastTransitionTime": f"{ended:%Y-%m-%dT%H:%M:%SZ}",
    }
    one: dict[str, Any] = {
        "metadata": {**meta, "creationTimestamp": f"{made:%Y-%m-%dT%H:%M:%SZ}"},
        "spec": {"completions": 2, "parallelism": 2},
        "status": {"conditions": [failed]},
    }
    fake.add(JOBS, one)
    way = ["--kubeconfig", str(fake_kubeconfig), "-n", "ml"]
    assert 4 == main(["triage", "train", *way])
    assert "--log-store what they wrote" in capsys.readouterr().err

    def log(pod: str, lines: Iterable[tuple[datetime, str]]) -> Stream:
        labels = {"namespace": "ml", "pod": pod, "container": "trainer"}
        return Stream(labels=labels, lines=list(lines))

    end = at + timedelta(seconds=60)
    waited = [*stories.steps(0, 1, at, 60), *stories.timeouts(0, 1, end + timedelta(seconds=600))]
    url = victoria_logs(
        [
            log("train-0-aaaaa", waited),
            log(
                "train-1-bbbbb", [*stories.steps(1, 1, at, 60), (end, "RuntimeError: of this run")]
            ),
            log("train-1-ccccc", stories.steps(1, 1, at - timedelta(minutes=20), 60)),
            log("train-2-0-ddddd", [(end, "RuntimeError: of another job")]),
        ]
    )
    place = tmp_path / "b"
    store = ["--log-store", f"victorialogs+{url}"]
    code = main(["triage", "train", *way, *store, "--save", str(place), "-o", "json"])
    told = capsys.readouterr()
    assert code in (0, 3), told.err
    assert "has no pods any more" in told.err
    kept = {path.name for path in (place / "log-store").iterdir()}
    assert {"train-0-aaaaa.jsonl", "train-1-bbbbb.jsonl"} == kept
    found = json.loads(told.out)
    assert "failed" == found["job"]["attempts"][0]["state"]
    assert {0, 1} == {rank["rank"] for rank in ranks(place, capsys)}


def ranks(place: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    main(["ranks", str(place), "-o", "json"])
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["ranks"]
    return rows


def test_the_node_of_a_pod_that_is_gone_is_asked_about(
    fake: FakeApi,
    fake_kubeconfig: Path,
    tmp_path: Path,
    prometheus: Callable[[Iterable[Series]], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """kube-state-metrics knows where it was; not the nodes of an earlier run, nor of a job whose name begins so."""
    now = datetime.now(UTC).replace(microsecond=0)
    made, fell = now - timedelta(minutes=20), now - timedelta(minutes=10)
    meta = {"name": "train", "namespace": "ml", "uid": "uid-train"}
    meta["creationTimestamp"] = f"{made:%Y-%m-%dT%H:%M:%SZ}"
    fake.add(JOBS, {"metadata": meta, "spec": {"completions": 2, "parallelism": 2}})
    labels = {"batch.kubernetes.io/job-name": "train"}
    created = f"{made:%Y-%m-%dT%H:%M:%SZ}"
    pod = fake_api.pod("train-0-aaaaa", labels=labels, node="gpu-a", created=created)
    fake.add("/api/v1/namespaces/ml/pods", pod)
    fake.add("/api/v1/nodes", fake_api.node("gpu-a"))

    def info(name: str, node: str, begin: datetime, end: datetime) -> Series:
        labels = {"namespace": "ml", "pod": name, "node": node, "uid": name}
        return Series(name="kube_pod_info", labels=labels, samples=held(begin, end, first=1))

    hour = timedelta(hours=1)
    url = prometheus(
        [
            info("train-1-bbbbb", "gpu-b", made, fell),
            info("train-1-ccccc", "gpu-c", made - hour, made - timedelta(minutes=5)),
            info("train-2-0-ddddd", "gpu-d", made, now),
            *(
                xid_series(f"gpu-{node}", 0, held(now - hour, now, [(fell, 79)]))
                for node in ("a", "b", "c", "d")
            ),
        ]
    )
    place = tmp_path / "b"
    way = ["--kubeconfig", str(fake_kubeconfig), "-n", "ml", "--prometheus", url]
    assert 3 == main(["collect", "train", "--to", str(place), *way])
    assert "bundle" in json.loads(capsys.readouterr().out)
    told = json.loads((place / "metrics" / "xid.json").read_text())["data"]["result"]
    assert {"gpu-a", "gpu-b"} == {one["metric"]["Hostname"] for one in told}
