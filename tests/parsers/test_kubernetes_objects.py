"""Kubernetes objects: a rank's life is its GPU container's; ranks, conditions, events, leases."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import yaml
from builders import evidence

from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import (
    ClusterEvent,
    Fact,
    Gap,
    IdentityLink,
    Link,
    NodeLease,
    NodeState,
    PodState,
)
from gpufleet_cli.parsers import kubernetes_objects
from gpufleet_cli.timestamps import parse_rfc3339

Object = dict[str, Any]


def ns(text: str) -> int:
    found = parse_rfc3339(text)
    assert found is not None
    return found[0]


def parse(value: object, path: str = "pods.json") -> list[Fact]:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return list(kubernetes_objects.parse(evidence(data, path)))


def listed(*items: Object, kind: str = "List") -> Object:
    return {"apiVersion": "v1", "kind": kind, "items": list(items)}


def pod(name: str = "p-0", labels: dict[str, str] | None = None, **container: object) -> Object:
    spec = {"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": "8"}}, **container}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "istio-proxy"}, spec]},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }


def with_status(state: object, **more: object) -> Object:
    found = pod()
    found["status"]["containerStatuses"] = [
        {"name": "istio-proxy", "state": {"running": {"startedAt": "2025-03-03T21:00:00Z"}}},
        {"name": "pytorch", "state": state, "restartCount": 1, **more},
    ]
    return found


def pods(value: object, path: str = "pods.json") -> list[PodState]:
    return [f for f in parse(value, path) if isinstance(f, PodState)]


def nodes(value: object) -> list[NodeState]:
    return [f for f in parse(value) if isinstance(f, NodeState)]


# --- Containers -----------------------------------------------------------------------------------


def test_the_gpu_container_is_the_rank() -> None:
    """The pod runs on for its sidecar; the rank was killed."""
    killed = {
        "terminated": {
            "exitCode": 137,
            "reason": "OOMKilled",
            "startedAt": "2025-03-03T21:00:00Z",
            "finishedAt": "2025-03-03T22:14:12Z",
            "containerID": "containerd://" + "a" * 64,
        }
    }
    found = pods(with_status(killed, lastState={"terminated": {"exitCode": 1, "reason": "Error"}}))[
        0
    ]
    state = next(c for c in found.containers if c.name == found.rank_container)
    assert ("Running", "pytorch", "terminated", "OOMKilled", 137) == (
        found.phase,
        found.rank_container,
        state.state,
        state.reason,
        state.exit_code,
    )
    assert (ns("2025-03-03T22:14:12Z"), 1, 1, "Error") == (
        state.finished_ns,
        state.restarts,
        state.last_exit_code,
        state.last_reason,
    )
    assert ("a" * 64, True, 8) == (state.container_id, state.has_gpu, found.gpus)


@pytest.mark.parametrize(
    ("state", "word", "reason"),
    [
        (
            {"waiting": {"reason": "ImagePullBackOff", "message": "m"}},
            "waiting",
            "ImagePullBackOff",
        ),
        ({"running": {"startedAt": "2025-03-03T21:00:00Z"}}, "running", None),
        ({"terminated": {"exitCode": 0, "reason": "Completed"}}, "terminated", "Completed"),
        ({}, "unknown", None),
        ({"waiting": None, "running": {}}, "running", None),
    ],
)
def test_the_three_states(state: object, word: str, reason: str | None) -> None:
    """Waiting, running, terminated, each with its reason."""
    found = next(c for c in pods(with_status(state))[0].containers if c.name == "pytorch")
    assert (word, reason) == (found.state, found.reason)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({}, "pytorch"),
        ({"resources": {"limits": {"amd.com/gpu": 8}}}, "pytorch"),
        ({"resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}, "pytorch"),
        ({"resources": {}}, "pytorch"),
    ],
)
def test_which_container_runs_the_ranks(change: Object, name: str) -> None:
    """The one with GPUs, whoever makes them; without any, the first that is no sidecar."""
    assert name == pods(pod(**change))[0].rank_container


def test_kubectls_default_container() -> None:
    """An annotation decides where no container has GPUs."""
    found = pod(resources={})
    found["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": "istio-proxy"}
    assert "istio-proxy" == pods(found)[0].rank_container


def test_an_init_container_that_failed_is_shown() -> None:
    """Those that simply ended well are not."""
    found = pod()
    found["status"]["initContainerStatuses"] = [
        {"name": "fetch", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        {"name": "mount", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
    ]
    names = [c.name for c in pods(found)[0].containers]
    assert "mount" in names
    assert "fetch" not in names


def test_an_unscheduled_pod() -> None:
    """Why, and no node."""
    found = pod()
    del found["spec"]["nodeName"]
    found["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/9 nodes"}],
    }
    state = pods(found)[0]
    assert (False, "0/9 nodes", None) == (state.scheduled, state.unscheduled_why, state.node)
    assert {"waiting"} == {c.state for c in state.containers}


def test_somebody_removed_the_pod() -> None:
    """DisruptionTarget separates "removed" from "died"."""
    found = pod()
    found["metadata"]["deletionTimestamp"] = "2025-03-03T22:14:12Z"
    found["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
         "lastTransitionTime": "2025-03-03T22:14:00Z"}
    ]  # fmt: skip
    state = pods(found)[0]
    assert ("DeletionByTaintManager", ns("2025-03-03T22:14:00Z"), True) == (
        state.disruption,
        state.disrupted_ns,
        state.terminating,
    )


# --- Ranks ----------------------------------------------------------------------------------------

KUBEFLOW = "training.kubeflow.org/"
JOBSET = "jobset.sigs.k8s.io/"
INDEX = "batch.kubernetes.io/job-completion-index"


def kubeflow(role: str, index: int, **more: object) -> Object:
    labels = {
        f"{KUBEFLOW}job-name": "pt",
        f"{KUBEFLOW}replica-type": role,
        f"{KUBEFLOW}replica-index": str(index),
    }
    return pod(f"pt-{role}-{index}", labels, **more)


@pytest.mark.parametrize(
    ("labels", "rank"),
    [
        ({INDEX: "3"}, 3),
        ({INDEX: "0"}, 0),
        ({"leaderworkerset.sigs.k8s.io/worker-index": "2"}, 2),
        ({f"{KUBEFLOW}replica-type": "worker", f"{KUBEFLOW}replica-index": "2",
          f"{KUBEFLOW}operator-name": "mpi-operator"}, 2),
        ({"volcano.sh/task-spec": "master", "volcano.sh/task-index": "0"}, 0),
        ({"volcano.sh/task-spec": "worker", "volcano.sh/task-index": "0"}, None),
        ({"ray.io/worker-group-replica-index": "1"}, None),
        ({"app": "x"}, None),
    ],
)  # fmt: skip
def test_the_node_rank_by_kind(labels: dict[str, str], rank: int | None) -> None:
    """Each controller's own index label; none where the kind has none."""
    assert rank == pods(pod(labels=labels))[0].node_rank


