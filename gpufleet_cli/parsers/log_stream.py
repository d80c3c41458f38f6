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
from gpufleet_cli.parsers import log_attempts, log_lost, log_window
from gpufleet_cli.parsers.lines import RECOGNISERS
from gpufleet_cli.parsers.log_attempts import Attempts
from gpufleet_cli.parsers.log_following import Lookahead, between_stamps
from gpufleet_cli.parsers.log_line import LogLine, Recogniser
from gpufleet_cli.parsers.log_pages import Page
from gpufleet_cli.parsers.log_progress import Step
from gpufleet_cli.parsers.log_reader import PAGE_SHIFT, LineReader, Raw
from gpufleet_cli.parsers.log_writes import Account, Seen, event_of
from gpufleet_cli.parsers.scan import Scanner, Span, compile_patterns
from gpufleet_cli.parsers.wrappers.layer import Value
from gpufleet_cli.step_points import row_of

DENSE_BYTES = 256 << 10
HEAD_BYTES = 4 << 10
TAIL_BYTES = 32 << 10
BEFORE_COMPLAINT_BYTES = 16 << 10
SAMPLE_BYTES = 1 << 10
SAMPLES = 8
BYTES_PER_SPEAKER = 1 << 10
MAX_ROOM = 8 << 20
STEPS_PER_VOICE = 8
STEPS_PER_SAMPLE = 1
STEPS_OF_SMALL = 128
STEPS_FOR_PACE, STEPS_FOR_PAUSES, MANY_SPEAKERS = 4, 64, 16
REACHES = (256 << 10, 1 << 20, 4 << 20)
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
        self.progress: dict[tuple[int, str, int | None], list[Step]] = {}
        self.accounts: dict[int, Account] = {}
        self.kinds: dict[bytes, log_window.Kind | None] = {}
        self.other_kinds: dict[tuple[bytes, str], log_window.Kind | None] = {}
        self.filtered: set[str] = set()
        self.repeated: set[str] = set()
        self.attempts = Attempts(())
        self._unavailable: set[int] = set()
        self._recognised: set[tuple[int, int, int]] = set()
        self._stepped: set[int] = set()
        self._runs = 0

    def read(self) -> None:
        """Everything, in the order that the parts need each other."""
        dense = self._is_small()
        found = self._candidates()
        self._learn(found)
        for page_index, span, modules in found:
            self._recognise(page_index, span, modules, self.scanners.rare)
        if dense:
            for index, page in enumerate(self.pages):
                self._read_window(
                    (index, 0, len(page.data)), newest=STEPS_OF_SMALL, older=STEPS_OF_SMALL
                )
            return
        for window in self._merged(self._samples()):
            self._read_window(window, newest=STEPS_PER_SAMPLE)
        tails = self._merged(self._tails())
        for window in tails:
            self._read_window(window, newest=STEPS_PER_VOICE)
        for window in self._merged(log_lost.windows(self, tails)):
            self._read_window(window, newest=STEPS_PER_VOICE)
        self._read_pace()

    def _is_small(self) -> bool:
        size = 0
        for page in self.pages:
            size += len(page.data)
            if size > DENSE_BYTES:
                return False
        return True

    # --- Candidates ---------------------------------------------------------------------------

    def _candidates(self) -> list[tuple[int, Span, Sequence[int]]]:
        found: list[tuple[int, Span, Sequence[int]]] = []
        scanner = self.scanners.rare
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
            for raw in self._prefixed_lines():
                if "rank" in raw.voice.fields:
                    stated["rank"].add(raw.voice.fields["rank"])
            proven = {name: values.pop() for name, values in stated.items() if len(values) == 1}
            self.reader.prove(proven)
            markers = [self.reader.line(m.pos >> PAGE_SHIFT, m.pos & _MASK) for m in markers]
        self.attempts = Attempts(markers)

    def _prefixed_lines(self) -> Iterator[Raw]:
        """Some lines with a rank prefix, for a file in which few lines have one."""
        data = self.pages[0].data
        at = data.find(b"[rank")
        for _ in range(16):
            if at < 0:
                return
            yield self.reader.line(0, data.rfind(b"\n", 0, at) + 1)
            at = data.find(b"[rank", at + 1)

    def _note_pipeline(self, index: int, raw: Raw) -> None:
        text = raw.text or ""
        if _FILTER.search(text):
            self.filtered.add(raw.voice.stream)
        page = self.pages[index]
        if b"across cluster]" in page.data[raw.pos & _MASK : raw.end]:
            self.repeated.add(raw.voice.stream)
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

    def _recognise(self, index: int, span: Span, modules: Sequence[int], scanner: Scanner) -> None:
        """Facts of one line, or of several where it is glued; each scanner's modules once."""
        self.recognise(index, self.reader.window(index, span.start, span.end), modules, scanner)

    def recognise(
        self,
        index: int,
        raw: Raw,
        modules: Sequence[int],
        scanner: Scanner,
        *,
        is_noted: bool = False,
    ) -> None:
        """`is_noted`: the stretch that the line stands in is read line by line next."""
        key = (raw.pos, raw.end, id(scanner))
        if key in self._recognised or raw.text is None:
            return
        self._recognised.add(key)
        page = self.pages[index]
        line_number = page.line_number(raw.pos & _MASK)
        first = raw if raw.ns is not None else between_stamps(self, index, raw)
        for piece in (first, *raw.glued):
            line = self._log_line(piece, page.path, line_number)
            if raw.glued or raw.parts:
                modules = scanner.modules_for(line.text.encode("utf-8", "replace"))
            account = self.account(line.speaker)
            if not is_noted:
                self.note_line(account, piece, page.path, line_number, run=-1)
            ahead = Lookahead(self, index, piece)
            for module in modules:
                if module < len(self.recognisers):
                    for fact in self.recognisers[module].recognise(line, ahead):
                        self._note_fact(fact, account, piece.pos)

    def _log_line(self, raw: Raw, path: str, line_number: int) -> LogLine:
        speaker = self.attempts.speaker(raw.voice, raw.pos)
        return LogLine(raw.text or "", raw.ns, raw.zone_stated, speaker, path, line_number)

    def line_of(self, index: int, raw: Raw) -> LogLine:
        """A line as recognisers see it."""
        page = self.pages[index]
        return self._log_line(raw, page.path, page.line_number(raw.pos & _MASK))

    def account(self, speaker: Speaker) -> Account:
        """The account of an interned speaker, whose identity is quicker than its equality."""
        account = self.accounts.get(id(speaker))
        if account is None:
            account = self.accounts[id(speaker)] = Account(speaker)
        return account

    def _note_fact(self, fact: Fact, account: Account, pos: int) -> None:
        if isinstance(fact, Progress):
            key = (id(account.speaker), fact.series, fact.total_steps)
            steps = self.progress.setdefault(key, [])
            steps += [(pos, fact.path, row_of(point)) for point in fact.points]
            account.worked.append(pos)
            return
        if isinstance(fact, LogSign) and fact.sign is Sign.LOG_UNAVAILABLE:
            self._unavailable.add(pos)
        self.facts.append(fact)
        event = event_of(fact, pos)
        if event is not None:
            account.events.append(event)

    def note_steps(self, kind: log_window.Kind, lines: Sequence[Seen]) -> None:
        """Step lines of which no recogniser need be asked."""
        speaker, form = kind.speaker, kind.form
        assert form is not None
        account = self.account(speaker)
        for seen in lines:
            if seen.pos in self._stepped:
                continue
            step, total, step_s, data_s = form(seen.text)
            steps = self.progress.setdefault((id(speaker), "train", total), [])
            steps.append((seen.pos, seen.path, (seen.ns, step, step_s, seen.line, data_s)))
            account.worked.append(seen.pos)
        self._stepped.update([seen.pos for seen in lines])

    def note_seen(self, speaker: Speaker, lines: Sequence[Seen]) -> None:
        """Lines of which nothing else is to be known."""
        if self._unavailable:
            lines = [seen for seen in lines if seen.pos not in self._unavailable]
        if lines:
            self.account(speaker).seen.extend(lines)

    def note_line(self, account: Account, raw: Raw, path: str, line: int, *, run: int) -> None:
        text = raw.text
        if text and not text.isspace() and raw.pos not in self._unavailable:
            account.seen.append(Seen(raw.pos, path, line, raw.ns, raw.zone_stated, text, run))

    def _gap(self, what: str, why: str) -> None:
        path = self.pages[0].path
        self.gaps.append(Gap(what=f"{path}: {what}", why=why, origin=Origin(path=path)))

    # --- Stretches read line by line ----------------------------------------------------------

    def _samples(self) -> list[Window]:
        """The head, and short stretches all over."""
        wanted: list[Window] = [(0, 0, HEAD_BYTES)]
        for index, page in enumerate(self.pages):
            step = max(len(page.data) // SAMPLES, SAMPLE_BYTES * 2)
            wanted += [(index, at, at + SAMPLE_BYTES) for at in range(step, len(page.data), step)]
        return wanted

    def _tails(self) -> list[Window]:
        """The tail, and what stands before the first complaint of each cluster of complaints.

        Both have room for some lines of every speaker.
        """
        speakers = sum(1 for a in self.accounts.values() if not log_lost.is_nobody(a.speaker))
        room = min(speakers * BYTES_PER_SPEAKER, MAX_ROOM)
        last = len(self.pages) - 1
        size = len(self.pages[last].data)
        wanted: list[Window] = [(last, max(0, size - max(TAIL_BYTES, room)), size)]
        complaints = sorted(
            event.pos
            for account in self.accounts.values()
            for event in account.events
            if event.is_complaint
        )
        clusters: list[int] = []
        before = -_CLUSTER_BYTES - 1
        for pos in complaints:
            if pos - before > _CLUSTER_BYTES:
                clusters.append(pos)
            before = pos
        for pos in clusters[-MAX_CLUSTERS:]:
            at = pos & _MASK
            start = max(0, at - max(BEFORE_COMPLAINT_BYTES, room))
            wanted.append((pos >> PAGE_SHIFT, start, at))
        return wanted

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

    def _read_window(self, window: Window, *, newest: int, older: int = 0) -> None:
        self._runs += 1
        log_window.read(self, window, run=self._runs, newest=newest, older=older)

    def _read_pace(self) -> None:
        """More steps before the newest one, where what was read holds too few to tell how often one is
        printed: one rank prints for all, and its lines may lie in one small part of the file. Where
        many write into one file, so many that a pause in the past of the job would show too."""
        is_crowd = len(self.accounts) >= MANY_SPEAKERS
        wanted = STEPS_FOR_PAUSES if is_crowd else STEPS_FOR_PACE
        known = max((point[0] for points in self.progress.values() for point in points), default=0)
        if self._most_steps() >= wanted or not (known or is_crowd):
            return
        index = len(self.pages) - 1 if is_crowd else known >> PAGE_SHIFT
        at = len(self.pages[index].data) if is_crowd else known & _MASK
        end = at
        for reach in REACHES if is_crowd else REACHES[:1]:
            start = max(0, at - reach)
            for window in self._merged([(index, start, end)]):
                log_window.read_steps(self, window, newest=wanted, older=STEPS_PER_VOICE)
            if start == 0 or self._most_steps() >= wanted:
                return
            end = start

    def _most_steps(self) -> int:
        """How many different steps the voice that tells of most has told of."""
        return max(
            (len({row[1] for _, _, row in points}) for points in self.progress.values()), default=0
        )
