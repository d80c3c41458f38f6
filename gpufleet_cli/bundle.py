"""The target on disk as a list of Evidence: folders, single files, archives, standard input."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

HEAD_BYTES = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One file of the target. `path` is inside the target with `/`; `head` its first bytes after
    decompression. `file` is the path on disk when the bytes lie there uncompressed (so that they
    can be mapped or handed to a worker), else None and `content` has them."""

    path: str
    size_bytes: int
    head: bytes
    file: Path | None = None
    content: bytes | None = field(default=None, repr=False)

    def read(self) -> bytes:
        """All bytes, decompressed."""
        if self.content is not None:
            return self.content
        assert self.file is not None
        return self.file.read_bytes()
