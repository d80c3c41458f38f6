"""What is asked of the API server for one node, and for all of them. Judges nothing; `node_view` does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gpufleet_cli.errors import SourceError, TargetError
from gpufleet_cli.live import find_job, node_gangs, node_view, threads
from gpufleet_cli.live.answers import Answer
from gpufleet_cli.live.api import Api, Listed
from gpufleet_cli.live.gather import LEASES
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.node_view import Seen
from gpufleet_cli.live.pods import Pod, pods_of
from gpufleet_cli.node_card import Missing, NodeCard, XidSeen
from gpufleet_cli.parsers import json_documents as js

NODES = "/api/v1/nodes"
MOST_NAMESPACES = 200
GPU_MARKS = (b"nvidia.com/", b"amd.com/gpu", b"gpu.intel.com/", b"habana.ai/")
_NOT_OVER = "status.phase!=Succeeded,status.phase!=Failed"

XidHistory = Callable[[str, Sequence[str], int], tuple[Sequence[XidSeen] | None, Sequence[Missing]]]
"""(node, its addresses, now) -> its XIDs of 30 days: what a metrics source gives, where there is one."""

NO_METRICS = Missing(
    what="XID history", why="no --prometheus is given, and no known one is among the Services"
)


def look_at(api: Api, name: str, history: XidHistory | None = None) -> NodeCard:
    """One node. TargetError where there is none, SourceError where nothing could be read."""
    return card_of(api, see(api, name, history))


def see(api: Api, name: str, history: XidHistory | None = None) -> Seen:
    """All that `look_at` reads of one node, as it came."""
    missing: list[Missing] = []
    node = read_node(api, name, missing)
    lease = _lease(api, name, missing)
    pods = pods_on(api, name, missing)
    if node is None and lease is None and not pods:
        raise SourceError(
            f"nothing of node {name} could be read: {missing[0].why}",
            hint="needs get on nodes, pods and leases (gpufleet-reader)",
        )
    mates, owners = _jobs(api, pods or [])
    xids, told = (
        (None, [NO_METRICS]) if history is None else history(name, addresses_of(node), api.now_ns())
    )
    return Seen(
        name=name,
        node=node,
        lease=lease,
        pods=pods,
        mates=mates,
        owners=owners,
        events=_events(api, name, missing),
        missing=[*missing, *told],
        xids=xids,
    )


def card_of(api: Api, seen: Seen) -> NodeCard:
    """The card of what was read."""
    access = api.access
    return node_view.card(seen, now_ns=api.now_ns(), context=access.context, server=access.server)


def read_node(api: Api, name: str, missing: list[Missing]) -> Object | None:
    """The node's object. TargetError where there is none of this name."""
    answer = api.get(f"{NODES}/{name}", kind="nodes", tries=3)
    if answer.ok:
        return _object(answer.body)
    if answer.status == 404:
        raise TargetError(f"no node {name} in {_where(api)}", hint=_near(api, name))
    missing.append(Missing(what="the node", why=_why(answer, "get on nodes")))
    return None


def _where(api: Api) -> str:
    return api.access.context or api.access.server


def _near(api: Api, name: str) -> str:
    """Names that look like the one that is not there."""
    import difflib

    names = [n for o in api.list(NODES, kind="nodes").items if (n := name_of(o))]
    near = [one for one in names if one.startswith(name)][:3]
    near = near or difflib.get_close_matches(name, names, 3, 0.8)
    return f"did you mean {', '.join(near)}?" if near else "gpufleet nodes lists them"


def count_of_nodes(api: Api) -> int | None:
    """How many nodes the cluster has: one is asked for, and the server tells how many remain."""
    answer = api.get(NODES, {"limit": 1}, kind="nodes", tries=2)
    found = _object(answer.body) if answer.ok else {}
    items = js.items(js.at(found, "items"))
    if not items:
        return None
    remaining = js.integer(js.at(found, "metadata", "remainingItemCount"))
    more = js.text_at(found, "metadata", "continue")
    return None if more and remaining is None else len(items) + (remaining or 0)


