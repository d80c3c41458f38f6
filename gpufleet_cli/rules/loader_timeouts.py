"""A data loader that gave up on its workers: the program ends with an exception, and the data is the cause.

The exception is chained to an empty queue's, which stands first and says nothing.
"""

from __future__ import annotations

from gpufleet_cli.facts import Origin, Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import NS, PlacedSign

CHAIN_S = 5.0
CHAIN_LINES = 60


def of_ranks(case: Case) -> dict[int, PlacedSign]:
    """The first such end of each rank."""
    found: dict[int, PlacedSign] = {}
    for sign in case.signs_of(Sign.DATA_RETRY):
        if sign.rank is not None and (sign.fact.detail or "").startswith("data loader timed out"):
            found.setdefault(sign.rank, sign)
    return found


def tracebacks(case: Case) -> set[Origin]:
    """The exceptions that such an end is told in."""
    ends = of_ranks(case)
    return {
        sign.fact.origin
        for sign in case.signs_of(Sign.PYTHON_EXCEPTION)
        if sign.rank in ends and _is_one(sign, ends[sign.rank])
    }


def _is_one(exception: PlacedSign, end: PlacedSign) -> bool:
    """Of the same moment; in one stream where it is not dated."""
    if exception.at_ns is not None and end.at_ns is not None:
        return abs(end.at_ns - exception.at_ns) / NS <= CHAIN_S
    one, other = exception.fact.origin, end.fact.origin
    return one.path == other.path and abs((other.line or 0) - (one.line or 0)) <= CHAIN_LINES
