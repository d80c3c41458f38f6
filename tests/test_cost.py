"""The arithmetic against the worked numbers of its sources."""

from __future__ import annotations

from dataclasses import replace

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


def test_leave_costs_nothing_without_slowdown_or_hazard() -> None:
    """A harmless event left alone has no price."""
    assert cost.leave_gpu_hours(stakes(29), 3600) == 0.0


def test_break_even_slowdown_past_the_boundary_is_unknown() -> None:
    """Once the interval is over there is no rest to slow."""
    assert cost.break_even_slowdown(stakes(60)) is None


def test_leave_for_an_hour() -> None:
    """A step of 1.25 loses a fifth of the hour; a death loses half an interval, detection and restart."""
    assert cost.leave_gpu_hours(stakes(29, 1.25), 3600) == pytest.approx(8192 / 5)
    dead = cost.leave_gpu_hours(stakes(29, hazard=1e6), 3600)
    assert dead == pytest.approx(8192 * 45 / 60)


def test_a_doubtful_node_costs_waiting_on_top() -> None:
    """The eviction of the wrong node is paid, and the hazard is kept."""
    sure = stakes(29)
    doubtful = replace(sure, confidence=0.75)
    expected = 4642.13 + 0.25 * 682.67
    assert cost.evict_gpu_hours(doubtful) == pytest.approx(expected, abs=0.01)


def test_corruption_is_paid_since_the_last_clean_save() -> None:
    """`z (e_clean + W - e)`: half a chance, 40 minutes since a clean save, 32 minutes of window."""
    case = replace(stakes(29), corruption=0.5, since_clean_s=40 * 60)
    assert cost.wait_gpu_hours(case) == pytest.approx(682.67 + 8192 * 0.5 * 43 / 60, abs=0.01)


@pytest.mark.parametrize("planned_min", [0, 2, 5])
@pytest.mark.parametrize("e_min", [2, 29, 45])
def test_at_the_break_even_both_cost_the_same(e_min: float, planned_min: float) -> None:
    """Whatever a planned restart takes."""
    case = replace(stakes(e_min), planned_restart_s=planned_min * 60)
    slowdown = cost.break_even_slowdown(case)
    hazard = cost.break_even_hazard_per_hour(case)
    assert slowdown is not None
    assert hazard is not None
    for edge in (replace(case, slowdown=slowdown), replace(case, hazard_per_hour=hazard)):
        assert cost.wait_gpu_hours(edge) == pytest.approx(cost.evict_gpu_hours(edge), rel=1e-6)


@pytest.mark.parametrize(
    ("slowdown", "action", "is_tie"),
    [
        (1.0, "cordon-at-checkpoint", False),
        (1.85, "cordon-at-checkpoint", True),
        (1.935, "cordon-at-checkpoint", True),
        (2.05, "cordon-at-checkpoint", True),
        (2.2, "evict-now", False),
    ],
)
def test_a_tie_takes_the_less_disruptive(slowdown: float, action: str, is_tie: bool) -> None:
    """Ten per cent on either side of the break-even at 1.935."""
    found = cost.decide(stakes(29, slowdown))
    assert (action, is_tie) == (found.action, found.is_tie)


def test_a_stopped_job_is_evicted_and_pays_nothing() -> None:
    """It reaches no checkpoint, so that waiting has no price."""
    found = cost.decide(stakes(2), stopped=True)
    assert ("evict-now", 0.0, None) == (found.action, found.evict_gpu_hours, found.wait_gpu_hours)
