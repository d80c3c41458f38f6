"""`gpufleet collect JOB --to PATH`: the evidence of an incident as a bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit
from gpufleet_cli.errors import ExitCode, UsageError
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.live.session import Collected


def collect(
    *,
    job: Annotated[
        str | None,
        typer.Argument(metavar="JOB", help="NAME or KIND/NAME; or -l.", show_default=False),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PATH",
            help="A folder, or a file: .tar.gz, .tar.zst. Else named after the job.",
        ),
    ] = None,
    redact_again: Annotated[
        str | None,
        typer.Option(
            "--redact-again", metavar="BUNDLE", help="Hide secrets in an old bundle, into --to."
        ),
    ] = None,
    live: Live,
    settings: Settings,
) -> int:
    """Gather the evidence of a job into a bundle.

    One JSON line tells where it is. What is missing is named on standard error, and in its manifest.
    Exit status: 0 all was had, 3 parts are missing, 4 nothing was had, 2 usage.

    Examples:
      gpufleet collect train-run-7 -n train --to incident.tar.zst
      gpufleet collect -l app=trainer -n train --dumps s3://dumps/train-run-7/
      gpufleet collect --redact-again old/ --to clean.tar.zst
    """
    one_of(settings.output, ("json",))
    if redact_again is not None:
        return _again(redact_again, to)
    if job is None and live.selector is None:
        raise UsageError("Missing argument 'JOB'", hint="NAME, KIND/NAME, or -l SELECTOR")
    if job is not None and live.selector is not None:
        raise UsageError("JOB and -l are two ways to say one thing", hint="give one of them")
    from gpufleet_cli.commands.live_target import collected

    found = collected(
        job, live, settings, Path(to) if to else _place(job or live.selector or "job")
    )
    emit(line(found))
    if found.interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.UNDECIDABLE if found.missing else ExitCode.OK


def _place(job: str) -> Path:
    """A name of its own for tonight's bundle, in the working folder."""
    import re
    import time

    stem = re.sub(r"[^A-Za-z0-9.-]+", "-", job).strip("-.") or "job"
    return Path(f"{stem}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")


def line(found: Collected) -> str:
    """The line that scripts read."""
    told = {
        "bundle": found.bundle,
        "files": found.files,
        "bytes": found.size_bytes,
        "ranks": found.ranks,
        "missing": found.missing,
        "hidden": found.hidden,
        "seconds": found.seconds,
    }
    return json.dumps(told) + "\n"


def _again(bundle: str, to: str | None) -> int:
    if to is None:
        raise UsageError("--redact-again needs --to", hint="the old bundle is left as it is")
    from gpufleet_cli.live import pack
    from gpufleet_cli.live.redact_again import redact_again

    pack.refuse_others(Path(to), "--to")
    emit(line(redact_again(Path(bundle), Path(to))))
    return ExitCode.OK
