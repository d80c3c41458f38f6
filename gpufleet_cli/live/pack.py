"""A bundle as one file: `.tar.gz` or `.tar.zst`, members in order and with one time, so that the same
folder gives the same bytes."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from gpufleet_cli.errors import TargetError, UsageError

PACKED = (".tar.gz", ".tgz", ".tar.zst")
_NOT_WRITTEN = (".zip", ".tar", ".tar.xz", ".tar.bz2", ".tzst", ".7z", ".gz", ".zst", ".json")


def is_packed(place: str) -> bool:
    """Whether this name means one file."""
    return place.lower().endswith(PACKED)


def refuse_others(place: Path, option: str) -> None:
    """UsageError for a name that means one file of a kind that is not written: a folder of that name is a surprise."""
    low = place.name.lower()
    if low.endswith(_NOT_WRITTEN) and not is_packed(low) and not place.is_dir():
        raise UsageError(f"{option} {place}: one file is written as .tar.gz or .tar.zst")


def working_folder(place: Path) -> Path:
    """Where the files of a packed bundle are gathered, so that a run can be taken up again."""
    return place.with_name(f".{place.name}.part")


def pack(folder: Path, place: Path) -> None:
    """All files of the folder into one, whole or not at all."""
    fresh = place.with_name(f".{place.name}.new")
    try:
        with (
            _opened(fresh, place.name) as stream,
            tarfile.open(fileobj=stream, mode="w|") as archive,
        ):
            for path in sorted(one for one in folder.rglob("*") if one.is_file()):
                if path.name.endswith(".part"):
                    continue
                member = tarfile.TarInfo(str(path.relative_to(folder)))
                member.size = path.stat().st_size
                member.mode = 0o644
                with path.open("rb") as content:
                    archive.addfile(member, content)
        fresh.replace(place)
    except OSError as exc:
        fresh.unlink(missing_ok=True)
        raise TargetError(f"{place} cannot be written: {(exc.strerror or '').lower()}") from exc


@contextmanager
def _opened(fresh: Path, name: str) -> Iterator[IO[bytes]]:
    low = name.lower()
    with fresh.open("wb") as raw:
        if low.endswith((".tar.gz", ".tgz")):
            with gzip.GzipFile(
                filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0
            ) as stream:
                yield stream  # type: ignore[misc]
        elif low.endswith(".tar.zst"):
            import zstandard

            with zstandard.ZstdCompressor(level=6).stream_writer(raw, closefd=False) as stream:
                yield stream
        else:
            raise UsageError(f"{name}: a folder, .tar.gz or .tar.zst")
