"""The node rank that a pod's own spec and labels give it, and how sure that is.

Torchrun with c10d sorts the agents itself, so a pod's index is then only a guess; with a static
rendezvous `RANK` or `PET_NODE_RANK` of the spec is a *node* rank and sure. By kind (controllers'
sources, August 2026): Indexed Job and TrainJob: the completion index; JobSet: job-index times the
parallelism plus completion index; LWS: worker-index; PyTorchJob: master 0, worker index + 1; MPIJob:
worker index, + 1 where the launcher holds GPUs itself; Volcano's pytorch plugin: master 0, worker index + 1; Ray and plain pods: none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_gpus import gpus_of

COMPLETION = "batch.kubernetes.io/job-completion-index"
ARGUMENT_CHARS = 65_536

_NPROC = re.compile(r"--nproc[-_]per[-_]node[=\s]{1,4}[\"']?([\w${}()-]{1,64})")
_NNODES = re.compile(r"--nnodes[=\s]{1,4}[\"']?(\d{1,6})(?=[\s\"']|$)")
_NODE_RANK = re.compile(r"--node[-_]rank[=\s]{1,4}[\"']?([\w${}()-]{1,64})")
_BACKEND = re.compile(r"--rdzv[-_]backend[=\s]{1,4}[\"']?([\w-]{1,32})")
_LOCAL_ADDR = re.compile(r"--local[-_]addr\b")
_VARIABLE = re.compile(r"\$[({]?(\w{1,64})[)}]?")
_FIELD = re.compile(r"metadata\.(annotations|labels)\['([^']{1,253})'\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRank:
    """`node_rank` None: nothing gives one. `sorts`: torchrun's agents give the node ranks out by the order of their
    host names, which nothing in the spec replaces."""

    node_rank: int | None
    nproc: int | None
    nnodes: int | None
    rendezvous: Literal["static", "c10d"] | None
    sorts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """What only the pods together tell: which jobs have a master, or a launcher that holds ranks, and Jobs'
    parallelism."""

    masters: frozenset[str]
    launchers: frozenset[str]
    parallelism: Mapping[str, int]


def labels_of(pod: object) -> Mapping[str, str]:
    """Labels of an object, texts only."""
    labels = js.mapping(js.at(pod, "metadata", "labels"))
    return {k: v for k, v in labels.items() if isinstance(v, str)}


def annotations_of(pod: object) -> Mapping[str, str]:
    """Annotations of an object, texts only."""
    found = js.mapping(js.at(pod, "metadata", "annotations"))
    return {k: v for k, v in found.items() if isinstance(v, str)}


def _both(pod: object) -> dict[str, str]:
    return {**annotations_of(pod), **labels_of(pod)}


def gang_of(pods: Iterable[object]) -> Gang:
    """Masters and parallelism over all pods of a file."""
    masters: set[str] = set()
    launchers: set[str] = set()
    parallelism: dict[str, int] = {}
    for pod in pods:
        marks = _both(pod)
        job = _training_job(marks)
        if job is not None and _is_master(marks):
            masters.add(job)
        if job is not None and _is_launcher(marks) and _holds_gpus(pod):
            launchers.add(job)
        job_set, index = _job_set(marks), _number(marks.get(COMPLETION))
        if job_set is not None and index is not None:
            parallelism[job_set] = max(parallelism.get(job_set, 1), index + 1)
    return Gang(masters=frozenset(masters), launchers=frozenset(launchers), parallelism=parallelism)


def _is_launcher(marks: Mapping[str, str]) -> bool:
    return marks.get("training.kubeflow.org/job-role") == "launcher"


def _holds_gpus(pod: object) -> bool:
    return any(gpus_of(one) for one in js.items(js.at(pod, "spec", "containers")))


def _is_of_mpi(marks: Mapping[str, str]) -> bool:
    return "mpi" in marks.get("training.kubeflow.org/operator-name", "")


def _training_job(marks: Mapping[str, str]) -> str | None:
    return marks.get("training.kubeflow.org/job-name") or marks.get("volcano.sh/job-name")


def _is_master(marks: Mapping[str, str]) -> bool:
    role = marks.get("training.kubeflow.org/replica-type") or marks.get("volcano.sh/task-spec", "")
    return role.lower() == "master" or marks.get("training.kubeflow.org/job-role") == "master"


def _job_set(marks: Mapping[str, str]) -> str | None:
    name = marks.get("jobset.sigs.k8s.io/jobset-name")
    return f"{name}/{marks.get('jobset.sigs.k8s.io/replicatedjob-name', '')}" if name else None


def node_rank(pod: object, container: object, gpus: int | None, gang: Gang) -> NodeRank:
    """The rank by static settings, else by the kind's index labels."""
    env = _environment(pod, container)
    command = _command(container)
    backend = env.get("PET_RDZV_BACKEND") or _first(_BACKEND, command)
    static = _static_rank(env, command)
    if backend is not None and backend != "static":
        rendezvous: Literal["static", "c10d"] | None = "c10d"
    elif static is not None:
        rendezvous = "static"
    elif _is_of_mpi(_both(pod)):
        rendezvous = "static"  # the order of the hostfile
    else:
        rendezvous = "c10d" if "PET_RDZV_ENDPOINT" in env or "--standalone" in command else None
    by_kind = _by_kind(_both(pod), gang, knows_spec=container is not None)
    return NodeRank(
        node_rank=static if static is not None else by_kind,
        nproc=_processes(env, command, gpus),
        nnodes=_number(env.get("PET_NNODES")) or _number(_first(_NNODES, command)),
        rendezvous=rendezvous,
        sorts=rendezvous == "c10d" and _is_sorted_by_host(env, command, backend),
    )


