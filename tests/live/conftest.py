"""What tests of the live part ask for by name."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet_cli.live import access
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from live import fake_api
from live.evict_hands import make as make  # a fixture of several files
from live.fake_api import FakeApi


@pytest.fixture
def fake() -> Iterator[FakeApi]:
    """A small API server."""
    with fake_api.running() as server:
        yield server


@pytest.fixture
def fake_kubeconfig(fake: FakeApi, tmp_path: Path) -> Path:
    """A kubeconfig that leads to it."""
    return fake_api.write_kubeconfig(tmp_path / "fake-kubeconfig", fake.url)


@pytest.fixture
def api(fake_kubeconfig: Path) -> Api:
    """A client of it."""
    return Api(access.connect(kubeconfig=str(fake_kubeconfig)), deadline=Deadline(30))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell's background job ignores Ctrl-C, and so would its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
