"""What a history says of a job's pauses, and how long a silence may be after it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpufleet_cli.operate.watch import habits
from gpufleet_cli.operate.watch.habits import Stretch
from gpufleet_cli.operate.watch.log_eyes import habit_of
from gpufleet_cli.operate.watch.model import Habit, Past, Plan, State

PLAN = Plan(timeout_s=600.0)
STATE = State(began_s=0.0, looked_s=0.0, moved_s=0.0, seen_s=0.0)


def gauge(pauses: dict[int, int], end: int, every: int = 15) -> list[tuple[float, float]]:
    """(read, value) of a gauge that holds the time of the last step; no step for so long from each of `pauses`."""
    last, samples = 0, []
    for at in range(0, end):
        if not any(begin < at < begin + took for begin, took in pauses.items()):
            last = at
        if at % every == 0:
            samples.append((float(at), float(last)))
    return samples


def test_pauses_of_a_gauge_have_their_lengths_and_kinds() -> None:
    """One with a checkpoint in it is a save; a hole in the readings is no pause."""
    samples = gauge({1000: 200, 2000: 90}, 4000)
    samples = [pair for pair in samples if not 3000 < pair[0] < 3600]
    found = habits.of_samples(samples, [1195.0])[1]
    assert [("save", True), ("none", True)] == [
        (past.kind, abs(past.seconds - long) <= 15)
        for past, long in zip(found.pauses, (200, 90), strict=True)
    ]
    assert 15.0 == found.interval_s


def test_a_gauge_that_goes_back_or_never_moves_tells_nothing() -> None:
    assert Habit() == habits.of_samples([(0.0, 5.0), (15.0, 5.0), (30.0, 5.0)], [])[1]
    assert Habit() == habits.of_samples([(0.0, 500.0), (15.0, 5.0)], [])[1]


def test_checkpoints_that_each_rank_tells_are_one() -> None:
    """Seconds apart; the interval is that of checkpoints."""
    saves = [at + rank for at in (0, 1800, 3600) for rank in range(4)]
    assert 1800.0 == habits.of_stretches([Stretch(0, 15)], saves).save_every_s


@pytest.mark.parametrize(
    ("pauses", "saved_before_s", "seconds"),
    [
        ((), None, 300.0),  # nothing is known: half the timeout
        ((Past("none", 100.0),), None, 300.0),  # shorter than that anyway
        ((Past("none", 320.0),), None, 480.0),  # half as long again
        ((Past("none", 400.0),), None, 510.0),  # that would be too late to look: the last call
        ((Past("none", 520.0),), None, 546.0),  # it paused for longer than that before
        ((Past("save", 360.0),), None, 300.0),  # whether a save is due is not known
        ((Past("save", 360.0),), 100.0, 300.0),  # none is due
        ((Past("save", 360.0),), 1400.0, 510.0),  # one is
        ((Past("save", 360.0),), -5.0, 510.0),  # one was just made
        ((Past("evaluation", 360.0),), 1400.0, 300.0),  # none is announced
    ],
)
def test_how_long_a_silence_may_be(
    pauses: tuple[Past, ...], saved_before_s: float | None, seconds: float
) -> None:
    """Never below half the timeout."""
    state = replace(
        STATE,
        habit=Habit(interval_s=15.0, pauses=pauses, save_every_s=1800.0),
        saved_before_s=saved_before_s,
    )
    assert seconds == pytest.approx(habits.limit(state, PLAN).seconds)


def test_without_a_rhythm_the_page_waits_until_time_is_short() -> None:
    """Of a job whose steps take minutes, the first two may be as far apart; there is still time to look."""
    found = habits.limit(STATE, PLAN)
    assert 510.0 == found.seconds and "rhythm" in found.why
    assert not habits.is_unexplained(STATE, PLAN)


def test_a_pause_that_only_one_source_has_a_name_for_has_it() -> None:
    """The metrics saw what the log calls an evaluation; the log saw what the metrics know for a save."""
    metrics = Habit(pauses=(Past("none", 300.0), Past("save", 60.0)))
    logs = Habit(pauses=(Past("evaluation", 290.0), Past("none", 55.0), Past("none", 700.0)))
    found = habits.of_both(metrics, logs).pauses
    assert {("save", 60.0), ("evaluation", 290.0), ("none", 700.0)} == set(found)


def test_the_words_of_a_log_name_its_pauses() -> None:
    """Megatron's words of a save between two steps; the silence after it has none."""
    lines = []
    step = 0
    for second in range(0, 600):
        if not (100 < second < 150 or 300 < second < 380):
            step += 1
            lines.append((second, f"[rank0]: step {step} loss 2.3100 lr 1.0e-04"))
        if second == 101:
            lines.append((second, f"saving checkpoint at iteration {step:7d} to /ckpt"))
        if second == 149:
            lines.append(
                (second, f"  successfully saved checkpoint from iteration {step:7d} to /ckpt")
            )
    body = "".join(f"2026-03-11T03:{s // 60:02}:{s % 60:02}.5Z {text}\n" for s, text in lines)
    found = habit_of(body.encode())
    assert ["save", "none"] == [past.kind for past in found.pauses]
    assert all(0 <= past.seconds - n <= 2 for past, n in zip(found.pauses, (50, 80), strict=True))
    assert 1.0 == found.paces[0]
