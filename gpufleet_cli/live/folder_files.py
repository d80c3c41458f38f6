"""Files of a folder, or of one prefix in it, that somebody mounted or copied: taken into the bundle under their names."""

from __future__ import annotations

from pathlib import Path

from gpufleet_cli.live.api import Api
from gpufleet_cli.live.bundle_writer import BundleWriter
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.pods import Attempt
from gpufleet_cli.parsers import flight_recorder

MOST_FILES = 200_000
MOST_BYTES = 1 << 30


def gather(
    api: Api, job: Job, attempt: Attempt, sink: BundleWriter, *, folder: str, into: str, what: str
) -> None:
    """All regular files below, or those that begin as a prefix says; links are not followed."""
    del job, attempt
    try:
        root, paths = files_of(folder)
    except OSError as exc:
        sink.gap(f"{what} in {folder}", (exc.strerror or "cannot be read").lower(), what)
        return
    if root is None:
        sink.gap(f"{what} in {folder}", "no such folder, and no file begins so", what)
        return
    count = 0
    for path in paths:
        if api.deadline.is_over() or count >= MOST_FILES:
            sink.gap(f"the rest of {folder}", "not there by the deadline", what)
            return
        count += 1
        kept = f"{into}/{path.relative_to(root)}"
        if sink.has(kept):
            continue
        try:
            if path.stat().st_size > MOST_BYTES:
                sink.gap(str(path), "over 1 GiB: not taken", what)
                continue
            data = path.read_bytes()
        except OSError as exc:
            sink.gap(str(path), (exc.strerror or "cannot be read").lower(), what)
            continue
        if flight_recorder.matches(kept, data[:65_536]) or b"\0" in data[:4096]:
            sink.add_bytes(kept, data)
        else:
            sink.add_log(kept, data)
    if not count:
        sink.gap(f"{what} in {folder}", "no file in it", what)


def files_of(place: str) -> tuple[Path | None, list[Path]]:
    """The folder and its regular files, however deep; of a prefix (`/dumps/run7/rank_`) those beside it that
    begin so. None where neither is there."""
    root = Path(place).expanduser()
    if root.is_dir():
        return root, [one for one in sorted(root.rglob("*")) if _is_regular(one)]
    beside = sorted(root.parent.iterdir()) if root.parent.is_dir() else []
    found = [one for one in beside if one.name.startswith(root.name) and _is_regular(one)]
    return (root.parent, found) if found else (None, [])


def _is_regular(path: Path) -> bool:
    return not path.is_symlink() and path.is_file()
