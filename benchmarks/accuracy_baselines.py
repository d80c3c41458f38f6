"""Short rules that people go by at night, on the same files: what a cleverer answer must beat.

- earliest last write: the rank whose log fell silent first;
- lowest sequence number: the rank with the fewest collectives enqueued, by the dumps;
- first error line: the rank that complained first;
- PyTorch's own analyser of Flight Recorder dumps: the first rank that it names.

Each names one rank, or nobody where the files give it nothing. The readers here are small and their
own, so that they share no mistake with the program.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

SILENT, LOWEST, LOUD, ANALYSER = (
    "earliest last write",
    "lowest sequence number",
    "first error line",
    "PyTorch's analyser",
)
MODULE = "torch.distributed.flight_recorder.fr_trace"
ANALYSER_PATIENCE_S = 300

Files = Mapping[str, bytes]


def named(files: Files, folder: Path, *, size: int, analyser: str | None) -> dict[str, int | None]:
    """The rank that each rule names, None where it names nobody."""
    lines = list(log_lines(files, size))
    found = {
        SILENT: earliest_last_write(lines),
        LOWEST: lowest_sequence(files),
        LOUD: first_error(lines),
    }
    if analyser is not None:
        found[ANALYSER] = first_of_analyser(files, folder, analyser)
    return found


# --- Logs ----------------------------------------------------------------------------------------

Line = tuple[int, float, str]  # rank, seconds, text

_RANK_IN_LINE = re.compile(r"\[rank(\d+)\]|^\s*(\d+): ")
_LOCAL_IN_LINE = re.compile(r"\[default(\d+)\]:")
_RANK_IN_PATH = re.compile(r"/rank_?(\d+)\.log$")
_LOCAL_IN_PATH = re.compile(r"/(\d+)/(?:stdout|stderr)\.log$")
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*[a-z0-9]")
_NUMBERED = re.compile(r"[a-z0-9-]*[a-z][a-z0-9-]*-(\d+)")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_GLOG = re.compile(r"[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?")
_ERROR = re.compile(
    r"error|exception|traceback|fatal|abort|timed? ?out|killed|segmentation|signal", re.IGNORECASE
)
_PREFIX = 120


def log_lines(files: Files, size: int) -> Iterator[Line]:
    """Every dated line of which a rank can be told."""
    homes = first_ranks(files, size)
    for path in sorted(files):
        if not path.startswith("logs/"):
            continue
        whole = _first(_RANK_IN_PATH, path)
        local = _first(_LOCAL_IN_PATH, path)
        at: float | None = None
        for where, stamp, text in records(path, files[path]):
            at = stamp if stamp is not None else at
            rank = whole if whole is not None else _first(_RANK_IN_LINE, text)
            if rank is None:
                inside = local if local is not None else _first(_LOCAL_IN_LINE, text)
                base = first_rank(f"{where} {text[:_PREFIX]}", homes, size)
                rank = None if inside is None or base is None else base + inside
            if rank is not None and at is not None and rank < size:
                yield rank, at, text


def records(path: str, content: bytes) -> Iterator[tuple[str, float | None, str]]:
    """(where, when, line) of a plain log, of Docker's JSON lines, or of what Loki or CloudWatch answer."""
    if path.endswith("-json.log"):
        for line in content.splitlines():
            row = json.loads(line)
            yield path, seconds(row["time"]), row["log"]
        return
    if not path.endswith(".json"):
        for text in content.decode("utf-8", "replace").splitlines():
            yield path, seconds(text), text
        return
    found = json.loads(content)
    for event in found.get("events", ()):
        yield event["logStreamName"], event["timestamp"] / 1e3, event["message"]
    for stream in found.get("data", {}).get("result", ()):
        for ns, text in stream["values"]:
            yield stream["stream"]["pod"], int(ns) / 1e9, text


