"""A job of the cluster as a target: gathered into a folder, then read as any other folder.

"Live triage is collect, then triage of what was collected": there is no second way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpufleet_cli.commands.live_options import Live
from gpufleet_cli.commands.output import say
from gpufleet_cli.commands.progress import shown
from gpufleet_cli.plain_text import visible
from gpufleet_cli.redact import redact
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.evidence import Target
    from gpufleet_cli.live.gather import Hooks
    from gpufleet_cli.live.session import Collected


def collected(
    target: str | None,
    live: Live,
    settings: Settings,
    place: Path,
    *,
    is_triage: bool = False,
    keeps: bool = True,
    place_option: str = "--to",
    watchdog_s: float | None = None,
) -> Collected:
    """Gather a job into `place`. `is_triage`: its name was looked for on disk before. `keeps`: the
    place outlives the command."""
    from gpufleet_cli.live.session import collect

    with hooks() as own:
        options = live.options(target, settings, is_triage=is_triage, watchdog_s=watchdog_s)
        return collect(replace(options, keeps=keeps, place_option=place_option), place, own)


@contextmanager
def hooks() -> Iterator[Hooks]:
    """First facts on standard error, progress on a terminal only."""
    from gpufleet_cli.live.gather import Hooks

    with shown(0, what="logs") as told:

        def begin(count: int) -> None:
            if told is not None:
                told.expect(count)

        def done(count: int) -> None:
            if told is not None:
                told(count)

        yield Hooks(say=_say, begin=begin, done=done)


def _say(line: str) -> None:
    say(visible(redact(line)))


@contextmanager
def gathered(
    target: str | None,
    live: Live,
    settings: Settings,
    save: str | None,
    watchdog_s: float | None = None,
    *,
    on_disk_too: bool = True,
) -> Iterator[tuple[Target, Collected]]:
    """The job as a target of kind `job`; kept where `save` says, else only as long as it is read. `on_disk_too`:
    its name was looked for on disk before."""
    from gpufleet_cli.bundle import read_target

    with tempfile.TemporaryDirectory(prefix="gpufleet-", ignore_cleanup_errors=True) as folder:
        place = Path(folder) / "bundle" if save is None else Path(save)
        found = collected(
            target,
            live,
            settings,
            place,
            is_triage=on_disk_too,
            keeps=save is not None,
            place_option="--save",
            watchdog_s=watchdog_s,
        )
        read = read_target(place)
        yield replace(read, kind="job", name=found.job, namespace=found.namespace), found
