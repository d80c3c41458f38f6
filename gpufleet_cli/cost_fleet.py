"""What interruptions cost a fleet: pure arithmetic, one function per formula.

Durations are seconds, rates per hour or per day as their names say, shares from 0 to 1. *MTTI* is the mean
time to interruption of one job; GPU-hours per interruption are a property of the fleet, whatever the job's
size. All kinds of interruption count or only some do: a rate and what it is used for must mean the same.

Young, CACM 17(9), 1974; Daly, FGCS 22(3), 2006; efficiency (ETTR) after arXiv 2410.21680.
"""

from __future__ import annotations

import math

from gpufleet_cli.chances import chance_of_at_least, chance_of_fewer_up, fewest, means_allowed

HOUR_S = 3600.0
YOUNG_IS_CLOSE = 0.01
"""With a save shorter than this share of the MTTI, Young's interval is close enough."""
_WEIGHT_OF_FLEET = 0.5


# --- Interruptions --------------------------------------------------------------------------------


def mtti_s(gpus: float, gpu_hours_per_interruption: float) -> float:
    """Mean seconds between interruptions of a job with so many GPUs.

    >>> round(mtti_s(8192, 45_565.8) / 3600, 3)
    5.562
    """
    return gpu_hours_per_interruption / gpus * HOUR_S


def hazard_per_hour(gpus: float, gpu_hours_per_interruption: float) -> float:
    """Interruptions per hour of a job with so many GPUs.

    >>> round(hazard_per_hour(8192, 45_565.8), 4)
    0.1798
    """
    return gpus / gpu_hours_per_interruption


def gpu_hours_per_interruption(node_failures_per_day: float, gpus_per_node: float) -> float:
    """From the failures of a node per day.

    >>> round(gpu_hours_per_interruption(6.5e-3, 8))
    29538
    """
    return 24.0 / node_failures_per_day * gpus_per_node


def interval90_gpu_hours(
    interruptions: int, observed_gpu_hours: float
) -> tuple[float, float | None]:
    """Between which GPU-hours per interruption lie, 90 %, after so many in so many GPU-hours.

    Exact for a constant rate: `2H / chi2.ppf(.95, 2n + 2)` to `2H / chi2.ppf(.05, 2n)`. With none seen there
    is a lower bound alone.

    >>> [round(one) for one in interval90_gpu_hours(4, 100_000.0)]
    [10925, 73190]
    """
    least, most = means_allowed(interruptions, 0.05)
    return observed_gpu_hours / most, None if least is None else observed_gpu_hours / least


# --- Checkpoint interval --------------------------------------------------------------------------


def young_interval_s(save_s: float, mtti_s: float) -> float:
    """Young 1974. `save_s` is how long the job is blocked by a save.

    >>> young_interval_s(5 * 60, 1440 * 60) / 60
    120.0
    """
    return math.sqrt(2 * save_s * mtti_s)


def daly_first_order_s(save_s: float, mtti_s: float) -> float | None:
    """Daly 2006, first order; None where it gives no interval (a save of twice the MTTI or more)."""
    interval = young_interval_s(save_s, mtti_s) - save_s
    return interval if interval > 0 else None


