"""Datadog: the JSON of its logs API and its CSV export (also other tables of time and message).

    {"data": [{"type": "log", "attributes": {"timestamp": "...", "host": "...", "message": "text", "tags": [...]}}]}
    Date,Host,Service,Message

The export is capped and newest first. `Date` is when the text was taken in, unless it was parsed.
"""

from __future__ import annotations

import csv
import io

from gpufleet_cli.errors import ParseError
from gpufleet_cli.parsers.wrappers import labels
from gpufleet_cli.parsers.wrappers.layer import Entry, Layer, Who
from gpufleet_cli.parsers.wrappers.objects import Json, first, text_of, time_of

_TIME_COLUMNS = ("date", "timestamp", "@timestamp", "time", "_time", "tsns")
_TEXT_COLUMNS = ("message", "@message", "content", "line", "log", "msg", "_msg")
_FIELD_LIMIT = 16 * 1024 * 1024


def of_object(obj: Json) -> Layer | None:
    """The line in one event of the API."""
    inner = obj.get("attributes") if obj.get("type") == "log" else obj.get("content")
    if not isinstance(inner, dict):
        return None
    text = text_of(first(inner, "message", "msg"))
    if text is None:
        return None
    ns, stated = time_of(first(inner, "timestamp", "date"))
    return Layer(text.rstrip("\r\n"), ns, stated, _who(inner))


def _who(inner: Json) -> Who:
    names: dict[str, object] = {}
    tags = inner.get("tags")
    for tag in tags if isinstance(tags, list) else ():
        name, _, value = str(tag).partition(":")
        names.setdefault(name.removeprefix("kube_"), value)
    nested = inner.get("attributes")
    if isinstance(nested, dict):
        names.update(nested)
    if isinstance(inner.get("host"), str):
        names.setdefault("host", inner["host"])
    return labels.of(names)


def of_document(doc: object) -> tuple[list[Entry], list[str]] | None:
    """All events of an answer of the API."""
    data = doc.get("data", doc.get("logs")) if isinstance(doc, dict) else None
    if not isinstance(data, list):
        return None
    layers = [of_object(item) for item in data if isinstance(item, dict)]
    found = [layer for layer in layers if layer is not None and layer.rest is not None]
    if not found:
        return None
    return [Entry(x.rest or "", x.ns, x.zone_stated, x.who) for x in found], []


def columns(head: str) -> tuple[int, int, list[str]] | None:
    """(time column, message column, names) when a first line is the header of such a table."""
    line = head.split("\n", 1)[0].strip("\ufeff\r")
    if "," not in line or len(line) > 4096:
        return None
    try:
        names = [name.strip().lower() for name in next(csv.reader([line]), [])]
    except csv.Error:
        return None
    time = next((names.index(name) for name in _TIME_COLUMNS if name in names), None)
    text = next((names.index(name) for name in _TEXT_COLUMNS if name in names), None)
    return None if time is None or text is None else (time, text, names)


def of_table(text: str) -> tuple[list[Entry], list[str]] | None:
    """All rows of a CSV export."""
    found = columns(text)
    if found is None:
        return None
    time, message, names = found
    csv.field_size_limit(_FIELD_LIMIT)
    reader = csv.reader(io.StringIO(text, newline=""))
    entries: list[Entry] = []
    try:
        next(reader)
        for row in reader:
            if len(row) > max(time, message):
                ns, stated = time_of(row[time])
                who = labels.of({n: v for n, v in zip(names, row, strict=False) if n != "message"})
                entries.append(Entry(row[message].rstrip("\r\n"), ns, stated, who))
    except csv.Error as exc:
        raise ParseError(f"not a CSV export: {exc}") from exc
    return entries, []
