"""What runs where the data is: functions from bytes to bytes, sent to workers by their names alone.

A shard is read by a child process (`child`). One that ends its reader is halved until the file is found
that did it, so that a hostile file costs itself and not the ranks beside it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from tempfile import TemporaryDirectory

from gpufleet_cli.errors import SourceError
from gpufleet_cli.facts import Gap, Origin
from gpufleet_cli.operate.fleet.child import UNREACHABLE
from gpufleet_cli.operate.fleet.places import ROOM, Order
from gpufleet_cli.operate.fleet.shards import pieces
from gpufleet_cli.plain_text import visible
from gpufleet_cli.reason import parts
from gpufleet_cli.reason.fact_wire import narrow

PATIENCE_S = 300.0
SLOWEST = 1 << 20
"""Bytes a second that a shard is read with, at the least."""

Receipt = tuple[int | None, tuple[int | None, ...], int, int]
"""Of a part, without moving it: its newest time, those by which stamps without a year were read, its files
and its bytes."""


class ShardLost(SourceError):
    """A shard that could not be had this time."""


def summarise_shard(order: bytes) -> bytes:
    """A shard's part. ShardLost where none of its files could be had: the engine tries again."""
    return summarised(Order.decode(order), Children())


def summarised(order: Order, read: Callable[[Order], bytes | str]) -> bytes:
    """The part of what can be read; `read` gives a part, or why it ended without one."""
    done = read(order)
    if isinstance(done, bytes):
        return done
    split = pieces(order.files)
    if len(split) > 1:
        half = len(split) // 2
        halves = [
            replace(order, files=tuple(file for piece in some for file in piece))
            for some in (split[:half], split[half:])
        ]
        return merge_parts([summarised(one, read) for one in halves])
    gaps = [_gap(file.name, done) for file in order.files]
    return parts.encode(parts.empty(order.location.rstrip("/").rpartition("/")[2], gaps))


def _gap(name: str, why: str) -> Gap:
    shown = visible(name)
    return Gap(what=f"file {shown}", why=why, origin=Origin(path=shown))


class Children:
    """Reads shards in child processes; `close` ends those that run, and lets none begin."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def __call__(self, order: Order) -> bytes | str:
        """The part that a child made, or why it ended without one."""
        if self._closed:
            raise ShardLost("interrupted")
        here, there = os.pipe()
        with (
            TemporaryDirectory(prefix=ROOM, ignore_cleanup_errors=True) as room,
            os.fdopen(there, "wb"),  # its end is what tells the child that nobody waits
        ):
            try:
                child = _started(here, room)
            finally:
                os.close(here)
            self._running.add(child)
            try:
                with child:
                    done = _answer(child, order)
            finally:
                self._running.discard(child)
        if self._closed:
            raise ShardLost("interrupted")
        return done

    def close(self) -> None:
        """End all of them."""
        self._closed = True
        for child in tuple(self._running):
            _kill(child)


def _started(pipe: int, room: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "gpufleet_cli.operate.fleet.child", str(pipe), room],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(pipe,),
        start_new_session=True,
    )


def _answer(child: subprocess.Popen[bytes], order: Order) -> bytes | str:
    size = sum(file.size_bytes for file in order.files)
    try:
        out, err = child.communicate(order.encode(), timeout=PATIENCE_S + size / SLOWEST)
    except subprocess.TimeoutExpired:
        _kill(child)
        child.communicate()
        return "it never ends"
    said = visible(err.decode("utf-8", "replace").strip().rpartition("\n")[2])[:200]
    if child.returncode == 0:
        return out
    if child.returncode == UNREACHABLE:
        raise ShardLost(said)
    killed = f" (signal {-child.returncode})" if child.returncode < 0 else f": {said}"
    return f"reading it ended the reader{killed}"


def _kill(child: subprocess.Popen[bytes]) -> None:
    """The child and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def receipt_of(part: bytes) -> Receipt:
    """What the client has to know of a part that stays where it is."""
    found = parts.decode(part, is_ours=True)
    taken = {narrow(frame.near_ns) for frame in found.frames if frame.year_given}
    near = tuple(sorted(taken, key=lambda ns: (ns is not None, ns)))
    return narrow(found.hint_ns), near, len(found.frames), len(part)


def merge_parts(some: Sequence[bytes]) -> bytes:
    """One part of several."""
    if len(some) == 1:
        return some[0]
    return parts.encode(parts.merge(parts.decode(one, is_ours=True) for one in some))


def made_by() -> str:
    """Which gpufleet a worker has."""
    return str(parts.maker())
