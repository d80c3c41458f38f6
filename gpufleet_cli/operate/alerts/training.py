"""Rules on what the job itself exports: stall, step time, age of the last checkpoint.

None speaks of a job without any step yet (no series, or 0), of one that ended (its series end, or its pods did)
or of one that starts again. Several ranks may export the same: the newest timestamp counts, and the middle of
their step times.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.alert_card import AlertRule
from gpufleet_cli.operate.alerts.numbers import Numbers
from gpufleet_cli.operate.alerts.promql import number, span
from gpufleet_cli.operate.alerts.series import Series, block

LEAST_FRESH_S, MOST_FRESH_S, FRESH_OF_WATCHDOG = 90.0, 150.0, 0.25
"""So old may the newest scrape be: lookback alone keeps a series that ended for five minutes."""
STEP_WINDOW_S, STEP_SAMPLES, LOW_FIFTH = 1200, 18, 0.2
"""Four of five minutes in twenty, none missing: no pause, evaluation or warm-up of a quarter of an hour.

Such a window holds 20 points, or 21 where its left edge is one of them: Prometheus 3 leaves that edge out, older ones
only where the evaluation is not on the minute.
"""
PACE_WINDOW, PACE_STEP, PACE_SAMPLES = "1d", "5m", 2
"""The job was at its own pace for as long, within a day: else it warms up, and nothing has got slower."""
WORKED_OF, WORKED, POINTS = 1.5, 1.1, 30
"""A checkpoint is missed by a job that made steps for 1.1 intervals of the last 1.5."""


def rules(numbers: Numbers) -> Iterator[AlertRule]:
    """The three, in the order of haste."""
    series = Series(numbers=numbers)
    yield _stall(numbers, series)
    yield _step_time(numbers, series)
    yield _checkpoint(numbers, series)


def _stall(numbers: Numbers, series: Series) -> AlertRule:
    limit = max(numbers.limits.stall_of_watchdog * numbers.watchdog_s, 2 * numbers.step_s)
    return AlertRule(
        name="GpufleetStall",
        expr=f"{_since_step(numbers, series)} > {number(limit)}\nunless on () {series.ended}",
        for_s=0,
        severity="critical",
        summary=f"{numbers.job} has made no step for {{{{ $value | humanizeDuration }}}}",
        description=(
            f"Half of its watchdog's {_human(numbers.watchdog_s)} is over. The ranks still wait and the evidence"
            " is alive: look now, before the watchdog aborts them. GPUs at 100 % mean nothing in a stall."
        ),
        commands=(numbers.triage, f"{numbers.triage} --capture"),
    )


def _since_step(numbers: Numbers, series: Series) -> str:
    """Seconds since the newest step of any rank; nothing where nobody was scraped lately."""
    fresh = min(MOST_FRESH_S, max(LEAST_FRESH_S, FRESH_OF_WATCHDOG * numbers.watchdog_s))
    own = series.own(numbers.last_step_metric)
    return f"time() - max({own} > 0 and last_over_time({own}[{span(fresh)}]))"


def _step_time(numbers: Numbers, series: Series) -> AlertRule:
    limit = numbers.limits.step_time * numbers.step_s * _unit(numbers.step_metric)
    steps, least = _steps(numbers, series), number(limit)
    window = f"[{span(STEP_WINDOW_S)}:1m]"
    expr = (
        f"quantile_over_time({LOW_FIFTH},\n{block(steps)}{window}\n) > {least}\n"
        f"and on () count_over_time(\n{block(steps)}{window}\n) >= {STEP_SAMPLES}\n"
        f"and on () count_over_time(\n{block(f'{steps} < {least}')}[{PACE_WINDOW}:{PACE_STEP}]\n)"
        f" >= {PACE_SAMPLES}\n"
        f"and on () {steps}\n"
        f"unless on () {series.ended}"
    )
    return AlertRule(
        name="GpufleetStepTime",
        expr=expr,
        for_s=300,
        severity="warning",
        summary=(
            f"Steps of {numbers.job} take {number(100 * (numbers.limits.step_time - 1))} % longer than its own"
            f" {number(numbers.step_s)} s, or more"
        ),
        description=(
            "For twenty minutes now at least four of five; one slow GPU or link holds up all. The value is what a"
            " step takes."
        ),
        commands=(numbers.triage, f"gpufleet ranks {numbers.typed}"),
    )


def _steps(numbers: Numbers, series: Series) -> str:
    """What a step takes: the middle of the ranks; a histogram or summary of that name will do."""
    name = numbers.step_metric
    mean = f"rate({series.own(f'{name}_sum')}[5m]) / rate({series.own(f'{name}_count')}[5m])"
    return f"quantile(0.5, ({series.own(name)} or {mean}) > 0)"


def _unit(metric: str) -> float:
    return 1000.0 if metric.endswith(("_ms", "_milliseconds")) else 1.0


def _checkpoint(numbers: Numbers, series: Series) -> AlertRule:
    interval = numbers.checkpoint_interval_s
    late = numbers.limits.checkpoint_intervals * interval
    own, steps = series.own(numbers.checkpoint_metric), series.own(numbers.last_step_metric)
    every = max(15.0, interval / POINTS)
    points = WORKED * interval / every
    pause = max(numbers.limits.stall_of_watchdog * numbers.watchdog_s, 3 * numbers.step_s)
    stepping = f"time() - max({steps} > 0) < {number(pause)}"
    worked = f"{block(stepping)}[{span(WORKED_OF * interval)}:{span(every)}]"
    zero = f"max_over_time(max({own})[{span(late)}:{span(every)}]) == 0"
    never = f"{zero} and on () max({steps} offset {span(late)} > 0)"
    return AlertRule(
        name="GpufleetCheckpointLate",
        expr=(
            f"(time() - max({own} > 0) > {number(late)} or ({never}))\n"
            f"and on () count_over_time(\n{worked}\n) >= {number(points)}\n"
            f"and on () {stepping}\n"
            f"unless on () {series.ended}"
        ),
        for_s=0,
        severity="warning",
        summary=f"{numbers.job} steps, and has not saved for {number(numbers.limits.checkpoint_intervals)} intervals",
        description=(
            f"It saves every {_human(interval)}. Whatever stops it now costs all steps since the last checkpoint; the"
            " value is its age in seconds (0: none yet)."
        ),
        commands=(numbers.triage, f"gpufleet preflight {numbers.typed}"),
    )


def _human(seconds: float) -> str:
    return span(seconds)
