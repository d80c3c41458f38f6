"""Where the history lies: `--history` over GPUFLEET_HISTORY over the settings file over the user's own folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gpufleet_cli import settings_file
from gpufleet_cli.errors import UsageError
from gpufleet_cli.history import old_lines
from gpufleet_cli.settings import keeps_state, state_folder

VARIABLE = "GPUFLEET_HISTORY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The folder, and who named it. `is_own`: the user's own, below the state folder."""

    folder: Path
    source: str
    is_own: bool = False


def chosen(flag: str | None, context: str | None) -> Place:
    """The folder of this run. What an older gpufleet kept is moved into the user's own one."""
    if flag is not None:
        return Place(folder=_path(flag, "--history"), source="--history")
    if stated := os.environ.get(VARIABLE):
        return Place(folder=_path(stated, VARIABLE), source=VARIABLE)
    file = settings_file.load()
    folder = file.of(context).history
    if folder is not None:
        return Place(folder=folder, source=str(file.path))
    own = state_folder() / "history"
    if keeps_state():
        old_lines.move(state_folder() / "history.jsonl", own)
    return Place(folder=own, source="your own", is_own=True)


def _path(text: str, name: str) -> Path:
    if not text.strip() or "\0" in text:
        raise UsageError(f"{name} {text!r} is no folder")
    try:
        return Path(text).expanduser()
    except RuntimeError as exc:
        raise UsageError(f"{name} {text!r} begins with ~ of a user that is not known") from exc
