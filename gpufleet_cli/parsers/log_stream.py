"""One stream of log lines, read once: facts of its lines, and when each of its speakers wrote.

Small streams are read line by line. In large ones the middle is read only where the bytes pass finds
a candidate; line by line are read the head, the tail, the stretch before each first complaint, some
short samples (so that a change of pace shows), and the surroundings of the last line of a speaker
who stops before the tail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from gpufleet_cli.facts import Fact, Gap, LogSign, Origin, Progress, Sign, Speaker
from gpufleet_cli.parsers import log_attempts
from gpufleet_cli.parsers.lines import RECOGNISERS
from gpufleet_cli.parsers.log_attempts import Attempts
from gpufleet_cli.parsers.log_following import Lookahead
from gpufleet_cli.parsers.log_line import LogLine, Recogniser
from gpufleet_cli.parsers.log_pages import Page
from gpufleet_cli.parsers.log_reader import PAGE_SHIFT, LineReader, Raw
from gpufleet_cli.parsers.log_writes import Event, Seen, event_of
from gpufleet_cli.parsers.scan import Scanner, Span, compile_patterns
from gpufleet_cli.parsers.wrappers.layer import Value

DENSE_BYTES = 256 << 10
HEAD_BYTES = 16 << 10
TAIL_BYTES = 64 << 10
BEFORE_COMPLAINT_BYTES = 32 << 10
SAMPLE_BYTES = 2 << 10
SAMPLES = 24
MAX_CANDIDATES = 300_000
MAX_CLUSTERS = 8
_CLUSTER_BYTES = 256 << 10
_MASK = (1 << PAGE_SHIFT) - 1

_OWN_PATTERNS = (
    r"local[-_]ranks[-_]filter[= ]",
    re.escape("x across cluster]"),
    re.escape("unable to retrieve container logs"),
    re.escape("failed to try resolving symlinks in path"),
    re.escape("is waiting to start: "),
    re.escape("previous terminated container"),
    re.escape("Error from server ("),
)
_FILTER = re.compile(r"local[-_]ranks[-_]filter[= ]")
_NO_LOG = re.compile(
    r"unable to retrieve container logs for|failed to try resolving symlinks in path|"
    r"^Error from server \(|^error: .{0,300}(?:is waiting to start: |previous terminated container )"
)

Window = tuple[int, int, int]
"""(page index, start, end) of a stretch that is read line by line."""


class Scanners:
    """Scanners over the recognisers' patterns and our own, the latter as the last two modules."""

    def __init__(self, recognisers: tuple[Recogniser, ...]) -> None:
        sampled = [getattr(module, "SAMPLED", False) for module in recognisers]
        patterns = [module.PATTERNS for module in recognisers]
        rare = [() if often else own for own, often in zip(patterns, sampled, strict=True)]
        often = [own if often else () for own, often in zip(patterns, sampled, strict=True)]
        self.marker = len(recognisers)
        own = [log_attempts.PATTERNS, _OWN_PATTERNS]
        self.every: Scanner = compile_patterns([*patterns, *own])
        self.rare: Scanner = compile_patterns([*rare, *own])
        self.often: Scanner = compile_patterns(often)


@lru_cache(maxsize=4)
def scanners_for(recognisers: tuple[Recogniser, ...]) -> Scanners:
    """Compiled once per process."""
    return Scanners(recognisers)


