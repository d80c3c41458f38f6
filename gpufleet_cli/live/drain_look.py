"""What `drain-check` asks of the API server: the pods of each node, and all pods of the jobs they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from gpufleet_cli.errors import TargetError
from gpufleet_cli.live import find_job, held_gangs, kinds, node_gangs, node_look, threads
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.held_gangs import Gang
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.node_gangs import JobRef
from gpufleet_cli.live.pods import Pod, pods_of
from gpufleet_cli.node_card import Missing
from gpufleet_cli.parsers import json_documents as js

_IN_FLIGHT = 8
_TRAINING = frozenset(kind.kind for kind in kinds.KINDS) | {"PodGroup", node_gangs.PLAIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePods:
    """One node. `node` None: it could not be read. `missing`: what could hide a gang on it."""

    name: str
    node: Object | None
    pods: tuple[Pod, ...]
    missing: tuple[Missing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainLook:
    """The nodes that were asked for, the gangs of their pods, and the objects above those, by uid."""

    nodes: tuple[NodePods, ...]
    gangs: tuple[Gang, ...]
    objects: tuple[Object, ...]

    def gangs_on(self, node: str) -> list[Gang]:
        return [one for one in self.gangs if any(pod.state.node == node for pod in one.pods)]


def look(api: Api, names: Sequence[str]) -> DrainLook:
    """Each node with its gangs. What is not to be had of one is said there, and costs no other."""
    asked = threads.each(
        lambda name: _node(api, name), names, threads=_IN_FLIGHT, deadline=api.deadline
    )
    found = dict(asked)
    late = (Missing(what="the node", why="not there by the deadline"),)
    nodes = tuple(
        found.get(name) or NodePods(name=name, node=None, pods=(), missing=late) for name in names
    )
    here = {_key(pod): pod for one in nodes for pod in one.pods}
    found_jobs = _jobs(api, list(here.values()))
    every = {_key(pod): pod for pod in (*here.values(), *found_jobs.mates)}
    gangs = held_gangs.found_in(every.values(), found_jobs.owners, found_jobs.whose)
    return DrainLook(
        nodes=tuple(_with_unread(one, found_jobs) for one in nodes),
        gangs=tuple(gangs),
        objects=tuple(found_jobs.owners.values()),
    )


def _key(pod: Pod) -> str:
    return pod.state.uid or f"{pod.namespace}/{pod.name}"


def _node(api: Api, name: str) -> NodePods:
    missing: list[Missing] = []
    try:
        node = node_look.read_node(api, name, missing)
    except TargetError as exc:
        why = f"{exc.message}{f' ({exc.hint})' if exc.hint else ''}"
        gone = Missing(what="the node", why=why)
        return NodePods(name=name, node=None, pods=(), missing=(gone,))
    if not missing and js.text_at(node, "metadata", "name") != name:
        missing.append(Missing(what="the node", why="the answer is no node of this name"))
    pods = node_look.pods_on(api, name, missing)
    return NodePods(name=name, node=node, pods=tuple(pods or ()), missing=tuple(missing))


# --- The jobs -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    """All pods of the jobs that have one here, whose each is (by uid), the objects above them (by uid),
    and of which jobs not all pods were read."""

    mates: tuple[Pod, ...]
    whose: dict[str, JobRef]
    owners: dict[str, Object]
    unread: dict[JobRef, str]


def _jobs(api: Api, pods: Sequence[Pod]) -> _Jobs:
    objects = list(find_job.owners(api, pods, known=set()))
    owners = {uid: one for one in objects if (uid := js.text_at(one, "metadata", "uid"))}
    tasks = [task for job in _to_read(pods, owners) for task in _tasks(job, objects)]
    asked = threads.each(
        lambda task: api.list(f"/api/v1/namespaces/{task[0].namespace}/pods", task[1], kind="pods"),
        tasks,
        threads=_IN_FLIGHT,
        deadline=api.deadline,
    )
    unread = {task[0]: "not there by the deadline" for task in tasks}
    mates: list[Pod] = []
    whose: dict[str, JobRef] = {}
    for (job, query), listed in asked:
        unread.pop(job, None)
        if not listed.ok or listed.note:
            unread[job] = listed.note or listed.answer.message
        for pod in pods_of([_object(raw) for raw in listed.items]):
            if query or node_gangs.whose(pod, owners) == job:
                mates.append(pod)
                whose.setdefault(pod.state.uid or "", job)
    return _Jobs(mates=tuple(mates), whose=whose, owners=owners, unread=unread)


def _to_read(pods: Iterable[Pod], owners: dict[str, Object]) -> list[JobRef]:
    """The jobs whose other pods matter: those that may be a gang with GPUs. A launcher or a head has none."""
    found = set()
    for pod in pods:
        job = node_gangs.whose(pod, owners)
        if job.kind in held_gangs.SERVICES and not held_gangs.says_it_meets_others(pod):
            continue
        if pod.state.gpus or job.kind in _TRAINING:
            found.add(job)
    return sorted(found)


def _tasks(job: JobRef, objects: Iterable[Object]) -> list[tuple[JobRef, dict[str, str]]]:
    """Queries for all pods of a job; of a controller that no table knows the whole namespace is read."""
    selectors = node_gangs.selectors_of(job, objects)
    return [(job, {"labelSelector": one}) for one in selectors] or [(job, {})]


def _with_unread(one: NodePods, jobs: _Jobs) -> NodePods:
    """A node with a job of which not all pods were read: it might be a gang."""
    here = {node_gangs.whose(pod, jobs.owners) for pod in one.pods} & jobs.unread.keys()
    more = tuple(
        Missing(what=f"the other pods of {job.namespace}/{job.name}", why=jobs.unread[job])
        for job in sorted(here)
    )
    return replace(one, missing=(*one.missing, *more))


def _object(raw: msgspec.Raw) -> Object:
    try:
        return js.mapping(msgspec.json.decode(raw))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
