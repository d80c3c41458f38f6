"""Intervals, calibration and slopes against values worked by hand or published."""

from __future__ import annotations

import pytest

from gpufleet_cli.operate.simulate import scoring


def rounded(pair: tuple[float, float]) -> tuple[float, float]:
    return round(pair[0], 4), round(pair[1], 4)


@pytest.mark.parametrize(
    ("successes", "total", "interval"),
    [
        (81, 263, (0.2553, 0.3662)),  # Newcombe 1998, table I, method 3
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
        (29, 29, (0.8830, 1.0)),
    ],
)
def test_wilson_as_published(successes: int, total: int, interval: tuple[float, float]) -> None:
    """R. G. Newcombe, Statistics in Medicine 17, 857-872 (1998)."""
    assert rounded(scoring.wilson(successes, total)) == interval


def test_wilson_of_nothing_says_nothing() -> None:
    """Without a trial every rate is possible."""
    assert scoring.wilson(0, 0) == (0.0, 1.0)


def test_wilson_narrows_with_more_trials() -> None:
    """The same rate of a hundred times as many is known ten times as well."""
    few, many = scoring.wilson(8, 10), scoring.wilson(800, 1000)
    assert few[0] < many[0] < 0.8 < many[1] < few[1]


def test_brier_by_hand() -> None:
    """(0.1² + 0.7² + 0²) / 3."""
    assert scoring.brier([(0.9, True), (0.7, False), (1.0, True)]) == pytest.approx(0.5 / 3)
    assert scoring.brier([]) is None


def test_calibration_error_by_hand() -> None:
    """Bin 0.9-1.0: mean 0.92, rate 0.5, two of four; bin 0.5-0.6: 0.5 against 1; bin 0.2-0.3: 0.2 against 0."""
    claims = [(0.94, True), (0.9, False), (0.5, True), (0.2, False)]
    assert scoring.ece(claims) == pytest.approx((2 * 0.42 + 0.5 + 0.2) / 4)
    assert scoring.ece([]) is None


def test_full_confidence_that_holds_is_calibrated() -> None:
    """1.0 stands in the last bin, and nothing is wrong with it when it is always right."""
    assert scoring.ece([(1.0, True)] * 3) == 0.0


def test_reliability_bins_are_half_open() -> None:
    """0.8 and 0.3 (0.1 + 0.2 in floating point) begin their bins; empty bins are left out."""
    claims = [(0.8, True), (0.79, False), (0.1 + 0.2, True), (1.0, True)]
    shown = [(b.low, b.high, b.count, b.right) for b in scoring.reliability(claims)]
    assert shown == [(0.3, 0.4, 1, 1), (0.7, 0.8, 1, 0), (0.8, 0.9, 1, 1), (0.9, 1.0, 1, 1)]


def test_reliability_counts_every_claim() -> None:
    """No claim falls between two bins."""
    claims = [(number / 1000, number % 3 == 0) for number in range(1001)]
    assert sum(b.count for b in scoring.reliability(claims)) == len(claims)


def test_slope_by_hand() -> None:
    """All right without loss, half right at 0.2 of the dumps lost: 0.5 / 0.2."""
    points = [(0.0, 1.0), (0.0, 1.0), (0.2, 1.0), (0.2, 0.0)]
    assert scoring.slope(points) == pytest.approx(-2.5)


def test_slope_needs_two_places() -> None:
    """One column tells no slope."""
    assert scoring.slope([(0.05, 1.0), (0.05, 0.0)]) is None
    assert scoring.slope([]) is None


def test_mean_of_nothing_is_not_known() -> None:
    """None is not zero."""
    assert scoring.mean([]) is None
    assert scoring.mean([1.0, 2.0]) == 1.5
