"""`gpufleet postmortem BUNDLE`: the write-up of an incident, as Markdown or as one HTML file with its record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.options import Inputs, one_of
from gpufleet_cli.commands.output import emit, look, say
from gpufleet_cli.commands.past import keep
from gpufleet_cli.commands.target import inquired
from gpufleet_cli.errors import ExitCode, TargetError, UsageError
from gpufleet_cli.plain_text import visible
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.evidence import Target
    from gpufleet_cli.postmortem_card import Postmortem

OUTPUTS = ("markdown", "html", "json")
_HTML, _MARKDOWN = (".html", ".htm"), (".md", ".markdown")
_FILES = (".tar", ".tgz", ".gz", ".zst", ".zip", ".bz2", ".xz", ".log", ".txt", ".json")


def postmortem(
    *,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="BUNDLE",
            help="A bundle, or any folder, file or archive of logs and dumps; - reads pasted text.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Write one self-contained report.html (or .md), and report.json beside it.",
        ),
    ] = None,
    inputs: Inputs,
    settings: Settings,
) -> int:
    """Write up an incident: what happened, when, and what it cost.

    And why it was decided so, and what was missing. `-o` is markdown, html or json (the record), on
    standard output; with `--to` files are written.
    Exit status: 0 it was written (undecidable too), 4 the target cannot be read, 2 usage.

    Examples:
      gpufleet postmortem b.tar.zst --to report.html  # and report.json beside it
      gpufleet postmortem ./incident/ > report.md     # Markdown, for a ticket
      gpufleet postmortem b.tar.zst -o json           # the record alone
    """
    output = one_of(settings.output, OUTPUTS)
    page = None if to is None else _page_of(to)
    if page is not None and target is not None:
        _spare_evidence(Path(target), page)
    read, made = _made(target, inputs)
    if page is not None:
        _write(page, made, settings)
    if page is None or settings.output is not None:
        emit(_shown(made, output, settings))
    keep(made.triage, read, settings, is_verdict_shown=False)
    return ExitCode.OK


def _page_of(to: str) -> Path:
    page = Path(to)
    if page.suffix.lower() not in (*_HTML, *_MARKDOWN):
        raise UsageError(
            f"--to {to!r} is no page", hint="report.html or report.md; report.json comes beside it"
        )
    return page


def _spare_evidence(target: Path, page: Path) -> None:
    """No file of the target is written over, but a write-up that lies beside it: `--to incident/job.html` would
    take the place of `job.json`."""
    from gpufleet_cli.bundle import is_own_report

    for path in (page, page.with_suffix(".json")):
        try:
            inside = path.exists() and path.resolve().is_relative_to(target.resolve())
        except (OSError, RuntimeError, ValueError):
            continue  # whoever reads or writes it says why
        if inside and not is_own_report(path):
            raise UsageError(
                f"{visible(str(path))} is a file of the target, and would be written over",
                hint="--to another name, such as report.html",
            )


def _made(target: str | None, inputs: Inputs) -> tuple[Target, Postmortem]:
    from gpufleet_cli.bundle import looks_like_path, read_target

    if target is None:
        raise UsageError("Missing argument 'BUNDLE'", hint="a bundle, folder, file or archive")
    if not looks_like_path(target):
        name = visible(target)
        if _is_spelled_as_a_file(target):
            raise TargetError(f"{name}: no such file or folder", hint="check the path")
        raise TargetError(
            f"{name}: no such file or folder",
            hint=f"of a job in the cluster: gpufleet collect {name} --to bundle, then postmortem bundle",
        )
    numbers, as_of_ns = inputs.numbers(), inputs.as_of_ns()
    read = read_target(target, follow_links=inputs.follow_links)
    found = inquired(read, numbers, as_of_ns)
    from gpufleet_cli.operate.postmortem.record import postmortem as write_up

    return read, write_up(found, read)


def _is_spelled_as_a_file(target: str) -> bool:
    """By its slash or its ending; `jobset/train` is a job."""
    from gpufleet_cli.live.kinds import kinds_for

    folder, slash, name = target.rpartition("/")
    return bool(slash and not kinds_for(folder)) or name.lower().endswith(_FILES)


def _shown(made: Postmortem, output: str, settings: Settings) -> str:
    if output == "html":
        from gpufleet_cli.render.postmortem.html import render as render_html

        return render_html(made)
    if output == "json":
        from gpufleet_cli.render.postmortem.document import render as render_record

        return render_record(made)
    from gpufleet_cli.render.postmortem.markdown import render as render_markdown

    return render_markdown(made, look(settings))


def _write(page: Path, made: Postmortem, settings: Settings) -> None:
    """The page, and the record under the same name."""
    record = page.with_suffix(".json")
    form = "html" if page.suffix.lower() in _HTML else "markdown"
    for path, text in (
        (page, _shown(made, form, settings)),
        (record, _shown(made, "json", settings)),
    ):
        try:
            path.write_text(text, encoding="utf-8", newline="\n")
        except OSError as exc:
            why = (exc.strerror or "cannot be written").lower()
            raise TargetError(f"{visible(str(path))}: {why}", hint="--to another place") from exc
    size = page.stat().st_size
    say(f"{visible(str(page))} ({size:,} bytes) and {visible(record.name)} are written")
