"""Compressed bytes read back in bounded pieces: gzip, zstd, bzip2, xz, and raw deflate (zip).

A stream that is cut or corrupt gives what stands before the damage, and says so. Limits keep a
small hostile file from taking the machine: a size per file and a ratio, both named in the message.
Formats: RFC 1952 (gzip), RFC 8878 (zstd), the xz file format 1.2.0, and libbz2's manual.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple

from gpufleet_cli.errors import ParseError

GIB = 1 << 30
FILE_LIMIT = 384 << 20  # held in memory, and for a moment twice
# Of a larger one its first bytes are kept, and its last: an incident ends a log.
HEAD_LIMIT = 64 << 20
READ_LIMIT = 4 * GIB
RATIO_LIMIT = 1_000
RATIO_FROM = 64 << 20  # a small file may be all one line: the ratio counts above this size

Codec = Literal["gzip", "zstd", "bzip2", "xz", "deflate"]
Read = Callable[[int], bytes]

_MAGIC: tuple[tuple[bytes, Codec], ...] = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
)
SUFFIXES = (".gz", ".zst", ".zstd", ".bz2", ".xz")
_XZ_MEMORY = 256 << 20
_PIECE = 1 << 20
_BZIP2_BLOCK = b"1AY&SY"
_BZIP2_END = b"\x17rE8P\x90"


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes that lie on disk as they are: a part of an archive, or a whole file."""

    file: Path
    offset: int
    size: int


class Unpacked(NamedTuple):
    """What came out, and why there is not more of it (None when all of it is there)."""

    content: bytes
    damage: str | None


