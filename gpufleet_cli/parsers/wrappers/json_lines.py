"""A line that is one JSON object: whose format it is, its families decide in order."""

from __future__ import annotations

import msgspec

from gpufleet_cli.parsers.wrappers import (
    application_json,
    cloud_logging,
    datadog,
    docker,
    elastic,
    journal,
    loki,
    stern_json,
    victorialogs,
)
from gpufleet_cli.parsers.wrappers.layer import Layer

STARTS = "{"

OBJECTS = (
    docker.of_object,
    victorialogs.of_object,
    loki.of_object,
    journal.of_object,
    cloud_logging.of_object,
    stern_json.of_object,
    elastic.of_object,
    datadog.of_object,
    application_json.of_object,
)
"""Ways to read an object, from the most telling keys to the least."""

_decode = msgspec.json.Decoder(type=dict).decode


def peel(text: str) -> Layer | None:
    """The line inside the object, None when it is no object or no record of a log."""
    if not text.rstrip().endswith("}") or text.count("{") + text.count("[") > 100_000:
        return None
    try:
        obj = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return of_object(obj)


def of_object(obj: dict[str, object]) -> Layer | None:
    """The line inside a decoded object."""
    for read in OBJECTS:
        layer = read(obj)
        if layer is not None:
            return layer
    return None
