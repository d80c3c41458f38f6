"""The proxy makes the faults it promises and counts what came."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import urllib3
from servers import proxy
from servers.faults import FaultProxy

BODY = b"line of a log\n" * 1000


class _Target(BaseHTTPRequestHandler):
    """Answers every GET with the same text."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The text."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def proxied() -> Iterator[FaultProxy]:
    """A proxy in front of such a server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Target)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        with proxy.running(f"http://127.0.0.1:{server.server_port}") as it:
            yield it
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def pool() -> Iterator[urllib3.PoolManager]:
    """A client that tries once."""
    with urllib3.PoolManager(retries=False, timeout=5) as made:
        yield made


def test_passes_on_and_counts(pool: urllib3.PoolManager) -> None:
    """Bodies whole, requests by verb and path."""
    with proxied() as it:
        for path in ("/a/log?tail=1", "/a", "/b/log"):
            assert BODY == pool.request("GET", it.url + path).data
        assert (3, 2, 0) == (it.count("GET"), it.count("GET", "/log"), it.count("PATCH"))
        assert [200, 200, 200] == [one.status for one in it.seen]


def test_throttles_and_expires(pool: urllib3.PoolManager) -> None:
    """429 with Retry-After for a while; 401 after so many requests."""
    with proxied() as it:
        it.throttle(seconds=60, retry_after_s=7)
        answer = pool.request("GET", it.url)
        assert (429, "7") == (answer.status, answer.headers["Retry-After"])
        it.heal()
        it.expire_after(2)
        assert [200, 200, 401] == [pool.request("GET", it.url).status for _ in range(3)]


def test_cuts_in_mid_body(pool: urllib3.PoolManager) -> None:
    """A reset, once; then all is well."""
    with proxied() as it:
        it.reset("/log", after_bytes=500, times=1)
        with pytest.raises(urllib3.exceptions.ProtocolError):
            pool.request("GET", f"{it.url}/log")
        assert BODY == pool.request("GET", f"{it.url}/log").data


def test_hangs_and_answers_oddly(pool: urllib3.PoolManager) -> None:
    """A client's own timeout must end it; a load balancer's HTML is no JSON."""
    with proxied() as it:
        it.hang("/never")
        with pytest.raises(urllib3.exceptions.TimeoutError):
            pool.request("GET", f"{it.url}/never", timeout=0.3)
        it.answer("/odd", 502, b"<html>bad gateway</html>", times=1)
        assert [502, 200] == [pool.request("GET", f"{it.url}/odd").status for _ in range(2)]
