"""`kubectl describe pod` and `describe node`: the states, the conditions and the events in them.

    Name:             pt-job-worker-1
    Namespace:        ml
    Node:             gpu-h03/10.0.0.3
    Containers:
      pytorch:
        State:          Terminated
          Reason:       OOMKilled
          Exit Code:    137
          Finished:     Mon, 03 Mar 2025 22:14:12 +0000
    Events:
      Type     Reason   Age                From     Message
      Warning  BackOff  80s (x3 over 14m)  kubelet  Back-off pulling image

Only the indentation orders this text, so that a pasted part of it gives what it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Literal, NamedTuple

from gpufleet_cli import timestamps
from gpufleet_cli.facts import ContainerState, Fact, IdentityLink, Link, NodeState, Origin, PodState
from gpufleet_cli.parsers import kubernetes_events, kubernetes_nodes

LINE_CHARS = 16_384
MOST_LINES = 1_000_000
MOST_CONTAINERS = 200

_KEY = re.compile(
    r"^(?P<indent> {0,12})(?P<key>[A-Z][\w /()-]{0,40}):(?:\s{1,60}(?P<value>.{0,8000}))?$"
)
_CONTAINER = re.compile(r"^ {2}(?P<name>[a-z0-9][a-z0-9-]{0,62}):\s{0,8}$")
_EVENT = re.compile(
    r"^\s{1,8}(?P<type>Normal|Warning)\s{1,20}(?P<reason>\S{1,128})\s{1,20}"
    r"(?P<age>\S{1,40}(?: \(x\d{1,9} over \S{1,20}\))?)\s{1,20}(?P<source>\S{1,128}(?:, \S{1,253})?)\s{1,20}"
    r"(?P<message>.{0,8000})$"
)
_CONDITION = re.compile(
    r"^  (?P<type>[A-Z]\w{1,80})\s{1,40}(?P<status>True|False|Unknown)"
    r"(?:\s{2,40}(?P<times>\w{3}, .{20,80}?[+-]\d{4}))?(?:\s{1,40}(?P<reason>\w{1,80})\s{1,40}(?P<message>.{0,4000}))?$"
)
_RFC1123 = re.compile(r"\w{3}, (\d{2}) (\w{3}) (\d{4}) (\d\d:\d\d:\d\d) ([+-]\d{4})")


class _Line(NamedTuple):
    number: int
    text: str


def matches(lines: list[str]) -> bool:
    """A name at the start and one of the sections that only `describe` prints."""
    if not any(line.startswith("Name:  ") for line in lines):
        return False
    return any(
        re.match(r"(?:Namespace|Labels|Annotations|Status|Node|Roles|Taints|Conditions):", line)
        for line in lines
    )


def parse(lines: list[str], path: str) -> Iterator[Fact]:
    """Every object of the text."""
    block: list[_Line] = []
    for number, line in enumerate(lines[:MOST_LINES], 1):
        if line.startswith("Name:  "):
            yield from _object(block, path)
            block = []
        if block or line.startswith("Name:  "):
            block.append(_Line(number, line[:LINE_CHARS].rstrip()))
    yield from _object(block, path)


def _object(block: list[_Line], path: str) -> Iterator[Fact]:
    if not block:
        return
    top = _top(block)
    origin = Origin(path=path, line=block[0].number)
    is_node = any(line.text.startswith(("Roles:", "Unschedulable:", "PodCIDR:")) for line in block)
    if is_node:
        yield _node(block, top, origin)
    elif "Node" in top or "Containers" in top or "Status" in top:
        state = _pod(block, top, origin)
        yield state
        if state.node is not None:
            yield IdentityLink(
                how=Link.POD_SPEC,
                origin=origin,
                pod=state.name,
                namespace=state.namespace,
                node=state.node,
                pod_ip=state.pod_ip,
            )
    yield from _events(block, top, path, is_node=is_node)


def _top(block: list[_Line]) -> dict[str, str]:
    """The keys without indentation."""
    found: dict[str, str] = {}
    for line in block:
        key = _KEY.match(line.text)
        if key and not key["indent"]:
            found.setdefault(key["key"], (key["value"] or "").strip())
    return found


def _section(block: list[_Line], name: str) -> list[_Line]:
    """The indented lines below a heading."""
    start = next((i for i, line in enumerate(block) if line.text.startswith(f"{name}:")), None)
    if start is None:
        return []
    found: list[_Line] = []
    for line in block[start + 1 :]:
        if line.text and not line.text.startswith(" "):
            break
        found.append(line)
    return found


def _said(value: str | None) -> str | None:
    return None if value is None or value in ("", "<none>", "<nil>", "<unset>") else value


def _time(value: str | None) -> int | None:
    """`Mon, 03 Mar 2025 22:14:12 +0000`."""
    found = _RFC1123.match(value) if value else None
    if found is None:
        return None
    month = timestamps.MONTHS.get(found[2].lower())
    if month is None:
        return None
    read = timestamps.parse_rfc3339(f"{found[3]}-{month:02}-{found[1]}T{found[4]}{found[5]}")
    return read[0] if read else None


# --- Pods ---------------------------------------------------------------------------------------


def _pod(block: list[_Line], top: Mapping[str, str], origin: Origin) -> PodState:
    node = _said(top.get("Node", "").partition("/")[0])
    containers = tuple(islice(_containers(_section(block, "Containers")), MOST_CONTAINERS))
    with_gpu = [c.name for c in containers if c.has_gpu]
    rank = with_gpu or [c.name for c in containers]
    return PodState(
        name=top.get("Name", ""),
        namespace=_said(top.get("Namespace")),
        uid=None,
        node=node,
        pod_ip=_said(top.get("IP")),
        phase=_said((top.get("Status", "").split() or [""])[0]),
        reason=_said(top.get("Reason")),
        created_ns=_time(top.get("Start Time")),
        deleted_ns=None,
        containers=containers,
        rank_container=rank[0] if rank else None,
        disruption=None,
        disrupted_ns=None,
        gpus=_gpus(block) or None,
        labels=(),
        node_rank=None,
        owner=_said(top.get("Controlled By")),
        origin=origin,
        scheduled=True if node is not None else None,
        terminating=top.get("Status", "").startswith("Terminating"),
    )


def _gpus(block: list[_Line]) -> int:
    """The limits of all containers; requests repeat them."""
    counts = [
        int(found[1])
        for line in _section(block, "Containers")
        if (found := re.match(r"\s+(?:nvidia|amd)\.com/gpu:\s{1,8}(\d{1,4})$", line.text))
    ]
    return sum(counts) // 2 if len(counts) > 1 else sum(counts)


def _containers(lines: list[_Line]) -> Iterator[ContainerState]:
    name: str | None = None
    body: list[str] = []
    for line in lines:
        found = _CONTAINER.match(line.text)
        if found:
            if name is not None:
                yield _container(name, body)
            name, body = found["name"], []
        else:
            body.append(line.text)
    if name is not None:
        yield _container(name, body)


def _container(name: str, body: list[str]) -> ContainerState:
    """`State:` and `Last State:` have their details indented below them."""
    sections: dict[str, dict[str, str]] = {"": {}, "State": {}, "Last State": {}}
    inside = ""
    for line in body:
        key = _KEY.match(line)
        if key is None:
            continue
        value = (key["value"] or "").strip()
        if len(key["indent"]) <= 4:
            inside = key["key"] if key["key"] in sections else ""
            sections.setdefault(inside, {})[key["key"]] = value
        else:
            sections[inside].setdefault(key["key"], value)
    now, last, top = sections["State"], sections["Last State"], sections[""]
    word = now.get("State", "").lower()
    state: Literal["waiting", "running", "terminated", "unknown"] = "unknown"
    match word:
        case "waiting" | "running" | "terminated":
            state = word
    return ContainerState(
        name=name,
        state=state,
        reason=_said(now.get("Reason")),
        message=_said(now.get("Message")),
        exit_code=_whole(now.get("Exit Code")),
        started_ns=_time(now.get("Started")),
        finished_ns=_time(now.get("Finished")),
        restarts=_whole(top.get("Restart Count")) or 0,
        has_gpu=any(re.match(r"\s+(?:nvidia|amd)\.com/gpu", line) for line in body),
        last_exit_code=_whole(last.get("Exit Code")),
        last_reason=_said(last.get("Reason")),
        last_finished_ns=_time(last.get("Finished")),
        container_id=_said(top.get("Container ID", "").rpartition("://")[2]),
    )


def _whole(value: str | None) -> int | None:
    return (
        int(value) if value and value.isascii() and value.isdecimal() and len(value) < 9 else None
    )


# --- Nodes --------------------------------------------------------------------------------------


def _node(block: list[_Line], top: Mapping[str, str], origin: Origin) -> NodeState:
    conditions = [_condition(line.text) for line in _section(block, "Conditions")]
    objects = [condition for condition in conditions if condition is not None]
    found = next(
        kubernetes_nodes.read(
            {
                "metadata": {"name": top.get("Name", "?") or "?", "labels": _labels(block)},
                "spec": {
                    "unschedulable": top.get("Unschedulable") == "true",
                    "providerID": _said(top.get("ProviderID")),
                },
                "status": {
                    "conditions": objects,
                    "capacity": _resources(_section(block, "Capacity")),
                    "allocatable": _resources(_section(block, "Allocatable")),
                    "addresses": _addresses(_section(block, "Addresses")),
                },
            },
            origin,
        )
    )
    assert isinstance(found, NodeState)
    return replace(found, taints=_taints(block, top))


def _taints(block: list[_Line], top: Mapping[str, str]) -> tuple[str, ...]:
    texts = [top.get("Taints", ""), *(line.text.strip() for line in _section(block, "Taints"))]
    return tuple(text for text in texts if text and text != "<none>")


def _labels(block: list[_Line]) -> dict[str, str]:
    """`Labels:` has its first on its own line and the others below."""
    lines = [line.text for line in _section(block, "Labels")]
    first = next((line.text for line in block if line.text.startswith("Labels:")), "")
    pairs = (text.strip().partition("=") for text in [first.removeprefix("Labels:"), *lines])
    return {key: value for key, sign, value in pairs if sign}


def _condition(text: str) -> dict[str, object] | None:
    found = _CONDITION.match(text)
    if found is None:
        return None
    moments = _RFC1123.findall(found["times"] or "")
    at_ns = None
    if moments:
        day, month, year, clock, zone = moments[-1]
        at_ns = f"{year}-{timestamps.MONTHS.get(month.lower(), 0):02}-{day}T{clock}{zone}"
    return {
        "type": found["type"],
        "status": found["status"],
        "reason": found["reason"],
        "message": found["message"],
        "lastTransitionTime": at_ns,
    }


def _resources(lines: list[_Line]) -> dict[str, object]:
    pairs = (line.text.strip().partition(":") for line in lines)
    return {key.strip(): value.strip() for key, sign, value in pairs if sign}


def _addresses(lines: list[_Line]) -> list[object]:
    return [{"type": k, "address": v} for k, v in _resources(lines).items()]


# --- Events -------------------------------------------------------------------------------------


def _events(
    block: list[_Line], top: Mapping[str, str], path: str, *, is_node: bool
) -> Iterator[Fact]:
    for line in _section(block, "Events"):
        found = _EVENT.match(line.text)
        if found is None:
            continue
        origin = Origin(path=path, line=line.number)
        yield kubernetes_events.relative(
            kind="Node" if is_node else "Pod",
            name=top.get("Name", ""),
            namespace=_said(top.get("Namespace")),
            reason=found["reason"],
            warning=found["type"] == "Warning",
            message=found["message"],
            seen=found["age"],
            first_seen="",
            count="",
            origin=origin,
        )
        yield from kubernetes_events.assigned(found["message"], origin)
