"""Processes of the tests: started from a folder that says how, ended by their process id.

All that is known of a process lies in its folder (`NAME.json` the command, `NAME.pid`, `NAME.log`), so that another
process can end it or start it anew.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_LOG_TAIL_BYTES = 3000


class StartFailed(Exception):
    """A server did not come up; the message ends with the last lines of its log."""


def free_ports(count: int) -> list[int]:
    """So many ports of loopback that nobody listens on now."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def launch(folder: Path, name: str, command: Sequence[str | Path] | None = None) -> None:
    """Start a process; without a command, the one it was started with before."""
    recipe = folder / f"{name}.json"
    if command is not None:
        recipe.write_text(json.dumps([str(word) for word in command]))
    environment = {
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        # what is installed beside the tests is found too: exec into a pod runs here
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "TZ": "UTC",
    }
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            json.loads(recipe.read_text()),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,  # Ctrl-C is for pytest; it ends what it started in order
        )
    (folder / f"{name}.pid").write_text(str(process.pid))
    process.returncode = 0  # its end is awaited by `is_running`, not by this object


def is_running(folder: Path, name: str) -> bool:
    """Whether the process of that name lives."""
    try:
        pid = int((folder / f"{name}.pid").read_text())
    except FileNotFoundError:
        return False
    try:
        done, _ = os.waitpid(pid, os.WNOHANG)
        return done == 0
    except ChildProcessError:  # another process started it
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def stop(folder: Path, name: str, *, how: int = signal.SIGTERM, wait_s: float = 10) -> None:
    """End a process by its id, by SIGKILL where it does not listen."""
    file = folder / f"{name}.pid"
    for this in (how, signal.SIGKILL):
        if not is_running(folder, name):
            break
        os.kill(int(file.read_text()), this)
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and is_running(folder, name):
            time.sleep(0.02)
    file.unlink(missing_ok=True)


def log_tail(folder: Path, name: str) -> str:
    """The end of what the process wrote."""
    file = folder / f"{name}.log"
    return file.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace") if file.exists() else ""


def wait_until(ready: Callable[[], object], what: str, *, within_s: float = 60) -> None:
    """Poll until `ready` answers something true; `TimeoutError` names what did not happen."""
    began = time.monotonic()
    while not ready():
        waited = time.monotonic() - began
        if waited > within_s:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        time.sleep(min(0.05 + waited / 10, 0.5))  # a long wait is for much: asking costs, too


def wait_ready(
    folder: Path, name: str, ready: Callable[[], object], *, within_s: float = 120
) -> None:
    """Poll a server that was just launched; `StartFailed` shows its log where it ends or is late."""
    deadline = time.monotonic() + within_s
    while not ready():
        if not is_running(folder, name):
            raise StartFailed(f"{name} ended at once:\n{log_tail(folder, name)}")
        if time.monotonic() > deadline:
            raise StartFailed(
                f"{name} was not ready within {within_s:g} s:\n{log_tail(folder, name)}"
            )
        time.sleep(0.05)
