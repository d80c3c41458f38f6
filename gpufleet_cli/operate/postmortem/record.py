"""From a triage, what it was made of, and the files of its target to the whole `Postmortem`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from gpufleet_cli.evidence import Target
from gpufleet_cli.facts import Origin
from gpufleet_cli.operate.postmortem import signs
from gpufleet_cli.operate.postmortem.bill import bill
from gpufleet_cli.operate.postmortem.doing import doing, hardware_history
from gpufleet_cli.operate.postmortem.lacking import lacking
from gpufleet_cli.operate.postmortem.quotes import Lines, quoted
from gpufleet_cli.operate.postmortem.silence_map import silence_map
from gpufleet_cli.operate.postmortem.specs import documents_of, preflight_of, tracking_ids
from gpufleet_cli.operate.postmortem.summary import summary
from gpufleet_cli.operate.postmortem.timeline import timeline
from gpufleet_cli.operate.postmortem.times import claim_id, times
from gpufleet_cli.operate.postmortem.waiting import waiting
from gpufleet_cli.postmortem_card import (
    Doing,
    HardwareHistory,
    Instant,
    Moment,
    Postmortem,
    Quote,
    Times,
)
from gpufleet_cli.triage import Inquiry, file_names

MOST_CLAIMS = 100

Record = TypeVar("Record")


def postmortem(found: Inquiry, target: Target) -> Postmortem:
    """Pure, but that it reads the cited files of the target once more."""
    seen = signs.all_of(found.case, found.triage.hardware)
    told = times(found, seen, target)
    moments, left_out = timeline(found, seen, told)
    lines = Lines(target)
    documents = documents_of(target)
    specs, read_as = preflight_of(documents)
    history = hardware_history(found)
    spent, lacks = bill(found, told), lacking(found.triage)
    made = Postmortem(
        triage=found.triage,
        summary=summary(found, told, spent, specs, lacks),
        times=told,
        timeline=moments,
        timeline_left_out=left_out,
        silence=silence_map(found.triage, told),
        waits=waiting(found.triage),
        doing=doing(found, lines),
        hardware=history,
        bill=spent,
        specs=specs,
        specs_read_as=read_as,
        tracking=tracking_ids(documents),
        lacking=lacks,
        quotes=_quotes(found, told, moments, history, lines),
    )
    return spelled(made, file_names(target))


def _quotes(
    found: Inquiry,
    told: Times,
    moments: tuple[Moment, ...],
    history: HardwareHistory,
    lines: Lines,
) -> tuple[Quote, ...]:
    """Every claim by its id, then every further place that the page cites as s1, s2, ..."""
    claims = found.triage.verdict.evidence[:MOST_CLAIMS]
    cited = [claim.origin for claim in claims if claim.origin is not None]
    further = [o for o in dict.fromkeys(_places(told, moments, history)) if o not in set(cited)]
    texts = quoted(lines, [*cited, *further])
    own = [
        Quote(id=claim_id(index), origin=claim.origin, text=texts[claim.origin])
        for index, claim in enumerate(claims)
        if claim.origin is not None
    ]
    rest = [
        Quote(id=f"s{number}", origin=origin, text=texts[origin])
        for number, origin in enumerate(further, start=1)
    ]
    return (*own, *rest)


def _places(told: Times, moments: tuple[Moment, ...], history: HardwareHistory) -> Iterator[Origin]:
    instants: tuple[Instant, ...] = (
        told.first_cause, told.detected, told.diagnosed, told.recovered,
    )  # fmt: skip
    events = (*history.events, *(group.first for group in history.elsewhere))
    places = [*(i.origin for i in instants), *(m.origin for m in moments)]
    places += [*(e.origin for e in events), *(state[2] for state in history.states)]
    yield from (one for one in places if one is not None)
    yield from (span[3] for span in history.reach)


# --- Names of files -------------------------------------------------------------------------------


def spelled(record: Record, names: Mapping[str, str]) -> Record:
    """Every place spelled as it stands on disk: `x.log.gz` where `x.log` was read from it."""
    if not names:
        return record
    shown: Record = _spelled(record, names)
    return shown


def _spelled(value: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401  any field of any record
    if isinstance(value, Doing):
        value = replace(value, lines_of=names.get(value.lines_of, value.lines_of))
    if isinstance(value, Origin):
        return replace(value, path=names[value.path]) if value.path in names else value
    if isinstance(value, tuple):
        parts = tuple(_spelled(part, names) for part in value)
        same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if same else parts
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed: dict[str, Any] = {}
    for field in fields(value):
        old = getattr(value, field.name)
        new = _spelled(old, names)
        if new is not old:
            changed[field.name] = new
    return replace(value, **changed) if changed else value