def test_a_worker_beside_a_master_counts_from_one() -> None:
    """PyTorchJob: master 0, worker index + 1."""
    found = pods(listed(kubeflow("master", 0), kubeflow("worker", 0), kubeflow("worker", 1)))
    assert [0, 1, 2] == [p.node_rank for p in found]


def test_workers_without_a_master_have_no_rank() -> None:
    """An elastic job's ranks are given out by torchrun."""
    assert [None, None] == [
        p.node_rank for p in pods(listed(kubeflow("worker", 0), kubeflow("worker", 1)))
    ]


def mpi(role: str, index: int, gpus: int) -> Object:
    """A pod of mpi-operator v2beta1, which says `job-role` and no `replica-type`."""
    prefix = "training.kubeflow.org"
    labels = {
        f"{prefix}/job-name": "m",
        f"{prefix}/operator-name": "mpi-operator",
        f"{prefix}/job-role": role,
        f"{prefix}/replica-index": str(index),
    }
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return pod(f"m-{role}-{index}", labels, resources={"limits": limits})


@pytest.mark.parametrize(("launcher_gpus", "ranks"), [(0, [None, 0, 1]), (8, [0, 1, 2])])
def test_mpi_workers_lie_in_hostfile_order(launcher_gpus: int, ranks: list[int | None]) -> None:
    """A launcher that holds GPUs works itself and comes first."""
    found = pods(
        listed(mpi("launcher", 0, launcher_gpus), mpi("worker", 0, 8), mpi("worker", 1, 8))
    )
    assert ranks == [one.node_rank for one in found]
    assert {"static"} == {one.rendezvous for one in found}


@pytest.mark.parametrize(
    ("args", "nnodes"),
    [
        (["--nnodes=16", "train.py"], 16),
        (["--nnodes", "4"], 4),
        (["--nnodes=2:4"], None),
        (["train.py"], None),
    ],
)
def test_how_many_such_pods_there_are(args: list[str], nnodes: int | None) -> None:
    """An elastic range says no number."""
    assert [nnodes] == [one.nnodes for one in pods(listed(pod(args=args)))]


