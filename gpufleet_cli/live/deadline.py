"""The end of a whole run: what is not there by then is reported missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Deadline:
    """A moment on the monotonic clock, or none. Ctrl-C is a deadline too: `stop` makes it now."""

    def __init__(
        self, seconds: float | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self.began = clock()
        self.seconds = seconds
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether somebody interrupted."""
        return self._stopped.is_set()

    def stop(self) -> None:
        self._stopped.set()

    def left_s(self) -> float | None:
        """Seconds that are left, None for no end."""
        if self._stopped.is_set():
            return 0.0
        if self.seconds is None:
            return None
        return max(0.0, self.seconds - (self._clock() - self.began))

    def is_over(self) -> bool:
        left = self.left_s()
        return left is not None and left <= 0

    def bound(self, seconds: float) -> float:
        """That long, or what is left."""
        left = self.left_s()
        return seconds if left is None else min(seconds, left)

    def pause(self, seconds: float) -> None:
        """Sleep, no longer than is left; an interruption ends it."""
        self._stopped.wait(self.bound(max(0.0, seconds)))

    def elapsed_s(self) -> float:
        return self._clock() - self.began
