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
_SERVICE = re.compile(
    r"\((?:raylet|gcs_server|autoscaler[^()\n]{0,40}|dashboard)(?:, ip=([0-9a-fA-F.:]{2,45}))?\) ?"
)
REPEATED = re.compile(
    r" ?\[repeated (\d{1,7})x across cluster\](?: \(Ray deduplicates logs.{0,300})?$"
)


@lru_cache(maxsize=65_536)
def _who(rank: str | None, pid: str | None, address: str | None) -> Who:
    numbers = {"rank": rank, "pid": pid}
    known = {name: int(value) for name, value in numbers.items() if value is not None}
    return who_of({"host": address, **known})


def peel(text: str) -> Layer | None:
    """Take off the actor's name and the note of repetition."""
    found = _ACTOR.match(text)
    if found is None:
        service = _SERVICE.match(text)
        return service and Layer(text[service.end() :], who=_who(None, None, service[1]))
    rest = text[found.end() :]
    if rest.endswith(")") or rest.endswith("]"):
        rest = REPEATED.sub("", rest)
    return Layer(rest, who=_who(found[1], found[2], found[3]))
