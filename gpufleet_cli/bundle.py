"""The target on disk as a list of Evidence: folders, single files, archives, standard input.

Reading a target writes nothing. A link that leads out of it is named and not followed, a special
file is named and not opened, an archive is read in place one level deep, and `case.json` is never
read. What could not be had is a Gap. Names are made visible here (`plain_text`), so that no path
in any message or report can carry a control character.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from gpufleet_cli import archive
from gpufleet_cli.archive import (
    MEMBER_LIMIT,
    Member,
    inside,
    is_tar,
    is_zip,
    tar_members,
    zip_members,
)
from gpufleet_cli.errors import ParseError, TargetError
from gpufleet_cli.evidence import HEAD_BYTES as HEAD_BYTES
from gpufleet_cli.evidence import Evidence as Evidence
from gpufleet_cli.evidence import Target as Target
from gpufleet_cli.facts import Gap, Origin
from gpufleet_cli.manifest import attempts_of as attempts_of
from gpufleet_cli.manifest import described, taken_out
from gpufleet_cli.manifest import time_of as time_of
from gpufleet_cli.manifest import whole_of as whole_of
from gpufleet_cli.plain_text import visible
from gpufleet_cli.unpack import (
    READ_LIMIT,
    Budget,
    Ends,
    Packed,
    Slice,
    bare_name,
    codec_of,
    reader,
    stream,
    unpack_head,
)

STANDARD_INPUT = "-"
_SNIFF_BYTES = 1024
_OWN_REPORT = b"gpufleet.postmortem/v1"
_OWN_HEAD = 64
_REPORT_NAMES = (".html", ".htm", ".md", ".json")
_NEVER_READ = re.compile(r"case\.json(\.(gz|zst|zstd|bz2|xz))?", re.IGNORECASE)


def looks_like_path(text: str) -> bool:
    """Whether TARGET names a place on disk: it exists there, or it is spelled like a path."""
    if text == STANDARD_INPUT or text in (".", "..") or text.startswith(("/", "./", "../")):
        return True
    return os.path.lexists(text)


def read_target(place: Path | str, *, follow_links: bool = False) -> Target:
    """List the evidence of a folder, file or archive, or of standard input for `-`."""
    if str(place) == STANDARD_INPUT:
        return _read_standard_input()
    path = Path(place)
    shown = visible(str(place))
    try:
        mode = path.stat().st_mode
        name = visible(path.resolve().name) or shown
    except (OSError, ValueError, RuntimeError) as exc:
        raise TargetError(f"{shown}: {_reason(exc)}", hint="check the path") from exc
    if stat.S_ISDIR(mode):
        if not os.access(path, os.R_OK | os.X_OK):
            raise TargetError(f"{shown}: permission denied", hint="check who may read it")
        found = _Found()
        _read_folder(path, found, follow_links=follow_links)
        return found.target(name)
    if not stat.S_ISREG(mode):
        raise TargetError(
            f"{shown} is a {_special_name(mode)}: not opened",
            hint="to read a stream, pipe it into: gpufleet triage -",
        )
    if _NEVER_READ.fullmatch(path.name):
        raise TargetError(f"{shown}: a case.json is never read as evidence")
    if not os.access(path, os.R_OK):
        raise TargetError(f"{shown}: permission denied", hint="check who may read it")
    return _read_single(path, name)


def _reason(exc: Exception) -> str:
    if isinstance(exc, FileNotFoundError | NotADirectoryError):
        return "no such file or folder"
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror.lower()
    return "not a path that can be read"


def _special_name(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "named pipe"
    if stat.S_ISSOCK(mode):
        return "socket"
    return "device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else "special file"


def is_own_report(path: Path) -> bool:
    """Whether a file is a write-up of ours, by its name and its first bytes."""
    if not path.name.lower().endswith(_REPORT_NAMES):
        return False
    try:
        with path.open("rb") as file:
            return _OWN_REPORT in file.read(_OWN_HEAD)
    except OSError:
        return False


def _is_own_report(evidence: Evidence) -> bool:
    if not evidence.path.lower().endswith(_REPORT_NAMES):
        return False
    try:
        return _OWN_REPORT in evidence.head[:_OWN_HEAD]
    except ParseError:
        return False


class _Found:
    """What the walk has met so far: the only thing here that fills up."""

    def __init__(self) -> None:
        self.evidences: dict[str, Evidence] = {}
        self.gaps: list[Gap] = []
        self.seen: set[tuple[int, int]] = set()

    def gap(self, path: str, why: str, would_settle: str = "") -> None:
        shown = visible(path)
        origin = Origin(path=shown)
        self.gaps.append(Gap(what=shown, why=why, would_settle=would_settle, origin=origin))

    def add(self, evidence: Evidence) -> None:
        """A second file of the same name (`a.log` beside `a.log.gz`) keeps its own. A write-up of ours that
        lies beside the evidence is none: it quotes lines of it."""
        path = evidence.path
        if _is_own_report(evidence):
            return
        number = 2
        while path in self.evidences:
            path = f"{evidence.path}~{number}"
            number += 1
        evidence.path = path
        self.evidences[path] = evidence

    def is_full(self, path: str) -> bool:
        if len(self.evidences) < MEMBER_LIMIT:
            return False
        self.gap(path, f"over {MEMBER_LIMIT:,} files: this one and those behind it are not read")
        return True

    def target(self, name: str, *, may_be_empty: bool = False) -> Target:
        path, manifest = taken_out(self.evidences)
        if not (may_be_empty or self.evidences or self.gaps or manifest is not None):
            self.gap(name, "no file in it", "logs of all ranks, and Flight Recorder dumps")
        evidences = tuple(self.evidences[path] for path in sorted(self.evidences))
        return replace(described(name, evidences, self.gaps, manifest), manifest_path=path)


def listed(files: Iterable[tuple[Path, str]], name: str) -> Target:
    """Files that lie anywhere as the target in which they have these names: what a folder with them
    would be. Each is deleted or changed by nobody meanwhile."""
    found = _Found()
    for place, path in sorted(files, key=lambda one: one[1]):
        head = (
            None if _NEVER_READ.fullmatch(path.rsplit("/", 1)[-1]) else _sniff(place, path, found)
        )
        if head is not None:
            _add_file(place, path, head, place.stat().st_size, found)
    return found.target(name, may_be_empty=True)


# --- Folders --------------------------------------------------------------------------------------


def _read_folder(root: Path, found: _Found, *, follow_links: bool) -> None:
    real_root = Path(os.path.realpath(root))
    for entry, path in _entries(root, found, real_root, follow_links=follow_links):
        if found.is_full(path):
            return
        place = Path(entry.path)
        head = _sniff(place, path, found)
        if head is not None:
            _add_file(place, path, head, entry.stat().st_size, found)


def _entries(
    root: Path, found: _Found, real_root: Path, *, follow_links: bool
) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Regular files below a folder, in sorted order; the rest becomes gaps on the way."""
    waiting: list[tuple[str, str]] = [(str(root), "")]
    while waiting:
        folder, prefix = waiting.pop()
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as exc:
            found.gap(prefix or str(root), f"cannot be listed: {_reason(exc)}")
            continue
        below: list[tuple[str, str]] = []
        for entry in entries:
            path = prefix + entry.name
            try:
                if entry.is_symlink() and not _may_follow(
                    entry, path, found, real_root, follow_links=follow_links
                ):
                    continue
                if entry.is_dir():
                    below.append((entry.path, path + "/"))
                elif _NEVER_READ.fullmatch(entry.name):
                    continue
                elif entry.is_file():
                    yield entry, path
                else:
                    found.gap(path, f"a {_special_name(entry.stat().st_mode)}: not opened")
            except OSError as exc:
                found.gap(path, f"cannot be read: {_reason(exc)}")
        waiting.extend(reversed(below))