def first_ranks(files: Files, size: int) -> dict[str, int]:
    """First rank of each pod and node, by what maps there are; else nodes in the order of their names."""
    first: dict[str, int] = {}
    for row in json.loads(files.get("topology.json", b"{}")).get("ranks", ()):
        for name in (row.get("pod"), row.get("node")):
            if name:
                first[name] = min(first.get(name, row["rank"]), row["rank"])
    for pod in json.loads(files.get("pods.json", b"{}")).get("items", ()):
        name = pod["metadata"]["name"]
        match = _NUMBERED.fullmatch(name)
        if match is not None:
            for known in (name, pod.get("spec", {}).get("nodeName")):
                first.setdefault(known, int(match[1]) * gpus_of(size))
    folders = sorted({p.split("/")[1] for p in files if p.startswith("logs/") and p.count("/") > 1})
    if len(folders) == -(-size // gpus_of(size)):
        for index, folder in enumerate(folders):
            first.setdefault(folder, index * gpus_of(size))
    return first


def gpus_of(size: int) -> int:
    return 8 if size > 16 else 4


def first_rank(where: str, homes: Mapping[str, int], size: int) -> int | None:
    """Of the pod or node that is named there; a pod that no map has, by its number."""
    names = [name.removesuffix(".log") for name in _NAME.findall(where)]
    for name in names:
        if name in homes:
            return homes[name]
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is not None and int(match[1]) * gpus_of(size) < size:
            return int(match[1]) * gpus_of(size)
    return None


def seconds(text: str) -> float | None:
    """The first moment in a line, whatever its zone; the year where it is told."""
    if match := _ISO.search(text):
        year, month, day, hour, minute, second = (int(g) for g in match.groups()[:6])
    elif match := _GLOG.search(text):
        year = 2026
        month, day, hour, minute, second = (int(g) for g in match.groups()[:5])
    else:
        return None
    try:
        whole = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return whole + float(f"0.{match.groups()[-1] or 0}")


def earliest_last_write(lines: list[Line]) -> int | None:
    last: dict[int, float] = {}
    for rank, at, _text in lines:
        last[rank] = max(last.get(rank, at), at)
    return min(last, key=lambda rank: (last[rank], rank)) if last else None


def first_error(lines: list[Line]) -> int | None:
    errors = [(at, rank) for rank, at, text in lines if _ERROR.search(text)]
    return min(errors)[1] if errors else None


def _first(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return None if match is None else next(int(g) for g in match.groups() if g is not None)


# --- Dumps ---------------------------------------------------------------------------------------

_DUMP = re.compile(r"(?:^|/)[^/]*?(?:trace|dump|rank)[^/]*?_?(\d+)(?:\.json|\.pkl)?$")


class _Plain(pickle.Unpickler):
    def find_class(self, _module: str, _name: str) -> NoReturn:
        raise pickle.UnpicklingError("a dump is plain data")


def dumps(files: Files) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each dump that loads whole, with the rank in its name."""
    for path in sorted(files):
        match = _DUMP.search(path)
        if match is None:
            continue
        content = files[path]
        try:
            is_text = content.lstrip()[:1] == b"{"
            found = json.loads(content) if is_text else _Plain(io.BytesIO(content)).load()
        except (ValueError, EOFError, KeyError, IndexError, TypeError, pickle.UnpicklingError):
            continue
        if isinstance(found, dict) and "pg_config" in found:
            yield int(match[1]), found


def lowest_sequence(files: Files) -> int | None:
    """The rank that enqueued the fewest collectives in the default group, else in any."""
    enqueued: dict[int, tuple[int | None, int]] = {}
    for rank, found in dumps(files):
        by_group = _enqueued(found)
        if by_group:
            enqueued[rank] = (by_group.get("0"), max(by_group.values()))
    if not enqueued:
        return None
    in_default = {rank: pair[0] for rank, pair in enqueued.items() if pair[0] is not None}
    chosen = in_default or {rank: pair[1] for rank, pair in enqueued.items()}
    return min(chosen, key=lambda rank: (chosen[rank], rank))


def _enqueued(found: Mapping[str, Any]) -> dict[str, int]:
    status = found.get("pg_status")
    if status:
        return {str(key): int(value["last_enqueued_collective"]) for key, value in status.items()}
    highest: dict[str, int] = {}
    for entry in found.get("entries", ()):
        group = str(entry.get("process_group", ("?",))[0])
        highest[group] = max(highest.get(group, -1), int(entry.get("collective_seq_id", -1)))
    return highest


# --- PyTorch's analyser --------------------------------------------------------------------------

_NAMES = re.compile(r"[Cc]ulprit rank (\d+)|[Mm]issing ranks(?: are)?:? \{([\d, ]+)\}")


def analyser_of(python: str) -> str | None:
    """The interpreter, if it has torch with the analyser."""
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec({MODULE!r}) is None)"
    try:
        done = subprocess.run([python, "-c", look], capture_output=True, check=False)
    except OSError:
        return None
    return python if done.returncode == 0 else None


def first_of_analyser(files: Files, folder: Path, python: str) -> int | None:
    """The first rank that it names; nobody where it crashes, gives up, or does not end."""
    there = [(path, match) for path in sorted(files) if (match := _DUMP.search(path))]
    if not there:
        return None
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        for path, match in there:
            shutil.copyfile(folder / path, Path(place) / f"trace_{match[1]}")
        try:
            done = subprocess.run(
                [python, "-m", MODULE, place, "-p", "trace_", "--allow-incomplete-ranks"],
                capture_output=True,
                text=True,
                check=False,
                timeout=ANALYSER_PATIENCE_S,
            )
        except subprocess.TimeoutExpired:
            return None
    return analyser_names(done.stdout + done.stderr)


def analyser_names(output: str) -> int | None:
    """The rank of its first finding, the lowest of several missing ones.

    >>> analyser_names("Not all ranks joining collective, sequence number: 5\\n missing ranks: {7, 3}")
    3
    """
    match = _NAMES.search(output)
    if match is None:
        return None
    return int(match[1]) if match[1] else min(int(rank) for rank in match[2].split(","))
