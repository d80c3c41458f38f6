"""Many calls at once: daemon threads, results as they come, nothing waits past the deadline.

Not a ThreadPoolExecutor: that one joins its threads at exit, so that one hanging kubelet would hold the
whole program.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from gpufleet_cli.live.deadline import Deadline

T = TypeVar("T")
R = TypeVar("R")

_POLL_S = 0.1
_GRACE_S = 0.5


_Done = queue.SimpleQueue[tuple[T, R | None, BaseException | None]]


def each(
    work: Callable[[T], R], tasks: Iterable[T], *, threads: int, deadline: Deadline
) -> Iterator[tuple[T, R]]:
    """Pairs of task and result, in the order of completion. What is not done by the deadline is not
    yielded; an exception of a call is raised here."""
    own = list(tasks)
    closed = threading.Event()
    done = _begun(work, own, threads, deadline, closed)
    try:
        yield from _results(done, len(own), deadline)
    finally:
        closed.set()


class Beside(Generic[R]):
    """One call on a thread of its own, begun now, beside what the caller does next."""

    def __init__(self, work: Callable[[], R], *, deadline: Deadline) -> None:
        self._deadline = deadline
        self._over = threading.Event()
        self._done = _begun(lambda _: self._run(work), [None], 1, deadline, threading.Event())

    def _run(self, work: Callable[[], R]) -> R:
        try:
            return work()
        finally:
            self._over.set()

    def result(self) -> R | None:
        """What it gave, None where the deadline comes first; an exception of it is raised here."""
        return next((one for _, one in _results(self._done, 1, self._deadline)), None)

    def settle(self) -> None:
        """Let it end what it is at, once the deadline was moved to now; whatever it gave."""
        self._over.wait(_GRACE_S)


def _begun(
    work: Callable[[T], R],
    tasks: Iterable[T],
    threads: int,
    deadline: Deadline,
    closed: threading.Event,
) -> _Done[T, R]:
    """Threads that take one task after the other, and where their results come."""
    waiting: queue.SimpleQueue[T] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    done: _Done[T, R] = queue.SimpleQueue()

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

    for _ in range(min(threads, waiting.qsize())):
        threading.Thread(target=run, daemon=True).start()
    return done


def _results(done: _Done[T, R], count: int, deadline: Deadline) -> Iterator[tuple[T, R]]:
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
