"""Where reports go: standard output, in the look that the terminal can show."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from gpufleet_cli.errors import TargetError
from gpufleet_cli.settings import Settings, wants_color, wants_unicode

if TYPE_CHECKING:
    from gpufleet_cli.render.layout import Look


def look(settings: Settings) -> Look:
    """Colour on a terminal only; the symbols go by the locale, terminal or not."""
    from gpufleet_cli.render.layout import Look

    return Look(
        color=wants_color(settings, is_terminal=sys.stdout.isatty()),
        unicode=wants_unicode(sys.stdout.encoding),
        verbose=settings.verbose,
    )


def emit(text: str) -> None:
    """Write a report. A reader that closed the pipe early (`| head`) is no error, a full disk is."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as exc:
        silence(sys.stdout)
        raise TargetError(f"the report cannot be written: {(exc.strerror or '').lower()}") from exc


def silence(stream: TextIO) -> None:
    """Point a stream at nothing, so that the interpreter's own flush cannot fail."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


def say(text: str) -> None:
    """A note beside the report, on standard error."""
    sys.stderr.write(f"gpufleet: {text}\n")
