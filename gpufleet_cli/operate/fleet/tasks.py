"""What runs where the data is: functions from bytes to bytes, sent to workers by their names alone.

A shard is read by a child process (`child`). One that ends its reader is halved until the file is found
that did it, so that a hostile file costs itself and not the ranks beside it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

from gpufleet_cli.errors import SourceError
from gpufleet_cli.facts import Gap, Origin
from gpufleet_cli.operate.fleet.child import UNREACHABLE
from gpufleet_cli.operate.fleet.places import Order
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
    return _summarised(Order.decode(order))


def _summarised(order: Order) -> bytes:
    done = _child(order)
    if isinstance(done, bytes):
        return done
    split = pieces(order.files)
    if len(split) > 1:
        half = len(split) // 2
        halves = [
            replace(order, files=tuple(file for piece in some for file in piece))
            for some in (split[:half], split[half:])
        ]
        return merge_parts([_summarised(one) for one in halves])
    gaps = [_gap(file.name, done) for file in order.files]
    return parts.encode(parts.empty(order.location.rstrip("/").rpartition("/")[2], gaps))


def _gap(name: str, why: str) -> Gap:
    shown = visible(name)
    return Gap(what=f"file {shown}", why=why, origin=Origin(path=shown))


def _child(order: Order) -> bytes | str:
    """The part that a child made, or why it ended without one."""
    here, there = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "gpufleet_cli.operate.fleet.child", str(here)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(here,),
            start_new_session=True,
        )
        os.close(here)
        here = -1
        return _answer(child, order)
    finally:
        os.close(there)
        if here >= 0:
            os.close(here)


def _answer(child: subprocess.Popen[bytes], order: Order) -> bytes | str:
    size = sum(file.size_bytes for file in order.files)
    try:
        out, err = child.communicate(order.encode(), timeout=PATIENCE_S + size / SLOWEST)
    except subprocess.TimeoutExpired:
        _end(child)
        return "it never ends"
    except BaseException:
        _end(child)
        raise
    said = visible(err.decode("utf-8", "replace").strip().rpartition("\n")[2])[:200]
    if child.returncode == 0:
        return out
    if child.returncode == UNREACHABLE:
        raise ShardLost(said)
    killed = f" (signal {-child.returncode})" if child.returncode < 0 else f": {said}"
    return f"reading it ended the reader{killed}"


def _end(child: subprocess.Popen[bytes]) -> None:
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


def receipt_of(part: bytes) -> Receipt:
    """What the client has to know of a part that stays where it is."""
    found = parts.decode(part)
    taken = {narrow(frame.near_ns) for frame in found.frames if frame.year_given}
    near = tuple(sorted(taken, key=lambda ns: (ns is not None, ns)))
    return narrow(found.hint_ns), near, len(found.frames), len(part)


def merge_parts(some: Sequence[bytes]) -> bytes:
    """One part of several."""
    if len(some) == 1:
        return some[0]
    return parts.encode(parts.merge(map(parts.decode, some)))


def made_by() -> str:
    """Which gpufleet a worker has."""
    return str(parts.maker())
