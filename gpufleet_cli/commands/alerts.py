"""`gpufleet alerts JOB`: the Prometheus rules of one job, from its own numbers."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
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
from gpufleet_cli.commands.output import emit, say
from gpufleet_cli.errors import SourceError, TargetError, UsageError
from gpufleet_cli.plain_text import is_name, visible
from gpufleet_cli.settings import Settings, parse_duration

if TYPE_CHECKING:
    from gpufleet_cli.operate.alerts.job_numbers import Asked, Told

LONGEST_S = 30 * 86_400.0


def alerts(
    *,
    target: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="NAME or KIND/NAME; or -l.", show_default=False),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            metavar="MATCHERS",
            help="Labels of the job's own metrics: 'job_id=\"run7\"'; else its namespace and pods.",
        ),
    ] = None,
    pods: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="The job's pods, of every attempt; else JOB-.+"),
    ] = None,
    step_seconds: StepSeconds = None,
    checkpoint_interval: CheckpointInterval = None,
    watchdog_timeout: WatchdogTimeout = None,
    step_seconds_metric: StepSecondsMetric = STEP_SECONDS,
    last_step_metric: LastStepMetric = LAST_STEP,
    last_checkpoint_metric: LastCheckpointMetric = LAST_CHECKPOINT,
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND", help="rules (a rule file) or PrometheusRule (the operator's)."
        ),
    ] = "rules",
    live: Live,
    settings: Settings,
) -> None:
    """Print Prometheus rules for a job, made of its own numbers.

    For a stall, the step time, checkpoints, XIDs, lost GPUs and nodes. With --step-seconds,
    --checkpoint-interval and --watchdog-timeout no cluster is asked; else the job is looked at, and what it does not tell is asked for. Exit status: 0 done, 2 usage, 4 no such job.

    Examples:
      gpufleet alerts train-run-7 -n train > rules.yaml
      gpufleet alerts train-run-7 -n train --match 'job_id="run7"' \\
        --step-seconds 0.4 --checkpoint-interval 30m --watchdog-timeout 10m
      gpufleet alerts train-run-7 -n train --kind PrometheusRule > rule.yaml
    """
    from gpufleet_cli.operate.alerts import job_numbers
    from gpufleet_cli.operate.alerts.build import build
    from gpufleet_cli.operate.alerts.numbers import Numbers
    from gpufleet_cli.operate.alerts.promql import matchers, metric_name, plain, regex
    from gpufleet_cli.render.alert_rules import KINDS, render_rules

    output, shape = one_of(settings.output, ("yaml", "json")), one_of(kind, KINDS, "--kind")
    step_metric = metric_name(step_seconds_metric, "--step-seconds-metric")
    last_step = metric_name(last_step_metric, "--last-step-metric")
    last_checkpoint = metric_name(last_checkpoint_metric, "--last-checkpoint-metric")
    given = {
        job_numbers.STEP: _seconds(step_seconds, "--step-seconds"),
        job_numbers.INTERVAL: _seconds(checkpoint_interval, "--checkpoint-interval"),
        job_numbers.WATCHDOG: _seconds(watchdog_timeout, "--watchdog-timeout"),
    }
    own = None if match is None else matchers(match, "--match")
    pattern = None if pods is None else regex(pods, "--pods")
    job = _looked_at(target, live, settings, job_numbers.given_alone(given), given)
    if pattern is None:
        pattern, whence = job_numbers.pods_of(job.name, job.pods)
    else:
        whence = "flag"
    if own is None:
        own = job_numbers.own_pods(job.namespace, pattern)
    numbers = Numbers(
        job=job.name,
        typed=plain(_typed(job, target, live, settings)),
        namespace=job.namespace,
        match=own,
        pods=pattern,
        step_s=job.told[job_numbers.STEP].value,
        checkpoint_interval_s=job.told[job_numbers.INTERVAL].value,
        watchdog_s=job.told[job_numbers.WATCHDOG].value,
        step_metric=step_metric,
        last_step_metric=last_step,
        checkpoint_metric=last_checkpoint,
    )
    known = job_numbers.known(job.told, numbers, match_given=match is not None, pods_source=whence)
    for one in known:
        if one.source != "flag":
            say(visible(f"{one.words} {one.value}: {one.source}"))
    if job.namespace is None:
        say("no -n: pods of this name count in every namespace")
    emit(render_rules(build(numbers, known), kind=shape, output=output))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """The job with its numbers; `pods` where it was looked at."""

    name: str
    namespace: str | None
    told: dict[Asked, Told]
    pods: tuple[str, ...] = ()


def _seconds(text: str | None, option: str) -> float | None:
    if text is None:
        return None
    value = parse_duration(text, option)
    if not 0 < value <= LONGEST_S:
        raise UsageError(f"{option} {text!r} is out of range", hint="more than 0, at most 30d")
    return value


def _looked_at(
    target: str | None,
    live: Live,
    settings: Settings,
    told: dict[Asked, Told] | None,
    given: dict[Asked, float | None],
) -> _Job:
    """The job as it was named where nothing has to be asked, else as it is in the cluster."""
    if (target is None) == (live.selector is None):
        raise UsageError("which job?", hint="give its name, or -l SELECTOR, not both")
    if target is None or told is None:
        return _of_cluster(target, live, settings, given)
    name = target.rpartition("/")[2]
    if not all(map(is_name, target.split("/"))) or target.count("/") > 1:
        raise UsageError(f"{target!r} is no name of a job", hint="NAME or KIND/NAME")
    if settings.namespace is not None and not is_name(settings.namespace):
        raise UsageError(f"-n {settings.namespace!r} is no name of a namespace")
    return _Job(name=name, namespace=settings.namespace, told=told)


def _of_cluster(
    target: str | None, live: Live, settings: Settings, given: dict[Asked, float | None]
) -> _Job:
    from gpufleet_cli.commands.live_target import gathered
    from gpufleet_cli.facts import JobNumbers
    from gpufleet_cli.operate.alerts.job_numbers import with_triage
    from gpufleet_cli.triage import triage_target

    try:
        with gathered(target, live, settings, None, on_disk_too=False) as (read, found):
            triage = triage_target(read, JobNumbers(source="flag"))
    except (SourceError, TargetError) as exc:
        missing = ", ".join(one.option for one, value in given.items() if value is None)
        if target is None or not missing:
            raise
        hint = f"{exc.hint}; or" if exc.hint else "or"
        raise type(exc)(
            exc.message, hint=f"{hint} give {missing}, and no cluster is asked"
        ) from exc
    seen = {row.pod for row in triage.ranks if row.pod is not None}
    return _Job(
        name=found.job,
        namespace=found.namespace,
        told=with_triage(given, triage, found.job),
        pods=tuple(sorted(seen)),
    )


def _typed(job: _Job, target: str | None, live: Live, settings: Settings) -> str:
    """The job as a command of ours finds it again."""
    words = [target] if target is not None else ["-l", live.selector or ""]
    words += ["-n", job.namespace] if job.namespace is not None else []
    words += ["--context", settings.context] if settings.context is not None else []
    return shlex.join(words)
