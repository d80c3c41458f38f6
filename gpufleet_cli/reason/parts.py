"""A summary as a file: what one shard of a target says, made anywhere, merged anywhere.

    gpufleet part\\n | schema, maker, fingerprint, size, checksum | zstd of MessagePack

A part is data. What it holds of each file stays bytes until somebody decides, so that merging parts is
putting rows together and costs the same whatever is in them. `merge` takes parts in any order and any
grouping to the same part. Bytes that are no part, of another gpufleet, torn, or made to hurt are
NoPart, in bounded time and memory, and cost themselves.

Stamps without a year take theirs from the newest time of the whole target, which no shard knows: a
part says its own newest (`hint_ns`), by which its own were read. Where the whole turns out to have a newer
one, `summary_of` reads those files again, and the part carries their bytes for that (`keep_content`).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache

import msgspec

from gpufleet_cli import __version__
from gpufleet_cli.errors import ParseError
from gpufleet_cli.evidence import Evidence, Target
from gpufleet_cli.facts import Gap, Origin, Writes
from gpufleet_cli.manifest import described, manifest_in
from gpufleet_cli.parsers import training_log
from gpufleet_cli.parsers.registry import PARSERS
from gpufleet_cli.parsers.safe_pickle import limited_memory
from gpufleet_cli.parsers.wrappers import paths
from gpufleet_cli.reason.fact_wire import (
    FactReader,
    NotFacts,
    Read,
    fingerprint,
    narrow,
    wide,
    write,
)
from gpufleet_cli.reason.summary import FileSummary, Summary, newest_year_hint, summarise

MAGIC = b"gpufleet part\n"
SCHEMA = 1
SUFFIX = ".part"
LARGEST = 1 << 30
"""Of the file, and of what is in it: some 100,000 ranks."""
MOST_FILES = 1 << 21
KEPT_FILE, KEPT_ALL = 64 << 20, 256 << 20
_RATIO, _RATIO_FROM = 200, 16 << 20
_LEAST_MEMORY, _MEMORY_PER_BYTE = 768 << 20, 8
_HEAD = struct.Struct(">H16s8sQI")
_LOG = PARSERS.index(training_log)


class NoPart(ParseError):
    """These bytes are no part that this gpufleet can use."""


class Frame(msgspec.Struct, array_like=True, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file: a FileSummary whose facts are bytes still.

    `together`: so many files of one log were read as one (0: no log). `year_given`: the year of its stamps
    is not its own but that of `near_ns`. `content`: its bytes, zstd, to be read again for another year.
    """

    path: str
    name: str
    size_bytes: int
    is_blank: bool
    damage: str | None
    facts: bytes
    together: int = 0
    year_given: bool = False
    near_ns: int | bytes | None = None
    content: bytes | None = None


