"""nodes.json and the events of a cluster, as kubectl prints them.

A node that stops posting its status is Unknown 40 seconds later, its pods are marked after five
minutes more. A GPU that the driver lost is missing in what the node offers; managed clusters also
say it in a condition. Events live for an hour.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from gpufleet_cli.operate.simulate import cluster_pods, gathered, kernel_host
from gpufleet_cli.operate.simulate.cluster_pods import GRACE_S, Json, stamp
from gpufleet_cli.operate.simulate.gathered import XIDS
from gpufleet_cli.operate.simulate.identities import CONTAINER, NAMESPACE
from gpufleet_cli.operate.simulate.story import Class, Clue, Fault, Story
from gpufleet_cli.verdict import Kind

NODES = "nodes.json"
LIFE_S = 3600.0
UNKNOWN = "NodeStatusUnknown"
NOT_POSTING = "Kubelet stopped posting node status."
# Codes on which the EKS monitoring agent gives up a node.
FATAL = frozenset({48, 79, 95, 119})
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


# --- Nodes ------------------------------------------------------------------------------------------


def nodes(story: Story, rng: Random) -> tuple[bytes, list[Clue]]:
    """All nodes of the job, and what they say of its faults."""
    dead: dict[int, float] = {}
    sick: dict[int, Fault] = {}
    for fault in story.faults:
        for index in gathered.nodes_of(story, fault):
            if fault.cls is Class.NODE_DEATH and fault.at_s + GRACE_S <= story.captured_s:
                dead[index] = fault.at_s + GRACE_S
            elif fault.cls in XIDS and fault.at_s + 10 <= story.captured_s and rng.random() < 0.5:
                sick[index] = fault
    is_watched = rng.random() < 0.3
    found = [
        _node(story, index, dead.get(index), sick.get(index), is_watched=is_watched)
        for index in range(len(story.layout.nodes))
    ]
    clues = [_clue(story, index, NODES, f'"reason": "{UNKNOWN}"', Kind.HARDWARE) for index in dead]
    for index, fault in sick.items():
        gpus = len(story.layout.ranks_of(index))
        clues.append(_clue(story, index, NODES, f'"nvidia.com/gpu": "{gpus - 1}"', Kind.HARDWARE))
        if is_watched and XIDS[fault.cls] in FATAL:
            clues.append(_clue(story, index, NODES, _reason(fault), Kind.HARDWARE))
    document = {"apiVersion": "v1", "kind": "List", "items": found}
    return json.dumps(document, indent=1).encode(), clues


def _clue(story: Story, index: int, path: str, text: str, *kinds: Kind) -> Clue:
    ranks = gathered.ranks_on(story, (index,))
    return Clue(ranks=ranks, path=path, text=text, kinds=kinds, nodes=(index,))


def _reason(fault: Fault) -> str:
    return f"NvidiaXID{XIDS[fault.cls]}Error"


def _node(
    story: Story, index: int, dead_s: float | None, sick: Fault | None, *, is_watched: bool
) -> Json:
    name, gpus = story.layout.nodes[index], len(story.layout.ranks_of(index))
    offered = gpus if sick is None else gpus - 1
    taints = [] if dead_s is None else _taints(story, dead_s)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": gathered.uuid(story, f"node/{index}"),
            "creationTimestamp": stamp(story, -86_400 * 40.0),
            "labels": {
                "kubernetes.io/hostname": name,
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                "nvidia.com/gpu.count": str(gpus),
            },
        },
        "spec": {"taints": taints} if taints else {},
        "status": {
            "capacity": {"cpu": "192", "nvidia.com/gpu": str(gpus)},
            "allocatable": {"cpu": "191", "nvidia.com/gpu": str(offered)},
            "conditions": _conditions(story, dead_s, sick, is_watched=is_watched),
            "addresses": [
                {"type": "InternalIP", "address": f"10.0.{index // 200}.{index % 200 + 5}"}
            ],
            "nodeInfo": {
                "bootID": gathered.uuid(story, f"boot/{index}"),
                "kernelVersion": "5.15.0-113-generic",
                "kubeletVersion": "v1.31.4",
            },
        },
    }


def _taints(story: Story, at_s: float) -> list[dict[str, str]]:
    key = "node.kubernetes.io/unreachable"
    at = stamp(story, at_s)
    return [
        {"key": key, "effect": effect, "timeAdded": at} for effect in ("NoSchedule", "NoExecute")
    ]


def _conditions(
    story: Story, dead_s: float | None, sick: Fault | None, *, is_watched: bool
) -> list[Json]:
    long_ago = stamp(story, -86_400 * 9.0)
    if dead_s is not None:
        at = stamp(story, dead_s)
        why: Json = {"lastTransitionTime": at, "reason": UNKNOWN, "message": NOT_POSTING}
        return [{"type": kind, "status": "Unknown", **why} for kind in (*PRESSURES, "Ready")]
    found: list[Json] = [
        {"type": kind, "status": "False", "lastTransitionTime": long_ago} for kind in PRESSURES
    ]
    found.append(
        {
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": long_ago,
            "reason": "KubeletReady",
        }
    )
    if is_watched:
        condition: Json = {"type": "AcceleratedHardwareReady", "status": "True"}
        if sick is not None and XIDS[sick.cls] in FATAL:
            at = stamp(story, sick.at_s + 5)
            condition |= {"status": "False", "lastTransitionTime": at, "reason": _reason(sick)}
        found.append(condition)
    return found


# --- Events -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """One event; `count` times from `at_s` to `last_s`. `clue`: (node, kind) where it names a cause."""

    at_s: float
    kind: str
    name: str
    reason: str
    message: str
    is_warning: bool = False
    last_s: float | None = None
    count: int = 1
    clue: tuple[int, Kind] | None = None

    @property
    def seen_s(self) -> float:
        return self.at_s if self.last_s is None else self.last_s


def events(story: Story, rng: Random) -> tuple[str, bytes, list[Clue]]:
    """(path, file, clues): a table for people, or objects."""
    found = [*_set_up(story), *_of_faults(story, rng)]
    oldest = story.captured_s - LIFE_S
    kept = [e for e in found if oldest <= e.seen_s and e.at_s <= story.captured_s]
    kept.sort(key=lambda event: event.seen_s)
    if rng.random() < 0.5:
        path, data = "events.txt", _table(story, kept)
    else:
        path, data = "events.json", _objects(story, kept)
    clues = [
        _clue(story, e.clue[0], path, json.dumps(e.message)[1:-1], e.clue[1])
        if path.endswith(".json")
        else _clue(story, e.clue[0], path, e.message, e.clue[1])
        for e in kept
        if e.clue
    ]
    return path, data, clues


def _absent(story: Story) -> set[int]:
    """Nodes whose pod never came up, where that can be seen."""
    if cluster_pods.absence(story) == "unseen":
        return set()
    faults = [fault for fault in story.faults if fault.cls is Class.RENDEZVOUS]
    return {index for fault in faults for index in gathered.nodes_of(story, fault)}


def unplaced(story: Story) -> set[int]:
    """Nodes that a pod would have had, if the scheduler had found it one."""
    return _absent(story) if cluster_pods.absence(story) == "unschedulable" else set()


def _set_up(story: Story) -> Iterator[_Event]:
    began = cluster_pods.created_s(story)
    absent = _absent(story)
    nowhere = unplaced(story)
    for index, pod in enumerate(story.layout.pods):
        if index not in nowhere:
            message = f"Successfully assigned {NAMESPACE}/{pod} to {story.layout.nodes[index]}"
            yield _Event(at_s=began + 1, kind="Pod", name=pod, reason="Scheduled", message=message)
        if index not in absent:
            message = f"Started container {CONTAINER}"
            yield _Event(at_s=began + 36, kind="Pod", name=pod, reason="Started", message=message)


def _of_faults(story: Story, rng: Random) -> Iterator[_Event]:
    for fault in story.faults:
        for index in gathered.nodes_of(story, fault):
            match fault.cls:
                case Class.RENDEZVOUS if index in _absent(story):
                    yield _never_up(story, index)
                case Class.NODE_DEATH:
                    yield from _not_ready(story, fault, index)
                case Class.OOM_KILL if rng.random() < 0.6:
                    yield _killed(story, fault, index)
                case _:
                    continue


def _never_up(story: Story, index: int) -> _Event:
    is_unscheduled = cluster_pods.absence(story) == "unschedulable"
    return _Event(
        at_s=cluster_pods.created_s(story) + 1,
        last_s=story.captured_s - 20,
        count=9,
        kind="Pod",
        name=story.layout.pods[index],
        reason="FailedScheduling" if is_unscheduled else "BackOff",
        message=cluster_pods.unschedulable(story)
        if is_unscheduled
        else f'Back-off pulling image "{cluster_pods.IMAGE}"',
        is_warning=is_unscheduled,
        clue=(index, Kind.RENDEZVOUS_FAILURE),
    )


def _not_ready(story: Story, fault: Fault, index: int) -> Iterator[_Event]:
    node, pod = story.layout.nodes[index], story.layout.pods[index]
    at, clue = fault.at_s + GRACE_S, (index, Kind.HARDWARE)
    message = f"Node {node} status is now: NodeNotReady"
    yield _Event(at_s=at, kind="Node", name=node, reason="NodeNotReady", message=message, clue=clue)
    yield _Event(
        at_s=at,
        kind="Pod",
        name=pod,
        reason="NodeNotReady",
        message="Node is not ready",
        is_warning=True,
    )
    message = f"Marking for deletion Pod {NAMESPACE}/{pod}"
    yield _Event(
        at_s=at + cluster_pods.EVICTED_AFTER_S,
        kind="Pod",
        name=pod,
        reason="TaintManagerEviction",
        message=message,
        clue=clue,
    )


def _killed(story: Story, fault: Fault, index: int) -> _Event:
    """node-problem-detector repeats the kernel's line."""
    pid = gathered.host_pid(story, fault.ranks[0])
    texts = kernel_host.oom(story, index, pid, name=kernel_host.victim(story))
    return _Event(
        at_s=fault.at_s + 1,
        kind="Node",
        name=story.layout.nodes[index],
        reason="OOMKilling",
        message=texts[-1],
        is_warning=True,
        clue=(index, Kind.HOST_OOM),
    )


