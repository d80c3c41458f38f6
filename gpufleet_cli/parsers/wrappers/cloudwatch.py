"""Amazon CloudWatch Logs.

    {"events": [{"logStreamName": "...", "timestamp": 1628785200600, "message": "text"}]}   filter-log-events
    {"results": [[{"field": "@timestamp", "value": "..."}, {"field": "@message", ...}]]}     Insights
    2025-05-12T09:57:45.014000+00:00 stream/name text                                        aws logs tail

Times are milliseconds; the order of equal times is the order of events. A `nextToken` means that
there was more. Stream names of Container Insights hold a path on the node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from gpufleet_cli.parsers.wrappers import paths
from gpufleet_cli.parsers.wrappers.layer import Entry, Layer, Value, Who, majority, who_of
from gpufleet_cli.parsers.wrappers.objects import time_of
from gpufleet_cli.timestamps import match_iso

STARTS = "0123456789"

_STREAM = re.compile(r" ([A-Za-z0-9][\w./:$\[\]-]{3,511})(?: |$)")
_PROCESS = re.compile(r":\d+:\d+$")
_CONTAINER = re.compile(r"var\.log\.containers\.(.{1,300}\.log)$")
_ORDINAL = re.compile(r"[a-z][a-z0-9.]*(?:-[a-z0-9.]+)*-\d{1,5}")


@lru_cache(maxsize=4096)
def who_of_stream(name: str) -> Who:
    """The sub-stream's name, and the pod that a part of it names."""
    fields: dict[str, Value | None] = {"stream": name}
    found = _CONTAINER.search(name)
    known = paths.of_node_file(found[1]) if found else paths.of_node_file(f"/{name}")
    fields.update(known)
    if not known:
        named = [part for part in name.split("/") if _ORDINAL.fullmatch(part)]
        if named:
            fields["pod"] = named[0]
    return who_of(fields)


def _stream_of(text: str) -> tuple[int, bool, str, int] | None:
    stamp = match_iso(text) if "+00:00" in text else None
    if stamp is None or not text.startswith("+00:00", stamp.end - 6):
        return None
    found = _STREAM.match(text, stamp.end)
    if found is None or not ("/" in found[1] or "-" in found[1]) or _PROCESS.search(found[1]):
        return None
    return stamp.ns, stamp.zone_stated, found[1], found.end()


def fits(sample: Sequence[str]) -> bool:
    """Nearly all lines of `aws logs tail` have a stream name as second word, and few names exist, or
    all are under one prefix."""
    if not majority(_stream_of, sample, share=0.95):
        return False
    names = Counter(found[2] for found in map(_stream_of, sample) if found is not None)
    prefixes = {name.partition("/")[0] if "/" in name else None for name in names}
    is_one_job = len(prefixes) == 1 and None not in prefixes
    return len(names) <= max(1, sum(names.values()) // 2) or is_one_job


def peel(text: str) -> Layer | None:
    """Take off time and stream name."""
    found = _stream_of(text)
    if found is None:
        return None
    ns, stated, name, end = found
    return Layer(text[end:], ns, stated, who_of_stream(name))


def of_document(doc: object) -> tuple[list[Entry], list[str]] | None:
    """All events of an answer."""
    if not isinstance(doc, dict):
        return None
    events, results = doc.get("events"), doc.get("results")
    entries: list[Entry] = []
    if isinstance(events, list) and all(isinstance(e, dict) for e in events):
        if not any("message" in e and "timestamp" in e for e in events) and events:
            return None
        for event in events:
            _add(entries, event.get("timestamp"), event.get("message"), event.get("logStreamName"))
    elif isinstance(results, list) and all(isinstance(row, list) for row in results):
        for row in results:
            cells = {c.get("field"): c.get("value") for c in row if isinstance(c, dict)}
            _add(entries, cells.get("@timestamp"), cells.get("@message"), cells.get("@logStream"))
        if results and not entries:
            return None
    else:
        return None
    why = ["the answer has a next page that is not here"] if doc.get("nextToken") else []
    return entries, why


def _add(entries: list[Entry], time: object, message: object, stream: object) -> None:
    if isinstance(message, str):
        ns, stated = time_of(time)
        who = who_of_stream(stream) if isinstance(stream, str) else ()
        entries.append(Entry(message.rstrip("\r\n"), ns, stated or ns is not None, who))
