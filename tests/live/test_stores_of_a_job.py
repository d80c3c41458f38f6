"""A job's metrics and the logs of its pods that are gone: gathered with it, and judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from servers import jobs, loki, nodes, pods
from servers.metrics import Series, held, xid_series
from servers.namespaces import Namespace
from servers.victoria import Stream

from live import cluster_stories as stories
from live.test_cluster_kinds import JOB_NAME, SMALL, names, run


def test_the_xid_of_a_silent_rank_comes_from_prometheus(
    namespace: Namespace,
    kubeconfig: Path,
    prometheus: Callable[[Iterable[Series]], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The logs name the pod that fell silent, the metrics say what happened to its GPU."""
    made_nodes = nodes.make(namespace, 3, gpus=2)
    job = f"train-{namespace.name}"
    jobs.indexed_job(namespace, job, SMALL)
    made = names(namespace, f"{JOB_NAME}={job}", 3)
    at = stories.began()
    stories.stall(namespace, made, silent=1, at=at)
    node = pods.read(namespace, made[1])["spec"]["nodeName"]
    assert node in made_nodes
    fell, now = at + timedelta(seconds=58), datetime.now(UTC)
    begin = now - timedelta(hours=2)
    url = prometheus(
        [
            xid_series(node, 0, held(begin, now, [(fell, 79)])),
            xid_series(node, 1, held(begin, now)),
        ]
    )
    code, out, err = run(capsys, kubeconfig, "triage", job, "-o", "json", "--prometheus", url)
    assert 0 == code, err
    told = json.loads(out)
    assert "hardware" == told["verdict"]["kind"]
    assert [node] == told["recommendation"]["nodes"]
    assert [79] == [event["xid"] for event in told["hardware"]["events"]]
    assert any(claim["source"].startswith("metrics/xid") for claim in told["verdict"]["evidence"])


def test_logs_that_a_dead_kubelet_keeps_come_from_the_log_store(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kubelet of one node does not answer; what its pod wrote last is in Loki."""
    nodes.make(namespace, 3, gpus=2)
    job = f"train-{namespace.name}"
    jobs.plain_pods(namespace, job, SMALL)
    found = names(namespace, f"job-id={job}", 3)
    at = stories.began()
    stories.stall(namespace, found, silent=1, at=at)
    nodes.stop_kubelet(namespace.cluster, pods.read(namespace, found[1])["spec"]["nodeName"])
    lines = [*stories.steps(2, 2, at, 60), (at + timedelta(seconds=61), "Killed by hand")]
    stream = Stream(
        labels={"namespace": namespace.name, "pod": found[1], "container": "trainer"}, lines=lines
    )
    place = tmp_path / "bundle"
    with loki.running([stream]) as store:
        _, out, err = run(
            capsys, kubeconfig, "collect", "-l", f"job-id={job}", "-n", namespace.name,
            "--to", str(place), "--log-store", f"loki+{store.url}",
        )  # fmt: skip
    assert "bundle" in json.loads(out), err
    kept = place / "log-store" / f"{found[1]}.jsonl"
    assert "Killed by hand" in kept.read_text(encoding="utf-8")
