"""From an offset in a page to a line: text without wrappers, time, and who spoke.

A line is read when somebody asks for it and kept for a while, since recognisers look ahead. Who spoke
is a `Voice`: everything but the attempt, which depends on where in the stream the line stands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gpufleet_cli.parsers import log_parts
from gpufleet_cli.parsers.log_pages import Page
from gpufleet_cli.parsers.log_text import TEXT_LIMIT, decode, printable
from gpufleet_cli.parsers.scan import SAME_DIGITS
from gpufleet_cli.parsers.wrappers import (
    Unwrapped,
    collector,
    kubernetes,
    plan_for,
    program,
    unwrap,
)
from gpufleet_cli.parsers.wrappers.layer import Value, Who, join, who_of
from gpufleet_cli.parsers.wrappers.paths import Hints
from gpufleet_cli.timestamps import ISO, Stamp, fraction_ns, match_iso

SAMPLE_HEAD = 36
SAMPLE_TAIL = 16
PAGE_SHIFT = 40
_CACHED_LINES = 20_000
_SHAPES = 512
_OTHERS = 4096
_LONGEST_SHAPE = 1024
_MAX_PIECES = 512
_MAX_GLUED = 64

_GLUED = re.compile(
    r"(?<=[^\s])[ \t]{0,4}(?=\[[A-Za-z_]{1,16}\d{1,6}\]:\s?(?:\[[IWEF](?:\d{3,4} \d\d:| [A-Z])|Traceback \(most|\[rank\d))"
)
_DAYS = "MTWFS"  # a name of a day may begin another wrapper's time
_IDENTITY = ("rank", "prefix_rank", "local_rank", "task", "pid")


class Voice:
    """Who wrote a line, but for the attempt. Compared by identity: a reader makes each once.

    `is_nobody`: the line has no rank, local rank, task or process of its own.
    `process` names the process for in-process restarts, which change its rank.
    """

    __slots__ = ("fields", "is_nobody", "process", "stream")

    def __init__(self, stream: str, fields: dict[str, Value]) -> None:
        self.stream = stream
        self.fields = fields
        self.is_nobody = not any(name in fields for name in _IDENTITY)
        places = ("host", "local_rank", "pid", "task")
        own = tuple(fields.get(name) for name in places)
        self.process = (stream, *own, None if "local_rank" in fields else fields.get("prefix_rank"))


class Raw(NamedTuple):
    """A line. `pos` orders lines of a stream; `end` is the offset of the newline in the page.

    `text` is None for a line that is no line of ours. `parts` are offsets of further physical lines
    that were joined to this one, `glued` lines of other writers that stood at its end.
    """

    pos: int
    end: int
    text: str | None
    ns: int | None
    zone_stated: bool
    voice: Voice
    whos: tuple[Who, ...]
    parts: tuple[int, ...] = ()
    glued: tuple[Raw, ...] = ()


class Alike(NamedTuple):
    """What a line with a runtime's stamp shares with those that differ from it in digits alone: how
    the stamp is laid out, what stands between it and the text, where the text begins, and who wrote
    it."""

    fraction_end: int
    stamp_end: int
    middle: str
    text_start: int
    voice: Voice
    whos: tuple[Who, ...]

    def of(self, line: str) -> str:
        """What stands in that place of another line of the shape: the tag of whoever wrote that."""
        return line[self.stamp_end : self.text_start]

    def ns(self, line: str) -> int | None:
        """The time of such a line, None where it is none of these: a prefix names somebody else, or
        the digits of the stamp are no time."""
        if self.of(line) != self.middle:
            return None
        second = kubernetes.second_ns(
            line[: kubernetes.SECONDS_END], line[self.fraction_end : self.stamp_end]
        )
        if second is None:
            return None
        return second + fraction_ns(line[kubernetes.SECONDS_END + 1 : self.fraction_end])


class LineReader:
    """The lines of one stream. What fills up is the cache of lines and of voices."""

    def __init__(self, pages: Sequence[Page], hints: Hints, *, near_ns: int | None) -> None:
        self.pages = pages
        self.hints = hints
        self.path_who: Who = hints.who
        self._voices: dict[tuple[Who, ...], Voice] = {}
        self._only: Voice | None = None
        self._lines: dict[int, Raw] = {}
        self._parts: dict[int, bool] = {}
        self._firsts: dict[int, int] = {}
        self._alike: dict[bytes, Alike | None] = {}
        self._others: dict[tuple[bytes, str], Alike] = {}
        sample = self._sample()
        self.is_runtime_file = any(log_parts.RUNTIME.match(line) for line in sample)
        plan, found = plan_for(sample)
        self._unwrapped_before = dict(zip(sample, found, strict=True))
        owns = [program.read(one.text or " ", near_ns=one.ns) for one in found]
        self.year_known, near, self._is_given = _near(sample, found, owns, near_ns)
        self.year_given = self._is_given and any(own is not None and own.yearless for own in owns)
        shift = collector.shift_ns(_pairs(found, owns))
        self.plan = plan._replace(near_ns=near, shift_ns=shift)
        self.has_times = any(one.ns is not None for one in found) or any(
            own is not None and (own.ns is not None or own.yearless) for own in owns
        )
        self.reads_own = any(own is not None and own.who for own in owns)

    def _sample(self) -> list[str]:
        """Lines from the start of the stream and from its end."""
        first, last = self.pages[0].data, self.pages[-1].data
        lines = _whole_lines(first[:65_536])
        if len(last) > 65_536 or first is not last:
            lines = lines[:SAMPLE_HEAD] + _whole_lines(last[-16_384:])[1:]
        if len(lines) > SAMPLE_HEAD + SAMPLE_TAIL:
            lines = lines[:SAMPLE_HEAD] + lines[-SAMPLE_TAIL:]
        return [printable(decode(line[:4096])) for line in lines]

    def voice(self, whos: tuple[Who, ...]) -> Voice:
        """The one Voice of these layers; names on the line count before names of the path."""
        known = self._voices.get(whos) if self._only is None else self._only
        if known is not None:
            return known
        fields = join(whos)
        stream = self.hints.stream
        inner = fields.pop("stream", None)
        if inner is None and "pod" in fields:
            inner = "/".join(str(fields[n]) for n in ("pod", "container") if n in fields)
        if inner is not None:
            stream = f"{stream}#{inner}"
        path_who = self.path_who
        if "pod" in fields or "node" in fields:
            path_who = tuple(
                pair for pair in path_who if pair[0] not in ("pod", "node", "node_rank")
            )
        fields = join((path_who, tuple(fields.items())))
        voice = Voice(stream, fields)
        self._voices[whos] = voice
        return voice

    def prove(self, fields: dict[str, Value]) -> None:
        """One process writes this stream: what some of its lines proved holds for all of them."""
        self.path_who = who_of({**dict(self.path_who), **fields})
        self._voices.clear()
        self._lines.clear()
        self._alike.clear()
        self._others.clear()
        self._only = self.voice(()) if fields else None

    def line(self, page_index: int, start: int) -> Raw:
        """The line that begins at an offset, or the joined one that this offset is a part of."""
        pos = (page_index << PAGE_SHIFT) + start
        known = self._lines.get(pos)
        if known is not None:
            return known
        page = self.pages[page_index]
        first = start
        if self.may_have_parts(page):
            first = self._firsts.get(pos, -1)
            if first < 0:
                base = page_index << PAGE_SHIFT
                first = log_parts.first_part(page.data, start, lambda at: base + at in self._firsts)
        raw = self._read(page, page_index, first)
        for part in raw.parts:
            self._firsts[(page_index << PAGE_SHIFT) + part] = first
        if len(self._lines) >= _CACHED_LINES:
            self._lines.clear()
        self._lines[pos] = raw
        return raw

    def alike(self, line: bytes) -> Alike | None:
        """How to read lines of the shape of this one, which has been read, by the same writer."""
        shape = line.translate(SAME_DIGITS)
        first = self._alike.get(shape)
        if first is None or not line.isascii():
            return None
        tag = first.of(line.decode())
        return first if tag == first.middle else self._others.get((shape, tag))

    def may_have_parts(self, page: Page) -> bool:
        """Whether the runtime's file has split lines at all; looked up once for each page."""
        if not self.is_runtime_file:
            return False
        known = self._parts.get(id(page))
        if known is None:
            known = self._parts[id(page)] = log_parts.has_parts(page.data)
        return known

    def window(self, page_index: int, start: int, end: int) -> Raw:
        """A piece out of a line too long to read: its text, with time and speaker of the line."""
        page = self.pages[page_index]
        first = page.data.rfind(b"\n", 0, start) + 1
        if first == start:
            return self.line(page_index, start)
        head = self._read(page, page_index, first)
        text = printable(decode(page.data[start:end]))
        return head._replace(
            pos=(page_index << PAGE_SHIFT) + start, end=end, text=text, parts=(), glued=()
        )

    def _read(self, page: Page, page_index: int, start: int) -> Raw:
        data = page.data
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        line = data[start : min(end, start + TEXT_LIMIT)]
        shape = line.translate(SAME_DIGITS)
        first = alike = self._alike.get(shape)
        if first is not None:
            text = line.decode()
            tag = first.of(text)
            alike = first if tag == first.middle else self._others.get((shape, tag))
            ns = None if alike is None else alike.ns(text)
            if alike is not None and ns is not None:
                pos = (page_index << PAGE_SHIFT) + start
                text = text[alike.text_start :]
                return Raw(pos, end, text, ns, True, alike.voice, alike.whos)
        raw = self._read_anew(page, page_index, start, end)
        if not page.entries:
            self._note_alike(shape, line, raw, first, alike)
        return raw

    def _note_alike(
        self, shape: bytes, line: bytes, raw: Raw, first: Alike | None, own: Alike | None
    ) -> None:
        """The first line of a shape; then of each further writer, since eight ranks share a pod's log."""
        if shape not in self._alike:
            if len(self._alike) < _SHAPES:
                self._alike[shape] = self._shared(line, raw)
        elif first is not None and own is None and len(self._others) < _OTHERS:
            found = self._shared(line, raw)
            if (
                found is not None
                and found[:2] == first[:2]
                and found.text_start == first.text_start
            ):
                self._others[shape, found.middle] = found

    def _shared(self, line: bytes, raw: Raw) -> Alike | None:
        """How to read the lines of this line's shape, where nothing but its stamp depends on digits.

        That is so for plain text behind a runtime's stamp and prefixes that are the same to the
        letter, and in files of no other wrapper.
        """
        if not raw.text or not raw.text[0].isalpha() or raw.text[0] in _DAYS:
            return None
        if raw.parts or raw.glued or len(line) > _LONGEST_SHAPE:
            return None
        if not self.plan.is_plain or not line.isascii() or b"{" in line[:64]:
            return None
        own = program.read(raw.text, near_ns=raw.ns) if self.reads_own else None
        if own is not None and own.who:
            return None
        text = line.decode()
        layer = kubernetes.peel(text)
        if layer is None or layer.ns != raw.ns or layer.rest is None or layer.partial:
            return None
        if not raw.zone_stated or not text.endswith(raw.text) or " NCCL " in text:
            return None
        stamp_end, text_start = len(text) - len(layer.rest), len(text) - len(raw.text)
        middle, fraction_end = text[stamp_end:text_start], kubernetes.fraction_end(text)
        return Alike(fraction_end, stamp_end, middle, text_start, raw.voice, raw.whos)

    def _read_anew(self, page: Page, page_index: int, start: int, end: int) -> Raw:
        data = page.data
        text = printable(decode(data[start : min(end, start + TEXT_LIMIT)].strip(b"\r")))
        whos: tuple[Who, ...] = ()
        ns, stated = None, False
        entry = page.outer(start)
        if entry is not None:
            ns, stated = entry.ns, entry.zone_stated
            whos = (entry.who,) if entry.who else ()
        elif data[start : start + 1] == b"\r":
            parent = self._parent(page_index, data, start)
            if parent is not None:
                ns, stated, whos = parent.ns, parent.zone_stated, parent.whos
        return self._unwrapped(page, page_index, (start, end), text, (ns, stated), whos)

    def _parent(self, page_index: int, data: bytes, start: int) -> Raw | None:
        """The line that a piece behind a carriage return belongs to."""
        first = start
        for _ in range(_MAX_PIECES):
            first = data.rfind(b"\n", 0, max(first - 1, 0)) + 1
            if data[first : first + 1] != b"\r":
                return self.line(page_index, first)
        return None

    def _unwrapped(
        self,
        page: Page,
        page_index: int,
        bounds: tuple[int, int],
        text: str,
        outer: tuple[int | None, bool],
        whos: tuple[Who, ...],
        *,
        may_be_glued: bool = True,
    ) -> Raw:
        start, end = bounds
        plan = self.plan
        found = self._unwrapped_before.get(text) or unwrap(text, plan)
        whos, rest = whos + found.whos, found.text
        ns, stated, coarse = *outer, False
        if ns is None:
            ns, stated, coarse = found.ns, found.zone_stated, found.coarse
        parts: tuple[int, ...] = ()
        if found.partial and rest is not None:
            text, parts, end = log_parts.joined(page.data, rest, start, end, plan)
            inner = unwrap(text, plan)
            whos, rest = whos + inner.whos, inner.text
        pos = (page_index << PAGE_SHIFT) + start
        if rest is None:
            return Raw(pos, end, None, ns, stated, self.voice(whos), whos)
        if rest is not text and not rest.isprintable():
            rest = printable(rest)
        glued: tuple[Raw, ...] = ()
        if may_be_glued and ("]:[" in rest or "]: T" in rest):
            rest, glued = self._unglue(page, page_index, bounds, rest, (ns, stated), whos)
        if ns is None or not stated or self.reads_own or " NCCL " in rest:
            near = plan.near_ns if ns is None else ns
            own = program.read(rest, near_ns=near)
            if own is not None:
                if ns is None and own.yearless and self._is_given:
                    self.year_given = True
                ns, stated = _better((ns, stated), coarse, own, plan.shift_ns)
                whos = _with_own(whos, own.who)
            elif ns is not None and not stated:
                ns -= plan.shift_ns
        return Raw(pos, end, rest, ns, stated, self.voice(whos), whos, parts, glued)

    def _unglue(
        self,
        page: Page,
        page_index: int,
        bounds: tuple[int, int],
        text: str,
        outer: tuple[int | None, bool],
        whos: tuple[Who, ...],
    ) -> tuple[str, tuple[Raw, ...]]:
        """Split off what other ranks wrote at the end of this line."""
        first, *rest = _GLUED.split(text, maxsplit=_MAX_GLUED)
        if not rest:
            return text, ()
        inner = tuple(w for w in whos if not any(name in ("prefix_rank", "rank") for name, _ in w))
        pieces = tuple(
            self._unwrapped(page, page_index, bounds, piece, outer, inner, may_be_glued=False)
            for piece in rest
        )
        return first, pieces


