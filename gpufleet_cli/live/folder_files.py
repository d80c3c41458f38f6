"""Files of a folder that somebody mounted or copied: taken into the bundle under their names."""

from __future__ import annotations

from pathlib import Path

from gpufleet_cli.errors import TargetError
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
    """All regular files below; links are not followed."""
    del job, attempt
    root = Path(folder)
    if not root.is_dir():
        raise TargetError(f"{folder}: no such folder of {what}")
    count = 0
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
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
