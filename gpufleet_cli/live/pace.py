"""How fast the API server may be asked, and whether it is still there."""

from __future__ import annotations

import threading
from collections.abc import Callable

LOST_S = 12.0


class Rate:
    """So many requests a second, evenly after a first burst, and none while the server said to wait."""

    def __init__(self, per_s: float, clock: Callable[[], float]) -> None:
        self._gap = 1.0 / per_s
        self._burst = per_s / 4
        self._clock = clock
        self._lock = threading.Lock()
        self._next = clock() - self._burst * self._gap

    def wait_s(self) -> float:
        """How long this request has to wait; takes its place."""
        with self._lock:
            now = self._clock()
            self._next = max(self._next, now - self._burst * self._gap) + self._gap
            return max(0.0, self._next - self._gap - now)

    def hold(self, seconds: float) -> None:
        """All wait that long."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


class Lost:
    """Whether the server is gone: no connection for so long. Then one probe a second, no queue of retries."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: float | None = None
        self._probed = 0.0

    def failed(self) -> None:
        if self._since is None:
            self._since = self._clock()

    def answered(self) -> None:
        self._since = None

    def is_lost(self) -> bool:
        since, now = self._since, self._clock()
        if since is None or now - since < LOST_S:
            return False
        if now - self._probed >= 1.0:
            self._probed = now
            return False
        return True
