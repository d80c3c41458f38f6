"""From the last good moment to recovery, what is alike drawn together: a thousand watchdogs are one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpufleet_cli.facts import Origin
from gpufleet_cli.operate.postmortem.signs import Seen
from gpufleet_cli.operate.postmortem.times import BEFORE_S, claims_at
from gpufleet_cli.postmortem_card import Instant, Moment, Part, Times
from gpufleet_cli.reason.placed import NS
from gpufleet_cli.triage import Inquiry
from gpufleet_cli.verdict import Culprit

MOST = 48
TOGETHER_S = 90.0
"""What is alike and this close is one line."""


def timeline(found: Inquiry, seen: Sequence[Seen], told: Times) -> tuple[tuple[Moment, ...], int]:
    """The moments in order, and how many were left out of the middle."""
    moments = [
        *_before(found, told),
        *_instants(told),
        *_silences(found, told),
        *_signs(found, seen, told),
        *_ends(found, told),
    ]
    order: dict[Part, int] = {
        "before": 0, "cause": 1, "sign": 2, "consequence": 3, "end": 4, "diagnosis": 5, "recovery": 6,
    }  # fmt: skip
    moments.sort(key=lambda m: (m.at_ns, order[m.part], m.what, str(m.origin or "")))
    if len(moments) <= MOST:
        return tuple(moments), 0
    kept = sorted(range(len(moments)), key=lambda at: (_weight(moments[at]), at))[:MOST]
    return tuple(moments[at] for at in sorted(kept)), len(moments) - MOST


def _weight(moment: Moment) -> int:
    """What may be left out last: the frame of the story, then what claims stand on, then the rest."""
    if moment.part in ("cause", "recovery", "diagnosis", "before"):
        return 0
    return 1 if moment.claims or moment.part == "end" else 2


def _before(found: Inquiry, told: Times) -> Iterator[Moment]:
    """The last checkpoint and the last step, where they came before."""
    first, job = told.first_cause.at_ns, found.triage.job
    saved, stepped = job.last_checkpoint_ns, job.last_step_ns
    if saved is not None and (first is None or saved <= first):
        step = "" if job.last_checkpoint_step is None else f", of step {job.last_checkpoint_step:,}"
        yield Moment(
            at_ns=saved, what=f"the last checkpoint was complete{step}", part="before",
            origin=found.case.checkpoints.origin,
        )  # fmt: skip
    if stepped is not None and job.last_step is not None:
        part: Part = "before" if first is None or stepped <= first else "consequence"
        yield Moment(
            at_ns=stepped, what=f"step {job.last_step:,}, the last of this attempt, was complete",
            part=part, origin=found.case.steps.last_origin,
            claims=claims_at(found, found.case.steps.last_origin),
        )  # fmt: skip


def _instants(told: Times) -> Iterator[Moment]:
    parts: tuple[tuple[Part, Instant], ...] = (
        ("cause", told.first_cause),
        ("sign", told.detected),
        ("diagnosis", told.diagnosed),
        ("recovery", told.recovered),
    )
    for part, instant in parts:
        if instant.at_ns is not None:
            yield Moment(
                at_ns=instant.at_ns, what=instant.why, part=part,
                origin=instant.origin, claims=instant.claims,
            )  # fmt: skip


def _silences(found: Inquiry, told: Times) -> Iterator[Moment]:
    """When each culprit wrote its last ordinary line."""
    rows = {row.rank: row for row in found.triage.ranks}
    silent = [one for one in found.triage.verdict.culprits if one.silent_since_ns is not None]
    for one in silent[:4]:
        assert one.silent_since_ns is not None
        row = None if one.rank is None else rows.get(one.rank)
        origin = None if row is None else row.origin
        first = told.first_cause.at_ns
        if first == one.silent_since_ns:
            continue
        before = first is not None and one.silent_since_ns < first
        yield Moment(
            at_ns=one.silent_since_ns, what=f"{_who(one)} wrote its last ordinary line",
            part="before" if before else "consequence", origin=origin,
            claims=claims_at(found, origin),
        )  # fmt: skip


def _who(one: Culprit) -> str:
    return f"rank {one.rank}" if one.rank is not None else f"{one.node or one.pod}"


def _signs(found: Inquiry, seen: Sequence[Seen], told: Times) -> Iterator[Moment]:
    """Signs since the cause, alike ones together; what the four times say already is not said again."""
    if told.first_cause.at_ns is None:
        return
    since = told.first_cause.at_ns - round(BEFORE_S * NS)
    until = told.recovered.at_ns
    said = {one.origin for one in (told.first_cause, told.detected) if one.origin is not None}
    groups: dict[str, list[list[Seen]]] = {}
    for one in seen:
        if one.at_ns < since or (until is not None and one.at_ns > until):
            continue
        runs = groups.setdefault(_kind(found, one), [])
        if runs and one.at_ns - runs[-1][-1].at_ns <= TOGETHER_S * NS:
            runs[-1].append(one)
        else:
            runs.append([one])
    for runs in groups.values():
        for run in runs:
            if len(run) > 1 or run[0].origin not in said:
                yield _moment(found, run)


def _kind(found: Inquiry, one: Seen) -> str:
    """A line of the hardware that a claim stands on is a moment of its own."""
    apart = one.kind.startswith(("xid", "sxid", "host")) and claims_at(found, one.origin)
    return f"{one.kind} {one.origin}" if apart else one.kind


def _moment(found: Inquiry, run: Sequence[Seen]) -> Moment:
    first = run[0]
    claims = {ident: None for one in run for ident in claims_at(found, one.origin)}
    origin = next((one.origin for one in run if claims_at(found, one.origin)), first.origin)
    return Moment(
        at_ns=first.at_ns,
        until_ns=run[-1].at_ns if run[-1].at_ns > first.at_ns else None,
        count=len(run),
        what=_words(run),
        part="end" if first.is_end else "consequence",
        origin=origin,
        claims=tuple(claims),
    )


def _words(run: Sequence[Seen]) -> str:
    first = run[0]
    ranks = {one.rank for one in run if one.rank is not None}
    if len(ranks) > 1:
        return f"{len(ranks):,} ranks, rank {first.rank} first: {first.what}"
    if ranks:
        times = f" ({len(run)} times)" if len(run) > 1 else ""
        return f"rank {min(ranks)}: {first.what}{times}"
    places = list(dict.fromkeys(one.who for one in run if one.who))
    if len(places) > 1:
        return f"{len(places):,} {first.unit}s, {places[0]} first: {first.what}"
    times = f" ({len(run)} times)" if len(run) > 1 else ""
    return f"{places[0]}: {first.what}{times}" if places else f"{first.what}{times}"


def _ends(found: Inquiry, told: Times) -> Iterator[Moment]:
    stop = found.case.stop
    if told.ended_ns is not None:
        origin: Origin | None = stop.origin
        yield Moment(
            at_ns=told.ended_ns, what=f"the job had ended ({stop.state}: {stop.why})", part="end",
            origin=origin, claims=claims_at(found, origin),
        )  # fmt: skip
    for one in found.triage.job.attempts:
        own = found.triage.job.attempt
        if own is not None and one.number > own and one.started_ns is not None:
            yield Moment(
                at_ns=one.started_ns, what=f"attempt {one.number} began ({one.state})",
                part="recovery", origin=Origin(path="manifest.json"),
            )  # fmt: skip
