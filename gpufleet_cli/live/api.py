"""Requests to the API server: raw bytes, bounded rate, retries with backoff, a count of what was asked.

One pool of connections for all threads; the number in flight and the rate are ours to bound, since the
server charges all of it to whoever runs us. A read is retried on 429 (`Retry-After`), on a 5xx that
came before the body, and on a connection that was reset; never on an answer that is evidence.
Lists are read in pages of 500, never as client models: one odd object must not cost the list.
A write (`write`, for `operate` alone) is sent once: whether one that got no answer was done, only a read
can tell.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec

from gpufleet_cli import __version__
from gpufleet_cli.errors import SourceError
from gpufleet_cli.live.access import NotOurWay
from gpufleet_cli.live.answers import Answer
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.pace import Lost, Rate

if TYPE_CHECKING:
    from gpufleet_cli.live.access import Access

THREADS = 32
MOST_THREADS = 64
REQUESTS_PER_S = 400.0
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""What is asked for where names, labels and annotations are all that matters: a fifth of a node."""
_ANY = "application/json, */*"
PAGE = 500
MOST_PAGES = 400
MOST_TRIES = 6
READ_LIMIT = 256 << 20
_PIECE = 1 << 16
_BACKOFF_S = 0.25
_MOST_BACKOFF_S = 8.0
_MOST_RETRY_AFTER_S = 30.0
_RESTARTS = 2
_LOST_S = 12.0
_MOST_THROTTLED_S = 60.0
"""So long one read waits for a server that throttles; without a deadline that would be for ever."""
_IS_LOST = "the API server is lost"
_MOST_REFRESHES = 8

