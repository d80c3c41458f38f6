"""A TCP relay that adds a round trip: the laptop is not where the API server is.

    python benchmarks/round_trip.py TARGET_PORT MILLISECONDS

Prints the port that it listens on, on loopback, and passes bytes both ways until it is ended, each piece half a round
trip late. What came within a tick goes on together, so that the relay itself costs little; it looks into nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque

TICK_S = 0.002
MOST_HELD = 1 << 20


class End(asyncio.Protocol):
    """One end of a connection: what comes in here leaves at the other end, `late_s` later."""

    def __init__(self, late_s: float) -> None:
        self.late_s = late_s
        self.other: End | None = None
        self.transport: asyncio.Transport | None = None
        self.is_over = False
        self._held: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._held.append((loop.time() + self.late_s, data))
        self._size += len(data)
        if self._size > MOST_HELD and self.transport is not None:
            self.transport.pause_reading()
        if self._timer is None:
            self._timer = loop.call_later(self.late_s, self._pass_on)

    def eof_received(self) -> bool:
        self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.is_over:
            self.is_over = True
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self.late_s, self._pass_on)

    def _pass_on(self) -> None:
        """All that is due, in one piece; then the end, where it came to that."""
        loop = asyncio.get_running_loop()
        self._timer = None
        due = []
        while self._held and self._held[0][0] <= loop.time() + TICK_S:
            due.append(self._held.popleft()[1])
        out = None if self.other is None else self.other.transport
        if due and out is not None and not out.is_closing():
            piece = b"".join(due)
            self._size -= len(piece)
            out.write(piece)
        if self._held:
            self._timer = loop.call_at(max(self._held[0][0], loop.time() + TICK_S), self._pass_on)
        elif self.is_over and out is not None:
            out.close()
        came = self.transport
        is_waiting = came is not None and not came.is_closing() and not came.is_reading()
        if came is not None and is_waiting and self._size <= MOST_HELD:
            came.resume_reading()


class Near(End):
    """The client's end: opens the far one as it is made."""

    def __init__(self, port: int, late_s: float) -> None:
        super().__init__(late_s)
        self.port = port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.pause_reading()
        self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        """A connection takes a round trip before the first byte."""
        await asyncio.sleep(2 * self.late_s)
        far = End(self.late_s)
        assert self.transport is not None
        try:
            await asyncio.get_running_loop().create_connection(lambda: far, "127.0.0.1", self.port)
        except OSError:
            self.transport.abort()
            return
        far.other, self.other = self, far
        self.transport.resume_reading()


async def relay(port: int, round_trip_s: float) -> None:
    """Listen until the process is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Near(port, round_trip_s / 2), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(relay(int(sys.argv[1]), float(sys.argv[2]) / 1000))
