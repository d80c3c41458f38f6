"""`gpufleet node`, `nodes` and `cache` on the real API server, with kubectl as the second opinion."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from servers import jobs, namespaces, nodes, pods
from servers.cluster import kubeconfig_context, write_kubeconfig
from servers.jobs import Shape
from servers.namespaces import Namespace

from gpufleet_cli import completion
from gpufleet_cli.cli import main


def kubectl(kubeconfig: Path, *arguments: str) -> str:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not on PATH")
    command = [program, "--kubeconfig", str(kubeconfig), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def listed(kubeconfig: Path) -> set[str]:
    """All nodes, as kubectl has them."""
    names = kubectl(kubeconfig, "get", "nodes", "-o", "name").split()
    return {name.removeprefix("node/") for name in names}


def test_a_node_and_all_nodes(
    namespace: Namespace,
    kubeconfig: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gang, ranks, a lost GPU, a death, a cordon and who made it; names for TAB; a reader; no rights."""
    cluster = namespace.cluster
    made = nodes.make(namespace, 3, gpus=2)
    job = f"train-{namespace.name}"
    shape = Shape(pods=3, gpus=2, nodes=made, args=("--nproc-per-node=2", "train.py"))
    jobs.pytorchjob(namespace, job, shape)
    pods.wait(namespace, f"training.kubeflow.org/job-name={job}", 3)
    nodes.lose_gpus(cluster, made[1], left=1)
    nodes.kill_at(cluster, made[2], datetime.now(UTC) - timedelta(minutes=10))
    kubectl(kubeconfig, "cordon", made[1])

    monkeypatch.delenv("GPUFLEET_NO_STATE")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    assert 0 == main(["node", made[1], "-o", "json"])
    card = json.loads(capsys.readouterr().out)["node"]
    (gang,) = card["gangs"]
    assert ("PyTorchJob", job, 3) == (gang["kind"], gang["name"], gang["size"])
    assert [[2, 3]] == [pod["ranks"] for pod in gang["pods"]]
    assert (2, 1, 1) == tuple(card["gpus"][key] for key in ("capacity", "allocatable", "lost"))
    assert card["cordon"]["by"].startswith("kubectl")
    assert "managedFields" == card["cordon"]["told_by"]
    assert card["lease"]["silent"] is False
    on_node = kubectl(
        kubeconfig,
        "get",
        "pods",
        "-A",
        "--field-selector",
        f"spec.nodeName={made[1]}",
        "-o",
        "name",
    )
    assert sorted(on_node.split()) == sorted(f"pod/{pod['name']}" for pod in gang["pods"])

    assert 0 == main(["node", made[2]])
    told = capsys.readouterr().out
    assert "dead since then" in told
    assert "Ready=Unknown" in told
    assert all(len(line) <= 80 for line in told.splitlines())

    before = listed(kubeconfig)
    assert 0 == main(["nodes", "-o", "json"])
    every = {one["name"]: one for one in json.loads(capsys.readouterr().out)["nodes"]}
    after = listed(kubeconfig)  # other tests make and remove theirs meanwhile
    assert set(made) <= before & after <= set(every) <= before | after
    assert [False, True, True] == [every[name]["ill"] for name in made]

    offered = completion.matches(["gpufleet", "node", made[0][:-1]], dict(os.environ))
    assert offered is not None
    assert made == offered[0]

    assert 4 == main(["node", "no-such-node"])
    assert "no node no-such-node" in capsys.readouterr().err
    token = namespaces.make_user(namespace, "nothing", [])
    context = kubeconfig_context(cluster, "nobody", token=token, namespace=namespace.name)
    closed = write_kubeconfig(tmp_path / "closed", {"nobody": context}, current="nobody")
    for asked in (["node", made[0]], ["nodes"]):
        assert 4 == main([*asked, "--kubeconfig", str(closed)])
        told = capsys.readouterr()
        assert ("", True) == (told.out, "not allowed" in told.err)

    assert 0 == main(["cache", "refresh"])
    assert "fetched" in capsys.readouterr().out
