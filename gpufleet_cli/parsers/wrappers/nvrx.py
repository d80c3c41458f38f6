"""Node-local log of NVIDIA Resiliency Extension (`nvrx_log_HOST.log`).

    2025-08-14 10:00:01,123 [INFO] [gpu-n01] [workload:5(5) infra:0(0)] wrap.py:512 text

The bracket holds rank and local rank when the logger was set up (`?` if unset); after an
in-process restart the message's own `rank=N` is the current one and wins.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gpufleet_cli.parsers.wrappers.layer import Layer, Who, who_of
from gpufleet_cli.timestamps import match_iso

STARTS = "0123456789"

_HEAD = re.compile(
    r" \[[A-Z]{4,8}\] \[([^\]\s]{1,255})\] \[workload:(\d{1,7}|\?)\((\d{1,4}|\?)\) "
    r"infra:(\d{1,7}|\?)\((\d{1,4}|\?)\)\] (?:[\w./-]{1,120}:\d{1,6} )?"
)
_CURRENT = re.compile(r"\brank=(\d{1,7})\b")


def _number(text: str) -> int | None:
    return None if text == "?" else int(text)


@lru_cache(maxsize=65_536)
def _who(host: str, rank: str, local: str, task: str) -> Who:
    return who_of(
        {"host": host, "rank": _number(rank), "local_rank": _number(local), "task": _number(task)}
    )


def peel(text: str) -> Layer | None:
    """Take off time, level, host and bracket."""
    stamp = match_iso(text)
    found = None if stamp is None else _HEAD.match(text, stamp.end)
    if stamp is None or found is None:
        return None
    rest = text[found.end() :]
    current = _CURRENT.search(rest, 0, 200)
    rank = current[1] if current else found[2]
    who = _who(found[1], rank, found[3], found[4])
    return Layer(rest, stamp.ns, stamp.zone_stated, who)
