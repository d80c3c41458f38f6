"""The lines around a line: those behind it that a recogniser asks for, those that tell its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

from gpufleet_cli.parsers.log_line import LogLine
from gpufleet_cli.parsers.log_reader import PAGE_SHIFT, Raw, Voice
from gpufleet_cli.timestamps import NS_PER_S

if TYPE_CHECKING:
    from gpufleet_cli.parsers.log_stream import LogStream

_PER_LINE = 16
_SLACK_LINES = 64
_SAME_TIME_NS = 5 * NS_PER_S
_NEIGHBOURS = 48
_MASK = (1 << PAGE_SHIFT) - 1


class Lookahead:
    """`following(n)` for one line: lines of the same speaker, or of nobody in the same stream.

    Other speakers' lines between them are passed over, a bounded number of them.
    """

    def __init__(self, stream: LogStream, index: int, raw: Raw) -> None:
        self.stream = stream
        self.index = index
        self.raw = raw

    def __call__(self, count: int) -> Sequence[LogLine]:
        return _Lines(self, count)

    def lines(self, count: int) -> Iterator[LogLine]:
        """Up to `count` lines, read one by one as they are asked for."""
        pages, index = self.stream.pages, self.index
        start = self.raw.end + 1
        looked = 0
        skip = set(self.raw.parts)
        while count > 0 and looked < _SLACK_LINES + count * _PER_LINE:
            data = pages[index].data
            if start >= len(data):
                index, start = index + 1, 0
                if index >= len(pages):
                    return
                continue
            looked += 1
            raw = self.stream.reader.line(index, start)
            newline = data.find(b"\n", start)
            is_part = start in skip or raw.pos & _MASK != start
            start = len(data) if newline < 0 else newline + 1
            if is_part or raw.text is None:
                continue
            skip.update(raw.parts)
            if _belongs(raw.voice, self.raw.voice):
                count -= 1
                yield self.stream.line_of(index, raw)


def between_stamps(stream: LogStream, index: int, raw: Raw) -> Raw:
    """A line without a time that stands between two stamps of nearly the same time has that."""
    if raw.ns is not None or not stream.reader.has_times:
        return raw
    before = _stamped(stream, index, raw, forward=False)
    if before is None or before.ns is None:
        return raw
    after = _stamped(stream, index, raw, forward=True)
    if after is None or after.ns is None or not 0 <= after.ns - before.ns <= _SAME_TIME_NS:
        return raw
    return raw._replace(ns=before.ns, zone_stated=before.zone_stated)


def _stamped(stream: LogStream, index: int, raw: Raw, *, forward: bool) -> Raw | None:
    """The nearest line of the stream that has a time, a bounded number of lines away."""
    data = stream.pages[index].data
    at = raw.pos & _MASK
    for _ in range(_NEIGHBOURS):
        if forward:
            at = data.find(b"\n", at) + 1
            if not 0 < at < len(data):
                return None
        elif at == 0:
            return None
        else:
            at = data.rfind(b"\n", 0, at - 1) + 1
        found = stream.reader.line(index, at)
        if found.ns is not None and found.voice.stream == raw.voice.stream:
            return found
    return None


def _belongs(voice: Voice, to: Voice) -> bool:
    return voice is to or (voice.is_nobody and voice.stream == to.stream)


class _Lines(Sequence[LogLine]):
    """A sequence that reads no further than it is looked at."""

    def __init__(self, ahead: Lookahead, count: int) -> None:
        self._source = ahead.lines(count)
        self._read: list[LogLine] = []

    def __iter__(self) -> Iterator[LogLine]:
        yield from self._read
        for line in self._source:
            self._read.append(line)
            yield line

    def __len__(self) -> int:
        self._read.extend(self._source)
        return len(self._read)

    @overload
    def __getitem__(self, index: int) -> LogLine: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LogLine]: ...
    def __getitem__(self, index: int | slice) -> LogLine | Sequence[LogLine]:
        self._read.extend(self._source)
        return self._read[index]
