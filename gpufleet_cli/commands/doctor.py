"""`gpufleet doctor [JOB]`: would tonight's triage have what it needs?"""

from __future__ import annotations

from typing import Annotated

import typer

from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit, look
from gpufleet_cli.commands.progress import announced
from gpufleet_cli.errors import ExitCode, UsageError
from gpufleet_cli.settings import Settings


def doctor(
    *,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="NAME or KIND/NAME: its recorder and dumps too.",
            show_default=False,
        ),
    ] = None,
    live: Live,
    settings: Settings,
) -> int:
    """Try each source, and say what tonight's triage would lack.

    Exit status: 0 nothing, 3 something, 4 nothing could be reached, 2 usage.

    Examples:
      gpufleet doctor
      gpufleet doctor train-run-7 -n train --dumps s3://dumps/train-run-7/
    """
    output = one_of(settings.output, ("text", "json", "yaml"))
    if job is not None and live.selector is not None:
        raise UsageError("JOB and -l are two ways to say one thing", hint="give one of them")
    if live.group is not None and job is None and live.selector is None:
        raise UsageError(f"--group {live.group} is a group of a job", hint="name the job too")
    from gpufleet_cli.live.doctor import examine
    from gpufleet_cli.render.doctor_page import doctor_document, doctor_text
    from gpufleet_cli.render.structured import dumped

    options = live.options(job, settings, is_triage=False)
    with announced("asking the API server, metrics and log store ..."):
        found = examine(options)
    if output == "text":
        emit(doctor_text(found, look(settings)))
    else:
        emit(dumped(doctor_document(found), output))
    if not found.was_reached:
        return ExitCode.UNREADABLE
    return ExitCode.UNDECIDABLE if found.lacks else ExitCode.OK
