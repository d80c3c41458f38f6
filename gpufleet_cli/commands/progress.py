"""How far a long reading is: one line on standard error that is rewritten, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

WAIT_S = 1.0
"""Short work shows nothing."""
EVERY_S = 0.2


@contextmanager
def shown(
    total: int,
    *,
    what: str = "files",
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Line | None]:
    """Something to tell of files as they are read; None where nobody watches. The line is wiped at the
    end, whatever that is, so that it never stands in a report."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield None
        return
    line = Line(total, stream, clock, what)
    try:
        yield line
    finally:
        line.wipe()


class Rewritten:
    """One line of a terminal that is drawn anew, and wiped."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.width = 0

    def draw(self, text: str) -> None:
        self.stream.write(f"\r{text.ljust(self.width)}")
        self.stream.flush()
        self.width = len(text)

    def wipe(self) -> None:
        if self.width:
            self.draw("")
            self.stream.write("\r")
            self.stream.flush()


class Line:
    """The line as it stands on the terminal: how much is done, when it was drawn, how wide it is."""

    def __init__(
        self, total: int, stream: TextIO, clock: Callable[[], float], what: str = "files"
    ) -> None:
        self.total = total
        self.what = what
        self.drawn = Rewritten(stream)
        self.clock = clock
        self.done = 0
        self.next_at = clock() + WAIT_S

    def expect(self, count: int) -> None:
        """So many more are to come."""
        self.total += count

    def __call__(self, count: int) -> None:
        self.done += count
        now = self.clock()
        if now < self.next_at:
            return
        self.next_at = now + EVERY_S
        text = f"reading: {min(self.done, self.total):,} of {self.total:,} {self.what}"
        if self.done >= self.total:
            text = f"{self.total:,} {self.what} read, reasoning"
        self.drawn.draw(text)

    def wipe(self) -> None:
        self.drawn.wipe()


@contextmanager
def announced(text: str, *, stream: TextIO | None = None) -> Iterator[None]:
    """One line for work that cannot say how far it is, on a terminal only, wiped at the end."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield
        return
    stream.write(text)
    stream.flush()
    try:
        yield
    finally:
        stream.write(f"\r{' ' * len(text)}\r")
        stream.flush()
