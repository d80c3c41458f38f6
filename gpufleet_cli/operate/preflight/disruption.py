"""Who may take one rank away while all is well: probes, autoscalers, budgets, updates, tolerations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpufleet_cli.operate.preflight import price
from gpufleet_cli.operate.preflight.documents import Document, Path
from gpufleet_cli.operate.preflight.model import Hit, Role, Rule, Spec
from gpufleet_cli.operate.preflight.restarts import value_at
from gpufleet_cli.operate.preflight.selectors import selects
from gpufleet_cli.parsers import json_documents as js

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
KARPENTER = "karpenter.sh/do-not-disrupt"
_KEEP = {SAFE: "false", KARPENTER: "true", "karpenter.sh/do-not-evict": "true"}
_DESCHEDULER = "descheduler.alpha.kubernetes.io/evict"
_LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
SHORT_S = 120


def _liveness(spec: Spec) -> Iterator[Hit]:
    if not spec.is_training:
        return
    for role in spec.ranks:
        for name in ("livenessProbe", "startupProbe"):
            probe = js.mapping(role.main.raw.get(name))
            if probe:
                yield _probed(spec, role, name, probe)


def _probed(spec: Spec, role: Role, name: str, probe: Mapping[str, object]) -> Hit:
    period, times = (
        js.integer(probe.get("periodSeconds")),
        js.integer(probe.get("failureThreshold")),
    )
    return role.hit(
        f"a {name} kills a rank that does not answer for {(period or 10) * (times or 3)} s",
        "take it out: the watchdog of NCCL tells a hang from work", name,
        inside=role.main, costs=price.a_kill(spec.gpus),
        severity="info" if spec.is_ray else None,
    )  # fmt: skip


def _readiness(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training and not spec.is_ray else ():
        if role.main.raw.get("readinessProbe"):
            yield role.hit(
                "a readinessProbe on a rank has nobody who reads it",
                "take it out, or publishNotReadyAddresses on the Service of the ranks",
                "readinessProbe", inside=role.main,
            )  # fmt: skip


def _hpa(spec: Spec) -> Iterator[Hit]:
    if not spec.is_training:
        return
    fix = "take it out: a gang has a fixed size"
    for one in spec.of_kind("HorizontalPodAutoscaler", "ScaledObject"):
        if _targets(one.raw, "scaleTargetRef", spec):
            yield Hit(
                message=f"{one.kind} {one.name} scales the gang",
                fix=fix, path=("spec", "scaleTargetRef"), document=one, costs=price.a_kill(spec.gpus),
            )  # fmt: skip
    if js.items(js.at(spec.spec, "elasticPolicy", "metrics")):
        yield Hit(
            message="elasticPolicy.metrics makes the operator create a HorizontalPodAutoscaler (read in training-operator 1.9)",
            fix=fix, path=("spec", "elasticPolicy", "metrics"), costs=price.a_kill(spec.gpus),
        )  # fmt: skip


def _vpa(spec: Spec) -> Iterator[Hit]:
    for one in spec.of_kind("VerticalPodAutoscaler") if spec.is_training else ():
        mode = js.text_at(one.raw, "spec", "updatePolicy", "updateMode") or "Auto"
        if _targets(one.raw, "targetRef", spec) and mode not in ("Off", "Initial"):
            yield Hit(
                message=f"VerticalPodAutoscaler {one.name} (mode {mode}) evicts ranks to resize them",
                fix='updateMode: "Off"', path=("spec", "updatePolicy"), document=one,
                costs=price.a_kill(spec.gpus),
            )  # fmt: skip


def _targets(raw: object, field: str, spec: Spec) -> bool:
    target = js.mapping(js.at(raw, "spec", field))
    kind = target.get("kind")
    same = kind in (None, spec.document.kind) or (spec.kind == "TrainJob" and kind == "JobSet")
    return same and target.get("name") == spec.document.name


def _budget(spec: Spec) -> Iterator[Hit]:
    if not spec.is_gang:
        return
    for one in spec.of_kind("PodDisruptionBudget"):
        chosen = [
            r for r in spec.ranks if selects(js.at(one.raw, "spec", "selector"), spec.labels_of(r))
        ]
        told = _allows(one, sum(role.pods for role in chosen)) if chosen else None
        if told is not None:
            yield Hit(
                message=f"PodDisruptionBudget {one.name}: {told}",
                fix=f"minAvailable: {spec.pods} (all ranks; it holds node upgrades up too), or no budget and cordon first",
                path=("spec",), document=one, costs=price.a_kill(spec.gpus),
            )  # fmt: skip


def _allows(one: Document, pods: int) -> str | None:
    """What the budget lets a drain do to the gang; None for nothing."""
    most, least = js.at(one.raw, "spec", "maxUnavailable"), js.at(one.raw, "spec", "minAvailable")
    if most is not None:
        if str(most) in ("0", "0%"):
            return None
        return f"maxUnavailable {most} lets a drain take a rank"
    if isinstance(least, str) and least.endswith("%"):
        return None if least == "100%" else f"minAvailable {least} lets a drain take a rank"
    found = js.integer(least)
    if found is None or found >= pods:
        return None
    return f"minAvailable {found} of {pods} lets a drain take a rank"


def _no_budget(spec: Spec) -> Iterator[Hit]:
    if not spec.is_gang or not spec.has_gpus:
        return
    if not any(
        selects(js.at(one.raw, "spec", "selector"), spec.labels_of(role))
        for one in spec.of_kind("PodDisruptionBudget") for role in spec.ranks
    ):  # fmt: skip
        yield Hit(
            message="no PodDisruptionBudget was seen: a drain may take one rank",
            fix=f"minAvailable: {spec.pods}, or cordon first and say so where nodes are drained",
            path=("metadata", "name"),
        )


def _rolling(spec: Spec) -> Iterator[Hit]:
    if not spec.is_training:
        return
    paths: tuple[Path, ...] = (
        ("spec", "strategy"),
        ("spec", "updateStrategy"),
        ("spec", "upgradeStrategy"),
    )
    for path in paths:
        found = value_at(spec.raw, path)
        kind = js.text_at(found, "type")
        if found is not None and kind not in ("OnDelete", "None"):
            yield _rolls(spec, f"{path[1]} {kind or 'RollingUpdate'}", path)
            return
    if spec.kind in ("Deployment", "StatefulSet"):
        yield _rolls(spec, f"the default strategy of a {spec.kind}", ("spec",))
    path = ("spec", "rolloutStrategy", "rollingUpdateConfiguration")
    config = js.mapping(value_at(spec.raw, path))
    groups = js.integer(spec.spec.get("replicas")) or 1
    if config and (js.integer(config.get("partition")) or 0) < groups:
        filled_in = js.text_at(spec.raw, "metadata", "uid") is not None and config in _FILLED_IN
        hit = _rolls(spec, "rollingUpdateConfiguration", path)
        yield replace(hit, severity="info") if filled_in else hit


# What LeaderWorkerSet's webhook writes where nobody wrote anything (read in v1): of a live object it tells nothing.
_FILLED_IN = (
    {"partition": 0, "maxUnavailable": 1, "maxSurge": 0},
    {"maxUnavailable": 1, "maxSurge": 0},
)


def _rolls(spec: Spec, what: str, path: Path) -> Hit:
    return Hit(
        message=f"{what} replaces ranks while they train, at any change of the template",
        fix="a kind made for jobs; for a LeaderWorkerSet a partition as large as replicas",
        path=path, costs=price.a_kill(spec.gpus),
    )  # fmt: skip


def _evictable(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training else ():
        if role.annotations.get(SAFE) == "true":
            yield role.hit(
                f'{SAFE}: "true" invites the cluster autoscaler to take a rank away',
                f'{SAFE}: "false"', "metadata", "annotations", costs=price.a_kill(spec.gpus),
            )  # fmt: skip
        if _DESCHEDULER in role.annotations:
            yield role.hit(
                f"{_DESCHEDULER} invites the descheduler to take a rank away",
                "take it out", "metadata", "annotations", costs=price.a_kill(spec.gpus),
            )  # fmt: skip


def _misplaced(spec: Spec) -> Iterator[Hit]:
    if not spec.is_training or spec.document.kind == "Pod":
        return
    top = js.mapping(js.at(spec.raw, "metadata", "annotations"))
    for name, wanted in _KEEP.items():
        if str(top.get(name)).lower() != wanted:
            continue
        if any(str(role.annotations.get(name)).lower() != wanted for role in spec.ranks):
            yield Hit(
                message=f"{name} stands on the {spec.document.kind} and not on its pods, where alone it counts",
                fix="the same annotation in the pod template", path=("metadata", "annotations"),
                costs=price.a_kill(spec.gpus),
            )  # fmt: skip


def _unmarked(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training and spec.has_gpus else ():
        if not any(name in role.annotations for name in _KEEP):
            yield role.hit(
                "nothing tells node autoscalers to leave the ranks alone",
                f'{SAFE}: "false", {KARPENTER}: "true" in the pod template', "metadata", "annotations",
            )  # fmt: skip


def _tolerations(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_gang else ():
        for index, one in enumerate(js.items(role.pod.get("tolerations"))):
            seconds = js.integer(js.at(one, "tolerationSeconds"))
            if js.text_at(one, "key") in _LOST and seconds is not None and seconds < SHORT_S:
                yield _short(spec, role, js.text_at(one, "key") or "", seconds, index)


def _short(spec: Spec, role: Role, key: str, seconds: int, index: int) -> Hit:
    return role.hit(
        f"a node that is {key.rpartition('/')[2]} for {seconds} s costs the gang a rank",
        "300 s (the default) or more", "spec", "tolerations", index, costs=price.a_kill(spec.gpus),
    )  # fmt: skip


RULES = (
    Rule(
        id="liveness-probe", severity="warning", check=_liveness,
        looks_for="a `livenessProbe` or `startupProbe` on a rank (information for Ray, whose probes ask the raylet)",
        why="a long stall, compile or checkpoint gets the rank killed, and it looks like a crash",
    ),
    Rule(
        id="hpa", severity="warning", check=_hpa,
        looks_for="a HorizontalPodAutoscaler or ScaledObject on the job, or `elasticPolicy.metrics` of a PyTorchJob, which makes one",
        why="every change of size ends the collective of all ranks",
    ),
    Rule(
        id="vpa", severity="warning", check=_vpa,
        looks_for="a VerticalPodAutoscaler on the job that evicts",
        why="one evicted rank stops all",
    ),
    Rule(
        id="pdb", severity="warning", check=_budget,
        looks_for="a PodDisruptionBudget over ranks that leaves less than all of them",
        why="a drain may take one rank, and one rank is the job",
    ),
    Rule(
        id="rolling-update", severity="warning", check=_rolling,
        looks_for="an update strategy that replaces ranks: Deployment, StatefulSet, a LeaderWorkerSet without `partition`, `strategy` pasted onto a job",
        why="an edit of a label restarts the job, rank by rank",
    ),
    Rule(
        id="evictable", severity="warning", check=_evictable,
        looks_for="annotations that invite an autoscaler or the descheduler to evict ranks",
        why="one evicted rank stops all",
    ),
    Rule(
        id="mark-misplaced", severity="warning", check=_misplaced,
        looks_for="`do-not-disrupt` or `safe-to-evict` on the job's object and not on its pods",
        why="it has no effect there: autoscalers read pods",
    ),
    Rule(
        id="toleration-short", severity="warning", check=_tolerations,
        looks_for=f"ranks that tolerate a lost node for less than {SHORT_S} s",
        why="a blip of a kubelet kills the gang",
    ),
    Rule(
        id="no-pdb", severity="info", check=_no_budget,
        looks_for="a gang over which no PodDisruptionBudget was seen",
        why="a drain asks nobody else",
    ),
    Rule(
        id="no-eviction-mark", severity="info", check=_unmarked,
        looks_for="ranks without a mark for node autoscalers",
        why="consolidation of nodes takes a rank away",
    ),
    Rule(
        id="readiness-probe", severity="info", check=_readiness,
        looks_for="a `readinessProbe` on a rank",
        why="names of ranks that are not ready do not resolve",
    ),
)  # fmt: skip
