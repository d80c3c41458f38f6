"""Lines of evidence as they stand there: what a claim cites, and what a rank wrote last.

Files are read once more, one at a time, and only those that are cited. A document (an export of a log
store) counts its entries, as the parser of logs does.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from gpufleet_cli.errors import ParseError
from gpufleet_cli.evidence import Evidence, Target
from gpufleet_cli.facts import Origin
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers import log_documents
from gpufleet_cli.parsers.log_pages import wide_encoding
from gpufleet_cli.parsers.log_text import decode, printable
from gpufleet_cli.postmortem_card import LogLine

LONGEST = 400
BEFORE, AT_END = 6, 12
_FAR = 400
CHUNK = 1 << 16
LONGEST_READ = 1 << 16
_TAG = re.compile(
    r"\[(?:default|rank|trainer)\d{1,6}\](?=:)|^\s{0,8}\d{1,6}: |\[\d{1,6},\d{1,6}\]<std(?:out|err)>"
)


class Rows(Protocol):
    """Lines by their index from 0."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> str | bytes: ...


class Text:
    """Bytes as lines, found by counting newlines chunk by chunk: a log of gigabytes is never held as lines."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self._size = read, size
        self._before = [0]
        for at in range(0, size, CHUNK):
            self._before.append(self._before[-1] + read(at, at + CHUNK).count(b"\n"))

    def __len__(self) -> int:
        return self._before[-1] + 1

    def __getitem__(self, index: int, /) -> bytes:
        start = 0 if index == 0 else self._newline(index - 1) + 1
        end = self._newline(index) if index < self._before[-1] else self._size
        if end - start <= LONGEST_READ:
            return self._read(start, end)
        head = self._read(start, start + LONGEST_READ)
        return self._read(end - LONGEST_READ, end) if b"\r" in head else head

    def _newline(self, number: int) -> int:
        """Where the newline of this number (from 0) stands."""
        chunk = bisect_right(self._before, number) - 1
        data = self._read(chunk * CHUNK, (chunk + 1) * CHUNK)
        at = -1
        for _ in range(number - self._before[chunk] + 1):
            at = data.find(b"\n", at + 1)
        return chunk * CHUNK + at


class Lines:
    """The lines of the files of a target, of one file at a time."""

    def __init__(self, target: Target) -> None:
        self._by_path = {e.path: e for e in target.evidences}
        self._path: str | None = None
        self._lines: Rows = ()

    def of(self, path: str) -> Rows:
        """All lines of a file, nothing where it cannot be read."""
        if path != self._path:
            evidence = self._by_path.get(path)
            self._lines = () if evidence is None else _lines(evidence)
            self._path = path
        return self._lines

    def line(self, origin: Origin) -> str | None:
        """The line of a place; None where it is none of a text."""
        lines = self.of(origin.path)
        if origin.line is None or not 0 < origin.line <= len(lines):
            return None
        return _shown(lines[origin.line - 1])


def _lines(evidence: Evidence) -> Rows:
    try:
        document = log_documents.read_document(evidence.head, evidence.read, evidence.size_bytes)
        if document is not None and document.entries:
            return [entry.text for entry in document.entries]
        wide = wide_encoding(evidence.head)
        if evidence.file is not None and wide is None:
            return Text(partial(_part, evidence.file), evidence.size_bytes)
        data = evidence.read()
        if wide is not None:
            data = data.decode(wide, "replace").encode("utf-8", "replace")
        return Text(partial(_slice, data), len(data))
    except ParseError:
        return ()


def _slice(data: bytes, start: int, end: int) -> bytes:
    return data[start:end]


def _part(file: Path, start: int, end: int) -> bytes:
    try:
        with file.open("rb", buffering=0) as source:
            source.seek(start)
            return source.read(end - start)
    except OSError:  # gone since it was read: then it is not quoted
        return b""


def _shown(line: str | bytes) -> str:
    """What can be seen of a line: of a progress bar its last state, of Docker's JSON the time and the text."""
    text = decode(line[: 1 << 16]) if isinstance(line, bytes) else line[: 1 << 16]
    if text.startswith('{"log":'):
        text = _of_docker(text)
    pieces = [piece for piece in text.replace("\0", "").split("\r") if piece.strip()]
    return " ".join(printable(pieces[-1] if pieces else "").split("\n"))[:LONGEST].rstrip()


def _of_docker(text: str) -> str:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return text
    log, time = js.text_at(told, "log"), js.text_at(told, "time")
    return text if log is None else f"{time} {log.rstrip()}" if time else log.rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Where a rank wrote in one file: its last ordinary line, its last one, and lines known to be its own.
    `alone`: nobody else writes there."""

    path: str
    normal: int | None
    last: int
    known: frozenset[int]
    alone: bool


def last_lines(lines: Lines, stretch: Stretch) -> tuple[LogLine, ...]:
    """What a rank wrote last: up to its last ordinary line, and at its very end."""
    every = lines.of(stretch.path)
    shown: dict[int, str] = {}
    ends = ((stretch.normal, BEFORE), (stretch.last, AT_END))
    for anchor, most in ends[: 1 if stretch.normal == stretch.last else 2]:
        if anchor is not None and 0 < anchor <= len(every):
            for number in _own(every, anchor, most, stretch):
                shown[number] = _shown(every[number - 1])
    return tuple(
        LogLine(number=number, text=text, mark=number == stretch.normal)
        for number, text in sorted(shown.items())
        if text
    )


def _own(every: Rows, anchor: int, most: int, stretch: Stretch) -> list[int]:
    """The numbers of up to `most` lines of the rank, the anchor last."""
    tag = _tag(every[anchor - 1])
    found: list[int] = []
    for number in range(anchor, max(0, anchor - _FAR), -1):
        line = every[number - 1]
        if not line.strip():
            continue
        own = tag is not None and _tag(line) == tag
        if stretch.alone or own or number == anchor or number in stretch.known:
            found.append(number)
            if len(found) == most:
                break
    return found


def _tag(line: str | bytes) -> str | None:
    """What a launcher puts before the lines of one rank."""
    text = line[:200].decode("latin-1") if isinstance(line, bytes) else line[:200]
    found = _TAG.search(text)
    return None if found is None else found[0].strip()


def quoted(lines: Lines, origins: Iterable[Origin]) -> dict[Origin, str | None]:
    """The line of each place; file by file, since one is open at a time."""
    ordered = sorted(set(origins), key=lambda o: (o.path, o.line or 0, o.entry or 0))
    return {one: None if one.line is None else lines.line(one) or None for one in ordered}
