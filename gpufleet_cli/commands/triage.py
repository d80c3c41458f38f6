"""`gpufleet triage TARGET`: which rank, what is under it, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.options import Inputs, one_of
from gpufleet_cli.commands.output import emit, look
from gpufleet_cli.commands.target import TARGET_HELP, triage_of
from gpufleet_cli.errors import ExitCode, UsageError
from gpufleet_cli.render import FORMATS, render
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.verdict import Triage

DETAILED = {
    "watch": ExitCode.FIX_OR_WATCH,
    "fix-code": ExitCode.FIX_OR_WATCH,
    "restart-job": ExitCode.RESTART_JOB,
    "cordon-at-checkpoint": ExitCode.CORDON_AT_CHECKPOINT,
    "evict-now": ExitCode.EVICT_NOW,
}


def triage(
    *,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET",
            help=f"{TARGET_HELP} Also s3://..., and parts of `gpufleet summarise`.",
            show_default=False,
        ),
    ] = None,
    live: Live,
    inputs: Inputs,
    brief: Annotated[
        bool, typer.Option("--brief", help="At most ten plain lines, for a chat thread.")
    ] = False,
    detailed_exitcode: Annotated[
        bool,
        typer.Option(
            "--detailed-exitcode",
            help="10 watch, fix-code; 20 restart-job; 21 cordon-at-checkpoint; 22 evict-now.",
        ),
    ] = False,
    save: Annotated[
        str | None,
        typer.Option("--save", metavar="BUNDLE", help="Keep what a job in the cluster left, here."),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="ADDRESS",
            help="Dask workers read the files: tcp://..., tls://.... Else this machine does.",
        ),
    ] = None,
    settings: Settings,
) -> int:
    """Say which rank stopped a job, what is under it, what to do.

    Exit status: 0 a verdict, 3 undecidable, 4 the target cannot be read, 2 usage.

    Examples:
      gpufleet triage train-run-7 -n train       # a job of the cluster
      gpufleet triage ./incident/ --brief        # ten lines for the chat
      gpufleet triage incident.tar.zst -o json   # a bundle, for a script
      kubectl logs -l job-name=train-run-7 --prefix --tail=-1 \\
        --max-log-requests 64 | gpufleet triage -
    """
    output = one_of(settings.output, tuple(FORMATS))
    if brief and output != "text":
        raise UsageError("--brief is plain text", hint="leave out -o")
    with triage_of(
        targets or None, inputs, live, settings, save, scheduler, is_verdict_shown=True
    ) as found:
        if brief:
            from gpufleet_cli.render.brief import render as render_brief

            emit(render_brief(found, look(settings)))
        else:
            emit(render(found, output, look(settings)))
    return exit_code(found, detailed=detailed_exitcode)


def exit_code(found: Triage, *, detailed: bool) -> ExitCode:
    """0 for a verdict, 3 for none; with `detailed` a verdict that calls for action says which."""
    if found.verdict.kind == "undecidable":
        return ExitCode.UNDECIDABLE
    if not detailed:
        return ExitCode.OK
    return DETAILED.get(found.recommendation.action.value, ExitCode.OK)
