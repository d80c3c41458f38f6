"""From TARGET and its options to a Triage, the same for every command that reads a target."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.options import Inputs
from gpufleet_cli.commands.output import say
from gpufleet_cli.commands.progress import shown
from gpufleet_cli.errors import TargetError, UsageError

if TYPE_CHECKING:
    from gpufleet_cli.verdict import Triage

TargetArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="TARGET",
        help="A folder, file, archive or bundle of logs and dumps; - reads pasted text.",
        show_default=False,
    ),
]


def triage_of(target: str | None, inputs: Inputs) -> Triage:
    """Read the target and triage it."""
    numbers, as_of_ns = inputs.numbers(), inputs.as_of_ns()
    place = _place(target, inputs.selector)
    from gpufleet_cli.bundle import read_target

    if place == "-" and sys.stdin.isatty():
        say("paste the log lines, then press Ctrl-D")
    read = read_target(place, follow_links=inputs.follow_links)
    from gpufleet_cli.parsers.worker_pool import warm

    warm(len(read.evidences))
    from gpufleet_cli.triage import triage_target

    with shown(len(read.evidences)) as told:
        return triage_target(read, numbers, as_of_ns=as_of_ns, told=told)


def _place(target: str | None, selector: str | None) -> str:
    """TARGET as a place on disk; a job of a live cluster is refused with both looks named."""
    if selector is not None:
        raise TargetError(
            f"-l {selector}: live clusters are not supported in this version",
            hint="give a folder, file or archive of logs and dumps",
        )
    if target is None:
        raise UsageError(
            "Missing argument 'TARGET'", hint="a folder, file or archive, or - for pasted text"
        )
    from gpufleet_cli.bundle import looks_like_path

    if not looks_like_path(target):
        raise TargetError(
            f"{target}: no such file or folder, and live clusters are not supported in this version",
            hint="give a folder, file or archive of logs and dumps, or - to paste text",
        )
    return target
