"""Does a gang find room without a node: the answer, the one reason of a no, and its numbers."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet_cli import spare_facts, spares
from gpufleet_cli.node_card import Spares

GPU = "nvidia.com/gpu"
H100 = "NVIDIA-H100-80GB-HBM3"
RACK = "rack"
EXCLUSIVE = {"alpha.jobset.sigs.k8s.io/exclusive-topology": RACK}
KUEUE = {"kueue.x-k8s.io/podset-required-topology": RACK}
SPOT = {"key": "spot", "value": "yes", "effect": "NoSchedule"}


def node(name: str, *, gpus: int = 8, ready: str = "True", taints: Any = (), **more: Any) -> Any:
    """A node with eight GPUs; `rack` and `product` are labels of it."""
    labels = {spares.PRODUCT: more.pop("product", H100), "kubernetes.io/hostname": name}
    labels |= {RACK: more.pop("rack")} if "rack" in more else {}
    return {
        "metadata": {"name": name, "labels": labels | more.pop("labels", {})},
        "spec": {"taints": list(taints), **more},
        "status": {
            "allocatable": {"cpu": "192", GPU: str(gpus)},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def pod(name: str, on: str | None, *, gpus: int = 8, **more: Any) -> Any:
    """A pod that runs; `labels` and `annotations` are its marks, the rest its spec."""
    meta = {key: more.pop(key) for key in ("labels", "annotations") if key in more}
    limits = {GPU: str(gpus)} if gpus else {}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", **meta},
        "spec": {"nodeName": on, "containers": [{"resources": {"limits": limits}}], **more},
        "status": {"phase": "Running"},
    }


def asked(
    gang: list[Any],
    nodes: list[Any],
    others: list[Any] = [],  # noqa: B006  never changed
    *,
    objects: Any = (),
    size: int | None = None,
    out: str = "n0",
    **more: Any,
) -> Spares:
    """The answer without node n0."""
    wants = spare_facts.wants_of(gang, objects, size=size, product=H100)
    own = frozenset(one["metadata"]["uid"] for one in gang)
    rooms = spare_facts.rooms(nodes, [*gang, *others], own)
    quota = spares.quota_of(
        more.pop("workloads", ()), more.pop("quotas", ()), wants, spare_facts.held_by(gang)
    )
    return spares.judge(wants, rooms, out=frozenset({out}), quota=quota, **more)


GANG = [pod("g0", "n0"), pod("g1", "n1")]
FOUR = [node(f"n{index}") for index in range(4)]


def test_its_own_nodes_are_free_again_and_spares_are_named() -> None:
    """The gang of two had n0 and n1: n1 takes one pod again, n2 or n3 the other."""
    found = asked(GANG, FOUR)
    assert (True, 2, ("n2", "n3"), None) == (
        found.places, found.spare_nodes, found.nodes, found.cause,
    )  # fmt: skip
    assert "all 2 pods (16 GPUs) find room; 2 spare nodes" == found.why


@pytest.mark.parametrize(
    ("nodes", "others", "cause", "numbers"),
    [
        # nothing but its own node is left: 8 of 16
        (FOUR[:2], [], "no free GPUs", "it needs 16 GPUs, and 8 are free"),
        # the other one is full
        (FOUR[:3], [pod("o", "n2")], "no free GPUs", "it needs 16 GPUs, and 8 are free"),
        # 4 + 4 free on two nodes are no 8 on one
        (
            FOUR,
            [pod("o", "n2", gpus=4), pod("p", "n3", gpus=4)],
            "fragmentation",
            "16 GPUs are free, 8 at most on one node; a pod needs 8; 1 of 2 pods",
        ),
        # a lost GPU: the node offers 7
        ([*FOUR[:2], node("n2", gpus=7), node("n3", gpus=1)], [], "fragmentation", "16 GPUs are free"),
        ([*FOUR[:2], node("n2", unschedulable=True)], [], "cordoned", "8 more GPUs are free on 1 nodes"),
        ([*FOUR[:2], node("n2", ready="Unknown")], [], "cordoned", "cordoned or not ready"),
        ([*FOUR[:2], node("n2", taints=[SPOT])], [], "taints", "8 more GPUs are free on 1 nodes with taints"),
        ([*FOUR[:2], node("n2", product="NVIDIA-A100")], [], "product", "nodes with other GPUs"),
        # a taint that only asks nicely keeps nobody off, but the node is full
        (
            [*FOUR[:2], node("n2", taints=[{**SPOT, "effect": "PreferNoSchedule"}])],
            [pod("o", "n2", gpus=1)],
            "no free GPUs",
            "it needs 16 GPUs, and 15 are free",
        ),
    ],
)  # fmt: skip
def test_why_not(nodes: list[Any], others: list[Any], cause: str, numbers: str) -> None:
    """One word, and the numbers behind it."""
    found = asked(GANG, nodes, others)
    assert (False, cause) == (found.places, found.cause)
    assert found.why.startswith(f"{cause}: ")
    assert numbers in found.why


@pytest.mark.parametrize(
    ("tolerations", "places"),
    [
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "spot", "operator": "Exists"}], True),
        ([{"key": "spot", "value": "yes"}], True),
        ([{"key": "spot", "operator": "Equal", "value": "no"}], False),
        ([{"key": "spot", "operator": "Exists", "effect": "NoExecute"}], False),
        ([{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}], True),
        ([{"key": "other", "operator": "Exists"}], False),
    ],
)
def test_tolerations(tolerations: list[Any], places: bool) -> None:
    """As the scheduler reads them."""
    gang = [pod(name, on, tolerations=tolerations) for name, on in (("g0", "n0"), ("g1", "n1"))]
    assert places is asked(gang, [*FOUR[:2], node("n2", taints=[SPOT])]).places


def affinity(*terms: list[tuple[str, str, list[str]]]) -> Any:
    made = [
        {"matchExpressions": [{"key": k, "operator": o, "values": v} for k, o, v in term]}
        for term in terms
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": made}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("spec", "places"),
    [
        ({"nodeSelector": {"pool": "a"}}, True),
        ({"nodeSelector": {"pool": "b"}}, False),
        (affinity([("pool", "In", ["a", "z"])]), True),
        (affinity([("pool", "NotIn", ["a"])]), False),
        (affinity([("pool", "Exists", [])]), True),
        (affinity([("pool", "DoesNotExist", [])]), False),
        (affinity([("gen", "Gt", ["4"])]), True),
        (affinity([("gen", "Lt", ["5"])]), False),
        (affinity([("pool", "In", ["z"])], [("gen", "In", ["5"])]), True),  # one term or the other
        (affinity([("pool", "In", ["a"]), ("gen", "In", ["6"])]), False),  # all of one term
        (affinity([]), False),  # an empty term matches nothing
    ],
)
def test_selectors(spec: dict[str, Any], places: bool) -> None:
    """Node selector and required node affinity; all nodes have pool=a and gen=5."""
    nodes = [node(f"n{index}", labels={"pool": "a", "gen": "5"}) for index in range(3)]
    gang = [pod("g0", "n0", **spec), pod("g1", "n1", **spec)]
    found = asked(gang, nodes)
    assert (places, None if places else "selector") == (found.places, found.cause)


def test_a_whole_unit_in_one_domain() -> None:
    """Kueue asks for one rack; each rack has room for one pod once n0 is out, so that two do not place."""
    gang = [pod(name, on, annotations=KUEUE) for name, on in (("g0", "n0"), ("g1", "n1"))]
    split = [node("n0", rack="a"), node("n1", rack="a"), node("n2", rack="b"), node("n3", rack="c")]
    found = asked(gang, split)
    assert (False, "topology") == (found.places, found.cause)
    assert "no domain of rack has room" in found.why
    assert asked(gang, [*split, node("n4", rack="b")]).places is True
    assert asked(gang, [node(f"n{index}") for index in range(4)]).cause == "topology"  # no label


def test_each_job_of_a_jobset_has_a_rack_of_its_own() -> None:
    """Two Jobs of one pod: n1's rack and another that no other JobSet is in."""
    top = {"metadata": {"annotations": EXCLUSIVE}}
    gang = [
        pod(f"g{index}", f"n{index}", labels={"jobset.sigs.k8s.io/job-index": str(index)})
        for index in range(2)
    ]
    nodes = [node("n0", rack="a"), node("n1", rack="b"), node("n2", rack="b"), node("n3", rack="c")]
    other = pod("o", "n3", gpus=1, labels={"jobset.sigs.k8s.io/jobset-name": "other"})
    assert asked(gang, nodes, objects=[top]).places is True
    assert (
        "topology" == asked(gang, nodes[:3], objects=[top]).cause
    )  # rack b has two nodes, and one Job
    nodes.append(node("n4", rack="c"))
    found = asked(gang, nodes, [other], objects=[top])
    assert (False, "topology") == (found.places, found.cause)  # rack c has room, and another JobSet


