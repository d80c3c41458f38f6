"""How good and how honest many answers were: intervals, calibration, slopes. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Z_95 = 1.959963984540054
BINS = 10

Claimed = tuple[float, bool]
"""What was believed, and whether it came true."""


def wilson(successes: int, total: int, *, z: float = Z_95) -> tuple[float, float]:
    """The Wilson score interval of a rate; all of [0, 1] where nothing was tried.

    E. B. Wilson, JASA 22(158), 1927.

    >>> low, high = wilson(8, 10)
    >>> round(low, 4), round(high, 4)
    (0.4902, 0.9433)
    """
    if total == 0:
        return 0.0, 1.0
    rate, square = successes / total, z * z
    middle = (rate + square / (2 * total)) / (1 + square / total)
    half = z * math.sqrt(rate * (1 - rate) / total + square / (4 * total**2)) / (1 + square / total)
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    high = 1.0 if successes == total else min(1.0, middle + half)
    return low, high


def brier(claims: Iterable[Claimed]) -> float | None:
    """Mean square of belief against what came true (0 is best); None where nothing was claimed.

    >>> round(brier([(0.9, True), (0.8, False)]), 4)
    0.325
    """
    squares = [(belief - came_true) ** 2 for belief, came_true in claims]
    return sum(squares) / len(squares) if squares else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Claims of about one confidence: from `low` up to but not with `high` (the last with 1)."""

    low: float
    high: float
    count: int
    right: int
    mean_confidence: float

    @property
    def rate(self) -> float:
        return self.right / self.count


def reliability(claims: Iterable[Claimed], *, bins: int = BINS) -> tuple[Bin, ...]:
    """The bins of equal width that hold something, lowest first."""
    held: list[list[Claimed]] = [[] for _ in range(bins)]
    for belief, came_true in claims:
        held[min(bins - 1, max(0, int(belief * bins + 1e-9)))].append((belief, came_true))
    return tuple(
        Bin(
            low=number / bins,
            high=(number + 1) / bins,
            count=len(inside),
            right=sum(came_true for _belief, came_true in inside),
            mean_confidence=sum(belief for belief, _came_true in inside) / len(inside),
        )
        for number, inside in enumerate(held)
        if inside
    )


def ece(claims: Sequence[Claimed], *, bins: int = BINS) -> float | None:
    """Expected calibration error: |rate - mean confidence| of each bin, weighed by its claims.

    >>> round(ece([(0.95, True), (0.95, True), (0.95, False), (0.65, True)]), 4)
    0.3
    """
    if not claims:
        return None
    found = reliability(claims, bins=bins)
    return sum(b.count * abs(b.rate - b.mean_confidence) for b in found) / len(claims)


def slope(points: Iterable[tuple[float, float]]) -> float | None:
    """Least squares: how much y changes for one of x; None where x does not change.

    >>> round(slope([(0.0, 1.0), (0.1, 0.9), (0.2, 0.8)]), 4)
    -1.0
    """
    pairs = list(points)
    if not pairs:
        return None
    mean_x = sum(x for x, _y in pairs) / len(pairs)
    mean_y = sum(y for _x, y in pairs) / len(pairs)
    spread = sum((x - mean_x) ** 2 for x, _y in pairs)
    if spread < 1e-12:
        return None
    return sum((x - mean_x) * (y - mean_y) for x, y in pairs) / spread


def mean(values: Iterable[float]) -> float | None:
    """None of nothing."""
    known = list(values)
    return sum(known) / len(known) if known else None
