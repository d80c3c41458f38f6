"""The members of a tar or zip archive, listed in place: nothing is ever written to disk.

Our own reader of tar headers (POSIX.1-2017 `pax`, ustar, GNU long names), because the standard
library's reads extended headers of any size into memory. Links and devices are listed, never
followed; a name that climbs out of the archive is refused.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

from gpufleet_cli.errors import ParseError
from gpufleet_cli.unpack import GIB, RATIO_FROM, RATIO_LIMIT, Codec, Packed, Read, Slice

MEMBER_LIMIT = 100_000
TOTAL_LIMIT = 16 * GIB
HELD_LIMIT = GIB  # what the members of a compressed tar may take in memory, recompressed

_BLOCK = 512
_HEADER_TEXT_LIMIT = 1 << 20
_KEEP_RAW = 64 << 10

MemberKind = Literal["file", "folder", "link", "special", "sparse", "encrypted"]
_TAR_KINDS: dict[bytes, MemberKind] = {
    b"0": "file", b"\0": "file", b"7": "file", b"5": "folder", b"1": "link", b"2": "link",
    b"3": "special", b"4": "special", b"6": "special", b"S": "sparse",
}  # fmt: skip
_ZIP_CODECS: dict[int, tuple[Codec, ...]] = {
    zipfile.ZIP_STORED: (),
    zipfile.ZIP_DEFLATED: ("deflate",),
    zipfile.ZIP_BZIP2: ("bzip2",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One entry. `packed` has the bytes of a file, else None and `refused` says why."""

    name: str
    kind: MemberKind
    packed: Packed | None
    refused: str = ""


def is_tar(head: bytes) -> bool:
    """Whether a block starts a tar archive: the `ustar` magic, and the sum of its bytes."""
    if len(head) < _BLOCK or head[257:262] != b"ustar":
        return False
    return _sum_is_right(head[:_BLOCK])


def is_zip(head: bytes) -> bool:
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def inside(name: str) -> str | None:
    """The member's path below the archive's root; None when it climbs out of it."""
    if name.startswith("/"):
        return None
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if ".." in parts else "/".join(parts)


# --- tar ------------------------------------------------------------------------------------------


def tar_members(source: Path | Read) -> Iterator[Member]:
    """Members in archive order, from a file that lies uncompressed on disk, or from a stream.

    Raises ParseError behind the last good member when the archive is cut, corrupt or too large.
    """
    if isinstance(source, Path):
        with source.open("rb") as file:
            yield from _walk(file.read, lambda size: _slice(source, file.tell(), size, file.seek))
    else:
        yield from _walk(source, _Holder(source).hold)


def _slice(path: Path, offset: int, size: int, seek: Callable[[int], int]) -> Packed:
    seek(offset + _padded(size))
    return Packed(Slice(path, offset, size), (), size)


class _Holder:
    """Keeps members of a compressed archive in memory, lightly recompressed, within the limit."""

    def __init__(self, read: Read) -> None:
        import zstandard

        self.read = read
        self.compressor = zstandard.ZstdCompressor(level=1)
        self.held = 0

    def hold(self, size: int) -> Packed:
        if size <= _KEEP_RAW:
            content = self.read(size)
            self._check(len(content), size)
            self.read(_padded(size) - size)
            return Packed(content, (), size)
        pressed: list[bytes] = []
        engine = self.compressor.compressobj(size=size)
        left = size
        while left > 0:
            piece = self.read(min(left, 1 << 20))
            if not piece:
                self._check(size - left, size)
            left -= len(piece)
            pressed.append(engine.compress(piece))
            self.held += len(pressed[-1])
            if self.held > HELD_LIMIT:
                raise ParseError("its members need over 1 GiB of memory: the rest is not read")
        pressed.append(engine.flush())
        self.read(_padded(size) - size)
        return Packed(b"".join(pressed), ("zstd",), size)

    @staticmethod
    def _check(have: int, size: int) -> None:
        if have < size:
            raise ParseError("the archive is cut short: its last member is not read")


def _walk(read: Read, hold: Callable[[int], Packed]) -> Iterator[Member]:
    """The header loop: `hold` takes a member's bytes, or steps over them, padding included."""
    long_name: str | None = None
    long_size: int | None = None
    sparse = False
    total = 0
    while True:
        header = read(_BLOCK)
        if not header.strip(b"\0"):
            if len(header) < _BLOCK:
                raise ParseError("the archive is cut short: it has no end mark")
            return
        if len(header) < _BLOCK or not _sum_is_right(header):
            raise ParseError("the archive is cut or corrupt: the rest is not read")
        flag = header[156:157]
        size = _number(header[124:136])
        if flag in b"LKxg":
            text = _header_text(read, size)
            if flag == b"L":
                long_name = _text(text.split(b"\0", 1)[0])
            elif flag == b"x":
                records = _pax(text)
                long_name = records.get("path", long_name)
                long_size = int(records["size"]) if records.get("size", "").isdigit() else None
                sparse = any(key.startswith("GNU.sparse") for key in records)
            continue
        name = _tar_name(header) if long_name is None else long_name
        size = size if long_size is None else long_size
        kind = _TAR_KINDS.get(flag, "special")
        if kind == "file" and name.endswith("/"):
            kind = "folder"
        if sparse and kind == "file":
            kind = "sparse"
        total += size
        if total > TOTAL_LIMIT:
            raise ParseError("over 16 GiB unpacked: the rest is not read")
        holds_bytes = kind in ("file", "sparse") or (kind == "special" and flag not in b"346")
        packed = hold(size) if holds_bytes else None
        yield Member(name=name, kind=kind, packed=packed if kind == "file" else None)
        long_name = long_size = None
        sparse = False


