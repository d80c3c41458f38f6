"""The Flight Recorder: on, told to dump, and written to where it outlives the pod. For PyTorch on GPUs alone.

Names and defaults from PyTorch's sources: the ring is off through 2.10 (0 entries) and on from 2.11 (2000).
The old names are TORCH_NCCL_TRACE_BUFFER_SIZE and TORCH_NCCL_DEBUG_INFO_TEMP_FILE, the new ones
TORCH_FR_BUFFER_SIZE (2.8) and TORCH_FR_DUMP_TEMP_FILE; either is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.operate.preflight import price
from gpufleet_cli.operate.preflight.model import Container, Hit, Role, Rule, Spec
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_volumes import SETTINGS as PATHS
from gpufleet_cli.parsers.kubernetes_volumes import dump_place

BUFFER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
ON_TIMEOUT = "TORCH_NCCL_DUMP_ON_TIMEOUT"
MONITORING = "TORCH_NCCL_ENABLE_MONITORING"
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
NAMES = frozenset({*BUFFER, *PATHS, ON_TIMEOUT, MONITORING, PIPE})
ON_SINCE = (2, 11)
NEW_NAME_SINCE = (2, 8)
_FALSE = frozenset({"0", "false", "no", "n", "f", "off"})
_VERSION = re.compile(r"(?:^|[/_-])(?:py)?torch(?:[-_:]?v?|-\w{1,20}:v?)(\d)\.(\d{1,2})(?:[.\D]|$)")
_SET = (
    "TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_TRACE_BUFFER_SIZE=2000 (the name before 2.8),"
    " TORCH_NCCL_DUMP_ON_TIMEOUT=1, and a path on a volume that outlives the pod"
)


def torch_version(image: str) -> tuple[int, int] | None:
    """As the image's name tells it; NGC's tags are months and tell none.

    >>> torch_version("pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime"), torch_version("nvidia/pytorch:25.06-py3")
    ((2, 7), None)
    """
    found = _VERSION.search(image.partition("@")[0])
    return (int(found[1]), int(found[2])) if found and found[1] in "12" else None


def recorded(spec: Spec) -> Iterator[tuple[Role, Container]]:
    """The containers whose ranks have a recorder; one GPU alone has no collective to record."""
    if spec.gpus == 1:
        return
    if spec.is_training and spec.uses_torch and spec.has_gpus:
        for role in spec.ranks:
            if role.gpus != 0:
                yield role, role.main


def why_off(one: Container) -> str | None:
    """Why this container's ranks leave no dump; None where they do or nobody can tell."""
    size, trigger, monitor = one.setting(*BUFFER), one.setting(ON_TIMEOUT), one.setting(MONITORING)
    if size.state == "set" and js.integer(size.value) == 0:
        return f"{size.name} is 0: nothing is recorded"
    if trigger.state == "set" and trigger.value.strip().lower() in _FALSE:
        return f"{ON_TIMEOUT} is {trigger.value}: no dump at a timeout"
    if monitor.state == "set" and monitor.value.strip().lower() in _FALSE:
        return f"{MONITORING} is {monitor.value}: the thread that dumps does not run"
    version = torch_version(one.image)
    if size.name == BUFFER[0] and BUFFER[1] not in one.env and version and version < NEW_NAME_SINCE:
        return f"torch {version[0]}.{version[1]} does not know {size.name}, only {BUFFER[1]}"
    if size.state == "unset":
        if version is None:
            return "the recorder's buffer is not set, and the image does not tell torch's version: off through 2.10, on from 2.11; set it explicitly"
        if version < ON_SINCE:
            return f"the recorder's buffer is not set, and in torch {version[0]}.{version[1]} that is off"
    return None


def _off(spec: Spec) -> Iterator[Hit]:
    for role, one in recorded(spec):
        why = why_off(one)
        if why is not None:
            yield role.hit(why, _SET, "env", inside=one, costs=price.a_repeat(spec.gpus))


def _lost(spec: Spec) -> Iterator[Hit]:
    for role, one in recorded(spec):
        if why_off(one) is None and (told := lost_place(role, one)) is not None:
            yield role.hit(
                told,
                "TORCH_FR_DUMP_TEMP_FILE and TORCH_NCCL_DEBUG_INFO_TEMP_FILE on a PVC or hostPath mount, such as /dumps/rank_",
                "env", inside=one, costs=price.a_repeat(spec.gpus),
            )  # fmt: skip