class Budget:
    """What all members of one archive may unpack to together, whatever each of them says.

    Members may share their bytes, so a small archive can hold any number of them. Reading one
    twice counts once. A worker process starts with a budget of its own.
    """

    __slots__ = ("limit", "spent", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used: dict[int, int] = {}
        self.spent = 0

    def __reduce__(self) -> tuple[type[Budget], tuple[int]]:
        return Budget, (self.limit,)

    def allows(self, member: int, size: int) -> bool:
        """Book that a member has unpacked to `size` so far; False when that is too much."""
        more = size - self.used.get(member, 0)
        if more <= 0:
            return True
        if self.spent + more > self.limit:
            return False
        self.spent += more
        self.used[member] = size
        return True


@dataclass(frozen=True, slots=True)
class Packed:
    """Bytes and the codecs to take off, outermost first. `size` is the stored size."""

    place: Slice | bytes
    codecs: tuple[Codec, ...]
    size: int
    budget: Budget | None = field(default=None, compare=False, repr=False)
    member: int = field(default=0, compare=False)


def codec_of(head: bytes) -> Codec | None:
    """The compression that the first bytes tell, None for none."""
    for magic, codec in _MAGIC:
        if head.startswith(magic):
            if codec == "bzip2" and head[4:10] not in (_BZIP2_BLOCK, _BZIP2_END):
                return None
            return codec
    return None


def bare_name(path: str) -> str:
    """The name that the file has when unpacked: without `.gz` and its like."""
    for suffix in SUFFIXES:
        if path.lower().endswith(suffix) and len(path) > len(suffix):
            return path[: -len(suffix)]
    return path


@lru_cache(maxsize=1)
def unpack(packed: Packed) -> Unpacked:
    """All bytes; the newest result is kept, because several parsers may read one file."""
    ends = Ends()
    try:
        for piece in stream(packed):
            ends.add(piece)
            if ends.total > READ_LIMIT:
                return Unpacked(ends.content(), "over 4 GiB unpacked: the rest is not read")
            if ends.total > RATIO_FROM and ends.total > RATIO_LIMIT * packed.size:
                return Unpacked(b"", "unpacks to over 1,000 times its size: not read (a bomb?)")
            if packed.budget is not None and not packed.budget.allows(packed.member, ends.total):
                return Unpacked(b"", "the archive unpacks to over 16 GiB: not read (a bomb?)")
    except ParseError as exc:
        return Unpacked(ends.content(), exc.message)
    return Unpacked(ends.content(), ends.damage())


class Ends:
    """Bytes that come in pieces, as far as memory allows: all of them, or the first and the last."""

    def __init__(self) -> None:
        self.total = 0
        self._head: list[bytes] = []
        self._head_size = 0
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def add(self, piece: bytes) -> None:
        self.total += len(piece)
        if self._head_size < HEAD_LIMIT:
            self._head.append(piece)
            self._head_size += len(piece)
            return
        self._tail.append(piece)
        self._tail_size += len(piece)
        room = FILE_LIMIT - self._head_size
        while len(self._tail) > 1 and self._tail_size - len(self._tail[0]) > room:
            self._tail_size -= len(self._tail.popleft())

    def content(self) -> bytes:
        """What was kept; where the middle is gone, the two ends stand on lines of their own."""
        if self.damage() is None:
            return b"".join((*self._head, *self._tail))
        first = self._tail.popleft()
        self._tail.appendleft(first[first.find(b"\n") + 1 :])
        return b"".join((*self._head, b"\n", *self._tail))

    def damage(self) -> str | None:
        if self._head_size + self._tail_size == self.total:
            return None
        return "over 384 MiB: its first 64 MiB and its end are read, its middle is not"


def unpack_head(packed: Packed, size: int) -> bytes:
    """The first bytes, without unpacking the rest."""
    head = b""
    try:
        for piece in stream(packed):
            head += piece
            if len(head) >= size:
                break
    except ParseError:
        pass  # what stands before the damage is a head as well; reading all of it will say so
    return head[:size]


def stream(packed: Packed) -> Iterator[bytes]:
    """The unpacked bytes in pieces. Raises ParseError behind the last good one."""
    pieces = _raw(packed.place)
    for codec in packed.codecs:
        pieces = chunks(reader(pieces), codec)
    return pieces


def _raw(place: Slice | bytes) -> Iterator[bytes]:
    if isinstance(place, bytes):
        source = BytesIO(place)
        while piece := source.read(_PIECE):
            yield piece
        return
    left = place.size
    try:
        with place.file.open("rb") as file:
            file.seek(place.offset)
            while left > 0 and (piece := file.read(min(left, _PIECE))):
                left -= len(piece)
                yield piece
    except OSError as exc:
        raise ParseError(f"cannot be read: {exc.strerror}") from exc
    if left > 0:
        raise ParseError("cut short: the file is smaller than its entry says")


def reader(pieces: Iterator[bytes]) -> Read:
    """`read(n)` over pieces of any size: n bytes, fewer only at the end."""
    rest = b""

    def read(count: int) -> bytes:
        nonlocal rest
        got = [rest]
        have = len(rest)
        while have < count:
            piece = next(pieces, b"")
            if not piece:
                break
            got.append(piece)
            have += len(piece)
        whole = got[0] if len(got) == 1 else b"".join(got)
        rest = whole[count:]
        return whole[:count]

    return read


def chunks(read: Read, codec: Codec) -> Iterator[bytes]:
    """Decompressed pieces of at most a few MiB; several streams behind each other are one."""
    match codec:
        case "gzip":
            return _zlib_chunks(read, wbits=31)
        case "deflate":
            return _zlib_chunks(read, wbits=-15)
        case "zstd":
            return _zstd_chunks(read)
        case "bzip2":
            return _bounded_chunks(read, bz2.BZ2Decompressor, "bzip2")
        case "xz":
            return _bounded_chunks(read, _xz_decompressor, "xz")


def _xz_decompressor() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def _zlib_chunks(read: Read, *, wbits: int) -> Iterator[bytes]:
    engine = zlib.decompressobj(wbits)
    waiting = read(_PIECE)
    while waiting:
        try:
            piece = engine.decompress(waiting, _PIECE)
        except zlib.error as exc:
            raise ParseError("gzip data is corrupt: the rest is not read") from exc
        if piece:
            yield piece
        if engine.eof:
            waiting = engine.unused_data or read(_PIECE)
            if not waiting or wbits < 0 or not waiting.strip(b"\x00"):
                return  # tape and block devices pad with zeros
            engine = zlib.decompressobj(wbits)
        else:
            waiting = engine.unconsumed_tail or read(_PIECE)
    if not engine.eof:
        yield from _last(engine.flush)
    if not engine.eof:
        raise ParseError("compressed data is cut short")


def _last(flush: Callable[[], bytes]) -> Iterator[bytes]:
    try:
        piece = flush()
    except zlib.error:
        return
    if piece:
        yield piece


def _zstd_chunks(read: Read) -> Iterator[bytes]:
    """A frame's blocks hold at most 128 KiB each from 4 bytes on, hence the small steps."""
    import zstandard

    step = 2048
    waiting = read(step)
    while waiting:
        engine = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        while True:
            try:
                piece = engine.decompress(waiting)
            except zstandard.ZstdError as exc:
                raise ParseError("zstd data is corrupt: the rest is not read") from exc
            if piece:
                yield piece
            if engine.eof:
                break
            waiting = read(step)
            if not waiting:
                raise ParseError("compressed data is cut short")
        waiting = engine.unused_data or read(step)


def _bounded_chunks(
    read: Read, make: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor], name: str
) -> Iterator[bytes]:
    waiting = read(_PIECE)
    while waiting:
        engine = make()
        while not engine.eof:
            if engine.needs_input and not waiting:
                waiting = read(_PIECE)
                if not waiting:
                    raise ParseError("compressed data is cut short")
            try:
                piece = engine.decompress(waiting, _PIECE)
            except (OSError, EOFError, ValueError, lzma.LZMAError) as exc:
                raise ParseError(f"{name} data is corrupt: the rest is not read") from exc
            waiting = b""
            if piece:
                yield piece
        waiting = engine.unused_data or read(_PIECE)
        if not waiting.strip(b"\x00"):
            return