class Part(msgspec.Struct, array_like=True, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What some files of a target say, sorted by path, and what was found beside them."""

    name: str
    gaps: bytes
    manifest: tuple[str, bytes] | None
    hint_ns: int | bytes | None
    frames: tuple[Frame, ...]


# --- Files to a part ------------------------------------------------------------------------------


def part_of(
    target: Target,
    evidences: Sequence[Evidence],
    *,
    near_ns: int | None = None,
    keep_content: bool = True,
    strict: bool = False,
) -> Part:
    """What these files of a target say. `near_ns`: the newest time of the whole, where it is known."""
    hint_ns = newest_year_hint(evidences)
    near_ns = hint_ns if near_ns is None else near_ns
    summary = summarise(evidences, near_ns=near_ns, strict=strict)
    open_years = {
        stream for stream, files in _streams(summary.files).items() if any(map(_needs_year, files))
    }
    counts = Counter(paths.hints(file.path).stream for file in summary.files if _is_log(file))
    keeper = _Keeper(KEPT_ALL if keep_content else 0)
    by_path = {evidence.path: evidence for evidence in evidences}
    frames = []
    for file in summary.files:
        stream = paths.hints(file.path).stream
        is_open = stream in open_years and _is_log(file)
        frames.append(
            Frame(
                path=file.path,
                name=file.name,
                size_bytes=file.size_bytes,
                is_blank=file.is_blank,
                damage=file.damage,
                facts=_written(file),
                together=counts[stream] if _is_log(file) else 0,
                year_given=is_open,
                near_ns=wide(near_ns) if is_open else None,
                content=keeper.kept(by_path[file.path]) if is_open else None,
            )
        )
    return Part(
        name=target.name,
        gaps=write([(0, target.gaps)]),
        manifest=None if target.manifest is None else _manifest_of(target),
        hint_ns=wide(hint_ns),
        frames=tuple(frames),
    )


def empty(name: str, gaps: Sequence[Gap]) -> Part:
    """Nothing but what could not be had."""
    told = write([(0, gaps)])
    return Part(name=name, gaps=told, manifest=None, hint_ns=None, frames=())


def _manifest_of(target: Target) -> tuple[str, bytes]:
    assert target.manifest is not None
    return target.manifest_path or "manifest.json", json.dumps(target.manifest).encode()


def _written(file: FileSummary) -> bytes:
    try:
        return write(file.parts)
    except ParseError as exc:
        gap = Gap(what=f"file {file.path}", why=exc.message, origin=Origin(path=file.path))
        return write([(-1, (gap,))])


def _is_log(file: FileSummary) -> bool:
    return any(order == _LOG for order, _ in file.parts)


def _streams(files: Iterable[FileSummary]) -> dict[str, list[FileSummary]]:
    found: dict[str, list[FileSummary]] = defaultdict(list)
    for file in files:
        found[paths.hints(file.path).stream].append(file)
    return found


def _needs_year(file: FileSummary) -> bool:
    """Whether what it says depends on the newest time of the whole target."""
    return any(
        (isinstance(fact, Writes) and fact.year_given)
        or (isinstance(fact, Gap) and fact.why == training_log.NO_YEAR)
        for order, found in file.parts
        if order == _LOG
        for fact in found
    )


class _Keeper:
    """Packs what may have to be read again, within a budget."""

    def __init__(self, most: int) -> None:
        self.left = most

    def kept(self, evidence: Evidence) -> bytes | None:
        import zstandard

        if evidence.size_bytes > min(KEPT_FILE, self.left):
            return None
        content = evidence.read()
        if evidence.damage() is not None or len(content) > min(KEPT_FILE, self.left):
            return None
        self.left -= len(content)
        return zstandard.ZstdCompressor(level=3).compress(content)


# --- Parts to one ---------------------------------------------------------------------------------


def merge(parts: Iterable[Part]) -> Part:
    """One part of many. Of two that tell different things of one file the larger counts, and that is said."""
    listed = list(parts)
    frames: dict[str, Frame] = {}
    doubtful: set[str] = set()
    for part in listed:
        for frame in part.frames:
            known = frames.setdefault(frame.path, frame)
            if known is not frame and known != frame:
                doubtful.add(frame.path)
                frames[frame.path] = max(known, frame, key=_rank_of)
    reader = FactReader()
    gaps = [gap for part in listed for gap in _gaps_of(part, reader)]
    gaps += [
        _gap(path, "two parts tell different things of it: the larger counts") for path in doubtful
    ]
    in_order: list[Gap] = sorted(set(gaps), key=_order)
    manifests = [part.manifest for part in listed if part.manifest is not None]
    hints = [narrow(part.hint_ns) for part in listed if part.hint_ns is not None]
    return Part(
        name=min((part.name for part in listed), default=""),
        gaps=write([(0, in_order)]),
        manifest=min(manifests, key=lambda one: (one[0].count("/"), *one), default=None),
        hint_ns=wide(max(hints, default=None)),
        frames=tuple(frames[path] for path in sorted(frames)),
    )


def _rank_of(frame: Frame) -> tuple[int, bytes]:
    return frame.size_bytes, _encoder.encode(frame)


def _order(gap: Gap) -> tuple[str, ...]:
    return gap.what, gap.why, gap.would_settle, repr(gap)


def _gap(path: str, why: str, would_settle: str = "") -> Gap:
    return Gap(what=f"file {path}", why=why, would_settle=would_settle, origin=Origin(path=path))


def _gaps_of(part: Part, reader: FactReader) -> list[Gap]:
    return [fact for _, found in reader.read(part.gaps) for fact in found if isinstance(fact, Gap)]


# --- A part to what is decided upon ---------------------------------------------------------------


def target_of(part: Part) -> Target:
    """The target as the listing of all its files would have described it, without the files."""
    manifest = None
    if part.manifest is not None:
        manifest = manifest_in(part.manifest[1])
    gaps = (*_gaps_of(part, FactReader()), *_split_logs(part))
    made = described(part.name, (), (), manifest)
    return replace(made, gaps=tuple(sorted(gaps, key=_order)))


def _split_logs(part: Part) -> Iterator[Gap]:
    """Logs whose rotated files were not read as one: what stands in two of them was seen by nobody."""
    found: dict[str, list[Frame]] = defaultdict(list)
    for frame in part.frames:
        if frame.together:
            found[paths.hints(frame.path).stream].append(frame)
    for stream, frames in found.items():
        if any(len(frames) > frame.together for frame in frames):
            why = f"its {len(frames)} files were read in different shards, so not as one log"
            yield _gap(stream, why, "summarise them in one shard")


def summary_of(part: Part, *, strict: bool = False) -> Summary:
    """All facts. A file whose bytes cannot be read costs itself; MemoryError where they take more than
    facts do."""
    with limited_memory(_memory_for(sum(len(frame.facts) for frame in part.frames))):
        return _summary_of(part, strict=strict)


def _summary_of(part: Part, *, strict: bool) -> Summary:
    hint_ns = narrow(part.hint_ns)
    stale = {
        paths.hints(frame.path).stream
        for frame in part.frames
        if frame.year_given and narrow(frame.near_ns) != hint_ns
    }
    reader = FactReader()
    files = [_file_of(frame, reader) for frame in part.frames]
    again: dict[str, list[tuple[int, Frame]]] = defaultdict(list)
    for at, frame in enumerate(part.frames):
        stream = paths.hints(frame.path).stream
        if frame.together and stream in stale:
            again[stream].append((at, frame))
    for log in again.values():
        for at, parts in _in_year_of(hint_ns, log, files, strict=strict):
            files[at] = replace(files[at], parts=parts)
    return Summary(tuple(files))


def _in_year_of(
    hint_ns: int | None,
    log: Sequence[tuple[int, Frame]],
    files: Sequence[FileSummary],
    *,
    strict: bool,
) -> Iterator[tuple[int, Read]]:
    """What the files of one log say by another newest time; where their bytes are not there, that is said."""
    contents = [frame.content for _, frame in log]
    if any(content is None for content in contents):
        why = (
            "its stamps have no year and were read by the newest time of its own shard, not of all"
        )
        for at, frame in log:
            yield at, (*files[at].parts, (-1, (_gap(frame.path, why),)))
        return
    evidences = []
    for (_, frame), content in zip(log, contents, strict=True):
        assert content is not None
        found = _unpacked(content, KEPT_FILE, f"file {frame.path}")
        size = frame.size_bytes
        evidences.append(Evidence(path=frame.path, size_bytes=size, content=found))
    read = {
        file.path: file.parts for file in summarise(evidences, near_ns=hint_ns, strict=strict).files
    }
    for at, frame in log:
        yield at, read[frame.path]


def _file_of(frame: Frame, reader: FactReader) -> FileSummary:
    try:
        parts = reader.read(frame.facts)
        if any(not -1 <= order < len(PARSERS) for order, _ in parts):
            raise NotFacts("facts of a format that is not known")
    except NotFacts as exc:
        parts = ((-1, (_gap(frame.path, f"what a part tells of it: {exc.message}"),)),)
    return FileSummary(
        path=frame.path,
        name=frame.name,
        size_bytes=frame.size_bytes,
        parts=parts,
        is_blank=frame.is_blank,
        damage=frame.damage,
    )


# --- Bytes ----------------------------------------------------------------------------------------

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Part)


@dataclass(frozen=True, slots=True)
class Maker:
    """Who made a part, or runs a worker: parts of different fingerprints do not mix."""

    version: str
    schema: int
    shapes: bytes

    def __str__(self) -> str:
        return f"gpufleet {self.version} (schema {self.schema}, {self.shapes.hex()[:8]})"


@cache
def maker() -> Maker:
    """This gpufleet."""
    names = {"parsers": [parser.__name__ for parser in PARSERS], "version": [__version__]}
    return Maker(__version__, SCHEMA, fingerprint(names))


def encode(part: Part) -> bytes:
    """A part as a file. ParseError when it is larger than one may be."""
    import zstandard

    raw = _encoder.encode(part)
    if len(raw) > LARGEST:
        raise ParseError(f"a part of over {LARGEST >> 20:,} MB: make the shard smaller")
    packed = zstandard.ZstdCompressor(level=3, write_checksum=False).compress(raw)
    own = maker()
    version = own.version.encode()[:16]
    head = _HEAD.pack(own.schema, version, own.shapes, len(raw), zlib.crc32(packed))
    return MAGIC + head + packed


def decode(data: bytes, *, is_ours: bool = False) -> Part:
    """A part again; NoPart with the reason for all else. `is_ours`: a child of this process made it, so that
    the limit of memory, which holds for all threads of a process, is left alone."""
    packed, size = _checked(data)
    try:
        with nullcontext() if is_ours else limited_memory(_memory_for(size)):
            part = _decoder.decode(_unpacked(packed, size, "it"))
            _check(part)
            return part
    except MemoryError:
        raise NoPart("it asks for more memory than a part may use") from None
    except (msgspec.MsgspecError, NotFacts, RecursionError, UnicodeDecodeError) as exc:
        raise NoPart(f"what is in it is no summary ({exc})"[:160]) from exc


def _memory_for(size: int) -> int:
    """What so many bytes of facts may take when they are facts."""
    return _LEAST_MEMORY + _MEMORY_PER_BYTE * size


def _checked(data: bytes) -> tuple[bytes, int]:
    """The packed bytes, and how many they are unpacked."""
    if not data.startswith(MAGIC):
        raise NoPart("it is no part that `gpufleet summarise` made")
    start = len(MAGIC) + _HEAD.size
    if len(data) < start:
        raise NoPart("it ends too early")
    schema, version, shapes, size, checksum = _HEAD.unpack(data[len(MAGIC) : start])
    own = maker()
    if (schema, shapes) != (own.schema, own.shapes):
        text = version.rstrip(b"\0").decode("ascii", "replace")
        other = Maker("".join(c for c in text if c.isprintable()), schema, shapes)
        raise NoPart(f"made by {other}, this is {own}: make it with this one")
    packed = data[start:]
    if zlib.crc32(packed) != checksum:
        raise NoPart("it is torn: its checksum does not fit")
    if size > min(LARGEST, _RATIO_FROM + _RATIO * len(packed)):
        raise NoPart("it would unpack to more than a part may hold")
    return packed, size


def _unpacked(packed: bytes, most: int, what: str) -> bytes:
    import zstandard

    try:
        size = zstandard.frame_content_size(packed)
        if not 0 <= size <= most:
            raise NoPart(f"{what} would unpack to more than it may hold")
        return zstandard.ZstdDecompressor(max_window_size=1 << 27).decompress(packed)
    except zstandard.ZstdError as exc:
        raise NoPart(f"{what} is no complete zstd data") from exc


def _check(part: Part) -> None:
    """What a listing of files would never give."""
    if len(part.frames) > MOST_FILES:
        raise NoPart(f"over {MOST_FILES:,} files")
    before = None
    for frame in part.frames:
        if before is not None and frame.path <= before:
            raise NoPart("its files are not in order")
        before = frame.path
        if not (frame.path.isprintable() and frame.name.isprintable() and frame.path):
            raise NoPart("a file in it has a name that no file has")
        if frame.size_bytes < 0 or frame.together < 0:
            raise NoPart("a file in it has a size that no file has")
    if not part.name.isprintable():
        raise NoPart("its name cannot be shown")
    _gaps_of(part, FactReader())
