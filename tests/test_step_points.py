"""Step lines in columns."""

import pickle

import pytest

from gpufleet_cli.facts import StepPoint
from gpufleet_cli.step_points import StepPoints, packed, stamps


def _points(count: int) -> list[StepPoint]:
    return [
        StepPoint(
            at_ns=None if n % 5 == 4 else 10**18 + n,
            step=n,
            step_s=None if n % 3 else n / 7,
            line=None if n == 2 else n + 1,
            data_s=0.0 if n == 3 else None,
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 200])
def test_the_same_points_come_out(count: int) -> None:
    """None stays None and zero stays zero."""
    points = _points(count)
    found = packed(points)
    assert list(found) == points
    assert [found[i] for i in range(-count, count)] == [points[i] for i in range(-count, count)]
    assert list(found[-3:]) == points[-3:]


def test_an_index_too_large_is_refused() -> None:
    with pytest.raises(IndexError):
        packed(_points(9))[9]


def test_equal_to_any_sequence_of_the_same_points() -> None:
    points = _points(9)
    assert packed(points) == tuple(points)
    assert packed(points) != tuple(points[1:])
    assert hash(packed(points)) == hash(packed(points))


def test_small_when_it_travels() -> None:
    """Two hundred points of which none prints seconds: 24 bytes each."""
    points = [StepPoint(at_ns=10**18 + n, step=n, step_s=None, line=n) for n in range(200)]
    assert isinstance(packed(points), StepPoints)
    sent = pickle.dumps(packed(points), protocol=pickle.HIGHEST_PROTOCOL)
    assert len(sent) < 200 * 24 + 200
    assert pickle.loads(sent) == points


def test_a_time_beyond_64_bits_is_kept() -> None:
    """The year 9999 in nanoseconds: a hostile stamp costs nothing but its column."""
    points = [StepPoint(at_ns=25 * 10**19, step=n, step_s=None, line=n) for n in range(9)]
    assert list(packed(points)) == points


def test_stamps_of_the_newest() -> None:
    points = _points(12)
    expected = [(p.step, p.at_ns) for p in points[-4:] if p.at_ns is not None]
    assert list(stamps(packed(points), 4)) == expected
    assert list(stamps(points, 4)) == expected
