"""The arithmetic against the worked numbers of its sources."""

from __future__ import annotations

import pytest

from gpufleet_cli import cost


def stakes(e_min: float, slowdown: float = 1.0, hazard: float = 0.0) -> cost.Stakes:
    """8,192 GPUs, an hour's interval, a minute's save, five minutes to restart, ten to detect."""
    return cost.Stakes(
        gpus=8192,
        interval_s=3600,
        since_checkpoint_s=e_min * 60,
        save_s=60,
        restart_s=300,
        planned_restart_s=300,
        detection_s=600,
        slowdown=slowdown,
        hazard_per_hour=hazard,
    )


@pytest.mark.parametrize(
    ("e_min", "slowdown", "hazard", "evict", "wait"),
    [
        (29, 1.0, 0.0, 4642.13, 682.67),
        (29, 1.0, 0.05, 4642.13, 880.01),
        (29, 1.0, 1.0, 4642.13, 3706.79),
        (29, 1.25, 0.05, 4642.13, 1967.75),
        (29, 2.5, 0.05, 4642.13, 7302.27),
        (5, 1.0, 0.5, 1365.33, 2761.52),
    ],
)
def test_three_questions_prices(
    e_min: float, slowdown: float, hazard: float, evict: float, wait: float
) -> None:
    """The table of the three questions, to the hundredth of a GPU-hour."""
    case = stakes(e_min, slowdown, hazard)
    assert round(cost.evict_gpu_hours(case), 2) == evict
    assert round(cost.wait_gpu_hours(case), 2) == wait


@pytest.mark.parametrize(
    ("e_min", "expected"), [(2, 0.051), (5, 0.134), (15, 0.508), (29, 1.49), (45, 4.97), (55, 17.1)]
)
def test_break_even_hazard(e_min: float, expected: float) -> None:
    """The hazard at which waiting costs as much as evicting, by minutes since the checkpoint."""
    found = cost.break_even_hazard_per_hour(stakes(e_min))
    assert found == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("e_min", "expected"), [(5, 1.091), (29, 1.935), (55, 12.0)])
def test_break_even_slowdown(e_min: float, expected: float) -> None:
    """The slowdown at which waiting costs as much as evicting."""
    assert cost.break_even_slowdown(stakes(e_min)) == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize(("mtti_min", "expected"), [(1440, 116.69), (360, 56.71), (15, 9.14)])
def test_daly_interval(mtti_min: float, expected: float) -> None:
    """Daly's higher order for a five-minute save."""
    assert round(cost.daly_interval_s(300, mtti_min * 60) / 60, 2) == expected


def test_daly_interval_of_a_save_longer_than_the_mtti() -> None:
    """Beyond twice the mean time to interruption the interval is that time itself."""
    assert cost.daly_interval_s(1000, 400) == 400


def test_leave_costs_nothing_without_slowdown_or_hazard() -> None:
    """A harmless event left alone has no price."""
    assert cost.leave_gpu_hours(stakes(29), 3600) == 0.0


def test_break_even_slowdown_past_the_boundary_is_unknown() -> None:
    """Once the interval is over there is no rest to slow."""
    assert cost.break_even_slowdown(stakes(60)) is None
