"""From TARGET and its options to a Triage, the same for every command that reads a target."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.fleet_target import is_url
from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.options import Inputs
from gpufleet_cli.commands.output import say
from gpufleet_cli.commands.parts_target import (
    are_parts,
    expanded,
    read_parts,
    told,
    triage_parts,
)
from gpufleet_cli.commands.past import keep
from gpufleet_cli.commands.progress import shown
from gpufleet_cli.errors import UsageError
from gpufleet_cli.plain_text import visible
from gpufleet_cli.settings import Settings, keeps_state

if TYPE_CHECKING:
    from gpufleet_cli.evidence import Target
    from gpufleet_cli.facts import JobNumbers
    from gpufleet_cli.triage import Inquiry
    from gpufleet_cli.verdict import Triage

TARGET_HELP = (
    "A job in the cluster, or a folder, file or bundle of logs and dumps; - reads pasted text."
)
TargetArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="TARGET",
        help=TARGET_HELP,
        show_default=False,
    ),
]


@contextmanager
def triage_of(
    targets: str | Sequence[str] | None,
    inputs: Inputs,
    live: Live,
    settings: Settings,
    save: str | None = None,
    scheduler: str | None = None,
    *,
    is_verdict_shown: bool = False,
) -> Iterator[Triage]:
    """Read the target and triage it; a job of the cluster is gathered first. Ctrl-C while it is gathered
    ends the gathering alone, and is raised once the caller has told what there was. Once that is out,
    the incident is kept in the history."""
    numbers, as_of_ns = inputs.numbers(), inputs.as_of_ns()
    given = expanded([targets] if isinstance(targets, str) else list(targets or ()))
    target = given[0] if given else None
    summarised = _of_summaries(given, live, settings, numbers, as_of_ns, save, scheduler)
    if summarised is not None:
        triage, read, interrupted = summarised
        _remember(triage)
        yield triage
        keep(triage, read, settings, is_verdict_shown=is_verdict_shown)
        if interrupted:
            raise KeyboardInterrupt
        return
    if is_job(target, live.selector):
        from gpufleet_cli.commands.live_target import gathered

        with gathered(target, live, settings, save, numbers.watchdog_timeout_s) as (read, found):
            triage = triaged(read, numbers, as_of_ns)
        yield triage
        keep(triage, read, settings, is_verdict_shown=is_verdict_shown)
        if found.interrupted:
            raise KeyboardInterrupt
        return
    _nothing_live(live, save)
    assert target is not None
    from gpufleet_cli.bundle import read_target

    if "/" not in target and target != "-" and (settings.namespace or settings.context):
        say(
            f"{visible(target)} is here on disk and is read; the job in the cluster: KIND/{visible(target)}"
        )
    if target == "-" and sys.stdin.isatty():
        say("paste the log lines, then press Ctrl-D")
    read = read_target(target, follow_links=inputs.follow_links)
    triage = triaged(read, numbers, as_of_ns)
    yield triage
    keep(triage, read, settings, is_verdict_shown=is_verdict_shown)


def _nothing_live(live: Live, save: str | None) -> None:
    if save is not None:
        raise UsageError(
            "--save is for a job in the cluster", hint="a target on disk is saved already"
        )
    if live.capture:
        raise UsageError("--capture is for a job in the cluster", hint="nothing runs on disk")


def _of_summaries(
    given: Sequence[str],
    live: Live,
    settings: Settings,
    numbers: JobNumbers,
    as_of_ns: int | None,
    save: str | None,
    scheduler: str | None,
) -> tuple[Triage, Target, bool] | None:
    """The answer from parts, or from a place that others read, and whether somebody ended the wait; None
    where the target is to be read here."""
    if live.selector is not None:
        if scheduler is not None:
            raise UsageError("--scheduler is for a place that workers read", hint="leave out -l")
        return None
    if are_parts(given):
        _nothing_live(live, save)
        if scheduler is not None:
            raise UsageError("--scheduler is for a place that workers read", hint="parts are here")
        parts, gaps = read_parts(given)
        told(gaps)
        return (*triage_parts(parts, gaps, numbers, as_of_ns), False)
    if not given or (scheduler is None and not is_url(given[0])):
        return None
    _nothing_live(live, save)
    from gpufleet_cli.commands.fleet_target import triage_place

    return triage_place(given[0], scheduler, settings, numbers, as_of_ns)


def triaged(read: Target, numbers: JobNumbers, as_of_ns: int | None) -> Triage:
    from gpufleet_cli.triage import file_names, with_file_names

    return with_file_names(inquired(read, numbers, as_of_ns).triage, file_names(read))


def inquired(read: Target, numbers: JobNumbers, as_of_ns: int | None) -> Inquiry:
    """A target triaged, with what the answer was made of; remembered as every triage is."""
    from gpufleet_cli.parsers.worker_pool import warm

    warm(len(read.evidences))
    from gpufleet_cli.triage import inquire

    with shown(len(read.evidences)) as progress:
        found = inquire(read, numbers, as_of_ns=as_of_ns, told=progress)
    _remember(found.triage)
    return found


def _remember(found: Triage) -> None:
    if keeps_state():
        from gpufleet_cli.live.name_cache import remember_ranks

        remember_ranks(one.rank for one in found.ranks)


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
