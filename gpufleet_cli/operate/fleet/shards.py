"""Which files are read together: shards of a listing, by size, that never cut what belongs together.

Pure: the same listing gives the same shards on every machine, so that the tasks of an array agree on them
without a word. Rotated files of one log, and files that may be a bundle's manifest, stay in one shard.

>>> files = [File(name=f"rank_{n}.log", size_bytes=10) for n in range(6)]
>>> [len(shard) for shard in cut(files, most_bytes=25)]
[2, 2, 2]
>>> sorted(file.name for n in range(4) for file in share(files, n, 4)) == [f.name for f in files]
True
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapreplace

from gpufleet_cli.manifest import may_be_manifest
from gpufleet_cli.parsers.wrappers import paths
from gpufleet_cli.plain_text import visible
from gpufleet_cli.unpack import bare_name

MOST_FILES = 4096
"""Of a shard: its worker has them all on its disk."""
_MANIFESTS = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a listing, by its name below the place."""

    name: str
    size_bytes: int


def pieces(files: Iterable[File]) -> list[tuple[File, ...]]:
    """Files that must be read together, in the order of names."""
    found: dict[str, list[File]] = {}
    for file in sorted(files, key=lambda one: one.name):
        path = visible(bare_name(file.name))
        key = _MANIFESTS if may_be_manifest(path) else paths.hints(path).stream
        found.setdefault(key, []).append(file)
    return [tuple(piece) for piece in found.values()]


def cut(files: Sequence[File], *, most_bytes: int) -> list[tuple[File, ...]]:
    """Shards of neighbours by name, each up to a size unless a single piece is larger."""
    shards: list[tuple[File, ...]] = []
    own: list[File] = []
    size = 0
    for piece in pieces(files):
        more = sum(file.size_bytes for file in piece)
        if own and (size + more > most_bytes or len(own) + len(piece) > MOST_FILES):
            shards.append(tuple(own))
            own, size = [], 0
        own.extend(piece)
        size += more
    return [*shards, tuple(own)] if own else shards


def share(files: Sequence[File], index: int, count: int) -> tuple[File, ...]:
    """The files of one task of many: the largest piece first, each to the task that has least."""
    tasks = [(0, task) for task in range(count)]
    own: list[File] = []
    weighed = [(sum(file.size_bytes for file in piece), piece) for piece in pieces(files)]
    for size, piece in sorted(weighed, key=lambda one: (-one[0], one[1][0].name)):
        taken, task = tasks[0]
        heapreplace(tasks, (taken + size + 1, task))  # many empty files are no less work than none
        if task == index:
            own.extend(piece)
    return tuple(sorted(own, key=lambda file: file.name))
