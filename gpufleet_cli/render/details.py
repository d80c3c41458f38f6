"""What `-v` adds below the first screen: everything that the verdict stands on, with its origin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpufleet_cli.facts import Gap
from gpufleet_cli.render.clean import cut
from gpufleet_cli.render.layout import (
    WIDTH,
    Look,
    cell_width,
    counted,
    date_clock,
    duration,
    figure,
    fit,
    gpu_hours,
    labelled,
    pad,
    rank_list,
    row,
    wrap,
)
from gpufleet_cli.render.words import input_value, not_seen
from gpufleet_cli.verdict import Alternative, Claim, FileRead, Input, Triage

_MOST = 40


def details(triage: Triage, look: Look) -> list[str]:
    """The sections of `-v`; one that has nothing to say is left out."""
    sections: list[tuple[str, Iterable[str]]] = [
        ("Evidence", _claims(triage.verdict.evidence)),
        ("Less likely", _alternatives(triage.verdict.alternatives)),
        ("Loud, and innocent", _witnesses(triage)),
        ("Hardware events", _hardware(triage)),
        ("The job", _job(triage)),
        ("Options", _options(triage)),
        ("Inputs of the arithmetic", _inputs(triage.recommendation.inputs)),
        ("Not seen", _gaps(not_seen(triage.missing))),
        ("Files", _files(triage.files)),
    ]
    lines: list[str] = []
    for title, body in sections:
        shown = list(body)
        if shown:
            lines += ["", look.paint(title, "strong"), *shown]
    return lines


def claim_lines(claims: Iterable[Claim]) -> Iterator[str]:
    """One claim each: a sign for or against, its weight, the sentence, and where it stands."""
    for claim in claims:
        sign = "+" if claim.supports else "-"
        yield from labelled(f"{sign}{abs(claim.weight):4.1f}  ", cut(claim.text, 400))
        if claim.origin is not None:
            yield " " * 9 + fit(str(claim.origin), WIDTH - 9, keep_end=True)


def _claims(claims: Sequence[Claim]) -> Iterator[str]:
    yield from claim_lines(claims[:_MOST])
    yield from _left(claims, "claim")


def _left(items: Sequence[object], word: str) -> Iterator[str]:
    if len(items) > _MOST:
        yield f"  and {counted(len(items) - _MOST, 'more ' + word)} (-o json)"


def _alternatives(alternatives: Sequence[Alternative]) -> Iterator[str]:
    for other in alternatives[:_MOST]:
        names = [f"ranks {rank_list(other.ranks, 30)}"] if other.ranks else []
        names += [", ".join(other.nodes[:3])] if other.nodes else []
        text = " · ".join([str(other.kind), *names])
        if other.why_less_likely:
            text += f": {other.why_less_likely}"
        yield from labelled(f"{other.confidence:.2f}  ", text)


def _witnesses(triage: Triage) -> Iterator[str]:
    for witness in triage.verdict.loudest[:_MOST]:
        lines = counted(witness.error_lines, "error line")
        yield from labelled(f"rank {witness.rank}  ", f"{lines}: {witness.why_innocent}")
    if triage.verdict.witness_count:
        yield f"  {counted(triage.verdict.witness_count, 'witness', 'witnesses')} in all"


def _hardware(triage: Triage) -> Iterator[str]:
    for event in triage.hardware[:_MOST]:
        when = "time not known" if event.at_ns is None else date_clock(event.at_ns)
        code = "" if event.xid is None else f"XID {event.xid}"
        yield from row([when, event.node or "", event.gpu or "", code, event.role])
        yield from (f"      {line}" for line in wrap(event.meaning, WIDTH - 6))
        if event.origin is not None:
            yield "      " + fit(str(event.origin), WIDTH - 6, keep_end=True)
    yield from _left(triage.hardware, "event")


def _job(triage: Triage) -> Iterator[str]:
    job = triage.job
    yield from labelled("state       ", f"{job.state}: {job.state_why}".removesuffix(": "))
    if job.world_size is not None:
        yield from labelled("world size  ", f"{job.world_size:,} (from {job.world_size_source})")
    if job.last_step is not None:
        at = "" if job.last_step_ns is None else f" at {date_clock(job.last_step_ns)} UTC"
        pace = "" if job.step_s is None else f", {figure(job.step_s)} s each"
        yield from labelled("last step   ", f"{job.last_step:,}{at}{pace}")
    if job.last_checkpoint_step is not None or job.last_checkpoint_ns is not None:
        step = "" if job.last_checkpoint_step is None else f"step {job.last_checkpoint_step:,}"
        at = "" if job.last_checkpoint_ns is None else f"{date_clock(job.last_checkpoint_ns)} UTC"
        yield from labelled("checkpoint  ", ", ".join(part for part in (step, at) if part))
    if job.checkpoint_interval_s is not None:
        yield from labelled("saves every ", duration(job.checkpoint_interval_s))
    if job.watchdog_timeout_s is not None:
        yield from labelled("watchdog    ", duration(job.watchdog_timeout_s))


def _options(triage: Triage) -> Iterator[str]:
    advice = triage.recommendation
    for option in advice.options:
        price = gpu_hours(option.gpu_hours) or "no price"
        yield f"  {pad(option.option, 19)}{price}"
    yield from labelled("decided by the ", f"{advice.decided_by}: {advice.why}".removesuffix(": "))
    if advice.would_flip:
        yield from labelled("would flip     ", advice.would_flip)


def _inputs(inputs: Sequence[Input]) -> Iterator[str]:
    wide = min(34, max((cell_width(item.name) for item in inputs), default=0))
    for item in inputs:
        yield from row(
            [pad(item.name.replace("_", " "), wide), input_value(item), f"({item.source})"]
        )


def _gaps(gaps: Sequence[Gap]) -> Iterator[str]:
    for gap in gaps[:_MOST]:
        settle = f" (would settle: {gap.would_settle})" if gap.would_settle else ""
        yield from labelled("- ", f"{gap.what}: {gap.why}{settle}")
    yield from _left(gaps, "gap")


def _files(files: Sequence[FileRead]) -> Iterator[str]:
    unread = [file for file in files if not file.formats]
    read = [file for file in files if file.formats]
    facts = sum(file.facts for file in read)
    if files:
        yield f"  {counted(len(read), 'file')} read, {counted(facts, 'fact')} in them"
    for file in unread[:_MOST]:
        yield from labelled("- not understood: ", fit(file.path, 60, keep_end=True))
    yield from _left(unread, "file that was not understood")