Params = Mapping[str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """The items of a list as raw JSON. `answer` is the last one; `note` says what is not whole."""

    items: tuple[msgspec.Raw, ...]
    answer: Answer
    note: str | None = None

    @property
    def ok(self) -> bool:
        return self.answer.ok


class _Meta(msgspec.Struct):
    next: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class Api:
    """One user at one server. `requests` counts by kind what was sent, tries included."""

    def __init__(
        self,
        access: Access,
        *,
        deadline: Deadline | None = None,
        threads: int = THREADS,
        per_s: float = REQUESTS_PER_S,
        chance: random.Random | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.access = access
        self.deadline = deadline or Deadline()
        self.threads = max(1, min(threads, MOST_THREADS))
        self.requests: Counter[str] = Counter()
        self.throttled = 0
        self.clock_ahead_s: float | None = None
        self.server_version: str | None = None
        self._rate = Rate(per_s, time.monotonic)
        self._lost = Lost(time.monotonic)
        self._chance = chance or random.Random()
        self._lock = threading.Lock()
        self._say = say
        self._refreshing = threading.Lock()
        self._refreshes = 0
        self.refresh_failed: str | None = None
        """Why there are no other credentials to try; empty where there just are none."""

    # --- One read ---------------------------------------------------------------------------------

    def get(
        self,
        path: str,
        params: Params | None = None,
        *,
        timeout_s: float = 15.0,
        kind: str = "object",
        newest: int | None = None,
        retries: Callable[[Answer], bool] | None = None,
        tries: int = MOST_TRIES,
        accept: str = _ANY,
    ) -> Answer:
        """One path, as often as it takes. `newest`: of a long body keep so many bytes of its end.

        `retries` says whether an answer may be asked for again; by default every 429 and 5xx. What was
        throttled counts as no try: the server is well and will answer.
        """
        return self._patiently(
            lambda: self._once(path, params, timeout_s, kind, newest, accept=accept),
            tries,
            retries,
        )

    def ask(self, path: str, question: object, *, kind: str, timeout_s: float = 8.0) -> Answer:
        """A review: what is posted is answered and stored nowhere. Objects are never made here."""
        body = msgspec.json.encode(question)
        return self._patiently(
            lambda: self._once(path, None, timeout_s, kind, None, body=body), 2, None
        )

    def write(
        self,
        method: str,
        path: str,
        body: object,
        *,
        content_type: str = "application/json",
        params: Params | None = None,
        timeout_s: float = 15.0,
    ) -> Answer:
        """One change, sent once, and again only where the server said that it did nothing yet: credentials
        that had expired. Status 0 means that nobody knows whether it was done."""
        sent = msgspec.json.encode(body)
        return self._patiently(
            lambda: self._once(
                path, params, timeout_s, "write", None,
                body=sent, method=method, content_type=content_type,
            ),
            1,
            lambda answer: False,
        )  # fmt: skip

    def _patiently(
        self, once: Callable[[], Answer], tries: int, retries: Callable[[Answer], bool] | None
    ) -> Answer:
        """One request, as often as it takes; a 401 asks for other credentials, once."""
        answer = Answer(status=0, failed="the deadline came first", late=True)
        failed, turn, throttled_s = 0, 0, 0.0
        while not self.deadline.is_over():
            self.deadline.pause(self._rate.wait_s())
            before = self._refreshes
            answer = once()
            if answer.status == 401 and self._refreshed(before):
                continue
            if not (retries or _worth_another)(answer):
                return answer
            wait = self._backoff(answer, turn)
            turn += 1
            if answer.status == 429:
                self._note_throttled()
                throttled_s += wait
            else:
                failed += 1
            left = self.deadline.left_s()
            if failed == tries or throttled_s > _MOST_THROTTLED_S or _comes_first(left, wait):
                return answer
            self.deadline.pause(wait)
        return answer

    def _note_throttled(self) -> None:
        """Counted, and said once."""
        with self._lock:
            self.throttled += 1
            is_first = self.throttled == 1
        if is_first and self._say is not None:
            self._say("the API server throttles us (429): waiting until it lets us on")

    def _refreshed(self, before: int) -> bool:
        """Other credentials, asked for by one thread while the others with a 401 wait for them."""
        with self._refreshing:
            if self._refreshes != before:
                return True
            if self._refreshes >= _MOST_REFRESHES or self.refresh_failed is not None:
                return False
            try:
                is_new = self.access.refresh()
            except SourceError as exc:
                self.refresh_failed = exc.message
                return False
            self._refreshes += is_new
            if not is_new:
                self.refresh_failed = ""
            return is_new

    def _backoff(self, answer: Answer, attempt: int) -> float:
        """`Retry-After` where the server states one, else doubling with jitter."""
        stated = retry_after_s(answer)
        if stated is not None:
            wait = min(stated, _MOST_RETRY_AFTER_S)
            if answer.status == 429:
                self._rate.hold(wait)
            return wait + self._chance.uniform(0, 0.25)
        top = min(_MOST_BACKOFF_S, _BACKOFF_S * 2.0**attempt)
        return self._chance.uniform(top / 2, top)

    def _once(
        self,
        path: str,
        params: Params | None,
        timeout_s: float,
        kind: str,
        newest: int | None,
        *,
        body: bytes | None = None,
        method: str | None = None,
        content_type: str = "application/json",
        accept: str = _ANY,
    ) -> Answer:
        import urllib3
        from urllib3.exceptions import HTTPError, ReadTimeoutError, TimeoutError

        if self._lost.is_lost():
            return Answer(status=0, failed=_IS_LOST)
        with self._lock:
            self.requests[kind] += 1
        bound = max(0.05, self.deadline.bound(timeout_s))
        url = self.access.url(path) + (f"?{urlencode(params)}" if params else "")
        headers: Any = self.access.headers()
        try:
            headers["User-Agent"] = f"gpufleet/{__version__}"
            headers["Accept"] = accept
            if body is not None:
                headers["Content-Type"] = content_type
            response = self.access.pool.request(
                method or ("GET" if body is None else "POST"),
                url,
                body=body,
                headers=headers,
                preload_content=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=min(5.0, bound), read=bound),
            )
        except (HTTPError, OSError, ValueError) as exc:
            timed_out = isinstance(exc, ReadTimeoutError)
            if not timed_out:
                self._lost.failed()
            told = f"no answer in {bound:.0f} s" if timed_out else _why(exc)
            late = self.deadline.is_over() and isinstance(exc, TimeoutError)
            return Answer(status=0, failed=told, timed_out=timed_out, late=late)
        self._lost.answered()
        return self._body(response, newest)

    def _body(self, response: Any, newest: int | None) -> Answer:  # noqa: ANN401
        """The whole body, or its newest end; `cut` where the connection or the deadline ended it."""
        from urllib3.exceptions import HTTPError

        pieces: list[bytes] = []
        size = total = 0
        cut = False
        failed = None
        try:
            for piece in response.stream(_PIECE):
                pieces.append(piece)
                size += len(piece)
                total += len(piece)
                while newest is not None and size - len(pieces[0]) >= newest:
                    size -= len(pieces.pop(0))
                if self.deadline.is_over() or total > READ_LIMIT:
                    cut = True
                    break
        except (HTTPError, OSError, ValueError) as exc:
            cut, failed = True, _why(exc)
        if cut:
            response.close()
        else:
            response.release_conn()
        headers = {str(k).lower(): str(v) for k, v in response.headers.items()}
        body = b"".join(pieces)
        if newest is not None and len(body) > newest:
            body = body[-newest:]
        if failed is not None and not body:
            return Answer(status=0, failed=failed, cut=True)
        if newest is not None and total > len(body):
            headers["x-begins-later"] = "1"
        return Answer(status=int(response.status), headers=headers, body=body, cut=cut)

    # --- Lists ------------------------------------------------------------------------------------

    def list(
        self,
        path: str,
        params: Params | None = None,
        *,
        kind: str = "list",
        timeout_s: float = 30.0,
        accept: str = _ANY,
    ) -> Listed:
        """All items of a list, page by page; 410 (the token of a page expired) begins again."""
        for _ in range(_RESTARTS + 1):
            found = self._pages(path, dict(params or {}), kind, timeout_s, accept)
            if found.answer.status != 410:
                return found
        return Listed(
            items=found.items, answer=found.answer, note="changed faster than it was read"
        )

    def _pages(
        self, path: str, params: dict[str, str | int], kind: str, timeout_s: float, accept: str
    ) -> Listed:
        items: list[msgspec.Raw] = []
        params["limit"] = PAGE
        for _ in range(MOST_PAGES):
            answer = self.get(path, params, timeout_s=timeout_s, kind=kind, accept=accept)
            if not answer.ok or answer.cut:
                note = f"only the first {len(items)}: {answer.message}" if items else None
                failed = answer if not answer.ok else Answer(status=0, failed="cut off")
                return Listed(items=tuple(items), answer=failed, note=note)
            try:
                page = msgspec.json.decode(answer.body, type=_Page)
            except (msgspec.DecodeError, ValueError):
                odd = Answer(status=0, failed=f"no list came from {path}: {answer.message}")
                return Listed(items=tuple(items), answer=odd)
            items.extend(page.items or ())
            if not page.metadata.next:
                return Listed(items=tuple(items), answer=answer)
            params["continue"] = page.metadata.next
        return Listed(items=tuple(items), answer=answer, note=f"only the first {len(items)}")

    # --- The beginning ----------------------------------------------------------------------------

    def check(self, *, tries: int = 3) -> str:
        """The server's version; a SourceError in one line where there is no way in, NotOurWay where
        another client might find one."""
        answer = self.get("/version", kind="version", tries=tries, timeout_s=8.0)
        where = f"{self.access.server}" + (
            f" (context {self.access.context})" if self.access.context else ""
        )
        if answer.status == 401:
            told = f"; {self.refresh_failed}" if self.refresh_failed else ""
            raise NotOurWay(
                f"{where} does not accept the credentials: expired or wrong token{told}",
                hint="log in again, then try: kubectl get nodes",
            )
        if answer.status == 0:
            # who is refused by a host is refused there with any client
            failure = SourceError if "refused" in answer.message.lower() else NotOurWay
            raise failure(
                f"cannot reach the API server {where}: {answer.message}", hint=_way_out(answer)
            )
        if answer.status == 403:
            return "unknown"
        if not answer.ok:
            raise SourceError(f"{where} answered {answer.status}: {answer.message}")
        self._note_clock(answer)
        try:
            self.server_version = str(msgspec.json.decode(answer.body)["gitVersion"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            raise SourceError(f"{where} is no Kubernetes API server: {answer.message}") from None
        return self.server_version

    def _note_clock(self, answer: Answer) -> None:
        """How far the server's clock is ahead of ours, to a second: ages of leases are by its clock."""
        from email.utils import parsedate_to_datetime

        try:
            stated = parsedate_to_datetime(answer.headers["date"]).timestamp()
        except (KeyError, ValueError, TypeError):
            return
        ahead = stated + 0.5 - time.time()
        self.clock_ahead_s = ahead if abs(ahead) > 1.5 else 0.0

    def now_ns(self) -> int:
        """Now, by the server's clock where it told it."""
        return time.time_ns() + round((self.clock_ahead_s or 0.0) * 1e9)


def _why(exc: BaseException) -> str:
    """A transport failure without the library's objects in it."""
    reason = getattr(exc, "reason", None) or exc
    text = " ".join(str(reason).split())
    if "): " in text and text.startswith("<"):
        text = text.split("): ", 1)[1]
    head, _, tail = text.partition(": ")
    if tail and ("object at 0x" in head or head.startswith("HTTP")):
        text = tail
    return (text or type(exc).__name__)[:200]


def _comes_first(left_s: float | None, wait_s: float) -> bool:
    """Whether the deadline ends before a wait does."""
    return left_s is not None and wait_s >= left_s


def _way_out(answer: Answer) -> str:
    """What to look at where no connection came about."""
    said = answer.message.lower()
    if "certificate" in said or "ssl" in said:
        return "the kubeconfig's certificate-authority is not this server's"
    if "resolve" in said or "name or service" in said:
        return "no such host from here: VPN up? right context?"
    if "refused" in said or "timed out" in said or "no route" in said or "no answer" in said:
        return "VPN up? right context? try: kubectl get nodes"
    return "does kubectl get nodes work from this shell?"


def _worth_another(answer: Answer) -> bool:
    if answer.failed == _IS_LOST:
        return False
    return answer.status in (0, 429) or answer.status >= 500 or (answer.ok and answer.cut)


def retry_after_s(answer: Answer) -> float | None:
    """Seconds of `Retry-After`, or of the Status' details."""
    text = answer.headers.get("retry-after", "")
    if text.strip().isdecimal():
        return float(text)
    if answer.status != 429:
        return None
    try:
        document = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, ValueError):
        return None
    details = document.get("details") if isinstance(document, dict) else None
    stated = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    return float(stated) if isinstance(stated, int) and 0 < stated < 3600 else None


def document_of(kind: str, items: Sequence[msgspec.Raw]) -> bytes:
    """Raw items joined into one List document."""
    head = f'{{"apiVersion":"v1","kind":"{kind}","items":['.encode()
    return head + b",".join(bytes(item) for item in items) + b"]}"
