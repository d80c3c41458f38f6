"""`gpufleet preflight JOB` on a real API server, with what it fills in, and the question for a spare node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import preflight_mistakes as mistakes
import pytest
from servers import nodes, pods
from servers.jobs import Shape, indexed_job, plain_pods
from servers.namespaces import Namespace

from gpufleet_cli.cli import main

GPUS = 2
TWO = ("--nnodes=2", "--nproc-per-node=2", "--rdzv-endpoint=run-0.run:29500", "train.py")


def _create(namespace: Namespace, documents: mistakes.Documents) -> dict[str, Any]:
    """The documents in this namespace; the job among them."""
    for one in documents:
        one["metadata"]["namespace"] = namespace.name
        namespace.api.create(one)
    return mistakes.job(documents)


def _checked(
    target: list[str], namespace: Namespace, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    way = ["-n", namespace.name, "-o", "json", "--kubeconfig", str(kubeconfig)]
    code = main(["preflight", *target, *way])
    told = capsys.readouterr()
    assert code in (0, 10), told.err
    found: dict[str, Any] = json.loads(told.out)
    return found


def _standing(found: dict[str, Any]) -> list[str]:
    return sorted({one["id"] for one in found["findings"] if one["severity"] != "info"})


@pytest.mark.parametrize("name", mistakes.EVERY)
@pytest.mark.parametrize("is_good", [True, False], ids=["good", "plain TCP"])
def test_a_job_as_the_server_keeps_it(
    is_good: bool,
    name: str,
    namespace: Namespace,
    kubeconfig: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the API server fills in makes no finding, and what a person wrote wrong is found as in the file."""
    documents = mistakes.good(name)
    if not is_good:
        mistakes.with_env("NCCL_IB_DISABLE", "1")(documents)
    job = _create(namespace, documents)
    found = _checked([job["metadata"]["name"]], namespace, kubeconfig, capsys)
    assert ["training gang"] == [one["taken_as"] for one in found["read"]]
    assert ([] if is_good else ["nccl-tcp"]) == _standing(found), found["findings"]


@pytest.mark.parametrize("kind", ["job", "plain pods"])
def test_a_spare_node(
    kind: str, namespace: Namespace, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many nodes as pods: without any of them a restart does not place. With one more it does."""
    nodes.make(namespace, 2, gpus=GPUS)
    shape = Shape(pods=2, gpus=GPUS, args=TWO)
    if kind == "job":
        indexed_job(namespace, "run", shape)
        target, selector = ["run"], "job-name=run"
    else:
        plain_pods(namespace, "run", shape)
        target, selector = ["-l", "job-id=run"], "job-id=run"
    pods.wait(namespace, selector, 2)
    found = _checked(target, namespace, kubeconfig, capsys)
    [told] = [one["message"] for one in found["findings"] if one["id"] == "no-spare"]
    assert told.startswith("without any of its nodes the gang does not place now")
    nodes.make(namespace, 1, gpus=GPUS, prefix="spare")
    assert "no-spare" not in _standing(_checked(target, namespace, kubeconfig, capsys))
