"""Ray's driver output: which worker printed the line, by process id and node address.

    (RayTrainWorker pid=4242, ip=10.0.0.7) text
    (MegatronPolicyWorker[rank=3] pid=4242, ip=10.0.0.7) text
    (pid=4242) text [repeated 7x across cluster]

`[repeated 7x ...]` is one worker's text standing for seven: the other six are not silent.
Workers on the head node carry no `ip=`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gpufleet_cli.parsers.wrappers.layer import Layer, Who, who_of

STARTS = "("

_ACTOR = re.compile(
    r"\((?:[^()=\n]{0,120}?(?:\[rank=(\d{1,6})\])?(?:\([^()\n]{0,80}\))? ?)?"
    r"pid=(\d{1,10})(?:, ip=([0-9a-fA-F.:]{2,45}))?\) ?"
)
REPEATED = re.compile(
    r" ?\[repeated (\d{1,7})x across cluster\](?: \(Ray deduplicates logs.{0,300})?$"
)


@lru_cache(maxsize=65_536)
def _who(rank: str | None, pid: str, address: str | None) -> Who:
    return who_of({"rank": None if rank is None else int(rank), "pid": int(pid), "host": address})


def peel(text: str) -> Layer | None:
    """Take off the actor's name and the note of repetition."""
    found = _ACTOR.match(text)
    if found is None:
        return None
    rest = text[found.end() :]
    if rest.endswith(")") or rest.endswith("]"):
        rest = REPEATED.sub("", rest)
    return Layer(rest, who=_who(found[1], found[2], found[3]))
