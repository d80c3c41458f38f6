"""The line that shows how far a long reading is."""

import io

import pytest

from gpufleet_cli.commands.progress import announced, shown


class Terminal(io.StringIO):
    """A stream that says that somebody watches."""

    def isatty(self) -> bool:
        return True


def test_nothing_in_a_pipe() -> None:
    stream = io.StringIO()
    with shown(10, stream=stream) as told:
        assert told is None
    assert stream.getvalue() == ""


def test_nothing_for_short_work() -> None:
    stream = Terminal()
    with shown(10, stream=stream, clock=lambda: 0.0) as told:
        assert told is not None
        told(10)
    assert stream.getvalue() == ""


def test_long_work_shows_how_far_it_is_and_wipes_it() -> None:
    stream = Terminal()
    now = [0.0]
    with shown(16_384, stream=stream, clock=lambda: now[0]) as told:
        assert told is not None
        now[0] = 2.0
        told(1000)
        told(1)  # too soon to draw again
        now[0] = 9.0
        told(16_000)
    *drawn, wiped, end = stream.getvalue().split("\r")[1:]
    assert drawn == ["reading: 1,000 of 16,384 files", "16,384 files read, reasoning  "]
    assert (wiped.strip(), end) == ("", "")


def test_the_line_is_wiped_when_reading_fails() -> None:
    stream = Terminal()
    now = [0.0]
    with pytest.raises(KeyboardInterrupt), shown(10, stream=stream, clock=lambda: now[0]) as told:
        assert told is not None
        now[0] = 2.0
        told(1)
        raise KeyboardInterrupt
    assert stream.getvalue().endswith(" \r")


def test_work_of_unknown_length_is_announced_and_wiped() -> None:
    """On a terminal only."""
    stream, pipe = Terminal(), io.StringIO()
    with announced("making", stream=stream), announced("making", stream=pipe):
        assert stream.getvalue() == "making"
    assert stream.getvalue() == "making\r      \r"
    assert pipe.getvalue() == ""
