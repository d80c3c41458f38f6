"""A bug of our own, told in one line, with a log that is ready to be pasted into an issue."""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath

from gpufleet_cli import __version__
from gpufleet_cli.redact import redact
from gpufleet_cli.settings import cache_folder, keeps_state

_PARTS = ("typer", "rich", "msgspec", "zstandard", "google-re2", "python-dateutil", "kubernetes")


def crash_line(exc: Exception, arguments: Sequence[str]) -> str:
    """What broke and where; the log's path when one could be written."""
    frames = traceback.extract_tb(exc.__traceback__)
    ours = [frame for frame in frames if "gpufleet_cli" in frame.filename]
    where = (ours or frames)[-1]
    place = "/".join(PurePath(where.filename).parts[-2:])
    said = f"a fault in gpufleet itself: {type(exc).__name__}: {exc} at {place}:{where.lineno}"
    versions = f"gpufleet {__version__}, Python {platform.python_version()}"
    log = _write_log(exc, arguments) if keeps_state() else None
    return f"{said} ({versions})" + (
        f"; please report it with {log}" if log else "; please report it"
    )


def _write_log(exc: Exception, arguments: Sequence[str]) -> Path | None:
    """Versions, arguments and traceback below the user's cache; no reason to fail a second time."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = cache_folder() / f"crash-{stamp}-{os.getpid()}.log"
    text = "\n".join(
        [
            f"gpufleet {__version__}",
            f"Python {sys.version}",
            f"platform {platform.platform()}",
            *(f"{part} {_version_of(part)}" for part in _PARTS),
            f"arguments {list(arguments)!r}",
            "",
            *traceback.format_exception(exc),
        ]
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(redact(text), encoding="utf-8", errors="backslashreplace")
    except OSError:
        return None
    return path


def _version_of(part: str) -> str:
    try:
        return version(part)
    except PackageNotFoundError:
        return "not installed"
