"""Which further sources a look asks, in their order: a line here for each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpufleet_cli.errors import UsageError
from gpufleet_cli.live import exec_dumps, folder_files
from gpufleet_cli.live.gather import Source

if TYPE_CHECKING:
    from gpufleet_cli.live.session import LiveOptions


def sources_for(options: LiveOptions) -> Sequence[Source]:
    """Dumps first: they are gone with their container."""
    found = _dumps(options.dumps)
    if options.kernel_logs is not None:
        found.append(_folder(options.kernel_logs, "kernel", "kernel logs"))
    return tuple(found)


def _dumps(stated: str | None) -> list[Source]:
    if stated is None:
        return [exec_dumps.gather]
    kind, _, rest = stated.partition(":")
    if kind == "exec":
        return [partial(exec_dumps.gather, stated=rest)]
    if "://" in stated:
        raise UsageError(f"--dumps {stated}: only exec:/path/prefix_ and a folder can be read yet")
    return [_folder(stated, "dumps", "Flight Recorder dumps")]


def _folder(folder: str, into: str, what: str) -> Source:
    return partial(folder_files.gather, folder=folder, into=into, what=what)