def _is_sorted_by_host(env: Mapping[str, str], command: str, backend: str | None) -> bool:
    """etcd counts its agents as they come, a stated address is sorted in the host name's place, and
    `--standalone` is a world of one."""
    is_c10d = backend in ("c10d", None) and "--standalone" not in command
    return is_c10d and "PET_LOCAL_ADDR" not in env and _LOCAL_ADDR.search(command) is None


def _by_kind(marks: Mapping[str, str], gang: Gang, *, knows_spec: bool) -> int | None:
    worker = _number(marks.get("leaderworkerset.sigs.k8s.io/worker-index"))
    if worker is not None:
        return worker
    if _is_of_mpi(marks):
        return _mpi(marks, gang)
    kubeflow = _number(marks.get("training.kubeflow.org/replica-index"))
    if kubeflow is not None:
        return _kubeflow(marks, kubeflow, gang, knows_spec=knows_spec)
    task = _number(marks.get("volcano.sh/task-index"))
    if task is not None:
        if _is_master(marks):
            return 0
        return task + 1 if marks.get("volcano.sh/job-name") in gang.masters else None
    index = _number(marks.get(COMPLETION))
    job_set = _job_set(marks)
    if job_set is not None and index is not None:
        job_index = _number(marks.get("jobset.sigs.k8s.io/job-index")) or 0
        return job_index * gang.parallelism.get(job_set, 1) + index
    return index


def _mpi(marks: Mapping[str, str], gang: Gang) -> int | None:
    """Hostfile order: the launcher where it works itself, then the workers. v1 says `replica-type`, v2beta1
    `job-role`."""
    shift = marks.get("training.kubeflow.org/job-name") in gang.launchers
    if _is_launcher(marks):
        return 0 if shift else None
    role = marks.get("training.kubeflow.org/replica-type") or marks.get(
        "training.kubeflow.org/job-role", ""
    )
    index = _number(marks.get("training.kubeflow.org/replica-index"))
    return index + shift if index is not None and role.lower() == "worker" else None


def _kubeflow(marks: Mapping[str, str], index: int, gang: Gang, *, knows_spec: bool) -> int | None:
    """A worker counts from 1 beside a master. Without a master and without RANK in the spec it is
    an elastic job, whose ranks torchrun gives out."""
    if _is_master(marks):
        return 0
    if marks.get("training.kubeflow.org/job-name") in gang.masters or not knows_spec:
        return index + 1
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= 7 else None


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found[1] if found else None


def _command(container: object) -> str:
    words = [*js.items(js.at(container, "command")), *js.items(js.at(container, "args"))]
    return " ".join(word for word in words if isinstance(word, str))[:ARGUMENT_CHARS]


def _environment(pod: object, container: object) -> dict[str, str]:
    """Literal values, and those that point at the pod's own labels and annotations."""
    env: dict[str, str] = {}
    marks = {"annotations": annotations_of(pod), "labels": labels_of(pod)}
    index = _both(pod).get(COMPLETION)
    if index is not None:
        env["JOB_COMPLETION_INDEX"] = index  # the Job controller adds it to every container
    for entry in js.items(js.at(container, "env")):
        name, value = js.text_at(entry, "name"), js.at(entry, "value")
        field = _FIELD.fullmatch(js.text_at(entry, "valueFrom", "fieldRef", "fieldPath") or "")
        if name is not None and isinstance(value, str):
            env[name] = value
        elif name is not None and field:
            found = marks[field[1]].get(field[2])
            if found is not None:
                env[name] = found
    return env


def _resolved(text: str | None, env: Mapping[str, str]) -> str | None:
    """A value, or the variable that it names."""
    found = _VARIABLE.fullmatch(text) if text else None
    return env.get(found[1]) if found else text


def _static_rank(env: Mapping[str, str], command: str) -> int | None:
    for text in (
        env.get("PET_NODE_RANK"),
        _first(_NODE_RANK, command),
        env.get("NODE_RANK"),
        env.get("GROUP_RANK"),
        env.get("RANK"),
    ):
        rank = _number(_resolved(text, env))
        if rank is not None:
            return rank
    return None


def _processes(env: Mapping[str, str], command: str, gpus: int | None) -> int | None:
    """Processes per pod; `gpu` and `auto` mean one per GPU."""
    for text in (
        _first(_NPROC, command),
        env.get("PET_NPROC_PER_NODE"),
        env.get("NPROC_PER_NODE"),
    ):
        stated = _resolved(text, env)
        if stated in ("gpu", "auto"):
            return gpus
        number = _number(stated)
        if number:
            return number
    return None
