"""A SOCKS5 proxy that knows names which nobody else does (RFC 1928, CONNECT without a login)."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

DOMAIN, CONNECT = 3, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SocksProxy:
    """Where it listens, what its names stand for, and what it was asked for."""

    url: str
    names: Mapping[str, tuple[str, int]]
    asked: list[str] = field(default_factory=list)


@contextmanager
def running_socks(names: Mapping[str, tuple[str, int]]) -> Iterator[SocksProxy]:
    """A proxy that connects these names, whatever port is asked for, and nothing else."""
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
    server.daemon_threads = True
    server.block_on_close = False
    made = SocksProxy(url=f"socks5://127.0.0.1:{server.server_address[1]}", names=names)
    server.RequestHandlerClass = partial(_Handler, made)  # type: ignore[assignment]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


class _Handler(socketserver.BaseRequestHandler):
    """One client."""

    def __init__(self, proxy: SocksProxy, *rest: object) -> None:
        self.proxy = proxy
        super().__init__(*rest)  # type: ignore[arg-type]

    def handle(self) -> None:
        with suppress(OSError, struct.error):
            self._serve()

    def _serve(self) -> None:
        methods = self._take(2)[1]
        self._take(methods)
        self.request.sendall(b"\x05\x00")
        _, command, _, kind = self._take(4)
        name = self._take(self._take(1)[0]).decode() if kind == DOMAIN else "an address"
        self._take(2)
        self.proxy.asked.append(name)
        target = self.proxy.names.get(name)
        if command != CONNECT or target is None:
            self.request.sendall(b"\x05\x04\x00\x01" + bytes(6))
            return
        with socket.create_connection(target) as there:
            self.request.sendall(b"\x05\x00\x00\x01" + bytes(6))
            back = threading.Thread(target=_copy, args=(there, self.request), daemon=True)
            back.start()
            _copy(self.request, there)
            back.join(5)

    def _take(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            piece = self.request.recv(count - len(found))
            if not piece:
                raise ConnectionResetError
            found += piece
        return found


def _copy(source: socket.socket, to: socket.socket) -> None:
    """All that comes, to the other side."""
    with suppress(OSError):
        while piece := source.recv(65536):
            to.sendall(piece)
        to.shutdown(socket.SHUT_WR)