def _sum_is_right(header: bytes) -> bool:
    """The checksum counts its own field as blanks; some old tars summed signed bytes."""
    try:
        stated = _number(header[148:156])
    except ParseError:
        return False
    plain = sum(header[:148]) + 256 + sum(header[156:_BLOCK])
    if stated == plain:
        return True
    signed = plain - 256 * sum(byte > 127 for byte in header[:148] + header[156:_BLOCK])
    return stated == signed


def _number(field: bytes) -> int:
    """Octal text, or base 256 when the first bit is set (sizes above 8 GiB)."""
    if field[:1] and field[0] & 0x80:
        value = int.from_bytes(field[1:], "big")
        if field[0] == 0xFF or value >= 1 << 62:
            raise ParseError("the archive is corrupt: a size makes no sense")
        return value
    digits = field.split(b"\0", 1)[0].strip()
    try:
        value = int(digits or b"0", 8)
    except ValueError as exc:
        raise ParseError("the archive is corrupt: a size makes no sense") from exc
    if value < 0:
        raise ParseError("the archive is corrupt: a size makes no sense")
    return value


def _header_text(read: Read, size: int) -> bytes:
    if size > _HEADER_TEXT_LIMIT:
        raise ParseError("a header of the archive is over 1 MiB: the rest is not read")
    return read(_padded(size))[:size]


def _pax(text: bytes) -> dict[str, str]:
    """Records `LENGTH key=value\\n`; a broken one ends the reading."""
    records: dict[str, str] = {}
    at = 0
    while at < len(text):
        digits, blank, _ = text[at : at + 20].partition(b" ")
        if not blank or not digits.isdigit() or int(digits) < 5:
            break
        key, _, value = text[at + len(digits) + 1 : at + int(digits) - 1].partition(b"=")
        records[_text(key)] = _text(value)
        at += int(digits)
    return records


def _tar_name(header: bytes) -> str:
    name = header[:100].split(b"\0", 1)[0]
    prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
    return _text(prefix + b"/" + name if prefix else name)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


# --- zip ------------------------------------------------------------------------------------------


def zip_members(source: Path | bytes) -> Iterator[Member]:
    """Members in the order of the central directory, each as a slice of the archive."""
    try:
        with zipfile.ZipFile(source if isinstance(source, Path) else BytesIO(source)) as archive:
            entries = archive.infolist()
            file = archive.fp
            assert file is not None
            total = 0
            for entry in entries:
                total += entry.file_size
                if total > TOTAL_LIMIT:
                    raise ParseError("over 16 GiB unpacked: the rest is not read")
                yield _zip_member(entry, source, lambda at: (file.seek(at), file.read(30))[1])
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as exc:
        raise ParseError("the archive is cut or corrupt: the rest is not read") from exc


def _zip_member(
    entry: zipfile.ZipInfo, source: Path | bytes, read_at: Callable[[int], bytes]
) -> Member:
    name = entry.filename
    if entry.is_dir():
        return Member(name=name, kind="folder", packed=None)
    if entry.external_attr >> 28 == 0o12:  # S_IFLNK of a Unix zip
        return Member(name=name, kind="link", packed=None)
    if entry.flag_bits & 0x1:
        return Member(name=name, kind="encrypted", packed=None)
    codecs = _ZIP_CODECS.get(entry.compress_type)
    if codecs is None:
        why = f"compressed with method {entry.compress_type}, which is not supported"
        return Member(name=name, kind="file", packed=None, refused=why)
    if entry.file_size > RATIO_FROM and entry.file_size > RATIO_LIMIT * entry.compress_size:
        why = "unpacks to over 1,000 times its size: not read (a bomb?)"
        return Member(name=name, kind="file", packed=None, refused=why)
    local = read_at(entry.header_offset)
    if local[:4] != b"PK\x03\x04" or len(local) < 30:
        return Member(name=name, kind="file", packed=None, refused="its header is corrupt")
    names = int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
    at = entry.header_offset + 30 + names
    place: Slice | bytes = (
        Slice(source, at, entry.compress_size)
        if isinstance(source, Path)
        else source[at : at + entry.compress_size]
    )
    return Member(name=name, kind="file", packed=Packed(place, codecs, entry.compress_size))