def _lease(api: Api, name: str, missing: list[Missing]) -> Object | None:
    """The node's object. TargetError where there is none of this name."""
    answer = api.get(f"{LEASES}/{name}", kind="leases", tries=2)
    if answer.ok:
        return _object(answer.body)
    why = "it has none" if answer.status == 404 else _why(answer, "get on leases")
    missing.append(Missing(what="the node's lease", why=why))
    return None


def pods_on(api: Api, name: str, missing: list[Missing]) -> list[Pod] | None:
    """Pods bound to the node, of all namespaces, else of those that may be read."""
    query = {"fieldSelector": f"spec.nodeName={name}"}
    listed = api.list("/api/v1/pods", query, kind="pods")
    if listed.ok:
        return pods_of([_object(raw) for raw in listed.items])
    if listed.answer.status != 403:
        missing.append(Missing(what="pods on the node", why=_why(listed.answer, "list on pods")))
        return None
    found, readable = by_namespace(api, query)
    if not readable:
        missing.append(Missing(what="pods on the node", why=_why(listed.answer, "list on pods")))
        return None
    why = f"not allowed in all namespaces; read in {', '.join(readable[:4])}"
    missing.append(Missing(what="pods of other namespaces", why=why))
    return pods_of(found)


def by_namespace(api: Api, query: dict[str, str]) -> tuple[list[Object], list[str]]:
    listed = api.list("/api/v1/namespaces", kind="namespaces")
    own = api.access.namespace
    names = [own, *(n for o in listed.items if (n := name_of(o)) and n != own)][:MOST_NAMESPACES]
    asked = threads.each(
        lambda space: api.list(f"/api/v1/namespaces/{space}/pods", query, kind="pods"),
        names,
        threads=min(api.threads, 16),
        deadline=api.deadline,
    )
    found: list[Object] = []
    readable: list[str] = []
    for space, one in asked:
        if one.ok:
            readable.append(space)
            found.extend(_object(raw) for raw in one.items)
    return found, sorted(readable)


def _jobs(api: Api, pods: Sequence[Pod]) -> tuple[list[Pod], list[Object]]:
    """All pods of the jobs that hold the node, and the objects above them."""
    with_gpus = [pod for pod in pods if pod.state.gpus]
    owners = list(find_job.owners(api, with_gpus, known=set()))
    by_uid = {uid: one for one in owners if (uid := js.text_at(one, "metadata", "uid"))}
    jobs = sorted({node_gangs.job_of(pod, by_uid) for pod in with_gpus})
    tasks = [(job.namespace, one) for job in jobs for one in node_gangs.selectors_of(job, owners)]
    asked = threads.each(
        lambda task: api.list(
            f"/api/v1/namespaces/{task[0]}/pods", {"labelSelector": task[1]}, kind="pods"
        ),
        tasks,
        threads=min(api.threads, 8),
        deadline=api.deadline,
    )
    found = {
        js.text_at(one, "metadata", "uid") or str(count): one
        for _, listed in asked
        for count, raw in enumerate(listed.items)
        if (one := _object(raw))
    }
    return pods_of(found.values()), owners


def _events(api: Api, name: str, missing: list[Missing]) -> list[Object]:
    query = {"fieldSelector": f"involvedObject.kind=Node,involvedObject.name={name}"}
    listed = api.list("/api/v1/namespaces/default/events", query, kind="events")
    if not listed.ok:
        missing.append(
            Missing(what="events of the node", why=_why(listed.answer, "list on events"))
        )
    return [_object(raw) for raw in listed.items]


def addresses_of(node: Object | None) -> list[str]:
    found = js.items(js.at(node, "status", "addresses"))
    return [text for one in found if (text := js.text_at(one, "address"))]


def _why(answer: Answer, right: str) -> str:
    return f"not allowed ({right})" if answer.status == 403 else answer.message


def _object(raw: bytes | msgspec.Raw) -> Object:
    try:
        return js.mapping(msgspec.json.decode(raw))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}


class _Meta(msgspec.Struct):
    name: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


def name_of(raw: bytes | msgspec.Raw) -> str:
    """The name alone: cheap where the object is not needed."""
    try:
        return msgspec.json.decode(raw, type=_Named).metadata.name
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""