def test_what_placed_the_pod_is_no_wish_of_the_gang() -> None:
    """Kueue pins a pod to its host and rack by node selectors, which the next admission writes anew."""
    pinned = {"kubernetes.io/hostname": "n0", RACK: "a"}
    gang = [
        pod("g0", "n0", annotations=KUEUE, nodeSelector=pinned),
        pod("g1", "n1", annotations=KUEUE),
    ]
    nodes = [node("n0", rack="a"), node("n1", rack="b"), node("n2", rack="b")]
    assert asked(gang, nodes).places is True


@pytest.mark.parametrize(
    ("spec", "unjudged"),
    [
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, True),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, False),
        (
            {"affinity": {"podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}},
            True,
        ),
    ],
)  # fmt: skip
def test_what_is_not_looked_at_makes_no_yes(spec: dict[str, Any], unjudged: bool) -> None:
    """And a no stays one."""
    gang = [pod("g0", "n0", **spec), pod("g1", "n1", **spec)]
    assert (None if unjudged else True) is asked(gang, FOUR).places
    assert asked(gang, FOUR[:2]).places is False


def test_one_pod_a_node() -> None:
    """Two pods of one GPU that stand apart do not share the node that is left."""
    apart = {"affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}}}  # fmt: skip
    gang = [pod("g0", "n0", gpus=1, **apart), pod("g1", "n1", gpus=1, **apart)]
    assert asked(gang, FOUR[:2]).places is False
    assert asked(gang, FOUR[:3]).places is True
    assert asked([pod("g0", "n0", gpus=1), pod("g1", "n1", gpus=1)], FOUR[:2]).places is True


def quota(hard: int, used: int) -> Any:
    key = f"requests.{GPU}"
    status = {"hard": {key: str(hard)}, "used": {key: str(used)}}
    return {"metadata": {"name": "team"}, "status": status}


def test_quota() -> None:
    """The gang gives back what it holds; what others hold of the quota counts."""
    assert asked(GANG, FOUR, quotas=[quota(16, 16)]).places is True
    found = asked(GANG, FOUR, quotas=[quota(16, 20)])  # 20 used, 16 of it ours: 12 left
    assert (False, "quota") == (found.places, found.cause)
    assert "ResourceQuota team leaves 12 of 16 nvidia.com/gpu, it needs 16" in found.why
    waits = {"type": "QuotaReserved", "status": "False", "reason": "Pending",
             "message": "insufficient unused quota"}  # fmt: skip
    held = {"metadata": {"name": "w"}, "status": {"conditions": [waits]}}
    found = asked(GANG, FOUR, workloads=[held])
    assert (False, "quota") == (found.places, found.cause)
    assert "insufficient unused quota" in found.why


def test_what_could_not_be_read() -> None:
    """A yes becomes "not known"; without the nodes a no is none either."""
    assert asked(GANG, FOUR, unread=("quotas",)).places is None
    assert asked(GANG, FOUR[:2], unread=("quotas",)).places is False
    assert asked(GANG, [], unread=("nodes",)).places is None


def test_pods_that_are_not_there_count_too() -> None:
    """A gang of three of which two are there needs room for three."""
    assert asked(GANG, FOUR, size=3).places is True
    assert asked(GANG, FOUR[:3], size=3).places is False


def test_ended_pods_hold_nothing() -> None:
    """And neither does what is on no node."""
    done = pod("o", "n2")
    done["status"]["phase"] = "Succeeded"
    assert asked(GANG, FOUR[:3], [done, pod("w", None)]).places is True


def test_an_uncertain_packing_is_no_no() -> None:
    """Pods of two sizes over partly held nodes: where the packing fails, nobody knows."""
    gang = [pod("g0", "n0", gpus=5), pod("g1", "n1", gpus=3), pod("g2", "n1", gpus=3)]
    nodes = [node("n0"), node("n1", gpus=6), node("n2", gpus=5)]
    others = [pod("o", "n2", gpus=1), pod("p", "n1", gpus=1)]
    found = asked(gang, [*nodes, node("n3", gpus=2)], others)
    assert found.places is None
