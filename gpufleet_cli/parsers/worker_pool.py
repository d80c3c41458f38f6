"""Many files in a few processes, so that a hostile or huge one costs itself and not the run.

Each worker does one job after the other and answers in that order, so that when it dies, its oldest
unanswered job is the one to blame: that one becomes an error, and the rest goes to a new worker.
Processes come from a server that was started clean (`forkserver`; fork beside threads deadlocks),
on macOS by `spawn`.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import selectors
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any, Generic, TypeVar

from gpufleet_cli.errors import Fault, ParseError
from gpufleet_cli.facts import Gap
from gpufleet_cli.guard import guarded

MAX_WORKERS = 8
MANY_FILES = 64
READERS = ("gpufleet_cli.parsers.recorder_workers", "gpufleet_cli.parsers.log_workers")
"""The modules whose functions run in workers."""
SAFE_PATH = "PYTHONSAFEPATH"

Job = TypeVar("Job")
Result = TypeVar("Result")
_Context = ForkServerContext | SpawnContext


class Pool(Generic[Job, Result]):
    """The workers, and what each has been given and not answered.

    `job` makes the job of a turn when that is to be sent. A worker calls `reader` once and what that
    returns for every job; `decoder` is the same on this side, for the answers of one worker.
    `is_heavy` tells a job that carries more than a pipe holds; `lost` makes the error of a turn that
    got no answer. `patience_s` without any answer means that a job never ends.
    """

    def __init__(
        self,
        count: int,
        job: Callable[[int], Job],
        *,
        reader: Callable[[], Callable[[Job], Any]],
        decoder: Callable[[], Callable[[Any], Result]],
        is_heavy: Callable[[Job], bool],
        lost: Callable[[int, str], ParseError],
        ahead: int,
        patience_s: float,
    ) -> None:
        self.count = count
        self.job = job
        self.reader = reader
        self.decoder = decoder
        self.is_heavy = is_heavy
        self.lost = lost
        self.ahead = ahead
        self.patience_s = patience_s
        self.waiting = deque(range(count))
        self.ready: deque[tuple[int, Result | ParseError]] = deque()
        self.context = _context(reader)
        self.workers: list[_Worker[Job, Result]] = []
        self.selector = selectors.DefaultSelector()

    def results(self, workers: int) -> Generator[tuple[int, Result | ParseError], None, None]:
        """(turn, result) in the order in which they come; no process outlives the iteration."""
        try:
            for _ in range(min(MAX_WORKERS, os.cpu_count() or 1, workers, self.count)):
                self._start()
            for _ in range(self.count):
                while not self.ready:
                    self._advance()
                yield self.ready.popleft()
        finally:
            for worker in self.workers:
                worker.stop()
            self.workers.clear()
            self.selector.close()

    def _start(self) -> None:
        with _safe_path():
            worker = _Worker(self.context, self.reader, self.decoder())
        self.workers.append(worker)
        self.selector.register(worker.connection, selectors.EVENT_READ, worker)
        self._feed(worker)

    def _feed(self, worker: _Worker[Job, Result]) -> None:
        """Keep a worker busy. A heavy job is sent only to one that is listening: both sides could
        otherwise wait in a full pipe."""
        while self.waiting and len(worker.doing) < self.ahead:
            turn = self.waiting[0]
            try:
                job = self.job(turn)
            except ParseError as exc:
                self.ready.append((turn, exc))
                self.waiting.popleft()
                continue
            if worker.doing and self.is_heavy(job):
                return
            self.waiting.popleft()
            worker.doing.append(turn)
            if not worker.send(job):
                return

    def _advance(self) -> None:
        """Take what has come back; replace a worker that died or that does not answer."""
        answered = [key.data for key, _ in self.selector.select(self.patience_s)]
        for worker in answered or list(self.workers):
            result = worker.receive() if answered else None
            if result is None:
                self._replace(
                    worker, "reading it ended the reader" if answered else "it never ends"
                )
                continue
            turn = worker.doing.popleft()
            if isinstance(result, Gap):
                result = Fault(self.lost(turn, result.why).message)
            self.ready.append((turn, result))
            self._feed(worker)

    def _replace(self, worker: _Worker[Job, Result], why: str) -> None:
        self.selector.unregister(worker.connection)
        self.workers.remove(worker)
        worker.stop()
        if worker.doing:
            turn = worker.doing.popleft()
            self.ready.append((turn, self.lost(turn, why)))
        self.waiting.extendleft(reversed(worker.doing))
        if self.waiting:
            self._start()


class _Worker(Generic[Job, Result]):
    """One process, and the turns that it has been given and not answered."""

    def __init__(
        self,
        context: _Context,
        reader: Callable[[], Callable[[Job], Any]],
        decode: Callable[[Any], Result],
    ) -> None:
        self.doing: deque[int] = deque()
        self.decode = decode
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, reader), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, job: Job) -> bool:
        try:
            self.connection.send(job)
        except OSError:
            return False
        return True

    def receive(self) -> Result | ParseError | Gap | None:
        """The next answer, a Gap for a bug of ours; None when the process is gone."""
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            return None
        return answer if isinstance(answer, ParseError | Gap) else self.decode(answer)

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


@contextmanager
def _safe_path() -> Iterator[None]:
    """Processes that start here import nothing from the working folder: it may be the evidence.

    They inherit that SIGINT is blocked too: Ctrl-C reaches every process of a terminal, and it is for
    the parent to answer it and to end the rest.
    """
    before = os.environ.get(SAFE_PATH)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    os.environ[SAFE_PATH] = "1"
    try:
        resource_tracker.ensure_running()  # it unblocks SIGINT when it starts, so it starts first
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


def _context(reader: Callable[..., Any]) -> _Context:
    if sys.platform == "darwin":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([getattr(reader, "func", reader).__module__])
    return context


def warm(files: int) -> None:
    """Many files will be read by several processes: let their server load what workers need while this
    process does other things."""
    if files <= MANY_FILES or sys.platform == "darwin":
        return
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(READERS))
    with _safe_path():
        forkserver.ensure_running()


def serve(connection: Connection, reader: Callable[[], Callable[[Job], Any]]) -> None:
    """The worker: do jobs until the other side is gone."""
    gc.freeze()  # what was loaded stays: no collection need look at it
    read = reader()
    while True:
        try:
            job = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = guarded("a job", partial(read, job), strict=False)
        except ParseError as exc:
            answer = exc
        try:
            connection.send(answer)
        except OSError:
            return
