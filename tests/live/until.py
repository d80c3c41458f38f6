"""A deadline for tests: so many seconds, of which pauses take away without a wait."""

from __future__ import annotations


class Until:
    """`paused` has the pauses that were asked for."""

    def __init__(self, seconds: float = 60.0) -> None:
        self.left_s = seconds
        self.paused: list[float] = []

    def bound(self, seconds: float) -> float:
        return min(seconds, self.left_s)

    def is_over(self) -> bool:
        return self.left_s <= 0

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.left_s -= seconds
