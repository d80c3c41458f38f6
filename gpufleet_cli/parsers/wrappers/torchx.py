"""torchx and nemo-run: role and replica before every line.

    trainer/0 text
    trainer/1 [default1]:[rank9]: text      (with torchrun's prefixes: `launcher` knows it on any line)

A word with a slash and a number is also ordinary text, so alone it counts only where nearly every
line has it. The replica is the node's rank.

>>> peel("trainer/3 hello").who
(('node_rank', 3),)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from gpufleet_cli.parsers.wrappers.layer import Layer, Who, majority, who_of

STARTS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

_REPLICA = re.compile(r"([A-Za-z][\w.-]{0,80})/(\d{1,5})(?: |$)")


def fits(sample: Sequence[str]) -> bool:
    """Nearly all lines carry the name of one role."""
    if not majority(_REPLICA.match, sample):
        return False
    return len({found[1] for found in map(_REPLICA.match, sample) if found is not None}) <= 4


@lru_cache(maxsize=4096)
def _node(replica: str) -> Who:
    return who_of({"node_rank": int(replica)})


def peel(text: str) -> Layer | None:
    """Take off role and replica."""
    found = _REPLICA.match(text)
    return found and Layer(text[found.end() :], who=_node(found[2]))