def _with_own(whos: tuple[Who, ...], own: Who) -> tuple[Who, ...]:
    """NCCL's host and process id name the writer only where nothing else does."""
    if not own:
        return whos
    is_process = own[0][0] == "host"
    if is_process and any(name in _IDENTITY for who in whos for name, _ in who):
        return whos
    return (*whos, own)


def _better(
    outer: tuple[int | None, bool], coarse: bool, own: program.Own, shift_ns: int
) -> tuple[int | None, bool]:
    """The outer time where it is exact and has a zone, else the program's own."""
    ns, stated = outer
    if ns is None:
        return own.ns, own.zone_stated
    if stated and not coarse:
        return ns, stated
    if own.ns is None or (not coarse and not shift_ns and not own.zone_stated):
        return ns - (0 if stated else shift_ns), stated
    return own.ns, own.zone_stated


def _whole_lines(data: bytes) -> list[bytes]:
    """Lines that are no blanks and no pieces behind a carriage return."""
    return [line for line in data.split(b"\n") if line and not line.startswith(b"\r")]


def _near(
    sample: Sequence[str],
    found: Sequence[Unwrapped],
    owns: Sequence[program.Own | None],
    given: int | None,
) -> tuple[bool, int | None, bool]:
    """Whether this stream has a year for sure, a time close to it for stamps without one, and whether that
    time is none of its own."""
    stand_in: int | None = None
    for one, own in zip(found, owns, strict=True):
        if one.ns is not None:
            return True, one.ns, False
        if own is not None and own.ns is not None:
            return True, own.ns, False
        if own is not None and own.yearless and stand_in is None:
            stand_in = program.yearless_start(one.text or " ")
    if stand_in is None:
        return True, given, True
    anywhere = next((s.ns for line in sample if (s := _stamp_in(line)) is not None), None)
    if anywhere is not None:
        return True, anywhere, False
    return given is not None, stand_in if given is None else given, True


def _stamp_in(line: str) -> Stamp | None:
    """A time with a year anywhere in a line, as in the agent's failure block."""
    found = ISO.search(line)
    return None if found is None else match_iso(line, found.start())


def _pairs(found: Sequence[Unwrapped], owns: Sequence[program.Own | None]) -> list[tuple[int, int]]:
    """(outer, inner) times of lines whose outer time has no zone."""
    return [
        (one.ns, own.ns)
        for one, own in zip(found, owns, strict=True)
        if one.ns is not None and not one.zone_stated and own is not None and own.ns is not None
    ]
