"""A stretch of a stream, line by line: who wrote when, and the newest step lines of each speaker.

Nearly all lines of a log differ from an earlier one in their digits alone. Of these, time and numbers
are taken from their known places; the others go through the reader and the recognisers one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from gpufleet_cli.facts import Speaker
from gpufleet_cli.parsers.log_line import Form
from gpufleet_cli.parsers.log_reader import PAGE_SHIFT, Alike, Raw
from gpufleet_cli.parsers.log_writes import Seen
from gpufleet_cli.parsers.scan import SAME_DIGITS

if TYPE_CHECKING:
    from gpufleet_cli.parsers.log_stream import LogStream, Window

MOST_KINDS = 1024
MOST_OTHER_KINDS = 8192
_MASK = (1 << PAGE_SHIFT) - 1
_NEWLINE = 0x0A


class Kind(NamedTuple):
    """What lines of one shape share: how to read them, who wrote them, and the form of a step line."""

    alike: Alike
    speaker: Speaker
    form: Form | None


class Run(NamedTuple):
    """Lines of one kind that follow each other, read."""

    kind: Kind
    lines: list[Seen]


Piece = Run | tuple[int, int]
"""Lines of a known kind, or the bounds of lines that are still to be read."""
_Step = tuple[int, Kind | None, Any]
"""A step line by its place, as it was seen if it is of a known kind, else its Raw and its modules."""


def read(stream: LogStream, window: Window, *, run: int, newest: int, older: int) -> None:
    """Of each speaker the `newest` step lines and some evenly out of the older; and every line seen.

    `run` numbers the stretch.
    """
    index = window[0]
    pieces = list(_pieces(stream, window, run))
    _recognise_steps(stream, window, _chosen(stream, index, pieces, newest, older))
    page = stream.pages[index]
    skip: set[int] = set()
    for piece in pieces:
        if isinstance(piece, Run):
            lines = [seen for seen in piece.lines if seen.pos & _MASK not in skip]
            stream.note_seen(piece.kind.speaker, lines)
            continue
        for raw in _lines(stream, index, piece, skip):
            line = page.line_number(raw.pos & _MASK)
            for part in (raw, *raw.glued):
                if part.text is not None:
                    account = stream.account(stream.attempts.speaker(part.voice, part.pos))
                    stream.note_line(account, part, page.path, line, run=run)


def read_steps(stream: LogStream, window: Window, *, newest: int, older: int) -> None:
    """Of each speaker the `newest` step lines and some evenly out of the older, and nothing else."""
    pieces = list(_pieces(stream, window, run=0))
    _recognise_steps(stream, window, _chosen(stream, window[0], pieces, newest, older))


# --- Lines of a known kind ------------------------------------------------------------------------


def _pieces(stream: LogStream, window: Window, run: int) -> Iterator[Piece]:
    """The lines that begin in a stretch, in order."""
    index, start, end = window
    page = stream.pages[index]
    if not _has_kinds(stream, index):
        yield start, end
        return
    stop = page.data.find(b"\n", end - 1)
    stretch = page.data[start : len(page.data) if stop < 0 else stop]
    shapes = stretch.translate(SAME_DIGITS).split(b"\n")
    path, kinds = page.path, stream.kinds
    first, number = start, page.line_number(start)
    pos = (index << PAGE_SHIFT) + start
    before: Kind | None = None
    found: list[Seen] = []
    for line, shape in zip(stretch.split(b"\n"), shapes, strict=True):
        kind = kinds.get(shape)
        if kind is None and shape not in kinds:
            kind = _kind_of(stream, index, pos & _MASK, line)
            if len(kinds) < MOST_KINDS:
                kinds[shape] = kind
        ns = None
        if kind is not None:
            text = line.decode()
            tag = kind.alike.of(text)
            if tag != kind.alike.middle:
                kind = _kind_by(stream, index, pos & _MASK, line, (shape, tag))
        if kind is not None:
            ns = kind.alike.ns(text)
            kind = None if ns is None else kind
        if kind is not before:
            yield from _ended(before, found, first, pos & _MASK)
            before, found, first = kind, [], pos & _MASK
        if kind is not None:
            found.append(Seen(pos, path, number, ns, True, text[kind.alike.text_start :], run))
        pos += len(line) + 1
        number += 1
    yield from _ended(before, found, first, pos & _MASK)


def _kind_by(
    stream: LogStream, index: int, at: int, line: bytes, who: tuple[bytes, str]
) -> Kind | None:
    """The kind of a line of a known shape by another writer than the first."""
    kinds = stream.other_kinds
    kind = kinds.get(who)
    if kind is None and who not in kinds:
        kind = _kind_of(stream, index, at, line)
        if len(kinds) < MOST_OTHER_KINDS:
            kinds[who] = kind
    return kind


def _ended(kind: Kind | None, found: list[Seen], first: int, end: int) -> Iterator[Piece]:
    """The piece before `end`, if there is any."""
    if kind is not None:
        yield Run(kind, found)
    elif first < end:
        yield first, end


def _has_kinds(stream: LogStream, index: int) -> bool:
    """Whether a line's shape tells all but its numbers: not where the place of a line counts."""
    page = stream.pages[index]
    return (
        stream.attempts.is_one
        and stream.scanners.often.digits_alike
        and not page.entries
        and not page.has_returns
        and not stream.reader.may_have_parts(page)
    )


