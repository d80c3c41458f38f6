"""How text is laid out: widths in terminal cells, wrapping, numbers, durations, times, rank lists.

All of it is the same whatever the terminal: a report has 80 columns, so that what one person
pastes looks the same to the next. `Look` says only whether colour and symbols are wanted.
"""

from __future__ import annotations

import datetime
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpufleet_cli.timestamps import NS_PER_S

WIDTH = 80

_SGR = {
    "bad": "1;31", "warn": "1;33", "good": "1;32", "ask": "1;36", "strong": "1", "dim": "2",
    "plain": "",
}  # fmt: skip
_ASCII = str.maketrans("·█▏…—–×’", "-#|~--x'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the terminal can show. `verbose` adds the evidence behind the first screen."""

    color: bool = False
    unicode: bool = True
    verbose: bool = False

    def paint(self, text: str, style: str) -> str:
        """The text in one of our few colours: bad, warn, good, ask, strong, dim."""
        code = _SGR[style]
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and code and text.strip() else text

    def finish(self, lines: Iterable[str]) -> str:
        """The lines as one text; without Unicode every other character becomes ASCII."""
        text = "".join(line.rstrip() + "\n" for line in lines)
        return text if self.unicode else to_ascii(text)


def to_ascii(text: str) -> str:
    """Our symbols as their nearest ASCII, every other character as an escape."""
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


# --- Widths ---------------------------------------------------------------------------------------


def cell_width(text: str) -> int:
    """Columns of a terminal that the text takes: wide East Asian characters take two."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fit(text: str, width: int, *, keep_end: bool = False) -> str:
    """The text in at most `width` cells; what is cut off is marked with an ellipsis.

    >>> fit("train-run-7-worker-100", 12), fit("train-run-7-worker-100", 12, keep_end=True)
    ('train-run-7…', '…-worker-100')
    """
    if cell_width(text) <= width:
        return text
    kept: list[str] = []
    left = width - 1
    for char in reversed(text) if keep_end else text:
        left -= _char_width(char)
        if left < 0:
            break
        kept.append(char)
    return "…" + "".join(reversed(kept)) if keep_end else "".join(kept) + "…"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Fitted and filled with blanks to exactly `width` cells."""
    text = fit(text, width)
    blanks = " " * (width - cell_width(text))
    return blanks + text if right else text + blanks


def wrap(text: str, width: int, *, most: int | None = None) -> list[str]:
    """Lines of at most `width` cells, broken at blanks; a longer word is broken anywhere.

    `most` is the highest number of lines: the last one is then cut with an ellipsis.
    """
    lines: list[str] = []
    line = ""
    for word in text.split():
        for part in _broken(word, width):
            if line and cell_width(line) + 1 + cell_width(part) > width:
                lines.append(line)
                line = part
            else:
                line = f"{line} {part}" if line else part
    if line:
        lines.append(line)
    if most is not None and len(lines) > most:
        rest = " ".join(lines[most - 1 :])
        lines = [*lines[: most - 1], fit(rest, width)]
    return lines


def _broken(word: str, width: int) -> list[str]:
    if cell_width(word) <= width:
        return [word]
    parts: list[str] = []
    part = ""
    used = 0
    for char in word:
        size = _char_width(char)
        if used + size > width:
            parts.append(part)
            part, used = "", 0
        part += char
        used += size
    return [*parts, part]


def labelled(label: str, text: str, *, indent: int = 2, most: int | None = None) -> list[str]:
    """A label and its text, wrapped beside it."""
    start = " " * indent + label
    lines = wrap(text, WIDTH - cell_width(start), most=most) or [""]
    blank = " " * cell_width(start)
    return [start + lines[0], *(blank + line for line in lines[1:])]


def row(parts: Sequence[str], *, indent: int = 2, gap: str = "  ") -> list[str]:
    """Parts side by side; one that does not fit goes to the next line."""
    lines: list[str] = []
    line = ""
    room = WIDTH - indent
    for part in (fit(part, room) for part in parts if part):
        if line and cell_width(line) + len(gap) + cell_width(part) > room:
            lines.append(line)
            line = part
        else:
            line = f"{line}{gap}{part}" if line else part
    return [" " * indent + text for text in [*lines, line] if text]


# --- Numbers and times ----------------------------------------------------------------------------


def count(number: int) -> str:
    return f"{number:,}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 rank`, `1,024 ranks`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Two figures that matter, as a person says them.

    >>> [duration(s) for s in (0.43, 42, 612.3, 1800, 3900, 200000)]
    ['0.4s', '42s', '10m12s', '30m', '1h05m', '2d08h']
    """
    if seconds < 0:
        return "-" + duration(-seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return _two(whole // 60, "m", whole % 60, "s")
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return _two(minutes // 60, "h", minutes % 60, "m")
    hours = round(seconds / 3600)
    return _two(hours // 24, "d", hours % 24, "h")


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small:02}{small_unit}" if small else f"{large}{unit}"


def gpu_hours(value: float | None, *, per_hour: bool = False) -> str:
    """`495 GPU-h`, `0.25 GPU-h`, `1,024 GPU-h/h`; nothing when it is not known."""
    if value is None:
        return ""
    return f"{figure(value)} GPU-h{'/h' if per_hour else ''}"


def figure(value: float) -> str:
    """A number with as many digits as a person needs."""
    size = abs(value)
    if size >= 10 or size == round(size):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 1 else f"{value:.2f}"


def clock(ns: int) -> str:
    """`03:41:07`, UTC."""
    return _utc(ns).strftime("%H:%M:%S")


def date_clock(ns: int) -> str:
    """`2026-03-11 03:41:07`, UTC."""
    return _utc(ns).strftime("%Y-%m-%d %H:%M:%S")


def _utc(ns: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ns // NS_PER_S, tz=datetime.UTC)


def rank_list(ranks: Iterable[int], width: int = 60) -> str:
    """Ranks with runs drawn together, cut with the number of those left out.

    >>> rank_list([0, 1, 2, 3, 7, 12, 13]), rank_list(range(0, 400, 2), 24)
    ('0-3, 7, 12, 13', '0, 2, 4, 6 and 196 more')
    """
    runs: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    words = [word for run in runs for word in _run_words(run)]
    sizes = [size for run in runs for size in _run_sizes(run)]
    left = sum(sizes)
    shown: list[str] = []
    used = 0
    best = ""
    for word, size in zip(words, sizes, strict=True):
        used += len(word) + (2 if shown else 0)
        if shown and used > width:
            break
        shown.append(word)
        left -= size
        tail = f" and {left:,} more" if left else ""
        if used + len(tail) <= width or not best:
            best = ", ".join(shown) + tail
    return best


def _run_words(run: tuple[int, int]) -> list[str]:
    first, last = run
    if last - first < 2:
        return [str(rank) for rank in range(first, last + 1)]
    return [f"{first}-{last}"]


def _run_sizes(run: tuple[int, int]) -> list[int]:
    first, last = run
    return [1] * (last - first + 1) if last - first < 2 else [last - first + 1]
