"""A node's card from raw JSON: polarity, cordons, lost GPUs, gangs and ranks, a node that was replaced."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet_cli.live import node_view
from gpufleet_cli.live.node_gangs import BY_SPEC, Mates
from gpufleet_cli.live.node_view import Seen
from gpufleet_cli.live.pods import pods_of
from gpufleet_cli.node_card import NodeCard
from gpufleet_cli.timestamps import parse_rfc3339

NOW = "2026-03-11T03:51:19Z"
GPU = "nvidia.com/gpu"


def ns(text: str) -> int:
    found = parse_rfc3339(text)
    assert found is not None
    return found[0]


def condition(kind: str, status: str, reason: str = "", at: str = "2026-03-11T03:41:30Z") -> Any:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": at}


def node(
    *conditions: Any, allocatable: str = "8", meta: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "gpu-node-0417",
            "uid": "uid-1",
            "creationTimestamp": "2026-01-02T00:00:00Z",
            **(meta or {}),
        },
        "spec": spec,
        "status": {
            "capacity": {GPU: "8"},
            "allocatable": {GPU: allocatable},
            "conditions": [condition("Ready", "True"), *conditions],
            "nodeInfo": {"bootID": "boot-1"},
        },
    }


def lease(renewed: str) -> dict[str, Any]:
    return {"spec": {"renewTime": renewed, "leaseDurationSeconds": 40}}


def card(found: dict[str, Any] | None, **more: Any) -> NodeCard:
    seen = Seen(
        name="gpu-node-0417",
        node=found,
        lease=more.pop("lease", lease("2026-03-11T03:51:12Z")),
        pods=more.pop("pods", []),
        **more,
    )
    return node_view.card(seen, now_ns=ns(NOW), context="prod", server="https://k8s.example")


@pytest.mark.parametrize(
    ("kind", "status", "mark"),
    [
        ("Ready", "True", "fine"),
        ("Ready", "Unknown", "bad"),
        ("DiskPressure", "True", "bad"),
        ("DiskPressure", "Unknown", "fine"),
        ("AcceleratedHardwareReady", "False", "bad"),
        ("AcceleratedHardwareReady", "True", "fine"),
        ("KernelReady", "Unknown", "bad"),
        ("XIDErrors", "True", "bad"),
        ("XIDErrors", "False", "fine"),
        ("SysLogsXIDError", "True", "bad"),
        ("GpuPcieWatch", "True", "bad"),
        ("KernelDeadlock", "True", "bad"),
        ("VendorFabric", "True", "third-party"),
        ("VendorFabric", "False", "fine"),
        ("VendorFabricHealthy", "True", "fine"),
        ("VendorFabricHealthy", "False", "third-party"),
        ("VendorDiskAvailable", "Unknown", "third-party"),
    ],
)
def test_polarity_is_the_products(kind: str, status: str, mark: str) -> None:
    """True is good for some and bad for others; what no manual describes is shown and not scored."""
    assert mark == node_view.mark_of(kind, status)


def test_a_third_partys_condition_alone_makes_no_node_ill() -> None:
    """It is on the card all the same."""
    found = card(node(condition("VendorFabric", "True", "Odd")))
    assert not found.is_ill
    assert ["third-party"] == [one.mark for one in found.conditions if one.kind == "VendorFabric"]


def test_auto_repair_has_a_time() -> None:
    """EKS repairs ten minutes after accelerated hardware turned bad."""
    (bad,) = card(node(condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error"))).bad
    assert (ns("2026-03-11T03:51:30Z"), "EKS agent") == (bad.repair_at_ns, bad.source)


def test_the_lease_is_the_clock_of_death() -> None:
    """Forty seconds and some more without a renewal, whatever Ready says."""
    alive = card(node(), lease=lease("2026-03-11T03:50:40.5Z"))
    dead = card(node(), lease=lease("2026-03-11T03:41:19Z"))
    assert (False, True) == (alive.is_silent, dead.is_silent)
    assert 600.0 == dead.lease_age_s
    assert dead.is_ill
    assert card(node(), lease=None).is_silent is None


@pytest.mark.parametrize(
    ("allocatable", "labels", "lost"),
    [
        ("8", {}, 0),
        ("7", {}, 1),
        ("0", {}, 8),
        ("8", {"nvidia.com/gpu.count": "16"}, 8),
        ("8", {"nvidia.com/gpu.count": "16", "nvidia.com/mig.strategy": "mixed"}, 0),
    ],
)
def test_lost_gpus(allocatable: str, labels: dict[str, str], lost: int) -> None:
    """Allocatable below capacity or label; a label that counts whole GPUs says nothing beside MIG."""
    assert lost == card(node(allocatable=allocatable, meta={"labels": labels})).gpus.lost


def test_no_gpus_is_not_known_and_not_lost() -> None:
    """None is not zero."""
    bare = {"metadata": {"name": "cpu"}, "status": {"capacity": {"cpu": "4"}}}
    found = card(bare).gpus
    assert (None, None, None) == (found.capacity, found.allocatable, found.lost)


def test_our_cordon() -> None:
    """By the annotations of the queue."""
    marks = {
        "gpufleet/cordoned-by": "anna",
        "gpufleet/cordoned-at": "2026-03-11T03:50:11Z",
        "gpufleet/reason": "XID 79",
        "gpufleet/incident": "train-run-7-1",
    }
    found = card(node(meta={"annotations": marks}, unschedulable=True)).cordon
    assert found is not None
    assert ("anna", "XID 79", "train-run-7-1") == (found.by, found.reason, found.incident)
    assert ns("2026-03-11T03:50:11Z") == found.at_ns
    loose = card(node(meta={"annotations": marks}))
    assert loose.cordon is None
    assert any("somebody uncordoned it" in note for note in loose.notes)


@pytest.mark.parametrize("prefix", ["k8saas.nvidia.com/", "ours.example/"])
def test_the_cordon_of_nvsentinel(prefix: str) -> None:
    """Whatever its prefix; uncordoning by hand would cancel its repair."""
    labels = {
        f"{prefix}cordon-by": "NVSentinel",
        f"{prefix}cordon-reason": "SysLogsXIDError",
        f"{prefix}cordon-timestamp": "2026-03-11T03-42-00Z",
    }
    found = card(node(meta={"labels": labels}, unschedulable=True))
    assert found.cordon is not None
    assert ("NVSentinel", "SysLogsXIDError") == (found.cordon.by, found.cordon.reason)
    assert ns("2026-03-11T03:42:00Z") == found.cordon.at_ns
    assert any("cancels its repair" in note for note in found.notes)


def test_anybody_elses_cordon() -> None:
    """The newest manager of the field; nobody where the field has none."""
    fields = {"f:spec": {"f:unschedulable": {}}}
    managed = [
        {"manager": "old", "time": "2026-03-10T00:00:00Z", "fieldsV1": fields},
        {"manager": "kubectl", "time": "2026-03-11T03:45:00Z", "fieldsV1": fields},
        {"manager": "kubelet", "time": "2026-03-11T03:51:00Z", "fieldsV1": {"f:status": {}}},
    ]
    found = card(node(meta={"managedFields": managed}, unschedulable=True)).cordon
    assert found is not None
    assert ("kubectl", ns("2026-03-11T03:45:00Z")) == (found.by, found.at_ns)
    unknown = card(node(unschedulable=True)).cordon
    assert unknown is not None
    assert unknown.by is None


def pod(name: str, index: int, *, started: str = "2026-03-11T01:00:00Z", **more: Any) -> Any:
    """A worker of a PyTorchJob."""
    env = [] if more.pop("bare", False) else [{"name": "RANK", "value": str(index)}]
    labels = {
        "training.kubeflow.org/job-name": "train-run-7",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
    }
    args = more.pop("args", ["--nproc-per-node=8", "train.py"])
    return {
        "metadata": {"name": name, "namespace": "train", "uid": name, "labels": labels},
        "spec": {
            "nodeName": "gpu-node-0417",
            "containers": [
                {
                    "name": "pytorch",
                    "args": args,
                    "env": env,
                    "resources": {"limits": {GPU: "8"}},
                }
            ],
        },
        "status": {"phase": more.pop("phase", "Running"), "startTime": started},
    }


def test_the_gang_and_its_ranks() -> None:
    """Ranks where the spec fixes them; the size by the other pods where the object is not at hand."""
    own = pods_of([pod("train-run-7-worker-99", 100)])
    mates = pods_of([pod(f"train-run-7-worker-{n}", n + 1) for n in range(128)])
    (gang,) = card(node(), pods=own, mates=mates).gangs
    assert ("PyTorchJob", "train-run-7", "train") == (gang.kind, gang.name, gang.namespace)
    assert (128, 8, BY_SPEC) == (gang.size, gang.gpus, gang.ranks_by)
    assert [(800, 807)] == [one.ranks for one in gang.pods]


def test_many_nodes_share_what_is_known_of_their_gangs() -> None:
    """The same card as of one node alone: size, ranks, and a node that is younger than its gang."""
    big = pods_of([pod(f"train-run-7-worker-{n}", n + 1) for n in range(128)])
    others = [pod("w-0", 0, phase="Failed"), pod("w-1", 1, bare=True)]
    for other in others:
        other["metadata"]["labels"]["training.kubeflow.org/job-name"] = "other"
    lone = pods_of(others)
    young = {"creationTimestamp": "2026-03-11T03:50:00Z"}
    together = Mates([*big, *lone], {}, ())
    for own, mates in ((big[:1], big), (big[5:7], big), (lone, lone), ([], [])):
        alone = card(node(meta=young), pods=own, mates=mates)
        assert alone == card(node(meta=young), pods=own, together=together)
        assert bool(own) <= bool(alone.notes)
    (gang,) = card(node(), pods=big[:1], together=together).gangs
    assert 128 == gang.size


def test_ranks_that_only_the_logs_tell() -> None:
    """torchrun's agents sort themselves: no rank is claimed."""
    args = ["--nproc-per-node=8", "--rdzv-backend=c10d", "train.py"]
    own = pods_of([pod("w-3", 3, args=args, bare=True)])
    (gang,) = card(node(), pods=own, mates=own).gangs
    assert (None, None) == (gang.ranks_by, gang.pods[0].ranks)


