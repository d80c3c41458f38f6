"""Many dumps in a few processes, so that a hostile or huge one costs itself and not the run.

Each worker has a memory limit of its own and reads one file after the other; its results come back
in that order, so that when it dies, the oldest file without a result is the one to blame: that one
becomes an error and the rest goes to a new worker. Processes are forked from a server that was
started clean (`forkserver`; fork beside threads deadlocks), spawned on macOS.

What comes back is plain tuples: a thousand ranks of one group share one list of members, which
travels once for each worker.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import fields
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from operator import attrgetter
from typing import Any

from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import DumpGroup, LastOp, OpenOp, Origin, RankDump
from gpufleet_cli.parsers.recorder_names import rank_in_name
from gpufleet_cli.parsers.recorder_reader import (
    Job,
    RecorderFact,
    UnreadableDump,
    read_dump,
    unreadable,
)

Result = list[RecorderFact] | ParseError

_Context = ForkServerContext | SpawnContext

AHEAD = 4
PATIENCE_S = 20.0
MAX_WORKERS = 8


def read_all(
    count: int, job: Callable[[int], Job], *, is_many: bool, patience_s: float = PATIENCE_S
) -> Iterator[Result]:
    """The result of every job, in order; `job` is asked for each when its turn to be sent comes.

    `patience_s` without any answer means that a file never ends.
    """
    workers = min(MAX_WORKERS, os.cpu_count() or 1, count) if is_many else 1
    pool = _Pool(count, job, patience_s)
    try:
        pool.start(workers)
        yield from pool.results()
    finally:
        pool.close()


def _context() -> _Context:
    if sys.platform == "darwin":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


class _Pool:
    """The workers, what each is reading, and results that are ahead of their turn."""

    def __init__(self, count: int, job: Callable[[int], Job], patience_s: float) -> None:
        self.count = count
        self.patience_s = patience_s
        self.job = job
        self.waiting = deque(range(count))
        self.ready: dict[int, Result] = {}
        self.context = _context()
        self.workers: dict[Connection, _Worker] = {}

    def start(self, count: int) -> None:
        for _ in range(count):
            self._start()

    def results(self) -> Iterator[Result]:
        for turn in range(self.count):
            while turn not in self.ready:
                self._advance()
            yield self.ready.pop(turn)

    def close(self) -> None:
        for worker in list(self.workers.values()):
            worker.stop()
        self.workers.clear()

    def _start(self) -> None:
        worker = _Worker(self.context)
        self.workers[worker.connection] = worker
        self._feed(worker)

    def _feed(self, worker: _Worker) -> None:
        """Keep a worker busy. What carries a file's bytes is sent only to one that is listening:
        both sides could otherwise wait in a full pipe."""
        while self.waiting and len(worker.reading) < AHEAD:
            turn = self.waiting[0]
            try:
                job = self.job(turn)
            except ParseError as exc:
                self.ready[turn] = exc
                self.waiting.popleft()
                continue
            if job[3] is not None and worker.reading:
                return
            self.waiting.popleft()
            worker.reading.append(turn)
            worker.paths.append(job[0])
            if not worker.send(job):
                return

    def _advance(self) -> None:
        """Take what has come back; replace a worker that died or that does not answer."""
        answered = wait(list(self.workers), timeout=self.patience_s)
        for connection in answered or list(self.workers):
            worker = self.workers[connection]  # type: ignore[index]
            result = worker.receive() if answered else None
            if result is None:
                self._replace(
                    worker, "reading it ended the reader" if answered else "it never ends"
                )
            else:
                self.ready[worker.reading.popleft()] = result
                worker.paths.popleft()
                self._feed(worker)

    def _replace(self, worker: _Worker, why: str) -> None:
        worker.stop()
        del self.workers[worker.connection]
        if worker.reading:
            blamed = worker.reading.popleft()
            self.ready[blamed] = unreadable(worker.paths[0], why)
        self.waiting.extendleft(reversed(worker.reading))
        if self.waiting:
            self._start()


class _Worker:
    """One process and the turns that it has been given and not answered."""

    def __init__(self, context: _Context) -> None:
        self.reading: deque[int] = deque()
        self.paths: deque[str] = deque()
        self.members: list[tuple[int, ...]] = []
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, job: Job) -> bool:
        try:
            self.connection.send(job)
        except OSError:
            return False
        return True

    def receive(self) -> Result | None:
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            return None
        return _unwire(answer, self.members)

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


def serve(connection: Connection) -> None:
    """The worker: read jobs until the other side is gone."""
    sent: dict[int, tuple[int, tuple[int, ...]]] = {}
    while True:
        try:
            path, size_bytes, file, content = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer = _wire(read_dump(path, size_bytes, file, content), sent)
        except ParseError as exc:
            answer = (exc.message, getattr(exc, "rank", None))
        except Exception as exc:  # noqa: BLE001  a fault of ours costs this file, not the worker
            said = f"a fault in gpufleet ({type(exc).__name__}: {exc})"
            answer = (unreadable(path, said[:200]).message, rank_in_name(path))
        try:
            connection.send(answer)
        except OSError:
            return


# --- What travels ---------------------------------------------------------------------------------

_DUMP = tuple(f.name for f in fields(RankDump) if f.name not in ("groups", "origin", "last_op"))
_GROUP = tuple(f.name for f in fields(DumpGroup) if f.name not in ("members", "open_ops"))
_OP = tuple(f.name for f in fields(OpenOp))
_LAST = tuple(f.name for f in fields(LastOp))
_dump_values, _group_values = attrgetter(*_DUMP), attrgetter(*_GROUP)
_op_values, _last_values = attrgetter(*_OP), attrgetter(*_LAST)

_Sent = dict[int, tuple[int, tuple[int, ...]]]


def _wire(facts: list[RecorderFact], sent: _Sent) -> tuple[Any, ...]:
    """Plain tuples, members by number; lists of members that were not sent before come along."""
    dump = facts[0]
    assert isinstance(dump, RankDump)
    fresh: list[tuple[int, ...]] = []
    groups = []
    for group in dump.groups:
        number = -1
        if group.members is not None:
            known = sent.get(id(group.members))
            if known is None:
                known = sent[id(group.members)] = (len(sent), group.members)
                fresh.append(group.members)
            number = known[0]
        groups.append((number, _group_values(group), [_op_values(op) for op in group.open_ops]))
    last = None if dump.last_op is None else _last_values(dump.last_op)
    return fresh, _dump_values(dump), groups, last, facts[1:]


def _unwire(answer: tuple[Any, ...], members: list[tuple[int, ...]]) -> Result:
    if len(answer) == 2:
        return UnreadableDump(answer[0], rank=answer[1])
    fresh, values, groups, last, others = answer
    members.extend(fresh)
    dump = RankDump(
        **dict(zip(_DUMP, values, strict=True)),
        origin=Origin(path=values[_DUMP.index("path")]),
        last_op=None if last is None else LastOp(**dict(zip(_LAST, last, strict=True))),
        groups=tuple(
            DumpGroup(
                **dict(zip(_GROUP, row, strict=True)),
                members=members[number] if number >= 0 else None,
                open_ops=tuple(OpenOp(**dict(zip(_OP, op, strict=True))) for op in ops),
            )
            for number, row, ops in groups
        ),
    )
    return [dump, *others]
