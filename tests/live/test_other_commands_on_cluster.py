"""`ranks`, `dumps` and `explain` of a job in the cluster: gathered as triage gathers it."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
import recorder_worlds
from servers import nodes, pods
from servers.namespaces import Namespace

from gpufleet_cli.cli import main
from live import incidents, job_voices
from live.incidents import INCIDENTS, Scene
from live.job_voices import FORMS

Output = pytest.CaptureFixture[str]
STARVED = next(one for one in INCIDENTS if one.name == "data-stall")


def run(capsys: Output, kubeconfig: Path, *arguments: str) -> str:
    """Standard output of a command that ended well."""
    code = main([*arguments, "--kubeconfig", str(kubeconfig)])
    told = capsys.readouterr()
    assert 0 == code, told.err
    return told.out


def starved(namespace: Namespace) -> Scene:
    """An Indexed Job of three pods in which rank 2 waits for its data."""
    return STARVED.happen(namespace, FORMS["indexed-job"], lambda _: "")


def test_ranks_of_a_live_job(namespace: Namespace, kubeconfig: Path, capsys: Output) -> None:
    """Every rank with the pod and node that the cluster gives it, whoever is most silent first."""
    scene = starved(namespace)
    out = run(capsys, kubeconfig, "ranks", scene.job.name, "-o", "json")
    rows: list[dict[str, Any]] = json.loads(out)["ranks"]
    assert list(scene.job.ranks) == sorted(row["rank"] for row in rows)
    for row in rows:
        index = row["rank"] // job_voices.RANKS_A_POD
        assert (scene.job.pods[index], scene.job.node_of(index)) == (row["pod"], row["node"])
    assert scene.ranks[0] == rows[0]["rank"]
    text = run(capsys, kubeconfig, "ranks", scene.job.name)
    assert scene.pod in text
    assert max(map(len, text.splitlines())) <= 80


def test_explain_of_a_live_job(namespace: Namespace, kubeconfig: Path, capsys: Output) -> None:
    """Why the guilty rank is the culprit, and why one that shouts is not."""
    scene = starved(namespace)
    told = {
        rank: json.loads(
            run(capsys, kubeconfig, "explain", scene.job.name, "--rank", str(rank), "-o", "json")
        )
        for rank in (scene.ranks[0], 0)
    }
    assert ("culprit", "witness") == (told[scene.ranks[0]]["standing"], told[0]["standing"])
    assert scene.pod == told[scene.ranks[0]]["known"]["pod"]
    assert told[0]["reasons"], "an innocent rank is cleared with a reason"


def test_dumps_of_a_live_job(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path, capsys: Output
) -> None:
    """Flight Recorder dumps are read out of the running containers; the rank that is behind is the root."""
    made = nodes.make(namespace, 3, gpus=2)
    folder = tmp_path / "pod"
    folder.mkdir()
    job = recorder_worlds.Job(tp=2, dp=3, pp=1)
    world = recorder_worlds.run(job, recorder_worlds.programs(job), stops={2: 7})
    ended_ms = (time.time_ns() - recorder_worlds.BASE_NS) // 1_000_000 - 700_000
    for rank in range(job.size):
        document = recorder_worlds.raw(world, rank, shift_ms=ended_ms)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document, protocol=2))
    form = FORMS["plain-pods"]
    shape = form.shape(made)
    env = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/nccl_trace_rank_"}
    found = incidents.with_environment(namespace, form, "run10", shape, env)
    for pod in found.pods:
        pods.allow_exec(namespace, pod, folder)
    found.write(())
    out = run(capsys, kubeconfig, "dumps", "-l", "job-id=run10", "-n", namespace.name, "-o", "json")
    told = json.loads(out)
    assert (6, [2]) == (told["dumps"], told["roots"])
    assert 2 not in {edge["rank"] for edge in told["edges"]}, "it waits for nobody"
    assert 2 in {edge["waits_for"] for edge in told["edges"]}


def test_alerts_of_a_live_job(namespace: Namespace, kubeconfig: Path, capsys: Output) -> None:
    """What was not given comes from the job's own logs; what they do not tell is asked for by its option."""
    scene = starved(namespace)
    asked = [
        "alerts",
        scene.job.name,
        "-n",
        namespace.name,
        "--kubeconfig",
        str(kubeconfig),
        "-o",
        "json",
    ]
    code = main([*asked, "--checkpoint-interval", "30m", "--watchdog-timeout", "10m"])
    told = capsys.readouterr()
    assert 0 == code, told.err
    (line,) = [line for line in told.err.splitlines() if line.startswith("gpufleet: step time")]
    assert line.endswith("the job's own logs and settings")
    rules = [rule for group in json.loads(told.out)["groups"] for rule in group["rules"]]
    step_s = float(line.split()[3])
    assert "the job's pods)" in rules[0]["annotations"]["made_from"]
    (slow,) = [rule for rule in rules if rule["alert"] == "GpufleetStepTime"]
    assert f"> {1.18 * step_s:.6f}".rstrip("0") in slow["expr"]
    assert main([*asked, "--watchdog-timeout", "10m"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "--checkpoint-interval" in told.err.splitlines()[-1]
