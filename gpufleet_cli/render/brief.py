"""The verdict in at most ten plain lines, to be pasted into a chat thread."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.render.clean import clean, cut
from gpufleet_cli.render.layout import Look, figure, gpu_hours, rank_list
from gpufleet_cli.render.terminal import headline
from gpufleet_cli.render.words import action_words, commands_of, gpu_words, not_seen, question_words
from gpufleet_cli.verdict import Culprit, Kind, Triage

MOST_LINES = 10
_LINE = 400


def render(triage: Triage, look: Look) -> str:
    """Whole sentences, no columns, no colour; commands stand alone so that they can be copied."""
    shown = clean(triage, unicode=look.unicode)
    lines = [cut(line, _LINE) for line in _lines(shown)]
    return look.finish([*lines, *commands_of(shown)[: MOST_LINES - len(lines)]])


def _lines(triage: Triage) -> Iterator[str]:
    """At most seven lines, so that three commands still fit."""
    verdict, advice = triage.verdict, triage.recommendation
    yield headline(triage)
    nodes = " " + ", ".join(advice.nodes[:4]) if advice.nodes else ""
    more = f" and {len(advice.nodes) - 4} more" if len(advice.nodes) > 4 else ""
    yield (
        f"{action_words(advice.action)[0]}{nodes}{more}"
        f" - {verdict.kind}, confidence {verdict.confidence:.2f}"
    )
    yield verdict.summary
    if verdict.culprits:
        yield "Culprit: " + _culprits(verdict.culprits)
    elif verdict.kind is Kind.UNDECIDABLE:
        ranks = verdict.alternatives[0].ranks if verdict.alternatives else ()
        could = f"It could be: ranks {rank_list(ranks, 60)}. " if ranks else ""
        settle = f"To settle it: {verdict.would_settle}." if verdict.would_settle else ""
        if could or settle:
            yield (could + settle).strip()
    yield " ".join(_answers(triage))
    missing = not_seen(triage.missing)
    if missing:
        names = "; ".join(gap.what for gap in missing[:3])
        left = len(missing) - 3
        yield f"Not seen: {names}" + (f"; {left} more" if left > 0 else "")


def _culprits(culprits: tuple[Culprit, ...]) -> str:
    first = culprits[0]
    names = ["rank not known" if first.rank is None else f"rank {first.rank}"]
    names += [name for name in (first.pod, first.node, gpu_words(first)) if name]
    text = ", ".join(names)
    left = len(culprits) - 1
    return f"{text}, and {left} more" if left else text


def _answers(triage: Triage) -> Iterator[str]:
    for question in triage.recommendation.questions:
        yield f"{question_words(question.id).capitalize()} {question.answer}."
    lost = triage.recommendation.lost_gpu_hours
    if lost is not None:
        yield f"Lost so far: {gpu_hours(lost)}."
    held = [q.gpu_hours_per_hour for q in triage.recommendation.questions]
    for rate in held:
        if rate:
            yield f"Every hour costs {figure(rate)} GPU-h."
