"""The look of the HTML page: colours of both schemes, type, tables that stack on a telephone, print.

Every colour is a custom property, so that a test can compute the contrast of each pair from this text.
"""

from __future__ import annotations

LIGHT = {
    "ink": "#1b1f24", "paper": "#ffffff", "panel": "#f5f7f9", "line": "#d3d9df", "soft": "#59636e",
    "link": "#0a58a8", "bad": "#b3231b", "warn": "#855300", "good": "#1a6b3a", "ask": "#0b5a8a",
    "culprit": "#c62f25", "suspect": "#b26a00", "waited": "#5b7fa6", "silent": "#7d6b9e",
    "well": "#3d8a5a", "unknown": "#7b838c", "alive": "#5b7fa6", "mark": "#1b1f24", "track": "#e6eaee",
}  # fmt: skip
DARK = {
    "ink": "#e6e9ec", "paper": "#14181c", "panel": "#1d2329", "line": "#39424b", "soft": "#a3adb7",
    "link": "#8dc2f7", "bad": "#ff8f85", "warn": "#ffc46b", "good": "#7fd6a0", "ask": "#86c8f5",
    "culprit": "#ff6f61", "suspect": "#f0a540", "waited": "#7fa3cc", "silent": "#b09bd6",
    "well": "#6fc291", "unknown": "#87919b", "alive": "#7fa3cc", "mark": "#e6e9ec", "track": "#2a323a",
}  # fmt: skip


