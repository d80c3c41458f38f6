"""Lines of the SageMaker HyperPod elastic agent, which runs one per node.

    [HyperPodElasticAgent] 2025-06-18 10:00:01,123 [INFO] [rank0-restart1] /path/file.py:12: text

Rank and restart are the agent's values: its node rank and its count of restarts.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gpufleet_cli.parsers.wrappers.layer import NOBODY, Layer, Who, who_of
from gpufleet_cli.timestamps import match_iso

STARTS = "["

_NAME = "[HyperPodElasticAgent] "
_HEAD = re.compile(
    r" \[[A-Z]{4,8}\] (?:\[rank(\d{1,6})-restart(\d{1,6})\] )?(?:\S{1,300}:\d{1,6}: )?"
)


@lru_cache(maxsize=4096)
def _who(rank: str | None, restart: str | None) -> Who:
    if rank is None or restart is None:
        return NOBODY
    return who_of({"node_rank": int(rank), "attempt": int(restart)})


def peel(text: str) -> Layer | None:
    """Take off everything before the message."""
    if not text.startswith(_NAME):
        return None
    stamp = match_iso(text, len(_NAME))
    found = None if stamp is None else _HEAD.match(text, stamp.end)
    if stamp is None or found is None:
        return None
    return Layer(text[found.end() :], stamp.ns, stamp.zone_stated, _who(found[1], found[2]))
