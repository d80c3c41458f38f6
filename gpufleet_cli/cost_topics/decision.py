"""Evict now or at the next checkpoint: the arithmetic of a triage, on numbers that somebody gives."""

from __future__ import annotations

from dataclasses import replace

from gpufleet_cli import cost
from gpufleet_cli.cost_card import CostCard, Curve, Figure, Point
from gpufleet_cli.errors import UsageError
from gpufleet_cli.verdict import Action


def decide(
    *,
    gpus: int,
    checkpoint_interval: float,
    since_checkpoint: float,
    save: float,
    restart: float,
    planned_restart: float,
    detection: float,
    slowdown: float = 1.0,
    hazard_per_hour: float = 0.0,
    stopped: bool = False,
) -> CostCard:
    """Evict now or at the next checkpoint: the arithmetic of a triage."""
    if planned_restart > restart:
        raise UsageError(
            "--planned-restart is longer than --restart",
            hint="a restart that was planned takes no longer than one that was not",
        )
    stakes = cost.Stakes(
        gpus=gpus,
        interval_s=checkpoint_interval,
        since_checkpoint_s=since_checkpoint,
        save_s=save,
        restart_s=restart,
        planned_restart_s=planned_restart,
        detection_s=detection,
        slowdown=slowdown,
        hazard_per_hour=hazard_per_hour,
    )
    found = cost.decide(stakes, stopped=stopped)
    return CostCard(
        title="Evict the node now, or at the next checkpoint",
        figures=_decided(stakes, found, stopped=stopped),
        formula="the three questions: expected GPU-hours lost from now on",
        notes=_decided_because(stakes, found),
        curve=None if stopped else _by_fault(stakes, found),
    )


def _decided(stakes: cost.Stakes, found: cost.Decision, *, stopped: bool) -> tuple[Figure, ...]:
    down = "the job is stopped: it reaches no checkpoint"
    return (
        Figure(name="recommendation", words="do", value=found.action.value, unit="action"),
        Figure(
            name="evict_gpu_hours", words="evict now", value=found.evict_gpu_hours, unit="GPU-h"
        ),
        Figure(
            name="wait_gpu_hours",
            words="wait for the checkpoint",
            value=found.wait_gpu_hours,
            unit="GPU-h",
            why_none=down,
        ),
        Figure(
            name="break_even_slowdown",
            words="break-even, slowdown alone",
            value=None if stopped else cost.break_even_slowdown(stakes),
            unit="x",
            why_none=down if stopped else "none: the checkpoint is due",
        ),
        Figure(
            name="break_even_hazard_per_hour",
            words="break-even, hazard alone",
            value=None if stopped else cost.break_even_hazard_per_hour(stakes),
            unit="per hour",
            why_none=down if stopped else "none up to 1,000 per hour",
        ),
    )


def _decided_because(stakes: cost.Stakes, found: cost.Decision) -> tuple[str, ...]:
    if found.wait_gpu_hours is None:
        return (
            "What the job lost is lost either way, and an eviction adds nothing.",
            f"Each hour of waiting costs {stakes.gpus:,} GPU-hours.",
        )
    notes = []
    if found.is_tie:
        notes.append("The two are within 10 %: a tie, so the less disruptive.")
    return (
        *notes,
        "Corrupt state (XID 95, or 48 without 94) is evicted, a software fault never.",
    )


def _by_fault(stakes: cost.Stakes, found: cost.Decision) -> Curve | None:
    """What waiting costs as the fault is worse; over the hazard where that alone was given."""
    by_hazard = stakes.hazard_per_hour > 0 and stakes.slowdown == 1
    edge = (
        cost.break_even_hazard_per_hour(stakes) if by_hazard else cost.break_even_slowdown(stakes)
    )
    if not edge:
        return None
    now = stakes.hazard_per_hour if by_hazard else stakes.slowdown
    least = 0.0 if by_hazard else 1.0
    steps = (least, least + (edge - least) / 2, edge, least + (edge - least) * 1.5)
    evict = Point(
        label="evict now",
        value=found.evict_gpu_hours,
        is_chosen=found.action is Action.EVICT_NOW,
    )
    rows = [
        Point(
            label=f"wait at {place:.3g} {'per hour' if by_hazard else 'x'}",
            value=cost.wait_gpu_hours(_with(stakes, place, by_hazard=by_hazard)),
            is_chosen=place == now and found.action is Action.CORDON_AT_CHECKPOINT,
        )
        for place in sorted({now, *steps})
    ]
    what = "extra hazard" if by_hazard else "slowdown"
    return Curve(title=f"GPU-hours lost, by {what}", unit="GPU-h", points=(evict, *rows))


def _with(stakes: cost.Stakes, place: float, *, by_hazard: bool) -> cost.Stakes:
    if by_hazard:
        return replace(stakes, hazard_per_hour=place)
    return replace(stakes, slowdown=place)
