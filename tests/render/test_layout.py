"""Widths, wrapping and figures."""

from __future__ import annotations

import builders
import pytest

from gpufleet_cli.render import layout


def test_wrap_never_exceeds() -> None:
    """Words longer than the line are broken, wide characters count twice."""
    for text in ("a " * 200, "x" * 300, "训练" * 100, "a" + "\u0301" * 50 + " b" * 30):
        assert all(layout.cell_width(line) <= 20 for line in layout.wrap(text, 20))


def test_wrap_marks_what_it_cuts() -> None:
    """An ellipsis says that there is more."""
    assert layout.wrap("one two three four five six", 9, most=2) == ["one two", "three fo…"]


def test_wrap_of_nothing() -> None:
    """No text, no line."""
    assert layout.wrap("", 20) == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, "0 GPU-h"), (0.004, "0.00 GPU-h"), (0.25, "0.25 GPU-h"), (3.8, "3.8 GPU-h"),
     (495.2, "495 GPU-h"), (1024.0, "1,024 GPU-h"), (None, "")],
)  # fmt: skip
def test_gpu_hours(value: float | None, expected: str) -> None:
    """As many digits as a person needs; nothing when it is not known."""
    assert expected == layout.gpu_hours(value)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0.0s"), (9.94, "9.9s"), (9.96, "10s"), (59.6, "1m"), (3599, "59m59s"), (3600, "1h"),
     (86_400 * 2, "2d"), (-5, "-5.0s")],
)  # fmt: skip
def test_duration(seconds: float, expected: str) -> None:
    """Two figures that matter."""
    assert expected == layout.duration(seconds)


def test_times_are_utc() -> None:
    """Whatever the zone of the machine."""
    assert layout.date_clock(builders.SILENT_NS) == "2026-03-11 03:41:07"


def test_rank_list_tells_how_many_are_left_out() -> None:
    """The words shown and the number left out add up."""
    text = layout.rank_list(range(0, 2000, 2), 30)
    assert len(text) <= 30
    shown, more = text.split(" and ")
    assert len(shown.split(", ")) + int(more.split()[0]) == 1000


def test_rank_list_of_sixteen_thousand_is_quick_and_whole() -> None:
    """A run is one word."""
    assert layout.rank_list(range(16_384)) == "0-16383"