def lost_place(role: Role, one: Container) -> str | None:
    """Where the dumps go if they go with the pod; None where they stay or nobody can tell."""
    setting = next((name for name in PATHS if name in one.env), None)
    if setting is None:
        if one.env_open:
            return None
        return "no dump path is set: the default is in the container and goes with it"
    value = one.env[setting]
    if value is None:
        return None
    fixed = value.partition("$")[0]
    if fixed != value:
        fixed = fixed.rpartition("/")[0] + "/x"
    if not fixed.startswith("/"):
        return (
            None
            if value.startswith("$")
            else f"{setting} is {value}: in the container, and gone with it"
        )
    place = dump_place(role.template, one.name, fixed)
    if place is None or place.volume is None:
        return f"{setting} is {value}: in the container, and gone with it"
    if place.kind == "emptyDir":
        return f"{setting} is {value}: on the emptyDir {place.volume}, which goes with the pod"
    return None


def _trigger(spec: Spec) -> Iterator[Hit]:
    for role, one in recorded(spec):
        if why_off(one) is None and one.setting(ON_TIMEOUT).state == "unset":
            if one.setting(*BUFFER).state == "unset":
                continue  # torch 2.11 and later, as it comes
            yield role.hit(
                f"{ON_TIMEOUT} is not set: its default differs by version of torch",
                f"{ON_TIMEOUT}=1", "env", inside=one, costs=price.a_repeat(spec.gpus),
            )  # fmt: skip


def _names(spec: Spec) -> Iterator[Hit]:
    for role, one in recorded(spec):
        for pair in (BUFFER, PATHS):
            values = {name: one.env.get(name) for name in pair if one.env.get(name)}
            if len(set(values.values())) > 1 and "0" not in values.values():
                told = " and ".join(f"{name}={value}" for name, value in sorted(values.items()))
                yield role.hit(
                    f"two names of one setting differ: {told}",
                    "the same value under both names, or one of them", "env", inside=one,
                )  # fmt: skip


def _pipe(spec: Spec) -> Iterator[Hit]:
    for role, one in recorded(spec):
        if why_off(one) is not None:
            continue
        pipe, old = one.setting(PIPE), one.setting(BUFFER[1])
        version = torch_version(one.image)
        if pipe.state == "unset":
            told = f"{PIPE} is not set: a job that hangs cannot be asked for a dump before its watchdog fires"
        elif old.state == "unset" and (version is None or version < ON_SINCE):
            told = f"through torch 2.10 the pipe is made only where {BUFFER[1]} is set too"
        else:
            continue
        fix = f"{PIPE}=/tmp/fr_ and {BUFFER[1]}=2000"
        yield role.hit(told, fix, "env", inside=one)


RULES = (
    Rule(
        id="recorder-off", severity="warning", check=_off,
        looks_for="PyTorch on GPUs with a Flight Recorder of 0 entries, `TORCH_NCCL_DUMP_ON_TIMEOUT=0`, `TORCH_NCCL_ENABLE_MONITORING=0`, a size under the new name alone before torch 2.8, or no size set where torch is older than 2.11 or of no known version",
        why="without a dump nobody can tell which rank never entered the collective",
    ),
    Rule(
        id="recorder-lost", severity="warning", check=_lost,
        looks_for="dumps written into the container or onto an emptyDir",
        why="the evidence goes with the pod, before anybody looked",
    ),
    Rule(
        id="recorder-trigger", severity="warning", check=_trigger,
        looks_for="a recorder with a size but without `TORCH_NCCL_DUMP_ON_TIMEOUT`",
        why="a ring that is never written out is lost at the abort",
    ),
    Rule(
        id="recorder-names", severity="warning", check=_names,
        looks_for="old and new name of one recorder setting with different values",
        why="which one counts depends on the version of torch",
    ),
    Rule(
        id="recorder-pipe", severity="info", check=_pipe,
        looks_for="no `TORCH_NCCL_DEBUG_INFO_PIPE_FILE`, or one that torch through 2.10 does not make",
        why="`triage --capture` and `watch` use it to ask for a dump while the ranks are alive",
    ),
)  # fmt: skip
