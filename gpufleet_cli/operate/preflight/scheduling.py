"""How ranks come to nodes: all of them or none, with a priority, near each other."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.operate.preflight import price
from gpufleet_cli.operate.preflight.documents import Path
from gpufleet_cli.operate.preflight.model import Hit, Role, Rule, Spec
from gpufleet_cli.operate.preflight.restarts import value_at
from gpufleet_cli.parsers import json_documents as js

_GROUPS = (
    "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/pod-group-name", "scheduling.k8s.io/group-name",
    "pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name",
    "scheduling.x-k8s.io/pod-group", "kai.scheduler/queue", "runai/queue", "volcano.sh/queue-name",
    "yunikorn.apache.org/task-group-name", "yunikorn.apache.org/task-groups", "ray.io/scheduler-name",
    "ray.io/gang-scheduling-enabled", "queue", "applicationId",
)  # fmt: skip
_TOPOLOGY = (
    "kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology", "alpha.jobset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/exclusive-topology", "kai.scheduler/topology",
)  # fmt: skip


def _gang(spec: Spec) -> Iterator[Hit]:
    if not spec.is_gang or not spec.has_gpus or spec.kind == "VolcanoJob" or _is_grouped(spec):
        return
    yield Hit(
        message=f"{spec.pods} pods are scheduled one by one: nothing makes it all or none",
        fix="a Kueue queue (label kueue.x-k8s.io/queue-name), or a scheduler with pod groups",
        path=("metadata", "labels"),
        costs=price.an_hour(spec.gpus),
    )


def _is_grouped(spec: Spec) -> bool:
    raw = spec.raw
    for path in (
        ("spec", "runPolicy", "schedulingPolicy"), ("spec", "schedulingPolicy"),
        ("spec", "gangPolicy"), ("spec", "podGroupPolicy"), ("spec", "workloadRef"),
    ):  # fmt: skip
        if value_at(raw, path) is not None:
            return True
    named = [js.mapping(js.at(raw, "metadata", key)) for key in ("labels", "annotations")]
    for role in spec.ranks:
        named += [role.labels, role.annotations]
        scheduler = js.text_at(role.pod, "schedulerName")
        if scheduler not in (None, "default-scheduler"):
            return True
        if role.document is not None:
            named.append(js.mapping(js.at(role.document.raw, "metadata", "labels")))
            if value_at(role.document.raw, ("spec", "podGroupPolicy")) is not None:
                return True
        if js.items(role.pod.get("schedulingGates")) or role.pod.get("schedulingGroup"):
            return True
    if any(name in one for one in named for name in _GROUPS):
        return True
    return any(one.kind in ("AppWrapper", "PodGroup") for one in spec.beside)


def _min_available(spec: Spec) -> Iterator[Hit]:
    if not spec.is_gang:
        return
    path: Path = ("spec", "minAvailable")
    if spec.kind != "VolcanoJob":
        path = ("spec", "runPolicy", "schedulingPolicy", "minAvailable")
        if spec.spec.get("elasticPolicy") is not None:
            return
    found = js.integer(value_at(spec.raw, path))
    needed = sum(role.pods for role in spec.roles)
    if found is not None and found < needed:
        yield Hit(
            message=f"minAvailable is {found} of {needed} pods: the gang starts without the others",
            fix=f"minAvailable: {needed}, or leave it out",
            path=path,
            costs=price.an_hour(spec.gpus),
        )


def _priority(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_gang and spec.has_gpus else ():
        if not role.pod.get(
            "priorityClassName"
        ) and "kueue.x-k8s.io/priority-class" not in js.mapping(
            js.at(spec.raw, "metadata", "labels")
        ):
            yield role.hit(
                "no priorityClassName: the cluster's default decides who is preempted",
                "a priority class for training, or Kueue's", "spec", "priorityClassName",
            )  # fmt: skip


def _topology(spec: Spec) -> Iterator[Hit]:
    if not spec.is_gang or (spec.gpus or 0) < 64 or spec.spec.get("networkTopology"):
        return
    named = [js.mapping(js.at(spec.raw, "metadata", key)) for key in ("labels", "annotations")]
    named += [role.annotations for role in spec.ranks] + [role.labels for role in spec.ranks]
    if any(name in one for one in named for name in _TOPOLOGY) or any(map(_is_near, spec.ranks)):
        return
    yield Hit(
        message=f"nothing keeps {spec.gpus} GPUs near each other in the network",
        fix="Kueue's topology-aware scheduling, or a pod affinity by the network's label",
        path=("metadata", "annotations"),
    )


def _is_near(role: Role) -> bool:
    return js.at(role.pod, "affinity", "podAffinity") is not None


def _spare(spec: Spec) -> Iterator[Hit]:
    """By the nodes without which it would not place; what could not be told is none."""
    lost = {name: one for name, one in spec.spares.items() if one.places is False}
    if not spec.is_gang or not lost:
        return
    name, first = min(lost.items())
    nodes = "any of its nodes" if len(lost) == len(spec.spares) else f"{len(lost)} of its nodes"
    yield Hit(
        message=f"without {nodes} the gang does not place now ({name}: {first.why})",
        fix="a spare node of the same kind, or a smaller gang to restart with (elastic)",
        path=("metadata", "name"),
        costs=price.an_hour(spec.gpus),
    )


RULES = (
    Rule(
        id="gang-scheduling", severity="warning", check=_gang,
        looks_for="several pods with GPUs and neither a queue of Kueue nor a scheduler or group that starts all or none",
        why="a half-scheduled gang holds its GPUs and looks like a hang; two of them lock each other out",
    ),
    Rule(
        id="min-available", severity="warning", check=_min_available,
        looks_for="Volcano's (or `schedulingPolicy`'s) `minAvailable` below the number of pods",
        why="a half-scheduled gang holds its GPUs and looks like a hang",
    ),
    Rule(
        id="no-spare", severity="warning", check=_spare, of_cluster=True,
        looks_for="a job in the cluster that would find no room, no quota or no topology once one of its nodes is lost",
        why="the restart waits until a node is repaired",
    ),
    Rule(
        id="priority", severity="info", check=_priority,
        looks_for="ranks without `priorityClassName`",
        why="one preempted rank stops all",
    ),
    Rule(
        id="topology", severity="info", check=_topology,
        looks_for="64 GPUs or more and no topology constraint",
        why="a rank behind another spine is a straggler by placement",
    ),
)  # fmt: skip
