"""A report as sections of plain blocks, which Markdown and HTML draw each in its own way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpufleet_cli.render.clean import clean, cut
from gpufleet_cli.render.drain_page import spares_words
from gpufleet_cli.render.layout import (
    counted,
    date_clock,
    duration,
    gpu_hours,
    rank_list,
)
from gpufleet_cli.render.silence import SilenceGroup, silence_groups
from gpufleet_cli.render.terminal import headline
from gpufleet_cli.render.words import (
    Style,
    action_words,
    commands_of,
    gpu_words,
    input_value,
    not_seen,
    question_words,
)
from gpufleet_cli.verdict import Culprit, Kind, Triage

_MOST = 100


@dataclass(frozen=True, slots=True)
class Text:
    """One paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells below their titles."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Commands:
    """Lines to be pasted into a shell."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bars:
    """Ranks by silence."""

    groups: tuple[SilenceGroup, ...]


Block = Text | Table | Items | Commands | Bars


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`action` in words with the colour it means, then what it is for and what was looked at."""

    action: str
    style: Style
    nodes: str
    headline: str
    sections: tuple[Section, ...]


def page(triage: Triage) -> Page:
    """All that a reader needs, cleaned, in the order in which it is read."""
    shown = clean(triage)
    words, style = action_words(shown.recommendation.action)
    sections = [
        ("Verdict", _verdict(shown)),
        ("Silence", _silence(shown)),
        ("What to do, and why", _advice(shown)),
        ("Evidence", _evidence(shown)),
        ("Less likely", _alternatives(shown)),
        ("Loud, and innocent", _witnesses(shown)),
        ("Hardware events", _hardware(shown)),
        ("Inputs of the arithmetic", _inputs(shown)),
        ("Not seen", _gaps(shown)),
    ]
    made = [(title, tuple(blocks)) for title, blocks in sections]
    return Page(
        action=words,
        style=style,
        nodes=", ".join(shown.recommendation.nodes),
        headline=headline(shown),
        sections=tuple(Section(title=title, blocks=blocks) for title, blocks in made if blocks),
    )


def _verdict(triage: Triage) -> Iterator[Block]:
    verdict = triage.verdict
    yield Text(f"{verdict.kind}, confidence {verdict.confidence:.2f}. {verdict.summary}")
    if verdict.culprits:
        head = ("rank", "pod", "node", "GPU", "silent since (UTC)", "quieter by")
        yield Table(head, tuple(_culprit(one) for one in verdict.culprits[:_MOST]))
    if verdict.kind is not Kind.UNDECIDABLE:
        return
    if verdict.alternatives:
        left = verdict.alternatives[0]
        names = [f"ranks {rank_list(left.ranks, 400)}"] if left.ranks else []
        names += left.nodes[:_MOST]
        if names:
            yield Text(f"It could be: {', '.join(names)}.")
    if verdict.ruled_out:
        yield Text(f"Ruled out: {'; '.join(verdict.ruled_out)}.")
    if verdict.would_settle:
        yield Text(f"To settle it: {verdict.would_settle}.")


def _culprit(one: Culprit) -> tuple[str, ...]:
    return (
        "not known" if one.rank is None else str(one.rank),
        one.pod or "",
        one.node or "",
        gpu_words(one),
        _when(one.silent_since_ns),
        "" if one.quieter_by_s is None else duration(one.quieter_by_s),
    )


def _when(ns: int | None) -> str:
    return "" if ns is None else date_clock(ns)


def _silence(triage: Triage) -> Iterator[Block]:
    groups = silence_groups(triage.ranks, most=8)
    if any(group.quiet_s is not None for group in groups):
        yield Bars(groups)


def _advice(triage: Triage) -> Iterator[Block]:
    advice = triage.recommendation
    yield Table(
        ("question", "answer", "why", "cost"),
        tuple(
            (
                question_words(one.id),
                one.answer,
                cut(one.why),
                gpu_hours(one.gpu_hours_per_hour, per_hour=True) or gpu_hours(one.gpu_hours),
            )
            for one in advice.questions
        ),
    )
    if advice.lost_gpu_hours is not None:
        yield Text(f"Lost so far: {gpu_hours(advice.lost_gpu_hours)}.")
    yield Text(f"Decided by the {advice.decided_by}: {advice.why}")
    if advice.would_flip:
        yield Text(f"What would flip it: {advice.would_flip}")
    if advice.restart is not None:
        restart = advice.restart
        yield Text(f"Without {restart.node}: {spares_words(restart.spares)}")
    if commands := commands_of(triage):
        yield Commands(commands)
    prices = tuple((one.option, gpu_hours(one.gpu_hours) or "no price") for one in advice.options)
    if prices:
        yield Table(("option", "price"), prices)


def _evidence(triage: Triage) -> Iterator[Block]:
    claims = triage.verdict.evidence
    if claims:
        rows = tuple(
            (f"{one.weight:+.1f}", cut(one.text), "" if one.origin is None else str(one.origin))
            for one in claims[:_MOST]
        )
        yield Table(("weight", "claim", "where"), rows)
        yield from _left(len(claims), "claim")


def _left(number: int, word: str) -> Iterator[Block]:
    if number > _MOST:
        yield Text(f"and {counted(number - _MOST, 'more ' + word)}")


def _alternatives(triage: Triage) -> Iterator[Block]:
    others = triage.verdict.alternatives
    if others:
        rows = tuple(
            (
                f"{one.confidence:.2f}",
                one.kind.value,
                rank_list(one.ranks),
                cut(one.why_less_likely),
            )
            for one in others[:_MOST]
        )
        yield Table(("confidence", "kind", "ranks", "why less likely"), rows)


def _witnesses(triage: Triage) -> Iterator[Block]:
    loudest = triage.verdict.loudest
    if loudest:
        rows = tuple(
            (str(one.rank), str(one.error_lines), cut(one.why_innocent)) for one in loudest[:_MOST]
        )
        yield Table(("rank", "error lines", "why innocent"), rows)


def _hardware(triage: Triage) -> Iterator[Block]:
    if triage.hardware:
        rows = tuple(
            (
                _when(one.at_ns),
                one.node or "",
                one.gpu or "",
                "" if one.xid is None else str(one.xid),
                cut(one.meaning),
                one.role,
            )
            for one in triage.hardware[:_MOST]
        )
        yield Table(("at (UTC)", "node", "GPU", "XID", "meaning", "role"), rows)
        yield from _left(len(triage.hardware), "event")


def _inputs(triage: Triage) -> Iterator[Block]:
    inputs = triage.recommendation.inputs
    if inputs:
        rows = tuple((one.name.replace("_", " "), input_value(one), one.source) for one in inputs)
        yield Table(("input", "value", "from"), rows)


def _gaps(triage: Triage) -> Iterator[Block]:
    missing = not_seen(triage.missing)
    if missing:
        yield Items(tuple(f"{cut(gap.what)}: {cut(gap.why)}" for gap in missing[:_MOST]))
        yield from _left(len(missing), "gap")
