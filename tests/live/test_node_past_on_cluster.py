"""A node's past on the real API server and a real Prometheus: whose job each XID met, and what was triaged before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from servers import jobs, nodes, pods
from servers.metrics import Series, held, xid_series
from servers.namespaces import Namespace

from gpufleet_cli.cli import main
from gpufleet_cli.history import folder
from gpufleet_cli.settings import state_folder
from live import cluster_stories as stories
from live.test_cluster_kinds import JOB_NAME, SMALL, names


def past_of(node: str, namespace: Namespace, pod: str, fell: datetime) -> list[Series]:
    """GPU 0 fell ill three times, under two jobs; 31 was a program's; then today's 79."""
    now = datetime.now(UTC)
    begin, changed, today = (now - timedelta(days=days) for days in (29, 12, 0.2))
    codes = [
        (now - timedelta(days=days), code) for days, code in ((20, 79), (9, 48), (4, 94), (2, 31))
    ]
    coarse, fine = timedelta(minutes=30).total_seconds(), 30
    old = xid_series(
        node, 0, held(begin, changed, codes[:1], every_s=coarse), pod="old-0", namespace="research"
    )
    own = [
        *held(changed + timedelta(minutes=30), today, codes[1:], first=79, every_s=coarse),
        *held(today + timedelta(seconds=30), now, [(fell, 79)], first=31, every_s=fine),
    ]
    other = [*held(begin, today, every_s=coarse), *held(today + timedelta(seconds=30), now)]
    current = xid_series(node, 0, own, pod=pod, namespace=namespace.name)
    return [old, current, xid_series(node, 1, other, pod=pod, namespace=namespace.name)]


def test_a_repeat_offender(
    namespace: Namespace,
    kubeconfig: Path,
    prometheus: Callable[[Iterable[Series]], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """XIDs of a month with their pods, tonight's incident once, the expected number of innocents; one screen."""
    nodes.make(namespace, 3, gpus=2)
    job = f"train-{namespace.name}"
    jobs.indexed_job(namespace, job, SMALL)
    made = names(namespace, f"{JOB_NAME}={job}", 3)
    at = stories.began()
    stories.stall(namespace, made, silent=1, at=at)
    node = pods.read(namespace, made[1])["spec"]["nodeName"]
    url = prometheus(past_of(node, namespace, made[1], at + timedelta(seconds=58)))
    monkeypatch.delenv("GPUFLEET_NO_STATE")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))

    saved = tmp_path / "saved"
    asked = ["triage", job, "-o", "json", "--prometheus", url, "--save", str(saved)]
    assert 0 == main(asked)
    live = json.loads(capsys.readouterr().out)
    assert ("hardware", [node]) == (live["verdict"]["kind"], live["recommendation"]["nodes"])
    main(["triage", str(saved), "-o", "json"])
    first = capsys.readouterr().out
    history = state_folder() / "history"
    (before,) = folder.read(history).incidents
    assert (node,) == before.nodes
    assert before.diagnosed_ns is not None
    for _ in range(2):
        main(["triage", str(saved), "-o", "json"])
        assert first == capsys.readouterr().out, "history is never read by triage"
    monkeypatch.setenv("GPUFLEET_NO_STATE", "1")
    main(["triage", str(saved), "-o", "json"])
    assert first == capsys.readouterr().out
    monkeypatch.delenv("GPUFLEET_NO_STATE")
    assert (before,) == folder.read(history).incidents
    assert 1 == len(list(history.iterdir()))

    assert 0 == main(["node", node, "-o", "json", "--prometheus", url])
    card = json.loads(capsys.readouterr().out)["node"]
    seen = [(one["xid"], one["gpu_index"], one["namespace"], one["pod"]) for one in card["xids"]]
    assert [
        (79, 0, "research", "old-0"),
        *((code, 0, namespace.name, made[1]) for code in (48, 94, 31, 79)),
    ] == seen
    (kept,) = card["incidents"]
    assert ("hardware", job, namespace.name, [79]) == tuple(
        kept[key] for key in ("kind", "job", "namespace", "xids")
    )
    test = card["repeat_offender"]
    assert (True, 4, 28) == (test["flagged"], test["faults"], test["days"])
    assert test["nodes"] >= 3
    assert test["expected_innocents"] == pytest.approx(test["nodes"] * test["chance"])

    assert 0 == main(["node", node, "--prometheus", url])
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) <= 23, "\n".join(shown)
    assert all(len(line) <= 80 for line in shown)
    assert any("4 node faults in 28 days; by chance" in line for line in shown)
    assert any("research/old-0" in line for line in shown)

    nodes.lose_gpus(namespace.cluster, node, left=1)
    namespace.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    nodes.kill_at(namespace.cluster, node, datetime.now(UTC) - timedelta(minutes=8))
    for key in ("unreachable", "unschedulable"):
        nodes.wait_for_taint(namespace.cluster, node, f"node.kubernetes.io/{key}")
    assert 0 == main(["node", node, "--prometheus", url])
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) <= 22, "an ill node in one screen too:\n" + "\n".join(shown)
    told = " ".join(shown)
    for word in ("LOST", "dead since", "Ready=Unknown", "cordoned", "XID 79", "past", "offender"):
        assert word in told
    assert "More: -v" == shown[-1]
    assert 0 == main(["node", node, "--prometheus", url, "-v"])
    assert "Kubelet stopped posting node status" in capsys.readouterr().out

    assert 0 == main(["node", node])
    told = capsys.readouterr().out
    assert "XID history (no --prometheus is given" in " ".join(told.split())
