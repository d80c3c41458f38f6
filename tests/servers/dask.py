"""A Dask scheduler and its workers on loopback, each a process of its own, as on a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from servers import running

PATIENCE_S = 90


@dataclass(slots=True, kw_only=True)
class Dask:
    """A scheduler; workers come and go."""

    url: str
    folder: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add(self, count: int, *, nanny: bool = True, before: str = "") -> None:
        """Start workers of one thread each. `before` is run in their process first."""
        for _ in range(count):
            start = f"{before}\nfrom distributed.cli.dask_worker import main; main()"
            command = [sys.executable, "-c", start, self.url, "--nthreads", "1"]
            command += ["--no-dashboard", "--memory-limit", "0", "--death-timeout", "60"]
            command += ["--nanny" if nanny else "--no-nanny", "--host", "127.0.0.1"]
            command += ["--local-directory", str(self.folder)]
            log = self.folder / f"worker-{len(self.workers)}.log"
            with log.open("wb") as into:
                self.workers.append(
                    subprocess.Popen(command, stdout=into, stderr=into, start_new_session=True)
                )

    def kill(self, number: int) -> None:
        """End one worker at once, without a word to the scheduler."""
        self.workers[number].kill()
        self.workers[number].wait()


@contextmanager
def running_dask(folder: Path, workers: int = 2) -> Iterator[Dask]:
    """A scheduler with workers. Those started without a nanny die with one `kill`."""
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = running.free_ports(1)
    made = Dask(url=f"tcp://127.0.0.1:{port}", folder=folder)
    start = "from distributed.cli.dask_scheduler import main; main()"
    command = [sys.executable, "-c", start, "--host", "127.0.0.1", "--port", str(port)]
    log = folder / "scheduler.log"
    with log.open("wb") as into:
        scheduler = subprocess.Popen([*command, "--no-dashboard"], stdout=into, stderr=into)
    try:
        until = time.monotonic() + PATIENCE_S
        while b"Scheduler at" not in log.read_bytes():
            if scheduler.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"no scheduler: {log.read_text()[-2000:]}")
            time.sleep(0.2)
        made.add(workers)
        yield made
    finally:
        for worker in made.workers:  # a nanny would take its time
            if worker.poll() is None:
                os.killpg(worker.pid, signal.SIGKILL)
        scheduler.kill()
        for process in (*made.workers, scheduler):
            process.wait()
