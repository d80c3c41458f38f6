"""What single log lines say, by program. `RECOGNISERS` is the order of work.

A module with `SAMPLED = True` knows lines that every step prints: the scanner may hand it only some.
Patterns run over raw bytes, so none holds a character that JSON escapes (quotes, tabs, `<`, `>`, `&`).
"""

from __future__ import annotations

from gpufleet_cli.parsers.lines import watchdog
from gpufleet_cli.parsers.log_line import Recogniser

RECOGNISERS: tuple[Recogniser, ...] = (watchdog,)
