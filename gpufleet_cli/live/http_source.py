"""HTTP to metrics and log stores: one `Fetch` per service, whatever stands in between.

A `Fetch` takes a path below the service and its parameters and gives (status, headers, body) of any answer
that came, or raises SourceError in one line where none did. `Connection.fetch` goes straight to a URL;
`through_api_server` makes one of a callable that asks the Kubernetes API server; `Patient` retries either.

Tokens are read anew (file) or fetched again after a 401 (command), and go to the configured host alone: no
redirect to another is followed. HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE count, as httpx reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlencode, urljoin, urlsplit, urlunsplit

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live.service_access import Tokens, headers_of, trust
from gpufleet_cli.live.service_ref import ServiceRef
from gpufleet_cli.live.service_words import REDIRECTS, Response, header, one_line, shown_url
from gpufleet_cli.settings_file import Access

if TYPE_CHECKING:
    import httpx

Params = Mapping[str, str | Sequence[str]]
Fetch = Callable[[str, Params], Response]

CONNECT_S = 5.0
READ_S = 60.0
MOST_BYTES = 256 << 20
LONGEST_QUERY = 2_000
"""Characters of parameters above which a form is posted: proxies cut or refuse long URLs."""
TRIES = 5
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
RETRIED = frozenset({429, 500, 502, 503, 504})
_MOSTREDIRECTS = 3


class Until(Protocol):
    """When the whole work has to end. Seconds of a monotonic clock."""

    def bound(self, seconds: float) -> float: ...
    def is_over(self) -> bool: ...
    def pause(self, seconds: float) -> None: ...


def through_api_server(service: ServiceRef, ask: Fetch) -> Fetch:
    """A `Fetch` for the service out of one for the API server, whose paths begin with `/api`."""

    def fetch(path: str, params: Params) -> Response:
        return ask(service.proxy_path + path, params)

    return fetch


class Patient:
    """A `Fetch` that tries again on 429 and 5xx, with growing pauses or the server's own, until the deadline.

    Lost connections are tried again too. After the last try the answer is handed on as it is.
    """

    def __init__(self, fetch: Fetch, until: Until, *, tries: int = TRIES) -> None:
        self._fetch = fetch
        self._until = until
        self._tries = tries

    def __call__(self, path: str, params: Params) -> Response:
        pause_s = FIRST_PAUSE_S
        for left in range(self._tries - 1, -1, -1):
            if self._until.is_over():
                raise SourceError("no time left to ask: --deadline")
            lost: SourceError | None = None
            response: Response = (0, {}, b"")
            try:
                response = self._fetch(path, params)
            except SourceError as exc:
                if not isinstance(exc, Lost):
                    raise
                lost = exc
            if left == 0 or (lost is None and response[0] not in RETRIED):
                break
            wanted = pause_s if lost is not None else _asked_pause(response[1], pause_s)
            if self._until.bound(wanted) < wanted:  # the deadline comes first
                break
            self._until.pause(wanted)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        if lost is not None:
            raise lost
        return response


def _asked_pause(headers: Mapping[str, str], otherwise: float) -> float:
    """Seconds of Retry-After, never longer than our longest pause."""
    text = header(headers, "retry-after") or ""
    if text.strip().isdecimal() and len(text) < 6:
        return min(max(float(text), otherwise), LONGEST_PAUSE_S)
    return otherwise


class Lost(SourceError):
    """No answer, for a reason that may pass: a connection refused, reset or timed out."""


class Connection:
    """A service at a URL. A context manager; safe for several threads.

    `base` may have a path, which is kept (Grafana's datasource proxy, a tenant's prefix), a query, which is
    added to each request, and `user:password@`, which becomes Basic authentication.
    """

    def __init__(self, base: str, access: Access, until: Until) -> None:
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SourceError(
                f"{shown_url(base) or 'the URL'} is no http or https URL",
                hint="write https://HOST[:PORT][/PATH] or svc:NAMESPACE/NAME:PORT",
            )
        self.shown = shown_url(base)
        self._path = parts.path.rstrip("/")
        host = parts.netloc.rpartition("@")[2]  # user and password travel in a header
        self._origin = urlunsplit((parts.scheme, host, "", "", ""))
        self._query = parts.query
        self._until = until
        self._tokens = Tokens(access)
        self._headers = headers_of(access, base)
        self._posts = True
        self._client = self._made(access)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def fetch(self, path: str, params: Params) -> Response:
        """One request: a GET, or a posted form where the parameters are long. A 401 is asked once again."""
        response = self._followed(path, params)
        if response[0] == 401 and self._tokens.renew():
            response = self._followed(path, params)
        return response

    def _followed(self, path: str, params: Params) -> Response:
        url = self._origin + self._path + path
        response = self._sent(url, params)
        for _ in range(_MOSTREDIRECTS):
            target = _same_host(url, response)
            if target is None:
                break
            url = target
            response = self._sent(url, params)
        return response

    def _sent(self, url: str, params: Params) -> Response:
        encoded = "&".join(part for part in (self._query, urlencode(params, doseq=True)) if part)
        if self._posts and len(encoded) > LONGEST_QUERY:
            response = self._once("POST", url, encoded)
            if response[0] not in (405, 501):
                return response
            self._posts = False
        return self._once("GET", url, encoded)

    def _once(self, method: str, url: str, encoded: str) -> Response:
        import httpx

        left_s = self._until.bound(READ_S)
        if left_s <= 0:
            raise SourceError("no time left to ask: --deadline")
        headers = {**self._headers, **self._tokens.header()}
        body = None
        if method == "POST":
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = encoded.encode()
        elif encoded:
            url = f"{url}?{encoded}"
        timeout = httpx.Timeout(left_s, connect=min(CONNECT_S, left_s))
        try:
            with self._client.stream(
                method, url, content=body, headers=headers, timeout=timeout
            ) as answer:
                return answer.status_code, dict(answer.headers), self._read(answer)
        except httpx.TimeoutException as exc:
            what = "connect to" if isinstance(exc, httpx.ConnectTimeout) else "hear from"
            raise Lost(f"{self.shown}: timed out trying to {what} it") from exc
        except httpx.TransportError as exc:
            raise _transport_error(self.shown, exc) from exc
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as exc:
            raise SourceError(f"{self.shown}: {one_line(str(exc))}") from exc

    def _read(self, answer: httpx.Response) -> bytes:
        parts, size = [], 0
        for part in answer.iter_bytes():
            size += len(part)
            if size > MOST_BYTES:
                raise SourceError(f"{self.shown}: an answer of over {MOST_BYTES >> 20} MiB")
            if self._until.is_over():
                raise SourceError(f"{self.shown}: no time left for the rest of an answer")
            parts.append(part)
        return b"".join(parts)

    def _made(self, access: Access) -> httpx.Client:
        import httpx

        try:
            return httpx.Client(verify=trust(access, httpx.create_ssl_context))
        except ValueError as exc:
            raise SourceError(f"the proxy of this shell: {one_line(str(exc))}") from exc


def _same_host(url: str, response: Response) -> str | None:
    """Where a redirect leads, as long as that is the same host, and no step from https to http."""
    status, headers, _ = response
    location = header(headers, "location")
    if status not in REDIRECTS or not location:
        return None
    old, new = urlsplit(url), urlsplit(urljoin(url, location))
    steps = (("http", "http"), ("http", "https"), ("https", "https"))
    is_login = any(word in new.path for word in ("login", "oauth", "signin", "sso"))
    elsewhere = old.hostname != new.hostname or (old.scheme == new.scheme and old.port != new.port)
    if (old.scheme, new.scheme) not in steps or elsewhere or is_login:
        return None
    return urlunsplit((new.scheme, new.netloc, new.path, "", ""))


def _transport_error(name: str, exc: httpx.TransportError) -> SourceError:
    import httpx

    said = one_line(str(exc)) or type(exc).__name__
    if "CERTIFICATE_VERIFY_FAILED" in said or "certificate verify failed" in said:
        return SourceError(f"{name}: its certificate is not trusted: {said}", hint="set ca_file")
    if isinstance(exc, httpx.ProxyError):
        return Lost(f"{name}: the proxy of this shell refused: {said}")
    if isinstance(exc, httpx.UnsupportedProtocol):
        return SourceError(f"{name}: {said}")
    return Lost(f"{name}: {said}")
