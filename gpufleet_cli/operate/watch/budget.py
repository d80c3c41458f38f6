"""How long the evidence of a stall may take: it has to end before the watchdog does. Pure."""

from __future__ import annotations

from typing import NamedTuple

from gpufleet_cli.operate.watch import habits

BUDGET_S, LEAST_S = 120.0, 20.0


class Budget(NamedTuple):
    """Seconds for the evidence; and those until the watchdog fires, None where nothing is left to hurry for."""

    seconds: float
    left_s: float | None


def of_stall(timeout_s: float, quiet_s: float, stated_s: float | None) -> Budget:
    """What was stated, or two minutes, where that ends a margin before the watchdog; of a stall that is found late
    half of what is left, or `LEAST_S`.

    >>> of_stall(600, 300, None), of_stall(600, 580, None), of_stall(600, 700, None).left_s
    (Budget(seconds=120.0, left_s=300), Budget(seconds=10.0, left_s=20), None)
    """
    most = BUDGET_S if stated_s is None else stated_s
    left = timeout_s - quiet_s
    if left <= 0:
        return Budget(most, None)
    room = left - habits.margin_s(timeout_s)
    return Budget(min(most, max(room, min(LEAST_S, left / 2))), left)


def of_failure(stated_s: float | None) -> Budget:
    return Budget(BUDGET_S if stated_s is None else stated_s, None)
