"""Many calls at once: daemon threads, results as they come, nothing waits past the deadline.

Not a ThreadPoolExecutor: that one joins its threads at exit, so that one hanging kubelet would hold the
whole program.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from gpufleet_cli.live.deadline import Deadline

T = TypeVar("T")
R = TypeVar("R")

_POLL_S = 0.1
_GRACE_S = 0.5


def each(
    work: Callable[[T], R], tasks: Iterable[T], *, threads: int, deadline: Deadline
) -> Iterator[tuple[T, R]]:
    """Pairs of task and result, in the order of completion. What is not done by the deadline is not
    yielded; an exception of a call is raised here."""
    waiting: queue.SimpleQueue[T] = queue.SimpleQueue()
    count = 0
    for task in tasks:
        waiting.put(task)
        count += 1
    done: queue.SimpleQueue[tuple[T, R | None, BaseException | None]] = queue.SimpleQueue()
    closed = threading.Event()

    def run() -> None:
        while not closed.is_set() and not deadline.is_over():
            try:
                task = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((task, work(task), None))
            except BaseException as exc:  # noqa: BLE001  raised again by who waits for it
                done.put((task, None, exc))

    for _ in range(min(threads, count)):
        threading.Thread(target=run, daemon=True).start()
    try:
        yield from _results(done, count, deadline)
    finally:
        closed.set()


def _results(
    done: queue.SimpleQueue[tuple[T, R | None, BaseException | None]],
    count: int,
    deadline: Deadline,
) -> Iterator[tuple[T, R]]:
    grace = _GRACE_S
    while count:
        try:
            task, result, failed = done.get(timeout=_POLL_S)
        except queue.Empty:
            if deadline.is_over():
                grace -= _POLL_S
                if grace <= 0:
                    return
            continue
        count -= 1
        if failed is not None:
            raise failed
        yield task, result  # type: ignore[misc]
