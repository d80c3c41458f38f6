"""The fleet's arithmetic and its chances: worked numbers, limits, and what must hold for any input."""

from __future__ import annotations

import math
import random

import pytest

from gpufleet_cli import chances, cost_fleet

DAY_H = 24
LLAMA_GPU_HOURS = 54 * DAY_H * 16_384.0


# --- Chances --------------------------------------------------------------------------------------


def poisson_below(events: int, mean: float) -> float:
    """By its definition: fewer than so many."""
    return math.fsum(
        math.exp(at * math.log(mean) - mean - math.lgamma(at + 1)) for at in range(events)
    )


@pytest.mark.parametrize("seed", range(40))
def test_poisson_tails_are_those_of_the_definition(seed: int) -> None:
    """Both of them, on either side of the mean; together they are one."""
    drawn = random.Random(seed)
    mean = math.exp(drawn.uniform(-6, 6))
    events = drawn.randint(0, int(3 * mean) + 5)
    below = poisson_below(events, mean)
    assert chances.chance_of_at_least(events, mean) == pytest.approx(1 - below, abs=1e-11)
    assert chances.chance_of_at_most(events - 1, mean) == pytest.approx(below, abs=1e-11)


@pytest.mark.parametrize("seed", range(40))
def test_binomial_tails_are_those_of_the_definition(seed: int) -> None:
    """On either side of the mode, with exact numbers of ways."""
    drawn = random.Random(seed)
    units = drawn.randint(1, 300)
    needed = drawn.randint(0, units)
    up = drawn.uniform(0.01, 0.999)
    expected = math.fsum(
        math.comb(units, at) * up**at * (1 - up) ** (units - at) for at in range(needed)
    )
    assert chances.chance_of_fewer_up(needed, units, up) == pytest.approx(expected, abs=1e-10)


def test_limits_of_chances() -> None:
    """None needed, none expected, more than there are, never down."""
    assert 1.0 == chances.chance_of_at_least(0, 5.0)
    assert 0.0 == chances.chance_of_at_least(1, 0.0)
    assert 0.0 == chances.chance_of_at_most(-1, 5.0)
    assert 1.0 == chances.chance_of_at_most(0, 0.0)
    assert 1.0 == chances.chance_of_fewer_up(5, 4, 0.9)
    assert 0.0 == chances.chance_of_fewer_up(0, 4, 0.9)
    assert 0.0 == chances.chance_of_fewer_up(4, 4, 1.0)


def test_a_far_tail_keeps_its_digits() -> None:
    """A thousand where ten are expected: 1e-1573 is nothing, 1e-71 is not."""
    assert 0.0 == chances.chance_of_at_least(1000, 10.0)
    first = math.exp(90 * math.log(10.0) - 10.0 - math.lgamma(91))
    assert first < chances.chance_of_at_least(90, 10.0) < 1.2 * first


def test_means_of_a_million_cost_little_and_overflow_nothing() -> None:
    """Half of it lies above its mean, nearly; all lies above a tenth of it."""
    assert chances.chance_of_at_least(1_000_000, 1e6) == pytest.approx(0.5, abs=1e-3)
    assert 1.0 == chances.chance_of_at_least(100_000, 1e6)
    assert 0.0 == chances.chance_of_at_least(2_000_000, 1e6)


@pytest.mark.parametrize("wanted", [0, 1, 2, 3, 17, 64, 1000])
def test_the_fewest_that_suffice(wanted: int) -> None:
    """The first for which it holds."""
    assert wanted == chances.fewest(lambda number: number >= wanted)


# Quantiles of chi-squared at 5 and 95 %, by degrees of freedom, as tables print them.
CHI2 = {2: (0.1026, 5.9915), 4: (0.7107, 9.4877), 10: (3.9403, 18.3070), 20: (10.8508, 31.4104)}


@pytest.mark.parametrize(
    ("seen", "low", "high"),
    [(1, 2, 4), (4, None, 10), (5, 10, None), (9, None, 20), (10, 20, None)],
)
def test_means_allowed_are_the_quantiles_of_tables(
    seen: int, low: int | None, high: int | None
) -> None:
    """Half of chi-squared with 2n at 5 %, and with 2n + 2 at 95 %."""
    least, most = chances.means_allowed(seen, 0.05)
    if low is not None:
        assert least == pytest.approx(CHI2[low][0] / 2, abs=1e-4)
    if high is not None:
        assert most == pytest.approx(CHI2[high][1] / 2, abs=1e-4)


# --- Interruptions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interruptions", "mtti_h", "theta", "years"),
    [(466, 2.7811, 45_565.8, 5.20), (419, 3.0931, 50_677, 5.79)],
)
def test_llama_3(interruptions: int, mtti_h: float, theta: float, years: float) -> None:
    """54 days of 16,384 GPUs: all interruptions, and the unexpected ones."""
    found = LLAMA_GPU_HOURS / interruptions
    assert found == pytest.approx(theta, abs=0.5)
    assert cost_fleet.mtti_s(16_384, found) / 3600 == pytest.approx(mtti_h, abs=5e-5)
    assert found / (DAY_H * 365) == pytest.approx(years, abs=0.006)


