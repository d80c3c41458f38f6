"""How often to save, what a stop throws away, and what share of the time is left for progress."""

from __future__ import annotations

from gpufleet_cli import cost, cost_fleet
from gpufleet_cli.cost_card import CostCard, Curve, Figure, Point
from gpufleet_cli.errors import UsageError

_STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)


def checkpoint_interval(
    *,
    save: float,
    mtti: float | None = None,
    gpus: float | None = None,
    gpu_hours_per_interruption: float | None = None,
) -> CostCard:
    """How often to save."""
    if save <= 0:
        raise UsageError(
            "--save is 0: a save that blocks nothing has no best interval",
            hint="give the time that the job is blocked; with none, save as often as storage allows",
        )
    between = _mtti(mtti, gpus, gpu_hours_per_interruption)
    best = cost_fleet.daly_interval_s(save, between)
    notes = ["Within twice or half of the best interval little changes: there is no need to tune."]
    if save >= 2 * between:
        notes = ["A save takes twice the MTTI or longer: no interval makes such a job go on well."]
    elif save < cost_fleet.YOUNG_IS_CLOSE * between:
        notes.insert(0, "The save is under 1 % of the MTTI: Young's interval is close enough.")
    notes.append(
        "Saved in the background, --save is the stall alone; the worst case to recompute is then"
        " the interval and the time of writing."
    )
    return CostCard(
        title="How often to save a checkpoint",
        figures=(
            Figure(
                name="young_seconds",
                words="Young",
                value=cost_fleet.young_interval_s(save, between),
                unit="s",
            ),
            Figure(
                name="daly_first_order_seconds",
                words="Daly, first order",
                value=cost_fleet.daly_first_order_s(save, between),
                unit="s",
                why_none="none: a save takes too long beside the MTTI",
            ),
            Figure(name="daly_seconds", words="best: Daly, higher order", value=best, unit="s"),
            Figure(name="mtti_seconds", words="MTTI of the job", value=between, unit="s"),
        ),
        formula="Daly 2006, higher order: sqrt(2dM) (1 + sqrt(d/2M)/3 + (d/2M)/9) - d",
        notes=tuple(notes),
        curve=Curve(
            title="share of time lost, by interval (restarts left out)",
            unit="share",
            points=tuple(
                Point(
                    label=step * best,
                    value=1.0
                    - cost_fleet.ettr(
                        interval_s=step * best, save_s=save, restart_s=0.0, mtti_s=between
                    ),
                    is_chosen=step == 1.0,
                )
                for step in _STEPS
            ),
        ),
    )


def recompute(
    *,
    gpus: int,
    since_checkpoint: float | None = None,
    checkpoint_interval: float | None = None,
) -> CostCard:
    """What a stop now throws away."""
    expected = since_checkpoint is None
    seconds = since_checkpoint if since_checkpoint is not None else (checkpoint_interval or 0) / 2
    return CostCard(
        title="What the job would have to compute again",
        figures=(
            Figure(
                name="gpu_hours",
                words="expected at a random time" if expected else "to recompute",
                value=cost.gpu_hours(gpus, seconds),
                unit="GPU-h",
            ),
        ),
        formula="GPUs x half the checkpoint interval"
        if expected
        else "GPUs x time since the last durable, loadable checkpoint",
    )


def idle(*, gpus: int, watchdog_timeout: float) -> CostCard:
    """What the watchdog's wait costs."""
    return CostCard(
        title="What a stall costs until the watchdog fires",
        figures=(
            Figure(
                name="gpu_hours",
                words="GPUs that wait",
                value=cost.gpu_hours(gpus, watchdog_timeout),
                unit="GPU-h",
            ),
        ),
        formula="GPUs x watchdog timeout",
        notes=("Every GPU of the job is held for all of the timeout and does nothing.",),
    )


def efficiency(
    *,
    mtti: float | None = None,
    gpus: int | None = None,
    gpu_hours_per_interruption: float | None = None,
    save: float | None = None,
    restart: float | None = None,
    checkpoint_interval: float | None = None,
    target: float | None = None,
    productive: float | None = None,
    wall: float | None = None,
    scheduling_goodput: float | None = None,
    runtime_goodput: float | None = None,
    program_goodput: float | None = None,
) -> CostCard:
    """What share of the time makes progress."""
    if productive is not None and wall is not None:
        return _measured(productive, wall)
    if scheduling_goodput is not None:
        assert runtime_goodput is not None
        assert program_goodput is not None
        goodput = scheduling_goodput * runtime_goodput * program_goodput
        return CostCard(
            title="Goodput",
            figures=(Figure(name="goodput", words="goodput", value=goodput, unit="share"),),
            formula="scheduling x runtime x program goodput",
        )
    between = _mtti(mtti, gpus, gpu_hours_per_interruption)
    if target is not None:
        return CostCard(
            title="What an interruption may cost for this ETTR",
            figures=(
                Figure(
                    name="budget_seconds",
                    words="budget per interruption",
                    value=cost_fleet.budget_s(target, between),
                    unit="s",
                ),
                Figure(name="mtti_seconds", words="MTTI of the job", value=between, unit="s"),
            ),
            formula="(1 - target) x MTTI",
            notes=("It has to hold the saves of an MTTI, the recompute and the restart.",),
        )
    assert save is not None
    assert restart is not None
    assert checkpoint_interval is not None
    return _expected(between, save, restart, checkpoint_interval)


def _measured(productive: float, wall: float) -> CostCard:
    if productive > wall:
        raise UsageError("--productive is longer than --wall", hint="it is a part of it")
    return CostCard(
        title="Share of the time that made progress",
        figures=(Figure(name="ettr", words="ETTR", value=productive / wall, unit="share"),),
        formula="productive time / wall time",
    )


def _expected(mtti: float, save: float, restart: float, interval: float) -> CostCard:
    found = cost_fleet.ettr(interval_s=interval, save_s=save, restart_s=restart, mtti_s=mtti)
    notes = ["--restart is everything from the failure to the first useful step."]
    if save > 0:
        best = cost_fleet.daly_interval_s(save, mtti)
        most = cost_fleet.ettr(interval_s=best, save_s=save, restart_s=restart, mtti_s=mtti)
        notes.insert(0, f"The best interval is {best / 60:,.4g} minutes: ETTR {most * 100:.3g} %.")
    return CostCard(
        title="Share of the time that makes progress",
        figures=(
            Figure(name="ettr", words="ETTR, exact", value=found, unit="share"),
            Figure(
                name="ettr_first_order",
                words="ETTR, first order",
                value=cost_fleet.ettr_first_order(
                    interval_s=interval, save_s=save, restart_s=restart, mtti_s=mtti
                ),
                unit="share",
            ),
            Figure(name="mtti_seconds", words="MTTI of the job", value=mtti, unit="s"),
        ),
        formula="tau / (M exp(R/M) (exp((tau + d)/M) - 1)), failures at a constant rate",
        notes=tuple(notes),
    )


def _mtti(
    mtti: float | None, gpus: float | None, gpu_hours_per_interruption: float | None
) -> float:
    """As given, or from the size of the job; one of both was asked for."""
    if mtti is not None:
        return mtti
    assert gpus is not None
    assert gpu_hours_per_interruption is not None
    return cost_fleet.mtti_s(gpus, gpu_hours_per_interruption)
