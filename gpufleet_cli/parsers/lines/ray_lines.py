"""Ray: who is which rank, actors and nodes that died, preemption (Ray Train 1 and 2).

`Worker exit detail` carries a fixed list of "potential root causes", which is no evidence. An actor whose
node was preempted is external. A DistributedContext shows only the worker that is being reported.
`[repeated Nx across cluster]` is one worker's text standing for N: the others only look silent.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> link, = read(recognise, "(TorchTrainer pid=1234) - (node_id=ab12, ip=10.0.1.5, pid=900) world_rank=3, "
...     "local_rank=1, node_rank=1")
>>> link.rank, link.local_rank, link.node_rank, link.pid, link.host
(3, 1, 1, 900, '10.0.1.5')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, IdentityLink, Link, Sign
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    continuation,
    make_sign,
    parse_ranks,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_MAP = re.compile(
    r"\((?:node_id=(?P<node_id>\w{1,64}), )?ip=(?P<ip>[\w.:-]{1,253}), pid=(?P<pid>\d{1,10})\) "
    r"world_rank=(?P<rank>\d{1,7}), local_rank=(?P<local>\d{1,5}), node_rank=(?P<node>\d{1,6})"
)
_PID = re.compile(r"\bpid: ?(?P<pid>\d{1,10})")
_IP = re.compile(r"\bip[:=] ?(?P<ip>[\d.:a-fA-F]{2,60})")
_NODE_ID = re.compile(r"[Nn]ode [Ii][Dd]: ?(?P<id>\w{1,64})")
_ADDRESS = re.compile(r"address: ?(?P<ip>[\w.:-]{1,253}?)(?: and|,|\s|$)")
_WORLD_RANK = re.compile(r"DistributedContext\([^)\n]{0,200}?world_rank=(?P<rank>\d{1,7})")
_PREEMPTED = re.compile(r"node was preempted(?:: ?(?P<why>[^\n]{0,200}))?")
_EXIT = re.compile(
    r"Worker exit type: (?P<type>[A-Z_]{1,60})(?: Worker exit detail: (?P<why>[^\n]{0,200}))?"
)
_WATCHER = re.compile(
    r"preempted_node_ids=\[(?P<nodes>[^\]\n]{0,2000})\][^\n]{0,20}?preempted_ranks=\[(?P<ranks>[\d, ]{0,4000})\]"
)
_BLOCK_LINES = 12


def _map(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _MAP.search(line.text)
    if found is not None:
        yield IdentityLink(
            how=Link.RAY,
            origin=line.origin,
            rank=int(found["rank"]),
            local_rank=int(found["local"]),
            node_rank=int(found["node"]),
            pid=int(found["pid"]),
            pod_ip=found["ip"],
            host=found["ip"],  # what a worker's own lines call its host
            attempt=line.speaker.attempt,
        )


def _actor(line: LogLine, following: Following) -> Iterator[Fact]:
    """An actor that died: of itself, with its node, or with a node that was preempted."""
    text = "\n".join([line.text, *(row.text for row in _block(line, following))])
    rank, preempted = _WORLD_RANK.search(text), _PREEMPTED.search(text)
    pid, ip, node_id = _PID.search(text), _IP.search(text), _NODE_ID.search(text)
    with_node = "its node has died" in text
    peer = ip["ip"] if ip is not None else node_id["id"] if node_id is not None else None
    sign, what = Sign.CHILD_FAILED, "actor died"
    if preempted is not None:
        sign, what = Sign.PREEMPTION, f"node preempted: {preempted['why'] or ''}"
    elif with_node:
        sign, what = Sign.NODE_FAILED, "actor's node died"
    yield make_sign(
        sign,
        line,
        named_ranks=(int(rank["rank"]),) if rank is not None else (),
        pid=int(pid["pid"]) if pid is not None else None,
        peer=peer,
        detail=f"ray: {what}",
    )


def _block(line: LogLine, following: Following) -> Iterator[LogLine]:
    """The rows that belong to an error: up to the next Ray line or traceback."""
    for row in continuation(line, following, _BLOCK_LINES):
        if "Traceback (most" in row.text or "The actor died" in row.text:
            return
        yield row


def _exit(line: LogLine, following: Following) -> Iterator[Fact]:
    found, ip = _EXIT.search(line.text), _IP.search(line.text)
    if found is None or found["type"] in ("INTENDED_USER_EXIT", "INTENDED_SYSTEM_EXIT"):
        return
    is_node = found["type"] == "NODE_DIED"
    pid = _PID.search(line.text)
    yield make_sign(
        Sign.NODE_FAILED if is_node else Sign.CHILD_FAILED,
        line,
        peer=ip["ip"] if ip is not None else None,
        pid=int(pid["pid"]) if pid is not None else None,
        detail=f"ray: {found['type']}: {found['why'] or ''}",
    )


def _node_dead(line: LogLine, following: Following) -> Iterator[Fact]:
    address, node_id = _ADDRESS.search(line.text), _NODE_ID.search(line.text)
    peer = address["ip"] if address is not None else node_id["id"] if node_id is not None else None
    yield make_sign(Sign.NODE_FAILED, line, peer=peer, detail="ray: node marked dead")


def _watcher(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _WATCHER.search(line.text)
    ranks = parse_ranks(found["ranks"]) if found is not None else ()
    nodes = found["nodes"].replace("'", "") if found is not None else None
    yield make_sign(
        Sign.PREEMPTION, line, named_ranks=ranks, peer=nodes or None, detail="ray: drain detected"
    )


def _memory(line: LogLine, following: Following) -> Iterator[Fact]:
    ip = _IP.search(line.text)
    yield make_sign(
        Sign.HOST_OOM,
        line,
        peer=ip["ip"] if ip is not None else None,
        detail="ray: killed for host memory",
    )


_RULES: tuple[Rule, ...] = (
    (("world_rank=",), _map),
    (("The actor died unexpectedly", "The actor died because"), _actor),
    (("Worker exit type: ",), _exit),
    (("has been marked dead",), _node_dead),
    (("drain detected",), _watcher),
    (
        ("due to memory pressure (OOM)", "the node running low on memory"),
        _memory,
    ),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Ranks of Ray workers; dead actors and nodes; preemption."""
    return by_literal(_RULES, line, following)
