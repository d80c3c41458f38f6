"""What survives: the time to write the last checkpoint, and a place that outlives the pod."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.operate.preflight import price
from gpufleet_cli.operate.preflight.model import Container, Hit, Role, Rule, Spec
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_volumes import dump_place

ENOUGH_S = 60
_DEFAULT_S = 30
_OPTION = re.compile(
    r"-{0,2}(?:[\w.]{1,40}\.)?(?:save|(?:save|ckpt|checkpoints?|output|dump)[_-](?:dir|folder|root|directory)|(?:save|checkpoint)[_-]path"
    r"|default[_-]root[_-]dir|default[_-]local[_-]dir|explicit[_-]log[_-]dir|checkpoint\.folder)"
)
_VARIABLE = re.compile(
    r"(?:[A-Z0-9]{1,20}_)?(?:CHECKPOINTS?|CKPT|SAVE|OUTPUT)_(?:DIR|PATH|ROOT|FOLDER)"
)
_SLEEP = re.compile(r"\bsleep\s+(\d{1,6})")


def _grace(spec: Spec) -> Iterator[Hit]:
    if not (spec.is_training and spec.has_gpus):
        return
    for role in spec.ranks:
        if role.gpus == 0:
            continue
        written = js.integer(role.pod.get("terminationGracePeriodSeconds"))
        seconds = _DEFAULT_S if written is None else written
        if seconds >= ENOUGH_S:
            continue
        told = "the default of 30 s" if written is None else f"{written} s"
        yield role.hit(
            f"terminationGracePeriodSeconds is {told}: no time to write a checkpoint or a dump",
            "at least as long as a checkpoint takes, such as 300", "spec",
            "terminationGracePeriodSeconds", costs=price.a_kill(spec.gpus),
            severity=None if spec.is_gang or (spec.gpus or 0) >= 8 else "info",
        )  # fmt: skip


def _pre_stop(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training and spec.has_gpus else ():
        hook = js.mapping(js.at(role.main.raw, "lifecycle", "preStop"))
        words = " ".join(str(word) for word in js.items(js.at(hook, "exec", "command")))
        slept = _SLEEP.search(words)
        seconds = js.integer(js.at(hook, "sleep", "seconds")) or (int(slept[1]) if slept else 0)
        grace = js.integer(role.pod.get("terminationGracePeriodSeconds")) or _DEFAULT_S
        if seconds and grace >= ENOUGH_S and grace - seconds < ENOUGH_S:
            yield role.hit(
                f"preStop sleeps for {seconds} s of {grace} s of grace, before the ranks hear of the end",
                "take the sleep out: no load balancer has to forget a rank", "lifecycle", "preStop",
                inside=role.main, costs=price.a_kill(spec.gpus),
            )  # fmt: skip


# --- Where checkpoints go -------------------------------------------------------------------------


def checkpoint_paths(one: Container) -> Iterator[tuple[str, str]]:
    """(who says so, path) for every place of checkpoints that the command or the environment names."""
    words = one.launcher.arguments if one.launcher is not None else ()
    for index, word in enumerate(words):
        name, equals, value = word.lstrip("+").partition("=")
        if _OPTION.fullmatch(name) is None or not (equals or name.startswith("-")):
            continue
        if not equals:
            value = words[index + 1] if index + 1 < len(words) else ""
        if value and not value.startswith("-"):
            yield name, value.strip("'\"")
    for name, given in one.env.items():
        if given and _VARIABLE.fullmatch(name):
            yield name, given


def _place(role: Role, one: Container, path: str) -> str | None:
    """`container`, `pod`, `node`, or None for one that outlives all of them or is not known."""
    fixed = path.partition("$")[0]
    if "://" in path or (fixed != path and not fixed.rstrip("/")):
        return None
    if not fixed.startswith("/"):
        base = js.text_at(one.raw, "workingDir")
        if path.startswith("~"):
            base = "/root"
        if base is None and not _is_all_in_container(role, one):
            return None
        fixed = f"{base or '/workdir'}/{fixed}"
    if fixed != path and "$" in path:
        fixed = fixed.rpartition("/")[0]
    found = dump_place(role.template, one.name, f"{fixed.rstrip('/')}/x")
    if found is None or found.volume is None:
        return "container"
    return {"emptyDir": "pod", "hostPath": "node"}.get(found.kind or "")


def _is_all_in_container(role: Role, one: Container) -> bool:
    """Whether no mount at all could hold a relative path."""
    volumes = {js.text_at(v, "name"): v for v in js.items(role.pod.get("volumes"))}
    for mount in js.items(one.raw.get("volumeMounts")):
        volume = js.mapping(volumes.get(js.text_at(mount, "name")))
        if not any(
            kind in volume
            for kind in ("emptyDir", "configMap", "secret", "downwardAPI", "projected")
        ):
            return False
    return True


def _in_container(spec: Spec) -> Iterator[Hit]:
    for role, one, who, path, place in _placed(spec):
        if place in ("container", "pod"):
            where = "inside the container" if place == "container" else "on an emptyDir"
            yield role.hit(
                f"checkpoints go to {path} ({who}), {where}",
                "a PVC or an object store", "volumeMounts", inside=one, costs=price.a_loss(spec.gpus),
            )  # fmt: skip


def _on_node(spec: Spec) -> Iterator[Hit]:
    for role, one, who, path, place in _placed(spec):
        if place == "node":
            yield role.hit(
                f"checkpoints go to {path} ({who}), a hostPath",
                "nothing where that is a shared file system; else a PVC", "volumeMounts", inside=one,
            )  # fmt: skip


def _placed(spec: Spec) -> Iterator[tuple[Role, Container, str, str, str | None]]:
    for role in spec.ranks if spec.is_training and spec.has_gpus else ():
        seen: set[str] = set()
        for who, path in checkpoint_paths(role.main):
            if path not in seen:
                seen.add(path)
                yield role, role.main, who, path, _place(role, role.main, path)


def _not_seen(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training and spec.has_gpus else ():
        if not any(True for _ in checkpoint_paths(role.main)) and _is_all_in_container(
            role, role.main
        ):
            yield role.hit(
                "no place for checkpoints is named, and the pod has no volume that outlives it",
                "a PVC or an object store, named on the command line", "volumeMounts", inside=role.main,
            )  # fmt: skip


RULES = (
    Rule(
        id="grace-period", severity="warning", check=_grace,
        looks_for=f"ranks with less than {ENOUGH_S} s of `terminationGracePeriodSeconds` (its default is 30)",
        why="SIGKILL cuts the last checkpoint and the recorder's dump, and 137 is read as out of memory",
    ),
    Rule(
        id="prestop-sleep", severity="warning", check=_pre_stop,
        looks_for="a `preStop` hook that sleeps the time of grace away",
        why="the ranks get SIGTERM only after it",
    ),
    Rule(
        id="checkpoint-in-container", severity="warning", check=_in_container,
        looks_for="a place of checkpoints (`--save`, `--output_dir`, `CHECKPOINT_DIR`, ...) in the container or on an emptyDir",
        why="they go with the pod: the next attempt starts from step 0",
    ),
    Rule(
        id="checkpoint-on-node", severity="info", check=_on_node,
        looks_for="a place of checkpoints on a hostPath",
        why="an attempt on another node finds none, unless the path is shared",
    ),
    Rule(
        id="checkpoint-not-seen", severity="info", check=_not_seen,
        looks_for="no place of checkpoints named and no durable volume",
        why="without one every restart begins at step 0",
    ),
)  # fmt: skip
