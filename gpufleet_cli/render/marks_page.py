"""What `label-gangs` did: a summary line, and a line for each node that changed."""

from __future__ import annotations

import json

from gpufleet_cli.mark_card import MarkRun, NodeChange
from gpufleet_cli.render.clean import clean
from gpufleet_cli.render.layout import WIDTH, Look, counted, fit, labelled

MOST_SHOWN = 12
_WORDS = {"mark": "marked", "change": "changed", "clear": "cleared"}


def marks_text(run: MarkRun, look: Look) -> str:
    run = clean(run, unicode=look.unicode)
    lines = labelled("", _summary(run), indent=0)
    if run.left:
        lines += labelled(
            "", f"{counted(run.left, 'node')} left as marked for gangs of other namespaces"
        )
    shown = run.changes if look.verbose else run.changes[:MOST_SHOWN]
    lines += [_line(one) for one in shown]
    if len(run.changes) > len(shown):
        lines.append(f"  and {counted(len(run.changes) - len(shown), 'more node')}; -v shows all")
    for one in run.missing:
        lines += labelled("not seen  ", f"{one.what}: {one.why}")
    return look.finish(lines)


def _summary(run: MarkRun) -> str:
    dry = "dry run: " if run.dry_run else ""
    counts = ", ".join(f"{run.count(action)} {word}" for action, word in _WORDS.items())
    not_made = f", {len(run.not_made)} not written" if run.not_made else ""
    hold = "holds" if run.nodes == 1 else "hold"
    held = f"{counted(run.nodes, 'node')} {hold} {counted(run.gangs, 'gang')}: "
    return f"{dry}{held}{counts}{not_made}, {run.unchanged} as they should be"


def _line(one: NodeChange) -> str:
    word = _WORDS[one.action] if one.came == "done" else one.came
    why = f": {one.why}" if one.why else ""
    return fit(f"  {word:<10}  {one.node}  {one.job}{why}", WIDTH)


def marks_json(run: MarkRun) -> str:
    run = clean(run)
    document = {
        "gangs": run.gangs,
        "nodes_with_a_gang": run.nodes,
        "not_gangs": run.others,
        "marked": run.count("mark"),
        "changed": run.count("change"),
        "cleared": run.count("clear"),
        "unchanged": run.unchanged,
        "left": run.left,
        "not_written": len(run.not_made),
        "dry_run": run.dry_run,
        "nodes": [
            {
                "node": one.node,
                "action": one.action,
                "job": one.job,
                "outcome": one.came,
                "why": one.why or None,
            }
            for one in run.changes
        ],
        "missing": [{"what": one.what, "why": one.why} for one in run.missing],
    }
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
