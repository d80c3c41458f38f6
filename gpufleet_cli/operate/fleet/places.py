"""Where an incident lies: what files there are, and those of one shard as a target of its own.

An object store, any place that fsspec knows, or a folder that all who read it have under one path. Files
of a store are brought into a folder of this process alone and under numbers, so that no name of theirs is
ever one of ours; files of a folder are read where they lie, links are not followed.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from gpufleet_cli.bundle import listed
from gpufleet_cli.errors import SourceError, TargetError, UsageError
from gpufleet_cli.evidence import Target
from gpufleet_cli.facts import Gap, Origin
from gpufleet_cli.live import shared_files
from gpufleet_cli.live.shared_files import EXTRA, Shelf
from gpufleet_cli.operate.fleet.shards import File
from gpufleet_cli.plain_text import visible
from gpufleet_cli.reason import parts
from gpufleet_cli.reason.parts import Part
from gpufleet_cli.unpack import READ_LIMIT

MOST_FILES = 1 << 20
ROOM = "gpufleet-shard-"
THREADS = 16
_SETTLES = "what the ranks of these files last did"


class Unreachable(SourceError):
    """Nothing of a shard could be had: worth another try, elsewhere or later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What there is at a place."""

    name: str
    shown: str
    files: tuple[File, ...]
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One shard to read: what a worker is told, as JSON. `near_ns`: the newest time of the whole target,
    where it is known. `keep_content`: see `reason.parts`."""

    location: str
    files: tuple[File, ...]
    near_ns: int | None = None
    keep_content: bool = False

    def encode(self) -> bytes:
        files = [[file.name, file.size_bytes] for file in self.files]
        told = (self.location, files, self.near_ns, self.keep_content)
        return json.dumps(told).encode("utf-8", "surrogatepass")

    @staticmethod
    def decode(data: bytes) -> Order:
        location, files, near_ns, keep_content = json.loads(data)
        return Order(
            location=location,
            files=tuple(File(name=name, size_bytes=size) for name, size in files),
            near_ns=near_ns,
            keep_content=keep_content,
        )


def folder_url(folder: str) -> str:
    """A folder that the workers have too, as they are told of it."""
    return Path(folder).resolve().as_uri()


def local_folder(location: str) -> Path | None:
    """The folder that a `file://` URL means, None for any other."""
    parts = urlsplit(location)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def listing(location: str) -> Listing:
    """Everything below a place. TargetError where nothing can be listed."""
    place = shared_files.folder_of(location, "")
    name = visible(unquote(place.folder.rpartition("/")[2])) or "incident"
    gaps: list[Gap] = []
    folder = local_folder(location)
    try:
        if folder is not None:
            files = list(_files_of(folder, gaps))
        else:
            entries = _shelf(location).below(MOST_FILES)
            files = [File(name=one.name, size_bytes=one.size or 0) for one in entries]
    except SourceError as exc:
        raise TargetError(f"{place.shown}: {exc.message}", hint=exc.hint) from exc
    if not files:
        raise TargetError(f"{place.shown}: there is no file", hint="check the bucket and the path")
    ordered = tuple(sorted(files, key=lambda one: one.name))
    return Listing(name=name, shown=place.shown, files=ordered, gaps=tuple(gaps))


def _files_of(folder: Path, gaps: list[Gap]) -> Iterator[File]:
    if not folder.is_dir():
        raise SourceError("no such folder")
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in (*folders, *names):
            place = Path(base) / name
            path = place.relative_to(folder).as_posix()
            if place.is_symlink():
                shown = visible(path)
                why = "a link: not followed in a shared folder"
                gaps.append(Gap(what=shown, why=why, origin=Origin(path=shown)))
            elif name in names:
                yield File(name=path, size_bytes=place.lstat().st_size)


def _shelf(location: str) -> Shelf:
    package = shared_files.lacking(location)
    if package is not None:
        raise UsageError(
            f"{package} is not installed, which reads such places",
            hint=f"pip install 'gpufleet[{EXTRA}]'",
        )
    return shared_files.opened(shared_files.folder_of(location, ""))


def read_shard(order: Order, gaps: Sequence[Gap] = (), *, room: Path | None = None) -> Part:
    """What the files of one shard say, beside what is known to be missing. `room`: an empty folder for the
    files of a store, whose end somebody else sees to. Unreachable where none of them could be had."""
    own = TemporaryDirectory(prefix=ROOM, ignore_cleanup_errors=True) if room is None else room
    with own if isinstance(own, TemporaryDirectory) else nullcontext(str(own)) as folder:
        target = _target(order, Path(folder))
        target = replace(target, gaps=(*target.gaps, *gaps))
        return parts.part_of(
            target, target.evidences, near_ns=order.near_ns, keep_content=order.keep_content
        )


def _target(order: Order, own: Path) -> Target:
    name = shared_files.folder_of(order.location, "").folder.rpartition("/")[2]
    folder = local_folder(order.location)
    had: list[tuple[Path, str]] = []
    refused: dict[str, list[str]] = defaultdict(list)
    if folder is not None:
        had = [(folder / file.name, file.name) for file in order.files]
    else:
        for file, place, why in _fetched(_shelf(order.location), order.files, own):
            if why is None:
                had.append((place, file.name))
            else:
                refused[why].append(file.name)
    if order.files and not had:
        raise Unreachable(next(iter(refused)))
    target = listed(had, visible(unquote(name)) or "incident")
    gaps = [_gap(names, why) for why, names in sorted(refused.items())]
    return replace(target, gaps=(*target.gaps, *gaps))


def _fetched(
    shelf: Shelf, files: Sequence[File], own: Path
) -> Iterator[tuple[File, Path, str | None]]:
    """Each file, where it lies now, and why it does not."""

    def fetch(turn: tuple[int, File]) -> tuple[File, Path, str | None]:
        number, file = turn
        place = own / f"{number:06}"
        try:
            with place.open("wb") as into:
                had = shelf.save(file.name, into, READ_LIMIT)
        except SourceError as exc:
            return file, place, exc.message
        except OSError as exc:
            return file, place, f"no room for it on the worker: {(exc.strerror or '').lower()}"
        return file, place, None if had else "it is not there any more"

    with ThreadPoolExecutor(THREADS) as pool:
        yield from pool.map(fetch, enumerate(files))


def _gap(names: Sequence[str], why: str) -> Gap:
    first = visible(names[0])
    what = f"file {first}" if len(names) == 1 else f"{len(names):,} files ({first}, ...)"
    return Gap(what=what, why=why, would_settle=_SETTLES, origin=Origin(path=first))
