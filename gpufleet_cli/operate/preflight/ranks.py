"""How ranks are started: one world, options where they count, errors that stop it, the same on every pod."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli import cost
from gpufleet_cli.operate.preflight import price
from gpufleet_cli.operate.preflight.launcher import Launcher
from gpufleet_cli.operate.preflight.model import Hit, Role, Rule, Spec
from gpufleet_cli.operate.preflight.recorder import NAMES as RECORDER
from gpufleet_cli.operate.preflight.shell import is_open
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.render.layout import duration

LONG_S = 1800
ASYNC = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
_FAMILY = re.compile(r"(?:NCCL|TORCH|GLOO|UCX|FI|CUDA|CUBLAS|PYTORCH|NVTE|OMP|NVSHMEM)_\w+")
_OWN = re.compile(r".*(?:_DEBUG\w*|_FILE|_RANK|_DIR)|TORCHELASTIC\w*|CUDA_VISIBLE_DEVICES")
_TORCHRUN_ONLY = re.compile(
    r"--(?:nnodes|nproc[_-]per[_-]node|rdzv[_-]\w+|max[_-]restarts|redirects|tee|local-ranks-filter|log-dir)(?:=.*)?"
)
_ARGUMENT = re.compile(r"--([\w.-]+?)(?:=(.*))?", re.DOTALL)
_PER_RANK = re.compile(r"rank|addr|host|port|index|\bid\b|log|name|role|node", re.IGNORECASE)
_TIMEOUTS = (
    (re.compile(r"--distributed[_-]timeout[_-]minutes[= ](\d+)"), 60),
    (re.compile(r"--ddp[_-]timeout[= ](\d+)"), 1),
    (re.compile(r"--(?:nccl|dist|collective|pg)[_-]timeout[_-](?:s|sec|seconds)[= ](\d+)"), 1),
)


def _launched(spec: Spec) -> Iterator[tuple[Role, Launcher]]:
    for role in spec.ranks:
        if role.main.launcher is not None:
            yield role, role.main.launcher


def _nnodes(role: Role, launcher: Launcher) -> str | None:
    """What says how many nodes there are: "" where something unknown may."""
    if launcher.tool == "torchrun":
        stated = launcher.option("nnodes") or role.main.env.get("PET_NNODES")
        if stated is not None:
            return stated
        known = "PET_NNODES" in role.main.env or role.main.env_open or role.sets_world
        return "" if known else None
    stated = launcher.option("num-machines")
    known = launcher.option("config-file") is not None or role.main.env_open
    return stated if stated is not None else "" if known else None


def _worlds(spec: Spec) -> Iterator[Hit]:
    for role, launcher in _launched(spec) if spec.is_gang and not spec.is_ray else ():
        if launcher.tool not in ("torchrun", "accelerate") or spec.kind == "MPIJob":
            continue
        option = "--nnodes" if launcher.tool == "torchrun" else "--num_machines"
        if _nnodes(role, launcher) is None:
            yield role.hit(
                f"{launcher.tool} without {option}: {spec.in_world} pods train {spec.in_world} models apart",
                f"{option}={spec.in_world}, and where they meet", inside=role.main,
                costs=price.an_hour(spec.gpus),
            )  # fmt: skip


def _mismatch(spec: Spec) -> Iterator[Hit]:
    for role, launcher in _launched(spec) if spec.is_gang and not spec.is_ray else ():
        if launcher.tool not in ("torchrun", "accelerate") or spec.kind == "MPIJob":
            continue
        stated = _nnodes(role, launcher)
        most = js.integer((stated or "").rpartition(":")[2])
        if not stated or is_open(stated) or most is None:
            continue
        if most < spec.in_world or (":" not in stated and most != spec.in_world):
            yield role.hit(
                f"the launcher waits for {stated} nodes, and there are {spec.in_world} pods",
                f"the number of pods: {spec.in_world}", inside=role.main,
                costs=price.an_hour(spec.gpus),
            )  # fmt: skip


def _misplaced(spec: Spec) -> Iterator[Hit]:
    for role, launcher in _launched(spec) if spec.is_training else ():
        if launcher.tool != "torchrun":
            continue
        for word in launcher.arguments:
            if _TORCHRUN_ONLY.fullmatch(word) is None:
                continue
            name = word.partition("=")[0]
            if launcher.option(name.lstrip("-").replace("_", "-")) is None:
                yield role.hit(
                    f"{name} stands behind {launcher.script}: torchrun does not see it",
                    f"{name} before the script's name", inside=role.main,
                )  # fmt: skip


def _async(spec: Spec) -> Iterator[Hit]:
    if not (spec.is_training and spec.has_gpus):
        return
    for role in spec.ranks:
        found = role.main.setting(*ASYNC)
        if found.state == "set" and found.value.strip() == "0":
            yield role.hit(
                f"{found.name}=0: a collective that fails or hangs stops nothing",
                "take it out (3 is the default: the process ends without an abort)", "env",
                inside=role.main, costs=price.an_hour(spec.gpus),
            )  # fmt: skip


def timeouts_in(text: str) -> Iterator[int]:
    """Seconds that a command line gives a collective.

    >>> list(timeouts_in("train.py --distributed-timeout-minutes 30"))
    [1800]
    """
    for pattern, unit in _TIMEOUTS:
        found = pattern.search(text)
        if found:
            yield int(found[1][:12]) * unit


def _timeout(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training and spec.has_gpus else ():
        for seconds in timeouts_in(role.main.text):
            if seconds > LONG_S:
                yield role.hit(
                    f"the watchdog waits for {duration(seconds)}",
                    "what the longest pause takes (a checkpoint, an evaluation), and a margin",
                    inside=role.main, costs=price.a_wait(spec.gpus, float(seconds)),
                )  # fmt: skip


def _idle(spec: Spec) -> Iterator[Hit]:
    if spec.is_gang and spec.uses_torch and spec.gpus:
        yield Hit(
            message=f"{spec.gpus} GPUs wait for one rank until the watchdog fires (torch's default for NCCL is {duration(cost.DEFAULT_WATCHDOG_S)})",
            fix="an alert on the time since the last step; a shorter timeout where no pause is longer",
            path=("metadata", "name"),
            costs=price.a_wait(spec.gpus),
        )


# --- The same on every pod ------------------------------------------------------------------------


def _differ(spec: Spec) -> Iterator[Hit]:
    if not spec.is_gang or len(spec.ranks) < 2:
        return
    first, *others = spec.ranks
    for other in others:
        for name in sorted({*first.main.env, *other.main.env}):
            one, two = first.main.setting(name), other.main.setting(name)
            if "unknown" in (one.state, two.state) or one.value == two.value:
                continue
            if _must_agree(name, first, other):
                told = one.value or "not set", two.value or "not set"
                yield _differs(first, other, name, *told, "env")
        yield from _arguments(first, other)


def _must_agree(name: str, first: Role, other: Role) -> bool:
    """Settings of the libraries always; a program's own where both roles run it and both set it."""
    if name in RECORDER or name in ASYNC or _OWN.fullmatch(name):
        return False
    if _FAMILY.fullmatch(name):
        return True
    both = name in first.main.env and name in other.main.env
    return both and _is_same_program(first, other) and not _PER_RANK.search(name)


