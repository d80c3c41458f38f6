"""Restarts and retries: a synchronous job starts again as a whole, a known number of times, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.operate.preflight import price
from gpufleet_cli.operate.preflight.documents import Path
from gpufleet_cli.operate.preflight.model import Hit, Role, Rule, Spec
from gpufleet_cli.parsers import json_documents as js

MANY = 20
_WHOLE = "LeaderWorkerSet", "RayJob", "RayCluster"


def value_at(raw: object, path: Path) -> object:
    """The value under a path of keys and indices."""
    for step in path:
        if isinstance(step, int):
            inside = js.items(raw)
            raw = inside[step] if step < len(inside) else None
        else:
            raw = js.at(raw, step)
    return raw


def _restarting(spec: Spec) -> Iterator[Role]:
    """Ranks, and the launcher of an MPIJob, in whose log all of them write."""
    for role in spec.roles:
        if role.is_rank or (spec.kind == "MPIJob" and role.name.lower() == "launcher"):
            yield role


def _restart_policy(spec: Spec) -> Iterator[Hit]:
    if not spec.is_training or spec.kind in _WHOLE:
        return
    for role in _restarting(spec):
        if role.restart in ("Never", None):
            continue
        if role.restart_by:
            told = f"nobody wrote a restart policy, and {role.restart_by}"
        else:
            told = f"the restart policy is {role.restart}"
        is_meant = role.restart == "ExitCode" or (
            role.restart_by is None and spec.spec.get("elasticPolicy") is not None
        )  # an elastic agent that comes back is let in again
        yield Hit(
            message=told,
            fix="restartPolicy: Never; the job starts all ranks again (JobSet: failurePolicy.maxRestarts)",
            path=role.restart_path,
            costs=price.a_wait(spec.gpus) if spec.is_gang else None,
            severity=None if spec.is_gang and not is_meant else "info",
            document=role.document,
        )


def _stacked(spec: Spec) -> Iterator[Hit]:
    if spec.kind not in ("JobSet", "TrainJob") or not spec.is_gang:
        return
    for role in spec.ranks:
        if spec.kind == "TrainJob" and role.document is None:
            continue
        raw = (role.document or spec.document).raw
        path = (*role.path[:-1], "backoffLimit")
        written = value_at(raw, path)
        if js.integer(written) == 0:
            continue
        told = "is not set, and a Job's default is 6" if written is None else f"is {written}"
        yield Hit(
            message=f"backoffLimit under a JobSet {told}: two layers of retries",
            fix="backoffLimit: 0, so that the first failed pod restarts the whole JobSet",
            path=path,
            costs=price.a_wait(spec.gpus),
            document=role.document,
        )


def _alone(spec: Spec) -> Iterator[Hit]:
    if spec.kind != "Job" or not spec.is_gang:
        return
    limit = spec.spec.get("backoffLimit")
    if js.integer(limit) == 0 or js.integer(spec.spec.get("backoffLimitPerIndex")) == 0:
        return
    rules = js.items(js.at(spec.spec, "podFailurePolicy", "rules"))
    if any(js.text_at(rule, "action") == "FailJob" for rule in rules):
        return
    launcher = spec.ranks[0].main.launcher
    if launcher is not None and (js.integer(launcher.option("max-restarts")) or 0) > 0:
        return  # an elastic agent takes a pod that came again back in
    told = "is not set, and its default is 6" if limit is None else f"is {limit}"
    yield Hit(
        message=f"backoffLimit {told}: a failed rank is started again alone",
        fix="backoffLimit: 0, and a JobSet where the job is to start again by itself",
        path=("spec", "backoffLimit"),
        costs=price.a_wait(spec.gpus),
    )


_COUNTS: dict[str, tuple[Path, ...]] = {
    "JobSet": (("spec", "failurePolicy", "maxRestarts"),),
    "PyTorchJob": (("spec", "elasticPolicy", "maxRestarts"), ("spec", "runPolicy", "backoffLimit")),
    "MPIJob": (("spec", "runPolicy", "backoffLimit"),),
    "VolcanoJob": (("spec", "maxRetry"),),
    "RayJob": (("spec", "backoffLimit"),),
}


def _many(spec: Spec) -> Iterator[Hit]:
    if not spec.is_training:
        return
    for path in _COUNTS.get(spec.kind, ()):
        found = js.integer(value_at(spec.raw, path))
        if found is not None and found > MANY:
            yield _too_many(spec, found, path)
    for role in spec.ranks:
        launcher = role.main.launcher
        found = js.integer(launcher.option("max-restarts")) if launcher else None
        if found is not None and found > MANY:
            yield _too_many(spec, found, role.main.path)
            return


def _too_many(spec: Spec, found: int, path: Path) -> Hit:
    return Hit(
        message=f"{found} restarts are allowed: a fault that stays is tried again all night",
        fix="a number that covers the faults of a night, such as 3 to 10",
        path=path,
        costs=price.a_kill(spec.gpus),
    )


def _partial(spec: Spec) -> Iterator[Hit]:
    if not spec.is_gang:
        return
    costs = price.a_wait(spec.gpus)
    if spec.kind == "LeaderWorkerSet":
        path: Path = ("spec", "leaderWorkerTemplate", "restartPolicy")
        if value_at(spec.raw, path) in ("None", "Default"):
            told = "restartPolicy None of the LeaderWorkerSet restarts one pod of a group alone"
            yield Hit(message=told, fix="RecreateGroupOnPodRestart", path=path, costs=costs)
    if spec.kind == "VolcanoJob":
        yield from _volcano_policies(spec, costs)
    if spec.kind == "JobSet":
        for index, rule in enumerate(js.items(js.at(spec.spec, "failurePolicy", "rules"))):
            action = js.text_at(rule, "action") or ""
            if action.startswith(("RestartJob", "RecreateJob")) and "JobSet" not in action:
                yield Hit(
                    message=f"the failure policy's action {action} restarts one Job of the gang alone",
                    fix="RestartJobSet", costs=costs,
                    path=("spec", "failurePolicy", "rules", index, "action"),
                )  # fmt: skip


def _volcano_policies(spec: Spec, costs: str | None) -> Iterator[Hit]:
    places: list[Path] = [("spec", "policies")]
    places += [
        ("spec", "tasks", i, "policies") for i in range(len(js.items(spec.spec.get("tasks"))))
    ]
    for place in places:
        for index, policy in enumerate(js.items(value_at(spec.raw, place))):
            action = js.text_at(policy, "action")
            if action in ("RestartTask", "RestartPod", "RestartPartition"):
                yield Hit(
                    message=f"the policy's action {action} restarts a part of the gang alone",
                    fix="RestartJob", path=(*place, index, "action"), costs=costs,
                )  # fmt: skip


def _none(spec: Spec) -> Iterator[Hit]:
    if spec.kind != "JobSet" or not spec.is_gang:
        return
    if not js.integer(js.at(spec.spec, "failurePolicy", "maxRestarts")):
        yield Hit(
            message="no failurePolicy.maxRestarts: the first failed Job ends the JobSet",
            fix="failurePolicy.maxRestarts: 3, if nobody is to start it again by hand",
            path=("spec", "failurePolicy"),
        )


def _twice(spec: Spec) -> Iterator[Hit]:
    if not spec.is_gang or not js.integer(js.at(spec.spec, "failurePolicy", "maxRestarts")):
        return
    for role in spec.ranks:
        launcher = role.main.launcher
        if launcher is not None and (js.integer(launcher.option("max-restarts")) or 0) > 0:
            yield role.hit(
                "torchrun restarts its ranks and the JobSet restarts the pods",
                "--max-restarts=0, or know that the first failure's log is followed by others",
                inside=role.main,
            )


def _deadline(spec: Spec) -> Iterator[Hit]:
    if not spec.is_training:
        return
    for path in (("spec", "activeDeadlineSeconds"), ("spec", "runPolicy", "activeDeadlineSeconds")):
        found = js.integer(value_at(spec.raw, path))
        if found is not None:
            yield Hit(
                message=f"activeDeadlineSeconds ends the job after {found / 3600:.1f} h",
                fix="nothing, if that is meant: know that its end looks like a crash",
                path=path,
            )


RULES = (
    Rule(
        id="restart-policy", severity="warning", check=_restart_policy,
        looks_for="a rank whose container the kubelet starts again (OnFailure, Always), written or filled in by a controller (JobSet v1alpha2, Trainer 2.3, training-operator 1.9, mpi-operator v2beta1)",
        why="one rank comes back alone into a dead communicator, and only one earlier log is kept",
    ),
    Rule(
        id="retries-stacked", severity="warning", check=_stacked,
        looks_for="`backoffLimit` above 0 (its default is 6) under a JobSet",
        why="the Job retries one rank alone before the JobSet hears of it, and the counts multiply",
    ),
    Rule(
        id="single-rank-retry", severity="warning", check=_alone,
        looks_for="a plain Job of several ranks with `backoffLimit` above 0 and no elastic launcher",
        why="the others wait for a rank that starts from the beginning",
    ),
    Rule(
        id="retries-many", severity="warning", check=_many,
        looks_for=f"more than {MANY} restarts (`maxRestarts`, `maxRetry`, `backoffLimit`, `--max-restarts`)",
        why="each failed attempt is paid for, and the first one's evidence is buried",
    ),
    Rule(
        id="partial-restart", severity="warning", check=_partial,
        looks_for="a policy that restarts a part of the gang: LWS `None`, Volcano `RestartTask` or `RestartPod`, JobSet `RestartJob`",
        why="the ranks that went on hang in a collective with the old ones",
    ),
    Rule(
        id="no-restart", severity="info", check=_none,
        looks_for="a JobSet without `failurePolicy.maxRestarts`",
        why="somebody has to start it again at 3am",
    ),
    Rule(
        id="retries-in-launcher", severity="info", check=_twice,
        looks_for="torchrun `--max-restarts` under a JobSet that restarts",
        why="two layers count attempts",
    ),
    Rule(
        id="active-deadline", severity="info", check=_deadline,
        looks_for="`activeDeadlineSeconds`",
        why="a kill by deadline looks like a crash of all ranks",
    ),
)  # fmt: skip
