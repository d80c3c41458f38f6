"""How the write-up spells times."""

from __future__ import annotations

from gpufleet_cli.render.layout import clock
from gpufleet_cli.timestamps import NS_PER_S, format_ns


def datetime_text(ns: int) -> str:
    """As HTML allows it in `<time datetime>`: at most milliseconds.

    >>> datetime_text(1_773_200_467_341_987_654)
    '2026-03-11T03:41:07.341Z'
    """
    return format_ns(ns // 1_000_000 * 1_000_000)


def clock_text(ns: int) -> str:
    """`03:41:07.341`.

    >>> clock_text(1_773_200_467_341_987_654)
    '03:41:07.341'
    """
    return f"{clock(ns)}.{ns % NS_PER_S // 1_000_000:03}"