def _table(story: Story, found: list[_Event]) -> bytes:
    rows = [("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")]
    for event in found:
        seen = _age(story.captured_s - event.seen_s)
        if event.count > 1:
            seen = f"{seen} (x{event.count} over {_age(story.captured_s - event.at_s)})"
        kind = "Warning" if event.is_warning else "Normal"
        rows.append((seen, kind, event.reason, f"{event.kind.lower()}/{event.name}", event.message))
    widths = [max(len(row[i]) for row in rows) + 3 for i in range(4)]
    lines = (
        "".join(text.ljust(width) for text, width in zip(row, widths, strict=False)) + row[4]
        for row in rows
    )
    return ("\n".join(lines) + "\n").encode()


def _age(seconds: float) -> str:
    """As kubectl cuts an age."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    return f"{hours}h{rest}m" if hours < 8 and rest else f"{hours}h"


def _objects(story: Story, found: list[_Event]) -> bytes:
    objects: list[Json] = []
    for i, event in enumerate(found):
        namespace = NAMESPACE if event.kind == "Pod" else "default"
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{event.name}.{i:x}", "namespace": namespace},
                "involvedObject": {
                    "kind": event.kind,
                    "name": event.name,
                    "namespace": NAMESPACE if event.kind == "Pod" else "",
                },
                "type": "Warning" if event.is_warning else "Normal",
                "reason": event.reason,
                "message": event.message,
                "firstTimestamp": stamp(story, event.at_s),
                "lastTimestamp": stamp(story, event.seen_s),
                "count": event.count,
            }
        )
    document = {"apiVersion": "v1", "kind": "List", "items": objects}
    return json.dumps(document, indent=1).encode()
