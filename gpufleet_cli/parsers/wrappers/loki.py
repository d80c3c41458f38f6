"""Grafana Loki: `query_range` answers, `logcli`, and what Grafana's Explore page downloads.

    {"data": {"resultType": "streams", "result": [{"stream": {labels}, "values": [["ns", "line"], ...]}]}}
    {"labels": {...}, "line": "text", "timestamp": "..."}        logcli -o jsonl
    2025-05-12T09:57:45Z {pod="sft-0", container="t"} text       logcli -o default, the client's zone
    [{"line": "text", "timestamp": "ns", "date": "...", "fields": {labels}}]

The default direction is newest first. A limit (100, 1000, 5000, ...) drops the old end silently.
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

from gpufleet_cli.parsers.wrappers import labels
from gpufleet_cli.parsers.wrappers.layer import Entry, Layer, Who
from gpufleet_cli.parsers.wrappers.objects import Json, time_of
from gpufleet_cli.timestamps import match_iso

STARTS = "0123456789"

_LABELS = re.compile(
    r"\s{1,4}\{((?:[\w.]{1,128}=\"(?:[^\"\\]|\\.){0,1024}\",? ?){0,64})\}(?: |\t|$)"
)
_PAIR = re.compile(r"([\w.]{1,128})=\"((?:[^\"\\]|\\.){0,1024})\"")
_LIMITS = frozenset((100, 200, 500))


@lru_cache(maxsize=4096)
def _who(text: str) -> Who:
    return labels.of(dict(_PAIR.findall(text)))


def peel(text: str) -> Layer | None:
    """Take off time and labels of `logcli -o default`."""
    if "{" not in text[:64]:
        return None
    stamp = match_iso(text)
    found = None if stamp is None else _LABELS.match(text, stamp.end)
    if stamp is None or found is None:
        return None
    return Layer(text[found.end() :], stamp.ns, stamp.zone_stated, _who(found[1]))


def of_object(obj: Json) -> Layer | None:
    """The line in one object of `logcli -o jsonl` or of Explore."""
    line, names = obj.get("line"), obj.get("labels", obj.get("fields"))
    if not isinstance(line, str) or not isinstance(names, dict):
        return None
    ns, stated = time_of(obj.get("timestamp", obj.get("date")))
    return Layer(line.rstrip("\r\n"), ns, stated, labels.of(names))


def of_document(doc: object) -> tuple[list[Entry], list[str]] | None:
    """All lines of an answer, each stream in its own direction (sorting comes later)."""
    if not isinstance(doc, dict):
        return None
    data = doc.get("data", doc)
    streams = data.get("result", data.get("streams")) if isinstance(data, dict) else None
    if not isinstance(streams, list) or not any(
        isinstance(s, dict) and isinstance(s.get("values"), list) and "stream" in s for s in streams
    ):
        return None
    entries: list[Entry] = []
    for stream in streams:
        if isinstance(stream, dict) and isinstance(stream.get("values"), list):
            entries += _lines(stream)
    count = len(entries)
    limit = count in _LIMITS or (count > 0 and count % 1000 == 0)
    why = [f"exactly {count} lines: a query limit may have dropped the old end"] if limit else []
    return entries, why


def _lines(stream: Json) -> list[Entry]:
    names = stream.get("stream")
    who = labels.of(names) if isinstance(names, dict) else ()
    found: list[Entry] = []
    for value in stream["values"]:
        if not isinstance(value, list) or len(value) < 2 or not isinstance(value[1], str):
            continue
        ns, stated = time_of(value[0])
        metadata = value[2] if len(value) > 2 and isinstance(value[2], dict) else None
        own = (
            who
            if metadata is None
            else tuple(sorted({**dict(who), **dict(labels.of(metadata))}.items()))
        )
        found.append(Entry(value[1].rstrip("\r\n"), ns, stated, own))
    return found if is_forward([entry.ns for entry in found]) else found[::-1]


def is_forward(times: list[int | None]) -> bool:
    """False when a list of times runs from new to old."""
    known = [ns for ns in times if ns is not None]
    falls = sum(1 for a, b in itertools.pairwise(known) if b < a)
    rises = sum(1 for a, b in itertools.pairwise(known) if b > a)
    return rises >= falls
