"""Logs and what deletes them: lines that reach the pod's log, say whose they are, and are still there at eight."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.operate.preflight import price
from gpufleet_cli.operate.preflight.documents import Path
from gpufleet_cli.operate.preflight.model import Hit, Rule, Spec
from gpufleet_cli.operate.preflight.restarts import value_at
from gpufleet_cli.parsers import json_documents as js

KEEP_S = 86_400


def _nccl_debug(spec: Spec) -> Iterator[Hit]:
    if not spec.is_training:
        return
    for role in spec.ranks:
        one = role.main
        level = one.setting("NCCL_DEBUG")
        is_loud = level.state == "set" and level.value.upper() in ("INFO", "TRACE")
        if is_loud and one.setting("NCCL_DEBUG_FILE").state == "unset":
            yield role.hit(
                    f"NCCL_DEBUG={level.value} goes to stdout: rotation (50 MiB) eats the culprit's last line",
                    "NCCL_DEBUG_FILE=/logs/nccl.%h.%p on a volume, or NCCL_DEBUG=WARN",
                    "env", inside=one, costs=price.a_repeat(spec.gpus),
                )  # fmt: skip


def _unbuffered(spec: Spec) -> Iterator[Hit]:
    if not spec.is_training:
        return
    for role in spec.ranks:
        found = role.main.setting("PYTHONUNBUFFERED")
        if found.state == "set" and found.value.strip() in ("0", ""):
            yield role.hit(
                f'PYTHONUNBUFFERED="{found.value}" leaves Python buffered',
                "PYTHONUNBUFFERED=1", "env", inside=role.main,
            )  # fmt: skip


def _buffered(spec: Spec) -> Iterator[Hit]:
    if not (spec.is_training and spec.uses_torch):
        return
    for role in spec.ranks:
        launcher = role.main.launcher
        flags = launcher.python_flags if launcher else ()
        if role.main.setting("PYTHONUNBUFFERED").state == "unset" and "-u" not in flags:
            yield role.hit(
                "Python buffers what it prints", "PYTHONUNBUFFERED=1", "env", inside=role.main
            )


def _prefix(spec: Spec) -> Iterator[Hit]:
    if not spec.is_training:
        return
    for role in spec.ranks:
        launcher = role.main.launcher
        if launcher is None or launcher.tool != "torchrun" or (role.gpus or 0) < 2:
            continue
        if not launcher.option("log-dir", "tee", "redirects", "local-ranks-filter"):
            yield role.hit(
                f"{role.gpus} ranks write into one log, and nothing says which line is whose",
                "torchrun --log-dir DIR --tee 3, or the rank in the program's own lines",
                inside=role.main,
            )


def _error_file(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training else ():
        launcher = role.main.launcher
        if launcher is None or launcher.tool != "torchrun":
            continue
        if role.main.setting("TORCHELASTIC_ERROR_FILE").state == "unset":
            yield role.hit(
                "torchrun does not say where the first failing rank leaves its traceback",
                "TORCHELASTIC_ERROR_FILE on a volume, or @record on the program's main",
                "env", inside=role.main,
            )  # fmt: skip


def _message(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training else ():
        if role.main.raw.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            yield role.hit(
                "the last lines are not kept in the pod's status",
                "terminationMessagePolicy: FallbackToLogsOnError",
                "terminationMessagePolicy", inside=role.main,
            )  # fmt: skip


def _ttl(spec: Spec) -> Iterator[Hit]:
    if not spec.is_training:
        return
    for path, seconds in _ttls(spec):
        if seconds < KEEP_S:
            yield Hit(
                message=f"pods and their logs are deleted {seconds} s after the end",
                fix=f"ttlSecondsAfterFinished: {7 * KEEP_S} (a week), or none",
                path=path,
                costs=price.a_repeat(spec.gpus),
            )


def _ttls(spec: Spec) -> Iterator[tuple[Path, int]]:
    name = "ttlSecondsAfterFinished"
    if spec.kind == "RayJob":
        if spec.spec.get("shutdownAfterJobFinishes") is True:
            yield ("spec", name), js.integer(spec.spec.get(name)) or 0
        return
    paths: list[Path] = [("spec", name), ("spec", "runPolicy", name)]
    if spec.kind == "JobSet":
        paths += [(*role.path[:-1], name) for role in spec.ranks]
    for path in paths:
        found = js.integer(value_at(spec.raw, path))
        if found is not None:
            yield path, found


def _cleaned(spec: Spec) -> Iterator[Hit]:
    if not spec.is_training:
        return
    for path in (("spec", "runPolicy", "cleanPodPolicy"), ("spec", "cleanPodPolicy")):
        found = value_at(spec.raw, path)
        if found in ("All", "Running"):
            only = (
                spec.kind == "MPIJob" and found == "Running"
            )  # the ranks write to the launcher's log
            yield Hit(
                message=f"cleanPodPolicy {found} deletes pods at the end, with their logs",
                fix="cleanPodPolicy: None (its default in training-operator 1.9 and mpi-operator v2beta1)",
                path=path, costs=price.a_repeat(spec.gpus), severity="info" if only else None,
            )  # fmt: skip


def _failed_job(spec: Spec) -> Iterator[Hit]:
    if spec.kind != "Job" or not spec.is_gang:
        return
    if js.integer(spec.spec.get("backoffLimitPerIndex")) is None:
        yield Hit(
            message="when the Job fails its controller deletes the pods that still run, with their logs",
            fix="a log store, or backoffLimitPerIndex: 0 with maxFailedIndexes",
            path=("spec", "backoffLimit"),
        )


RULES = (
    Rule(
        id="evidence-ttl", severity="warning", check=_ttl,
        looks_for="`ttlSecondsAfterFinished` below a day; a RayJob with `shutdownAfterJobFinishes` and such a time",
        why="who comes in the morning finds neither pods nor logs",
    ),
    Rule(
        id="evidence-cleaned", severity="warning", check=_cleaned,
        looks_for="an explicit `cleanPodPolicy: All` or `Running`",
        why="the logs of the ranks that waited are deleted with their pods",
    ),
    Rule(
        id="nccl-debug-log", severity="warning", check=_nccl_debug,
        looks_for="`NCCL_DEBUG=INFO` or `TRACE` without `NCCL_DEBUG_FILE`",
        why="the kubelet keeps five files of 10 MiB; eight ranks fill them in minutes",
    ),
    Rule(
        id="python-unbuffered", severity="warning", check=_unbuffered,
        looks_for='`PYTHONUNBUFFERED: "0"`, which has no effect',
        why="the last lines of a killed rank are lost in its buffer",
    ),
    Rule(
        id="python-buffered", severity="info", check=_buffered,
        looks_for="no `PYTHONUNBUFFERED`",
        why="the last lines of a killed rank are lost in its buffer",
    ),
    Rule(
        id="log-prefix", severity="info", check=_prefix,
        looks_for="torchrun with several ranks and no `--log-dir`, `--tee` or `--redirects`",
        why="lines without a rank cannot be attributed",
    ),
    Rule(
        id="error-file", severity="info", check=_error_file,
        looks_for="torchrun without `TORCHELASTIC_ERROR_FILE`",
        why="the first failing rank's traceback is otherwise one among many",
    ),
    Rule(
        id="termination-message", severity="info", check=_message,
        looks_for="ranks without `terminationMessagePolicy: FallbackToLogsOnError`",
        why="the status is readable when the kubelet is not",
    ),
    Rule(
        id="failed-job-deletes", severity="info", check=_failed_job,
        looks_for="a plain Job of several ranks without `backoffLimitPerIndex`",
        why="the witnesses' logs go with their pods",
    ),
)  # fmt: skip
