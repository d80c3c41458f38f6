"""What the question for spares asks of the API server: nodes with the same GPUs, pods that hold GPUs, quota.

Three or four lists by pages, side by side, whatever the gang's size; of the pods only those that name a
GPU are taken apart. What could not be read is said, and turns a yes into "not known".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from gpufleet_cli import spare_facts, spares
from gpufleet_cli.live import threads
from gpufleet_cli.live.api import Api, Listed
from gpufleet_cli.live.drain_look import DrainLook
from gpufleet_cli.live.held_gangs import Gang
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.node_look import GPU_MARKS, NODES
from gpufleet_cli.node_card import GangSpares, Spares
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.spare_facts import Room, Wants

_PODS = {
    "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
    "labelSelector": "!pod-template-generation",
}
_WORKLOADS = ("v1beta2", "v1beta1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All that has room, read once for as many gangs as there are. `unread` names what was not had."""

    nodes: tuple[Object, ...]
    pods: tuple[Object, ...]
    unread: tuple[str, ...]


class Fleets:
    """The fleet of each kind of GPU, read once and when it is first asked for."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._known: dict[str | None, Fleet] = {}

    def of(self, product: str | None) -> Fleet:
        if product not in self._known:
            self._known[product] = fleet(self.api, product)
        return self._known[product]


def of_node(fleets: Fleets, seen: DrainLook, name: str) -> tuple[GangSpares, ...]:
    """For each gang that a node holds: whether it places once the node is out."""
    node = next((one.node for one in seen.nodes if one.name == name), None)
    product = product_of(node)
    return tuple(
        GangSpares(
            namespace=gang.job.namespace,
            kind=gang.job.kind,
            name=gang.shown,
            spares=question(
                fleets.api, gang, seen.objects, fleets.of(product), product=product
            ).without(name),
        )
        for gang in seen.gangs_on(name)
        if gang.is_gang and name in gang.nodes
    )


def product_of(node: Object | None) -> str | None:
    """The GPUs of a node as the GPU operator labels them."""
    return js.text_at(node, "metadata", "labels", spares.PRODUCT)


def fleet(api: Api, product: str | None) -> Fleet:
    """Nodes with these GPUs (all nodes where their product is not known), and the pods that hold any."""
    query = {} if product is None else {"labelSelector": f"{spares.PRODUCT}={product}"}
    tasks: list[tuple[str, Callable[[], Listed]]] = [
        ("nodes", lambda: api.list(NODES, query, kind="nodes")),
        ("pods", lambda: api.list("/api/v1/pods", _PODS, kind="pods")),
    ]
    done = dict(_side_by_side(api, tasks))
    pods = done["pods"].items if "pods" in done else ()
    had = {name for name, listed in done.items() if _is_whole(listed)}
    if "nodes" in done and not done["nodes"].items:
        had.discard("nodes")  # a cluster without nodes is one whose nodes were not told
    return Fleet(
        nodes=_objects(done["nodes"].items if "nodes" in done else ()),
        pods=_objects(raw for raw in pods if any(mark in bytes(raw) for mark in GPU_MARKS)),
        unread=tuple(name for name, _ in tasks if name not in had),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A gang before a fleet, all read: what is left is which node is taken out."""

    wants: Wants
    rooms: tuple[Room, ...]
    quota: str | None
    unread: tuple[str, ...]

    def without(self, node: str) -> Spares:
        """Whether the gang places without this node."""
        return spares.judge(
            self.wants, self.rooms, out=frozenset({node}), quota=self.quota, unread=self.unread
        )

    def without_each(self, nodes: Iterable[str]) -> Iterator[tuple[str, Spares]]:
        """The same for one node after the other. Nodes of the gang that differ in nothing but their name have one
        answer, and a fleet has few kinds of node; a name that a pod asks for is a difference."""
        rooms = {room.name: room for room in self.rooms}
        asked_for = str(self.wants)
        known: dict[str, Spares] = {}
        for node in nodes:
            room = rooms.get(node)
            alike = node if room is None or node in asked_for else _but_its_name(room)
            if alike not in known:
                known[alike] = self.without(node)
            yield node, known[alike]


