"""`kubectl logs --timestamps --prefix` and the CRI log files of a node.

    2025-05-12T09:57:45.01404004Z text                        zeros trimmed, zone of the node
    [pod/NAME/CONTAINER] 2025-05-12T09:57:45.01404004Z text
    2025-05-12T09:57:45.014040040+07:00 stderr F text         nine digits; P: goes on in the next line

>>> peel("2025-05-12T09:57:45.014Z stderr F [rank0]: hello").rest
'[rank0]: hello'
"""

from __future__ import annotations

import re
from functools import lru_cache

from gpufleet_cli.parsers.wrappers.layer import NOBODY, Layer, Who, who_of
from gpufleet_cli.timestamps import NS_PER_S, fraction_ns, parse_rfc3339

STARTS = "[0123456789"

_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d):(\d\d)(?:\.(\d{1,12}))?(Z|[+-]\d\d:?\d\d)(?:[ \t]|$)"
    r"(?:(?:stdout|stderr) ([FP])(?::\S{1,32})?(?: |$))?"
)
SECONDS_END = len("2025-05-12T09:57:45")
_POD = re.compile(r"\[pod/([^/\]\s]{1,253})/([^\]\s]{1,253})\] ?")


@lru_cache(maxsize=4096)
def _minute_ns(minute: str, zone: str) -> int | None:
    found = parse_rfc3339(f"{minute}:00{zone}")
    return None if found is None else found[0]


@lru_cache(maxsize=65_536)
def _pod(pod: str, container: str) -> Who:
    return who_of({"pod": pod, "container": container})


def fraction_end(text: str) -> int:
    """Where the digits behind the seconds end, in a line that begins with a stamp."""
    found = _STAMP.match(text)
    return SECONDS_END if found is None or found[3] is None else found.end(3)


@lru_cache(maxsize=4096)
def second_ns(second: str, zone: str) -> int | None:
    """The time of a stamp without its fraction: the text up to the seconds, and that behind it."""
    layer = peel(second + zone)
    return None if layer is None else layer.ns


def peel(text: str) -> Layer | None:
    """Take off a pod prefix or a stamp; the other is the next layer."""
    if text[0] == "[":
        found = _POD.match(text)
        return found and Layer(text[found.end() :], who=_pod(found[1], found[2]))
    found = _STAMP.match(text)
    if found is None:
        return None
    minute, second, fraction, zone, tag = found.groups()
    start = _minute_ns(minute, zone)
    if start is None or second > "60":
        return None
    ns = start + int(second) * NS_PER_S + fraction_ns(fraction)
    return Layer(text[found.end() :], ns, True, NOBODY, False, tag == "P")
