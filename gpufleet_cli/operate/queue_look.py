"""The replacement queue: the nodes of the cluster that carry our annotations, and what holds them now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpufleet_cli.cordon_card import Queue, QueueEntry
from gpufleet_cli.errors import SourceError
from gpufleet_cli.facts import NodeState, Origin
from gpufleet_cli.live import node_gangs, node_view, threads
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.node_look import NODES, pods_with_gpus
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.node_card import HeldGang, Missing
from gpufleet_cli.operate import cordon_facts
from gpufleet_cli.operate.cordon_facts import KEYS
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers import kubernetes_nodes

MOST_ASKED_ONE_BY_ONE = 64
_MARKS = tuple(f'"{key}"'.encode() for key in KEYS)
_NOT_OVER = "status.phase!=Succeeded,status.phase!=Failed"


def look(api: Api) -> Queue:
    """The queue, most urgent first. SourceError where the nodes could not be read."""
    listed = api.list(NODES, kind="nodes")
    if not listed.ok and not listed.items:
        forbidden = listed.answer.status == 403
        why = "not allowed (list on nodes)" if forbidden else listed.answer.message
        raise SourceError(
            f"the nodes of {api.access.context or api.access.server} could not be read: {why}",
            hint="needs list on nodes (gpufleet-reader)",
        )
    missing = [Missing(what="some nodes", why=listed.note)] if listed.note else []
    # Of ten thousand nodes the few with a mark are decoded, and no other.
    waiting = [
        js.mapping(msgspec.json.decode(raw))
        for raw in listed.items
        if any(mark in bytes(raw) for mark in _MARKS)
    ]
    names = [name for one in waiting if (name := js.text_at(one, "metadata", "name"))]
    held = _gangs(api, names, missing)
    entries = [entry(one, held) for one in waiting if cordon_facts.marks_of(one) is not None]
    return Queue(
        context=api.access.context,
        server=api.access.server,
        read_at_ns=api.now_ns(),
        entries=tuple(sorted(entries, key=urgency)),
        missing=tuple(missing),
    )


def entry(node: Object, held: Mapping[str, tuple[HeldGang, ...]]) -> QueueEntry:
    """What is shown of one node."""
    facts = cordon_facts.read(node)
    marks = facts.marks or cordon_facts.Marks(by="", at="", reason="")
    found = kubernetes_nodes.read(node, Origin(path="nodes"))
    state = next((one for one in found if isinstance(one, NodeState)), None)
    owner = facts.owner
    return QueueEntry(
        node=facts.node,
        by=marks.by,
        at_ns=marks.at_ns,
        reason=marks.reason,
        incident=marks.incident,
        is_cordoned=facts.is_cordoned,
        other_owner=None if owner is None or owner.kind == "ours" else owner.shown,
        ready=None if state is None else state.ready,
        gpus=node_view.gpus(node, state, 0).capacity,
        gangs=held.get(facts.node),
    )


def urgency(one: QueueEntry) -> tuple[bool, int, int, str]:
    """What waits at the highest price, then the longest; nodes in service again come last."""
    idle = one.idle_gpus
    return not one.is_cordoned, -(one.gpus or 0 if idle is None else idle), one.at_ns or 0, one.node


def _gangs(
    api: Api, names: Sequence[str], missing: list[Missing]
) -> dict[str, tuple[HeldGang, ...]]:
    """The gangs of each node; a node whose pods could not be read is not among them."""
    if not names:
        return {}
    pods = _pods(api, names, missing)
    return {
        name: node_gangs.gangs(own, node_gangs.Mates((), {}, ()))[0] for name, own in pods.items()
    }


def _pods(api: Api, names: Sequence[str], missing: list[Missing]) -> dict[str, list[Pod]]:
    """Pods with GPUs by node: asked for node by node, or all at once where there are many nodes."""
    if len(names) > MOST_ASKED_ONE_BY_ONE:
        queries: list[tuple[str | None, str]] = [(None, _NOT_OVER)]
    else:
        queries = [(name, f"spec.nodeName={name},{_NOT_OVER}") for name in names]
    asked = threads.each(
        lambda one: api.list("/api/v1/pods", {"fieldSelector": one[1]}, kind="pods"),
        queries,
        threads=min(api.threads, 16),
        deadline=api.deadline,
    )
    found: dict[str, list[Pod]] = {}
    refused: set[str] = set()
    for (name, _), listed in asked:
        if not listed.ok:
            refused.add(
                "not allowed (list on pods)"
                if listed.answer.status == 403
                else listed.answer.message
            )
            continue
        for own in (name,) if name is not None else names:
            found.setdefault(own, [])
        for pod in pods_with_gpus(listed.items):
            if pod.state.node in found:
                found[pod.state.node].append(pod)
    if refused:
        missing.append(Missing(what="pods on the nodes", why=min(refused)))
    elif len(found) < len(set(names)):
        missing.append(Missing(what="pods on some nodes", why="not there by the deadline"))
    return found