def daly_interval_s(save_s: float, mtti_s: float) -> float:
    """The best checkpoint interval, Daly's higher order; the MTTI where a save takes twice that or more.

    >>> round(daly_interval_s(5 * 60, 1440 * 60) / 60, 2)
    116.69
    """
    if save_s >= 2 * mtti_s:
        return mtti_s
    ratio = save_s / (2 * mtti_s)
    return young_interval_s(save_s, mtti_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s


# --- Efficiency -----------------------------------------------------------------------------------


def ettr(*, interval_s: float, save_s: float, restart_s: float, mtti_s: float) -> float:
    """The share of wall time that makes progress, exact for failures at a constant rate.

    `tau / (M exp(R/M) (exp((tau + d)/M) - 1))`, in logarithms, as a span of many MTTIs overflows otherwise.
    `restart_s` is everything from the failure to the first useful step.

    >>> round(ettr(interval_s=756, save_s=30, restart_s=600, mtti_s=166.86 * 60), 3)
    0.871
    """
    span = (interval_s + save_s) / mtti_s
    log_of_span = span + math.log(-math.expm1(-span))
    return math.exp(math.log(interval_s / mtti_s) - restart_s / mtti_s - log_of_span)


def ettr_first_order(*, interval_s: float, save_s: float, restart_s: float, mtti_s: float) -> float:
    """`1 - d/tau - (R + tau/2)/M`: close where all of it is short beside the MTTI, below 0 where it is not."""
    return 1.0 - save_s / interval_s - (restart_s + interval_s / 2) / mtti_s


def budget_s(target: float, mtti_s: float) -> float:
    """What an interruption may cost in all for this ETTR.

    >>> round(budget_s(0.9, 166.86 * 60) / 60, 1)
    16.7
    """
    return (1.0 - target) * mtti_s


# --- Spares ---------------------------------------------------------------------------------------


def chance_of_stock_out(expected_out: float, spares: int) -> float:
    """The chance that more nodes are out of service than there are spares (Poisson)."""
    return chance_of_at_least(spares + 1, expected_out)


def chance_of_too_few(nodes: int, availability: float, spares: int) -> float:
    """The chance that fewer than `nodes` are up, where spares fail as all others do (binomial)."""
    return chance_of_fewer_up(nodes, nodes + spares, availability)


def spares_for(expected_out: float, stock_out: float) -> int:
    """The fewest spares whose chance of a stock-out is at most this.

    >>> spares_for(0.78 / 2.781 * 24, 0.01)
    13
    """
    return fewest(lambda spares: chance_of_stock_out(expected_out, spares) <= stock_out)


def spares_of_pool(nodes: int, availability: float, stock_out: float) -> int:
    """The fewest spares with which the chance of fewer than `nodes` up is at most this.

    >>> spares_of_pool(130, 0.935, 0.05)
    14
    """
    return fewest(lambda spares: chance_of_too_few(nodes, availability, spares) <= stock_out)


# --- Tails ----------------------------------------------------------------------------------------


def no_slow_rank(ranks: int, slow_probability: float) -> float:
    """The chance that no rank is slow.

    >>> f"{no_slow_rank(1024, 0.01):.4e}"
    '3.3919e-05'
    """
    if slow_probability >= 1:
        return 0.0
    return math.exp(ranks * math.log1p(-slow_probability))


def even_odds_probability(ranks: int) -> float:
    """How likely a rank may be slow for even odds that none is.

    >>> f"{even_odds_probability(1024):.3e}"
    '6.767e-04'
    """
    return -math.expm1(math.log(0.5) / ranks)


def slow_gpu_hours_per_hour(gpus: float, slowdown: float) -> float:
    """GPU-hours lost in an hour in which every step takes `slowdown` times as long.

    >>> round(slow_gpu_hours_per_hour(8192, 1.05), 1)
    390.1
    """
    return gpus * (1.0 - 1.0 / slowdown)


# --- Repeat offenders -----------------------------------------------------------------------------


def chance_of_offence(events: int, days: float, node_failures_per_day: float) -> float:
    """The chance that a healthy node shows so many events or more in so many days."""
    return chance_of_at_least(events, node_failures_per_day * days)


def shrunk_failures_per_day(events: int, days: float, node_failures_per_day: float) -> float:
    """A node's own rate, drawn towards the fleet's as far as its few events leave it open: `(a + k)/(a/f + T)`.

    The weight of the fleet, half an event, is a judgement.
    """
    before = _WEIGHT_OF_FLEET / node_failures_per_day
    return (_WEIGHT_OF_FLEET + events) / (before + days)
