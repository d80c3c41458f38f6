"""The tests' own cluster does what the tests of live triage rely on."""

from __future__ import annotations

import shutil
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from servers import jobs, namespaces, nodes, other_jobs, pods, proxy, store
from servers.api import Api, ApiError
from servers.cluster import Cluster, kubeconfig_context, write_kubeconfig
from servers.jobs import Shape
from servers.namespaces import Namespace
from servers.running import wait_until

AT = datetime(2026, 8, 20, 3, 11, 7, tzinfo=UTC)
JOB_NAME = "batch.kubernetes.io/job-name"


def log_of(namespace: Namespace, pod: str, **query: str) -> str:
    """A pod's log, through the API server."""
    return namespace.api.send("GET", namespace.path(f"pods/{pod}/log"), **query).decode(
        errors="replace"
    )


def test_an_indexed_job_runs_until_told_otherwise(namespace: Namespace) -> None:
    """Scheduler and Job controller are real: one pod a node, index labels, and the Job's own count of failures."""
    made = nodes.make(namespace, 4)
    job = jobs.indexed_job(namespace, "train", Shape(pods=4))
    running = pods.wait(namespace, f"{JOB_NAME}=train", 4)
    assert set(made) == {pod["spec"]["nodeName"] for pod in running}
    labels = running[2]["metadata"]["labels"]
    assert "2" == labels["batch.kubernetes.io/job-completion-index"]
    assert job["metadata"]["uid"] == labels["batch.kubernetes.io/controller-uid"]

    name = running[2]["metadata"]["name"]
    pods.kill_for_memory(namespace, name)
    path = namespace.path("jobs/train", "/apis/batch/v1")
    wait_until(lambda: namespace.api.get(path)["status"].get("failed") == 1, "the Job counts it")
    state = pods.read(namespace, name)["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ("OOMKilled", 137) == (state["reason"], state["exitCode"])
    assert 3 == len(pods.wait(namespace, f"{JOB_NAME}=train", 3))


def test_logs_are_files(namespace: Namespace) -> None:
    """Current and previous log, tail, timestamps, bytes that are no UTF-8, a line over 16 KiB."""
    (node,) = nodes.make(namespace, 1)
    (pod,) = jobs.plain_pods(namespace, "plain", Shape(pods=1, nodes=[node]))
    pods.wait(namespace, "job-id=plain", 1)
    torn = b"step 2 \xe2\x82".decode(errors="surrogateescape")
    lines = [(AT, "step 1"), (AT + timedelta(seconds=1), torn), (AT, "x" * 40_000)]
    pods.give_log(namespace, pod, lines, previous=[(AT, "before")])
    raw = namespace.api.send("GET", namespace.path(f"pods/{pod}/log"))
    assert b"step 1\nstep 2 \xe2\x82\n" + b"x" * 40_000 + b"\n" == raw
    assert "before\n" == log_of(namespace, pod, previous="true")
    assert "x" * (40_000 - 2 * 16_384) + "\n" == log_of(namespace, pod, tailLines="1"), "a part"
    told = log_of(namespace, pod, timestamps="true").splitlines()[0]
    assert "2026-08-20T03:11:07.000000000Z step 1" == told


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
def test_exec_runs_in_the_pods_folder(
    namespace: Namespace, kubeconfig: Path, tmp_path: Path
) -> None:
    """Binary output comes whole, also through the proxy, over the protocol that kubectl speaks."""
    (node,) = nodes.make(namespace, 1)
    (pod,) = jobs.plain_pods(namespace, "plain", Shape(pods=1, nodes=[node]))
    pods.wait(namespace, "job-id=plain", 1)
    dump = bytes(range(256)) * 4000
    (tmp_path / "nccl_trace_rank_0").write_bytes(dump)
    pods.allow_exec(namespace, pod, tmp_path)
    command = ["kubectl", "--kubeconfig", str(kubeconfig), "exec", pod, "--", "cat"]
    command.append("nccl_trace_rank_0")
    assert dump == subprocess.run(command, capture_output=True, check=True).stdout
    cluster = namespace.cluster
    with proxy.running(cluster.url, folder=cluster.folder) as between:
        context = kubeconfig_context(cluster, "admin", url=between.url, namespace=namespace.name)
        write_kubeconfig(kubeconfig, {"proxied": context}, current="proxied")
        assert dump == subprocess.run(command, capture_output=True, check=True).stdout
        assert 1 <= between.count(pattern="/exec")


def test_each_kind_leads_to_its_pods(namespace: Namespace) -> None:
    """The chain of controllers from a pod up, per kind."""
    nodes.make(namespace, 9)
    two = Shape(pods=2, gpus=1)
    jobs.jobset(namespace, "js", two, replicas=2)
    jobs.trainjob(namespace, "tj", two)
    jobs.pytorchjob(namespace, "pt", two)
    other_jobs.rayjob(namespace, "rj", two)
    other_jobs.mpijob(namespace, "mp", two)
    other_jobs.leaderworkerset(namespace, "lws", two, groups=2)
    job = other_jobs.volcano_job(namespace, "vc", two)
    other_jobs.kueue_workload(namespace, job)
    expected = {
        "js": (4, "jobset.sigs.k8s.io/jobset-name=js", ["Job", "JobSet"]),
        "tj": (2, "jobset.sigs.k8s.io/jobset-name=tj", ["Job", "JobSet", "TrainJob"]),
        "pt": (2, "training.kubeflow.org/job-name=pt", ["PyTorchJob"]),
        "rj": (3, "ray.io/cluster=rj-00000", ["RayCluster", "RayJob"]),
        "mp": (3, "training.kubeflow.org/job-name=mp", ["MPIJob"]),
        "lws": (
            4,
            "leaderworkerset.sigs.k8s.io/name=lws",
            ["StatefulSet", "Pod", "StatefulSet", "LeaderWorkerSet"],
        ),
        "vc": (2, "volcano.sh/job-name=vc", ["Job"]),
    }
    for name, (count, selector, kinds) in expected.items():
        last = pods.wait(namespace, selector, count)[-1]
        assert (name, kinds) == (name, owners(namespace, last))


def owners(namespace: Namespace, thing: dict[str, object]) -> list[str]:
    """The kinds of its controllers, upwards."""
    found = []
    while references := thing["metadata"].get("ownerReferences"):  # type: ignore[attr-defined]
        one = references[0]
        version, kind = one["apiVersion"], one["kind"]
        found.append(kind)
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        thing = namespace.api.get(namespace.path(f"{kind.lower()}s/{one['name']}", root))
    return found


def test_pending_evicted_and_not_pulled(namespace: Namespace) -> None:
    """What keeps a gang from running, and what takes a pod away."""
    (node,) = nodes.make(namespace, 1)
    jobs.plain_pods(namespace, "held", Shape(pods=1, nodes=[node], hold=True))
    pods.hold_back(namespace, "held-0")
    waiting = pods.read(namespace, "held-0")["status"]["containerStatuses"][0]["state"]["waiting"]
    assert "ImagePullBackOff" == waiting["reason"]
    jobs.plain_pods(namespace, "gone", Shape(pods=1, nodes=[node], gpus=0))
    pods.wait(namespace, "job-id=gone", 1)
    pods.evict(namespace, "gone-0")
    status = pods.read(namespace, "gone-0")["status"]
    assert ("Failed", "Evicted") == (status["phase"], status["reason"])
    jobs.indexed_job(namespace, "gang", Shape(pods=2))
    wait_until(
        lambda: [
            pod
            for pod in pods.found(namespace, f"{JOB_NAME}=gang")
            if pod["status"].get("conditions", [{}])[0].get("reason") == "Unschedulable"
        ],
        "the scheduler says why",
    )


def test_a_pod_can_be_made_again_at_once_under_its_name(namespace: Namespace) -> None:
    """kwok, which deletes by name and late, leaves the new one alone."""
    nodes.make(namespace, 1, gpus=2)
    jobs.plain_pods(namespace, "run", Shape(pods=1, gpus=2))
    pods.wait(namespace, "job-id=run", 1)
    uids = {pods.read(namespace, "run-0")["metadata"]["uid"]}
    for _ in range(30):
        pods.remake(namespace, "run-0")
        uids.add(pods.read(namespace, "run-0")["metadata"]["uid"])
    assert 31 == len(uids)


def test_a_dead_node_is_unknown(namespace: Namespace) -> None:
    """Really dead, by the controllers; and dead long ago, as they would have left it."""
    first, second = nodes.make(namespace, 2)
    cluster = namespace.cluster
    long_ago = datetime.now(UTC) - timedelta(minutes=20)
    nodes.kill(cluster, first)
    nodes.kill_at(cluster, second, long_ago)
    began = time.monotonic()
    wait_until(
        lambda: nodes.ready_status(nodes.read(cluster, first)) == "Unknown",
        "the node is Unknown",
        within_s=60,
    )
    assert time.monotonic() - began > 5
    found = nodes.read(cluster, second)
    assert "Unknown" == nodes.ready_status(found)
    ready = next(one for one in found["status"]["conditions"] if one["type"] == "Ready")
    assert f"{long_ago:%Y-%m-%dT%H:%M:%SZ}" == ready["lastTransitionTime"]
    wait_until(
        lambda: "node.kubernetes.io/unreachable" in taints(cluster, first), "the first is tainted"
    )
    wait_until(
        lambda: "node.kubernetes.io/unreachable" in taints(cluster, second), "so is the other"
    )


def taints(cluster: Cluster, node: str) -> set[str]:
    """The keys of a node's taints."""
    return {taint["key"] for taint in nodes.read(cluster, node)["spec"].get("taints", ())}


def test_kubelets_that_are_gone_or_hang(namespace: Namespace) -> None:
    """The API server says in its own words which of the two it is."""
    first, second = nodes.make(namespace, 2)
    cluster = namespace.cluster
    names = jobs.plain_pods(namespace, "plain", Shape(pods=2, nodes=[first, second]))
    pods.wait(namespace, "job-id=plain", 2)
    for name in names:
        pods.give_log(namespace, name, [(AT, "step")])
    nodes.stop_kubelet(cluster, first)
    with pytest.raises(ApiError, match="connection refused"):
        log_of(namespace, names[0])
    with nodes.hanging_kubelet(cluster, second), pytest.raises(ApiError, match="TLS handshake"):
        log_of(namespace, names[1])
    assert "step\n" == log_of(namespace, names[1])


def test_users_have_the_rights_they_were_given(namespace: Namespace) -> None:
    """403 for all else, and the audit log tells who asked what."""
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    token = namespaces.make_user(namespace, "viewer", rules)
    cluster = namespace.cluster
    viewer = Api(cluster.url, ca=str(cluster.ca), token=token)
    assert [] == viewer.items(namespace.path("pods"))
    with pytest.raises(ApiError) as refused:
        viewer.items("/api/v1/nodes")
    assert 403 == refused.value.status
    viewer.close()
    asked = cluster.audit(user=f"system:serviceaccount:{namespace.name}:viewer")
    assert [("list", 200), ("list", 403)] == [
        (one["verb"], one["responseStatus"]["code"]) for one in asked
    ]


def test_creation_times_can_lie_in_the_past(namespace: Namespace) -> None:
    """Changed in etcd; the API server shows it."""
    jobs.plain_pods(namespace, "old", Shape(pods=1))
    store.back_date(namespace.cluster, f"/registry/pods/{namespace.name}/old-0", AT)
    wait_until(
        lambda: (
            pods.read(namespace, "old-0")["metadata"]["creationTimestamp"] == "2026-08-20T03:11:07Z"
        ),
        "the pod is old",
    )


def test_an_api_server_that_was_killed_comes_back(own_cluster: Cluster) -> None:
    """Nothing lost."""
    own_cluster.kill_api_server()
    assert not own_cluster.api.answers()
    own_cluster.start_api_server()
    assert own_cluster.api.answers("/api/v1/namespaces/default")