def test_jobset_ranks_run_through_its_jobs() -> None:
    """job-index times the parallelism plus the completion index."""
    found = [
        pod(f"s-{job}-{index}", {f"{JOBSET}jobset-name": "s", f"{JOBSET}replicatedjob-name": "w",
                                 f"{JOBSET}job-index": str(job), INDEX: str(index)})
        for job in (0, 1) for index in (0, 1, 2)
    ]  # fmt: skip
    assert [0, 1, 2, 3, 4, 5] == [p.node_rank for p in pods(listed(*found))]


@pytest.mark.parametrize(
    ("container", "rank", "rendezvous", "nproc"),
    [
        ({"env": [{"name": "RANK", "value": "3"}]}, 3, "static", None),
        ({"env": [{"name": "PET_NODE_RANK", "value": "0"}, {"name": "PET_NPROC_PER_NODE", "value": "auto"}]},
         0, "static", 8),
        ({"env": [{"name": "PET_NODE_RANK",
                   "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}}]}, 5, "static", None),
        ({"args": ["torchrun --nproc_per_node=4 --node_rank=$JOB_COMPLETION_INDEX t.py"]}, 5, "static", 4),
        ({"args": ["torchrun", "--nproc-per-node", "gpu", "--node-rank", "7"]}, 7, "static", 8),
        ({"command": ["torchrun", "--rdzv-backend=c10d", "--nproc-per-node=8"]}, 5, "c10d", 8),
        ({"env": [{"name": "PET_RDZV_ENDPOINT", "value": "x:1"}]}, 5, "c10d", None),
        ({}, 5, None, None),
    ],
)  # fmt: skip
def test_static_settings_beat_the_index(
    container: Object, rank: int, rendezvous: str | None, nproc: int | None
) -> None:
    """RANK of a pod is a node rank; c10d ignores what the spec says, so the index is a guess."""
    found = pods(pod(labels={INDEX: "5"}, **container))[0]
    assert (rank, rendezvous, nproc) == (found.node_rank, found.rendezvous, found.nproc)


def test_a_guess_is_no_link() -> None:
    """With c10d the node rank stays out of the identity map."""
    found = parse(pod(labels={INDEX: "5"}, command=["torchrun", "--rdzv-backend=c10d"]))
    link = next(f for f in found if isinstance(f, IdentityLink))
    assert (Link.POD_SPEC, None, "gpu-1", "10.0.0.1") == (
        link.how, link.node_rank, link.node, link.pod_ip,
    )  # fmt: skip


def test_a_device_that_the_kubelet_gave() -> None:
    """allocatedResourcesStatus names the GPU's UUID."""
    found = with_status({"running": {}}, allocatedResourcesStatus=[
        {"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-1f0d", "health": "Healthy"}]}
    ])  # fmt: skip
    links = [f for f in parse(found) if isinstance(f, IdentityLink) and f.gpu_uuid]
    assert [("p-0", "GPU-1f0d", "pytorch")] == [(f.pod, f.gpu_uuid, f.container) for f in links]


# --- Nodes ----------------------------------------------------------------------------------------


def node(*conditions: tuple[str, str], **more: object) -> Object:
    return {
        "kind": "Node",
        "metadata": {"name": "gpu-1", "labels": {"nvidia.com/gpu.clique": "a.1"}, "uid": "u"},
        "spec": {
            "unschedulable": True,
            "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
        },
        "status": {
            "conditions": [
                {"type": kind, "status": status, "lastTransitionTime": "2025-03-03T22:14:00Z"}
                for kind, status in conditions
            ],
            "capacity": {"nvidia.com/gpu": "8"},
            "allocatable": {"nvidia.com/gpu": "7"},
            "nodeInfo": {"bootID": "b-1"},
            **more,
        },
    }


@pytest.mark.parametrize(
    ("kind", "status", "bad", "doubtful"),
    [
        ("AcceleratedHardwareReady", "False", True, False),
        ("AcceleratedHardwareReady", "True", False, False),
        ("XIDErrors", "True", True, False),
        ("XIDErrors", "False", False, False),
        ("SysLogsXIDError", "True", True, False),
        ("GpuNvlinkWatch", "True", True, False),
        ("GpuNvlinkWatch", "False", False, False),
        ("MemoryPressure", "True", True, False),
        ("MemoryPressure", "Unknown", False, False),
        ("KernelDeadlock", "True", True, False),
        ("VendorThingHealthy", "False", False, True),
        ("VendorThingHealthy", "True", False, False),
        ("VendorThing", "True", False, True),
        ("VendorThing", "False", False, False),
    ],
)
def test_polarity_by_product(kind: str, status: str, bad: bool, doubtful: bool) -> None:
    """True is good for one maker and bad for the next; unknown makers are shown, not scored."""
    found = nodes(node((kind, status)))[0]
    assert (bad, doubtful) == (bool(found.bad_conditions), bool(found.doubtful_conditions))


def test_a_node_that_is_gone() -> None:
    """Ready Unknown since when, fewer GPUs than it has, its domain, its boot."""
    found = nodes(node(("Ready", "Unknown")))[0]
    assert ("Unknown", ns("2025-03-03T22:14:00Z"), True, 8, 7) == (
        found.ready, found.ready_since_ns, found.unschedulable, found.gpus_capacity, found.gpus_allocatable,
    )  # fmt: skip
    assert ("a.1", ("k=v:NoExecute",), "b-1", ()) == (
        found.nvlink_domain,
        found.taints,
        found.boot_id,
        found.bad_conditions,
    )


def test_health_in_a_label() -> None:
    """HyperPod and NVSentinel say it there."""
    sick = node()
    sick["metadata"]["labels"]["sagemaker.amazonaws.com/node-health-status"] = (
        "UnschedulablePendingReboot"
    )
    fine = node()
    fine["metadata"]["labels"]["sagemaker.amazonaws.com/node-health-status"] = "Schedulable"
    assert [1, 0] == [len(nodes(n)[0].bad_conditions) for n in (sick, fine)]


def test_a_lease_is_a_heartbeat() -> None:
    """Leases of leader elections are none."""
    lease = {"kind": "Lease", "metadata": {"name": "gpu-1", "namespace": "kube-node-lease"},
             "spec": {"renewTime": "2025-03-03T22:13:10.123456Z", "leaseDurationSeconds": 40}}  # fmt: skip
    election = copy.deepcopy(lease)
    election["metadata"]["namespace"] = "kube-system"  # type: ignore[index]
    found = [f for f in parse(listed(lease, election)) if isinstance(f, NodeLease)]
    assert [("gpu-1", ns("2025-03-03T22:13:10.123456Z"), 40.0)] == [
        (f.node, f.renewed_ns, f.duration_s) for f in found
    ]


# --- Events ---------------------------------------------------------------------------------------

EVENT = {
    "kind": "Event",
    "metadata": {"name": "e", "namespace": "ml", "creationTimestamp": "2025-03-03T22:00:00Z"},
    "involvedObject": {"kind": "Pod", "name": "p-0", "namespace": "ml"},
    "reason": "BackOff",
    "type": "Warning",
    "message": "Back-off pulling image",
}


@pytest.mark.parametrize(
    ("times", "last"),
    [
        ({"series": {"lastObservedTime": "2025-03-03T22:05:00Z", "count": 4},
          "lastTimestamp": "2025-03-03T22:04:00Z"}, "2025-03-03T22:05:00Z"),
        ({"lastTimestamp": "2025-03-03T22:04:00Z", "eventTime": "2025-03-03T22:03:00Z"}, "2025-03-03T22:04:00Z"),
        ({"lastTimestamp": None, "eventTime": "2025-03-03T22:03:00.000001Z"}, "2025-03-03T22:03:00.000001Z"),
        ({"lastTimestamp": None, "eventTime": None}, "2025-03-03T22:00:00Z"),
    ],
)  # fmt: skip
def test_which_time_is_the_events(times: Object, last: str) -> None:
    """The newest sighting that the object has."""
    found = next(f for f in parse({**EVENT, **times}) if isinstance(f, ClusterEvent))
    assert ns(last) == found.at_ns
    assert ("BackOff", "Pod", "p-0", True) == (found.reason, found.kind, found.name, found.warning)


def test_the_newer_event_api() -> None:
    """`regarding` and `note`."""
    event = {"kind": "Event", "regarding": {"kind": "Node", "name": "gpu-9"}, "reason": "NodeNotReady",
             "note": "Node gpu-9 status is now: NodeNotReady", "type": "Normal",
             "deprecatedLastTimestamp": "2025-03-03T22:04:00Z", "deprecatedCount": 3}  # fmt: skip
    found = next(f for f in parse(event) if isinstance(f, ClusterEvent))
    assert ("Node", "gpu-9", 3, False) == (found.kind, found.name, found.count, found.warning)


def test_an_assignment_ties_pod_and_node() -> None:
    """The scheduler's message, also of pods that are gone."""
    event = {**EVENT, "reason": "Scheduled", "message": "Successfully assigned ml/p-0 to gpu-h01"}
    links = [f for f in parse(event) if isinstance(f, IdentityLink)]
    assert [(Link.SCHEDULER, "ml", "p-0", "gpu-h01")] == [
        (f.how, f.namespace, f.pod, f.node) for f in links
    ]


# --- Forms ----------------------------------------------------------------------------------------


def untyped(found: Object) -> Object:
    return {key: value for key, value in found.items() if key != "kind"}


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(listed(pod())).encode(),
        json.dumps(listed(untyped(pod()), kind="PodList")).encode(),
        json.dumps(pod(), indent=2).encode(),
        json.dumps([pod()]).encode(),
        json.dumps({"type": "MODIFIED", "object": pod()}).encode(),
        (json.dumps(pod(), indent=1) + "\n" + json.dumps(EVENT)).encode(),
        yaml.safe_dump({"apiVersion": "v1", **listed(pod())}).encode(),
        ("---\n" + yaml.safe_dump({"apiVersion": "v1", **pod()})).encode(),
        b"\xef\xbb\xbf" + json.dumps(listed(pod())).encode(),
    ],
    ids=["list", "typed-list", "one", "array", "watch", "row", "yaml-list", "yaml", "bom"],
)
def test_the_same_pod_in_every_form(data: bytes) -> None:
    """kubectl, the API, watches, YAML."""
    assert kubernetes_objects.matches("x", data)
    assert ["p-0"] == [p.name for p in pods(data)]


