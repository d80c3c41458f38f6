"""What a program says of itself at start-up: rank, local rank, host, pid.

    init: world_size=16 tp=2 dp=4 pp=2 pid=16700 host=gpu-node-1621      beside a rank that the line's prefix has
    Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/8                 Lightning
    Process index: 3 / Local process index: 3                             Accelerate
    Process rank: 3, device: cuda:3                                       HF Trainer
    | distributed init (rank 3): env://                                   torchvision and its heirs

A line ties its names to those of its speaker. `rank_in` is the world's size where the line has it; a rank
is added only where the line or its speaker proves it.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> from gpufleet_cli.facts import Speaker
>>> link, = read(recognise, "INFO trainer: init: world_size=16 tp=2 pid=16700 host=gpu-node-1621",
...     speaker=Speaker(stream="pod-1", rank=4))
>>> link.rank, link.rank_in, link.pid, link.host
(4, 16, 16700, 'gpu-node-1621')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, IdentityLink, Link
from gpufleet_cli.parsers.lines.signs import Rule, by_literal, patterns_of
from gpufleet_cli.parsers.log_line import Following, LogLine

_WORLD = re.compile(r"world[_ ]?size[=:] ?(?P<world>\d{1,7})\b", re.IGNORECASE)
_RANK = re.compile(r"(?<![a-z_])(?:global_)?rank[=:] ?(?P<rank>\d{1,7})\b", re.IGNORECASE)
_LOCAL = re.compile(r"\blocal_rank[=:] ?(?P<local>\d{1,5})\b", re.IGNORECASE)
_PID = re.compile(r"\bpid[=:] ?(?P<pid>\d{1,10})\b")
_HOST = re.compile(r"\bhost(?:name)?[=:] ?(?P<host>[A-Za-z0-9][\w.-]{0,252})")
_STATED = tuple(
    re.compile(pattern)
    for pattern in (
        r"GLOBAL_RANK: (?P<rank>\d{1,7}), MEMBER: \d{1,7}/(?P<world>\d{1,7})",
        r"Process rank: (?P<rank>\d{1,7}), device",
        r"\| distributed init \(rank (?P<rank>\d{1,7})\)",
        r"(?<!Local )Process index: (?P<rank>\d{1,7})",
    )
)


def _init(line: LogLine, following: Following) -> Iterator[Fact]:
    """A line with the world's size and at least two names, or a rank and a place."""
    world = _WORLD.search(line.text)
    rank, local = _RANK.search(line.text), _LOCAL.search(line.text)
    pid, host = _PID.search(line.text), _HOST.search(line.text)
    if world is None or (pid is None and host is None and local is None and rank is None):
        return
    if "starting iteration=" in line.text:
        return
    yield _link(
        line,
        rank=int(rank["rank"]) if rank is not None else line.speaker.rank,
        rank_in=int(world["world"]),
        local_rank=int(local["local"]) if local is not None else None,
        pid=int(pid["pid"]) if pid is not None else None,
        host=host["host"] if host is not None else None,
    )


def _stated(line: LogLine, following: Following) -> Iterator[Fact]:
    for pattern in _STATED:
        found = pattern.search(line.text)
        if found is not None:
            world = found.groupdict().get("world")
            yield _link(
                line,
                rank=int(found["rank"]),
                rank_in=int(world) if world is not None else None,
            )
            return


def _link(
    line: LogLine,
    *,
    rank: int | None,
    rank_in: int | None = None,
    local_rank: int | None = None,
    pid: int | None = None,
    host: str | None = None,
) -> IdentityLink:
    speaker = line.speaker
    return IdentityLink(
        how=Link.LOG,
        origin=line.origin,
        rank=rank,
        rank_in=rank_in,
        local_rank=local_rank if local_rank is not None else speaker.local_rank,
        node_rank=speaker.node_rank,
        pid=pid if pid is not None else speaker.pid,
        host=host if host is not None else speaker.host,
        pod=speaker.pod,
        pod_uid=speaker.pod_uid,
        container=speaker.container,
        namespace=speaker.namespace,
        node=speaker.node,
        attempt=speaker.attempt,
        cycle=speaker.cycle,
        stream=speaker.stream,
    )


_RULES: tuple[Rule, ...] = (
    (("world_size=", "world_size: ", "WORLD_SIZE=", "WORLD_SIZE: "), _init),
    (
        ("GLOBAL_RANK: ", "Process rank: ", "distributed init (rank ", "Process index: "),
        _stated,
    ),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Names that a process gives itself."""
    return by_literal(_RULES, line, following)