# --- All nodes ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Every node of the cluster, worst first, and what could not be had. `addresses` are the nodes' by name."""

    cards: tuple[NodeCard, ...]
    addresses: Mapping[str, Sequence[str]]
    pods: tuple[Pod, ...]
    missing: tuple[Missing, ...]


def look_at_all(api: Api) -> Fleet:
    """All nodes with their gangs: three lists, side by side."""
    tasks: list[tuple[str, dict[str, str]]] = [
        (NODES, {}),
        (LEASES, {}),
        ("/api/v1/pods", {"fieldSelector": _NOT_OVER}),
    ]
    asked = threads.each(
        lambda task: api.list(task[0], task[1], kind=task[0].rpartition("/")[2]),
        tasks,
        threads=3,
        deadline=api.deadline,
    )
    lists: dict[str, Listed] = {task[0]: listed for task, listed in asked}
    missing: list[Missing] = []
    nodes = _all(lists, NODES, "nodes", missing)
    leases = {name_of(raw): raw for raw in _all(lists, LEASES, "leases", missing)}
    pods = _gpu_pods(api, lists, missing)
    if not nodes:
        why = missing[0].why if missing else "there is none"
        raise SourceError(
            f"no node of {_where(api)} could be read: {why}",
            hint="needs list on nodes (gpufleet-reader)",
        )
    held: dict[str, list[Pod]] = {}
    for pod in pods:
        held.setdefault(pod.state.node or "", []).append(pod)
    mates = node_gangs.Mates(pods, {}, ())
    cards = []
    addresses: dict[str, Sequence[str]] = {}
    for raw in nodes:
        node, lease = _object(raw), leases.get(name_of(raw))
        name = js.text_at(node, "metadata", "name") or "?"
        addresses[name] = addresses_of(node)
        seen = Seen(
            name=name,
            node=node,
            lease=None if lease is None else _object(lease),
            pods=held.get(name, []) if "/api/v1/pods" in lists else None,
            together=mates,
        )
        cards.append(card_of(api, seen))
    return Fleet(
        cards=tuple(sorted(cards, key=_worst)),
        addresses=addresses,
        pods=tuple(pods),
        missing=tuple(missing),
    )


def _worst(card: NodeCard) -> tuple[bool, bool, bool, bool, str]:
    """Ill nodes that hold a gang, ill ones, cordoned ones, the rest."""
    holds = any(not gang.is_over for gang in card.gangs)
    return not card.is_ill, not holds, card.cordon is None, not card.gpus.capacity, card.name


def _all(
    lists: dict[str, Listed], path: str, what: str, missing: list[Missing]
) -> tuple[msgspec.Raw, ...]:
    listed = lists.get(path)
    if listed is None:
        missing.append(Missing(what=what, why="not there by the deadline"))
        return ()
    if not listed.ok or listed.note:
        why = listed.note or _why(listed.answer, f"list on {what}")
        missing.append(Missing(what=what, why=why))
    return listed.items


def _gpu_pods(api: Api, lists: dict[str, Listed], missing: list[Missing]) -> list[Pod]:
    """Pods that ask for GPUs; the others are not taken apart."""
    listed = lists.get("/api/v1/pods")
    if listed is not None and listed.answer.status == 403:
        found, readable = by_namespace(api, {"fieldSelector": _NOT_OVER})
        shown = ", ".join(readable[:4]) or "none"
        why = f"not allowed in all namespaces; read in {shown}"
        missing.append(Missing(what="pods of other namespaces", why=why))
    else:
        return pods_with_gpus(_all(lists, "/api/v1/pods", "pods", missing))
    return [pod for pod in pods_of(found) if pod.state.gpus]


def pods_with_gpus(raws: Iterable[msgspec.Raw]) -> list[Pod]:
    """The pods among raw items that ask for GPUs; the others are not even decoded."""
    found = [_object(raw) for raw in raws if any(mark in bytes(raw) for mark in GPU_MARKS)]
    return [pod for pod in pods_of(found) if pod.state.gpus]
