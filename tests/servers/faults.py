"""The faults of a proxy, as a test sets them, and the requests it saw.

Chosen request by request in this order: hang, expired token, throttling, answers, reset in mid-body.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass, field

_STATUS_OF = {
    401: ("Unauthorized", "Unauthorized"),
    429: ("TooManyRequests", "Too many requests, please try again later."),
}


@dataclass(slots=True, kw_only=True)
class Seen:
    """One request that came, and how it was answered."""

    verb: str
    path: str  # with its query
    began: float  # monotonic seconds
    status: int = 0  # 0: none, the connection was cut or left hanging
    user_agent: str = ""


@dataclass(slots=True, kw_only=True)
class Fault:
    """A fault for requests whose path matches, so many times (None: always)."""

    pattern: re.Pattern[str]
    times: int | None
    status: int = 0
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    after_bytes: int = 0


class FaultProxy:
    """The faults of one proxy, set from the test's thread while it runs."""

    def __init__(self, target: str, url: str) -> None:
        self.target = target
        self.url = url
        self.latency_s = 0.0
        self.seen: list[Seen] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = threading.Lock()
        self._throttled_until = 0.0
        self._retry_after: int | None = None
        self._good_requests: int | None = None
        self._counted = re.compile("")
        self._answers: list[Fault] = []
        self._resets: list[Fault] = []
        self._hangs: list[Fault] = []
        self.ended = threading.Event()

    def throttle(self, *, seconds: float, retry_after_s: int | None = 1) -> None:
        """Answer 429 to all from now on, for so long, as the API server's fairness does."""
        self._retry_after = retry_after_s
        self._throttled_until = time.monotonic() + seconds

    def expire_after(self, requests: int | None, of: str = "") -> None:
        """Answer 401 to all after so many more requests whose path matches, as to a token that has ended; None
        heals."""
        with self._lock:
            self._good_requests, self._counted = requests, re.compile(of)

    def answer(
        self,
        pattern: str,
        status: int,
        body: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
        times: int | None = None,
    ) -> None:
        """Answer requests whose path matches with this, in place of the server."""
        odd = Fault(
            pattern=re.compile(pattern),
            times=times,
            status=status,
            body=body,
            headers=headers or {},
        )
        self._answers.append(odd)

    def reset(
        self, pattern: str = "", *, after_bytes: int = 1000, times: int | None = None
    ) -> None:
        """Cut the connection (RST) after so many bytes of the body."""
        odd = Fault(pattern=re.compile(pattern), times=times, after_bytes=after_bytes)
        self._resets.append(odd)

    def hang(self, pattern: str = "", *, times: int | None = None) -> None:
        """Take the request and never answer."""
        self._hangs.append(Fault(pattern=re.compile(pattern), times=times))

    def heal(self) -> None:
        """No faults from now on; the counts stay."""
        self.latency_s, self._throttled_until, self._good_requests = 0.0, 0.0, None
        for faults in (self._answers, self._resets, self._hangs):
            faults.clear()

    def count(self, verb: str | None = None, pattern: str = "") -> int:
        """How many requests came, of this verb, whose path matches."""
        wanted = re.compile(pattern)
        with self._lock:
            return sum(
                verb in (None, one.verb) and wanted.search(one.path) is not None
                for one in self.seen
            )

    def enter(self, seen: Seen) -> None:
        """Note a request that came."""
        with self._lock:
            self.seen.append(seen)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)

    def leave(self) -> None:
        """Note that it was answered."""
        with self._lock:
            self._at_once -= 1

    def fault(self, path: str) -> Fault | None:
        """The answer that stands in for the server's; with status 0: none ever comes."""
        if self._take(self._hangs, path):
            return Fault(pattern=re.compile(""), times=None)
        with self._lock:
            if self._good_requests is not None:
                if self._good_requests <= 0:
                    return _failure(401, {})
                self._good_requests -= self._counted.search(path) is not None
        if time.monotonic() < self._throttled_until:
            wait = {} if self._retry_after is None else {"Retry-After": str(self._retry_after)}
            return _failure(429, wait)
        return self._take(self._answers, path)

    def reset_after(self, path: str) -> int | None:
        """After how many bytes of the body the connection is cut, if it is."""
        odd = self._take(self._resets, path)
        return odd.after_bytes if odd else None

    def _take(self, faults: list[Fault], path: str) -> Fault | None:
        """The first fault for this path that is not used up."""
        with self._lock:
            for odd in faults:
                if odd.times != 0 and odd.pattern.search(path):
                    if odd.times is not None:
                        odd.times -= 1
                    return odd
        return None


def _failure(code: int, headers: dict[str, str]) -> Fault:
    """A Status of the API server."""
    reason, message = _STATUS_OF[code]
    body = (
        '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        f'"message":"{message}","reason":"{reason}","code":{code}}}\n'
    )
    return Fault(
        pattern=re.compile(""),
        times=None,
        status=code,
        body=body.encode(),
        headers={"Content-Type": "application/json", **headers},
    )