def test_a_gang_that_is_over_holds_nothing() -> None:
    """A failed pod stays listed, and its GPUs are free."""
    own = pods_of([pod("w-0", 0, phase="Failed")])
    found = card(node(), pods=own)
    assert found.gangs[0].is_over
    assert 0 == found.gpus.held


def test_a_node_that_was_replaced_under_its_name() -> None:
    """Younger than the pods that are bound to it."""
    own = pods_of([pod("w-0", 0, started="2026-03-11T01:00:00Z")])
    young = node(meta={"creationTimestamp": "2026-03-11T03:47:00Z"})
    assert any("replaced under the same name" in note for note in card(young, pods=own).notes)
    assert not card(node(), pods=own).notes


def test_taints_in_plain_words() -> None:
    """And those that nobody here knows, as they are."""
    found = node(
        taints=[
            {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
            {"key": "team", "value": "a", "effect": "NoSchedule"},
        ]
    )
    first, second = card(found).taints
    assert first.words is not None
    assert first.words.startswith("the API server hears nothing of it")
    assert ("team=a:NoSchedule", None) == (second.shown, second.words)


@pytest.mark.parametrize("odd", [{}, {"metadata": None}, {"metadata": {"name": "n"}, "status": []}])
def test_odd_objects_give_a_card(odd: dict[str, Any]) -> None:
    """Nothing is claimed of what is not there."""
    found = card(odd, lease=None, pods=None)
    assert (None, None, ()) == (found.ready, found.is_silent, found.gangs)
    assert not found.is_ill


def test_events_reboots_first() -> None:
    """What the API server still keeps of its last hour."""
    events = [
        {
            "involvedObject": {"kind": "Node", "name": "gpu-node-0417"},
            "reason": reason,
            "message": f"m {reason}",
            "type": "Warning",
            "eventTime": None,
            "lastTimestamp": at,
        }
        for reason, at in (
            ("NodeNotReady", "2026-03-11T03:42:00Z"),
            ("Rebooted", "2026-03-11T03:40:00Z"),
            ("NodeHasSufficientMemory", "2026-03-11T03:43:00Z"),
        )
    ]
    notes = card(node(), events=events).notes
    assert ["Rebooted", "NodeNotReady"] == [note.split()[2].rstrip(":") for note in notes]
