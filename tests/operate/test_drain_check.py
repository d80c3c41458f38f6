"""Would a drain kill a gang: every kind of pod that can stand on a node, and the price."""

from __future__ import annotations

from typing import Any

import pytest

from gpufleet_cli.drain_card import DrainCard
from gpufleet_cli.live import held_gangs
from gpufleet_cli.live.pods import pods_of
from gpufleet_cli.node_card import Missing
from gpufleet_cli.operate import drain_check
from gpufleet_cli.operate.drain_check import Given
from gpufleet_cli.render.drain_page import drain_text
from gpufleet_cli.render.layout import Look
from gpufleet_cli.timestamps import parse_rfc3339

HIDDEN = Missing(what="pods of other namespaces", why="not allowed in all namespaces; read in ml")


def ns(text: str) -> int:
    found = parse_rfc3339(text)
    assert found is not None
    return found[0]


def pod(name: str, on: str = "n0", **more: Any) -> dict[str, Any]:
    """A running pod with eight GPUs; `owner` as KIND/NAME of its controller."""
    kind, _, owner = more.pop("owner", "").partition("/")
    version = {"Job": "batch/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1",
               "DaemonSet": "apps/v1", "Node": "v1"}.get(kind, "example.com/v1")  # fmt: skip
    gpus = more.pop("gpus", 8)
    meta: dict[str, Any] = {
        "name": name, "namespace": "ml", "uid": f"uid-{name}",
        "creationTimestamp": more.pop("created", "2026-08-20T03:00:00Z"),
        "labels": more.pop("labels", {}), "annotations": more.pop("annotations", {}),
    }  # fmt: skip
    if owner:
        meta["ownerReferences"] = [
            {
                "apiVersion": version,
                "kind": kind,
                "name": owner,
                "uid": f"uid-{owner}",
                "controller": True,
            }
        ]
    if more.pop("going", False):
        meta["deletionTimestamp"] = "2026-08-20T04:00:00Z"
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    env = [{"name": key, "value": value} for key, value in more.pop("env", {}).items()]
    container = {"name": "t", "resources": {"limits": limits}, "env": env}
    return {
        "metadata": meta,
        "spec": {"nodeName": on, "containers": [container]},
        "status": {"phase": more.pop("phase", "Running")},
    }


def judged(
    *pods: dict[str, Any],
    given: Given = Given(),  # noqa: B008  frozen
    missing: tuple[Missing, ...] = (),
    now: str = "2026-08-20T05:00:00Z",
) -> DrainCard:
    gangs = held_gangs.found_in(pods_of(pods), {})
    return drain_check.judged("n0", gangs, given, now_ns=ns(now), missing=missing)


JOB = {"owner": "Job/a"}
PLAIN = {"labels": {"job-id": "a"}}
LWS = {"leaderworkerset.sigs.k8s.io/name": "a", "leaderworkerset.sigs.k8s.io/size": "2"}
GROUP = "leaderworkerset.sigs.k8s.io/group-index"
RANKS = {"WORLD_SIZE": "16", "PET_NNODES": "2", "MASTER_ADDR": "w-0"}


@pytest.mark.parametrize(
    ("pods", "safe", "at_stake", "others"),
    [
        # nothing, and pods without a GPU
        ([], True, [], []),
        ([pod("web", gpus=0, owner="ReplicaSet/web"), pod("x", gpus=0, owner="Job/x")], True, [], []),
        # a gang of two, one here; it does not matter how the other is
        ([pod("a-0", **JOB), pod("a-1", "n1", **JOB)], False, ["a"], []),
        ([pod("a-0", **PLAIN), pod("a-1", "n1", **PLAIN)], False, ["job-id=a"], []),
        ([pod("a-0", **JOB), pod("a-1", "n1", phase="Failed", **JOB)], False, ["a"], []),
        ([pod("a-0", phase="Pending", **JOB), pod("a-1", "n1", **JOB)], False, ["a"], []),
        ([pod("a-0", owner="MyTrainer/a"), pod("a-1", "n1", owner="MyTrainer/a")], False, ["a"], []),
        # a launcher without a GPU takes its gang with it
        ([pod("a-l", gpus=0, **JOB), pod("a-1", "n1", **JOB)], False, ["a"], []),
        # one pod, or a service
        ([pod("a-0", **JOB)], True, [], ["one pod, no gang"]),
        ([pod("alone")], True, [], ["one pod, no gang"]),
        (
            [pod("s-0", owner="ReplicaSet/s"), pod("s-1", owner="ReplicaSet/s")],
            True, [], ["a ReplicaSet, no training gang"],
        ),
        # unless its pods say that they meet others
        (
            [pod("w-0", owner="StatefulSet/w", env=RANKS), pod("w-1", "n1", owner="StatefulSet/w", env=RANKS)],
            False, ["w"], [],
        ),
        # what ended, or goes already
        (
            [pod("a-0", phase="Failed", **JOB), pod("a-1", "n1", phase="Succeeded", **JOB)],
            True, [], ["its pods here have ended"],
        ),
        (
            [pod("a-0", phase="Succeeded", **JOB), pod("a-1", "n1", **JOB)],
            True, [], ["its pods here have ended"],
        ),
        (
            [pod("a-0", going=True, **JOB), pod("a-1", "n1", **JOB)],
            True, [], ["its pods here are being deleted already"],
        ),
        (
            [pod("a-0", going=True, **JOB), pod("a-1", **JOB), pod("a-2", "n1", **JOB)],
            False, ["a"], [],
        ),
        # what a drain leaves alone
        ([pod("d", owner="DaemonSet/d"), pod("e", "n1", owner="DaemonSet/d")], True, [], []),
        ([pod("m", owner="Node/n0", annotations={"kubernetes.io/config.mirror": "x"})], True, [], []),
        # each group of a LeaderWorkerSet is a gang of its own
        (
            [pod("a-0", labels=LWS | {GROUP: "0"}), pod("a-0-1", "n1", labels=LWS | {GROUP: "0"}),
             pod("a-1", "n2", labels=LWS | {GROUP: "1"})],
            False, ["a group 0"], [],
        ),
    ],
)  # fmt: skip
def test_what_a_drain_would_kill(
    pods: list[dict[str, Any]], safe: bool, at_stake: list[str], others: list[str]
) -> None:
    """By the pods on the node; the largest gang first."""
    card = judged(*pods)
    assert (safe, at_stake) == (card.safe, [one.name for one in card.gangs])
    assert others == [one.why for one in card.others]


