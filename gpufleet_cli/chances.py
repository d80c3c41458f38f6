"""Chances of counts: Poisson and binomial tails, the fewest that suffice, the rates that a count allows.

Sums run from the edge of a tail away from the mode, starting from a logarithm: a tail of 1e-200 keeps
its digits, a mean of a million costs some thousand terms, and nothing overflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

_ENOUGH = 1e-17


def chance_of_at_least(events: int, mean: float) -> float:
    """The chance of so many events or more where `mean` are expected (Poisson).

    >>> round(chance_of_at_least(2, 6.5e-3 * 28), 5), round(chance_of_at_least(3, 6.5e-3 * 28) * 2048, 1)
    (0.01468, 1.8)
    """
    if events <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    if events > mean:
        return _sum(_poisson(events, mean), lambda at: mean / (events + at))
    below = events - 1
    return 1.0 - _sum(_poisson(below, mean), lambda at: (below + 1 - at) / mean)


def chance_of_at_most(events: int, mean: float) -> float:
    """The chance of so many events or fewer where `mean` are expected (Poisson)."""
    if events < 0:
        return 0.0
    if mean <= 0:
        return 1.0
    if events < mean:
        return _sum(_poisson(events, mean), lambda at: (events + 1 - at) / mean)
    return 1.0 - chance_of_at_least(events + 1, mean)


def chance_of_fewer_up(needed: int, units: int, availability: float) -> float:
    """The chance that fewer than `needed` of `units` are up, each by itself with `availability` (binomial).

    >>> round(1 - chance_of_fewer_up(130, 144, 0.9347), 3)
    0.95
    """
    if needed > units:
        return 1.0
    if needed <= 0 or availability >= 1:
        return 0.0
    odds = availability / (1 - availability)
    if needed - 1 < units * availability:
        start = needed - 1
        return _sum(
            _binomial(start, units, availability),
            lambda at: (start + 1 - at) / ((units - start + at) * odds),
        )
    return 1.0 - _sum(
        _binomial(needed, units, availability),
        lambda at: (units - needed + 1 - at) * odds / (needed + at),
    )


def fewest(is_enough: Callable[[int], bool]) -> int:
    """The smallest number from 0 for which a condition holds that holds for all larger ones too.

    >>> fewest(lambda number: number * number >= 50)
    8
    """
    if is_enough(0):
        return 0
    high = 1
    while not is_enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def means_allowed(events: int, chance: float) -> tuple[float | None, float]:
    """The least and the greatest mean with which this count is no rarer than `chance` on either side.

    It is the exact interval: half of chi-squared's quantiles with 2n and 2n+2 degrees of freedom. With
    none seen there is no least one.

    >>> [round(mean, 4) for mean in means_allowed(4, 0.05)]
    [1.3663, 9.1535]
    """
    wide = 12 * math.sqrt(events + 1) + 40
    near, far = max(0.0, events - wide), events + wide
    most = _crossing(lambda mean: chance_of_at_most(events, mean) <= chance, near, far)
    if events == 0:
        return None, most
    least = _crossing(lambda mean: chance_of_at_least(events, mean) >= chance, near, far)
    return least, most


def _crossing(is_past: Callable[[float], bool], low: float, high: float) -> float:
    """Where between two numbers a condition begins to hold."""
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_past(middle) else (middle, high)
    return high


def _poisson(events: int, mean: float) -> float:
    return math.exp(events * math.log(mean) - mean - math.lgamma(events + 1))


def _binomial(up: int, units: int, availability: float) -> float:
    ways = math.lgamma(units + 1) - math.lgamma(up + 1) - math.lgamma(units - up + 1)
    return math.exp(ways + up * math.log(availability) + (units - up) * math.log1p(-availability))


def _sum(first: float, ratio: Callable[[int], float]) -> float:
    """First term and those after it, each the last one times `ratio(1)`, `ratio(2)`, ..., while they count."""
    total, term, at = 0.0, first, 0
    while term > total * _ENOUGH:
        total += term
        at += 1
        term *= ratio(at)
    return min(1.0, total)
