"""An undecided incident on a real cluster: the commands that copy the suspects' dumps off their nodes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from servers import jobs, nodes, pods
from servers.fixtures import require
from servers.jobs import Shape
from servers.namespaces import Namespace
from servers.running import wait_until

from gpufleet_cli.cli import main
from live import cluster_stories as stories


def undecided(namespace: Namespace, **shape: Any) -> list[str]:
    """Four plain pods of a rank each; two fell silent in the same second, two waited."""
    made_nodes = nodes.make(namespace, 4, gpus=1)
    spec = Shape(pods=4, gpus=1, nodes=made_nodes, args=("--nproc-per-node=1", "train.py"), **shape)
    made = jobs.plain_pods(namespace, "run5", spec)
    pods.wait(namespace, "job-id=run5", 4)
    at = stories.began()
    end = at + timedelta(seconds=60)
    logs = {}
    for rank, name in enumerate(made):
        lines = list(stories.steps(rank, 1, at, 60))
        if rank > 1:
            lines += stories.timeouts(rank, 1, end + timedelta(seconds=stories.WATCHDOG_S))
        logs[name] = lines
    pods.give_logs(namespace, logs, container="trainer")
    return made


def triaged(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = main(["triage", *arguments, "-o", "json"])
    told = capsys.readouterr()
    assert 3 == code, told.err
    found: dict[str, Any] = json.loads(told.out)
    return found


def test_the_copies_that_would_settle_it(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One command a suspect, from its own pod; the saved bundle gives the same; kubectl takes it."""
    require("kubectl")
    made = undecided(
        namespace,
        env={"TORCH_FR_DUMP_TEMP_FILE": "/dumps/run5/rank_"},
        mounts=[{"name": "d", "mountPath": "/dumps"}],
        volumes=[{"name": "d", "emptyDir": {}}],
    )
    saved = tmp_path / "bundle"
    told = ["--kubeconfig", str(kubeconfig), "--save", str(saved)]
    found = triaged(capsys, "-l", "job-id=run5", *told)
    assert "undecidable" == found["verdict"]["kind"]
    suspects = found["verdict"]["alternatives"][0]["ranks"]
    assert [0, 1] == suspects
    copies = [
        c for c in found["recommendation"]["commands"] if c["run"].startswith("kubectl debug")
    ]
    for rank, copy in zip(suspects, copies, strict=True):
        pod = pods.read(namespace, made[rank])
        assert not copy["stops_job"]
        assert f"node/{pod['spec']['nodeName']} " in copy["run"]
        place = f"{pod['metadata']['uid']}/volumes/kubernetes.io~empty-dir/d/run5/rank_{rank}"
        assert f"/host/var/lib/kubelet/pods/{place}" in shlex.split(copy["run"])
    missing = {one["what"]: one["would_settle"] for one in found["missing_evidence"]}
    lies = f"; it lies on the volume d of {made[0]}, on "
    assert lies in missing["Flight Recorder dump of rank 0"]
    again = triaged(capsys, str(saved))
    assert found["recommendation"]["commands"] == again["recommendation"]["commands"]
    assert_kubectl_takes(copies[0]["run"], namespace, kubeconfig, tmp_path)


def assert_kubectl_takes(
    command: str, namespace: Namespace, kubeconfig: Path, tmp_path: Path
) -> None:
    """The pod that it makes runs on the node, and runs what was meant (no container is behind it here)."""
    with subprocess.Popen(
        ["sh", "-c", command],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as shell:
        try:
            wait_until(
                lambda: bool(debuggers(namespace)), "kubectl debug makes its pod", within_s=60
            )
        finally:
            os.killpg(shell.pid, 15)
    (pod,) = debuggers(namespace)
    (container,) = pod["spec"]["containers"]
    words = shlex.split(command)
    assert words[2] == f"node/{pod['spec']['nodeName']}"
    assert words[words.index("--") + 1 : words.index("|")] == [
        *container.get("command", ()),
        *container.get("args", ()),
    ]
    assert "/host" in {mount["mountPath"] for mount in container["volumeMounts"]}
    (root,) = [
        volume["hostPath"]["path"] for volume in pod["spec"]["volumes"] if "hostPath" in volume
    ]
    assert "/" == root


def debuggers(namespace: Namespace) -> list[dict[str, Any]]:
    return [
        one for one in pods.found(namespace) if one["metadata"]["name"].startswith("node-debugger")
    ]


def test_a_dump_in_the_containers_own_layer_is_lost(
    namespace: Namespace, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said, and nothing is printed that could not find it."""
    made = undecided(namespace, env={"TORCH_FR_DUMP_TEMP_FILE": "/tmp/rank_"})
    pods.terminate(namespace, made[0], exit_code=137, reason="Error")
    found = triaged(capsys, "-l", "job-id=run5", "--kubeconfig", str(kubeconfig))
    assert not [c for c in found["recommendation"]["commands"] if "kubectl debug" in c["run"]]
    whys = [
        one["why"]
        for one in found["missing_evidence"]
        if one["what"] == "Flight Recorder dump of rank 0"
    ]
    assert [why for why in whys if "own layer, and is lost with it" in why], whys
