"""torchft: a quorum that changed, and replicas that have to recover. Ranks are inside the replica group.

A member that is gone from the quorum is a lost group; a step committed later means that the job runs.
Source: https://github.com/pytorch/torchft (src/lighthouse.rs, torchft/manager.py)

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "2025-07-16T13:49:41.512 [INFO] [torchft::lighthouse] - Detected quorum change, "
...     "bumping quorum_id to 3")
>>> fact.sign.value, fact.detail
('quorum-change', 'quorum 3')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.signs import Rule, by_literal, make_sign, parse_ranks, patterns_of
from gpufleet_cli.parsers.log_line import Following, LogLine

_ID = re.compile(r"quorum_id(?: to |=|: ?)(?P<id>\d{1,12})")
_REPLICA = re.compile(
    r"\[(?P<replica>[\w.-]{1,120}):[0-9a-f-]{8,36}/(?P<rank>\d{1,6}) - step (?P<step>\d{1,12})\]"
)
_RECOVER = re.compile(r"peers need recovery from us \[(?P<peers>[\d, ]{0,2000})\]")
_FAILED = re.compile(r"Detected commit failures in \[(?P<who>[^\]\n]{0,600})\]")


def manager_prefix(text: str) -> tuple[str, int] | None:
    """Replica id and step of a manager's line `[REPLICA:UUID/GROUP_RANK - step N]`."""
    found = _REPLICA.search(text)
    return (found["replica"], int(found["step"])) if found is not None else None


def _changed(line: LogLine, following: Following) -> Iterator[Fact]:
    quorum, failed = _ID.search(line.text), _FAILED.search(line.text)
    prefix = manager_prefix(line.text)
    words = [f"quorum {quorum['id']}" if quorum is not None else "quorum changed"]
    if prefix is not None:
        words.append(f"replica {prefix[0]}")
    if failed is not None:
        words.append(f"commit failures in {failed['who']}")
    yield make_sign(
        Sign.QUORUM_CHANGE,
        line,
        step=prefix[1] if prefix is not None else None,
        detail="; ".join(words),
    )


def _recovery(line: LogLine, following: Following) -> Iterator[Fact]:
    found, prefix = _RECOVER.search(line.text), manager_prefix(line.text)
    peers = parse_ranks(found["peers"]) if found is not None else ()
    if peers:
        yield make_sign(
            Sign.QUORUM_CHANGE,
            line,
            step=prefix[1] if prefix is not None else None,
            detail=f"recovery of replicas {', '.join(map(str, peers))}",
        )


_RULES: tuple[Rule, ...] = (
    (
        (
            "Detected quorum change",
            "Detected commit failures",
            "reconfiguring for quorum_id",
            "new nodes from group_rank",
        ),
        _changed,
    ),
    (("peers need recovery from us",), _recovery),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Changes of the quorum."""
    return by_literal(_RULES, line, following)