def _properties(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


STYLE = f"""
:root {{ color-scheme: light dark; {_properties(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_properties(DARK)} }} }}
@media print {{ :root {{ color-scheme: light; {_properties(LIGHT)} }} }}
* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; scroll-padding-top: 1rem; }}
body {{ margin: 0; color: var(--ink); background: var(--paper);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  overflow-wrap: break-word; }}
main, .end {{ max-width: 64rem; margin: 0 auto; padding: 0 1.25rem; }}
main {{ padding-top: 2.5rem; }}
h1 {{ margin: 0; font-size: 2rem; line-height: 1.2; letter-spacing: -.01em; }}
h2 {{ margin: 3rem 0 .75rem; padding-top: .75rem; border-top: 1px solid var(--line);
  font-size: 1.35rem; line-height: 1.3; }}
h3 {{ margin: 1.75rem 0 .5rem; font-size: 1.05rem; }}
p {{ margin: .6rem 0; max-width: 46rem; }}
a {{ color: var(--link); text-underline-offset: .15em; }}
a:focus-visible {{ outline: 2px solid var(--link); outline-offset: 2px; }}
.soft, .unit, figcaption {{ color: var(--soft); }}
.bad {{ color: var(--bad); }} .warn {{ color: var(--warn); }} .good {{ color: var(--good); }}
.ask {{ color: var(--ask); }}
.badge {{ display: inline-block; margin: 1.1rem 0 0; padding: .3rem .8rem; border: 2px solid;
  border-radius: .4rem; font-weight: 650; }}
.summary {{ margin: 1.5rem 0; padding: 1rem 1.25rem 1rem 2.5rem; background: var(--panel);
  border-left: 4px solid var(--link); border-radius: 0 .4rem .4rem 0; font-size: 1.06rem; }}
.summary li {{ margin: .45rem 0; max-width: 48rem; }}
.figures {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .75rem;
  margin: 1.5rem 0; }}
.figures div {{ padding: .7rem .9rem; border: 1px solid var(--line); border-radius: .4rem; }}
.figures dt {{ font-size: .85rem; color: var(--soft); }}
.figures dd {{ margin: 0; font-size: 1.05rem; font-weight: 600; font-variant-numeric: tabular-nums; }}
.figures .unit {{ display: block; font-size: .85rem; font-weight: 400; }}
nav ul {{ display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: 0; padding: 0; list-style: none;
  font-size: .92rem; }}
table {{ width: 100%; margin: 1rem 0; border-collapse: collapse; font-size: .93rem; line-height: 1.45;
  font-variant-numeric: tabular-nums; }}
caption {{ padding: .4rem 0; text-align: left; font-weight: 600; color: var(--soft); }}
th, td {{ padding: .42rem .9rem .42rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; overflow-wrap: anywhere; }}
thead th {{ font-size: .84rem; color: var(--soft); overflow-wrap: normal; }}
tbody th {{ min-width: 6em; }} tbody td {{ min-width: 7.6em; }} table.moments td {{ min-width: 3em; }}
p, li, dd, pre, code, caption, figcaption, h1, h2, h3 {{ overflow-wrap: anywhere; }}
tbody th {{ font-weight: 500; }}
tr.bad, tr.warn, tr.good, tr.ask {{ color: inherit; }} tr.bad th {{ font-weight: 650; color: var(--bad); }}
tr.warn th {{ color: var(--warn); }} tr.good th {{ color: var(--good); }}
tr.soft th, tr.soft td {{ color: var(--soft); }}
th time, td time {{ white-space: nowrap; }}
table.moments td:nth-child(2) {{ white-space: nowrap; }}
table.moments td:nth-child(4), table.moments th:nth-child(4) {{ min-width: 5.5rem; }}
code, pre {{ font: .88em/1.5 ui-monospace, "SF Mono", "DejaVu Sans Mono", Consolas, monospace; }}
pre {{ margin: .6rem 0; padding: .75rem .9rem; background: var(--panel); border: 1px solid var(--line);
  border-radius: .4rem; white-space: pre-wrap; }}
.log .ln {{ display: inline-block; padding-left: 4ch; text-indent: -4ch; }}
.log .no {{ color: var(--soft); }} .log mark {{ background: none; color: var(--warn); font-weight: 600; }}
dl.facts {{ display: grid; grid-template-columns: minmax(9rem, max-content) 1fr; gap: .3rem 1.25rem; }}
dl.facts dt {{ color: var(--soft); }} dl.facts dd {{ margin: 0; }}
figure {{ margin: 1.25rem 0; padding: 1rem; background: var(--panel); border: 1px solid var(--line);
  border-radius: .4rem; overflow: hidden; }}
figure.narrow {{ max-width: 42rem; }}
figcaption {{ margin-top: .6rem; font-size: .9rem; }}
svg {{ display: block; width: 100%; overflow: visible; }}
svg text {{ font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  fill: var(--ink); font-variant-numeric: tabular-nums; }}
svg .title {{ font-weight: 600; }} svg .note {{ fill: var(--soft); font-size: 12px; }}
svg .track {{ fill: var(--track); }} svg .alive {{ fill: var(--alive); }}
svg .t-culprit {{ fill: var(--culprit); }} svg .t-suspect {{ fill: var(--suspect); }}
svg .t-waited {{ fill: var(--waited); }} svg .t-silent {{ fill: var(--silent); }}
svg .t-well {{ fill: var(--well); }} svg .t-unknown {{ fill: var(--unknown); }}
svg .mark {{ stroke: var(--mark); stroke-width: 2; }}
svg .ring {{ fill: none; stroke: var(--mark); stroke-width: 2; }}
svg .box {{ fill: var(--paper); stroke: var(--soft); }}
svg .box.k-culprit {{ stroke: var(--culprit); stroke-width: 3; }}
svg .box.k-suspect {{ stroke: var(--suspect); stroke-width: 3; }}
svg .box.k-absent, svg .box.k-behind {{ stroke-dasharray: 5 3; stroke-width: 2; }}
svg .arrow {{ stroke: var(--soft); stroke-width: 1.5; }} svg .head {{ fill: var(--soft); font-size: 11px; }}
.legend {{ display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .7rem 0 0; padding: 0; list-style: none;
  font-size: .88rem; }}
.legend svg {{ display: inline-block; width: 12px; height: 12px; margin-right: .35rem; }}
.entries {{ margin: 0; padding: 0; list-style: none; }}
.entries li {{ padding: .6rem 0; border-bottom: 1px solid var(--line); }}
.entries li:target {{ background: var(--panel); outline: 2px solid var(--link); outline-offset: 4px; }}
.entries p {{ margin: .15rem 0; }} .entries pre {{ margin: .35rem 0 0; }}
.end {{ padding-top: 2rem; padding-bottom: 3rem; color: var(--soft); font-size: .88rem; }}
@media (max-width: 60rem) {{
  main {{ padding-top: 1.5rem; }} main, .end {{ padding-left: 1rem; padding-right: 1rem; }}
  h1 {{ font-size: 1.55rem; }} h2 {{ font-size: 1.2rem; margin-top: 2.25rem; }}
  .summary {{ padding: .75rem .9rem .75rem 2rem; font-size: 1rem; }}
  .figures {{ grid-template-columns: 1fr 1fr; }}
  table {{ position: relative; }}
  thead {{ position: absolute; left: 0; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%);
    white-space: nowrap; }} thead tr {{ display: inline; }} thead th {{ display: inline-block; width: 1px; padding: 0;
    overflow: hidden; }}
  table, tbody, tr, caption {{ display: block; }}
  tbody th, tbody td {{ display: grid; grid-template-columns: 7rem 1fr; gap: .6rem; padding: .15rem 0; border: 0;
    min-width: 0; white-space: normal; }}
  tbody th::before, tbody td::before {{ content: attr(data-head); font-weight: 400; font-size: .84rem;
    color: var(--soft); }}
  table.moments tr {{ display: grid; grid-template-columns: auto 1fr auto; gap: .1rem .8rem; }}
  table.moments tbody th, table.moments tbody td {{ display: block; min-width: 0; }}
  table.moments tbody th::before, table.moments tbody td::before {{ content: none; }}
  table.moments td:nth-child(3) {{ grid-column: 1 / -1; grid-row: 2; }}
  table.moments td:nth-child(4) {{ grid-column: 3; grid-row: 1; }}
  th time, td time {{ white-space: normal; }}
  tr {{ padding: .5rem 0; border-bottom: 1px solid var(--line); }}
  dl.facts {{ grid-template-columns: 1fr; gap: 0; }} dl.facts dd {{ margin-bottom: .5rem; }}
  figure {{ padding: .75rem; }}
}}
@media print {{
  body {{ font-size: 10pt; }} main, .end {{ max-width: none; padding: 0; }} nav {{ display: none; }}
  h2, h3, caption {{ break-after: avoid; }} tr, figure, .entries li, .figures div {{ break-inside: avoid; }}
  a {{ color: inherit; }} svg {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
}}
"""
