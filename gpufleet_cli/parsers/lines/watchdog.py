"""placeholder"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.facts import Fact
from gpufleet_cli.parsers.log_line import Following, LogLine

PATTERNS: tuple[str, ...] = ("Watchdog caught collective operation timeout",)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    return iter(())
