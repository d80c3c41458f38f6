"""Changes to the evidence of a case that must not, or may only weakly, change its verdict.

Everything here takes evidence as `{path: bytes}` and gives a new dict; nothing is changed in place.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from case_tools import Files

# --- Recorder dumps -------------------------------------------------------------------------------


class _PlainUnpickler(pickle.Unpickler):
    """Dumps hold no classes; one that names a class is not loaded."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name}")


def dump_rank(path: str) -> int | None:
    """The rank in the name of a dump, None for any other file."""
    found = re.fullmatch(r"(?:.*/)?dumps(?:_json)?/\D*_(\d+)(?:\.json)?", path)
    return int(found[1]) if found else None


def changed_dumps(files: Files, change: Callable[[int, dict[str, Any]], None]) -> Files:
    """Each readable dump with `change(rank, content)` made to it; damaged ones stay as they are."""
    return {path: _changed(path, data, change) for path, data in files.items()}


def _changed(path: str, data: bytes, change: Callable[[int, dict[str, Any]], None]) -> bytes:
    rank = dump_rank(path)
    if rank is None:
        return data
    try:
        if path.endswith(".json"):
            content = json.loads(data)
        else:
            content = _PlainUnpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, ValueError):
        return data
    change(rank, content)
    if path.endswith(".json"):
        return json.dumps(content).encode()
    return pickle.dumps(content, protocol=2)


def without_dumps(files: Files, ranks: Iterable[int]) -> Files:
    gone = set(ranks)
    return {path: data for path, data in files.items() if dump_rank(path) not in gone}


def dumps_only(files: Files) -> Files:
    return {
        path: data
        for path, data in files.items()
        if dump_rank(path) is not None or path == "topology.json"
    }


def with_groups_renamed(files: Files, rename: Callable[[str], str]) -> Files:
    """Every group under another name, in dumps and in log lines alike; Gloo's empty one stays."""

    def other(name: str) -> str:
        return rename(name) if name else name

    def change(rank: int, dump: dict[str, Any]) -> None:
        config = dump.get("pg_config") or {}
        for group in config.values():
            group["name"] = other(group["name"])
        dump["pg_config"] = {other(name): group for name, group in config.items()}
        for entry in dump.get("entries", ()):
            name, desc = entry["process_group"]
            entry["process_group"] = type(entry["process_group"])((other(name), desc))

    def in_line(found: re.Match[str]) -> str:
        return f"PG GUID {rename(found[1])}{found[2]}"

    return with_text(
        changed_dumps(files, change),
        lambda text: re.sub(r"PG GUID ([^\s(]+)(\(| Rank)", in_line, text),
    )


# --- Text -----------------------------------------------------------------------------------------


def with_text(files: Files, change: Callable[[str], str], *, only: str = "") -> Files:
    """Log and kernel files (those whose path holds `only`) with their text changed."""
    return {
        path: _text_changed(path, data, change)
        if only in path and dump_rank(path) is None and path.startswith(("logs/", "kernel/"))
        else data
        for path, data in files.items()
    }


def _text_changed(path: str, data: bytes, change: Callable[[str], str]) -> bytes:
    packed = path.endswith(".gz")
    text = (gzip.decompress(data) if packed else data).decode(errors="surrogateescape")
    changed = change(text).encode(errors="surrogateescape")
    return gzip.compress(changed, mtime=0) if packed else changed


_FULL_DATE = re.compile(r"(\d{4}-\d\d-\d\d)([T_ ])(\d\d:\d\d:\d\d)")
_GLOG_DATE = re.compile(r"(?<=\b[IWEF])(\d{1,2})(\d\d) (\d\d:\d\d:\d\d)(?=\.\d)")


def shifted_text(text: str, by: timedelta) -> str:
    """All dates of a text moved; those of C++ lines have no year, and the month as it was padded."""

    def full(found: re.Match[str]) -> str:
        moved = datetime.fromisoformat(f"{found[1]}T{found[3]}+00:00") + by
        return f"{moved:%Y-%m-%d}{found[2]}{moved:%H:%M:%S}"

    def glog(found: re.Match[str]) -> str:
        clock = datetime.fromisoformat(f"2001-01-01T{found[3]}+00:00").time()
        day = datetime(2025, int(found[1]), int(found[2]), tzinfo=UTC)
        moved = datetime.combine(day, clock, tzinfo=UTC) + by
        month = f"{moved:%m}" if found[1].startswith("0") else str(moved.month)
        return f"{month}{moved:%d %H:%M:%S}"

    return _GLOG_DATE.sub(glog, _FULL_DATE.sub(full, text))


def with_clock_shifted(
    files: Files, by: timedelta, *, paths: Callable[[str], bool], ranks: Iterable[int] = ()
) -> Files:
    """The clock of one node moved: its log files (`paths`) and the dumps of its ranks."""
    moved_ranks = set(ranks)
    by_ns = int(by.total_seconds()) * 10**9

    def change(rank: int, dump: dict[str, Any]) -> None:
        for entry in dump.get("entries", ()):
            for key in entry:
                if rank in moved_ranks and key.startswith("time_") and entry[key]:
                    entry[key] += by_ns

    logs = {path: data for path, data in files.items() if paths(path)}
    moved = with_text(logs, lambda text: shifted_text(text, by))
    return changed_dumps(files | moved, change)


def with_lines(files: Files, path: str, lines: Iterable[str]) -> Files:
    """Lines added at the end of a file, which is made when it is not there."""
    added = "".join(f"{line}\n" for line in lines)
    if path not in files:
        return files | {path: added.encode()}
    return files | {path: _text_changed(path, files[path], lambda text: text + added)}


def cut_after(text: str, last: str) -> str:
    """The lines of a timestamped log up to a time, as if it had been read then.

    A line without a time goes with the line before it; before the first time nothing is kept.
    """
    kept: list[str] = []
    keep = False
    for line in text.splitlines(keepends=True):
        if line[:1].isdigit():
            keep = line[: len(last)] <= last
        if keep:
            kept.append(line)
    return "".join(kept)
