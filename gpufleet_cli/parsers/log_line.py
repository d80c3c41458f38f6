"""A log line with its wrappers taken off, and the contract of the modules that recognise lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from gpufleet_cli.facts import Fact, Origin, Speaker


class LogLine(NamedTuple):
    """One line as the program wrote it: no wrapper, no rank prefix, no ANSI, no carriage return.

    `at_ns` is the wrapper's time where it has one, else the line's own, else that of the stamped
    lines around it where they are less than five seconds apart, else None.
    `zone_stated` is False when a time had no zone and UTC was assumed.
    """

    text: str
    at_ns: int | None
    zone_stated: bool
    speaker: Speaker
    path: str
    line: int

    @property
    def origin(self) -> Origin:
        return Origin(path=self.path, line=self.line)


Following = Callable[[int], Sequence[LogLine]]
"""Give me up to N lines after this one that the same speaker wrote (or that carry no speaker)."""


Numbers = tuple[int, int | None, float | None, float | None]
"""What a step line states: step, of how many, and the seconds of it and of its waiting for data."""
Form = Callable[[str], Numbers]
"""Reads the text of a step line, and of all that differ from it in their digits alone."""


class Recogniser(Protocol):
    """A module that knows some lines. `PATTERNS` are RE2 regexes for the bytes pass over the raw
    file: a line that matches none of any module's patterns is never decoded, and `recognise` is
    called only for lines that match one of the module's own patterns.

    The pass sees the raw line, wrapper and all: no `^`, no `$`, and no quote or tab that a JSON
    wrapper would escape. A module may set `SAMPLED = True` (step lines): files too big to read
    line by line then show it only lines near the head, near the tail, before the first complaint
    and at a few places between. A step line is a `Progress` of one point; `training_log` joins
    the points of one speaker into one `Progress` for the stream and thins them. A sampled module may
    have `form_of(line) -> Form | None`: lines alike but for their digits are then read by that.
    """

    PATTERNS: tuple[str, ...]

    def recognise(self, line: LogLine, following: Following) -> Iterator[Fact]: ...
