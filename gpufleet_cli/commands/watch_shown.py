"""How a watch is shown: a line per change, and on a terminal one line that is rewritten below them."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpufleet_cli.commands.output import emit, look
from gpufleet_cli.commands.progress import Rewritten
from gpufleet_cli.commands.target import triaged
from gpufleet_cli.commands.triage import exit_code
from gpufleet_cli.render import render, watch_lines
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.facts import JobNumbers
    from gpufleet_cli.live.session import LiveOptions
    from gpufleet_cli.operate.watch.loop import Found
    from gpufleet_cli.operate.watch.numbers import Stated
    from gpufleet_cli.watch_card import Event, Glance


@dataclass(slots=True, kw_only=True)
class Shown:
    """The hands of a watch that a person or a script started. `numbers` are those of the command line."""

    settings: Settings
    options: LiveOptions
    numbers: JobNumbers
    output: str
    page: str = ""
    job: str = ""
    namespace: str = ""
    status: Rewritten | None = None

    def __post_init__(self) -> None:
        if self.output == "text" and sys.stderr.isatty():
            self.status = Rewritten(sys.stderr)

    def meet(self, job: str, namespace: str) -> None:
        """Whose events these are."""
        self.job, self.namespace = job, namespace

    def tell(self, event: Event) -> None:
        """One line on standard output."""
        self.wipe()
        if self.output == "json":
            emit(watch_lines.document(event, job=self.job, namespace=self.namespace))
        else:
            emit(watch_lines.line(event))

    def show(self, glance: Glance, name: str) -> None:
        """The line on the terminal; nothing on a pipe."""
        if self.status is not None:
            width = max(20, shutil.get_terminal_size().columns - 1)
            self.status.draw(watch_lines.status(glance, name, width))

    def wipe(self) -> None:
        if self.status is not None:
            self.status.wipe()

    def report(self, found: Found) -> None:
        """The page of the triage; as JSON it stands in the event."""
        if self.output == "text":
            emit(f"\n{self.page}\n")

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def investigate(
        self, place: Path, *, attempt: int | None, budget_s: float, timeout: Stated
    ) -> Found:
        """Collect, then triage what was collected, as `gpufleet triage` does."""
        from gpufleet_cli.bundle import read_target
        from gpufleet_cli.commands.live_target import hooks
        from gpufleet_cli.live.session import collect
        from gpufleet_cli.operate.watch.loop import Found

        self.wipe()
        options = replace(
            self.options,
            attempt=attempt,
            deadline_s=budget_s,
            watchdog_s=timeout.value,
            watchdog_source=timeout.source,
        )
        place.parent.mkdir(parents=True, exist_ok=True)
        with hooks() as own:
            collected = collect(options, place, own)
        read = read_target(place)
        read = replace(read, kind="job", name=collected.job, namespace=collected.namespace)
        found = triaged(read, self.numbers, None)
        self.page = render(found, "text", look(self.settings))
        action = found.recommendation.action.value
        nodes = (
            f" {', '.join(found.recommendation.nodes[:4])}" if found.recommendation.nodes else ""
        )
        verdict = found.verdict
        head = f"{action}{nodes}: {verdict.kind} ({verdict.confidence:.2f}): {verdict.summary}"
        return Found(
            place=collected.bundle,
            files=collected.files,
            missing=collected.missing,
            seconds=collected.seconds,
            interrupted=collected.interrupted,
            headline=head,
            command=f"gpufleet triage {collected.bundle}",
            report=render(found, "json", look(self.settings)),
            code=exit_code(found, detailed=True),
        )
