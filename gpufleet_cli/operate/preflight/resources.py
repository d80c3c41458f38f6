"""What a pod is given: shared memory, GPUs against processes, and what gets it evicted from a full node."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.operate.preflight import price
from gpufleet_cli.operate.preflight.model import Container, Hit, Role, Rule, Spec
from gpufleet_cli.operate.preflight.shell import is_open
from gpufleet_cli.parsers import json_documents as js

LITTLE_BYTES = 1 << 30
_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(m|[kMGTPE]i?|)")
_UNITS = {"": 1.0, "m": 1e-3} | {
    unit: size for index, letter in enumerate("kMGTPE", 1)
    for unit, size in ((letter, 1000.0**index), (letter.upper() + "i", 1024.0**index))
}  # fmt: skip


def quantity(value: object) -> float | None:
    """A Kubernetes quantity as a number.

    >>> quantity("64Mi"), quantity("1.5G"), quantity(2), quantity("x")
    (67108864.0, 1500000000.0, 2.0, None)
    """
    found = _QUANTITY.fullmatch(str(value).strip())
    return float(found[1]) * _UNITS[found[2]] if found and found[2] in _UNITS else None


def shm_of(role: Role, one: Container) -> object:
    """The volume that is mounted on /dev/shm; None where nothing is."""
    for mount in js.items(one.raw.get("volumeMounts")):
        if (js.text_at(mount, "mountPath") or "").rstrip("/") == "/dev/shm":
            name = js.text_at(mount, "name")
            volumes = js.items(role.pod.get("volumes"))
            return next((v for v in volumes if js.text_at(v, "name") == name), {"name": name})
    return None


def _shared_memory(spec: Spec) -> Iterator[Hit]:
    if not (spec.is_training and spec.uses_torch and spec.has_gpus) or spec.is_ray:
        return
    for role in spec.ranks:
        if role.gpus == 0 or role.pod.get("hostIPC") is True:
            continue
        told = _shm_trouble(shm_of(role, role.main))
        if told is not None:
            few = (role.gpus or 0) < 2 and spec.in_world < 2
            yield role.hit(
                told,
                "an emptyDir with medium: Memory and a sizeLimit, mounted at /dev/shm",
                "volumeMounts", inside=role.main, costs=price.a_kill(spec.gpus),
                severity="info" if few else None,
            )  # fmt: skip


def _shm_trouble(volume: object) -> str | None:
    if volume is None:
        return "/dev/shm is the container's default of 64 MiB"
    empty = js.at(volume, "emptyDir")
    if empty is None:
        return None
    if js.text_at(empty, "medium") != "Memory":
        return "/dev/shm is an emptyDir on disk (no medium: Memory)"
    size = quantity(js.at(empty, "sizeLimit"))
    if size is not None and size < LITTLE_BYTES:
        return f"/dev/shm is limited to {js.at(empty, 'sizeLimit')}"
    return None


def _over_memory(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training else ():
        size = quantity(js.at(shm_of(role, role.main), "emptyDir", "sizeLimit"))
        limit = quantity(js.at(role.main.raw, "resources", "limits", "memory"))
        if size is not None and limit is not None and size >= limit:
            yield role.hit(
                "/dev/shm may grow to the container's memory limit, against which it counts",
                "a memory limit that holds the ranks and /dev/shm", "resources", "limits", "memory",
                inside=role.main, costs=price.a_kill(spec.gpus),
            )  # fmt: skip


# --- GPUs against processes -----------------------------------------------------------------------


def processes_of(role: Role) -> tuple[str, str] | None:
    """How many processes a pod starts, as text, and who says so; None where nobody can tell."""
    launcher = role.main.launcher
    if launcher is not None and launcher.tool == "torchrun":
        stated = launcher.option("nproc-per-node")
        if stated is not None:
            return stated, "--nproc-per-node"
        if "PET_NPROC_PER_NODE" in role.main.env:
            return role.main.env["PET_NPROC_PER_NODE"] or "$", "PET_NPROC_PER_NODE"
        if role.nproc is not None:
            return role.nproc, "the controller"
        return None if role.main.env_open else ("1", "torchrun's default")
    if launcher is not None and launcher.tool == "accelerate":
        total, machines = launcher.option("num-processes"), launcher.option("num-machines") or "1"
        all_of, over = js.integer(total), js.integer(machines)
        if all_of is None or not over or launcher.option("config-file"):
            return None
        return str(all_of // over), "--num_processes"
    if launcher is not None and launcher.tool == "deepspeed":
        stated = launcher.option("num-gpus")
        return None if stated is None else (stated, "--num_gpus")
    return None if role.nproc is None else (role.nproc, "the controller")


def _gpu_count(spec: Spec) -> Iterator[Hit]:
    if not spec.is_training or spec.is_ray:
        return
    if spec.kind == "MPIJob":
        yield from _slots(spec)
        return
    for role in spec.ranks:
        told = processes_of(role)
        if not role.gpus or told is None:
            continue
        stated, who = told
        found = js.integer(stated)
        if is_open(stated) or stated in ("auto", "gpu") or found == role.gpus:
            continue
        if found is None and stated != "cpu":
            continue
        yield _unequal(spec, role, f"{stated} (by {who})")


def _unequal(spec: Spec, role: Role, processes: str) -> Hit:
    idle = js.integer(processes.split(" ")[0])
    lost = (role.gpus or 0) - (idle or 0)
    costs = price.an_hour(lost * role.pods) if lost > 0 else price.a_kill(spec.gpus)
    return role.hit(
        f"{role.gpus} GPUs and {processes} processes in a pod",
        "as many processes as GPUs: --nproc-per-node=auto, or the number",
        "resources", "limits", inside=role.main, costs=costs,
    )  # fmt: skip


def _slots(spec: Spec) -> Iterator[Hit]:
    slots = js.integer(spec.spec.get("slotsPerWorker"))
    for role in spec.ranks:
        if role.gpus and role.gpus != (1 if slots is None else slots):
            yield _unequal(spec, role, f"{1 if slots is None else slots} (by slotsPerWorker)")
            return
    pods = sum(role.pods for role in spec.ranks if role.gpus)
    for role in spec.roles:
        launcher = role.main.launcher
        wanted = js.integer(launcher.option("np")) if launcher else None
        if wanted is not None and pods and wanted != pods * (slots or 1):
            yield role.hit(
                f"mpirun -np {wanted}, and the workers have {pods * (slots or 1)} slots",
                "-np as many as workers times slotsPerWorker, or leave it out", inside=role.main,
                costs=price.an_hour(max(0, pods * (slots or 1) - wanted)),
            )  # fmt: skip


def _guaranteed(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training and spec.has_gpus else ():
        limits = js.mapping(js.at(role.main.raw, "resources", "limits"))
        requests = js.mapping(js.at(role.main.raw, "resources", "requests"))
        memory = limits.get("memory")
        if memory is None or requests.get("memory", memory) != memory:
            yield role.hit(
                "memory request and limit are not the same: the pod is not Guaranteed",
                "equal requests and limits for cpu and memory", "resources", inside=role.main,
            )  # fmt: skip


def _ephemeral(spec: Spec) -> Iterator[Hit]:
    for role in spec.ranks if spec.is_training and spec.has_gpus else ():
        named = [js.mapping(js.at(role.main.raw, "resources", f)) for f in ("limits", "requests")]
        if not any("ephemeral-storage" in one for one in named):
            yield role.hit(
                "no ephemeral-storage is asked for",
                "an ephemeral-storage request that holds dumps and core files",
                "resources", inside=role.main,
            )  # fmt: skip


RULES = (
    Rule(
        id="shared-memory", severity="warning", check=_shared_memory,
        looks_for="ranks with 64 MiB of /dev/shm, less than 1 GiB, or one on disk; not for Ray, where KubeRay mounts it",
        why="NCCL and data loaders die of a bus error, on whichever rank is first",
    ),
    Rule(
        id="shm-over-memory", severity="warning", check=_over_memory,
        looks_for="a /dev/shm as large as the memory limit",
        why="it counts against the limit: the rank is OOM-killed",
    ),
    Rule(
        id="gpu-count", severity="warning", check=_gpu_count,
        looks_for="GPUs and processes of a pod that differ: `--nproc-per-node`, `PET_NPROC_PER_NODE`, `nprocPerNode`, `numProcPerNode`, `slotsPerWorker`, `-np`, `--num_processes`, `--num_gpus`",
        why="GPUs stay idle, or two ranks share one",
    ),
    Rule(
        id="not-guaranteed", severity="info", check=_guaranteed,
        looks_for="ranks whose memory request is not the limit",
        why="a node under pressure evicts such a rank first",
    ),
    Rule(
        id="ephemeral-storage", severity="info", check=_ephemeral,
        looks_for="ranks without an `ephemeral-storage` request",
        why="a pod that outgrows the node's disk is evicted with its evidence",
    ),
)  # fmt: skip
