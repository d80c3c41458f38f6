"""The write-up as Markdown, for a ticket or a wiki: pictures are tables and bars, links go to the appendix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from gpufleet_cli.postmortem_card import SCHEMA, Postmortem, SilenceMap, WaitPicture
from gpufleet_cli.render.clean import clean
from gpufleet_cli.render.layout import Look, date_clock, duration, pad
from gpufleet_cli.render.markdown import escape, fence
from gpufleet_cli.render.postmortem.blocks import (
    At,
    Block,
    Cell,
    Code,
    Commands,
    Entries,
    Entry,
    Facts,
    Heading,
    Inline,
    Items,
    Lines,
    Para,
    RankTiles,
    Ref,
    SilenceBars,
    Strong,
    Table,
    Waits,
)
from gpufleet_cli.render.postmortem.sections import report
from gpufleet_cli.render.postmortem.times import clock_text
from gpufleet_cli.timestamps import format_ns

HEAD = f"<!-- {SCHEMA} -->"
"""How a write-up of ours begins."""
_BAR = 30


def render(made: Postmortem, look: Look) -> str:
    """The whole write-up."""
    told = report(clean(made))
    lines = [HEAD, "", f"# {escape(told.title)}", "", escape(told.subtitle), ""]
    lines += [f"**{escape(told.badge)}**", ""]
    lines += [f"{number}. {escape(line)}" for number, line in enumerate(told.summary, start=1)]
    lines += ["", "| | | |", "|---|---|---|"]
    lines += [f"| {name} | {_cell(cell)} | {escape(unit)} |" for name, cell, unit in told.figures]
    for section in told.sections:
        lines += ["", f"## {escape(section.title)}"]
        for block in section.blocks:
            lines += ["", *_block(block)]
    return look.finish(lines)


def _block(block: Block) -> list[str]:
    match block:
        case Para():
            return [_cell(block.cell)]
        case Heading():
            return [f"### {escape(block.text)}"]
        case Table():
            return list(_table(block))
        case Items():
            return [
                f"{f'{number}.' if block.is_ordered else '-'} {_cell(cell)}"
                for number, cell in enumerate(block.cells, start=1)
            ]
        case Facts():
            return [f"- {escape(name)}: {_cell(cell)}" for name, cell in block.pairs]
        case Commands():
            return fence(block.lines, "sh")
        case Lines():
            return _lines(block)
        case Entries():
            return [line for entry in block.entries for line in _entry(entry)]
        case SilenceBars():
            return _bars(block.map)
        case RankTiles():
            return [escape(block.words)]
        case Waits():
            return _waits(block.picture)
        case _:
            assert_never(block)


def _table(table: Table) -> Iterator[str]:
    yield f"*{escape(table.caption)}*"
    yield ""
    yield f"| {' | '.join(table.head)} |"
    yield f"|{'---|' * len(table.head)}"
    for cells in table.rows:
        yield f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _lines(block: Lines) -> list[str]:
    width = max((len(str(line.number)) for line in block.lines), default=1)
    shown = [
        f"{line.number:>{width}}  {line.text}{'  <- its last ordinary line' if line.mark else ''}"
        for line in block.lines
    ]
    return [escape(block.title), "", *fence(shown, "")]


def _entry(entry: Entry) -> Iterator[str]:
    text = f" {escape(entry.text)}" if entry.text else ""
    about = f" ({_cell(entry.about)})" if entry.about else ""
    yield f'<a id="{entry.id}"></a>**{entry.id}**{text}{about}  '
    yield escape(entry.source)
    if entry.quote is not None:
        yield ""
        yield from fence([entry.quote], "")
    yield ""


def _bars(found: SilenceMap) -> list[str]:
    scale = max([1.0, *(row.quiet_s or 0.0 for row in found.rows)])
    width = min(44, max(len(row.label) for row in found.rows))
    lines = []
    for row in found.rows:
        told = "not known"
        if row.quiet_s is not None:
            bar = "█" * round(_BAR * row.quiet_s / scale) or "▏"
            told = f"{bar} {duration(row.quiet_s)}"
        lines.append(f"{pad(row.label, width)} {told}")
    return fence(["silence", *lines], "")


def _waits(picture: WaitPicture) -> list[str]:
    lines = []
    for index, box in enumerate(picture.boxes):
        lines.append(f"({index + 1}) {box.title}: {box.detail}")
        lines += [
            f"      waits for ({awaited + 1})"
            for waiter, awaited in picture.arrows
            if waiter == index
        ]
    return fence(lines, "")


# --- Inside a line --------------------------------------------------------------------------------


def _cell(cell: Cell) -> str:
    return "".join(map(_inline, cell))


def _inline(inline: Inline) -> str:
    match inline:
        case str():
            return escape(inline)
        case Code():
            return escape(inline.text)
        case Strong():
            return f"**{escape(inline.text.strip())}**{' ' if inline.text.endswith(' ') else ''}"
        case Ref():
            return f"[{inline.id}](#{inline.id})"
        case At():
            return _time(inline)
        case _:
            assert_never(inline)


def _time(at: At) -> str:
    match at.form:
        case "clock":
            return clock_text(at.ns)
        case "date":
            return date_clock(at.ns)
        case "exact":
            return format_ns(at.ns)
        case _:
            assert_never(at.form)
