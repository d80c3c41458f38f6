"""Every kind of job on the real API server: a drain of a node that holds one is refused, and its nodes are marked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers import jobs, namespaces, nodes, other_jobs, pods
from servers.cluster import kubeconfig_context, write_kubeconfig
from servers.jobs import Shape
from servers.namespaces import OWNER, Namespace
from servers.running import wait_until

from gpufleet_cli.cli import main

TWO = Shape(pods=2, gpus=8)
Make = Callable[[Namespace, str], Any]

KINDS: dict[str, tuple[Make, str, int]] = {
    "indexed-job": (lambda space, name: jobs.indexed_job(space, name, TWO), "Job", 2),
    # two Jobs of one pod: only the label of the JobSet says that they belong together
    "jobset": (
        lambda space, name: jobs.jobset(space, name, Shape(pods=1, gpus=8), replicas=2),
        "JobSet",
        2,
    ),
    "pytorchjob": (lambda space, name: jobs.pytorchjob(space, name, TWO), "PyTorchJob", 2),
    "trainjob": (lambda space, name: jobs.trainjob(space, name, TWO), "TrainJob", 2),
    "raycluster": (lambda space, name: other_jobs.raycluster(space, name, TWO), "RayCluster", 2),
    # its object states no size here: then all pods count, head and submitter too
    "rayjob": (lambda space, name: other_jobs.rayjob(space, name, TWO), "RayJob", 4),
    "mpijob": (lambda space, name: other_jobs.mpijob(space, name, TWO), "MPIJob", 2),
    "volcano-job": (lambda space, name: other_jobs.volcano_job(space, name, TWO), "VolcanoJob", 2),
    "lws": (
        lambda space, name: other_jobs.leaderworkerset(space, name, TWO, groups=2),
        "LeaderWorkerSet",
        2,
    ),
    "plain-pods": (lambda space, name: jobs.plain_pods(space, name, TWO), "pods", 2),
}


def asked(capsys: pytest.CaptureFixture[str], kubeconfig: Path, *words: str) -> tuple[int, Any]:
    capsys.readouterr()
    status = main(["--kubeconfig", str(kubeconfig), "-o", "json", *words])
    told = capsys.readouterr().out
    return status, json.loads(told) if told else None


@pytest.mark.parametrize("name", KINDS)
def test_a_drain_would_kill_it_and_its_nodes_are_marked(
    name: str, namespace: Namespace, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On each node that has a pod of it, a head or a launcher without a GPU too; the uid is the job's."""
    make, kind, size = KINDS[name]
    made = nodes.make(namespace, 5)
    job = f"run-{name}"
    top = make(namespace, job)
    wait_until(lambda: _all_run(namespace, 2), "the pods run", within_s=240)
    on = {one["spec"]["nodeName"] for one in pods.found(namespace)}
    status, found = asked(capsys, kubeconfig, "drain-check", *made)
    rows = {one["node"]: one for one in found["nodes"]}
    assert (5, on) == (status, {node for node in made if rows[node]["safe"] is False})
    for node in on:
        (gang,) = rows[node]["gangs"]
        here = {
            one["metadata"]["name"]
            for one in pods.found(namespace)
            if one["spec"]["nodeName"] == node
        }
        assert (kind, size, here) == (gang["kind"], gang["size"], set(gang["pods"]))
        assert 16 == gang["gpus"]
    (free,) = {0} if on == set(made) else {
        asked(capsys, kubeconfig, "drain-check", *(set(made) - on))[0]
    }  # fmt: skip
    assert 0 == free

    status, found = asked(capsys, kubeconfig, "label-gangs", "-n", namespace.name)
    assert (0, len(on)) == (status, found["marked"])
    api = namespace.api
    listed = api.items("/api/v1/nodes", labelSelector=f"gpufleet/gang,{OWNER}={namespace.name}")
    assert on == {one["metadata"]["name"] for one in listed}
    uids = {one["metadata"]["annotations"]["gpufleet/gang-uid"] for one in listed}
    sizes = {one["metadata"]["annotations"]["gpufleet/gang-size"] for one in listed}
    if kind != "pods":
        assert {top["metadata"]["uid"]} == uids
    assert (1, {str(size)}) == (len(uids), sizes)
    assert 0 == asked(capsys, kubeconfig, "label-gangs", "-n", namespace.name)[1]["marked"]


def _all_run(namespace: Namespace, least: int) -> bool:
    found = pods.found(namespace)
    return len(found) >= least and all(one["status"]["phase"] == "Running" for one in found)


def test_who_sees_one_namespace_alone(
    namespace: Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gang that is seen is a no; nothing seen is no yes, since others may hold the node."""
    made = nodes.make(namespace, 3)
    jobs.plain_pods(namespace, "run", Shape(pods=2, gpus=8, nodes=made[:2]))
    pods.wait(namespace, "job-id=run", 2)
    rules = [{"apiGroups": ["", "batch"], "resources": ["*"], "verbs": ["get", "list"]}]
    token = namespaces.make_user(namespace, "here", rules)
    context = kubeconfig_context(namespace.cluster, "here", token=token, namespace=namespace.name)
    closed = write_kubeconfig(tmp_path / "here", {"here": context}, current="here")
    status, found = asked(capsys, closed, "drain-check", made[0])
    assert (5, ["job-id=run"]) == (status, [one["job"] for one in found["nodes"][0]["gangs"]])
    assert (4, None) == asked(capsys, closed, "drain-check", made[2])
    status, found = asked(capsys, closed, "drain-check", made[2], made[1])
    assert (5, [None, False]) == (status, [one["safe"] for one in found["nodes"]])
