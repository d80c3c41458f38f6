"""The fixed words of a report, the same in text, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal, assert_never

from gpufleet_cli.facts import Gap
from gpufleet_cli.render.layout import duration, figure
from gpufleet_cli.verdict import Action, Culprit, GpuRef, Input, JobState, Triage

Style = Literal["bad", "warn", "good", "ask"]

_ACTIONS: dict[Action, tuple[str, Style]] = {
    Action.EVICT_NOW: ("EVICT NOW", "bad"),
    Action.CORDON_AT_CHECKPOINT: ("CORDON NOW, EVICT AT CHECKPOINT", "warn"),
    Action.RESTART_JOB: ("RESTART THE JOB", "warn"),
    Action.FIX_CODE: ("FIX THE CODE", "warn"),
    Action.WATCH: ("WATCH", "warn"),
    Action.NONE: ("NOTHING TO DO", "good"),
    Action.COLLECT_MORE: ("COLLECT MORE", "ask"),
}


def action_words(action: Action) -> tuple[str, Style]:
    """The action in the imperative, and the colour that it means."""
    return _ACTIONS[action]


def state_words(state: JobState) -> str:
    """`state unknown` reads better behind a name than `unknown`."""
    return "state unknown" if state is JobState.UNKNOWN else str(state)


def question_words(question: Literal["stops-job", "degrading-now", "worse-if-left"]) -> str:
    match question:
        case "stops-job":
            return "does it stop the job?"
        case "degrading-now":
            return "degrading it now?"
        case "worse-if-left":
            return "worse if left?"
        case _:
            assert_never(question)


def gpu_words(culprit: Culprit) -> str:
    """`GPU 0 (0000:4e:00.0)`, with whatever names are known."""
    return gpu_name(culprit.gpu)


def gpu_name(gpu: GpuRef) -> str:
    address = gpu.pci_bus_id or gpu.uuid
    if gpu.index is None:
        return f"GPU {address}" if address else ""
    return f"GPU {gpu.index} ({address})" if address else f"GPU {gpu.index}"


def input_value(item: Input) -> str:
    """The number with its unit; seconds as a person says them."""
    match item.value:
        case None:
            return "not known"
        case str():
            return item.value
        case _ if item.unit in ("s", "seconds"):
            return duration(item.value)
        case _:
            return f"{figure(item.value)} {item.unit}".strip()


def not_seen(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Gaps of one thing as one, with all reasons: whoever gathers and whoever reads may each miss it."""
    merged: dict[str, Gap] = {}
    for gap in gaps:
        first = merged.setdefault(gap.what, gap)
        if first is not gap:
            whys = dict.fromkeys((*first.why.split("; "), *gap.why.split("; ")))
            settle = first.would_settle or gap.would_settle
            merged[gap.what] = replace(first, why="; ".join(whys), would_settle=settle)
    return tuple(merged.values())


def commands_of(triage: Triage) -> tuple[str, ...]:
    """Every command to paste; the one that would settle the question comes first."""
    runs = [command.run for command in triage.recommendation.commands]
    settle = triage.verdict.settle_command
    return (settle, *runs) if settle and settle not in runs else tuple(runs)
