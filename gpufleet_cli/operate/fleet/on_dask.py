"""Shards on a Dask cluster: the only module that knows `distributed`, of the extra `fleet`.

Functions are sent by their names, so that workers need a gpufleet of their own, of the same fingerprint;
what comes back are bytes of parts. Dask tries a shard again when its worker dies or it raises, and makes a
part anew that was lost with its worker. Connections and certificates are those of Dask's own settings.
"""

from __future__ import annotations

import logging
import queue
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any

from gpufleet_cli.errors import SourceError, TargetError, UsageError
from gpufleet_cli.live.service_words import one_line, shown_url
from gpufleet_cli.operate.fleet import tasks
from gpufleet_cli.operate.fleet.engine import TRIES, Done, groups_of
from gpufleet_cli.operate.fleet.tasks import Receipt

EXTRA = "fleet"
CONNECT_S = 20.0
WITHOUT_WORKERS_S = 60.0


class OnDask:
    """The workers of one scheduler."""

    def __init__(self, scheduler: str) -> None:
        if find_spec("distributed") is None:
            raise UsageError(
                "--scheduler needs Dask, which is not installed",
                hint=f"pip install 'gpufleet[{EXTRA}]'; without --scheduler this machine does it",
            )
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        from distributed import Client

        self.shown = shown_url(scheduler)
        try:
            self._client: Any = Client(
                scheduler, timeout=CONNECT_S, set_as_default=False, name="gpufleet"
            )
        except (OSError, ValueError, TypeError) as exc:
            why = one_line(str(exc)) or "no answer"
            raise TargetError(
                f"the Dask scheduler {self.shown} cannot be reached: {why}",
                hint="is its address right, and does it run?",
            ) from exc
        self.done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._run = uuid.uuid4().hex[:8]
        self._parts: dict[int, Any] = {}
        self._receipts: dict[int, Any] = {}
        self._finished: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._lonely_since: float | None = None
        with ExitStack() as undo:
            undo.callback(self._client.close, timeout=5)
            self._check_workers()
            undo.pop_all()
        self.slots = sum(self._client.nthreads().values())

    def _check_workers(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError as exc:
            raise TargetError(
                f"no worker at the Dask scheduler {self.shown}", hint="scale its cluster up"
            ) from exc
        own = tasks.made_by()
        for worker, found in sorted(self._client.run(tasks.made_by, on_error="return").items()):
            if isinstance(found, BaseException):
                raise TargetError(
                    f"the worker {shown_url(worker)} has no gpufleet that fits"
                    f" ({one_line(str(found)) or type(found).__name__})",
                    hint=f"install {own} there",
                )
            if found != own:
                raise TargetError(
                    f"the worker {shown_url(worker)} has {one_line(str(found))}, this is {own}",
                    hint="install the same version on client and workers",
                )

    def submit(self, number: int, order: bytes) -> None:
        mark = f"{self._run}-{number}-{uuid.uuid4().hex[:4]}"
        options = {"retries": TRIES - 1, "pure": False}
        part = self._client.submit(
            tasks.summarise_shard, order, key=f"gpufleet-shard-{mark}", **options
        )
        receipt = self._client.submit(
            tasks.receipt_of, part, key=f"gpufleet-receipt-{mark}", **options
        )
        self._parts[number], self._receipts[number] = part, receipt
        receipt.add_done_callback(lambda future: self.done.put((number, _told(future))))

    def trouble(self) -> str | None:
        """A scheduler that is gone, or one that has had no worker for a while."""
        gone = f"the Dask scheduler {self.shown} is gone"
        if self._client.status != "running":
            return gone
        try:
            workers = self._client.nthreads()
        except (OSError, TimeoutError):
            return gone
        if workers:
            self._lonely_since = None
            return None
        now = time.monotonic()
        self._lonely_since = self._lonely_since or now
        lonely = now - self._lonely_since > WITHOUT_WORKERS_S
        return "no worker is left on the cluster" if lonely else None

    def merged(self, numbers: Sequence[int], sizes: Sequence[int]) -> Iterator[bytes]:
        """A tree of merges on the workers; the few that are left come here one by one."""
        level = [self._parts[number] for number in numbers]
        sizes = list(sizes)
        depth = 0
        while len(groups := groups_of(sizes)) < len(level):
            level = [
                self._client.submit(
                    tasks.merge_parts,
                    [level[at] for at in group],
                    key=f"gpufleet-merge-{self._run}-{depth}-{n}",
                    retries=TRIES - 1,
                    pure=False,
                )
                if len(group) > 1
                else level[group[0]]
                for n, group in enumerate(groups)
            ]
            sizes = [sum(sizes[at] for at in group) for group in groups]
            depth += 1
        for future in level:
            try:
                yield future.result()
            except _lost() as exc:
                raise SourceError(f"lost with its worker: {one_line(str(exc))}") from exc

    def close(self) -> None:
        self._client.cancel([*self._parts.values(), *self._receipts.values()], force=True)
        self._client.close(timeout=5)


def _told(future: Any) -> Receipt | str:  # noqa: ANN401  a future of distributed
    """The receipt of a shard, or why there is none."""
    if future.status == "finished":
        receipt: Receipt = future.result()
        return receipt
    if future.status == "cancelled":
        return "the cluster let go of it"
    exc = future.exception()
    killed = type(exc).__name__ == "KilledWorker"
    return "each worker that had it died" if killed else one_line(getattr(exc, "message", str(exc)))


def _lost() -> tuple[type[BaseException], ...]:
    from concurrent.futures import CancelledError

    from distributed.scheduler import KilledWorker

    return (KilledWorker, CancelledError, OSError, TimeoutError)