def _may_follow(
    entry: os.DirEntry[str], path: str, found: _Found, real_root: Path, *, follow_links: bool
) -> bool:
    """A link to something inside is read where it lies; one that leads out is named."""
    goal = Path(os.path.realpath(entry.path))
    try:
        status = goal.stat()
    except OSError:
        found.gap(path, "a link to something that does not exist")
        return False
    if goal.is_relative_to(real_root):
        return False
    if not follow_links:
        found.gap(path, "a link that leads out of the target: not followed", "--follow-links")
        return False
    identity = (status.st_dev, status.st_ino)
    if identity in found.seen or real_root.is_relative_to(goal):
        return False  # read already under another name, or a loop around the target itself
    found.seen.add(identity)
    return True


def _sniff(place: Path, path: str, found: _Found) -> bytes | None:
    """The first bytes of a regular file; never blocks, should it have become a pipe meanwhile."""
    try:
        handle = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                found.gap(path, "not a regular file any more: not read")
                return None
            if status.st_size == 0:  # empty, or the kernel's own (/proc/kmsg blocks and forgets)
                return b""
            return os.read(handle, _SNIFF_BYTES)
        finally:
            os.close(handle)
    except OSError as exc:
        found.gap(path, f"cannot be read: {_reason(exc)}")
        return None


def _add_file(place: Path, path: str, head: bytes, size: int, found: _Found) -> None:
    """A file of a folder: an archive is opened one level deep, others are evidence."""
    kind = _archive_kind(place, head)
    if kind == "tar" or (kind == "zip" and _is_named_zip(path)):
        _add_archive(place, head, path + "/", found)
        return
    codec = codec_of(head)
    if not head:
        found.add(Evidence(path=visible(path), size_bytes=0, content=b""))
        return
    if codec is None:
        found.add(Evidence(path=visible(path), size_bytes=size, file=place))
        return
    packed = Packed(Slice(place, 0, size), (codec,), size)
    found.add(
        Evidence(path=visible(bare_name(path)), name=visible(path), size_bytes=size, packed=packed)
    )


