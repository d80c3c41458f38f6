"""What an ELF file needs of the machine that it runs on: symbol versions and libraries, without objdump.

python packaging/onefile/elf.py FOLDER    list the newest GLIBC version of every ELF file; exit 1 above 2.28

The layout is that of the gABI and of the LSB's symbol versioning:
https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/symversion.html
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BASELINE = (2, 28)
DYNAMIC, VERNEED = 6, 0x6FFFFFFE
DT_NEEDED = 1
SYSTEM = frozenset(
    {
        "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1",
        "ld-linux-x86-64.so.2", "libgcc_s.so.1", "libstdc++.so.6",
    }
)  # fmt: skip
"""What PEP 600 lets a manylinux wheel take from the machine, as far as our files do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Of one file: `glibc` is the newest version that it asks for, (0, 0) where it asks for none."""

    path: Path
    glibc: tuple[int, ...]
    libraries: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    kind: int
    offset: int
    size: int
    link: int


def read(path: Path) -> Needs | None:
    """None of a file that is no 64-bit little-endian ELF."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    sections = list(_sections(data))
    libraries: list[str] = []
    versions: list[tuple[int, ...]] = [(0, 0)]
    for one in sections:
        if one.kind not in (DYNAMIC, VERNEED):
            continue
        names = sections[one.link]
        if one.kind == DYNAMIC:
            libraries += [_name(data, names, at) for at in _needed(data, one)]
        else:
            found = (_name(data, names, at) for at in _versions(data, one))
            versions += [_number(name) for name in found if name.startswith("GLIBC_")]
    return Needs(path=path, glibc=max(versions), libraries=tuple(libraries))


def _sections(data: bytes) -> Iterator[_Section]:
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    for at in range(start, start + size * count, size):
        _, kind, _, _, offset, length, link = struct.unpack_from("<IIQQQQI", data, at)
        yield _Section(kind=kind, offset=offset, size=length, link=link)


def _needed(data: bytes, dynamic: _Section) -> Iterator[int]:
    """Where the names of the libraries stand."""
    for at in range(dynamic.offset, dynamic.offset + dynamic.size, 16):
        tag, value = struct.unpack_from("<qQ", data, at)
        if tag == DT_NEEDED:
            yield value


def _versions(data: bytes, section: _Section) -> Iterator[int]:
    """Where the names of the versions stand: a list of files, each with a list of versions."""
    at = section.offset
    while True:
        _, count, _, first, step = struct.unpack_from("<HHIII", data, at)
        inner = at + first
        for _ in range(count):
            _, _, _, name, onward = struct.unpack_from("<IHHII", data, inner)
            yield name
            inner += onward
        if not step:
            return
        at += step


def _name(data: bytes, names: _Section, at: int) -> str:
    start = names.offset + at
    return data[start : data.index(b"\0", start)].decode()


def _number(name: str) -> tuple[int, ...]:
    """`GLIBC_2.2.5`; what is private to glibc can be met by no other version."""
    parts = name.removeprefix("GLIBC_").split(".")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else (999,)


def under(folder: Path) -> list[Needs]:
    """Every ELF file below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    return [needs for path in files if (needs := read(path)) is not None]


def wrong(found: list[Needs], baseline: tuple[int, ...] = BASELINE) -> list[str]:
    """What a machine of the baseline would lack, a line each."""
    own = {needs.path.name for needs in found}
    lines = []
    for needs in found:
        if needs.glibc > baseline:
            lines.append(f"{needs.path}: needs glibc {'.'.join(map(str, needs.glibc))}")
        alien = [name for name in needs.libraries if name not in SYSTEM and name not in own]
        lines += [f"{needs.path}: needs {name}, which not every machine has" for name in alien]
    return lines


def main() -> int:
    found = under(Path(sys.argv[1]))
    for needs in sorted(found, key=lambda one: one.glibc):
        version = ".".join(map(str, needs.glibc))
        sys.stdout.write(f"{version}\t{needs.path}\t{' '.join(needs.libraries)}\n")
    lines = wrong(found)
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    return 1 if lines or not found else 0


if __name__ == "__main__":
    raise SystemExit(main())
