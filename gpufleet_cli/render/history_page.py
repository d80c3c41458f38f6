"""`gpufleet history` at 80 columns and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gpufleet_cli.history_card import HistoryCard, HistoryRow, HowFast, HowOften, Interval, Offender
from gpufleet_cli.node_card import FaultRate
from gpufleet_cli.render.clean import clean
from gpufleet_cli.render.layout import (
    WIDTH,
    Look,
    cell_width,
    counted,
    date_clock,
    duration,
    figure,
    fit,
    labelled,
    pad,
)
from gpufleet_cli.timestamps import format_ns

Json = dict[str, object]
SCREEN = 22  # of 24 lines: the prompt has its own
MOST_ROWS, FEWEST_ROWS = 12, 2
FEW_OFFENDERS = 3
MOST_NODE = 22
_LABEL = 14
_RATE_FROM = {
    "flag": "by --node-failures-per-day",
    "file": "by the settings file",
    "history": "as seen here",
    "default": "a default",
}


def text(card: HistoryCard, look: Look) -> str:
    """The page; without -v as many incidents of it as fit a screen of 24 lines."""
    card = clean(card, unicode=look.unicode)
    if look.verbose:
        return look.finish(_page(card, look, len(card.rows)))
    for few in range(MOST_ROWS, FEWEST_ROWS, -1):
        lines = _page(card, look, few)
        if len(lines) <= SCREEN:
            return look.finish(lines)
    return look.finish(_page(card, look, FEWEST_ROWS))


def _page(card: HistoryCard, look: Look, few: int) -> list[str]:
    lines = [_head(card)]
    if card.kept:
        lines += ["", *_rows(card, look, few), "", *_offenders(card, look)]
        for one in card.often:
            lines += labelled(pad(one.what, _LABEL), _often(one))
        if card.gpus is None:
            lines += labelled(pad("per GPU-hour", _LABEL), "not known: --gpus N")
        for fast in card.fast:
            lines += labelled(pad(fast.what, _LABEL), _fast(fast))
    lines += labelled(pad("kept in", _LABEL), f"{card.folder} ({card.source})")
    return [*lines, *_not_read(card, look)]


def _head(card: HistoryCard) -> str:
    if not card.kept:
        return "No incident is kept."
    shown = counted(len(card.rows), "incident")
    of = "" if len(card.rows) == card.kept else f" of {card.kept:,}"
    if card.from_ns is None:
        return f"{shown}{of}"
    days = round((card.as_of_ns - card.from_ns) / 86_400e9, 1)
    begin = "the first on " if card.from_first else ""
    return f"{shown}{of} since {begin}{date_clock(card.from_ns)[:10]}, {figure(days)} days"


def _rows(card: HistoryCard, look: Look, few: int) -> Iterator[str]:
    shown = card.rows[:few]
    width = max((cell_width(_nodes(one)) for one in shown), default=1)
    for one in shown:
        yield fit("  " + _row(one, width), WIDTH)
        if look.verbose:
            yield from labelled(f"{one.id}  ", one.summary, indent=2, most=2)
    if len(card.rows) > len(shown):
        yield f"  and {len(card.rows) - len(shown):,} more: -v, --since, --node, --job, --kind"
    if not card.rows:
        yield "  none that was asked for"


def _row(one: HistoryRow, width: int) -> str:
    at = date_clock(one.at_ns)[:16] if one.at_ns is not None else "time not known"
    codes = f" (XID {', '.join(map(str, one.xids[:3]))})" if one.xids else ""
    job = f"{one.namespace}/{one.job}" if one.namespace else one.job or "?"
    told = f"{one.kind}{codes}: {one.action}, {job}"
    return f"{pad(at, 16)}  {pad(_nodes(one), width)}  {told}"


def _nodes(one: HistoryRow) -> str:
    if not one.nodes:
        return "-"
    more = f" +{len(one.nodes) - 1}" if len(one.nodes) > 1 else ""
    return fit(one.nodes[0], MOST_NODE - len(more)) + more


def _offenders(card: HistoryCard, look: Look) -> Iterator[str]:
    shown = card.offenders if look.verbose else card.offenders[:FEW_OFFENDERS]
    for one in shown:
        label, style = ("offender", "bad") if one.is_flagged else ("offender?", "plain")
        for line in labelled(pad(label, _LABEL), _offender(one)):
            yield look.paint(line, style)
    if len(card.offenders) > len(shown):
        yield f"  and {counted(len(card.offenders) - len(shown), 'more node')} named again and again: -v"
    if not card.offenders:
        yield from labelled(pad("offenders", _LABEL), "none: no node has 2 faults in 28 days")
    yield from labelled(pad("by luck", _LABEL), _luck(card))


def _offender(one: Offender) -> str:
    test, told = one.test, []
    if test is not None and test.faults > 1:
        odds = f"by luck {_odds(test.chance)} nodes"
        if test.innocents is not None:
            odds += f", {figure(test.innocents)} of {test.nodes:,}"
        verdict = "" if test.is_flagged else ": may be luck"
        told.append(f"{counted(test.faults, 'fault')} in {test.days} d, {odds}{verdict}")
    if one.singled_out > (0 if test is None else test.faults):
        chance = one.singled_out_chance
        odds = "odds: --nodes N" if chance is None else f"by luck {_odds(chance)} nodes"
        told.append(f"singled out {counted(one.singled_out, 'time')} in 28 d, {odds}")
    return f"{one.node}: {'; '.join(told)}"


def _odds(chance: float) -> str:
    """
    >>> _odds(0.002), _odds(0.4), _odds(0.0)
    ('1 in 500', '1 in 2.5', 'no')
    """
    if chance <= 0:
        return "no"
    return f"1 in {figure(1 / chance)}"


def _luck(card: HistoryCard) -> str:
    rate = f"at {_rate(card.rate)}, {_RATE_FROM[card.rate.source]}"
    if card.rate_interval90 is not None:
        low, high = card.rate_interval90
        rate += f" (90 %: {low:.2g} to {high:.2g})"
    if card.innocents is None or card.nodes is None:
        told = f"{figure(1000 * card.chance_flagged)} of 1,000 healthy nodes would be named"
        return f"{told}, {rate}; --nodes N"
    named = counted(card.nodes, "healthy node")
    return f"{figure(card.innocents)} of {named} would be named, {rate}"


def _rate(rate: FaultRate) -> str:
    return f"{rate.a_node_day:.2g} faults a node-day"


def _often(one: HowOften) -> str:
    if one.hours is None or one.interval90_hours is None:
        return f"{one.seen:,}; how often is not known: since when? --since"
    low, high = one.interval90_hours
    if one.hours_each is None:
        none = "none after the first" if one.without_first else "none"
        return f"{none} in {_time_words(one.hours)}: one in {_time_words(low)} or more (95 %)"
    told = f"{one.seen:,}, one in {_time_words(one.hours_each)} (90 %: {_between(low, high)})"
    if one.gpu_hours_each is None or one.interval90_gpu_hours is None:
        return told
    least, most = one.interval90_gpu_hours
    return (
        f"{told}; {_figures(one.gpu_hours_each)} GPU-h each ({_figures(least)} to {_figures(most)})"
    )


def _between(low: float, high: float | None) -> str:
    return f"{_time_words(low)} to {'any' if high is None else _time_words(high)}"


def _time_words(hours: float) -> str:
    """
    >>> [_time_words(hours) for hours in (0.5, 30, 1500, 156_000)]
    ['30m', '30h', '62.5 d', '6,500 d']
    """
    return duration(hours * 3600) if hours < 24 * 30 else f"{_figures(hours / 24)} d"


def _figures(value: float | None) -> str:
    """Three figures that matter."""
    if value is None:
        return "any"
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def _fast(one: HowFast) -> str:
    if one.median_s is None:
        return f"not known: none of {counted(one.of, 'incident')} tells"
    return f"median {duration(one.median_s)}, of {one.known:,} of {counted(one.of, 'incident')} that tell"


def _not_read(card: HistoryCard, look: Look) -> list[str]:
    if not card.not_read:
        return []
    told = "; ".join(f"{one.what} ({one.why})" for one in card.not_read)
    head = f"Not read: {len(card.not_read)}: "
    return labelled(head, told, indent=0, most=None if look.verbose else 2)


# --- JSON -----------------------------------------------------------------------------------------


def document(card: HistoryCard) -> str:
    """Every field by its name; times in RFC 3339, durations in seconds."""
    card = clean(card)
    found: Json = {
        "folder": card.folder,
        "folder_source": card.source,
        "as_of": format_ns(card.as_of_ns),
        "kept": card.kept,
        "counted_since": _time(card.from_ns),
        "counted_since_source": "first-incident" if card.from_first else "flag",
        "incidents": [_incident(one) for one in card.rows],
        "offenders": [_offender_json(one) for one in card.offenders],
        "faults_per_node_day": card.rate.a_node_day,
        "faults_per_node_day_source": card.rate.source,
        "faults_per_node_day_interval90": card.rate_interval90,
        "nodes": card.nodes,
        "gpus": card.gpus,
        "chance_flagged": card.chance_flagged,
        "expected_innocents": card.innocents,
        "mtbf": {one.name: _often_json(one) for one in card.often},
        "times": {
            one.name: {"median_seconds": one.median_s, "known": one.known, "of": one.of}
            for one in card.fast
        },
        "not_read": [{"what": one.what, "why": one.why} for one in card.not_read],
    }
    if card.from_ns is None:
        found["counted_since_source"] = None
    return json.dumps({"history": found}, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _incident(one: HistoryRow) -> Json:
    return {
        "id": one.id,
        "at": _time(one.at_ns),
        "began_at": _time(one.began_ns),
        "ended_at": _time(one.ended_ns),
        "looked_at": _time(one.looked_ns),
        "diagnosed_at": _time(one.diagnosed_ns),
        "kind": one.kind,
        "action": one.action,
        "state": one.state,
        "confidence": one.confidence,
        "cluster": one.cluster,
        "namespace": one.namespace,
        "job": one.job,
        "attempt": one.attempt,
        "nodes": list(one.nodes),
        "ranks": list(one.ranks),
        "xids": list(one.xids),
        "node_fault": one.is_node_fault,
        "lost_gpu_hours": one.lost_gpu_hours,
        "summary": one.summary,
    }


def _offender_json(one: Offender) -> Json:
    test = one.test
    return {
        "node": one.node,
        "cluster": one.cluster,
        "flagged": one.is_flagged,
        "faults": 0 if test is None else test.faults,
        "days": None if test is None else test.days,
        "chance": None if test is None else test.chance,
        "expected_innocents": None if test is None else test.innocents,
        "singled_out_28_days": one.singled_out,
        "singled_out_chance": one.singled_out_chance,
        "incidents": one.named,
    }


def _often_json(one: HowOften) -> Json:
    return {
        "seen": one.seen,
        "observed_hours": one.hours,
        "hours_each": one.hours_each,
        "interval90_hours": _pair(one.interval90_hours),
        "gpu_hours_each": one.gpu_hours_each,
        "interval90_gpu_hours": _pair(one.interval90_gpu_hours),
    }


def _pair(interval: Interval | None) -> list[float | None] | None:
    return None if interval is None else list(interval)


def _time(ns: int | None) -> str | None:
    return None if ns is None else format_ns(ns)
