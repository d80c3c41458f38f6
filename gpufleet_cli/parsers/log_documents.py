"""Logs that come as a whole document: JSON answers, exports of one object a line, CSV.

Their order is often newest first or none, so all of a document is read, sorted by time and handed on
as entries. Equal times keep the document's order, which for a newest-first document is reversed.
Files of one object a line whose order is the writer's own (Docker's, an application's) are no
documents: they are read like any other log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from gpufleet_cli.parsers.wrappers import (
    cloudwatch,
    datadog,
    elastic,
    json_lines,
    loki,
    torch_error_file,
)
from gpufleet_cli.parsers.wrappers.layer import Entry

DOCUMENT_LIMIT = 512 << 20

_READERS = (
    loki.of_document,
    cloudwatch.of_document,
    elastic.of_document,
    datadog.of_document,
    torch_error_file.of_document,
)
_EXPORT_KEYS = (
    frozenset(("line", "labels")), frozenset(("line", "fields")), frozenset(("_msg", "_time")), frozenset(("_source",)),
    frozenset(("@timestamp", "kubernetes")), frozenset(("date", "kubernetes")), frozenset(("timestamp", "textPayload")),
    frozenset(("timestamp", "jsonPayload")), frozenset(("attributes", "type")), frozenset(("__REALTIME_TIMESTAMP", "MESSAGE")),
)  # fmt: skip
_OTHERS = re.compile(
    rb'"(?:apiVersion|kind|pg_config|pg_status|nccl_comm_state|comm_lib_version|nccl_version|world_size|checkpoint_interval_seconds)"\s*:'
    rb'|"resultType"\s*:\s*"(?:matrix|vector|scalar|string)"'
)
_SPACE = b"\xef\xbb\xbf \t\r\n"
_JSON_START = re.compile(rb'\{\s*["}]|\[\s*(?:\{\s*["}]|\]\s*$)')
_BROKEN = (msgspec.DecodeError, RecursionError, UnicodeError)
_decode = msgspec.json.Decoder().decode


class Document(NamedTuple):
    """All entries, oldest first, what the document says is not in it, and whether it was cut off."""

    entries: list[Entry]
    gaps: list[str]
    cut: bool


def is_other_json(head: bytes) -> bool:
    """A JSON document that is no log: Kubernetes lists, metrics, recorder dumps, our own files."""
    text = head.lstrip(_SPACE)
    if _JSON_START.match(text) is None:
        return False
    obj = _object(text.split(b"\n", 1)[0].strip())
    return (obj is None or json_lines.of_object(obj) is None) and _is_foreign(head)


def _is_foreign(head: bytes) -> bool:
    found = _OTHERS.search(head)
    if found is not None:
        return True
    return b'"' in head and not _LOG_WORDS.search(head)


_LOG_WORDS = re.compile(
    rb'"(?:values|events|hits|_source|message|msg|log|line|_msg|event|textPayload|jsonPayload|MESSAGE|results|@message|step|text)"\s*:'
)


def read_document(head: bytes, load: Callable[[], bytes], size: int) -> Document | None:
    """The document in a file, None when the file is to be read line by line."""
    text = head.lstrip(_SPACE)
    if size > DOCUMENT_LIMIT:
        return None
    if _JSON_START.match(text) is not None:
        first = text.split(b"\n", 1)[0].strip()
        obj = _object(first)
        if obj is None or _is_single(text, first):
            return _whole(load())
        return _export(load()) if any(keys <= obj.keys() for keys in _EXPORT_KEYS) else None
    line = text.split(b"\n", 1)[0].decode("utf-8", "replace")
    if datadog.columns(line) is not None:
        table = datadog.of_table(load().decode("utf-8-sig", "replace"))
        return None if table is None else _sorted(table[0], table[1], cut=False)
    return None


def is_logcli(sample: Sequence[str]) -> bool:
    """Text of `logcli`, which is newest first by default."""
    found = sum(1 for line in sample if loki.peel(line) is not None)
    return found >= 2 and found * 10 >= len(sample) * 6


def sorted_logcli(lines: Sequence[str]) -> Document:
    """Its lines as entries; what carries no stamp belongs to the line before."""
    entries: list[Entry] = []
    for line in lines:
        layer = loki.peel(line) if line[:1].isdigit() else None
        if layer is not None and layer.rest is not None:
            entries.append(Entry(layer.rest, layer.ns, layer.zone_stated, layer.who))
        elif entries and line.strip():
            last = entries[-1]
            entries[-1] = last._replace(text=f"{last.text}\n{line}")
    return _sorted(entries, [], cut=False)


def _object(line: bytes) -> dict[str, object] | None:
    try:
        found = _decode(line)
    except _BROKEN:
        return None
    return found if isinstance(found, dict) else None


def _is_single(text: bytes, first: bytes) -> bool:
    """One object on one line that is a whole answer, and not the first of many records."""
    return text.rstrip() == first and json_lines.of_object(_object(first) or {}) is None


def _whole(data: bytes) -> Document | None:
    """The entries of a document; none of a foreign one. None where it is no JSON after all."""
    parsed = _parse(data)
    if parsed is None:
        return None
    doc, cut = parsed
    if isinstance(doc, list):
        rows = [item for item in doc if isinstance(item, dict)]
        return _sorted(_from_objects(rows), [], cut=cut)
    for read in _READERS:
        result = read(doc)
        if result is not None:
            return _sorted(result[0], result[1], cut=cut)
    return Document([], [], cut)


def _parse(data: bytes) -> tuple[object, bool] | None:
    """The decoded document; one that is cut off is closed behind its last whole element."""
    data = data.lstrip(b"\xef\xbb\xbf")
    try:
        return _decode(data), False
    except _BROKEN:
        closed = _close(data.decode("utf-8", "replace").encode())
    try:
        return _decode(closed), True
    except _BROKEN:
        return None


_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)  # keeps no way back
_MAX_DEPTH = 64


def _close(data: bytes) -> bytes:
    """Cut behind the last element that ended, and close what was open there."""
    stack: list[bytes] = []
    end, open_then = 0, b""
    for token in _TOKEN.finditer(data):
        mark = token[0]
        if mark in (b"{", b"["):
            stack.append(b"}" if mark == b"{" else b"]")
            if len(stack) > _MAX_DEPTH:
                break
        elif mark in (b"}", b"]"):
            if not stack or stack.pop() != mark:
                break
            if len(stack) <= _KEPT_DEPTH:
                end, open_then = token.end(), b"".join(reversed(stack))
    return data[:end] + open_then


_KEPT_DEPTH = 6


def _export(data: bytes) -> Document:
    rows = []
    broken = 0
    for line in data.split(b"\n"):
        obj = _object(line) if line.strip() else None
        if obj is not None:
            rows.append(obj)
        elif line.strip():
            broken += 1
    gaps = [f"{broken} lines are no JSON objects"] if broken > 1 else []
    return _sorted(_from_objects(rows), gaps, cut=bool(data) and not data.rstrip().endswith(b"}"))


def _from_objects(rows: Sequence[dict[str, object]]) -> list[Entry]:
    entries: list[Entry] = []
    for row in rows:
        layer = json_lines.of_object(row)
        if layer is not None and layer.rest is not None:
            entries.append(Entry(layer.rest, layer.ns, layer.zone_stated, layer.who, layer.partial))
    return entries


def _sorted(entries: list[Entry], gaps: list[str], *, cut: bool) -> Document:
    if not loki.is_forward([entry.ns for entry in entries]):
        entries = entries[::-1]
    keyed: list[tuple[int, int, Entry]] = []
    last = 0
    for index, entry in enumerate(entries):
        last = entry.ns if entry.ns is not None else last
        keyed.append((last, index, entry))
    keyed.sort(key=lambda item: item[:2])
    return Document(_whole_lines([entry for _, _, entry in keyed]), gaps, cut)


def _whole_lines(entries: list[Entry]) -> list[Entry]:
    """Join the parts of lines that the runtime split, per speaker."""
    if not any(entry.partial for entry in entries):
        return entries
    out: list[Entry] = []
    open_at: dict[object, int] = {}
    for entry in entries:
        at = open_at.pop(entry.who, None)
        if at is None:
            out.append(entry)
            at = len(out) - 1
        else:
            out[at] = out[at]._replace(text=out[at].text + entry.text)
        if entry.partial and len(out[at].text) < 1 << 20:
            open_at[entry.who] = at
    return out