def _is_same_program(first: Role, other: Role) -> bool:
    """Roles of one gang may differ on purpose: learners and actors run different programs."""
    one, two = (role.main.launcher for role in (first, other))
    return (one.script if one else None) == (two.script if two else None)


def _arguments(first: Role, other: Role) -> Iterator[Hit]:
    one, two = (role.main.launcher for role in (first, other))
    if one is None or two is None or one.script != two.script:
        return
    own, theirs = _stated(one), _stated(two)
    for name in own:
        if name not in theirs or own[name] == theirs[name] or _PER_RANK.search(name):
            continue
        if not is_open(own[name]) and not is_open(theirs[name]):
            yield _differs(first, other, f"--{name}", own[name], theirs[name], "args")


def _stated(launcher: Launcher) -> dict[str, str]:
    found = {f"{name}": value for name, value in launcher.options.items() if " " not in name}
    words = launcher.arguments
    for index, word in enumerate(words):
        match = _ARGUMENT.fullmatch(word)
        if match is not None:
            behind = words[index + 1] if index + 1 < len(words) else ""
            found[match[1]] = (
                match[2] if match[2] is not None else "" if behind.startswith("-") else behind
            )
    return found


def _differs(first: Role, other: Role, name: str, one: str, two: str, field: str) -> Hit:
    return other.hit(
        f"{name} differs between roles: {first.name} {one}, {other.name} {two}",
        "one value for all ranks", field, inside=other.main,
    )  # fmt: skip


def _images(spec: Spec) -> Iterator[Hit]:
    if not spec.is_gang:
        return
    first, *others = spec.ranks
    for role in others:
        images = {role.main.image, first.main.image} - {""}
        if len(images) < 2 or not _is_same_program(first, role):
            continue
        yield role.hit(
            f"roles run different images: {', '.join(sorted(images))}",
            "one image for all ranks", "image", inside=role.main,
        )  # fmt: skip


RULES = (
    Rule(
        id="separate-worlds", severity="error", check=_worlds,
        looks_for="torchrun without `--nnodes` (accelerate without `--num_machines`) on several pods, where no controller sets it",
        why="every pod trains a model of its own and none of them fails",
    ),
    Rule(
        id="nnodes", severity="warning", check=_mismatch,
        looks_for="`--nnodes` or `--num_machines` that is not the number of pods",
        why="the rendezvous waits for pods that never come, or turns some away",
    ),
    Rule(
        id="option-misplaced", severity="warning", check=_misplaced,
        looks_for="torchrun's own options (`--log-dir`, `--tee`, `--nnodes`, ...) behind the script's name",
        why="they go to the script, and have no effect on torchrun",
    ),
    Rule(
        id="async-error-handling", severity="error", check=_async,
        looks_for="`TORCH_NCCL_ASYNC_ERROR_HANDLING=0`, also under its old name",
        why="failures stay hidden and a hang lasts for ever",
    ),
    Rule(
        id="values-differ", severity="warning", check=_differ,
        looks_for="settings of NCCL, torch, CUDA, UCX and the like, or options of launcher and script, that differ between roles of one gang",
        why="ranks that disagree hang in a collective that none of them got wrong",
    ),
    Rule(
        id="image-differs", severity="warning", check=_images,
        looks_for="roles of one gang with different images",
        why="ranks that disagree hang in a collective that none of them got wrong",
    ),
    Rule(
        id="watchdog-timeout", severity="warning", check=_timeout,
        looks_for=f"a collective timeout over {LONG_S // 60} minutes on the command line",
        why="all GPUs wait that long for a rank that is gone",
    ),
    Rule(
        id="watchdog-cost", severity="info", check=_idle,
        looks_for="what the watchdog's default costs at this size",
        why="ten minutes are short for one GPU and long for a thousand",
    ),
)  # fmt: skip