def _but_its_name(room: Room) -> str:
    labels = sorted((key, value) for key, value in room.labels.items() if value != room.name)
    return str(replace(room, name="", labels=dict(labels)))


def question(
    api: Api, gang: Gang, objects: Sequence[Object], fleet: Fleet, *, product: str | None
) -> Question:
    """What this gang asks for, and what there is; its quota is read here."""
    above = [one for one in objects if _is_above(one, gang)]
    wants = spare_facts.wants_of(
        [pod.raw for pod in gang.newest], above, size=gang.size, product=product
    )
    own = frozenset(pod.state.uid for pod in gang.pods if pod.state.uid is not None)
    was_on = {
        pod.state.node for pod in gang.newest
    }  # of a gang that has ended: its own nodes, no spares
    rooms = [
        replace(room, holds_gang=room.holds_gang or room.name in was_on)
        for room in spare_facts.rooms(fleet.nodes, fleet.pods, own)
    ]
    workloads, quotas, unread = _quota(api, gang)
    held = spare_facts.held_by([pod.raw for pod in gang.living])
    return Question(
        wants=wants,
        rooms=tuple(rooms),
        quota=spares.quota_of(workloads, quotas, wants, held),
        unread=(*fleet.unread, *unread),
    )


def _is_above(one: Object, gang: Gang) -> bool:
    """An object of the gang's own name: its annotations count, those of another job's do not."""
    namespace = js.text_at(one, "metadata", "namespace")
    return namespace == gang.job.namespace and js.text_at(one, "metadata", "name") == gang.job.name


def _quota(api: Api, gang: Gang) -> tuple[tuple[Object, ...], tuple[Object, ...], tuple[str, ...]]:
    """Kueue's Workloads of the gang, the namespace's quotas, and what of both could not be read.

    Without Kueue in the cluster (404) there is no Workload; a job that carries no mark of it has none.
    """
    space = f"/namespaces/{gang.job.namespace}"
    tasks: list[tuple[str, Callable[[], Listed]]] = [
        ("quotas", lambda: api.list(f"/api/v1{space}/resourcequotas", kind="quotas"))
    ]
    if gang.uid is not None and any(
        "kueue.x-k8s.io" in key for pod in gang.pods for key in pod.marks
    ):
        tasks.append(("workloads", lambda: _workloads(api, space, gang.uid or "")))
    done = dict(_side_by_side(api, tasks))
    unread = tuple(name for name, _ in tasks if not _is_whole(done.get(name)))
    found = {name: _objects(listed.items) for name, listed in done.items()}
    return found.get("workloads", ()), found.get("quotas", ()), unread


def _workloads(api: Api, space: str, uid: str) -> Listed:
    for version in _WORKLOADS:
        listed = api.list(
            f"/apis/kueue.x-k8s.io/{version}{space}/workloads",
            {"labelSelector": f"kueue.x-k8s.io/job-uid={uid}"},
            kind="workloads",
        )
        if listed.answer.status != 404:
            break
    return listed


def _side_by_side(
    api: Api, tasks: Sequence[tuple[str, Callable[[], Listed]]]
) -> Iterable[tuple[str, Listed]]:
    asked = threads.each(lambda task: task[1](), tasks, threads=len(tasks), deadline=api.deadline)
    return ((task[0], listed) for task, listed in asked)


def _is_whole(listed: Listed | None) -> bool:
    return listed is not None and listed.note is None and (listed.ok or listed.answer.status == 404)


def _objects(raws: Iterable[msgspec.Raw]) -> tuple[Object, ...]:
    found = []
    for raw in raws:
        try:
            found.append(js.mapping(msgspec.json.decode(raw)))
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
    return tuple(found)
