"""Names of pods and nodes: which of a speaker's hints is a pod, which a node, and of what.

File names are hints. Where something better (a map, a pod list, a wrapper) has stated names, a hint counts
only when it is one of them; numbered folders stand for the nodes in order of their ranks.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from gpufleet_cli.facts import IdentityLink, Link, NodeState, PodState, Speaker

NUMBERED_NODE = re.compile(r"(node|host|worker|machine)[-_]?(\d{1,6})", re.IGNORECASE)


@dataclass(slots=True)
class Names:
    """Names of pods and nodes that something better than a file name has stated."""

    pods: set[str]
    nodes: set[str]
    node_of_pod: dict[str, str]
    pod_by_uid: dict[str, str]
    node_by_address: dict[str, str]
    aliases: dict[str, str]
    pod_by_ip: dict[str, str]  # addresses that are one pod's alone
    full_names: dict[str, list[str]] | None = None  # by what stands before the first dot

    @classmethod
    def gather(
        cls, links: list[IdentityLink], pods: list[PodState], nodes: tuple[NodeState, ...]
    ) -> Names:
        names = cls(set(), set(), {}, {}, {}, {}, _by_ip(pods))
        for link in links:
            if link.pod is not None and link.how is not Link.DERIVED:
                names.pods.add(link.pod)
                if link.node is not None:
                    names.node_of_pod.setdefault(link.pod, link.node)
                if link.pod_uid is not None:
                    names.pod_by_uid.setdefault(link.pod_uid, link.pod)
            if link.node is not None:
                names.nodes.add(link.node)
            if link.pod_ip is not None and (link.node or link.host) is not None:
                names.node_by_address.setdefault(link.pod_ip, link.node or link.host or "")
        for pod in pods:
            names.pods.add(pod.name)
            if pod.uid is not None:
                names.pod_by_uid[pod.uid] = pod.name
            if pod.node is not None:
                names.nodes.add(pod.node)
                names.node_of_pod[pod.name] = pod.node
                if pod.pod_ip is not None:
                    names.node_by_address[pod.pod_ip] = pod.node
        for node in nodes:
            names.nodes.add(node.name)
            if node.internal_ip is not None:
                names.node_by_address[node.internal_ip] = node.name
            if node.provider_id is not None:
                names.node_by_address[node.provider_id.rsplit("/", 1)[-1]] = node.name
        for pod_name, node_name in names.node_of_pod.items():
            names.node_by_address.setdefault(pod_name, node_name)
        return names

    def node_named(self, name: str | None) -> str | None:
        """The node of that name; NCCL and some kernels cut a host's name at its first dot."""
        if name is None or name in self.nodes or "." in name:
            return name if name in self.nodes else None
        if self.full_names is None:
            self.full_names = defaultdict(list)
            for node in self.nodes:
                self.full_names[node.partition(".")[0]].append(node)
        cut = self.full_names.get(name, ())
        return cut[0] if len(cut) == 1 else None

    def unit(self, speaker: Speaker) -> tuple[str | None, str | None]:
        """(pod, node) that a speaker's own fields name, checked against the names that are known."""
        pod, node = speaker.pod, speaker.node
        told = self.pod_by_ip.get(speaker.host or "")
        if (
            told is not None
        ):  # a driver prints for workers elsewhere: the line's address, not its file
            return told, self.node_of_pod.get(told)
        if speaker.task is not None and pod in self.pods and len(self.pods) > 1:
            pod = None  # mpirun or srun prints there for all tasks
        for name in (pod, speaker.host, speaker.node):
            if name is None:
                continue
            if name in self.pods:
                return name, self.node_of_pod.get(name, node if node in self.nodes else None)
            node_here = self.node_named(name)
            if node_here is not None:
                return (pod if pod in self.pods else None), node_here
            short = _by_stem(name, self.pods)
            if short is not None:
                return short, self.node_of_pod.get(short)
        if self.pods and pod not in self.pods:
            pod = None if speaker.pod_uid is None else pod
        if self.nodes and node not in self.nodes:
            node = self.aliases.get(node or "", node)
        return pod, node


def _by_ip(pods: list[PodState]) -> dict[str, str]:
    """The pod of each address; pods on the host's network share one, which then tells nothing."""
    count = Counter(pod.pod_ip for pod in pods if pod.pod_ip is not None)
    return {p.pod_ip: p.name for p in pods if p.pod_ip is not None and count[p.pod_ip] == 1}


def numbered_nodes(
    speakers: list[Speaker], node_of: Mapping[int, str], names: Names
) -> dict[str, str]:
    """Folders `node-0`, `node-1`, ... as the nodes in order of their ranks, when they are as many."""
    found = {
        (match[1], int(match[2])): speaker.node
        for speaker in speakers
        if speaker.node is not None
        and speaker.node not in names.nodes
        and (match := NUMBERED_NODE.fullmatch(speaker.node)) is not None
    }
    by_first_rank: dict[str, int] = {}
    for rank, node in sorted(node_of.items()):
        by_first_rank.setdefault(node, rank)
    ordered = sorted(by_first_rank, key=lambda node: by_first_rank[node])
    if not found or max(number for _stem, number in found) >= len(ordered):
        return {}
    if len({stem for stem, _number in found}) != 1:
        return {}
    return {name: ordered[number] for (_stem, number), name in found.items()}


def _by_stem(name: str, known: set[str]) -> str | None:
    """A pod whose full name is a piece of a file name such as `ns_POD_container`."""
    for piece in (name.split("_"), name.split("."), name.split("__")):
        for part in piece:
            if part in known:
                return part
    return None