class LogStream:
    """What one stream said. The lists fill up as it is read; nothing is shared between streams."""

    def __init__(
        self,
        pages: Sequence[Page],
        reader: LineReader,
        *,
        recognisers: tuple[Recogniser, ...] = RECOGNISERS,
    ) -> None:
        self.pages = pages
        self.reader = reader
        self.recognisers = recognisers
        self.scanners = scanners_for(recognisers)
        self.facts: list[Fact] = []
        self.gaps: list[Gap] = []
        self.progress: dict[tuple[Speaker, object, int | None], list[tuple[int, Progress]]] = {}
        self.events: dict[Speaker, list[Event]] = {}
        self.seen: dict[Speaker, list[Seen]] = {}
        self.filtered: set[str] = set()
        self.attempts = Attempts(())
        self._unavailable: set[int] = set()
        self._recognised: set[tuple[int, int]] = set()
        self._runs = 0

    def read(self) -> None:
        """Everything, in the order that the parts need each other."""
        dense = self._is_small()
        scanner = self.scanners.every if dense else self.scanners.rare
        found = self._candidates(scanner)
        self._learn(found)
        for page_index, span, modules in found:
            self._recognise(page_index, span, modules)
        if dense:
            windows = [(n, 0, len(page.data)) for n, page in enumerate(self.pages)]
        else:
            windows = self._windows()
        for window in windows:
            self._read_window(window, steps=not dense)
        if not dense:
            self._find_lost(windows)

    def _is_small(self) -> bool:
        size = 0
        for page in self.pages:
            size += len(page.data)
            if size > DENSE_BYTES:
                return False
        return True

    # --- Candidates ---------------------------------------------------------------------------

    def _candidates(self, scanner: Scanner) -> list[tuple[int, Span, Sequence[int]]]:
        found: list[tuple[int, Span, Sequence[int]]] = []
        skipped, before = 0, None
        for index, page in enumerate(self.pages):
            data = page.data
            if before is not None and before.path == page.path:
                page.first_line = before.line_number(len(before.data))
            for span in scanner.spans(data, 0, len(data)):
                if len(found) < MAX_CANDIDATES:
                    modules = scanner.modules_for(data[span.start : span.end])
                    found.append((index, span, modules))
                else:
                    skipped += 1
            before = page
        if skipped:
            self._gap(f"{skipped} further lines that look like errors", "over the limit per stream")
        return found

    def _learn(self, found: Sequence[tuple[int, Span, Sequence[int]]]) -> None:
        """Attempts, cycles, filters and missing logs, before any line gets its Speaker."""
        marker = self.scanners.marker
        single = self.reader.hints.single
        markers: list[Raw] = []
        stated: dict[str, set[Value]] = {"rank": set(), "host": set(), "pid": set()}
        for index, span, modules in found:
            if not single and marker not in modules and marker + 1 not in modules:
                continue
            raw = self.reader.window(index, span.start, span.end)
            if marker in modules:
                markers.append(raw)
            if marker + 1 in modules:
                self._note_pipeline(index, raw)
            for name, values in stated.items():
                if name in raw.voice.fields:
                    values.add(raw.voice.fields[name])
        if single:
            proven = {name: values.pop() for name, values in stated.items() if len(values) == 1}
            self.reader.prove(proven)
            markers = [self.reader.line(m.pos >> PAGE_SHIFT, m.pos & _MASK) for m in markers]
        self.attempts = Attempts(markers)

    def _note_pipeline(self, index: int, raw: Raw) -> None:
        text = raw.text or ""
        if _FILTER.search(text):
            self.filtered.add(raw.voice.stream)
        page = self.pages[index]
        if b"across cluster]" in page.data[raw.pos & _MASK : raw.end]:
            self.filtered.add(raw.voice.stream)
        if _NO_LOG.search(text):
            self._unavailable.add(raw.pos)
            origin = Origin(path=page.path, line=page.line_number(raw.pos & _MASK))
            pod = raw.voice.fields.get("pod")
            what = f"log of {pod}" if pod is not None else f"log behind {page.path}"
            self.gaps.append(
                Gap(
                    what=what,
                    why=text[:300],
                    would_settle="what its ranks last wrote",
                    origin=origin,
                )
            )

    def _recognise(self, index: int, span: Span, modules: Sequence[int]) -> None:
        raw = self.reader.window(index, span.start, span.end)
        if (raw.pos, raw.end) in self._recognised or raw.text is None:
            return
        self._recognised.add((raw.pos, raw.end))
        page = self.pages[index]
        line_number = page.line_number(raw.pos & _MASK)
        for piece in (raw, *raw.glued):
            line = self._log_line(piece, page.path, line_number)
            if raw.glued or raw.parts:
                modules = self.scanners.every.modules_for(line.text.encode("utf-8", "replace"))
            self._note_line(piece, line, run=-1)
            ahead = Lookahead(self, index, piece)
            for module in modules:
                if module < len(self.recognisers):
                    for fact in self.recognisers[module].recognise(line, ahead):
                        self._note_fact(fact, line, piece.pos)

    def _log_line(self, raw: Raw, path: str, line_number: int) -> LogLine:
        speaker = self.attempts.speaker(raw.voice, raw.pos)
        return LogLine(raw.text or "", raw.ns, raw.zone_stated, speaker, path, line_number)

    def line_of(self, index: int, raw: Raw) -> LogLine:
        """A line as recognisers see it."""
        page = self.pages[index]
        return self._log_line(raw, page.path, page.line_number(raw.pos & _MASK))

    def _note_fact(self, fact: Fact, line: LogLine, pos: int) -> None:
        if isinstance(fact, Progress):
            key = (fact.speaker, getattr(fact, "series", None), fact.total_steps)
            self.progress.setdefault(key, []).append((pos, fact))
            self.events.setdefault(line.speaker, []).append(Event(pos, False))
            return
        if isinstance(fact, LogSign) and fact.sign is Sign.LOG_UNAVAILABLE:
            self._unavailable.add(pos)
        self.facts.append(fact)
        event = event_of(fact, pos)
        if event is not None:
            self.events.setdefault(line.speaker, []).append(event)

    def _note_line(self, raw: Raw, line: LogLine, *, run: int) -> None:
        if raw.pos in self._unavailable or not line.text.strip():
            return
        seen = Seen(raw.pos, line.path, line.line, raw.ns, raw.zone_stated, line.text, run)
        self.seen.setdefault(line.speaker, []).append(seen)

    def _gap(self, what: str, why: str) -> None:
        path = self.pages[0].path
        self.gaps.append(Gap(what=f"{path}: {what}", why=why, origin=Origin(path=path)))

    # --- Stretches read line by line ----------------------------------------------------------

    def _windows(self) -> list[Window]:
        """Head, tail, samples, and what stands before the first complaint of each cluster."""
        last = len(self.pages) - 1
        size = len(self.pages[last].data)
        wanted: list[Window] = [(0, 0, HEAD_BYTES), (last, max(0, size - TAIL_BYTES), size)]
        for index, page in enumerate(self.pages):
            step = max(len(page.data) // SAMPLES, SAMPLE_BYTES * 2)
            wanted += [(index, at, at + SAMPLE_BYTES) for at in range(step, len(page.data), step)]
        complaints = sorted(
            event.pos for events in self.events.values() for event in events if event.is_complaint
        )
        clusters: list[int] = []
        before = -_CLUSTER_BYTES - 1
        for pos in complaints:
            if pos - before > _CLUSTER_BYTES:
                clusters.append(pos)
            before = pos
        for pos in clusters[-MAX_CLUSTERS:]:
            at = pos & _MASK
            wanted.append((pos >> PAGE_SHIFT, max(0, at - BEFORE_COMPLAINT_BYTES), at))
        return self._merged(wanted)

    def _merged(self, wanted: Sequence[Window]) -> list[Window]:
        """Whole lines, in order, no stretch twice."""
        out: list[Window] = []
        for index, start, end in sorted(wanted):
            data = self.pages[index].data
            first = 0 if start == 0 else data.find(b"\n", start - 1) + 1
            if start and not first:
                continue
            end = min(end, len(data))
            if out and out[-1][0] == index and first <= out[-1][2]:
                out[-1] = (index, out[-1][1], max(end, out[-1][2]))
            elif first < end:
                out.append((index, first, end))
        return out

    def _read_window(self, window: Window, *, steps: bool) -> None:
        index, start, end = window
        if steps:
            scanner = self.scanners.often
            data = self.pages[index].data
            for span in scanner.spans(data, start, end):
                if ((index << PAGE_SHIFT) + span.start, span.end) not in self._recognised:
                    self._recognise(index, span, scanner.modules_for(data[span.start : span.end]))
        self._runs += 1
        for raw in self._lines(index, start, end):
            for piece in (raw, *raw.glued):
                if piece.text is not None:
                    self._note_line(piece, self.line_of(index, piece), run=self._runs)

    def _lines(self, index: int, start: int, end: int) -> Iterator[Raw]:
        """Every line that begins in a stretch; parts of a joined line come once."""
        data = self.pages[index].data
        skip: set[int] = set()
        while start < end:
            newline = data.find(b"\n", start)
            newline = len(data) if newline < 0 else newline
            if newline > start and start not in skip:
                raw = self.reader.line(index, start)
                skip.update(raw.parts)
                if raw.pos & _MASK == start:
                    yield raw
            start = newline + 1

    # --- Speakers who stop before the tail ------------------------------------------------------

    def _find_lost(self, windows: Sequence[Window]) -> None:
        """Look backwards for the last line of each speaker who has none in the tail."""
        tail_index, tail_start, _ = windows[-1]
        tail = (tail_index << PAGE_SHIFT) + tail_start
        lost: list[tuple[int, Speaker]] = []
        for speaker, lines in self.seen.items():
            newest = max(line.pos for line in lines)
            if newest < tail and not _is_nobody(speaker):
                lost.append((newest, speaker))
        extra: list[Window] = []
        budget = 256 << 20
        for newest, speaker in sorted(lost, key=lambda item: item[0])[-64:]:
            found, spent = self._last_line(speaker, newest, tail, budget)
            budget -= spent
            at = found & _MASK
            extra.append((found >> PAGE_SHIFT, max(0, at - SAMPLE_BYTES * 2), at + 1))
        for window in self._merged(extra):
            self._read_window(window, steps=True)

    def _last_line(self, speaker: Speaker, newest: int, tail: int, budget: int) -> tuple[int, int]:
        """(place of the last line, bytes looked at). The place is `newest` where none is later."""
        needle = self._needle(newest)
        spent = 0
        if needle is None:
            return newest, spent
        for index in range(tail >> PAGE_SHIFT, (newest >> PAGE_SHIFT) - 1, -1):
            data = self.pages[index].data
            low = newest & _MASK if index == newest >> PAGE_SHIFT else 0
            high = tail & _MASK if index == tail >> PAGE_SHIFT else len(data)
            for _ in range(64):
                if spent > budget:
                    return newest, spent
                at = data.rfind(needle, low, high)
                spent += high - max(at, low)
                if at < 0:
                    break
                start = data.rfind(b"\n", 0, at + 1) + 1
                raw = self.reader.line(index, start)
                if raw.text is not None and self.attempts.speaker(raw.voice, raw.pos) is speaker:
                    return max(raw.pos, newest), spent
                high = at
        return newest, spent

    def _needle(self, pos: int) -> bytes | None:
        """The bytes that this speaker's lines carry in front, without the time."""
        index, start = pos >> PAGE_SHIFT, pos & _MASK
        data = self.pages[index].data
        end = data.find(b"\n", start)
        raw = self.reader.line(index, start)
        line = data[start : len(data) if end < 0 else end]
        text = (raw.text or "").encode()
        at = line.find(text[:64]) if text else -1
        if at <= 0:
            return None
        pieces = [piece for piece in _STAMP.split(line[:at]) if piece]
        if not pieces:
            return None
        needle = max(pieces, key=len)
        if line.startswith(needle):
            needle = b"\n" + needle
        return needle if len(needle) >= 4 else None


_STAMP = re.compile(
    rb"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z| ?[+-]\d\d:?\d\d)?"
)


def _is_nobody(speaker: Speaker) -> bool:
    ids = (speaker.rank, speaker.prefix_rank, speaker.local_rank, speaker.task, speaker.pid)
    return all(value is None for value in ids) and speaker.pod is None
