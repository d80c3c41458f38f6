"""What runs tasks: local processes, or a Dask cluster. The client sees receipts, then few large parts."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from gpufleet_cli.errors import GpufleetError
from gpufleet_cli.operate.fleet import tasks
from gpufleet_cli.operate.fleet.places import Order
from gpufleet_cli.operate.fleet.tasks import Receipt

TRIES = 3
FAN_IN = 8
LARGEST_MERGED = 64 << 20
"""Bytes: parts are merged until they are about so large; the client takes them one by one."""

Done = tuple[int, Receipt | str]
"""A shard by its number, with its receipt or with why there is none."""


class Engine(Protocol):
    """Runs shards and keeps their parts until they are asked for."""

    done: queue.SimpleQueue[Done]
    slots: int
    """Shards that it works on at a time."""

    def submit(self, number: int, order: bytes) -> None:
        """Begin a shard, also once more with another order. Its receipt comes into `done`."""

    def trouble(self) -> str | None:
        """Why nothing more can come, if so."""

    def merged(self, numbers: Sequence[int], sizes: Sequence[int]) -> Iterator[bytes]:
        """The parts of these shards, merged where they are."""

    def close(self) -> None:
        """Let go of everything that still runs."""


def groups_of(sizes: Sequence[int]) -> list[list[int]]:
    """Neighbours to merge: by number, up to FAN_IN and LARGEST_MERGED bytes.

    >>> groups_of([1] * 10)
    [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9]]
    >>> groups_of([LARGEST_MERGED, 1])
    [[0], [1]]
    """
    found: list[list[int]] = []
    size = 0
    for at, own in enumerate(sizes):
        if found and len(found[-1]) < FAN_IN and size + own <= LARGEST_MERGED:
            found[-1].append(at)
            size += own
        else:
            found.append([at])
            size = own
    return found


class Local:
    """Child processes of this machine; each reads dumps in processes of its own, so two keep it busy."""

    def __init__(self) -> None:
        self.done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self.slots = 2 if (os.cpu_count() or 1) > 1 else 1
        self._pool = ThreadPoolExecutor(self.slots, thread_name_prefix="shard")
        self._children = tasks.Children()
        self._parts: dict[int, bytes] = {}
        self._running: list[Future[None]] = []

    def submit(self, number: int, order: bytes) -> None:
        self._running.append(self._pool.submit(self._run, number, order))

    def _run(self, number: int, order: bytes) -> None:
        why = ""
        for _ in range(TRIES):
            try:
                part = tasks.summarised(Order.decode(order), self._children)
                receipt = tasks.receipt_of(part)
            except (GpufleetError, OSError) as exc:
                why = getattr(exc, "message", str(exc))
                continue
            self._parts[number] = part
            self.done.put((number, receipt))
            return
        self.done.put((number, why))

    def trouble(self) -> str | None:
        return None

    def merged(self, numbers: Sequence[int], sizes: Sequence[int]) -> Iterator[bytes]:
        del sizes
        for number in numbers:
            yield self._parts.pop(number)

    def close(self) -> None:
        for one in self._running:
            one.cancel()
        self._children.close()
        self._pool.shutdown(cancel_futures=True)
