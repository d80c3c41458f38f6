"""Kubernetes objects as kubectl or the API hands them over: pods, nodes, events, leases.

    kubectl get pods,nodes,events -A -o json      {"kind": "List", "items": [{"kind": "Pod", ...}]}
    GET /api/v1/namespaces/ml/pods                {"kind": "PodList", "items": [{no kind}]}
    kubectl get pod p-0 -o json, -o yaml          one object; YAML documents are read too
    kubectl get events -w -o json                 objects in a row, also {"type": "ADDED", "object"}
    [{"pod": "p-0", "phase": "Failed", ...}]      an excerpt that somebody made

`items: null` is an empty list. A file that is cut off gives its whole objects and a Gap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpufleet_cli.bundle import Evidence
from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import Fact, Gap, Origin
from gpufleet_cli.parsers import (
    json_documents as js,
)
from gpufleet_cli.parsers import (
    kubernetes_events,
    kubernetes_gangs,
    kubernetes_nodes,
    kubernetes_pods,
    kubernetes_ranks,
    kubernetes_yaml,
)

MOST_DEPTH = 4

_JSON_HEAD = re.compile(
    rb'"(?:containerStatuses|involvedObject|regarding|nodeInfo|nodeName|renewTime|podIP|unschedulable)"'
    rb'\s{0,8}:|"kind"\s{0,8}:\s{0,8}"(?:Pod|Node|Event|Lease|List|PodList|NodeList|EventList|LeaseList)"'
)
_POD_EXCERPT = re.compile(rb'"(?:pod|podName|name)"\s{0,8}:.{0,400}"phase"\s{0,8}:', re.DOTALL)


def matches(path: str, head: bytes) -> bool:
    """By keys that only these objects have."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] in (b"{", b"["):
        return bool(_JSON_HEAD.search(start) or _POD_EXCERPT.search(start[:8192]))
    return kubernetes_yaml.matches(start)


def parse(evidence: Evidence) -> Iterator[Fact]:
    """States, events and identity links; of other kinds what holds a gang back."""
    data = evidence.read()
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start in (b"{", b"["):
        objects, cut = _json_objects(data)
    else:
        objects, cut = list(_flat(kubernetes_yaml.documents(data), "")), False
    if cut:
        yield Gap(
            what=f"the end of {evidence.path}",
            why="the file is cut off",
            would_settle="the objects that are missing in it",
            origin=Origin(path=evidence.path),
        )
    gang = kubernetes_ranks.gang_of(o for kind, o in objects if kind == "Pod")
    for index, (kind, found) in enumerate(objects):
        origin = Origin(path=evidence.path, entry=index)
        match kind:
            case "Pod":
                yield from kubernetes_pods.read(found, gang, origin)
            case "Node":
                yield from kubernetes_nodes.read(found, origin)
            case "Event":
                yield from kubernetes_events.read(found, origin)
            case "Lease":
                yield from kubernetes_nodes.read_lease(found, origin)
            case _:
                yield from kubernetes_gangs.read(found, kind, origin)


Object = tuple[str, Mapping[str, object]]


def _json_objects(data: bytes) -> tuple[list[Object], bool]:
    """(kind, object) of everything, and whether the file is cut off."""
    try:
        return list(_flat(js.documents(data), "")), False
    except ParseError:
        salvaged = js.salvage(data, "items")
        if not salvaged:
            raise
        kind = re.search(rb'"kind"\s{0,8}:\s{0,8}"(Pod|Node|Event|Lease)List"', data[:65_536])
        listed = kind[1].decode("ascii") if kind else ""
        return list(_flat(iter(salvaged), listed)), True


def _flat(found: Iterator[object], listed: str, depth: int = 0) -> Iterator[Object]:
    """Lists taken apart. `listed` is the kind of a typed list, whose items do not repeat it."""
    for value in found:
        if isinstance(value, list) and depth < MOST_DEPTH:
            yield from _flat(iter(value), listed, depth + 1)
            continue
        if not isinstance(value, dict):
            continue
        inner = value.get("object")
        if isinstance(inner, dict) and isinstance(value.get("type"), str):
            value = inner
        kind = js.text(value.get("kind")) or listed
        if "items" in value and (kind == "" or kind.endswith("List")) and depth < MOST_DEPTH:
            yield from _flat(iter(js.items(value["items"])), kind.removesuffix("List"), depth + 1)
        else:
            yield _kind(value, kind), value


def _kind(value: Mapping[str, object], stated: str) -> str:
    """What the object is, by its kind or, in an excerpt, by its shape."""
    if stated:
        return stated
    if "involvedObject" in value or "regarding" in value:
        return "Event"
    if js.at(value, "spec", "renewTime") is not None:
        return "Lease"
    if (
        js.at(value, "status", "nodeInfo") is not None
        or js.at(value, "spec", "podCIDR") is not None
    ):
        return "Node"
    status = js.mapping(value.get("status")) or value
    if "containerStatuses" in status or "phase" in status:
        return "Pod"
    return "Pod" if js.at(value, "spec", "containers") is not None else ""
