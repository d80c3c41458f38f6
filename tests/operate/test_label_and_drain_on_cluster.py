"""`label-gangs` and `drain-check` on the real API server, with kubectl as the second opinion."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from servers import jobs, namespaces, nodes, pods
from servers.api import Api, ApiError
from servers.cluster import kubeconfig_context, write_kubeconfig
from servers.jobs import Shape
from servers.namespaces import OWNER, Namespace
from servers.running import wait_until

from gpufleet_cli.cli import main
from gpufleet_cli.live import held_look, reach
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.operate import label_gangs
from gpufleet_cli.operate.writes import Writer

RBAC = Path(__file__).parents[2] / "deploy" / "rbac"
OURS = ("gang-job", "gang-since", "gang-size", "gang-uid")


def kubectl(kubeconfig: Path, *arguments: str) -> str:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not on PATH")
    command = [program, "--kubeconfig", str(kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def asked(
    capsys: pytest.CaptureFixture[str], kubeconfig: Path, *words: str
) -> tuple[int, Any, str]:
    """Exit status, the JSON document (None where standard output is empty) and standard error."""
    capsys.readouterr()
    status = main(["--kubeconfig", str(kubeconfig), "-o", "json", *words])
    told = capsys.readouterr()
    return status, json.loads(told.out) if told.out else None, told.err


def marks(namespace: Namespace, node: str) -> dict[str, str]:
    """Our keys of a node, without the prefix."""
    meta = nodes.read(namespace.cluster, node)["metadata"]
    every = {**meta.get("labels", {}), **meta.get("annotations", {})}
    return {
        key.partition("/")[2]: value for key, value in every.items() if key.startswith("gpufleet/")
    }


def as_role(namespace: Namespace, role: str, to: Path) -> Path:
    """A kubeconfig of somebody who holds this role of deploy/rbac for the whole cluster."""
    rules = yaml.safe_load((RBAC / f"{role}.yaml").read_text(encoding="utf-8"))["rules"]
    token = namespaces.make_user(namespace, role, rules, whole_cluster=True)
    context = kubeconfig_context(namespace.cluster, role, token=token, namespace=namespace.name)
    return write_kubeconfig(to / f"{role}-kubeconfig", {role: context}, current=role)


def two_gangs(namespace: Namespace) -> tuple[list[str], str, str]:
    """Four nodes; a JobSet of two pods on its own and shared nodes, plain pods, and a job of one pod.

    node 0: the JobSet; 1: the JobSet and the plain pods; 2: the plain pods; 3: the single pod.
    """
    made = nodes.make(namespace, 4, gpus=8)
    big, small = f"big-{namespace.name}", f"small-{namespace.name}"
    top = jobs.made(namespace, "kubeflow.org/v1", "PyTorchJob", big,
                    spec={"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}})  # fmt: skip
    labels = [{"training.kubeflow.org/job-name": big} for _ in range(2)]
    jobs.bare_pods(namespace, Shape(pods=2, gpus=6, nodes=made[:2]), [f"{big}-0", f"{big}-1"],
                   owner=top, labels=labels)  # fmt: skip
    jobs.plain_pods(namespace, small, Shape(pods=2, gpus=2, nodes=made[1:3]))
    lone = jobs.made(namespace, "kubeflow.org/v1", "PyTorchJob", "lone",
                     spec={"pytorchReplicaSpecs": {"Master": {"replicas": 1}}})  # fmt: skip
    jobs.bare_pods(namespace, Shape(pods=1, gpus=1, nodes=made[3:]), ["lone-0"], owner=lone,
                   labels=[{"training.kubeflow.org/job-name": "lone"}])  # fmt: skip
    wait_until(
        lambda: sum(pod["status"]["phase"] == "Running" for pod in pods.found(namespace)) == 5,
        "5 pods run",
        within_s=240,
    )
    return made, big, small


def test_marks_follow_the_gangs(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two gangs, a shared node, a second run that writes nothing, a gang that goes, roles, --remove."""
    made, big, small = two_gangs(namespace)
    scope = ["-n", namespace.name]
    nodes_path = "/api/v1/nodes/"
    namespace.api.patch(nodes_path + made[3], {"metadata": {"labels": {"gpufleet.io/other": "x"}}})

    status, found, told = asked(capsys, kubeconfig, "label-gangs", *scope, "--dry-run")
    assert (0, True, 3) == (status, found["dry_run"], found["marked"])
    assert [{}] * 4 == [marks(namespace, node) for node in made]

    reader, operator = (as_role(namespace, role, tmp_path) for role in ("reader", "operator"))
    status, found, told = asked(capsys, reader, "label-gangs", *scope)
    assert (4, None) == (status, found)
    assert 1 == sum("no right to patch nodes" in line for line in told.splitlines()), told
    assert "gpufleet-operator" in told
    assert [{}] * 4 == [marks(namespace, node) for node in made]

    status, found, told = asked(capsys, operator, "label-gangs", *scope)
    assert (0, 2, 3, 0, 0) == (
        status,
        *(found[k] for k in ("gangs", "marked", "changed", "cleared")),
    )
    assert 1 == found["not_gangs"]
    uid = namespace.api.get(namespace.path(f"pytorchjobs/{big}", "/apis/kubeflow.org/v1"))[
        "metadata"
    ]["uid"]
    first, shared, second, alone = (marks(namespace, node) for node in made)
    full = f"{namespace.name}/PyTorchJob/{big}"
    assert (full, "2", uid) == tuple(first[k] for k in ("gang-job", "gang-size", "gang-uid"))
    assert f"{namespace.name}.{big}"[:63].startswith(first["gang"][:40])
    plain = f"{namespace.name}/pods/job-id={small}"
    assert f"{full},{plain}" == shared["gang-job"]
    assert (first["gang"], uid) == (shared["gang"], shared["gang-uid"])
    oldest = (
        pods.read(namespace, f"{small}-0")["metadata"],
        pods.read(namespace, f"{small}-1")["metadata"],
    )
    by_age = min(oldest, key=lambda meta: (meta["creationTimestamp"], meta["name"]))
    assert (plain, by_age["uid"]) == (second["gang-job"], second["gang-uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", second["gang-since"])
    assert {} == alone
    events = namespace.api.items(
        "/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={made[0]}"
    )
    assert any("GpufleetLabelGangs" == one["reason"] for one in events)

    before = [nodes.read(namespace.cluster, node)["metadata"]["managedFields"] for node in made]
    status, found, _ = asked(capsys, operator, "label-gangs", *scope)
    assert (0, 0, 0, 0, []) == (
        status,
        *(found[k] for k in ("marked", "changed", "cleared", "nodes")),
    )
    after = [nodes.read(namespace.cluster, node)["metadata"]["managedFields"] for node in made]
    ours = [[one for one in fields if one["manager"] == "gpufleet"] for fields in before]
    assert ours == [[one for one in fields if one["manager"] == "gpufleet"] for fields in after]

    for index in range(2):
        namespace.api.delete(namespace.path(f"pods/{big}-{index}"))
    wait_until(
        lambda: not any(one["metadata"]["name"].startswith("big") for one in pods.found(namespace)),
        "the pods are gone",
        within_s=120,
    )
    status, found, _ = asked(capsys, operator, "label-gangs", *scope)
    assert (0, 0, 1, 1) == (status, *(found[k] for k in ("marked", "changed", "cleared")))
    assert ({}, plain) == (marks(namespace, made[0]), marks(namespace, made[1])["gang-job"])

    status, found, _ = asked(capsys, operator, "label-gangs", *scope, "--remove")
    assert (0, 2) == (status, found["cleared"])
    assert [{}] * 4 == [marks(namespace, node) for node in made]
    kept = nodes.read(namespace.cluster, made[3])["metadata"]["labels"]
    assert ("x", namespace.name) == (kept["gpufleet.io/other"], kept[OWNER])


def test_somebody_writes_in_between(namespace: Namespace, kubeconfig: Path) -> None:
    """The node is read again, the other's key stays, and ours are there; of a node that is gone nothing is."""
    made, _, _ = two_gangs(namespace)
    way = reach.reached(kubeconfig=str(kubeconfig), context=None, deadline=Deadline(300)).api
    held = held_look.look(way, namespace.name)
    path = f"/api/v1/nodes/{made[0]}"
    patched: list[str] = []

    class Late(Writer):
        """Another writer comes in after the list was read, before our first patch of the node."""

        def patch(self, path: str, change: Any, *, version: str) -> Any:
            if path.endswith(made[0]) and not patched:
                note = {"metadata": {"annotations": {"team/note": "mine"}}}
                namespace.api.patch(path, note)
            patched.append(path)
            return Writer.patch(self, path, change, version=version)

    said: list[str] = []
    run = label_gangs.label(Late(api=way), held, said.append)
    assert ((), 3) == (run.not_made, run.count("mark"))
    assert 2 == patched.count(path)
    assert "gang" in marks(namespace, made[0])
    annotations = nodes.read(namespace.cluster, made[0])["metadata"]["annotations"]
    assert "mine" == annotations["team/note"]


def evicted_by_kubectl(kubeconfig: Path, node: str) -> set[str]:
    """What a drain would evict, as kubectl says with the server's dry run."""
    told = kubectl(
        kubeconfig, "drain", node, "--dry-run=server", "--ignore-daemonsets", "--delete-emptydir-data",
        "--force",
    )  # fmt: skip
    return set(re.findall(r"evicting pod \S+/(\S+)", told)) | set(
        re.findall(r"^pod/(\S+) (?:evicted|deleted)", told, re.MULTILINE)
    )


def test_drain_check_says_what_a_drain_would_do(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same pods as kubectl; a DaemonSet's, a mirror, one that goes and one that ended; exit statuses."""
    made, big, small = two_gangs(namespace)
    daemon = jobs.made(namespace, "apps/v1", "DaemonSet", "agent",
                       spec={"selector": {"matchLabels": {"app": "agent"}},
                             "template": {"metadata": {"labels": {"app": "agent"}},
                                          "spec": {"nodeSelector": {OWNER: namespace.name},
                                                   "containers": [{"name": "a", "image": "a"}]}}})  # fmt: skip
    wait_until(
        lambda: len(pods.found(namespace, "app=agent")) == 4, "agents are there", within_s=180
    )
    assert "agent" == daemon["metadata"]["name"]
    mirror = jobs.template(
        namespace, Shape(gpus=0), annotations={"kubernetes.io/config.mirror": "x"}
    )
    mirror["metadata"].update(name="static", namespace=namespace.name)
    mirror["spec"]["nodeName"] = made[0]
    node_object = nodes.read(namespace.cluster, made[0])
    mirror["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": made[0], "uid": node_object["metadata"]["uid"],
         "controller": True}
    ]  # fmt: skip
    namespace.api.create({"apiVersion": "v1", "kind": "Pod"} | mirror)

    reader = as_role(namespace, "reader", tmp_path)
    status, found, _ = asked(capsys, reader, "drain-check", *made, "--since-checkpoint", "30m",
                             "--restart", "5m")  # fmt: skip
    assert 5 == status
    rows = {one["node"]: one for one in found["nodes"]}
    assert [False, False, False, True] == [rows[node]["safe"] for node in made]
    for node in made[:3]:
        ours = {pod for gang in rows[node]["gangs"] for pod in gang["pods"]}
        assert evicted_by_kubectl(kubeconfig, node) == ours
    (gang,) = rows[made[0]]["gangs"]
    assert (big, "PyTorchJob", 2, 12, 6) == tuple(
        gang[key] for key in ("job", "kind", "size", "gpus", "gpus_here")
    )
    # 12 GPUs that did half an hour, and five minutes to begin again
    assert (6.0, 1.0, 7.0) == tuple(
        gang[f"{key}_gpu_hours"] for key in ("recompute", "restart", "would_lose")
    )
    assert {big, f"job-id={small}"} == {one["job"] for one in rows[made[1]]["gangs"]}
    (other,) = rows[made[3]]["others"]
    assert ("lone", "one pod, no gang", ["lone-0"]) == (other["job"], other["why"], other["pods"])

    assert 0 == asked(capsys, reader, "drain-check", made[3])[0]
    status, found, _ = asked(capsys, reader, "drain-check", made[0])
    assert (5, None) == (status, found["nodes"][0]["gangs"][0]["would_lose_gpu_hours"])
    assert "not known" in found["nodes"][0]["gangs"][0]["since_checkpoint_by"]

    # a spare is what has six GPUs free; once those are cordoned the gang does not place
    status, found, _ = asked(capsys, reader, "drain-check", made[0], "--spares")
    (answer,) = found["nodes"][0]["spares"]
    assert (big, True, 2, made[2:]) == (
        answer["job"], answer["places"], answer["spare_nodes"], answer["nodes"],
    )  # fmt: skip
    assert 0 == main(["--kubeconfig", str(reader), "node", made[0], "--spares"])
    assert "a restart places: all 2 pods (12 GPUs) find room" in capsys.readouterr().out
    for name in made[2:]:
        kubectl(kubeconfig, "cordon", name)
    status, found, _ = asked(capsys, reader, "drain-check", made[0], "--spares")
    (answer,) = found["nodes"][0]["spares"]
    assert (False, "cordoned") == (answer["places"], answer["cause"])
    assert "13 more GPUs are free on 2 nodes" in answer["why"]

    # the label counts for nothing, the pods do
    namespace.api.patch(
        f"/api/v1/nodes/{made[3]}", {"metadata": {"labels": {"gpufleet/gang": "a.b"}}}
    )
    assert 0 == asked(capsys, reader, "drain-check", made[3])[0]

    # one that goes already, and one that ended, hold nothing more
    pods.terminate(namespace, f"{small}-1", exit_code=1)
    path = namespace.path(f"pods/{small}-0")
    namespace.api.patch(path, {"metadata": {"finalizers": [pods.KEEP]}})
    namespace.api.delete(path)
    status, found, _ = asked(capsys, reader, "drain-check", made[2])
    assert (0, "its pods here have ended") == (status, found["nodes"][0]["others"][0]["why"])
    status, found, _ = asked(capsys, reader, "drain-check", made[1])
    assert (5, [big]) == (status, [one["job"] for one in found["nodes"][0]["gangs"]])
    assert "being deleted" in found["nodes"][0]["others"][0]["why"]
    pods.let_go(namespace, f"{small}-0")

    status, found, told = asked(capsys, reader, "drain-check", "no-such-node")
    assert (4, None) == (status, found)
    assert "no node no-such-node" in told
    token = namespaces.make_user(namespace, "nothing", [])
    context = kubeconfig_context(namespace.cluster, "nobody", token=token, namespace=namespace.name)
    closed = write_kubeconfig(tmp_path / "closed", {"nobody": context}, current="nobody")
    status, found, told = asked(capsys, closed, "drain-check", made[0])
    assert (4, None) == (status, found)
    assert "not allowed" in told

    client = Api(namespace.cluster.url, ca=str(namespace.cluster.ca), token=token)
    with pytest.raises(ApiError):
        client.get(path)
    client.close()

    capsys.readouterr()
    words = ["--kubeconfig", str(reader), "drain-check", made[0], "--checkpoint-interval", "1h"]
    assert 5 == main(words)
    lines = capsys.readouterr().out.splitlines()
    assert f"{made[0]}  NOT SAFE" in lines[0]
    assert all(len(line) <= 80 for line in lines)
    assert len(lines) <= 10
