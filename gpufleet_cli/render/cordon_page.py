"""How cordons, uncordons and the queue look, as text of 80 columns and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from gpufleet_cli.cordon_card import CordonAnswer, GateItem, Queue, QueueEntry
from gpufleet_cli.node_card import HeldGang, Missing
from gpufleet_cli.render.clean import clean
from gpufleet_cli.render.layout import (
    WIDTH,
    Look,
    counted,
    duration,
    fit,
    labelled,
    pad,
    wrap,
)
from gpufleet_cli.timestamps import format_ns

Json = dict[str, object]
_STYLES = {"pass": "good", "fail": "bad", "unknown": "warn"}


# --- Answers --------------------------------------------------------------------------------------


def answers_text(answers: Sequence[CordonAnswer], look: Look) -> str:
    """What came of each node; refusals and failures have their own line on standard error."""
    lines: list[str] = []
    for one in answers:
        one = clean(one, unicode=look.unicode)
        lines += _gate(one, look)
        if one.code == 0:
            lines += _answer(one, look)
    return look.finish(lines)


def _answer(one: CordonAnswer, look: Look) -> Iterator[str]:
    dry = "dry run: " if one.dry_run else ""
    first, *rest = wrap(f"{one.node}: {dry}{one.answer}: {one.why}", WIDTH)
    yield look.paint(first, "strong")
    yield from (f"  {line}" for piece in rest for line in wrap(piece, WIDTH - 2))
    for gang in one.holds:
        yield from labelled("holds     ", gang)
    for text in one.sets_off:
        yield from labelled("sets off  ", text)
    for command in one.then:  # whole, to be pasted
        yield f"  next      {command}"


def _gate(one: CordonAnswer, look: Look) -> Iterator[str]:
    if not one.gate:
        return
    yield f"{one.node}: what must have passed since the cordon"
    for item in one.gate:
        state = pad(item.state, 8)
        yield from _item(item, look, state)


def _item(item: GateItem, look: Look, state: str) -> Iterator[str]:
    first, *rest = labelled(f"{state}{pad(item.name, 13)}", item.why)
    yield first.replace(state, look.paint(state, _STYLES[item.state]), 1)
    yield from rest
    if item.stated and item.state != "pass":
        yield from labelled(" " * 21, f"stated: {item.stated}")


def answers_json(answers: Sequence[CordonAnswer]) -> str:
    return _dump({"nodes": [_answer_document(clean(one)) for one in answers]})


def _answer_document(one: CordonAnswer) -> Json:
    found: Json = {
        "node": one.node,
        "answer": one.answer,
        "why": one.why,
        "sets_off": list(one.sets_off),
        "holds": list(one.holds),
        "next": list(one.then),
        "instead": one.instead,
        "owner": one.owner,
        "dry_run": one.dry_run,
        "exit_code": one.code,
    }
    if one.gate:
        found["gate"] = [
            {"item": item.name, "state": item.state, "why": item.why, "stated": item.stated}
            for item in one.gate
        ]
    return found


# --- The queue ------------------------------------------------------------------------------------


def queue_text(found: Queue, look: Look) -> str:
    """Two lines a node: what it costs, since when and who holds it; why it waits and who said so."""
    shown = [clean(one, unicode=look.unicode) for one in found.entries]
    where = f" in {found.context}" if found.context else ""
    lines = [_head(shown, where)]
    if shown:
        width = min(max(len(one.node) for one in shown), 28)
        lines += ["", f"{pad('NODE', width)}  COSTS        AGE     GANG"]
        for one in shown:
            lines += _entry(one, width, found.read_at_ns, look)
        lines += ["", "  gpufleet queue done NODE   returns one to service, through a gate"]
    for gap in clean(found.missing, unicode=look.unicode):
        lines += labelled("Not seen: ", f"{gap.what} ({gap.why})", most=2)
    return look.finish(lines)


def _head(shown: Sequence[QueueEntry], where: str) -> str:
    if not shown:
        return f"no node waits for replacement{where}"
    waiting = [one for one in shown if one.is_cordoned]
    idle = sum(one.idle_gpus or 0 for one in waiting)
    unsure = " at least" if any(one.idle_gpus is None for one in waiting) else ""
    cost = f"{counted(idle, 'GPU')} idle{unsure}: {idle:,} GPU-h each hour"
    return fit(f"{counted(len(waiting), 'node')} for replacement{where} · {cost}", WIDTH)


def _entry(one: QueueEntry, width: int, now_ns: int, look: Look) -> Iterator[str]:
    idle = one.idle_gpus
    cost = "?" if idle is None else f"{idle} GPU-h/h" if idle else "nothing"
    age = "?" if one.at_ns is None else duration(max(0.0, (now_ns - one.at_ns) / 1e9))
    style = "bad" if not one.is_cordoned else "warn" if idle else "plain"
    head = f"{pad(one.node, width)}  {pad(cost, 11)}  {pad(age, 6)}  "
    yield look.paint(head, style) + fit(_held(one), WIDTH - width - 23)
    incident = f" (incident {one.incident})" if one.incident else ""
    yield from labelled("  ", f"{one.reason or 'no reason'} · by {one.by or '?'}{incident}", most=2)
    if not one.is_cordoned:
        told = "schedulable: uncordoned by hand; gpufleet uncordon clears the annotations"
        yield from labelled("  ", told)
    if one.other_owner is not None:
        yield from labelled("  ", f"the cordon is now that of {one.other_owner}", most=2)
    if one.ready not in ("True", None):
        yield f"    Ready={one.ready}"


def _held(one: QueueEntry) -> str:
    if one.gangs is None:
        return "not known"
    if not one.held:
        return "none: free to be replaced" if one.is_cordoned else "none"
    return ", ".join(f"{gang.namespace}/{gang.name} {_state(gang)}" for gang in one.held)


def _state(gang: HeldGang) -> str:
    running = any(pod.phase == "running" for pod in gang.pods)
    return f"({gang.gpus} GPUs, {'running' if running else gang.pods[0].phase})"


def queue_json(found: Queue) -> str:
    return _dump(
        {
            "context": found.context,
            "queue": [_entry_document(clean(one), found.read_at_ns) for one in found.entries],
            "missing": [_missing(one) for one in clean(found.missing)],
        }
    )


def _entry_document(one: QueueEntry, now_ns: int) -> Json:
    age_s = None if one.at_ns is None else max(0.0, (now_ns - one.at_ns) / 1e9)
    return {
        "node": one.node,
        "reason": one.reason,
        "cordoned_by": one.by,
        "cordoned_at": None if one.at_ns is None else format_ns(one.at_ns),
        "age_seconds": None if age_s is None else round(age_s),
        "incident": one.incident,
        "cordoned": one.is_cordoned,
        "other_owner": one.other_owner,
        "ready": one.ready,
        "gpus": one.gpus,
        "gpu_hours_per_hour": one.idle_gpus,
        "gangs": None
        if one.gangs is None
        else [
            {
                "kind": gang.kind,
                "name": gang.name,
                "namespace": gang.namespace,
                "gpus": gang.gpus,
                "running": any(pod.phase == "running" for pod in gang.pods),
            }
            for gang in one.held
        ],
    }


def _missing(one: Missing) -> Json:
    return {"what": one.what, "why": one.why}


def _dump(document: Json) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