@pytest.mark.parametrize(
    ("interruptions", "gpu_hours", "expected"),
    [
        (466, LLAMA_GPU_HOURS, (42_205.24, 49_258.04)),
        (0, LLAMA_GPU_HOURS, (2 * LLAMA_GPU_HOURS / 5.991465, None)),
    ],
)
def test_interval_of_a_fleet(
    interruptions: int, gpu_hours: float, expected: tuple[float, float | None]
) -> None:
    """Chi-squared's quantiles; none seen gives the lower bound alone."""
    low, high = cost_fleet.interval90_gpu_hours(interruptions, gpu_hours)
    assert low == pytest.approx(expected[0], rel=1e-6)
    assert high == (None if expected[1] is None else pytest.approx(expected[1], rel=1e-6))


@pytest.mark.parametrize("seen", [1, 3, 30, 3000])
def test_the_interval_holds_the_estimate_and_narrows(seen: int) -> None:
    """Around H/n, and narrower with ten times as many."""
    low, high = cost_fleet.interval90_gpu_hours(seen, 1e6)
    more_low, more_high = cost_fleet.interval90_gpu_hours(seen * 10, 1e7)
    assert high is not None
    assert more_high is not None
    assert low < 1e6 / seen < high
    assert more_high - more_low < high - low


# --- Checkpoint interval and efficiency -----------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_dalys_interval_is_nearly_the_best_there_is(seed: int) -> None:
    """By the exact efficiency: no interval of a fine search beats it by more than 1 %."""
    drawn = random.Random(seed)
    mtti = drawn.uniform(600, 1e6)
    save = mtti * drawn.uniform(0.0005, 0.5)
    restart = drawn.uniform(0, mtti)

    def share(interval: float) -> float:
        return cost_fleet.ettr(interval_s=interval, save_s=save, restart_s=restart, mtti_s=mtti)

    best = cost_fleet.daly_interval_s(save, mtti)
    searched = max(share(best * 1.02**step) for step in range(-150, 151))
    assert searched * 0.99 <= share(best) <= searched


def test_first_order_meets_the_exact_efficiency_where_all_is_short() -> None:
    """A day between failures, seconds for all else."""
    given = {"interval_s": 600.0, "save_s": 2.0, "restart_s": 30.0, "mtti_s": 86_400.0}
    assert cost_fleet.ettr(**given) == pytest.approx(cost_fleet.ettr_first_order(**given), abs=1e-4)


@pytest.mark.parametrize("mtti", [1e-15, 1.0, 1e15])
@pytest.mark.parametrize("interval", [1e-12, 1e10])
def test_efficiency_is_a_share_whatever_the_numbers(interval: float, mtti: float) -> None:
    """No overflow, no log of nothing."""
    found = cost_fleet.ettr(interval_s=interval, save_s=0.0, restart_s=1e9, mtti_s=mtti)
    assert 0.0 <= found <= 1.0


# --- Spares, tails, offenders ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_spares_are_just_enough(seed: int) -> None:
    """One fewer is too few, by Poisson and by binomial."""
    drawn = random.Random(seed)
    out, chance = drawn.uniform(0.5, 200), 10 ** drawn.uniform(-9, -0.5)
    found = cost_fleet.spares_for(out, chance)
    assert cost_fleet.chance_of_stock_out(out, found) <= chance
    if found:
        assert cost_fleet.chance_of_stock_out(out, found - 1) > chance
    nodes, up = drawn.randint(1, 4000), drawn.uniform(0.7, 0.9999)
    found = cost_fleet.spares_of_pool(nodes, up, chance)
    assert cost_fleet.chance_of_too_few(nodes, up, found) <= chance
    if found:
        assert cost_fleet.chance_of_too_few(nodes, up, found - 1) > chance


def test_availability_of_144_units_of_which_130_are_needed() -> None:
    """At 95 % it is 0.9347: 0.9346 is too little."""
    assert chances.chance_of_fewer_up(130, 144, 0.9347) <= 0.05
    assert chances.chance_of_fewer_up(130, 144, 0.9346) > 0.05


def test_even_odds() -> None:
    """Of 1,024 ranks each may be slow with 6.767e-4."""
    found = cost_fleet.even_odds_probability(1024)
    assert found == pytest.approx(6.767e-4, abs=5e-8)
    assert cost_fleet.no_slow_rank(1024, found) == pytest.approx(0.5)
    assert (1.0, 0.0) == (cost_fleet.no_slow_rank(8, 0.0), cost_fleet.no_slow_rank(8, 1.0))


def test_a_nodes_own_rate_is_drawn_to_the_fleets() -> None:
    """`(a + k)/(a/f + T)` with a = 0.5: the fleet's before anything was seen, the node's own at last."""
    rate = 6.5e-3
    assert cost_fleet.shrunk_failures_per_day(0, 0.0, rate) == pytest.approx(rate)
    expected = 3.5 / (0.5 / rate + 28)
    assert cost_fleet.shrunk_failures_per_day(3, 28.0, rate) == pytest.approx(expected)
    assert cost_fleet.shrunk_failures_per_day(1000, 1e5, rate) == pytest.approx(0.01, rel=0.001)
