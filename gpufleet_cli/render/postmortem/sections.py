"""What stands in a write-up, section by section, the same for HTML and Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.postmortem_card import Instant, Moment, Part, Postmortem
from gpufleet_cli.reason.placed import NS
from gpufleet_cli.render.clean import cut
from gpufleet_cli.render.layout import counted, date_clock, duration, figure, gpu_hours, rank_list
from gpufleet_cli.render.postmortem.blocks import (
    At,
    Block,
    Cell,
    Code,
    Facts,
    Inline,
    Items,
    Para,
    Report,
    Section,
    Strong,
    Style,
    Table,
    refs,
)
from gpufleet_cli.render.postmortem.cited import Cited
from gpufleet_cli.render.postmortem.evidence_sections import (
    appendix,
    doing_blocks,
    hardware_blocks,
    silence_blocks,
    wait_blocks,
)
from gpufleet_cli.render.postmortem.later_sections import (
    cost_blocks,
    decision_blocks,
    missing_blocks,
    tracking_blocks,
)
from gpufleet_cli.render.words import action_words, gpu_words
from gpufleet_cli.verdict import Kind, Triage

PART_WORDS: dict[Part, tuple[str, Style]] = {
    "before": ("before", "soft"),
    "cause": ("first cause", "bad"),
    "sign": ("first sign", "warn"),
    "consequence": ("follows", ""),
    "end": ("ends", ""),
    "diagnosis": ("diagnosis", "ask"),
    "recovery": ("recovery", "good"),
}


def report(made: Postmortem) -> Report:
    """The write-up of a cleaned `Postmortem`."""
    triage, cited = made.triage, Cited(made)
    words, style = action_words(triage.recommendation.action)
    name = triage.job.name or triage.target_name or "a job"
    sections = [
        ("what-happened", "What happened", _what_happened(made)),
        ("timeline", "Timeline", _timeline(made, cited)),
        ("silence", "Who fell silent, and when", silence_blocks(made)),
        ("waiting", "Who waited for whom", wait_blocks(made)),
        ("culprit", _doing_title(triage), doing_blocks(made, cited)),
        ("hardware", "Hardware history", hardware_blocks(made, cited)),
        ("cost", "What it cost", cost_blocks(made)),
        ("decision", "The decision, and what would have flipped it", decision_blocks(made)),
        ("speed", "How fast it was seen, named and mended", _speed(made, cited)),
        ("missing", "What was missing, and how to have it next time", missing_blocks(made)),
        ("ids", "This run in other systems", tracking_blocks(made)),
        ("appendix", "Appendix: the evidence", appendix(made)),
    ]
    return Report(
        title=f"Postmortem: {name}",
        subtitle=_subtitle(triage),
        badge=f"{words} {', '.join(triage.recommendation.nodes)}".strip(),
        badge_style=style,
        summary=made.summary,
        figures=_figures(made),
        sections=tuple(
            Section(id=id_, title=title, blocks=tuple(blocks)) for id_, title, blocks in sections
        ),
    )


def _doing_title(triage: Triage) -> str:
    if triage.verdict.culprits:
        many = len(triage.verdict.culprits) > 1
        return f"What the {'culprits were' if many else 'culprit was'} doing"
    if triage.verdict.kind is Kind.UNDECIDABLE:
        return "What those were doing who are left"
    return "What the culprit was doing"


def _subtitle(triage: Triage) -> str:
    job = triage.job
    size = "" if job.world_size is None else counted(job.world_size, "rank")
    if size and job.nodes:
        size += f" on {counted(job.nodes, 'node')}"
    parts = [
        f"namespace {job.namespace}" if job.namespace else "",
        "" if job.attempt is None else f"attempt {job.attempt}",
        size,
        f"state {job.state}",
    ]
    return " · ".join(part for part in parts if part)


# --- At the top -----------------------------------------------------------------------------------


def _figures(made: Postmortem) -> tuple[tuple[str, Cell, str], ...]:
    told, triage = made.times, made.triage
    lost = triage.recommendation.lost_gpu_hours
    return (
        ("First cause", _when(told.first_cause), "" if told.first_cause.at_ns is None else "UTC"),
        ("First sign", _when(told.detected), _after(made, told.detected.at_ns)),
        ("Recovered", _when(told.recovered), _after(made, told.recovered.at_ns)),
        ("Lost", (gpu_hours(lost) or "not known",), "" if lost is None else "idle and recompute"),
        ("Verdict", (str(triage.verdict.kind),), f"confidence {triage.verdict.confidence:.2f}"),
    )


def _when(instant: Instant) -> Cell:
    return ("not known",) if instant.at_ns is None else (At(instant.at_ns),)


def _after(made: Postmortem, at_ns: int | None) -> str:
    first = made.times.first_cause.at_ns
    if first is None or at_ns is None:
        return ""
    late = (at_ns - first) / NS
    return "at once" if late < 1 else f"{duration(late)} after the cause"


# --- What happened --------------------------------------------------------------------------------


def _what_happened(made: Postmortem) -> Iterator[Block]:
    verdict = made.triage.verdict
    yield Para((verdict.summary,))
    supporting = [f"e{n}" for n, c in enumerate(verdict.evidence[:100], start=1) if c.supports]
    against = [f"e{n}" for n, c in enumerate(verdict.evidence[:100], start=1) if not c.supports]
    said: list[Inline] = [
        "Verdict ", Strong(str(verdict.kind)), f", confidence {verdict.confidence:.2f}",
    ]  # fmt: skip
    if supporting:
        said += ["; it stands on ", *refs(supporting)]
    if against:
        said += ["; against it speaks ", *refs(against)]
    yield Para((*said, "."))
    if verdict.culprits:
        yield _culprits(made)
    if verdict.kind is Kind.UNDECIDABLE:
        yield from _undecided(made)
    yield from _others(made)


def _culprits(made: Postmortem) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in made.triage.verdict.culprits[:40]:
        silent: Cell = ("not known",) if one.silent_since_ns is None else (At(one.silent_since_ns),)
        rows.append(
            (
                ("not known" if one.rank is None else str(one.rank),),
                (Code(one.pod),) if one.pod else ("not known",),
                (Code(one.node),) if one.node else ("not known",),
                (gpu_words(one) or "not known",),
                silent,
                (_quieter(one.quieter_by_s),),
            )
        )
    return Table(
        caption="The culprits" if len(rows) > 1 else "The culprit",
        head=("Rank", "Pod", "Node", "GPU", "Silent since (UTC)", "Quieter than the others by"),
        rows=tuple(rows),
    )


def _quieter(seconds: float | None) -> str:
    if seconds is None:
        return "not known"
    return duration(seconds) if seconds > 0 else "not quieter"


def _undecided(made: Postmortem) -> Iterator[Block]:
    verdict = made.triage.verdict
    if verdict.alternatives:
        left = verdict.alternatives[0]
        names = [f"ranks {rank_list(left.ranks, 300)}"] if left.ranks else []
        names += list(left.nodes[:40])
        if names:
            yield Para((f"It could be: {', '.join(names)}.",))
    if verdict.ruled_out:
        yield Para((f"Ruled out: {'; '.join(verdict.ruled_out[:40])}.",))
    if verdict.would_settle:
        yield Para((f"To settle it: {verdict.would_settle}.",))


def _others(made: Postmortem) -> Iterator[Block]:
    verdict = made.triage.verdict
    if verdict.loudest:
        items: list[Cell] = [
            (f"rank {one.rank}, {counted(one.error_lines, 'error line')}: {cut(one.why_innocent)}",)
            for one in verdict.loudest[:8]
        ]
        many = counted(verdict.witness_count, "rank")
        yield Para((f"Loud and innocent ({many} waited and complained), the loudest first:",))
        yield Items(tuple(items))
    less = [one for one in verdict.alternatives if one.why_less_likely]
    if less and verdict.kind is not Kind.UNDECIDABLE:
        yield Table(
            caption="Less likely",
            head=("Explanation", "Confidence", "Ranks", "Why less likely"),
            rows=tuple(
                (
                    (str(one.kind),), (f"{one.confidence:.2f}",), (rank_list(one.ranks) or "none",),
                    (cut(one.why_less_likely),),
                )
                for one in less[:12]
            ),
        )  # fmt: skip


# --- Timeline -------------------------------------------------------------------------------------


def _timeline(made: Postmortem, cited: Cited) -> Iterator[Block]:
    if not made.timeline:
        yield Para(("No line of the evidence has a time.",))
        return
    first = made.times.first_cause.at_ns
    day = date_clock(made.timeline[0].at_ns)[:10]
    days = {date_clock(moment.at_ns)[:10] for moment in made.timeline}
    told = f"All times are UTC, of {day}" if len(days) == 1 else "All times are UTC"
    since = "" if first is None else "; “after” counts from the first cause"
    yield Para((f"{told}{since}.",), "soft")
    yield Table(
        caption="From the last good moment to recovery",
        head=("Time (UTC)", "After", "What happened", "Evidence"),
        rows=tuple(_moment(m, first, cited, whole=len(days) > 1) for m in made.timeline),
        marks=tuple(PART_WORDS[m.part][1] for m in made.timeline),
    )
    if made.timeline_left_out:
        yield Para((f"{made.timeline_left_out} lesser moments are left out.",), "soft")
    if made.times.recovered.at_ns is None:
        yield Para((f"Recovery is not known: {made.times.recovered.why}.",))


def _moment(one: Moment, first: int | None, cited: Cited, *, whole: bool) -> tuple[Cell, ...]:
    after = "" if first is None else _signed((one.at_ns - first) / NS)
    until = ""
    if one.until_ns is not None and one.until_ns - one.at_ns >= NS:
        until = f" (for {duration((one.until_ns - one.at_ns) / NS)})"
    word = PART_WORDS[one.part][0]
    return (
        (At(one.at_ns, "date" if whole else "clock"),),
        (after,),
        (Strong(f"{word}: "), f"{cut(one.what, 300)}{until}"),
        cited(one.origin, one.claims),
    )


def _signed(seconds: float) -> str:
    if abs(seconds) < 0.05:
        return "0s"
    return f"{'+' if seconds > 0 else '−'}{duration(abs(seconds))}"


# --- Speed ----------------------------------------------------------------------------------------


def _speed(made: Postmortem, cited: Cited) -> Iterator[Block]:
    told = made.times
    rows: list[tuple[Cell, ...]] = []
    for name, instant, what in (
        ("First cause", told.first_cause, ""),
        ("Detection", told.detected, "the first sign that anybody could see"),
        ("Diagnosis", told.diagnosed, "the evidence was there, and with it the verdict"),
        ("Recovery", told.recovered, "the first step of a later attempt"),
    ):
        at: Cell = ("not known",) if instant.at_ns is None else (At(instant.at_ns, "exact"),)
        why = f"{what}: {instant.why}" if what and instant.at_ns is not None else instant.why
        after = _after(made, instant.at_ns) or "not known"
        if instant is told.first_cause and instant.at_ns is not None:
            after = "0s"
        rows.append(
            ((name,), at, (after,), (cut(why, 300),),
             cited(instant.origin, instant.claims))
        )  # fmt: skip
    yield Table(
        caption="Detection, diagnosis and recovery",
        head=("What", "When (UTC)", "After the first cause", "By what", "Evidence"),
        rows=tuple(rows),
    )
    watchdog = made.triage.job.watchdog_timeout_s
    if watchdog is not None:
        yield Facts((("Watchdog timeout", (f"{duration(watchdog)} ({figure(watchdog)} s)",)),))
