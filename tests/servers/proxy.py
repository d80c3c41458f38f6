"""A reverse proxy that makes faults and counts requests, in front of any server of the tests.

    with proxy.running(cluster.url, folder=cluster.folder) as it:
        it.throttle(seconds=10)
        ... a client of it.url ...
        assert it.count("GET", "/log") == 4

`faults` says which there are.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from servers.faults import FaultProxy, Seen

_PIECE = 64 * 1024
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "proxy-connection"}


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client, with one of ours to the server behind it."""

    protocol_version = "HTTP/1.1"
    proxy: FaultProxy
    upstream: http.client.HTTPConnection | None = None
    upstream_tls: ssl.SSLContext | None

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def setup(self) -> None:
        """Small writes go out at once."""
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def finish(self) -> None:
        """Close our connection with the client's."""
        if self.upstream is not None:
            self.upstream.close()
        with suppress(OSError):
            super().finish()

    def serve(self) -> None:
        """One request."""
        agent = self.headers.get("User-Agent", "")
        seen = Seen(verb=self.command, path=self.path, began=time.monotonic(), user_agent=agent)
        self.proxy.enter(seen)
        try:
            if self.proxy.latency_s:
                time.sleep(self.proxy.latency_s)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            odd = self.proxy.fault(self.path)
            if odd is None and self.headers.get("Upgrade"):
                seen.status = 101
                self._tunnel()
            elif odd is None:
                self._forward(body, seen)
            elif odd.status == 0:
                self.proxy.ended.wait()
                self.close_connection = True
            else:
                seen.status = odd.status
                self._send_head(odd.status, {**odd.headers, "Content-Length": str(len(odd.body))})
                self.wfile.write(odd.body)
        except OSError:  # one of the two sides went away
            self.close_connection = True
        finally:
            self.proxy.leave()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = serve

    def _forward(self, body: bytes, seen: Seen) -> None:
        """Pass request and answer on, the answer piece by piece."""
        try:
            answer = self._ask(body)
        except (OSError, http.client.HTTPException) as error:
            self._drop_upstream()
            seen.status = 502
            text = f"proxy: {error}\n".encode()
            self._send_head(502, {"Content-Length": str(len(text))})
            self.wfile.write(text)
            return
        seen.status = answer.status
        cut_after = self.proxy.reset_after(self.path)
        headers = {
            name: value for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP
        }
        sized = "content-length" in {name.lower() for name in headers} or answer.status in (
            204,
            304,
        )
        if not sized:
            headers["Transfer-Encoding"] = "chunked"
        self._send_head(answer.status, headers)
        if self.command != "HEAD":
            self._pass_body(answer, chunked=not sized, cut_after=cut_after)

    def _ask(self, body: bytes) -> http.client.HTTPResponse:
        """The answer of the server behind, on a connection that is kept; once more where that was stale."""
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP
        }
        for again in (True, False):
            fresh = self.upstream is None
            try:
                self.upstream = self.upstream or self._connect()
                self.upstream.request(self.command, self.path, body or None, headers)
                return self.upstream.getresponse()
            except (OSError, http.client.HTTPException):
                self._drop_upstream()
                if fresh or not again:
                    raise
        raise AssertionError("unreachable")

    def _connect(self) -> http.client.HTTPConnection:
        """A new connection to the server behind."""
        place = urlsplit(self.proxy.target)
        assert place.hostname is not None
        if place.scheme == "https":
            return http.client.HTTPSConnection(
                place.hostname, place.port, timeout=90, context=self.upstream_tls
            )
        return http.client.HTTPConnection(place.hostname, place.port, timeout=90)

    def _drop_upstream(self) -> None:
        """Forget our connection."""
        if self.upstream is not None:
            self.upstream.close()
        self.upstream = None

    def _send_head(self, status: int, headers: dict[str, str]) -> None:
        """Status line and headers, without those that Python would add."""
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _pass_body(
        self, answer: http.client.HTTPResponse, *, chunked: bool, cut_after: int | None
    ) -> None:
        """The body as it comes; cut where the fault says so."""
        passed = 0
        while piece := answer.read1(_PIECE):
            if cut_after is not None and passed + len(piece) > cut_after:
                piece = piece[: cut_after - passed]
                self._write_piece(piece, chunked=chunked)
                self._cut()
                return
            passed += len(piece)
            self._write_piece(piece, chunked=chunked)
        if cut_after is not None:
            self._cut()
        elif chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _write_piece(self, piece: bytes, *, chunked: bool) -> None:
        """One piece of the body, at once."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        self.wfile.flush()

    def _cut(self) -> None:
        """Reset the client's connection: no orderly end, no TLS goodbye."""
        self._drop_upstream()
        self.close_connection = True
        linger = struct.pack("ii", 1, 0)
        raw = socket.socket(fileno=self.connection.detach())
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        raw.close()

    def _tunnel(self) -> None:
        """An upgrade (exec by SPDY or WebSocket): pass the request on and then bytes both ways."""
        place = urlsplit(self.proxy.target)
        behind: socket.socket = socket.create_connection((place.hostname, place.port), timeout=90)
        if place.scheme == "https":
            assert self.upstream_tls is not None
            behind = self.upstream_tls.wrap_socket(behind, server_hostname=place.hostname)
        head = f"{self.command} {self.path} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        with behind:
            behind.sendall(head.encode() + b"\r\n")
            up = threading.Thread(target=_pump, args=(self.rfile, behind), daemon=True)
            up.start()
            with suppress(OSError):
                while piece := behind.recv(_PIECE):
                    self.wfile.write(piece)
                    self.wfile.flush()
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            up.join(5)
        self.close_connection = True


def _pump(source: Any, to: socket.socket) -> None:
    """What the client still sends, until it ends."""
    with suppress(OSError, ValueError):
        while piece := source.read1(_PIECE):
            to.sendall(piece)
    with suppress(OSError):
        to.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    """A thread per connection; faults are not worth a traceback."""

    daemon_threads = True
    request_queue_size = 256
    tls: ssl.SSLContext | None = None

    def handle_error(self, *_: object) -> None:
        """A client that went away, or that was cut."""

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the connection's own thread."""
        if self.tls is not None:
            request.settimeout(20)
            request = self.tls.wrap_socket(request, server_side=True)
            request.settimeout(None)
        with request:
            super().finish_request(request, client_address)


@contextmanager
def running(target: str, *, folder: Path | None = None) -> Iterator[FaultProxy]:
    """A proxy in front of `target`. With the folder of a cluster it speaks TLS by that cluster's authority."""
    server = _Server(("127.0.0.1", 0), _Handler)
    scheme, behind = "http", None
    if folder is not None:
        scheme = "https"
        server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.tls.load_cert_chain(folder / "server.crt", folder / "server.key")
        behind = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    made = FaultProxy(target.rstrip("/"), f"{scheme}://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = type(
        "Handler", (_Handler,), {"proxy": made, "upstream_tls": behind}
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
