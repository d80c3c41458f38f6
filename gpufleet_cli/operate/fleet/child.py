"""A process that reads one shard: `python -m gpufleet_cli.operate.fleet.child PIPE ROOM < order > part`.

Of its own, since what it reads may be hostile: it may be ended, its memory is bounded by the kernel, and
it may start the processes in which dumps are read, as a Dask worker's own process may not. When PIPE ends,
whoever asked is gone, and so is this process, with those that it started and its ROOM, an empty folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from pathlib import Path

from gpufleet_cli.errors import GpufleetError, ParseError
from gpufleet_cli.plain_text import visible

UNREACHABLE = 75
"""Exit status: nothing of the shard could be had, here and now. The reason is on standard error."""


def main() -> int:
    """Read the order, write the part."""
    from gpufleet_cli.operate.fleet.places import Order, read_shard
    from gpufleet_cli.reason.parts import encode

    room = Path(sys.argv[2])
    threading.Thread(target=_end_with, args=(int(sys.argv[1]), room), daemon=True).start()
    try:
        part = encode(read_shard(Order.decode(sys.stdin.buffer.read()), room=room))
    except ParseError as exc:  # too much for one part: half of it may do
        return _said(exc, int(exc.exit_code))
    except GpufleetError as exc:  # the place, or a package that is not here
        return _said(exc, UNREACHABLE)
    sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()
    return 0


def _said(exc: GpufleetError, code: int) -> int:
    sys.stderr.write(f"{visible(exc.message)}\n")
    return code


def _end_with(pipe: int, room: Path) -> None:
    os.read(pipe, 1)
    shutil.rmtree(room, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    raise SystemExit(main())
