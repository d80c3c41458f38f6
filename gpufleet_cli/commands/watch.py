"""`gpufleet watch JOB`: notices a stall at half the watchdog timeout and gathers evidence before the abort."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.job_numbers_options import (
    LAST_CHECKPOINT,
    LAST_STEP,
    STEP_SECONDS,
    CheckpointInterval,
    LastCheckpointMetric,
    LastStepMetric,
    StepSeconds,
    StepSecondsMetric,
    WatchdogTimeout,
)
from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import say
from gpufleet_cli.errors import UsageError
from gpufleet_cli.plain_text import visible
from gpufleet_cli.settings import Settings, parse_duration

if TYPE_CHECKING:
    pass

LEAST_POLL_S = 0.5


def watch(
    *,
    target: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="NAME or KIND/NAME; or -l.", show_default=False),
    ] = None,
    warn_at: Annotated[
        float, typer.Option(metavar="PART", help="Of the watchdog timeout: a stall is told then.")
    ] = 0.5,
    watchdog_timeout: WatchdogTimeout = None,
    checkpoint_interval: CheckpointInterval = None,
    step_seconds: StepSeconds = None,
    poll: Annotated[str, typer.Option(metavar="TIME", help="From one look to the next.")] = "15s",
    once: Annotated[
        bool, typer.Option("--once", help="One look, for a script: 0 well, 10 or more not.")
    ] = False,
    match: Annotated[
        str | None,
        typer.Option(
            metavar="MATCHERS", help="""The job's series: 'job_id="7"'; else its pods'."""
        ),
    ] = None,
    step_seconds_metric: StepSecondsMetric = STEP_SECONDS,
    last_step_metric: LastStepMetric = LAST_STEP,
    last_checkpoint_metric: LastCheckpointMetric = LAST_CHECKPOINT,
    alertmanager: Annotated[
        str | None, typer.Option(metavar="URL", help="Post alerts there (API v2).")
    ] = None,
    save: Annotated[
        str | None,
        typer.Option("--save", "--to", metavar="FOLDER", help="Evidence goes here; else beside."),
    ] = None,
    live: Live,
    settings: Settings,
) -> int:
    """Watch a job: tell a stall early, and gather the evidence.

    At half the watchdog timeout, before the abort: by metrics, logs or both. Nothing acts on the
    cluster. --deadline bounds the gathering (2m). Exit status: 0 it ended well, 10 20 21 22 it failed (as triage --detailed-exitcode), 4 cannot be read.

    Examples:
      gpufleet watch train-run-7 -n train
      gpufleet watch train-run-7 -n train --prometheus http://prom:9090
      gpufleet watch train-run-7 -n train --once -o json
    """
    output = one_of(settings.output, ("text", "json"))
    if live.attempt is not None or live.at is not None:
        raise UsageError("watch is for the newest attempt", hint="leave out --attempt and --at")
    if target is None and live.selector is None:
        raise UsageError("Missing argument 'JOB'", hint="NAME, KIND/NAME, or -l LABELS")
    if not 0.05 <= warn_at < 1:
        raise UsageError(f"--warn-at {warn_at:g} is no part from 0.05 to below 1")
    from gpufleet_cli.commands.watch_shown import Shown
    from gpufleet_cli.facts import JobNumbers
    from gpufleet_cli.live import reach
    from gpufleet_cli.live.deadline import Deadline
    from gpufleet_cli.live.find_job import Wanted
    from gpufleet_cli.operate import notify
    from gpufleet_cli.operate.watch import loop
    from gpufleet_cli.operate.watch.metric_eyes import Names
    from gpufleet_cli.operate.watch.numbers import Flags
    from gpufleet_cli.redact import redact

    poll_s = _seconds(poll, "--poll")
    if poll_s < LEAST_POLL_S:
        raise UsageError(f"--poll {poll}: at least {LEAST_POLL_S:g}s")
    flags = Flags(
        timeout_s=_stated(watchdog_timeout, "--watchdog-timeout"),
        checkpoint_interval_s=_stated(checkpoint_interval, "--checkpoint-interval"),
        step_s=_stated(step_seconds, "--step-seconds"),
        warn_at=warn_at,
        poll_s=poll_s,
    )
    if alertmanager is not None:
        notify.address(alertmanager)
    order = loop.Order(
        wanted=Wanted(
            target=target, selector=live.selector, namespace=settings.namespace, is_whole=True
        ),
        group=live.group,
        names=Names(
            last_step=last_step_metric,
            last_checkpoint=last_checkpoint_metric,
            step_seconds=step_seconds_metric,
            match=match,
        ).checked(),
        flags=flags,
        prometheus=live.prometheus,
        alertmanager=alertmanager,
        lookback_s=_seconds(live.lookback, "--lookback"),
        budget_s=settings.deadline_s,
        folder=None if save is None else Path(save),
        once=once,
    )
    found = reach.reached(
        kubeconfig=settings.kubeconfig, context=settings.context, deadline=Deadline()
    )
    say(visible(redact(found.told)))
    options = live.options(target, replace(settings, deadline_s=None), is_triage=False)
    shown = Shown(
        settings=settings,
        options=replace(options, lookback_s=0.0, keeps=True),
        numbers=JobNumbers(
            source="flag",
            checkpoint_interval_s=flags.checkpoint_interval_s,
            step_s=flags.step_s,
            watchdog_timeout_s=flags.timeout_s,
        ),
        output=output,
    )
    try:
        return loop.watch(found.api, order, shown)
    finally:
        shown.wipe()


def _stated(text: str | None, option: str) -> float | None:
    return None if text is None else _seconds(text, option)


def _seconds(text: str, option: str) -> float:
    seconds = parse_duration(text, option)
    if seconds <= 0:
        raise UsageError(f"{option} {text!r} is no time above 0")
    return seconds