def _kind_of(stream: LogStream, index: int, at: int, line: bytes) -> Kind | None:
    """The kind of a line; None where each line of its shape must be looked at."""
    raw = stream.reader.line(index, at)
    alike = stream.reader.alike(line)
    if alike is None:
        return None
    form: Form | None = None
    modules = stream.scanners.often.modules_for(line)
    if modules:
        form_of = getattr(stream.recognisers[modules[0]], "form_of", None)
        form = form_of(stream.line_of(index, raw)) if form_of and len(modules) == 1 else None
        if form is None:
            return None
    return Kind(alike, stream.attempts.speaker(raw.voice, raw.pos), form)


# --- Step lines -----------------------------------------------------------------------------------


def _chosen(
    stream: LogStream, index: int, pieces: Sequence[Piece], newest: int, older: int
) -> list[_Step]:
    """The step lines to read, in order."""
    scanner, reader = stream.scanners.often, stream.reader
    data = stream.pages[index].data
    by_voice: dict[int, list[_Step]] = {}
    for piece in pieces:
        if isinstance(piece, Run):
            kind, lines = piece
            if kind.form is not None:
                steps = by_voice.setdefault(id(kind.alike.voice), [])
                steps += [(seen.pos, kind, seen) for seen in lines]
            continue
        for span, modules in scanner.owned_spans(data, *piece):
            raw = reader.window(index, span.start, span.end)
            pos = (index << PAGE_SHIFT) + span.start
            by_voice.setdefault(id(raw.voice), []).append((pos, None, (raw, modules)))
    wanted: list[_Step] = []
    for steps in by_voice.values():
        wanted += steps[-newest:]
        before = steps[:-newest]
        few = min(older, len(before))
        wanted += [before[number * len(before) // few] for number in range(few)]
    return sorted(wanted, key=itemgetter(0))


def _recognise_steps(stream: LogStream, window: Window, steps: Sequence[_Step]) -> None:
    """Runs of one kind at once, the others one by one."""
    known: list[Seen] = []
    before: Kind | None = None
    for _, kind, what in steps:
        if kind is not before and before is not None:
            stream.note_steps(before, known)
            known = []
        before = kind
        if kind is not None:
            known.append(what)
        else:
            _recognise_one(stream, window, *what)
    if before is not None:
        stream.note_steps(before, known)


def _recognise_one(stream: LogStream, window: Window, raw: Raw, modules: Sequence[int]) -> None:
    index, start, _ = window
    data = stream.pages[index].data
    at = raw.pos & _MASK
    is_whole = not raw.parts and start <= at and (at == 0 or data[at - 1] == _NEWLINE)
    stream.recognise(index, raw, modules, stream.scanners.often, is_noted=is_whole)


def _lines(stream: LogStream, index: int, bounds: tuple[int, int], skip: set[int]) -> Iterator[Raw]:
    """Every line that begins in a stretch; parts of a joined line come once."""
    start, end = bounds
    data = stream.pages[index].data
    while start < end:
        newline = data.find(b"\n", start)
        newline = len(data) if newline < 0 else newline
        if newline > start and start not in skip:
            raw = stream.reader.line(index, start)
            skip.update(raw.parts)
            if raw.pos & _MASK == start:
                yield raw
        start = newline + 1
