"""A folder with one small JSON file an incident: a person's own, or one that a team shares.

No lock, since a network home has none that can be trusted: a file's name is `HOUR-INCIDENT-CONTENT.json`,
where CONTENT is the hash of what is in it. A writer joins what it finds of the incident with its own,
writes that under its own name by a rename, and only then takes away what it joined. So a file goes only
after one that has all of it is there; two writers at once leave two files, which every reader takes
as one incident and the next writer makes one. What does not hash to its name (a newer program's, a
stranger's, a torn one) is never taken away.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256
from pathlib import Path

import msgspec

from gpufleet_cli.errors import SourceError
from gpufleet_cli.history.record import (
    DAY_NS,
    HOUR_NS,
    SCHEMA,
    Incident,
    encoded,
    joined,
    told_apart,
)
from gpufleet_cli.plain_text import visible
from gpufleet_cli.timestamps import format_ns

MOST_BYTES = 64 << 10
MOST_FILES = 50_000
_LOOKS = 3
_NAME = re.compile(
    r"(?P<hour>\d{8}T\d\d|undated)-(?P<id>[0-9a-f]{16})-(?P<content>[0-9a-f]{8})\.json"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRead:
    """A file, or several, that cost themselves."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a folder holds: an incident once, oldest first, and what could not be read."""

    incidents: tuple[Incident, ...] = ()
    not_read: tuple[NotRead, ...] = ()


# --- Reading --------------------------------------------------------------------------------------


def read(folder: Path, *, since_ns: int | None = None) -> Kept:
    """All incidents, but for files whose name says that they are of long before `since_ns`.

    A folder that is not there holds nothing. SourceError where it cannot be looked into.
    """
    for _ in range(_LOOKS):
        names, left_out = _names(folder, since_ns)
        records, troubles, is_whole = _records(folder, names)
        if is_whole:
            break  # else a writer put files together between the list and the reading
    return Kept(incidents=tuple(told_apart(records)), not_read=(*troubles, *left_out))


def _names(folder: Path, since_ns: int | None) -> tuple[list[str], list[NotRead]]:
    try:
        with os.scandir(folder) as entries:
            found = [
                one.name for one in entries if one.name.endswith(".json") and one.name[0] != "."
            ]
    except FileNotFoundError:
        return [], []
    except OSError as exc:
        raise SourceError(
            f"the history {visible(str(folder))} cannot be read: {(exc.strerror or '').lower()}"
        ) from exc
    if since_ns is not None:
        oldest = _hour_word(max(0, since_ns - DAY_NS))
        found = [name for name in found if not _is_before(name, oldest)]
    found.sort(reverse=True)
    more = len(found) - MOST_FILES
    left_out = (
        [NotRead(name=f"{more:,} older files", why=f"more than {MOST_FILES:,}")] if more > 0 else []
    )
    return found[:MOST_FILES], left_out


def _is_before(name: str, oldest: str) -> bool:
    own = _NAME.fullmatch(name)
    return own is not None and own["hour"] < oldest


def _records(folder: Path, names: Sequence[str]) -> tuple[list[Incident], list[NotRead], bool]:
    records: list[Incident] = []
    troubles: list[NotRead] = []
    is_whole = True
    for name in names:
        try:
            records.append(_record(_bytes(folder / name)))
        except FileNotFoundError:
            is_whole = False
        except (OSError, ValueError, RecursionError) as exc:
            troubles.append(NotRead(name=visible(name)[:200], why=_why(exc)))
    return records, troubles, is_whole


def _bytes(path: Path) -> bytes:
    """The content of a regular file; a pipe would hang and a link leads elsewhere."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as file:
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("no regular file")
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"larger than {MOST_BYTES >> 10} KiB")
    return data


def _record(data: bytes) -> Incident:
    one = msgspec.json.decode(data, type=Incident)
    if one.schema != SCHEMA:
        raise ValueError(f"schema {visible(one.schema)[:60]}, not {SCHEMA}")
    return one


def _why(exc: Exception) -> str:
    if isinstance(exc, OSError):
        return (exc.strerror or "cannot be read").lower()
    return "nested too deep" if isinstance(exc, RecursionError) else visible(str(exc))[:120]


# --- Writing --------------------------------------------------------------------------------------


def keep(folder: Path, incident: Incident, *, is_own: bool) -> Incident:
    """Put an incident into the folder, joined with what is there of it. OSError where that cannot be.

    The user's own folder is made with all above it and is theirs alone; of a shared one only the last step is
    made, so that a share that is not mounted is not written beneath.
    """
    folder.mkdir(parents=is_own, exist_ok=True, mode=0o700 if is_own else 0o777)
    there = dict(_of_incident(folder, incident.id))
    whole = reduce(joined, there.values(), incident)
    own = name_of(whole)
    if own not in there:
        _write(folder, own, encoded(whole))
    for name in there:
        if name != own:
            with suppress(OSError):
                (folder / name).unlink()
    return whole


def _of_incident(folder: Path, id_: str) -> Iterator[tuple[str, Incident]]:
    """The files of one incident that hold what their name says."""
    with os.scandir(folder) as entries:
        names = [one.name for one in entries]
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None or match["id"] != id_:
            continue
        try:
            data = _bytes(folder / name)
            one = _record(data)
        except (OSError, ValueError, RecursionError):
            continue
        if encoded(one) == data and name_of(one) == name:
            yield name, one


def name_of(one: Incident) -> str:
    """`20260311T03-INCIDENT-CONTENT.json`."""
    hour = "undated" if one.at_ns is None else _hour_word(one.at_ns)
    return f"{hour}-{one.id}-{sha256(encoded(one)).hexdigest()[:8]}.json"


def _hour_word(ns: int) -> str:
    return format_ns(ns // HOUR_NS * HOUR_NS)[:13].replace("-", "")


def _write(folder: Path, name: str, data: bytes) -> None:
    """Whole or not at all. Who may look into the folder may read the file."""
    draft = folder / f".{name}.{os.getpid()}-{time.monotonic_ns()}.tmp"
    mode = stat.S_IMODE(folder.stat().st_mode) & 0o664 | 0o600
    opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(opened)
            os.fchmod(opened, mode)
        draft.replace(folder / name)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