# --- Archives -------------------------------------------------------------------------------------


def _read_single(path: Path, name: str) -> Target:
    """A target that is one file: an archive by its content, whatever its name, or one log."""
    found = _Found()
    head = _sniff(path, path.name, found)
    if head is None:
        raise TargetError(f"{visible(str(path))}: {found.gaps[0].why}")
    if _archive_kind(path, head) is not None:
        _add_archive(path, head, "", found)
    else:
        _add_file(path, path.name, head, path.stat().st_size, found)
    return found.target(name)


def _archive_kind(source: Path | bytes, head: bytes) -> Literal["zip", "tar"] | None:
    if is_zip(head):
        return "zip"
    if is_tar(head):
        return "tar"
    if codec_of(head) is None:
        return None
    return "tar" if is_tar(unpack_head(_whole(source, head), 512)) else None


def _is_named_zip(path: str) -> bool:
    """Checkpoints, wheels and numpy files are zips as well, and are none of our archives."""
    return path.lower().endswith(".zip")


def _whole(source: Path | bytes, head: bytes) -> Packed:
    codec = codec_of(head)
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    place = source if isinstance(source, bytes) else Slice(source, 0, size)
    return Packed(place, () if codec is None else (codec,), size)


def _members(source: Path | bytes, head: bytes) -> Iterable[Member]:
    if is_zip(head):
        return zip_members(source)
    if is_tar(head) and isinstance(source, Path):
        return tar_members(source)
    return tar_members(reader(stream(_whole(source, head))))


def _add_archive(source: Path | bytes, head: bytes, prefix: str, found: _Found) -> None:
    """Members become evidence; of two members of one name the later counts, as when extracted."""
    taken: dict[str, Evidence] = {}
    budget = Budget(archive.TOTAL_LIMIT)
    try:
        for member in _members(source, head):
            inner = inside(member.name)
            path = prefix + (member.name if inner is None else inner)
            if len(taken) >= MEMBER_LIMIT:
                found.gap(path, f"over {MEMBER_LIMIT:,} members: the rest is not read")
                break
            if inner is None:
                found.gap(path, "its name leads out of the archive: not read")
            elif member.kind == "folder" or _NEVER_READ.fullmatch(inner.rsplit("/", 1)[-1]):
                continue
            else:
                _take_member(member, path, taken, found, budget)
    except ParseError as exc:
        found.gap(prefix.rstrip("/") or "the archive", exc.message)
    for evidence in taken.values():
        found.add(evidence)


_REFUSED = {
    "link": "a link inside an archive: not followed",
    "special": "a device or pipe inside an archive: not read",
    "sparse": "a sparse file inside an archive: not read",
    "encrypted": "encrypted: not read",
}


def _take_member(
    member: Member, path: str, taken: dict[str, Evidence], found: _Found, budget: Budget
) -> None:
    if member.packed is None:
        found.gap(path, member.refused or _REFUSED[member.kind])
        return
    packed = replace(member.packed, budget=budget, member=len(taken))
    head = unpack_head(packed, _SNIFF_BYTES)
    if is_tar(head) or (is_zip(head) and _is_named_zip(path)):
        found.gap(path, "an archive inside an archive: not understood, unpack it first")
        return
    codec = codec_of(head)
    if codec is not None:
        packed = replace(packed, codecs=(*packed.codecs, codec))
        if is_tar(unpack_head(packed, 512)):
            found.gap(path, "an archive inside an archive: not understood, unpack it first")
            return
    if path in taken:
        found.gap(path, "stands twice in the archive: the later one is read")
    shown = visible(path if codec is None else bare_name(path))
    taken[path] = Evidence(path=shown, name=visible(path), size_bytes=packed.size, packed=packed)


# --- Standard input ---------------------------------------------------------------------


def _read_standard_input() -> Target:
    ends = Ends()
    found = _Found()
    while ends.total < READ_LIMIT and (piece := sys.stdin.buffer.read(1 << 20)):
        ends.add(piece)
    content = ends.content()
    if not content:
        raise TargetError("nothing came on standard input", hint="is the command before it right?")
    if ends.total >= READ_LIMIT:
        found.gap("standard input", "over 4 GiB: the rest is not read")
    elif (damage := ends.damage()) is not None:
        found.gap("standard input", damage)
    head = content[:_SNIFF_BYTES]
    if _archive_kind(content, head) is not None:
        _add_archive(content, head, "", found)
    elif codec_of(head) is not None:
        packed = _whole(content, head)
        found.add(Evidence(path="standard-input", size_bytes=len(content), packed=packed))
    else:
        found.add(Evidence(path="standard-input", size_bytes=len(content), content=content))
    return found.target("standard-input")
