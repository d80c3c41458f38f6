"""Docker's json-file log: one object a line, long lines split at 16 KiB.

    {"log":"text\\n","stream":"stderr","time":"2023-06-20T18:00:09.000000242Z"}

A piece of a split line has no newline at the end of `log`.
"""

from __future__ import annotations

from gpufleet_cli.parsers.wrappers import labels
from gpufleet_cli.parsers.wrappers.layer import NOBODY, Layer
from gpufleet_cli.parsers.wrappers.objects import Json, time_of

_KEYS = {"log", "stream", "time", "attrs"}


def of_object(obj: Json) -> Layer | None:
    """The line in one object."""
    log = obj.get("log")
    if not isinstance(log, str) or "time" not in obj or not obj.keys() <= _KEYS:
        return None
    ns, stated = time_of(obj["time"])
    attrs = obj.get("attrs")
    who = labels.of(attrs) if isinstance(attrs, dict) else NOBODY
    return Layer(log.rstrip("\r\n"), ns, stated, who, False, not log.endswith("\n"))
