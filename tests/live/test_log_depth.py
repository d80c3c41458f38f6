"""What the lines of a log tell about how far back all logs must reach."""

from __future__ import annotations

import pytest

from gpufleet_cli.live import log_depth
from gpufleet_cli.live.log_depth import NS

AT = 1_787_195_520 * NS  # 2026-08-20T03:12:00Z


def line(second: int, text: str) -> str:
    return f"2026-08-20T03:{12 + second // 60:02d}:{second % 60:02d}.25Z {text}\n"


def steps(form: str) -> bytes:
    """Five steps of two ranks, three seconds apart; the second rank is a second late."""
    return "".join(
        line(3 * number + rank, form.format(rank=rank, step=40 + number))
        for number in range(5)
        for rank in range(2)
    ).encode()


@pytest.mark.parametrize(
    "form",
    [
        "[rank{rank}]: step: {step}  loss: 2.1",
        "[rank{rank}] global_step={step} lr 1e-4",
        " iteration     {step}/ 50000 | elapsed 3.0",
        '{{"rank": {rank}, "Step": {step}}}',
    ],
)
def test_the_time_of_a_step_in_the_words_of_each_framework(form: str) -> None:
    """The first rank to say a step counts: what others say later is no step's time."""
    assert 3.0 == log_depth.told_by(steps(form)).step_s


def test_stack_frames_name_steps_that_are_none() -> None:
    frames = "".join(line(n, '  File "train.py", line 7, in train_step') for n in range(50))
    assert log_depth.told_by(frames.encode()).step_s is None
    assert 3.0 == log_depth.told_by(steps("step {step}") + frames.encode()).step_s


def test_a_log_begins_and_ends_with_its_stamps() -> None:
    """The last line may have broken off before its own."""
    text = line(0, "one") + line(9, "two") + "2026-08-20T03:1"
    told = log_depth.told_by(text.encode())
    assert (AT + NS // 4, AT + 9 * NS + NS // 4) == (told.oldest_ns, told.newest_ns)


def test_the_first_watchdog_counts_with_what_it_waited() -> None:
    said = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, Timeout(ms)={})"
    text = f"{said.format(5)} torn, without a stamp\n" + line(20, said.format(480000))
    text += line(21, said.format(600000))
    told = log_depth.told_by(text.encode())
    assert (AT + 20 * NS + NS // 4, 480.0) == (told.first_timeout_ns, told.timeout_s)


@pytest.mark.parametrize("data", [b"", b"\n", b"no stamp at all", b"\xff\xfe step: 3\n"])
def test_what_tells_nothing(data: bytes) -> None:
    assert log_depth.Told(oldest_ns=None, newest_ns=None) == log_depth.told_by(data)