def test_an_excerpt_that_somebody_made() -> None:
    """Names and statuses alone: the only container is the rank's."""
    found = pods([
        {"pod": "t-1", "phase": "Failed", "containerStatuses": [
            {"name": "pytorch", "restartCount": 0, "state": {"terminated": {
                "exitCode": 1, "reason": "Error", "finishedAt": "2025-03-03T22:14:12Z"}}}]},
    ])  # fmt: skip
    assert [("t-1", "pytorch", "Failed")] == [(p.name, p.rank_container, p.phase) for p in found]


@pytest.mark.parametrize("items", [None, [], [None, 5, "x", [], {}]])
def test_lists_with_nothing_in_them(items: object) -> None:
    """`items: null` occurs."""
    assert [] == parse({"kind": "PodList", "apiVersion": "v1", "items": items})


def test_a_cut_list_gives_its_whole_pods() -> None:
    """And a gap for the rest."""
    data = json.dumps(listed(pod("p-0"), pod("p-1"), kind="PodList")).encode()[:-40]
    found = parse(data)
    assert ["p-0"] == [f.name for f in found if isinstance(f, PodState)]
    assert 1 == sum(isinstance(f, Gap) for f in found)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[" * 100_000,
        b'{"items":' * 50_000,
        b"apiVersion: v1\nkind: Pod\na: &x [1]\nb: *x\n",
        b"apiVersion: v1\nkind: Pod\n\tmetadata: x\n",
        b"apiVersion: v1\nkind: Pod\nmetadata: !!python/object/apply:os.system ['x']\n",
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes) -> None:
    """Nesting, aliases, tags: one line each."""
    with pytest.raises(ParseError):
        parse(data)


