"""A `kubectl proxy` child, for a cluster that kubectl reaches and we do not.

It listens on a Unix socket in a folder that is ours alone (0700), refuses everything but reads and
questions, and ends with this program however that ends: its keeper waits for the end of a pipe that only
this program holds.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.service_words import one_line

if TYPE_CHECKING:
    import urllib3

READY_S = 15.0
BASE = "http://localhost"
REFUSED = "^(PUT|PATCH|DELETE)$"
_POLL_S = 0.05
_END_S = 3.0
_MOST_PATH = 100
"""Bytes of a socket's path that every system takes."""

# Its folder stays where kubectl ended by itself: its words are in it, for the one who waits.
_KEEPER = """
import os, shutil, subprocess, sys, threading
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
over = threading.Event()
def wait_for_the_end():
    sys.stdin.buffer.read()
    over.set()
    child.terminate()
threading.Thread(target=wait_for_the_end, daemon=True).start()
child.wait()
if over.is_set():
    shutil.rmtree(sys.argv[1], ignore_errors=True)
os._exit(0)
"""


def is_there() -> bool:
    """Whether kubectl is on PATH, on a system that has Unix sockets."""
    return hasattr(socket, "AF_UNIX") and shutil.which("kubectl") is not None


def started(
    kubeconfig: str | None, context: str | None, deadline: Deadline, *, threads: int
) -> Any:  # noqa: ANN401
    """A pool of connections that all go through the child, which ends with the pool at the latest.

    SourceError with kubectl's own last words where it does not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="gpufleet-"))
    if len(str(folder)) > _MOST_PATH - 10:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="gpufleet-", dir="/tmp"))
    place = folder / "api"
    words = ["kubectl", "proxy", f"--unix-socket={place}", f"--reject-methods={REFUSED}"]
    words += [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    words += [f"--context={context}"] if context else []
    with (folder / "stderr").open("wb") as stderr:
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _KEEPER, str(folder), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C is for us: what is under way may still be read
        )
    pool = _pool(place, threads)
    weakref.finalize(pool, _end, keeper, folder)
    _wait(keeper, place, folder, deadline)
    return pool


def _wait(keeper: subprocess.Popen[bytes], place: Path, folder: Path, deadline: Deadline) -> None:
    until = time.monotonic() + deadline.bound(READY_S)
    while time.monotonic() < until:
        with socket.socket(socket.AF_UNIX) as tried:
            if place.exists() and tried.connect_ex(str(place)) == 0:
                return
        if keeper.poll() is not None:
            said = (folder / "stderr").read_text("utf-8", "replace").splitlines()
            raise SourceError(f"kubectl proxy: {one_line(' / '.join(said[-2:])) or 'it ended'}")
        time.sleep(_POLL_S)
    raise SourceError("kubectl proxy did not start in time")


def _end(keeper: subprocess.Popen[bytes], folder: Path) -> None:
    """Close the pipe, which ends the child; then nothing of it is left."""
    if keeper.stdin is not None:
        keeper.stdin.close()
    try:
        keeper.wait(_END_S)
    except subprocess.TimeoutExpired:
        keeper.kill()
        keeper.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _pool(place: Path, threads: int) -> urllib3.PoolManager:
    """As `access.pool_for` makes one, but every connection is to the socket."""
    import urllib3
    from urllib3.connection import HTTPConnection
    from urllib3.connectionpool import HTTPConnectionPool
    from urllib3.exceptions import NewConnectionError

    class Connection(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            opened = socket.socket(socket.AF_UNIX)
            timeout = self.timeout
            opened.settimeout(timeout if isinstance(timeout, int | float) else None)
            try:
                opened.connect(str(place))
            except OSError as exc:
                opened.close()
                raise NewConnectionError(self, f"kubectl proxy: {exc.strerror}") from exc
            return opened

    class Pool(HTTPConnectionPool):
        ConnectionCls = Connection

    made = urllib3.PoolManager(
        num_pools=1,
        maxsize=threads,
        block=True,
        retries=False,
        timeout=urllib3.Timeout(connect=5.0, read=30.0),
    )
    made.pool_classes_by_scheme = {"http": Pool}
    return made
