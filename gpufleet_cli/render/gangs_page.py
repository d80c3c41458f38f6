"""All gangs of a cluster, worst first: a line each, and what speaks against the ill ones below it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from gpufleet_cli.gang_card import GangCard, Gangs, MarkedNode
from gpufleet_cli.node_card import Missing
from gpufleet_cli.plain_text import is_name
from gpufleet_cli.render.clean import clean
from gpufleet_cli.render.layout import (
    WIDTH,
    Look,
    clock,
    counted,
    date_clock,
    duration,
    fit,
    labelled,
    pad,
)
from gpufleet_cli.timestamps import format_ns

Json = dict[str, Any]
NS = 1_000_000_000
SCREEN = 21
"""Lines without -v: a terminal's 24 less the command, the line on standard error and the prompt."""
_STATE, _RANKS, _LINE = 17, 6, 9
_NAME = WIDTH - 2 - _STATE - _RANKS - _LINE - 6
_STYLES = {"failed": "bad", "silent": "bad", "pending": "warn", "suspended": "dim"}


def gangs_text(found: Gangs, look: Look) -> str:
    """The page at 80 columns; without -v no more than a screen."""
    found = clean(found, unicode=look.unicode)
    lines = [_head(found, look)]
    if found.gangs:
        head = f"  {pad('GANG', _NAME)}  {pad('RANKS', _RANKS, right=True)}"
        lines += ["", f"{head}  {pad('STATE', _STATE)}  LAST LINE"]
    rest = list(_rest(found, look))
    most = SCREEN - len(lines) - len(rest) - 1
    shown = 0
    body: list[str] = []
    for one in found.gangs:
        own = list(_gang(one, found.read_at_ns, look))
        if shown and not look.verbose and len(body) + len(own) > most:
            break
        body += own
        shown += 1
    lines += body
    left = len(found.gangs) - shown
    if left:
        lines.append(f"  and {left} more, none of them worse; -v shows all")
    lines += rest
    return look.finish(lines)


def _head(found: Gangs, look: Look) -> str:
    space = f"namespace {found.namespace} of " if found.namespace else ""
    ill = sum(one.looks_ill for one in found.gangs)
    told = f"{ill} to look at" if ill else "none looks ill"
    head = counted(len(found.gangs), "gang") if found.gangs else "no gang with GPUs"
    tail = f" · {told}" if found.gangs else ""
    text = f"{head} in {space}{found.context or found.server} · {clock(found.read_at_ns)} UTC"
    return fit(text, WIDTH - len(tail)) + look.paint(tail, "bad" if ill else "good")


def _gang(one: GangCard, now_ns: int, look: Look) -> Iterator[str]:
    name = fit(f"{one.namespace}/{one.name}", _NAME, keep_end=True)
    ranks = "?" if one.ranks is None else f"{one.ranks:,}"
    style = "bad" if one.ill else _STYLES.get(one.state, "warn" if one.why else "plain")
    mark = "!" if one.looks_ill else " "
    state = look.paint(pad(_state(one, now_ns), _STATE), style)
    at = one.last_write_ns
    line = "" if at is None else clock(at) if now_ns - at < 12 * 3600 * NS else date_clock(at)[:10]
    yield f"{mark} {pad(name, _NAME)}  {pad(ranks, _RANKS, right=True)}  {state}  {line}"
    for told in _against(one):
        yield fit(f"    {told}", WIDTH)


def _state(one: GangCard, now_ns: int) -> str:
    if one.since_ns is None or one.state == "suspended":
        return one.state
    age = duration(max(0.0, (now_ns - one.since_ns) / NS))
    return f"failed {age} ago" if one.state == "failed" else f"{one.state} {age}"


def _against(one: GangCard) -> Iterator[str]:
    for node in (one.ill or one.marked)[:2]:
        yield f"{node.name} {node.what}"
    more = len(one.ill or one.marked) - 2
    if more > 0:
        yield f"and {counted(more, 'more node')} like that"
    if one.why:
        yield one.why


def _rest(found: Gangs, look: Look) -> Iterator[str]:
    yield ""
    ill = [one for one in found.spare if one.is_ill]
    if ill:
        few = "; ".join(f"{one.name} {one.what}" for one in ill[:2])
        more = f" and {len(ill) - 2} more (gpufleet nodes)" if len(ill) > 2 else ""
        yield from labelled("Ill, no gang on it: ", few + more, indent=0, most=2)
    counts = []
    if found.others:
        counts.append(f"{counted(found.others, 'other workload')} with GPUs")
    if found.old:
        counts.append(f"{counted(found.old, 'gang')} that failed over a day ago")
    if counts:
        yield fit(f"Not listed: {', '.join(counts)}.", WIDTH)
    told = "; ".join(f"{one.what} ({one.why})" for one in found.missing)
    if told:
        yield from labelled("Not seen: ", told, indent=0, most=None if look.verbose else 3)
    if found.gangs and found.gangs[0].looks_ill:
        yield f"  {command(found.gangs[0])}"


def command(one: GangCard) -> str:
    """What to type next."""
    space = f" -n {shlex.quote(one.namespace)}"
    if one.kind == "pods":
        return f"gpufleet triage -l {shlex.quote(one.name)}{space}"
    if one.kind == "PodGroup":  # of Kueue: plain pods, whose Workload not everybody may read
        selector = f"kueue.x-k8s.io/pod-group-name={one.name}"
        return f"gpufleet triage -l {shlex.quote(selector)}{space}"
    return f"gpufleet triage {one.name}{space}" if is_name(one.name) else "gpufleet triage NAME"


# --- JSON, YAML -----------------------------------------------------------------------------------


def gangs_document(found: Gangs) -> Json:
    """Every field by name; times in RFC 3339."""
    found = clean(found)
    return {
        "gangs": [_document(one) for one in found.gangs],
        "nodes_without_gang": [_node(one) for one in found.spare],
        "other_workloads": found.others,
        "old_failures": found.old,
        "context": found.context,
        "server": found.server,
        "namespace": found.namespace,
        "read_at": format_ns(found.read_at_ns),
        "missing": [_missing(one) for one in found.missing],
    }


def _document(one: GangCard) -> Json:
    return {
        "kind": one.kind,
        "name": one.name,
        "namespace": one.namespace,
        "state": one.state,
        "looks_ill": one.looks_ill,
        "why": one.why,
        "since": None if one.since_ns is None else format_ns(one.since_ns),
        "last_write_at": None if one.last_write_ns is None else format_ns(one.last_write_ns),
        "ranks": one.ranks,
        "gpus": one.gpus,
        "pods": one.pods,
        "size": one.size,
        "attempts": one.attempts,
        "nodes": one.nodes,
        "marked_nodes": [_node(node) for node in one.marked],
    }


def _node(one: MarkedNode) -> Json:
    return {"node": one.name, "what": one.what, "ill": one.is_ill}


def _missing(one: Missing) -> Json:
    return {"what": one.what, "why": one.why}
