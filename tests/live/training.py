"""A job that trains on the tests' own cluster while somebody watches: its logs grow, and its exporter is scraped.

It has a past that Prometheus and the log of rank 0 know: a step each second, and a checkpoint at times during which no
step is made. Its clock may be wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from servers import jobs, nodes, pods
from servers.jobs import Shape
from servers.metrics import Series
from servers.namespaces import Namespace
from servers.pods import Line
from servers.running import wait_until

STEP = "training_last_step_timestamp_seconds"
SAVED = "training_last_checkpoint_timestamp_seconds"
PACE = "training_step_seconds"
RANKS = 2
SAMPLE_S = 2
SOON_S = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Seconds: between two durable checkpoints, of which one takes so long; and the watchdog's timeout. `saves`: how many
    there were so far; the next is due in a few seconds."""

    every_s: int = 120
    save_s: int = 14
    watchdog_s: int = 24
    saves: int = 4


@dataclass(slots=True)
class Training:
    """The job. `announces`: its log says when a save begins and ends. `ahead_s`: how far its clock is wrong."""

    namespace: Namespace
    name: str
    pods: tuple[str, ...]
    rhythm: Rhythm
    announces: bool = False
    ahead_s: float = 0.0
    step: int = 0
    step_at: float = 0.0
    saved_at: float = 0.0
    port: int = 0
    stalled_at: float | None = None
    past: list[tuple[float, str]] = field(default_factory=list)
    samples: dict[str, list[tuple[datetime, float]]] = field(default_factory=dict)

    # --- The past ---------------------------------------------------------------------------------

    def live_through(self, end: float) -> None:
        """The past up to now: the next save is due some seconds later."""
        rhythm = self.rhythm
        begin = end - (rhythm.saves + 1) * rhythm.every_s + rhythm.save_s + SOON_S
        self.saved_at = begin
        at, sample_at = begin, begin
        self.samples = {STEP: [], SAVED: [], PACE: []}
        while at < end:
            saves = at - self.saved_at >= rhythm.every_s - rhythm.save_s
            at += rhythm.save_s if saves and at + rhythm.save_s < end else 1.0
            if saves and at - self.step_at > 1.5:
                self._announce(self.step_at + 0.1, at - 0.5)
                self.saved_at = at - 0.5
            while sample_at < at:
                self._sample(sample_at)
                sample_at += SAMPLE_S
            self._step(at)

    def _announce(self, began: float, done: float) -> None:
        if self.announces:
            self.past.append((began, f"saving checkpoint at iteration {self.step:7d} to /ckpt"))
            text = f"  successfully saved checkpoint from iteration {self.step:7d} to /ckpt"
            self.past.append((done, text))

    def _step(self, at: float) -> None:
        self.step += 1
        self.step_at = at
        self.past.append((at, f"[rank0]: step {self.step} loss 2.31 lr 1.0e-04"))

    def _sample(self, at: float) -> None:
        when = datetime.fromtimestamp(at, UTC)
        for name, value in self.values().items():
            if value > 0:
                self.samples[name].append((when, value))

    def values(self) -> dict[str, float]:
        """What its exporter says now, by its own clock."""
        return {
            STEP: self.step_at + self.ahead_s if self.step_at else 0.0,
            SAVED: self.saved_at + self.ahead_s if self.saved_at else 0.0,
            PACE: 1.0,
        }

    def series(self) -> list[Series]:
        """The past as Prometheus has it."""
        labels = {"pod": self.pods[0], "namespace": self.namespace.name, "rank": "0"}
        labels |= {"job": "test", "instance": f"127.0.0.1:{self.port}"}
        return [Series(name=n, labels=labels, samples=own) for n, own in self.samples.items()]

    # --- The present ------------------------------------------------------------------------------

    def write_past(self) -> None:
        lines = [self._line(at, text) for at, text in self.past]
        other = [self._line(at, "[rank2]: data shard opened") for at, _ in self.past[:1]]
        pods.give_logs(self.namespace, {self.pods[0]: lines, self.pods[1]: other})

    def _line(self, at: float, text: str) -> Line:
        return datetime.fromtimestamp(at + self.ahead_s, UTC), text

    def _log(self, pod: str) -> Path:
        logs = self.namespace.cluster.folder / "logs" / self.namespace.name
        return logs / pod / "trainer.log"

    def write(self, text: str, pod: str | None = None) -> None:
        """A line now."""
        with self._log(pod or self.pods[0]).open("ab") as log:
            log.write(pods.cri_line(*self._line(time.time(), text)))

    def steps(self, seconds: float) -> None:
        """A step each second, for so long."""
        end = time.time() + seconds
        while time.time() < end:
            self._step_now()
            time.sleep(1.0)

    def _step_now(self) -> None:
        self.step += 1
        self.step_at = time.time()
        self.write(f"[rank0]: step {self.step} loss 2.31 lr 1.0e-04")

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """A step each second meanwhile, however long that takes."""
        over = threading.Event()

        def go_on() -> None:
            while not over.is_set():
                self._step_now()
                over.wait(1.0)

        thread = threading.Thread(target=go_on, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def save(self, lasts_until: Callable[[], object]) -> None:
        """A checkpoint, during which no step is made, that is done when this is so."""
        if self.announces:
            self.write(f"saving checkpoint at iteration {self.step:7d} to /ckpt")
        wait_until(lasts_until, "the save may end")
        self.saved_at = time.time()
        if self.announces:
            self.write(f"  successfully saved checkpoint from iteration {self.step:7d} to /ckpt")

    def stall(self) -> None:
        """No step any more."""
        self.stalled_at = self.step_at

    def abort(self) -> float:
        """The watchdogs of pod 0 fire, and its container ends, then the others; when that was."""
        ms = self.rhythm.watchdog_s * 1000
        at = time.time()
        stamp = f"{datetime.now(UTC):%m%d %H:%M:%S.%f}000"
        for rank in range(RANKS):
            self.write(
                f"[rank{rank}]:[E{stamp} ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation"
                f" timeout: WorkNCCL(SeqNum=8821, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576,"
                f" Timeout(ms)={ms}) ran for {ms + 31} milliseconds before timing out."
            )
        for pod in self.pods:
            pods.terminate(self.namespace, pod, exit_code=134)
        return at

    def end(self) -> None:
        """The job ends well."""
        for pod in self.pods:
            pods.terminate(self.namespace, pod, exit_code=0)


def made(
    namespace: Namespace, rhythm: Rhythm, *, announces: bool = False, ahead_s: float = 0.0
) -> Training:
    """An Indexed Job of two pods that run."""
    nodes.make(namespace, 2, gpus=RANKS)
    name = f"run-{namespace.name.removeprefix('test-')}"
    jobs.indexed_job(
        namespace, name, Shape(pods=2, gpus=RANKS, args=("--nproc-per-node=2", "train.py"))
    )
    found = pods.wait(namespace, f"batch.kubernetes.io/job-name={name}", 2)
    index = "batch.kubernetes.io/job-completion-index"
    found.sort(key=lambda pod: int(pod["metadata"]["labels"][index]))
    names = tuple(str(pod["metadata"]["name"]) for pod in found)
    return Training(namespace, name, names, rhythm, announces=announces, ahead_s=ahead_s)


@contextmanager
def exporting(training: Training) -> Iterator[str]:
    """HOST:PORT of the exporter of rank 0."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            labels = f'{{pod="{training.pods[0]}",namespace="{training.namespace.name}",rank="0"}}'
            body = "".join(f"{n}{labels} {v:.3f}\n" for n, v in training.values().items() if v > 0)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    training.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{training.port}"
    finally:
        server.shutdown()
        server.server_close()
