"""One dump file from bytes to facts, under a memory limit: what runs in this process or a worker."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec

from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import Gap, Origin, RankDump
from gpufleet_cli.parsers import safe_pickle
from gpufleet_cli.parsers.recorder_document import Document, document
from gpufleet_cli.parsers.recorder_names import is_json, rank_in_name
from gpufleet_cli.parsers.recorder_summary import summarise

LARGEST_FILE = 1 << 28
LEAST_MEMORY, MOST_MEMORY, MEMORY_PER_BYTE = 256 << 20, 1 << 30, 40

RecorderFact = RankDump | Gap
Job = tuple[str, int, Path | None, bytes | None]


class UnreadableDump(ParseError):
    """A dump that cannot be read; `rank` is the global rank that its name gives, where it does."""

    def __init__(self, message: str, *, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


def unreadable(path: str, why: str) -> UnreadableDump:
    """The error for one file, naming the rank whose dump this should be."""
    rank = rank_in_name(path)
    whose = "" if rank is None else f" of rank {rank}"
    return UnreadableDump(f"flight recorder dump{whose} cannot be read: {why}", rank=rank)


def read_dump(
    path: str, size_bytes: int, file: Path | None, content: bytes | None
) -> list[RecorderFact]:
    """The facts in one file, given where it lies or what it holds."""
    size = size_bytes if content is None else len(content)
    if size > LARGEST_FILE:
        raise unreadable(path, f"{size:,} bytes is more than a dump can have")
    memory = min(max(LEAST_MEMORY, size * MEMORY_PER_BYTE), MOST_MEMORY)
    try:
        with safe_pickle.limited_memory(memory), safe_pickle.no_collection():
            return _facts(path, _load(file, content))
    except MemoryError:
        raise unreadable(path, "it asks for more memory than a dump may use") from None
    except UnreadableDump:
        raise
    except ParseError as exc:
        raise unreadable(path, exc.message) from exc


def _load(file: Path | None, content: bytes | None) -> Document:
    if content is None:
        assert file is not None
        with safe_pickle.opened(file) as stream:
            if is_json(stream.peek(64)[:64]):
                return _load_json(stream.read())
            return document(safe_pickle.read(stream), is_json=False)
    if is_json(content[:64]):
        return _load_json(content)
    return document(safe_pickle.read(io.BytesIO(content)), is_json=False)


def _load_json(content: bytes) -> Document:
    try:
        return document(msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf")), is_json=True)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        raise ParseError(f"not complete JSON ({str(exc)[:80]})") from None


def _facts(path: str, found: Document) -> list[RecorderFact]:
    named = rank_in_name(path)
    rank, gaps = _whose(path, named, found)
    dump = summarise(found, rank=rank, path=path)
    if not dump.entries:
        gaps.append(
            Gap(
                what=f"entries in the flight recorder dump of rank {rank}",
                why="it holds none: only its counters tell where the rank stands"
                if any(group.from_status for group in dump.groups)
                else "it holds none",
                would_settle="which collective the rank had reached",
                rank=rank,
                origin=Origin(path=path),
            )
        )
    return [dump, *gaps]


def _whose(path: str, named: int | None, found: Document) -> tuple[int, list[RecorderFact]]:
    """The rank of a dump: the name's, unless the groups inside do not contain it and leave one."""
    memberships = [config.member_set for config in found.configs if config.members]
    if named is not None and all(named in members for members in memberships):
        return named, []
    common = sorted(frozenset.intersection(*memberships)) if memberships else []
    if len(common) == 1:
        if named is None:
            return common[0], []
        return common[0], [_renamed(path, named, common[0])]
    if named is None:
        raise UnreadableDump("its name gives no rank, nor do the groups in it", rank=None)
    raise unreadable(path, f"rank {named} is in none or not all of the groups it holds: foreign")


def _renamed(path: str, named: int, rank: int) -> Gap:
    return Gap(
        what=f"flight recorder dump of rank {named}",
        why=f"the file of that name belongs to rank {rank}, by the groups in it",
        rank=named,
        origin=Origin(path=path),
    )
