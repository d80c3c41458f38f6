"""Prefixes that launchers and PyTorch put before a line: whose it is.

    [default0]:[rank12]: text       torchrun --tee: role and LOCAL rank, then c10's GLOBAL rank
    [rank0]:[rank8]: text           TorchTitan's launcher: role "rank" and local rank, then global
    [rank3]: text                   one alone: global or local, which only other lines can tell
    [trainer3]: text                another role name
    train/1 [default1]:[rank9]: x   torchx and nemo-run: NAME/REPLICA, the replica is the node
    [Rank 3] text                   an application's own

>>> peel("[default0]:[rank12]: hello")
Layer(rest='hello', ns=None, zone_stated=False, who=(('local_rank', 0), ('rank', 12)), coarse=False, partial=False)
>>> peel("[rank3[]:[E508 torn by a second writer").who
(('prefix_rank', 3),)
"""

from __future__ import annotations

import re
from functools import lru_cache

from gpufleet_cli.parsers.wrappers.layer import Layer, Who, who_of

STARTS = ""

_CHAIN = re.compile(r"(?:\[[A-Za-z][A-Za-z_.-]{0,40}\d{1,6}\[?\]: ?){1,3}")
_ELEMENT = re.compile(r"\[([A-Za-z_.-]+)(\d+)\[?\]:")
_NO_ROLE = re.compile(
    r"(?i:epoch|step|iter(?:ation)?|batch|layer|stage|attempt|try|trial|part|thread)"
)
_REPLICA = re.compile(r"([A-Za-z][\w.-]{0,80})/(\d{1,5}) (?=\[|\S)")
_APPLICATION = re.compile(
    r"\[(?:Rank|RANK|rank) (\d{1,6})\](?!:)[ |-]{1,3}(?!Watchdog|Some NCCL|To avoid|NCCL |Process group|Collective |Work |Timeout|Found |Exception|Received |Observed )"
)


@lru_cache(maxsize=65_536)
def _chain(text: str) -> Who | None:
    """Who the chain of prefixes names, None when the first is a counter and no role."""
    found = [(role, int(number)) for role, number in _ELEMENT.findall(text)]
    role, number = found[0]
    if _NO_ROLE.fullmatch(role.strip("_.-")):
        return None
    if len(found) > 1:
        return who_of({"local_rank": number, "rank": found[-1][1]})
    return who_of(
        {"prefix_rank" if role.lower() in ("rank", "rank_", "rank-") else "local_rank": number}
    )


@lru_cache(maxsize=4096)
def _node(replica: str) -> Who:
    return who_of({"node_rank": int(replica)})


def peel(text: str) -> Layer | None:
    """Take off a whole chain of prefixes, or the replica before it."""
    if text[0] == "[":
        found = _CHAIN.match(text)
        if found is not None:
            who = _chain(found[0])
            return None if who is None else Layer(text[found.end() :], who=who)
        found = _APPLICATION.match(text)
        return found and Layer(text[found.end() :], who=who_of({"prefix_rank": int(found[1])}))
    if text[0].isalpha():
        found = _REPLICA.match(text)
        if found is not None and (
            text.startswith("[", found.end()) and _CHAIN.match(text, found.end())
        ):
            return Layer(text[found.end() :], who=_node(found[2]))
    return None
