"""Many log streams in a few processes, where there are enough bytes to pay for their start.

Each worker has a memory limit of its own and reads one stream after the other. Results come back in
the order of work, so when a worker dies, its oldest unanswered stream is the one to blame: that one
becomes an error, and the rest goes to a new worker. Processes come from a clean server
(`forkserver`; fork beside threads deadlocks), on macOS by `spawn`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext

from gpufleet_cli.errors import ParseError
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import Fact
from gpufleet_cli.parsers import training_log

Stream = Sequence[Evidence]
Answer = list[Fact] | ParseError

MANY_FILES = 64
MANY_BYTES = 48 << 20
FEW_BYTES = 4 << 20
AHEAD = 3
PATIENCE_S = 600.0
MAX_WORKERS = 8
MEMORY_BYTES = 6 << 30

_Context = ForkServerContext | SpawnContext


def read_streams(
    streams: Sequence[Stream], *, near_ns: int | None
) -> Iterator[tuple[Stream, Answer]]:
    """Every stream with its facts, or with why it could not be read."""
    size = sum(evidence.size_bytes for stream in streams for evidence in stream)
    files = sum(len(stream) for stream in streams)
    if len(streams) < 2 or not (size > MANY_BYTES or (files > MANY_FILES and size > FEW_BYTES)):
        for stream in streams:
            yield stream, read_one(stream, near_ns)
        return
    order = sorted(range(len(streams)), key=lambda n: -sum(e.size_bytes for e in streams[n]))
    pool = _Pool([streams[n] for n in order], near_ns)
    try:
        for turn, answer in pool.answers():
            yield streams[order[turn]], answer
    finally:
        pool.close()


def read_one(stream: Stream, near_ns: int | None) -> Answer:
    """The facts of one stream, in this process."""
    try:
        return training_log.parse_stream(stream, near_ns=near_ns)
    except ParseError as exc:
        return exc
    except MemoryError:
        return ParseError(f"{stream[-1].path} needs more memory than a log may take")


class _Pool:
    """The workers, and what each has been given and not answered."""

    def __init__(self, streams: Sequence[Stream], near_ns: int | None) -> None:
        self.streams = streams
        self.near_ns = near_ns
        self.waiting = deque(range(len(streams)))
        self.lost: deque[tuple[int, Answer]] = deque()
        self.context = _context()
        self.workers: dict[Connection, _Worker] = {}
        for _ in range(min(MAX_WORKERS, os.cpu_count() or 1, len(streams))):
            self._start()

    def answers(self) -> Iterator[tuple[int, Answer]]:
        """(number of the stream, answer), in the order in which they come."""
        for _ in range(len(self.streams)):
            while not self.lost:
                for turn, answer in self._received():
                    self.lost.append((turn, answer))
            yield self.lost.popleft()

    def close(self) -> None:
        for worker in list(self.workers.values()):
            worker.stop()
        self.workers.clear()

    def _start(self) -> None:
        worker = _Worker(self.context, self.near_ns)
        self.workers[worker.connection] = worker
        self._feed(worker)

    def _feed(self, worker: _Worker) -> None:
        while self.waiting and len(worker.reading) < AHEAD:
            turn = self.waiting.popleft()
            worker.reading.append(turn)
            if not worker.send(self.streams[turn]):
                return

    def _received(self) -> Iterator[tuple[int, Answer]]:
        ready = wait(list(self.workers), timeout=PATIENCE_S)
        for connection in ready or list(self.workers):
            worker = self.workers[connection]  # type: ignore[index]
            answer = worker.receive() if ready else None
            if answer is not None:
                turn = worker.reading.popleft()
                self._feed(worker)
                yield turn, answer
                continue
            worker.stop()
            del self.workers[worker.connection]
            blamed = worker.reading.popleft() if worker.reading else None
            self.waiting.extendleft(reversed(worker.reading))
            if self.waiting:
                self._start()
            if blamed is not None:
                why = "reading it ended the reader" if ready else "reading it does not end"
                yield blamed, ParseError(f"{self.streams[blamed][-1].path}: {why}")


class _Worker:
    """One process and the numbers of the streams it is at."""

    def __init__(self, context: _Context, near_ns: int | None) -> None:
        self.reading: deque[int] = deque()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, near_ns), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, stream: Stream) -> bool:
        try:
            self.connection.send(list(stream))
        except OSError:
            return False
        return True

    def receive(self) -> Answer | None:
        try:
            answer: Answer = self.connection.recv()
        except (EOFError, OSError):
            return None
        return answer

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


def _context() -> _Context:
    if sys.platform == "darwin":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def serve(connection: Connection, near_ns: int | None) -> None:
    """The worker: read streams until the other side is gone."""
    _limit_memory()
    while True:
        try:
            stream = connection.recv()
        except (EOFError, OSError):
            return
        answer: Answer
        try:
            answer = read_one(stream, near_ns)
        except Exception as exc:  # noqa: BLE001  a fault of ours costs this stream, not the worker
            answer = fault(stream, exc)
        try:
            connection.send(answer)
        except OSError:
            return


def fault(stream: Stream, exc: Exception) -> ParseError:
    """A bug of ours, told as the reason why one stream has no facts."""
    said = f"{type(exc).__name__}: {exc}"[:200]
    return ParseError(f"{stream[-1].path}: a fault in gpufleet ({said})")


def _limit_memory() -> None:
    if sys.platform == "linux":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