@pytest.mark.parametrize("path", ["metadata", "spec", "status"])
@pytest.mark.parametrize(
    "junk", [None, 5, "x", [], [[]], {"containers": 5}, {"conditions": {"a": 1}}]
)
def test_wrong_types_cost_themselves(path: str, junk: object) -> None:
    """Any part of an object may be anything."""
    for found in (pod(), node(), copy.deepcopy(EVENT)):
        found[path] = junk
        parse(listed(found))


@pytest.mark.parametrize(
    ("change", "sorts_as"),
    [
        ({"command": ["torchrun", "--rdzv-backend=c10d"]}, "w-5"),
        ({"env": [{"name": "PET_RDZV_ENDPOINT", "value": "x:1"}]}, "w-5"),
        ({"command": ["torchrun", "--rdzv-backend=etcd-v2"]}, None),
        ({"command": ["torchrun", "--rdzv-backend=c10d", "--local-addr=$(POD_IP)"]}, None),
        ({"command": ["torchrun", "--standalone"]}, None),
        ({"command": ["torchrun", "--node-rank=5"]}, None),
    ],
)
def test_by_what_agents_are_sorted(change: dict[str, object], sorts_as: str | None) -> None:
    """c10d alone sorts, by host names; that of a pod on its node's network is the machine's, and not known."""
    made = pod(name="w-5", labels={INDEX: "5"}, **change)
    (state,) = [fact for fact in parse(made) if isinstance(fact, PodState)]
    assert sorts_as == state.sorts_as
    made["spec"] |= {"hostNetwork": True, "nodeName": "gpu-7"}
    (state,) = [fact for fact in parse(made) if isinstance(fact, PodState)]
    assert state.sorts_as is None
