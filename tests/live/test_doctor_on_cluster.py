"""`gpufleet` alone, `doctor` and the rights check on the real API server, for each role and for nobody."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from servers import jobs, namespaces, nodes, pods
from servers.cluster import kubeconfig_context, write_kubeconfig
from servers.jobs import Shape
from servers.namespaces import Namespace

from gpufleet_cli.cli import main

from . import cluster_stories
from .test_rbac import applied  # noqa: F401  the roles, as a person applies them

PREFIX = "nccl_trace_rank_"


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit status and the JSON on standard output."""
    status = main([*arguments, "-o", "json"])
    out = capsys.readouterr().out
    return status, json.loads(out) if out else {}


@pytest.mark.usefixtures("applied")
def test_each_role(
    namespace: Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a reader, capture, an operator and nobody may; what doctor, collect and `gpufleet` make of it."""
    cluster = namespace.cluster
    made = nodes.make(namespace, 2, gpus=2)
    folder = tmp_path / "dumps"
    folder.mkdir()
    env = {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/{PREFIX}",
    }
    job = f"train-{namespace.name}"
    shape = Shape(pods=2, gpus=2, nodes=made, env=env, args=("--nproc-per-node=2", "train.py"))
    jobs.pytorchjob(namespace, job, shape)
    pods.wait(namespace, f"training.kubeflow.org/job-name={job}", 2)
    names = [one["metadata"]["name"] for one in pods.found(namespace)]
    for index, name in enumerate(names):
        now = datetime.now(UTC).replace(microsecond=0)
        lines = list(cluster_stories.steps(2 * index, 2, now - timedelta(seconds=30), 30))
        pods.give_log(namespace, name, lines, container="pytorch")
        pods.allow_exec(namespace, name, folder)
    contexts = {}
    for role in ("reader", "capture", "operator", "nobody"):
        token = (
            namespaces.make_user(namespace, role, [])
            if role == "nobody"
            else namespaces.make_user(
                namespace, role, cluster_role=f"gpufleet-{role}", whole_cluster=True
            )
        )
        contexts[role] = kubeconfig_context(cluster, role, token=token, namespace=namespace.name)
    kubeconfig = str(write_kubeconfig(tmp_path / "roles", contexts, current="reader"))
    way = ["--kubeconfig", kubeconfig, "-n", namespace.name]

    refused = {}
    for role in contexts:
        status, found = document(capsys, "doctor", job, *way, "--context", role)
        assert 3 == status, role
        by_name = {one["source"]: one for one in found["sources"]}
        user = f"system:serviceaccount:{namespace.name}:{role}"
        assert by_name["API server"]["what"].endswith(f"user {user}")
        rights = {key: one["ok"] for key, one in by_name.items() if key.startswith("right to ")}
        refused[role] = {key.removeprefix("right to ") for key, ok in rights.items() if not ok}
        if role == "reader":
            assert by_name["job"]["what"].startswith(f"PyTorchJob {namespace.name}/{job}: 2 of 2")
            assert by_name["recorder"]["would_lack"] == "dumps once the pod is gone"
            assert "pods/exec is not allowed" in by_name["dumps"]["what"]
    execs = {f"{verb} pods/exec in {namespace.name}" for verb in ("get", "create")}
    assert execs == refused["reader"] == refused["operator"]
    assert execs.isdisjoint(refused["capture"])
    assert f"list pods in {namespace.name}" in refused["capture"]
    assert len(refused["nobody"]) > 8

    admin = str(cluster.write_kubeconfig(tmp_path / "admin", namespace=namespace.name))
    status, found = document(capsys, "doctor", job, "--kubeconfig", admin, "-n", namespace.name)
    dumps = next(one for one in found["sources"] if one["source"] == "dumps")
    assert (True, True) == (dumps["ok"], "it has cat" in dumps["what"]), dumps

    main(["collect", job, "--to", str(tmp_path / "bundle"), *way])
    told = capsys.readouterr().err
    assert f"not allowed: get pods/exec in {namespace.name}" in told
    assert "not allowed: get pods/log" not in told
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert f"the right to get pods/exec in {namespace.name}" in {
        one["what"] for one in manifest["missing"]
    }

    for command in (
        ["ranks", job], ["node", made[0]], ["nodes"], ["queue"], ["drain-check", made[0]],
        ["preflight", job], ["cache", "refresh"],
    ):  # fmt: skip
        assert 4 != main([*command, *way]), capsys.readouterr().err
    capsys.readouterr()
    reader = cluster.audit(user=f"system:serviceaccount:{namespace.name}:reader")
    refused_calls = {
        "/".join(filter(None, (one["objectRef"]["resource"], one["objectRef"].get("subresource"))))
        for one in reader
        if one["responseStatus"]["code"] == 403
    }
    assert {"pods/exec"} == refused_calls, "the role lacks what a command asks"

    nodes.kill_at(cluster, made[1], datetime.now(UTC) - timedelta(minutes=10))
    status, found = document(capsys, *way, "--deadline", "60s")
    assert 0 == status
    (gang,) = found["gangs"]
    assert (job, "PyTorchJob", 2, 4) == tuple(gang[k] for k in ("name", "kind", "size", "ranks"))
    assert [made[1]] == [one["node"] for one in gang["marked_nodes"] if one["ill"]]
    assert gang["last_write_at"] is not None, found["missing"]
    assert 4 == main([*way, "--context", "nobody", "--deadline", "60s"])
    out, err = capsys.readouterr()
    assert ("", True) == (out, "not allowed (list on pods)" in err)


def test_a_token_of_nobody(
    namespace: Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real server's 401 is one line."""
    context = kubeconfig_context(
        namespace.cluster, "old", token="eyJhbGciOiJSUzI1NiJ9.e30.c2lnbg", namespace=namespace.name
    )
    kubeconfig = write_kubeconfig(tmp_path / "old", {"old": context}, current="old")
    for command in ([], ["nodes"], ["collect", "train"]):
        assert 4 == main([*command, "--kubeconfig", str(kubeconfig)])
        out, err = capsys.readouterr()
        assert ("", 1) == (out, err.count("\n"))
        assert "(context old) does not accept the credentials" in err
