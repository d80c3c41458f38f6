"""Log bytes made scannable, page by page: one encoding, no ANSI, no NULs, one kind of line end.

A page is the whole file up to `PAGE_BYTES`, larger files are several pages cut at line ends, so that
memory stays bounded. A carriage return inside a line (progress bars) becomes newline + return: the
piece is scanned as a line of its own, begins with the return, and counts into the same line number.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from gpufleet_cli.errors import ParseError
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.parsers.wrappers.layer import NOBODY, Entry

PAGE_BYTES = 64 << 20
WIDE_BYTES = 128 << 20  # of UTF-16, which takes several times its size while it is decoded
KEPT_PAGES = 3
_CUT_SEARCH = 1 << 20
_CHUNK_SHIFT = 16
_NO_ENTRY = Entry("", None, False, NOBODY)

_ANSI = re.compile(
    rb"\x1b(?:\[[0-9;:?<=>!]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_()#][0-9A-B]?)"
)
_BOMS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_UTF8_BOM = b"\xef\xbb\xbf"


class Page:
    """Clean bytes with their place, loaded when asked for.

    For documents `entry_starts` has the offset of each entry's text in the data.
    """

    def __init__(
        self,
        path: str,
        read: Callable[[], bytes],
        *,
        loaded: list[Page] | None = None,
        entries: Sequence[Entry] = (),
    ) -> None:
        self.path = path
        self.first_line = 1
        self.entries = entries
        self.entry_starts: Sequence[int] = ()
        self.has_returns = False
        self._read = read
        self._loaded = loaded
        self._data: bytes | None = None
        self._chunks = [0]
        self._counted: dict[int, tuple[int, int]] = {}

    @property
    def data(self) -> bytes:
        """The bytes, cleaned. Of the pages of one large file only the newest few stay in memory."""
        if self._data is None:
            self._data, self.has_returns = clean(self._read())
            if self._loaded is not None:
                self._loaded.append(self)
                if len(self._loaded) > KEPT_PAGES:
                    self._loaded.pop(0)._data = None
        return self._data

    def line_number(self, offset: int) -> int:
        """The 1-based physical line of an offset; in a document the 1-based index of the entry."""
        if self.entries:
            return bisect_right(self.entry_starts, offset)
        chunk = offset >> _CHUNK_SHIFT
        while len(self._chunks) <= chunk:
            last = len(self._chunks) - 1
            start = last << _CHUNK_SHIFT
            self._chunks.append(
                self._chunks[last] + self._newlines(start, start + (1 << _CHUNK_SHIFT))
            )
        base, lines = self._counted.get(chunk, (chunk << _CHUNK_SHIFT, self._chunks[chunk]))
        if offset < base:
            base, lines = chunk << _CHUNK_SHIFT, self._chunks[chunk]
        if offset != base:
            lines += self._newlines(base, offset)
        self._counted[chunk] = (offset, lines)
        return self.first_line + lines

    def _newlines(self, start: int, end: int) -> int:
        """Physical newlines in [start, end): those before a return are pieces of one line."""
        data = self.data
        count = data.count(b"\n", start, end)
        if self.has_returns:
            count -= data.count(b"\n\r", start, min(end + 1, len(data)))
        return count

    def outer(self, offset: int) -> Entry | None:
        """The document's entry at an offset; None where the line itself says everything."""
        if not self.entries:
            return None
        return self.entries[bisect_right(self.entry_starts, offset) - 1]


def clean(raw: bytes) -> tuple[bytes, bool]:
    """Bytes for scanning, and whether pieces behind carriage returns were cut off as lines."""
    if b"\0" in raw:
        raw = raw.translate(None, b"\0")  # a tenth of the time of `replace` where there are many
    if b"\x1b" in raw:
        raw = _ANSI.sub(b"", raw)
    if raw.startswith(_UTF8_BOM):
        raw = raw[3:]
    if b"\r" not in raw:
        return raw, False
    raw = raw.replace(b"\r\n", b"\n").rstrip(b"\r")
    if b"\r" not in raw:
        return raw, False
    return raw.replace(b"\r", b"\n\r"), True


def wide_encoding(head: bytes) -> str | None:
    """UTF-16 by its mark, or by every second byte being NUL (PowerShell's redirection)."""
    for bom, name in _BOMS:
        if head.startswith(bom):
            return name
    sample = head[:512]
    if len(sample) >= 16:
        for offset, name in ((1, "utf-16-le"), (0, "utf-16-be")):
            half = sample[offset::2]
            if half.count(0) * 10 >= len(half) * 9 and sample[1 - offset :: 2].count(0) * 10 < len(
                half
            ):
                return name
    return None


def pages_of(evidence: Evidence) -> list[Page]:
    """The pages of a log file, one unless it is large."""
    path, file, size = evidence.path, evidence.file, evidence.size_bytes
    if file is None or size <= PAGE_BYTES:
        return _pages_of_bytes(path, evidence.read())
    read = partial(_read_part, path, file)
    if wide_encoding(read(0, 1024)) is not None:
        return _pages_of_bytes(path, evidence.read())
    loaded: list[Page] = []
    return [Page(path, partial(read, a, b), loaded=loaded) for a, b in _bounds(read, size)]


def _pages_of_bytes(path: str, raw: bytes) -> list[Page]:
    wide = wide_encoding(raw[:1024])
    if wide is not None:
        raw = raw[-WIDE_BYTES:].decode(wide, "replace").lstrip("\ufeff").encode()
    read = partial(_slice, raw)
    return [Page(path, partial(read, a, b)) for a, b in _bounds(read, len(raw))]


def _slice(raw: bytes, start: int, end: int) -> bytes:
    return raw if start == 0 and end >= len(raw) else raw[start:end]


def _read_part(path: str, file: Path, start: int, end: int) -> bytes:
    try:
        with file.open("rb", buffering=0) as source:
            source.seek(start)
            parts = []
            while start < end and (part := source.read(end - start)):
                parts.append(part)
                start += len(part)
            return b"".join(parts)
    except OSError as exc:
        raise ParseError(f"{path} cannot be read: {exc.strerror}") from exc


def _bounds(read: Callable[[int, int], bytes], size: int) -> list[tuple[int, int]]:
    """Where to cut: behind the last newline of each page, or hard where a line is longer than that."""
    cuts = [0]
    while cuts[-1] + PAGE_BYTES < size:
        end = cuts[-1] + PAGE_BYTES
        newline = read(end - _CUT_SEARCH, end).rfind(b"\n")
        cuts.append(end if newline < 0 else end - _CUT_SEARCH + newline + 1)
    return list(pairwise([*cuts, size])) if size else [(0, 0)]


def page_of_entries(path: str, entries: Sequence[Entry]) -> Page:
    """A document's entries as one page; an entry of several lines keeps one number."""
    starts: list[int] = []
    parts: list[bytes] = []
    offset = 0
    for entry in entries:
        data = clean(entry.text.encode("utf-8", "replace"))[0].replace(b"\n\r", b"\n") + b"\n"
        starts.append(offset)
        parts.append(data)
        offset += len(data)
    whole = b"".join(parts)
    page = Page(path, lambda: whole, entries=entries or (_NO_ENTRY,))
    page.entry_starts = starts or (0,)
    return page
