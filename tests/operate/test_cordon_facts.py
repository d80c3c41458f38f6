"""Whose cordon it is, from raw JSON of nodes: labels, annotations, taints, and who wrote which field."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet_cli.operate import cordon_facts

OURS = {
    "gpufleet/cordoned-by": "ml (anna@bastion)",
    "gpufleet/cordoned-at": "2026-03-11T03:50:11Z",
    "gpufleet/reason": "XID 79",
}


def managed(manager: str, *, cordon: bool = True, marks: bool = False) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if cordon:
        fields["f:spec"] = {"f:unschedulable": {}}
    if marks:
        fields["f:metadata"] = {"f:annotations": {f"f:{key}": {} for key in OURS}}
    return {"manager": manager, "time": "2026-03-11T03:50:11Z", "fieldsV1": fields}


def node(*managers: dict[str, Any], cordoned: bool = True, **meta: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"unschedulable": True} if cordoned else {}
    if "taint" in meta:
        spec["taints"] = [{"key": meta.pop("taint"), "effect": "NoSchedule"}]
    made = {"name": "n1", "uid": "u", "resourceVersion": "7", "managedFields": list(managers)}
    return {"metadata": {**made, **meta}, "spec": spec}


@pytest.mark.parametrize(
    ("found", "kind", "name"),
    [
        (node(cordoned=False), None, None),
        (node(annotations=OURS), "ours", "ml (anna@bastion)"),
        (node(managed("gpufleet", marks=True), annotations=OURS), "ours", "ml (anna@bastion)"),
        # ours was taken off by hand, its annotations stayed, and a person cordoned it again
        (
            node(managed("gpufleet", cordon=False, marks=True), managed("kubectl"), annotations=OURS),
            "person", "a person (kubectl)",
        ),
        (node(managed("kubectl-cordon")), "person", "a person (kubectl-cordon)"),
        (node(managed("k9s")), "person", "a person (k9s)"),
        (node(managed("gpufleet")), "unknown", "gpufleet"),  # who took its annotations has it now
        (node(managed("some-operator")), "unknown", "some-operator"),
        (node(), "unknown", "somebody (nothing tells who)"),
        (
            node(managed("fq"), labels={"k8saas.nvidia.com/cordon-by": "NVSentinel"}),
            "nvsentinel", "NVSentinel",
        ),
        (node(managed("fq"), annotations={"quarantineHealthEvent": "[{}]"}), "nvsentinel", "NVSentinel"),
        (node(managed("kubectl"), annotations={"quarantineHealthEvent": "[]"}), "person", "a person (kubectl)"),
        (node(managed("eks-node-repair")), "cloud", "a repair agent (eks-node-repair)"),
        (
            node(labels={"sagemaker.amazonaws.com/node-health-status": "UnschedulablePendingReboot"}),
            "cloud", "HyperPod",
        ),
        (
            node(managed("kubectl"), labels={"sagemaker.amazonaws.com/node-health-status": "Schedulable"}),
            "person", "a person (kubectl)",
        ),
        (node(managed("slurm-operator")), "slinky", "Slinky (slurm-operator)"),
        (node(annotations={"nodeset.slinky.slurm.net/node-cordon-reason": "x"}), "slinky", "Slinky"),
        (
            node(managed("kubectl"), annotations={"nodeset.slinky.slurm.net/node-cordon-reason": "x"}),
            "person", "a person (kubectl)",
        ),
        (node(managed("x"), taint="ToBeDeletedByClusterAutoscaler"), "autoscaler", "cluster-autoscaler"),
        (node(managed("x"), taint="karpenter.sh/disrupted"), "autoscaler", "Karpenter"),
        (node(managed("x"), labels={"nvidia.com/gpu-driver-upgrade-state": "drain-required"}), "maintenance", "the GPU operator"),
        (node(managed("kubectl"), labels={"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}), "person", "a person (kubectl)"),
    ],
)  # fmt: skip
def test_whose_it_is(found: dict[str, Any], kind: str | None, name: str | None) -> None:
    """By what its agent writes; a person's by the program; nobody is guessed."""
    owner = cordon_facts.read(found).owner
    assert (kind, name) == ((None, None) if owner is None else (owner.kind, owner.name))


def test_an_agent_that_came_after_us_is_a_claim() -> None:
    """Ours by who wrote it, and NVSentinel counts on it all the same."""
    both = {**OURS, "quarantineHealthEvent": "[{}]"}
    found = cordon_facts.read(node(managed("gpufleet", marks=True), annotations=both))
    assert found.owner is not None
    assert ("ours", ["nvsentinel"]) == (found.owner.kind, [one.kind for one in found.claims])


@pytest.mark.parametrize("key", sorted(cordon_facts.KEYS))
def test_a_single_annotation_that_is_left_is_seen(key: str) -> None:
    """So that uncordon can clear it."""
    assert cordon_facts.read(node(cordoned=False, annotations={key: "x"})).marks is not None
    assert (
        cordon_facts.read(node(cordoned=False, annotations={"gpufleet/gang-job": "x"})).marks
        is None
    )
