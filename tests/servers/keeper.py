"""Keeps one cluster for a whole test run, however many processes pytest has.

Who uses it holds a shared lock on the file `users`; the keeper ends the cluster, and itself, when nobody holds one.
The system lets go of a lock when its holder dies, so that a run that was killed leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from servers import cluster, programs, running

_START_S = 300


@contextmanager
def shared_cluster(root: Path) -> Iterator[cluster.Cluster]:
    """The cluster of this test run, started by whoever asks first; `root` is the same for all its processes."""
    root.mkdir(exist_ok=True)
    ready, failed = root / "ready", root / "failed"
    with (root / "users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        with programs.locked(root / "start.lock"):
            if not ready.exists() and not failed.exists():
                _spawn(root)
                running.wait_until(
                    lambda: ready.exists() or failed.exists(), "cluster", within_s=_START_S
                )
        if failed.exists():
            raise running.StartFailed(failed.read_text())
        found = cluster.connect(Path(ready.read_text()))
        try:
            yield found
        finally:
            cluster.disconnect(found)


def _spawn(root: Path) -> None:
    """Start the keeper as a process of its own."""
    with (root / "keeper.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "servers.keeper", str(root)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[1],
            start_new_session=True,
        )
    process.returncode = 0  # it outlives this process where others still use the cluster


def keep(root: Path) -> None:
    """Start a cluster, say where it is, wait until nobody uses it, end it."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-", dir=root))
    try:
        cluster.disconnect(cluster.start(folder))
    except Exception as error:
        _write(root / "failed", f"{type(error).__name__}: {error}")
        cluster.stop(folder)
        raise
    _write(root / "ready", str(folder))
    with (root / "users").open("a") as users:
        while not _free(users.fileno()):
            time.sleep(0.3)
            with suppress(ChildProcessError):  # take note of children that a test ended
                os.waitpid(-1, os.WNOHANG)
        (root / "ready").unlink()
        cluster.stop(folder)


def _free(users: int) -> bool:
    """Whether nobody holds the lock; then we do."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(file: Path, text: str) -> None:
    """Write so that nobody reads half of it."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(file)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
