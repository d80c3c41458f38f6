"""From TARGET and its options to a Triage, the same for every command that reads a target."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.options import Inputs
from gpufleet_cli.commands.output import say
from gpufleet_cli.commands.past import keep
from gpufleet_cli.commands.progress import shown
from gpufleet_cli.errors import UsageError
from gpufleet_cli.settings import Settings, keeps_state

if TYPE_CHECKING:
    from gpufleet_cli.evidence import Target
    from gpufleet_cli.facts import JobNumbers
    from gpufleet_cli.verdict import Triage

TargetArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="TARGET",
        help="A job in the cluster, or a folder, file or bundle of logs and dumps; - reads pasted text.",
        show_default=False,
    ),
]


@contextmanager
def triage_of(
    target: str | None,
    inputs: Inputs,
    live: Live,
    settings: Settings,
    save: str | None = None,
    *,
    is_verdict_shown: bool = False,
) -> Iterator[Triage]:
    """Read the target and triage it; a job of the cluster is gathered first. Ctrl-C while it is gathered
    ends the gathering alone, and is raised once the caller has told what there was. Once that is out,
    the incident is kept in the history."""
    numbers, as_of_ns = inputs.numbers(), inputs.as_of_ns()
    if is_job(target, live.selector):
        from gpufleet_cli.commands.live_target import gathered

        with gathered(target, live, settings, save, numbers.watchdog_timeout_s) as (read, found):
            triage = triaged(read, numbers, as_of_ns)
        yield triage
        keep(triage, read, settings, is_verdict_shown=is_verdict_shown)
        if found.interrupted:
            raise KeyboardInterrupt
        return
    if save is not None:
        raise UsageError(
            "--save is for a job in the cluster", hint="a target on disk is saved already"
        )
    if live.capture:
        raise UsageError("--capture is for a job in the cluster", hint="nothing runs on disk")
    assert target is not None
    from gpufleet_cli.bundle import read_target

    if target == "-" and sys.stdin.isatty():
        say("paste the log lines, then press Ctrl-D")
    read = read_target(target, follow_links=inputs.follow_links)
    triage = triaged(read, numbers, as_of_ns)
    yield triage
    keep(triage, read, settings, is_verdict_shown=is_verdict_shown)


def triaged(read: Target, numbers: JobNumbers, as_of_ns: int | None) -> Triage:
    from gpufleet_cli.parsers.worker_pool import warm

    warm(len(read.evidences))
    from gpufleet_cli.triage import triage_target

    with shown(len(read.evidences)) as told:
        found = triage_target(read, numbers, as_of_ns=as_of_ns, told=told)
    if keeps_state():
        from gpufleet_cli.live.name_cache import remember_ranks

        remember_ranks(one.rank for one in found.ranks)
    return found


def is_job(target: str | None, selector: str | None) -> bool:
    """Whether the cluster is meant: with `-l`, and by what is no place on disk."""
    if selector is not None:
        return True
    if target is None:
        raise UsageError(
            "Missing argument 'TARGET'",
            hint="a folder, file or archive, a job in the cluster, or - for pasted text",
        )
    from gpufleet_cli.bundle import looks_like_path

    return not looks_like_path(target)
