"""Pictures as inline SVG: ranks by time, ranks by node, and who waits for whom.

Lengths across are per cent and text is in pixels, so that a picture is as wide as the page and its words
stay as large as the others, on a telephone too. Nothing is told by colour alone: what is blamed has a ring,
a thicker frame or its name beside it, and a table or a list below says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape

from gpufleet_cli.postmortem_card import SilenceMap, SilenceRow, Tile, Tone, WaitBox, WaitPicture
from gpufleet_cli.render.layout import clock, duration, fit, wrap

ROW, BAR, AXIS = 40, 12, 46
FEW_TILES = 256
LINE = 18
GUTTER = 16.0

Across = Callable[[int], float]
"""From a time to per cent of the width."""


def silence_bars(
    found: SilenceMap, cause_ns: int | None, detected_ns: int | None, words: str
) -> str:
    """A bar for each row: how long it wrote, and from then on nothing."""
    assert found.start_ns is not None and found.end_ns is not None
    start, end = found.start_ns, max(found.end_ns, found.start_ns + 1)
    head = AXIS if cause_ns is not None else 4
    height = head + ROW * len(found.rows) + 26

    def across(ns: int) -> float:
        return min(100.0, max(0.0, 100.0 * (ns - start) / (end - start)))

    parts = [*_moments(cause_ns, detected_ns, across, height)]
    for index, row in enumerate(found.rows):
        parts += _bar(row, head + ROW * index, across)
    parts += _axis(start, end, height)
    return _picture("silence-bars", "Until when each rank wrote", words, height, parts)


def _moments(
    cause_ns: int | None, detected_ns: int | None, across: Across, height: int
) -> Iterator[str]:
    """Lines through all rows, their names above: the first cause, and the first sign where that is apart."""
    if cause_ns is None:
        return
    at = across(cause_ns)
    apart = detected_ns is not None and across(detected_ns) - at > 1.5
    name = "first cause" if apart or detected_ns is None else "first cause and first sign"
    yield from _through(at, 20, height)
    yield _text(at, 14, name, anchor=_anchor(at))
    if apart and detected_ns is not None:
        later = across(detected_ns)
        yield from _through(later, 36, height)
        yield _text(later, 31, "first sign", anchor=_anchor(later))


def _through(at: float, top: int, height: int) -> Iterator[str]:
    """From its name down across each bar, but not through the words above the bars."""
    yield _line(at, top, at, AXIS - 4, "mark")
    for y in range(AXIS + 18, height - 26, ROW):
        yield _line(at, y, at, y + BAR + 5, "mark")


def _anchor(at: float) -> str:
    return "start" if at < 35 else "end" if at > 65 else "middle"


def _bar(row: SilenceRow, top: int, across: Across) -> Iterator[str]:
    y = top + 18
    quiet = "silence not known" if row.quiet_s is None else f"quiet {duration(row.quiet_s)}"
    blamed = row.tone in ("culprit", "suspect")
    yield _text(0, top + 12, fit(f"{row.label} · {quiet}", 44), style="title" if blamed else "")
    yield _rect(0, y, 100, BAR, "track")
    if row.first_ns is None or row.last_ns is None:
        yield _rect(0, y + BAR / 2 - 1, 100, 2, "t-unknown")
        return
    until = across(row.first_ns if row.sign_ns is None else min(row.sign_ns, row.first_ns))
    yield _rect(0, y, until, BAR, "alive")
    if blamed and until < 100:
        yield _rect(until, y + 2, 100 - until, BAR - 4, f"t-{row.tone}")


def _axis(start: int, end: int, height: int) -> Iterator[str]:
    y = height - 6
    yield _text(0, y, clock(start), style="note")
    yield _text(50, y, clock((start + end) // 2), style="note", anchor="middle")
    yield _text(100, y, f"{clock(end)} UTC", style="note", anchor="end")


# --- Tiles ----------------------------------------------------------------------------------------


def rank_tiles(found: SilenceMap, words: str) -> str:
    """A tile for each node; one whose ranks stand differently is divided among them."""
    tiles = found.tiles
    few = len(tiles) <= FEW_TILES
    columns = min(max(1, len(tiles)), 16 if few else 32)
    tall, gap = (20, 5) if few else (11, 3)
    rows = -(-len(tiles) // columns)
    height = rows * (tall + gap)
    parts: list[str] = []
    for index, tile in enumerate(tiles):
        x = 100.0 * (index % columns) / columns
        y = index // columns * (tall + gap)
        parts += _tile(tile, x, y, 100.0 / columns * 0.86, tall, named=few)
    return _picture("rank-tiles", "Ranks by node, and how they stand", words, height + 2, parts)


def _tile(tile: Tile, x: float, y: int, width: float, tall: int, *, named: bool) -> Iterator[str]:
    if named:
        yield f"<g><title>{escape(tile.name)}</title>"
    if len(set(tile.tones)) == 1:
        yield _rect(x, y, width, tall, f"t-{tile.tones[0]}")
    else:
        each = width / len(tile.tones)
        for at, tone in enumerate(tile.tones):
            yield _rect(x + at * each, y, each * 0.88, tall, f"t-{tone}")
    if "culprit" in tile.tones or ("suspect" in tile.tones and len(set(tile.tones)) > 1):
        yield _rect(x, y - 1, width, tall + 2, "ring")
    if named:
        yield "</g>"


def legend(found: SilenceMap, words: dict[Tone, str]) -> str:
    """The colours that are there, with their words."""
    there = {tone for tile in found.tiles for tone in tile.tones}
    items = "".join(
        f'<li><svg aria-hidden="true" focusable="false" height="12"><title>{escape(text)}</title>'
        f'<rect width="12" height="12" class="t-{tone}"/></svg>{escape(text)}</li>'
        for tone, text in words.items()
        if tone in there
    )
    return f'<ul class="legend">{items}</ul>'


# --- Waiting --------------------------------------------------------------------------------------


def wait_picture(picture: WaitPicture, words: str) -> str:
    """Boxes one below the other; in the gutter a line from who waits to whom it waits for."""
    parts: list[str] = []
    tops: list[tuple[int, int]] = []
    y = 2
    for box in picture.boxes:
        titles, notes = wrap(box.title, 30, most=4), wrap(box.detail, 36, most=3)
        tall = LINE * (len(titles) + len(notes)) + 14
        parts += _box(box, y, tall, titles, notes)
        tops.append((y, tall))
        y += tall + 20
    lanes = _lanes(picture.arrows)
    for arrow, lane in zip(picture.arrows, lanes, strict=True):
        parts += _arrow(tops, arrow, lane, max(lanes, default=0) + 1)
    return _picture("wait-graph", "Who waits for whom", words, y, parts)


def _box(
    box: WaitBox, y: int, tall: int, titles: Sequence[str], notes: Sequence[str]
) -> Iterator[str]:
    yield _rect(GUTTER, y, 100 - GUTTER - 0.5, tall, f"box k-{box.kind}")
    at = y + LINE
    for style, lines in (("title", titles), ("note", notes)):
        for line in lines:
            yield _text(GUTTER + 3, at, line, style=style)
            at += LINE


def _lanes(arrows: Sequence[tuple[int, int]]) -> list[int]:
    """A lane for each arrow, so that none runs over another; arrows to one end share theirs."""
    order: dict[int, int] = {}
    for _waiter, awaited in sorted(arrows, key=lambda one: (one[1], one[0])):
        order.setdefault(awaited, len(order))
    return [order[awaited] for _waiter, awaited in arrows]


def _arrow(
    tops: Sequence[tuple[int, int]], arrow: tuple[int, int], lane: int, lanes: int
) -> Iterator[str]:
    waiter, awaited = arrow
    x = GUTTER - 3.0 - (GUTTER - 4.0) * lane / max(lanes, 1)
    y1, y2 = tops[waiter][0] + tops[waiter][1] * 2 // 3, tops[awaited][0] + tops[awaited][1] // 3
    yield _line(GUTTER, y1, x, y1, "arrow")
    yield _line(x, y1, x, y2, "arrow")
    yield _line(x, y2, GUTTER, y2, "arrow")
    yield _text(GUTTER, y2 + 4, "▶", style="head", anchor="end")


# --- Parts ----------------------------------------------------------------------------------------


def _picture(name: str, title: str, words: str, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg role="img" width="100%" height="{height}" aria-labelledby="{name}-title {name}-words">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-words">{escape(words)}</desc>{"".join(parts)}</svg>'
    )


def _rect(x: float, y: float, width: float, height: float, style: str) -> str:
    return f'<rect x="{_short(x)}%" y="{_short(y)}" width="{_short(width)}%" height="{_short(height)}" class="{style}"/>'


def _line(x1: float, y1: int, x2: float, y2: int, style: str) -> str:
    return f'<line x1="{_short(x1)}%" y1="{y1}" x2="{_short(x2)}%" y2="{y2}" class="{style}"/>'


def _text(x: float, y: int, text: str, *, style: str = "", anchor: str = "start") -> str:
    kind = f' class="{style}"' if style else ""
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{_short(x)}%" y="{y}"{kind}{place}>{escape(text)}</text>'


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
