"""How a watch is shown: a line per change, and on a terminal one line that is rewritten below them."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpufleet_cli.commands.output import emit, look, silence
from gpufleet_cli.commands.past import keep
from gpufleet_cli.commands.progress import Rewritten
from gpufleet_cli.commands.target import triaged
from gpufleet_cli.commands.triage import exit_code
from gpufleet_cli.errors import TargetError
from gpufleet_cli.render import render, watch_lines
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.evidence import Target
    from gpufleet_cli.facts import JobNumbers
    from gpufleet_cli.live.session import LiveOptions
    from gpufleet_cli.operate.watch.loop import Found, Inquiry
    from gpufleet_cli.verdict import Triage
    from gpufleet_cli.watch_card import Event, Glance


@dataclass(slots=True, kw_only=True)
class Shown:
    """The hands of a watch that a person or a script started. `numbers` are those of the command line; `page` and
    `seen` are of the last triage."""

    settings: Settings
    options: LiveOptions
    numbers: JobNumbers
    output: str
    page: str = ""
    job: str = ""
    namespace: str = ""
    status: Rewritten | None = None
    seen: tuple[Triage, Target] | None = None

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
            _write(watch_lines.document(event, job=self.job, namespace=self.namespace))
        else:
            width = shutil.get_terminal_size().columns - 1 if sys.stdout.isatty() else None
            _write(watch_lines.line(event, width))

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
        if self.seen is not None:
            keep(*self.seen, self.settings, is_verdict_shown=self.output == "text")

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def investigate(self, inquiry: Inquiry) -> Found:
        """Collect, then triage what was collected, as `gpufleet triage` does."""
        from gpufleet_cli.bundle import read_target
        from gpufleet_cli.commands.live_target import hooks
        from gpufleet_cli.live.session import collect
        from gpufleet_cli.operate.watch.loop import Found

        self.wipe()
        options = replace(
            self.options,
            attempt=inquiry.attempt,
            deadline_s=inquiry.budget_s,
            watchdog_s=inquiry.timeout.value,
            watchdog_source=inquiry.timeout.source,
            known=inquiry.known,
        )
        inquiry.place.parent.mkdir(parents=True, exist_ok=True)
        with hooks() as own:
            collected = collect(options, inquiry.place, own)
        read = read_target(inquiry.place)
        read = replace(read, kind="job", name=collected.job, namespace=collected.namespace)
        found = triaged(read, self.numbers, None)
        self.page = render(found, "text", look(self.settings))
        self.seen = (found, read)
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
            is_healthy=verdict.kind == "healthy",
            command=f"gpufleet triage {collected.bundle}",
            report=render(found, "json", look(self.settings)),
            code=exit_code(found, detailed=True),
        )


def _write(text: str) -> None:
    """Unlike a report's, a reader who is gone ends the watch: nobody would be told any more."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError as exc:  # Typer would end with 1, which is kept for our own faults
        silence(sys.stdout)
        raise TargetError("no longer watched: whoever read this is gone") from exc
    except OSError as exc:
        silence(sys.stdout)
        raise TargetError(f"nothing can be told: {(exc.strerror or '').lower()}") from exc
