"""The write-up as one HTML file: no script, no request, both colour schemes, printable, readable by a screen reader.

Every text goes through `html.escape`; the page's Content-Security-Policy allows its own style and nothing
else. What depends on nothing but the incident is written: the same incident gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import assert_never

from gpufleet_cli import __version__
from gpufleet_cli.postmortem_card import SCHEMA, Postmortem
from gpufleet_cli.render.clean import clean
from gpufleet_cli.render.layout import date_clock
from gpufleet_cli.render.postmortem import pictures
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
    Report,
    Section,
    SilenceBars,
    Strong,
    Table,
    Waits,
)
from gpufleet_cli.render.postmortem.evidence_sections import TONE_WORDS
from gpufleet_cli.render.postmortem.sections import report
from gpufleet_cli.render.postmortem.style import STYLE
from gpufleet_cli.render.postmortem.times import clock_text, datetime_text
from gpufleet_cli.timestamps import format_ns, parse_rfc3339

_STAMP = re.compile(
    r"(?<![\w-])([12]\d{3}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?: UTC|Z)(?!\w)", re.ASCII
)
HEAD = f"<!doctype html>\n<!-- {SCHEMA} -->\n"
"""How a page of ours begins."""


def render(made: Postmortem) -> str:
    """The whole page."""
    told = report(clean(made))
    sections = "\n".join(map(_section, told.sections))
    return (
        f'{HEAD}<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="referrer" content="no-referrer">\n'
        f'<meta name="generator" content="gpufleet {escape(__version__)}">\n'
        f"<title>{escape(told.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"{_top(told)}\n{sections}\n</main>\n"
        f'<footer class="end"><p>Written by gpufleet {escape(__version__)} from the evidence alone; every'
        " claim links to its line. Times are UTC.</p></footer>\n</body>\n</html>\n"
    )


def _top(told: Report) -> str:
    lines = "".join(f"<li>{_text(line)}</li>" for line in told.summary)
    figures = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{_cell(cell)}{_unit(unit)}</dd></div>"
        for name, cell, unit in told.figures
    )
    links = "".join(
        f'<li><a href="#{section.id}">{escape(section.title)}</a></li>' for section in told.sections
    )
    return (
        f"<header>\n<h1>{escape(told.title)}</h1>\n"
        f'<p class="soft">{escape(told.subtitle)}</p>\n'
        f'<p class="badge {told.badge_style}">{escape(told.badge)}</p>\n'
        f'<ol class="summary" aria-label="Summary in three lines">{lines}</ol>\n'
        f'<dl class="figures">{figures}</dl>\n'
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n</header>'
    )


def _unit(unit: str) -> str:
    return f' <span class="unit">{escape(unit)}</span>' if unit else ""


def _section(section: Section) -> str:
    body = "\n".join(map(_block, section.blocks))
    name = f"{section.id}-title"
    return (
        f'<section id="{section.id}" aria-labelledby="{name}">\n'
        f'<h2 id="{name}">{escape(section.title)}</h2>\n{body}\n</section>'
    )


def _block(block: Block) -> str:
    match block:
        case Para():
            style = f' class="{block.style}"' if block.style else ""
            return f"<p{style}>{_cell(block.cell)}</p>"
        case Heading():
            return f"<h3>{escape(block.text)}</h3>"
        case Table():
            return _table(block)
        case Items():
            tag = "ol" if block.is_ordered else "ul"
            return f"<{tag}>{''.join(f'<li>{_cell(cell)}</li>' for cell in block.cells)}</{tag}>"
        case Facts():
            pairs = "".join(
                f"<dt>{escape(name)}</dt><dd>{_cell(cell)}</dd>" for name, cell in block.pairs
            )
            return f'<dl class="facts">{pairs}</dl>'
        case Commands():
            return f"<pre><code>{escape(chr(10).join(block.lines))}</code></pre>"
        case Lines():
            return _lines(block)
        case Entries():
            return f'<ul class="entries">{"".join(map(_entry, block.entries))}</ul>'
        case SilenceBars() | RankTiles() | Waits():
            return _figure(block)
        case _:
            assert_never(block)


def _figure(block: SilenceBars | RankTiles | Waits) -> str:
    match block:
        case SilenceBars():
            drawn = pictures.silence_bars(block.map, block.cause_ns, block.detected_ns, block.words)
            told = (
                "Blue: it wrote. From the end of the blue bar on nothing more came. Of those who are"
                " blamed the blue ends with their last ordinary line, and red or amber follows."
            )
            return f"<figure>{drawn}<figcaption>{told}</figcaption></figure>"
        case RankTiles():
            drawn = pictures.rank_tiles(block.map, block.words)
            key = pictures.legend(block.map, TONE_WORDS)
            return f"<figure>{drawn}{key}<figcaption>{escape(block.words)}</figcaption></figure>"
        case Waits():
            drawn = pictures.wait_picture(block.picture, block.words)
            told = "An arrow goes from who waits to whom it waits for."
            return f'<figure class="narrow">{drawn}<figcaption>{told}</figcaption></figure>'


# --- Tables and lines -----------------------------------------------------------------------------


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in table.head)
    marks: Iterable[str] = table.marks or [""] * len(table.rows)
    body = "\n".join(
        _row(table.head, cells, mark) for cells, mark in zip(table.rows, marks, strict=True)
    )
    kind = ' class="moments"' if "After" in table.head else ""
    return (
        f"<table{kind}>\n<caption>{escape(table.caption)}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    )


def _row(head: tuple[str, ...], cells: tuple[Cell, ...], mark: str) -> str:
    shown = [
        f'<th scope="row" data-head="{escape(head[0])}"><span>{_cell(cells[0])}</span></th>',
        *(
            f'<td data-head="{escape(title)}"><span>{_cell(cell)}</span></td>'
            for title, cell in zip(head[1:], cells[1:], strict=True)
        ),
    ]
    return f"<tr{f' class={chr(34)}{mark}{chr(34)}' if mark else ''}>{''.join(shown)}</tr>"


def _lines(block: Lines) -> str:
    last = 0
    shown = []
    for line in block.lines:
        if last and line.number > last + 1:
            shown.append('<span class="no">…</span>')
        last = line.number
        text = escape(line.text)
        told = f"<mark>{text}</mark> ← its last ordinary line" if line.mark else text
        shown.append(f'<span class="ln"><span class="no">{line.number}</span> {told}</span>')
    body = "\n".join(shown)
    return f'<p class="soft">{escape(block.title)}</p>\n<pre class="log">{body}</pre>'


def _entry(entry: Entry) -> str:
    text = f" {escape(entry.text)}" if entry.text else ""
    about = f' <span class="soft">({_cell(entry.about)})</span>' if entry.about else ""
    quote = "" if entry.quote is None else f"<pre>{escape(entry.quote)}</pre>"
    return (
        f'<li id="{entry.id}"><p><strong>{entry.id}</strong>{text}{about}</p>'
        f'<p class="soft"><code>{escape(entry.source)}</code></p>{quote}</li>'
    )


def _cell(cell: Cell) -> str:
    return "".join(_inlines(cell))


def _inlines(cell: Cell) -> Iterator[str]:
    for inline in cell:
        yield _inline(inline)


def _inline(inline: Inline) -> str:
    match inline:
        case str():
            return _text(inline)
        case Code():
            return f"<code>{escape(inline.text)}</code>"
        case Strong():
            return f"<strong>{escape(inline.text)}</strong>"
        case Ref():
            return f'<a href="#{inline.id}">{inline.id}</a>'
        case At():
            return f'<time datetime="{datetime_text(inline.ns)}">{_time(inline)}</time>'
        case _:
            assert_never(inline)


def _text(text: str) -> str:
    """Escaped, the times in it as such."""
    return _STAMP.sub(_stamped, escape(text))


def _stamped(found: re.Match[str]) -> str:
    told = parse_rfc3339(f"{found[1]}T{found[2]}Z")
    if told is None:
        return found[0]
    return f'<time datetime="{datetime_text(told[0])}">{found[0]}</time>'


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
