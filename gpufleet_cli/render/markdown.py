"""The report as Markdown, for an incident channel or a ticket.

Evidence is escaped so that it can be neither markup, HTML, link nor mention where the page is
shown; commands stand in a fence that no backtick in them can close.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import assert_never

from gpufleet_cli.render.layout import Look, duration
from gpufleet_cli.render.page import Bars, Block, Commands, Items, Table, Text, page
from gpufleet_cli.render.silence import SilenceGroup
from gpufleet_cli.verdict import Triage

_MARKUP = re.compile(r"([\\`*_{}\[\]|~#!$])")
_BAR = 20


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line.

    >>> escape("<b>@all</b> [x](http://y) *z*")
    '&lt;b&gt;&#64;all&lt;/b&gt; \\\\[x\\\\](http&#58;//y) \\\\*z\\\\*'
    """
    marked = _MARKUP.sub(r"\\\1", text.replace("&", "&amp;"))
    marked = marked.replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return marked.replace("://", "&#58;//").replace("www.", "www&#46;")


def render(triage: Triage, look: Look) -> str:
    """The whole report; what Markdown cannot colour it says in words."""
    made = page(triage)
    title = f"{made.action} {escape(made.nodes)}".strip()
    lines = [f"# {title}", "", escape(made.headline)]
    for section in made.sections:
        lines += ["", f"## {section.title}"]
        for block in section.blocks:
            lines += ["", *_block(block)]
    return look.finish(lines)


def _block(block: Block) -> list[str]:
    match block:
        case Text():
            return [escape(block.text)]
        case Table():
            return list(_table(block))
        case Items():
            return [f"- {escape(item)}" for item in block.items]
        case Commands():
            return fence(block.lines, "sh")
        case Bars():
            return list(_bars(block.groups))
        case _:
            assert_never(block)


def _table(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(table.head)} |"
    yield f"|{'---|' * len(table.head)}"
    for cells in table.rows:
        yield f"| {' | '.join(escape(cell) for cell in cells)} |"


def fence(lines: Sequence[str], language: str) -> list[str]:
    """Lines as they are, in a fence that no backtick in them can close."""
    longest = max((len(run) for line in lines for run in re.findall(r"`{1,400}", line)), default=0)
    mark = "`" * max(3, longest + 1)
    return [f"{mark}{language}", *lines, mark]


def _bars(groups: Sequence[SilenceGroup]) -> Iterator[str]:
    width = max(len(group.label) for group in groups)
    yield "```"
    for group in groups:
        bar = "█" * round(_BAR * group.share) or "▏"
        quiet = "not known" if group.quiet_s is None else f"{bar} {duration(group.quiet_s)}"
        yield f"{group.label:<{width}} {quiet}"
    yield "```"
