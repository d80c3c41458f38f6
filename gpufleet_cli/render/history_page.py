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
FEW = 6
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
    """The page; short enough for a screen of 24 lines without -v."""
    card = clean(card, unicode=look.unicode)
    lines = labelled("", _head(card), indent=0)
    if card.kept:
        lines += ["", *_rows(card, look), "", *_offenders(card, look), ""]
        for one in card.often:
            lines += _often(one, card)
        for fast in card.fast:
            lines += labelled(pad(fast.what, _LABEL), _fast(fast))
    lines += _not_read(card, look)
    return look.finish(lines)


def _head(card: HistoryCard) -> str:
    if not card.kept:
        return f"No incident is kept in {card.folder} ({card.source})."
    shown = counted(len(card.rows), "incident")
    of = "" if len(card.rows) == card.kept else f" of {card.kept:,}"
    since = ""
    if card.from_ns is not None:
        begin = "since the first, " if card.from_first else "since "
        days = (card.as_of_ns - card.from_ns) / 86_400e9
        since = f" {begin}{date_clock(card.from_ns)[:10]} ({figure(round(days, 1))} d)"
    return f"{shown}{of}{since} in {card.folder} ({card.source})"


def _rows(card: HistoryCard, look: Look) -> Iterator[str]:
    shown = card.rows if look.verbose else card.rows[:FEW]
    width = max((cell_width(_nodes(one)) for one in shown), default=1)
    for one in shown:
        yield fit("  " + _row(one, width), WIDTH)
        if look.verbose and one.summary:
            yield from labelled("", one.summary, indent=20, most=2)
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
        label, style = ("offender", "bad") if one.test.is_flagged else ("offender?", "plain")
        for line in labelled(pad(label, _LABEL), _offender(one)):
            yield look.paint(line, style)
    if len(card.offenders) > len(shown):
        yield f"  and {counted(len(card.offenders) - len(shown), 'more node')} with 2 faults or more: -v"
    if not card.offenders:
        yield from labelled(pad("offenders", _LABEL), "none: no node has 2 faults in 28 days")
    yield from labelled(pad("by luck alone", _LABEL), _luck(card))


def _offender(one: Offender) -> str:
    test = one.test
    odds = f"by luck 1 healthy node in {1 / test.chance:,.0f}" if test.chance else "never by luck"
    if test.innocents is not None:
        odds += f", {figure(test.innocents)} of {test.nodes:,}"
    verdict = "" if test.is_flagged else ": no more than chance gives"
    return f"{one.node}: {counted(test.faults, 'fault')} in {test.days} days, {odds}{verdict}"


def _luck(card: HistoryCard) -> str:
    rate = f"at {_rate(card.rate)}, {_RATE_FROM[card.rate.source]}"
    if card.rate_interval90 is not None:
        low, high = card.rate_interval90
        rate += f" (90 %: {low:.2g} to {high:.2g})"
    if card.innocents is None or card.nodes is None:
        told = f"{figure(1000 * card.chance_flagged)} of 1,000 healthy nodes would be named today"
        return f"{told} {rate}; --nodes N for this fleet"
    named = counted(card.nodes, "healthy node")
    return f"{figure(card.innocents)} of {named} would be named today {rate}"


def _rate(rate: FaultRate) -> str:
    return f"{rate.a_node_day:.2g} faults a node-day"


def _often(one: HowOften, card: HistoryCard) -> list[str]:
    return labelled(pad(one.what, _LABEL), _often_words(one, card))


def _often_words(one: HowOften, card: HistoryCard) -> str:
    if one.hours is None or one.interval90_hours is None:
        return f"{one.seen:,}; how often is not known: since when? --since"
    low, high = one.interval90_hours
    if one.hours_each is None:
        none = "none after the first" if card.from_first else "none"
        return f"{none} in {_time_words(one.hours)}: one in {_time_words(low)} or more (95 %)"
    told = f"{one.seen:,}, one in {_time_words(one.hours_each)} (90 %: {_between(low, high)})"
    if one.gpu_hours_each is None or one.interval90_gpu_hours is None:
        return f"{told}; per GPU-hour not known: --gpus N"
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
    return {
        "node": one.node,
        "cluster": one.cluster,
        "flagged": one.test.is_flagged,
        "faults": one.test.faults,
        "days": one.test.days,
        "chance": one.test.chance,
        "expected_innocents": one.test.innocents,
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
