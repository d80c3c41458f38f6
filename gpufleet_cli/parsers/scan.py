"""The bytes pass: which lines of a raw log can matter at all, without decoding any other.

One alternation of every module's patterns runs over the bytes. google-re2 does that in one pass
whatever the number of patterns (several hundred MB/s); where it is not installed, Python's `re`
gives the same lines, slower. A line is a candidate when some pattern matches inside it; patterns
never reach over a line's end. `modules_for` tells whose patterns a candidate matches.

Positions are offsets into the bytes. A line of more than `LONG_LINE` bytes gives one span around
each match, so that work stays bounded on files without newlines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

try:
    import re2
except ImportError:  # pragma: no cover - both engines are tested wherever re2 is installed
    re2 = None

LONG_LINE = 65_536
SAME_DIGITS = bytes.maketrans(b"123456789", b"000000000")
"""Makes a line's shape: a stream prints the same line again and again but for the digits."""
BEFORE_MATCH = 4_096
MOST_SHAPES, LONGEST_SHAPE = 1024, 2048
_NO_DIGIT = re.compile(r"\[0-9\]|\\d|\{\d{1,3}(?:,\d{0,3})?\}|\[0-9A-Za-z\]|\[\^0-9A-Za-z\]")
"""What may stand in a pattern that takes all digits alike, although it is written with digits."""
_DIGIT = re.compile(r"\d")
_DFA_BYTES = 256 << 20


class Span(NamedTuple):
    """A candidate line: its bounds without the newline (a window of it, for a long line)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanner:
    """Patterns of several modules, compiled. Compare engines with `compile_patterns(engine=...)`."""

    search: Any
    owners: Any
    owner_of_pattern: tuple[int, ...]
    by_module: tuple[Any, ...]
    digits_alike: bool
    known: dict[bytes, Sequence[int]]

    def spans(self, data: bytes, start: int, end: int) -> Iterator[Span]:
        """Candidate lines that begin in [start, end), each once, in order."""
        search = self.search
        if search is None:
            return
        pos = start
        while pos < end:
            found = search.search(data, pos, end)
            if found is None:
                return
            at = found.start()
            first = data.rfind(b"\n", start, at) + 1 or start
            last = data.find(b"\n", at)
            last = len(data) if last < 0 else last
            if found.end() > last and search.search(data, max(first, pos), last) is None:
                pos = last + 1  # the match only came about by crossing the newline
                continue
            if last - first <= LONG_LINE:
                yield Span(first, last)
                pos = last + 1
            else:
                first, last = max(first, at - BEFORE_MATCH), min(last, at + LONG_LINE)
                yield Span(first, last)
                pos = last + (1 if data[last : last + 1] == b"\n" else 0)

    def owned_spans(
        self, data: bytes, start: int, end: int
    ) -> Iterator[tuple[Span, Sequence[int]]]:
        """Candidate lines as `spans` gives them, with their modules: for lines of which most are
        candidates. Where no pattern tells one digit from another, each shape is asked about once."""
        if not self.digits_alike or self.search is None:
            for span in self.spans(data, start, end):
                yield span, self.modules_for(data[span.start : span.end])
            return
        while start < end:
            stop = data.find(b"\n", start)
            stop = len(data) if stop < 0 else stop
            line = data[start:stop]
            if len(line) > LONGEST_SHAPE:
                for span in self.spans(data, start, stop):
                    yield span, self.modules_for(data[span.start : span.end])
            else:
                shape = line.translate(SAME_DIGITS)
                modules = self.known.get(shape)
                if modules is None:
                    modules = self.modules_for(line)
                    if len(self.known) >= MOST_SHAPES:
                        self.known.clear()
                    self.known[shape] = modules
                if modules:
                    yield Span(start, stop), modules
            start = stop + 1

    def modules_for(self, line: bytes) -> Sequence[int]:
        """Indexes of the modules that have a pattern for this line, in order."""
        if self.owners is not None:
            hits = self.owners.Match(line)
            if hits:
                return sorted({self.owner_of_pattern[hit] for hit in hits})
        return [n for n, own in enumerate(self.by_module) if own is not None and own.search(line)]


def compile_patterns(modules: Sequence[Sequence[str]], *, engine: str | None = None) -> Scanner:
    """A scanner for the patterns of each module; `engine` is "re2" or "re", by default what there is."""
    listed = [(n, pattern) for n, patterns in enumerate(modules) for pattern in patterns]
    unique = list(dict.fromkeys(pattern for _, pattern in listed))
    use_re2 = re2 is not None and engine != "re"
    make = _compile_re2 if use_re2 else _compile_re
    return Scanner(
        search=make(unique) if unique else None,
        owners=_set_of([pattern for _, pattern in listed]) if use_re2 and listed else None,
        owner_of_pattern=tuple(n for n, _ in listed),
        by_module=tuple(make(list(patterns)) if patterns else None for patterns in modules),
        digits_alike=not any(_DIGIT.search(_NO_DIGIT.sub("", pattern)) for pattern in unique),
        known={},
    )


def _joined(patterns: Sequence[str]) -> bytes:
    return b"|".join(b"(?:%s)" % pattern.encode() for pattern in patterns)


def _options() -> Any:  # noqa: ANN401 - google-re2 has no types
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes as they are, so that both engines agree
    options.never_capture = True
    options.never_nl = True
    options.log_errors = False
    options.max_mem = _DFA_BYTES
    return options


def _compile_re2(patterns: Sequence[str]) -> Any:  # noqa: ANN401
    return re2.compile(_joined(patterns), _options())


def _set_of(patterns: Sequence[str]) -> Any:  # noqa: ANN401
    owners = re2.Set.SearchSet(_options())
    for pattern in patterns:
        owners.Add(pattern.encode())
    owners.Compile()
    return owners


def _compile_re(patterns: Sequence[str]) -> Any:  # noqa: ANN401
    """`re` tries alternatives one by one, so plain words are folded into a tree of first letters:
    with 400 of them 35 MB/s in place of 1.6."""
    words = sorted({_unescaped(p).encode() for p in patterns if re.escape(_unescaped(p)) == p})
    others = [p for p in patterns if re.escape(_unescaped(p)) != p]
    parts = [part for part in (_tree(words), _joined(others)) if part]
    return re.compile(b"|".join(parts))


def _unescaped(pattern: str) -> str:
    return re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)


def _tree(words: Sequence[bytes]) -> bytes:
    """A pattern that matches where one of these words begins, sorted words of one length or more."""
    if not words or b"" in words:
        return b""
    tails: dict[bytes, list[bytes]] = {}
    for word in words:
        tails.setdefault(word[:1], []).append(word[1:])
    parts = [re.escape(letter) + _tree(rest) for letter, rest in tails.items()]
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"