def test_pods_of_the_gang_that_would_be_evicted() -> None:
    """Those here that live; its GPUs are all of them, wherever they are."""
    pods = [pod("a-0", **JOB), pod("a-1", going=True, **JOB), pod("a-2", "n1", gpus=4, **JOB)]
    (gang,) = judged(*pods).gangs
    assert (("a-0",), 12, 8) == (gang.pods, gang.gpus, gang.gpus_here)


@pytest.mark.parametrize(("pods", "safe"), [([], None), ([pod("a-0", **JOB)], None), (
    [pod("a-0", **JOB), pod("a-1", "n1", **JOB)], False)])  # fmt: skip
def test_what_was_not_seen_is_no_yes(pods: list[dict[str, Any]], safe: bool | None) -> None:
    """A gang that was seen is enough for a no."""
    card = judged(*pods, missing=(HIDDEN,))
    assert safe is card.safe
    if safe is None:
        assert "not allowed in all namespaces" in card.why


HOUR = 3600.0


@pytest.mark.parametrize(
    ("given", "began", "lost", "by"),
    [
        # 16 GPUs; two hours old; a restart is 5 minutes unless somebody says otherwise: 16/12 GPU-h
        (Given(), "03:00", (None, None, 1.33), "not known"),
        (Given(since_checkpoint_s=900), "03:00", (5.33, 4.0, 1.33), "--since-checkpoint"),
        (Given(interval_s=HOUR, interval_by="I"), "03:00", (9.33, 8.0, 1.33), "half of I"),
        # ten minutes old: it can have lost no more than that
        (Given(interval_s=HOUR, interval_by="I"), "04:50", (4.0, 2.67, 1.33), "younger than I"),
        (
            Given(since_checkpoint_s=0.0, restart_s=HOUR, restart_by="R"), "03:00",
            (16.0, 0.0, 16.0), "--since-checkpoint",
        ),
    ],
)  # fmt: skip
def test_the_price(
    given: Given, began: str, lost: tuple[float | None, float | None, float], by: str
) -> None:
    """Of the whole gang: the work since its checkpoint, and the restart; unknown is not zero."""
    created = f"2026-08-20T{began}:00Z"
    pods = [pod("a-0", created=created, **JOB), pod("a-1", "n1", created=created, **JOB)]
    (gang,) = judged(*pods, given=given).gangs
    price = gang.price
    shown = (price.gpu_hours, price.recompute_gpu_hours, price.restart_gpu_hours)
    assert lost == tuple(None if one is None else round(one, 2) for one in shown)
    assert by in price.since_checkpoint_by


def test_the_page_is_a_few_lines() -> None:
    """The answer first, then the gang, its price, and what to do instead; 80 columns."""
    pods = [pod("a-0", **JOB), pod("a-1", "n1", **JOB), pod("b-0", gpus=1, owner="Job/b")]
    card = judged(*pods, given=Given(interval_s=HOUR, interval_by="--checkpoint-interval"))
    lines = drain_text([card], Look()).splitlines()
    assert "n0  NOT SAFE: a drain would kill ml/a" == lines[0]
    assert "  gang      a in ml (Job): 1 pod of 2 here, 16 GPUs, running for 2h" == lines[1]
    assert "it costs  9.3 GPU-h: 8 GPU-h to recompute (30m, half of" in lines[2]
    assert any(line.startswith("  b in ml (Job): 1 pod, 1 GPU: one pod, no gang") for line in lines)
    assert any("gpufleet cordon n0 --reason" in line for line in lines)
    assert all(len(line) <= 80 for line in lines)
    assert len(lines) <= 7
    assert "n0  SAFE: no running gang would die\n" == drain_text([judged()], Look())
