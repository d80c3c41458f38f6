"""What came of asking for the logs of pods, as `gpufleet collect` writes it beside them.

    {"schema": "gpufleet.log-reads/v1", "replied": ["gpu-0", "gpu-2"],
     "silent": [{"pod": "w-1", "container": "t", "node": "gpu-1", "at": "2026-08-20T03:52:00Z",
                 "said": "dial tcp 10.0.0.1:10250: connect: connection refused"}]}

A log comes from the kubelet of the pod's node, so that a read which
the kubelet left without an answer speaks of the node; which nodes did reply tells it from a broken way
between the API server and all of them. Reads that failed for other reasons are in the manifest.

>>> list(matches(name, b'{"schema":"gpufleet.log-reads/v1"}') for name in ("a.json", "b"))
[True, True]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpufleet_cli.bundle import Evidence
from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import Fact, KubeletReply, Origin
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_pods import time_of
from gpufleet_cli.plain_text import visible

SCHEMA = "gpufleet.log-reads/v1"
MOST_NODES = 100_000
SAID_CHARS = 200
FEW = 2
"""So many nodes may fall silent together and still be the fault of each, where others replied."""


def matches(path: str, head: bytes) -> bool:
    """By the schema that its first key names."""
    return js.names_schema(head, SCHEMA)


def parse(evidence: Evidence) -> Iterator[Fact]:
    """One fact a node. A node of which some log came did reply, whatever else did not come."""
    document = next(js.documents(evidence.read()), None)
    if not isinstance(document, dict):
        raise ParseError(f"{evidence.path}: the top is no JSON object")
    replied = {
        visible(name)
        for name in js.items(document.get("replied"))
        if isinstance(name, str) and name
    }
    silent: dict[str, list[tuple[int, object]]] = defaultdict(list)
    for index, one in enumerate(js.items(document.get("silent"))):
        node = js.text_at(one, "node")
        if node and visible(node) not in replied:
            silent[visible(node)].append((index, one))
    for node in sorted(replied)[:MOST_NODES]:
        origin = Origin(path=evidence.path)
        yield KubeletReply(node=node, replied=True, pods=(), said="", at_ns=None, origin=origin)
    for node, reads in sorted(silent.items())[:MOST_NODES]:
        index, first = reads[0]
        pods = {js.text_at(one, "pod") for _, one in reads}
        yield KubeletReply(
            node=node,
            replied=False,
            pods=tuple(sorted(visible(pod) for pod in pods if pod)),
            said=visible(js.text_at(first, "said") or "")[:SAID_CHARS],
            at_ns=time_of(js.at(first, "at")),
            origin=Origin(path=evidence.path, entry=index),
        )


def is_way_at_fault(silent: int, replied: int) -> bool:
    """Whether so many silent nodes beside so many that replied say nothing of any of them.

    Not all nodes die at once: where none replied, or most of several did not, it is the tunnel or the
    firewall between the API server and the kubelets. One node alone cannot be told from the way to it.

    >>> [is_way_at_fault(*counts) for counts in ((1, 7), (2, 1), (1, 0), (8, 0), (5, 3))]
    [False, False, True, True, True]
    """
    return replied == 0 or (silent > FEW and silent > replied)
