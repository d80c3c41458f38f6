"""A place with more evidence than one machine should read: `s3://...`, or any with `--scheduler`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from gpufleet_cli.commands.output import say
from gpufleet_cli.commands.parts_target import triage_parts
from gpufleet_cli.commands.progress import shown
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.evidence import Target
    from gpufleet_cli.facts import JobNumbers
    from gpufleet_cli.operate.fleet.engine import Engine
    from gpufleet_cli.verdict import Triage


def is_url(target: str) -> bool:
    """Whether a target is a place by its spelling: nothing on disk or in a cluster is called so."""
    scheme, mark, _ = target.partition("://")
    return bool(mark) and scheme.replace("+", "").isalnum()


def triage_place(
    target: str,
    scheduler: str | None,
    settings: Settings,
    numbers: JobNumbers,
    as_of_ns: int | None,
) -> tuple[Triage, Target, bool]:
    """Summaries from where the data is, the decision here; and whether somebody ended the wait."""
    from gpufleet_cli.operate.fleet.gather import gather
    from gpufleet_cli.operate.fleet.places import folder_url, listing

    location = target if is_url(target) else folder_url(target)
    with closing(_engine(scheduler)) as engine:
        found = listing(location)
        with shown(len(found.files)) as told:
            came = gather(engine, location, found, deadline_s=settings.deadline_s, told=told)
    if settings.verbose:
        say(
            f"{len(found.files):,} files in {came.shards:,} shards; {came.moved_bytes:,} bytes came here"
        )
    triage, read = triage_parts(came.parts, came.gaps, numbers, as_of_ns)
    named = replace(triage, target_name=found.name)
    return named, replace(read, name=found.name), came.interrupted


def _engine(scheduler: str | None) -> Engine:
    from gpufleet_cli.operate.fleet.engine import Local

    if scheduler is None:
        return Local()
    from gpufleet_cli.operate.fleet.on_dask import OnDask

    return OnDask(scheduler)
