"""`history.jsonl`, which gpufleet kept until it had a file for each incident: read once, then set aside.

A line is an incident of schema `gpufleet.incident/v1`; of one id the last line counts. Lines that cannot be
read are passed over.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from gpufleet_cli.history import folder
from gpufleet_cli.history.record import Incident, with_id

SCHEMA = "gpufleet.incident/v1"
MOST_BYTES = 64 << 20
"""Of a longer file the newest end is read."""


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    kind: str
    schema: str
    at_ns: int | None = None
    context: str | None = None
    job: str | None = None
    namespace: str | None = None
    attempt: int | None = None
    confidence: float = 0.0
    action: str = ""
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    xids: tuple[int, ...] = ()
    lost_gpu_hours: float | None = None
    summary: str = ""


def move(old: Path, into: Path) -> None:
    """The incidents of the old file into the folder; the file stays beside it under another name.

    Two programs that do this at once write the same files. Where something cannot be written the old file
    stays where it is, for the next run.
    """
    if not old.is_file():
        return
    with suppress(OSError):
        for one in read(old):
            folder.keep(into, one, is_own=True)
        old.rename(old.with_name(f"{old.name}.moved"))


def read(old: Path) -> list[Incident]:
    """Its incidents as they are kept now."""
    found: dict[str, Incident] = {}
    for line in _newest(old).split(b"\n"):
        try:
            told = msgspec.json.decode(line, type=_Line)
            if told.schema != SCHEMA:
                continue
            about = {
                name: getattr(told, name) for name in told.__struct_fields__ if name != "schema"
            }
            about |= {"id": "0" * 16, "state": "unknown"}
            found[told.id] = with_id(msgspec.convert(about, type=Incident))
        except (ValueError, RecursionError):
            continue
    return list(found.values())


def _newest(old: Path) -> bytes:
    with old.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MOST_BYTES))
        return file.read(MOST_BYTES)
