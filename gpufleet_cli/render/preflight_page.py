"""What `preflight` found: worst first, each with why, how to mend it and where; and the same as JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from gpufleet_cli.render.clean import clean
from gpufleet_cli.render.layout import WIDTH, Look, cell_width, counted, fit, labelled, pad, wrap
from gpufleet_cli.spec_check import Preflight, Silenced, SpecFinding, SpecRead

Json = dict[str, Any]
MOST_PLACES = 4
_STYLES = {"error": "bad", "warning": "warn", "info": "dim"}
_START = 11


def preflight_text(found: Preflight, look: Look) -> str:
    """The page at 80 columns."""
    found = clean(found, unicode=look.unicode)
    lines = [fit(f"preflight · {counted(len(found.read), 'workload')}", WIDTH)]
    for one in found.read:
        lines += labelled("", _read(one), most=2)
    for finding in found.findings:
        lines += ["", *_finding(finding, look)]
    if found.silenced:
        lines += ["", f"{len(found.silenced)} silenced:"]
        for quiet in found.silenced:
            lines += labelled(f"{quiet.finding.id}  ", f"{quiet.reason} ({quiet.by})", most=2)
    lines += ["", *wrap(_sum(found, look), WIDTH)]
    return look.finish(lines)


def _read(one: SpecRead) -> str:
    name = f"{one.namespace}/{one.name}" if one.namespace else one.name
    gpus = "GPUs not known" if one.gpus is None else counted(one.gpus, "GPU")
    return f"{one.kind} {name}: {counted(one.pods, 'pod')}, {gpus}, {one.taken_as} ({one.source})"


def _finding(one: SpecFinding, look: Look) -> Iterator[str]:
    mark = look.paint(pad(one.severity, 7), _STYLES[one.severity])
    yield f"  {mark}  {fit(one.id, WIDTH - _START)}"
    blank = " " * _START
    yield from (blank + line for line in wrap(one.message, WIDTH - _START))
    parts = [("why", one.why), ("costs", one.costs or ""), ("fix", one.fix)]
    if one.severity == "info" and not look.verbose:
        parts = parts[2:]
    for label, text in parts:
        if text:
            yield from labelled(pad(label, 7), text, indent=_START)
    places = one.where if look.verbose else one.where[:MOST_PLACES]
    for place in places:
        yield from _place(place)
    if len(one.where) > len(places):
        yield f"{blank}{pad('and', 7)}{len(one.where) - len(places)} more places (-v)"


def _place(place: str) -> Iterator[str]:
    """Broken at blanks, else at the dots of a path."""
    room = WIDTH - _START - 7
    label = "at"
    head, _, path = place.rpartition(" ")
    for word in (head, path) if head else (path,):
        line = ""
        for part in re.findall(r"\.?[^.]+", word):
            if line and cell_width(line) + cell_width(part) > room:
                yield f"{' ' * _START}{pad(label, 7)}{fit(line, room)}"
                line, label = "", ""
            line += part
        yield f"{' ' * _START}{pad(label, 7)}{fit(line, room)}"
        label = ""


def _sum(found: Preflight, look: Look) -> str:
    count = Counter(one.severity for one in found.findings)
    parts = [counted(count["error"], "error"), counted(count["warning"], "warning")]
    told = f"{', '.join(parts)}, {counted(count['info'], 'note')}, {len(found.silenced)} silenced."
    if found.stands:
        return f"{told} Silence one with --ignore ID=REASON or the annotation gpufleet/ignore."
    return f"{told} Nothing stands at warning or above."


def preflight_document(found: Preflight) -> Json:
    """`{"findings": [...]}` with what was silenced and what was looked at; no value is empty."""
    found = clean(found)
    return {
        "findings": [_entry(one) for one in found.findings],
        "silenced_count": len(found.silenced),
        "silenced": [_silenced(one) for one in found.silenced],
        "read": [_looked_at(one) for one in found.read],
    }


def _entry(one: SpecFinding) -> Json:
    entry = {
        "id": one.id,
        "severity": one.severity,
        "message": one.message,
        "fix": one.fix,
        "where": "; ".join(one.where),
        "why": one.why,
    }
    return entry if one.costs is None else {**entry, "costs": one.costs}


def _silenced(one: Silenced) -> Json:
    return {**_entry(one.finding), "reason": one.reason, "by": one.by}


def _looked_at(one: SpecRead) -> Json:
    entry = {
        "source": one.source,
        "kind": one.kind,
        "name": one.name,
        "namespace": one.namespace,
        "pods": one.pods,
        "gpus": one.gpus,
        "taken_as": one.taken_as,
    }
    return {key: value for key, value in entry.items() if value is not None}
