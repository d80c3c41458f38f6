"""Calls on threads: results as they come, nothing past the deadline."""

from __future__ import annotations

import threading

import pytest

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import threads
from gpufleet_cli.live.deadline import Deadline


def test_what_runs_beside_is_begun_at_once_and_gives_its_result() -> None:
    begun, free = threading.Event(), threading.Event()

    def work() -> int:
        begun.set()
        free.wait(30)
        return 7

    beside = threads.Beside(work, deadline=Deadline())
    assert begun.wait(30)
    free.set()
    assert 7 == beside.result()


def test_what_fails_beside_is_raised_where_it_is_waited_for() -> None:
    def work() -> None:
        raise SourceError("no way in")

    with pytest.raises(SourceError, match="no way in"):
        threads.Beside(work, deadline=Deadline()).result()


def test_what_hangs_beside_holds_nobody_past_the_deadline() -> None:
    """A server that never answers: the result is None, and `settle` ends too."""
    hung = threading.Event()
    deadline = Deadline()
    beside = threads.Beside(lambda: hung.wait(60), deadline=deadline)
    deadline.stop()
    assert beside.result() is None
    beside.settle()
    hung.set()


def test_results_come_as_they_are_done() -> None:
    """The slow one is first in the list and last in the results."""
    free = threading.Event()

    def work(name: str) -> str:
        if name == "slow":
            free.wait(30)
        return name.upper()

    found = []
    for task, result in threads.each(work, ["slow", "quick"], threads=2, deadline=Deadline()):
        found.append((task, result))
        free.set()
    assert [("quick", "QUICK"), ("slow", "SLOW")] == found
