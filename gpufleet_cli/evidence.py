"""One file of a target, read when asked for, and the target as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import Gap
from gpufleet_cli.unpack import FILE_LIMIT, Ends, Packed, unpack, unpack_head

HEAD_BYTES = 65_536
_PIECE = 1 << 20


class Evidence:
    """One file of the target. `path` is inside the target with `/`, without a `.gz` that was taken
    off, `name` the same as it stands there, for people who look it up; `head` its first bytes after decompression. `file` is the path on disk when the bytes lie
    there uncompressed (so that they can be mapped or handed to a worker), else None and `content`
    has them. `size_bytes` is the size on disk or in the archive.

    Bytes are read when asked for and not kept, so that a list of ten thousand costs nothing.
    """

    __slots__ = ("_content", "_damage", "_head", "file", "name", "packed", "path", "size_bytes")

    def __init__(
        self,
        *,
        path: str,
        size_bytes: int,
        name: str | None = None,
        head: bytes | None = None,
        file: Path | None = None,
        content: bytes | None = None,
        packed: Packed | None = None,
    ) -> None:
        self.path = path
        self.name = path if name is None else name
        self.size_bytes = size_bytes
        self.file = file
        self.packed = packed
        self._head = head
        self._content = content
        self._damage: str | None = None

    def __repr__(self) -> str:
        return f"Evidence(path={self.path!r}, size_bytes={self.size_bytes})"

    @property
    def head(self) -> bytes:
        """The first HEAD_BYTES, decompressed: one small read each time it is asked for."""
        if self._head is not None:
            return self._head
        if self._content is not None:
            return self._content[:HEAD_BYTES]
        if self.packed is not None:
            return unpack_head(self.packed, HEAD_BYTES)
        return self._read_file(HEAD_BYTES)

    @property
    def is_in_memory(self) -> bool:
        """Whether this object carries the bytes, so that handing it to a worker copies them."""
        return self._content is not None or (
            self.packed is not None and isinstance(self.packed.place, bytes)
        )

    @property
    def content(self) -> bytes | None:
        """All bytes, decompressed, when they do not lie on disk as they are; else None."""
        if self.packed is not None:
            return unpack(self.packed).content
        return self._content

    def read(self) -> bytes:
        """All bytes, decompressed."""
        content = self.content
        return self._read_file(-1) if content is None else content

    def damage(self) -> str | None:
        """Why not all of it was read, None when all was. Cheap right after `read`."""
        return unpack(self.packed).damage if self.packed is not None else self._damage

    def _read_file(self, size: int) -> bytes:
        assert self.file is not None
        try:
            with self.file.open("rb", buffering=0) as file:
                if size >= 0:
                    return file.read(size)
                if self.size_bytes <= FILE_LIMIT:
                    return file.readall()
                ends = Ends()
                while piece := file.read(_PIECE):
                    ends.add(piece)
                self._damage = ends.damage()
                return ends.content()
        except OSError as exc:
            raise ParseError(f"{self.path} cannot be read: {exc.strerror}") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What there is to read. `captured_ns`, `job` and `namespace` come from a bundle's manifest,
    which is also there as a whole, and from where."""

    kind: Literal["directory", "bundle", "job"]
    name: str
    evidences: tuple[Evidence, ...]
    gaps: tuple[Gap, ...]
    captured_ns: int | None = None
    job: str | None = None
    namespace: str | None = None
    manifest: Mapping[str, object] | None = None
    manifest_path: str | None = None
