"""How a line of ProcessGroupNCCL names its process group, in all its versions.

    [PG ID 3 PG GUID 10(mesh_pp) Rank 0]     torch 2.5 and later
    [PG ID 12 PG GUID 120 Rank 0]            the same without a description
    [PG 0 (default_pg) Rank 0], [PG 0 Rank 0]   torch 2.3, 2.4 and builds between

>>> parse_group("[PG ID 3 PG GUID 10(mesh_pp) Rank 0]  failure detected by watchdog")
(GroupRef(name='10', desc='mesh_pp'), 0)
>>> parse_group("[PG 0 (default_pg) Rank 7] Timeout at NCCL work: 40277")
(GroupRef(name='0', desc='default_pg'), 7)
"""

from __future__ import annotations

import re

from gpufleet_cli.facts import GroupRef

_GROUP = re.compile(
    r"\[PG (?:ID (?P<id>\d{1,9}) PG GUID (?P<guid>[^\s(\]]{0,200})(?:\((?P<desc>[^)\]]{0,200})\))?"
    r"|(?P<old>\d{1,9})(?: ?\((?P<old_desc>[^)\]]{0,200})\))?) Rank (?P<rank>\d{1,7})\]"
)
_BARE = re.compile(r"\[[Rr]ank (?P<rank>\d{1,7})\]")


def parse_group(text: str) -> tuple[GroupRef, int] | None:
    """The group and the printing rank inside it, or None where the line names no group."""
    found = _GROUP.search(text)
    if found is None:
        return None
    name = found["old"] if found["old"] is not None else found["guid"] or found["id"]
    desc = found["desc"] if found["old"] is None else found["old_desc"]
    return GroupRef(name=name, desc=desc or None), int(found["rank"])


def parse_group_rank(text: str) -> int | None:
    """The rank inside its group that the line states, with or without a group's name."""
    named = parse_group(text)
    if named is not None:
        return named[1]
    found = _BARE.search(text)
    return int(found["rank"]) if found is not None else None
