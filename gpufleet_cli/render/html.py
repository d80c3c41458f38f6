"""The report as one self-contained HTML page: no script, no request, dark and light, printable.

Every text goes through `html.escape`; the page carries a Content-Security-Policy that allows
nothing but its own style, should something slip through all the same.
"""

from __future__ import annotations

from html import escape
from typing import assert_never

from gpufleet_cli.render.layout import Look, duration
from gpufleet_cli.render.page import Bars, Block, Commands, Items, Table, Text, page
from gpufleet_cli.render.silence import SilenceGroup
from gpufleet_cli.verdict import Triage

_STYLE = """
:root { color-scheme: light dark; --ink: #1a1c1e; --paper: #fff; --line: #d5d8dc; --soft: #5f666d;
  --bad: #b3261e; --warn: #8a5a00; --good: #1b6e3c; --ask: #0b5a8a; --bar: #7a8086; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --paper: #15181b; --line: #383d42;
  --soft: #a0a7ae; --bad: #ff8a80; --warn: #ffc46b; --good: #7fd6a0; --ask: #86c8f5;
  --bar: #8b9299; } }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: var(--ink);
  background: var(--paper); font: 16px/1.5 system-ui, sans-serif; }
h1 { margin: .2rem 0; font-size: 1.7rem; } h2 { margin: 2rem 0 .5rem; font-size: 1.1rem; }
.bad { color: var(--bad); } .warn { color: var(--warn); } .good { color: var(--good); }
.ask { color: var(--ask); } .soft { color: var(--soft); }
table { border-collapse: collapse; width: 100%; } td, th { padding: .3rem .6rem .3rem 0;
  border-bottom: 1px solid var(--line); text-align: left; vertical-align: top;
  overflow-wrap: break-word; }
.silence td { border: 0; } .silence td:nth-child(2) { width: 60%; }
.bar { display: block; height: 1rem; min-width: 2px; background: var(--bar); }
.bar.accused { background: var(--bad); }
pre { padding: .8rem; border: 1px solid var(--line); overflow-x: auto; }
@media print { body { margin: 0; max-width: none; } h2 { break-after: avoid; }
  tr, pre { break-inside: avoid; } pre { white-space: pre-wrap; } }
"""


def render(triage: Triage, _look: Look) -> str:
    """The whole page."""
    made = page(triage)
    body = [
        f'<p class="soft">{escape(made.headline)}</p>',
        f'<h1><span class="{made.style}">{made.action}</span> {escape(made.nodes)}</h1>',
    ]
    for section in made.sections:
        body += [f"<h2>{section.title}</h2>", *(_block(block) for block in section.blocks)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(made.headline)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _block(block: Block) -> str:
    match block:
        case Text():
            return f"<p>{escape(block.text)}</p>"
        case Table():
            return _table(block)
        case Items():
            return "<ul>" + "\n".join(f"<li>{escape(item)}</li>" for item in block.items) + "</ul>"
        case Commands():
            return "<pre>" + "\n".join(escape(line) for line in block.lines) + "</pre>"
        case Bars():
            return '<table class="silence">' + "\n".join(map(_bar, block.groups)) + "</table>"
        case _:
            assert_never(block)


def _table(table: Table) -> str:
    lines = [_row("th", table.head), *(_row("td", cells) for cells in table.rows)]
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _row(tag: str, cells: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _bar(group: SilenceGroup) -> str:
    if group.quiet_s is None:
        return f"<tr><td>{escape(group.label)}</td><td></td><td>not known</td></tr>"
    accused = " accused" if group.accused else ""
    bar = f'<span class="bar{accused}" style="width:{100 * group.share:.1f}%"></span>'
    return (
        f"<tr><td>{escape(group.label)}</td><td>{bar}</td><td>{duration(group.quiet_s)}</td></tr>"
    )
