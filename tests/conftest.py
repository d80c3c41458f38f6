"""Every test runs with the network closed but for loopback, in an odd time zone, without state."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["servers.fixtures"]

os.environ["TZ"] = (
    "Asia/Kathmandu"  # UTC+05:45: who mixes local time with UTC is wrong by minutes too
)
time.tzset()

_LOOPBACK = ("127.", "::1", "localhost")
_connect = socket.socket.connect


def _connect_locally(self: socket.socket, address: Any) -> None:
    if isinstance(address, tuple) and not str(address[0]).startswith(_LOOPBACK):
        raise OSError(f"tests are closed off the network: {address!r}")
    _connect(self, address)


@pytest.fixture(autouse=True, scope="session")
def closed_network() -> Iterator[None]:
    """A test that reaches out fails, here as on a machine without a network."""
    patch = pytest.MonkeyPatch()
    patch.setattr(socket.socket, "connect", _connect_locally)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """New folders, side by side in one: pytest looks at all that it made before it names the next one."""
    place = tmp_path_factory.mktemp("homes")
    return (place / str(number) for number in count())


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, homes: Iterator[Path]) -> None:
    """Nothing of the developer's shell reaches a test, and no test writes into their home."""
    for name in list(os.environ):
        if name.startswith(("GPUFLEET_", "KUBE")) or name in ("NO_COLOR", "LC_ALL", "LC_CTYPE"):
            monkeypatch.delenv(name)
    home = next(homes)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("GPUFLEET_NO_STATE", "1")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def root() -> Path:
    """The repository."""
    return Path(__file__).parents[1]
