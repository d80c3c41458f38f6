"""systemd's journal: `journalctl -o json`, and text lines of services in syslog form.

    {"__REALTIME_TIMESTAMP": "1741038060012000", "_HOSTNAME": "gpu-n01", "_PID": "4242", "MESSAGE": "text"}
    Feb 18 04:11:47 gpu-n01 train[4242]: text                  (its time has no year: `own_time`)
    2025-02-18T04:11:47+0100 gpu-n01 train[4242]: text         (its stamp is a layer of its own)

Kernel messages are another parser's and come out as no line at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from gpufleet_cli.parsers.wrappers.layer import Layer, Who, majority, who_of
from gpufleet_cli.parsers.wrappers.objects import Json, number_of, text_of, time_of

STARTS = ""

_STAMP = r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d) |[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )"
_TAG = re.compile(r"([A-Za-z0-9][\w.-]{0,254}) ([\w./@:-]{1,64})(?:\[(\d{1,10})\])?: ")
_LINE = re.compile(_STAMP + _TAG.pattern)


def of_object(obj: Json) -> Layer | None:
    """The line in one journal entry."""
    if "__REALTIME_TIMESTAMP" not in obj or "MESSAGE" not in obj:
        return None
    text = text_of(obj["MESSAGE"])
    if obj.get("_TRANSPORT") == "kernel" or text is None:
        return Layer(None)
    ns, _ = time_of(obj["__REALTIME_TIMESTAMP"])
    host = text_of(obj.get("_HOSTNAME"))
    container = text_of(obj.get("CONTAINER_NAME"))
    who = who_of({"node": host, "pid": number_of(obj.get("_PID")), "container": container})
    partial = obj.get("CONTAINER_PARTIAL_MESSAGE") == "true"
    return Layer(text.rstrip("\r\n"), ns, ns is not None, who, False, partial)


def fits(sample: Sequence[str]) -> bool:
    """Nearly all lines are a stamp, one host and a service with its process id."""
    if not majority(_LINE.match, sample, share=0.9):
        return False
    found = [match for match in map(_LINE.match, sample) if match is not None]
    return sum(1 for match in found if match[3]) * 2 >= len(found)


@lru_cache(maxsize=4096)
def _who(host: str, pid: str | None) -> Who:
    return who_of({"node": host, "pid": None if pid is None else int(pid)})


def peel(text: str) -> Layer | None:
    """Take off host and service; a syslog stamp stays in the text, for its year must be found."""
    found = _TAG.match(text)
    if found is None:
        found = _LINE.match(text) if text[0].isupper() else None
        if found is None:
            return None
        return Layer(text[:15] + " " + text[found.end() :], who=_who(found[1], found[3]))
    return Layer(text[found.end() :], who=_who(found[1], found[3]))
