"""`gpufleet evict JOB` or NODE: tear a gang down where nothing is lost by it."""

from __future__ import annotations

import re
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.acting import DryRun, Yes, confirm
from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit, say
from gpufleet_cli.errors import UsageError
from gpufleet_cli.plain_text import visible
from gpufleet_cli.settings import Settings, parse_duration

if TYPE_CHECKING:
    from gpufleet_cli.live.api import Api
    from gpufleet_cli.operate.evict_look import Talk


def evict(
    *,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB|NODE", help="NAME, KIND/NAME, or node/NAME; or -l.", show_default=False
        ),
    ] = None,
    if_attempt: Annotated[
        str | None,
        typer.Option("--if-attempt", metavar="TOKEN", help="Only the run that triage looked at."),
    ] = None,
    at_checkpoint: Annotated[
        bool,
        typer.Option(
            "--at-checkpoint", help="Wait for the next durable checkpoint; --deadline bounds it."
        ),
    ] = False,
    checkpoint_marker: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="A file that the job writes at each checkpoint."),
    ] = None,
    checkpoint_metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="A metric: Unix time of the last checkpoint.")
    ] = None,
    grace_period: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS", min=0, help="For pods that are evicted one by one; else their own."
        ),
    ] = None,
    checkpoint_interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="For the price of a running job.")
    ] = None,
    restart: Annotated[
        str | None, typer.Option(metavar="TIME", help="What a restart takes; for the price.")
    ] = None,
    save: Annotated[
        str | None,
        typer.Option("--save", metavar="BUNDLE", help="Where the evidence is kept."),
    ] = None,
    no_collect: Annotated[
        bool, typer.Option("--no-collect", help="Look as closely, and keep nothing.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    live: Live,
    settings: Settings,
) -> None:
    """Tear down the gang of a job, or the one that holds a node.

    By its controller's own means, and only a job that has stopped, that a fault slows now, whose state may
    be corrupt, or right after a checkpoint. It is looked at first, and the evidence kept. Exit status: 0 done, 5 refused and
    nothing lost, 4 no right or the server was lost, 2 usage.

    Examples:
      gpufleet evict train-run-7 -n train --dry-run
      gpufleet evict train-run-7 -n train --if-attempt aeb89f516e
      gpufleet evict train-run-7 -n train --at-checkpoint --deadline 40m
      gpufleet evict node/gpu-node-0417
    """
    output = one_of(settings.output, ("text", "json"))
    if no_collect and save is not None:
        raise UsageError("--no-collect keeps nothing, --save does", hint="give one of them")
    if live.attempt is not None or live.at is not None:
        raise UsageError("evict is for the newest attempt", hint="leave out --attempt and --at")
    if not at_checkpoint and (checkpoint_marker or checkpoint_metric):
        raise UsageError("a checkpoint is waited for with --at-checkpoint alone")
    from gpufleet_cli.facts import JobNumbers
    from gpufleet_cli.operate import checkpoint_metric as metrics
    from gpufleet_cli.operate.evict import evict as tear_down
    from gpufleet_cli.operate.evict_look import Order

    options = live.options(target, replace(settings, deadline_s=None), is_triage=False)
    is_kept = not no_collect and (save is not None or not dry_run)
    place = Path(save) if save else _place(target or live.selector or "job")
    api = _reached(settings)
    with tempfile.TemporaryDirectory(prefix="gpufleet-", ignore_cleanup_errors=True) as folder:
        order = Order(
            word=target,
            selector=live.selector,
            namespace=settings.namespace,
            options=replace(options, keeps=is_kept),
            place=place if is_kept else Path(folder) / "bundle",
            numbers=JobNumbers(
                source="flag",
                checkpoint_interval_s=_seconds(checkpoint_interval, "--checkpoint-interval"),
                restart_s=_seconds(restart, "--restart"),
            ),
            wanted_token=if_attempt,
            at_checkpoint=at_checkpoint,
            deadline_s=settings.deadline_s,
            grace_s=grace_period,
            dry_run=dry_run,
            marker=None if checkpoint_marker is None else Path(checkpoint_marker),
            metric=checkpoint_metric or metrics.USUAL,
        )
        card, error = tear_down(api, order, _talk(api, yes=yes, dry_run=dry_run))
    from gpufleet_cli.render.evict_page import evict_json, evict_text

    emit(evict_json(card) if output == "json" else evict_text(card))
    if error is not None:
        raise error


def _seconds(text: str | None, option: str) -> float | None:
    return None if text is None else parse_duration(text, option)


def _reached(settings: Settings) -> Api:
    """The API server, without a deadline of its own: waiting for a boundary takes what it takes."""
    from gpufleet_cli.live import reach
    from gpufleet_cli.live.deadline import Deadline

    found = reach.reached(
        kubeconfig=settings.kubeconfig, context=settings.context, deadline=Deadline()
    )
    return found.api


def _place(job: str) -> Path:
    """A name of its own for what was seen before the gang went."""
    stem = re.sub(r"[^A-Za-z0-9.-]+", "-", job).strip("-.") or "job"
    return Path(f"gpufleet-evict-{stem}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")


def _talk(api: Api, *, yes: bool, dry_run: bool) -> Talk:
    from gpufleet_cli.commands.live_target import hooks
    from gpufleet_cli.operate.evict_look import Talk
    from gpufleet_cli.redact import redact

    def tell(line: str) -> None:
        say(visible(redact(line)))

    def ask(what: str, name: str) -> None:
        confirm(api, what, name, yes=yes, dry_run=dry_run)

    return Talk(hooks=hooks, say=tell, confirm=ask)
