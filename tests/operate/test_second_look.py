"""The second look: how long it waits, what counts as going on, and when silence says nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from gpufleet_cli.live.api import Api
from gpufleet_cli.operate.second_look import First, Look, News, judged, look, new_in, wait_s
from gpufleet_cli.verdict import JobState, JobView, Proof

NS = 1_000_000_000
HEAD = "2026-03-11T03:51:"
AT = 1_773_201_079  # of second 19


def job(*, every: float | None = 1.0, last: int | None = 100, ago_s: float = 600.0) -> JobView:
    return JobView(
        name="run", namespace="train", world_size=3, world_size_source="evidence", nodes=3, attempt=0,
        state=JobState.STALLED, state_why="watchdogs gave up", last_step=last, step_s=1.0,
        last_step_ns=None if last is None else int((1000 - ago_s) * NS), last_checkpoint_step=None,
        last_checkpoint_ns=None, checkpoint_interval_s=None, watchdog_timeout_s=None,
        step_interval_s=every,
    )  # fmt: skip


def first(of: JobView | None = None, *, printers: tuple[str, ...] = ("p-0",)) -> First:
    return First(
        logs={}, job=of or job(), printers=frozenset(printers), began_ns=AT * NS, over_s=0.0
    )


def said(
    *news: News, proof: Proof = "own-lines", of: First | None = None, told: bool = True
) -> Look:
    return judged(news, of or first(), proof, is_told=lambda: told)


@pytest.mark.parametrize(
    ("proof", "every", "ago_s", "since_s", "wanted"),
    [
        ("own-lines", 1.0, 600, 0, 3.5),  # one step and some, by our own clock
        ("own-lines", 1.0, 600, 9, 0.0),
        ("own-lines", 1.0, 10, 9, 20.0),  # the last must be half a minute old
        ("own-lines", 100.0, 600, 0, 152.0),  # a slow printer
        ("own-lines", 100.0, 40, 60, 110.0),
        ("own-lines", 500.0, 1200, 0, 300.0),  # overdue by its clock: never refused for good
        ("own-lines", 500.0, 40, 0, 710.0),
        ("own-lines", 1.0, -900, 0, 30.0),  # a clock that is ahead makes no wait longer
        ("own-lines", None, 600, 0, 30.0),
        ("hint", 1.0, 600, 0, 5.0),
        ("hint", 100.0, 600, 0, 300.0),
        ("hint", 100.0, 600, 100, 200.0),
    ],
)
def test_how_long_it_waits(
    proof: Proof, every: float | None, ago_s: float, since_s: float, wanted: float
) -> None:
    """Until a job that goes on must have printed a step: its own rhythm, never that of single steps."""
    of = job(every=every, ago_s=ago_s)
    assert wanted == wait_s(proof, of, since_s=since_s, now_ns=1000 * NS)


@pytest.mark.parametrize(
    ("line", "moved", "wrote"),
    [
        ("[rank0]: step 4051 loss 2.31 lr 1.0e-04", "step 4051", True),
        ("[rank0]: step 12 loss 2.31 lr 1.0e-04", "step 12", True),
        ("successfully saved checkpoint from iteration    4050 to /ckpt", "saved", None),
        ("saving checkpoint at iteration    4050 to /ckpt", "save began", None),
        ("tokens seen 4096", None, True),
        ("[rank1]:[E311 03:51:20.5 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation"
         " timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for"
         " 600031 milliseconds before timing out.", None, False),
    ],
)  # fmt: skip
def test_what_counts_as_going_on(line: str, moved: str | None, wrote: bool | None) -> None:
    """A step of any number, work that begins, and (where no step can be seen) any ordinary line; no complaint."""
    old = f"{HEAD}19.0Z [rank0]: step 4050 loss 2.31\n"
    found = new_in("p-0", (old + f"{HEAD}20.5Z {line}\n").encode(), AT * NS)
    assert (moved or "") in (found.moved or "")
    assert (found.moved is None) is (moved is None)
    if wrote is not None:
        assert wrote is found.wrote
    assert News(pod="p-0") == new_in("p-0", old.encode(), AT * NS), "it was known"


QUIET = tuple(News(pod=f"p-{n}") for n in range(3))
Away: Callable[[int], News] = lambda n: News(pod=f"p-{n}", unread="the kubelet does not answer")  # noqa: E731


def test_silence_is_one_only_where_a_step_would_have_been_seen() -> None:
    """The rank that prints the steps must have been heard, and half of them; else it counts as running."""
    assert "still" == said(*QUIET).second
    assert "still" == said(QUIET[0], QUIET[1], Away(2)).second
    away = said(Away(0), QUIET[1], QUIET[2], told=False)
    assert ("unseen", True) == (away.second, "p-0 cannot be read" in away.why)
    assert "still" == said(QUIET[0], Away(1), Away(2)).second, (
        "of an MPIJob the launcher prints for all"
    )
    three = first(printers=("p-0", "p-1", "p-2"))
    assert "unseen" == said(QUIET[0], Away(1), Away(2), of=three).second
    assert "moves" == said(QUIET[0], QUIET[1], News(pod="p-2", moved="it made step 7")).second
    assert "still" == said(QUIET[0], QUIET[1], News(pod="p-2", wrote=True)).second


def test_where_no_step_can_be_seen_most_must_say_so_and_nobody_write() -> None:
    """The node of the rank that printed is dead: the others' complaints serve, those of one do not."""
    assert "still" == said(Away(0), QUIET[1], QUIET[2]).second
    ended = first(printers=("p-9",))
    assert "still" == said(*QUIET, of=ended).second, "the rank that printed has ended with an error"
    assert "moves" == said(*QUIET[:2], News(pod="p-2", wrote=True), of=ended).second, (
        "the rest goes on"
    )
    blind = first(job(last=None, every=None), printers=())
    assert "still" == said(*QUIET, of=blind).second
    assert "unseen" == said(*QUIET, of=blind, told=False).second
    assert "still" == said(*QUIET, of=blind, told=False, proof="recorder").second
    assert "moves" == said(*QUIET[:2], News(pod="p-2", wrote=True), of=blind).second
    assert "unseen" == said(*QUIET, of=blind, proof="hint").second
    assert "unseen" == said(Away(0), *QUIET[1:], proof="hint").second


def test_a_job_whose_pods_are_not_known_is_not_one_without_ranks() -> None:
    """Nobody left to step is seen in pods that are there, and have ended."""
    found = look(cast(Api, None), [], first(), "own-lines", print)
    assert ("unseen", "its pods are not known") == (found.second, found.why)
