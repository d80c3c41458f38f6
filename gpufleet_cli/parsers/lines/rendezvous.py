"""The store and the rendezvous of torch.distributed, and its gloo backend (torch 1.9 to 2.10).

A lost store is a consequence: its host (rank 0, the master) ended, and every client prints it with the
MASTER's address. "J/N clients joined" points at the absent ones; a client that cannot connect at the
master. A missed keep-alive is often harmless, so it is a lost store, marked weak. A gloo operation
that timed out names no peer: its printer waited (gloo #511).

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for "
...     "clients. 3/4 clients joined.")
>>> fact.joined, fact.expected, fact.value
(3, 4, 901.0)
>>> fact, = read(recognise, "[W410 06:15:04.600000411 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl("
...     "fd=3, addr=[pt-job-worker-0]:50001, remote=[pt-job-master-0.ml.svc.cluster.local]:23456): failed to recv")
>>> fact.sign.value, fact.peer
('store-lost', 'pt-job-master-0.ml.svc.cluster.local')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign, WatchdogTimeout
from gpufleet_cli.parsers.lines.signs import (
    Handler,
    Rule,
    by_literal,
    fixed,
    make_sign,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_REMOTE = re.compile(r"remote=\[?(?P<host>[^\]\s,]{1,253}?)\]?:(?P<port>\d{1,5})\)")
_WAITING = re.compile(
    r"Timed out after (?P<seconds>\d{1,9}) seconds? waiting for clients(?:\. "
    r"(?P<joined>\d{1,7})/(?P<expected>\d{1,7}) clients joined)?"
)
_BARRIER = re.compile(
    r"store based barrier[^\n]{0,120}?rank:? ?(?P<rank>\d{1,7})[^\n]{0,200}?world_size=(?P<expected>\d{1,7}), "
    r"(?:worker_count|num_workers_joined)=(?P<joined>\d{1,7})"
)
_CLIENT = re.compile(
    r"client socket has timed out after (?P<time>\d{1,12})(?P<unit>ms|s) while trying to connect to "
    r"\((?P<host>[^,\s)]{1,253}), ?(?P<port>\d{1,5})\)"
)
_RENDEZVOUS = re.compile(r"Rendezvous(?P<kind>Timeout|Closed|Connection|GracefulExit)Error")
_KEEP_ALIVE = re.compile(r"The node '(?P<node>[^'\n]{1,253})' has failed to send a keep-alive")
_PORT = re.compile(r"(?:\]|\)|port|:)[: ]{1,2}(?P<port>\d{2,5})\b")
_STORE_WAIT = re.compile(r"wait timeout after (?P<ms>\d{1,12}) ?ms, keys: (?P<keys>[^\n)]{1,200})")
_GLOO_PEER = re.compile(
    r"(?:closed by peer|Read error|Connect timeout|Write error) \[?(?P<ip>[0-9a-fA-F.:]{2,60}?)\]?:\d{1,5}"
)
_GLOO_WAIT = re.compile(r"Timed out waiting (?P<ms>\d{1,12}) ?ms for (?P<op>recv|send) operation")
_GLOO_MESH = re.compile(
    r"\[Gloo\] Rank (?P<rank>\d{1,7}) is connected to (?P<have>\d{1,7}) peer ranks?\. "
    r"Expected number of connected peer ranks is ?: (?P<want>\d{1,7})"
)


def _store_lost(detail: str) -> Handler:
    def handler(line: LogLine, following: Following) -> Iterator[Fact]:
        remote = _REMOTE.search(line.text)
        host = remote["host"] if remote is not None else None
        yield make_sign(Sign.STORE_LOST, line, peer=host, detail=detail)

    return handler


def _waiting(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _WAITING.search(line.text)
    if found is not None:
        joined, expected = found["joined"], found["expected"]
        yield make_sign(
            Sign.CLIENTS_JOINED,
            line,
            joined=int(joined) if joined is not None else None,
            expected=int(expected) if expected is not None else None,
            value=float(found["seconds"]),
            detail="at the store",
        )


def _barrier(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _BARRIER.search(line.text)
    if found is not None:
        yield make_sign(
            Sign.CLIENTS_JOINED,
            line,
            joined=int(found["joined"]),
            expected=int(found["expected"]),
            detail=f"store based barrier, said by rank {found['rank']}",
        )


def _client(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _CLIENT.search(line.text)
    if found is not None:
        seconds = int(found["time"]) / (1000 if found["unit"] == "ms" else 1)
        yield make_sign(
            Sign.RENDEZVOUS_FAILED,
            line,
            peer=found["host"],
            value=seconds,
            detail=f"cannot connect to the master ({found['host']}, {found['port']})",
        )


def _rendezvous(line: LogLine, following: Following) -> Iterator[Fact]:
    """A rendezvous error; the one inside a keep-alive warning says little."""
    found = _RENDEZVOUS.search(line.text)
    if found is not None and _KEEP_ALIVE.search(line.text) is None:
        yield make_sign(Sign.RENDEZVOUS_FAILED, line, detail=f"{found.group()}: {line.text}")


def _keep_alive(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _KEEP_ALIVE.search(line.text)
    node = f" of {found['node']}" if found is not None else ""
    yield make_sign(Sign.STORE_LOST, line, detail=f"weak: keep-alive{node} failed")


def _port(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _PORT.search(line.text.partition("bind to")[2] or line.text.partition("port")[2])
    port = f" {found['port']}" if found is not None else ""
    yield make_sign(Sign.PORT_IN_USE, line, detail=f"port{port} in use")


def _store_wait(line: LogLine, following: Following) -> Iterator[Fact]:
    """A key that nobody wrote; the wait for ncclUniqueId is told by its own line."""
    found = _STORE_WAIT.search(line.text)
    if found is not None and "ncclUniqueId" not in line.text:
        yield make_sign(
            Sign.STORE_WAIT,
            line,
            value=int(found["ms"]) / 1000,
            detail=f"waits for key {found['keys']}",
        )


def _gloo_peer(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _GLOO_PEER.search(line.text)
    if found is None:
        return
    is_connect = "Connect timeout" in found.group()
    sign = Sign.PEER_UNREACHABLE if is_connect else Sign.PEER_CLOSED
    yield make_sign(sign, line, peer=found["ip"], detail=f"gloo: {found.group()}")


def _gloo_wait(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _GLOO_WAIT.search(line.text)
    if found is not None:
        yield WatchdogTimeout(
            speaker=line.speaker,
            at_ns=line.at_ns,
            group=None,
            group_rank=None,
            seq=None,
            op=f"gloo {found['op']}",
            numel_in=None,
            numel_out=None,
            timeout_ms=int(found["ms"]),
            ran_ms=int(found["ms"]),
            origin=line.origin,
        )


def _gloo_mesh(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _GLOO_MESH.search(line.text)
    if found is not None and int(found["have"]) != int(found["want"]):
        yield make_sign(
            Sign.CLIENTS_JOINED,
            line,
            joined=int(found["have"]) + 1,
            expected=int(found["want"]) + 1,
            detail=f"gloo peers of rank {found['rank']}",
        )


_TORCH_BUG = "torch bug: the survivor became rank 0 after a scale-down; nobody to blame"
_RULES: tuple[Rule, ...] = (
    (
        (
            "recvValue failed on SocketImpl",
            "sendBytes failed on SocketImpl",
            "recvBytes failed on SocketImpl",
            "recvVector failed on SocketImpl",
        ),
        _store_lost("store connection lost"),
    ),
    (
        (
            "RuntimeError: Connection reset by peer",
            "DistNetworkError: Connection reset by peer",
            "RuntimeError: Broken pipe",
            "DistNetworkError: Broken pipe",
            "DistNetworkError: failed to recv",
            "DistNetworkError: Failed to recv",
            "DistNetworkError: failed to send",
        ),
        _store_lost("store connection lost"),
    ),
    (
        ("RuntimeError: Socket Timeout", "DistStoreError: Socket Timeout"),
        _store_lost("socket timeout at the store"),
    ),
    (("waiting for clients",), _waiting),
    (("Timed out initializing process group in store based barrier",), _barrier),
    (("client socket has timed out",), _client),
    (
        (
            "RendezvousTimeoutError",
            "RendezvousClosedError",
            "RendezvousConnectionError",
            "RendezvousGracefulExitError",
        ),
        _rendezvous,
    ),
    (("has failed to send a keep-alive",), _keep_alive),
    (("EADDRINUSE", "Address already in use"), _port),
    (("wait timeout after ",), _store_wait),
    (
        ("Connection closed by peer [", "Read error [", "Write error [", "Connect timeout ["),
        _gloo_peer,
    ),
    (("ms for recv operation to complete", "ms for send operation to complete"), _gloo_wait),
    (("[Gloo] Rank ",), _gloo_mesh),
    (("connectFullMesh failed",), fixed(Sign.RENDEZVOUS_FAILED, "gloo: full mesh not connected")),
    (
        ("assert self._shared_tcp_store_server is not None",),
        fixed(Sign.OTHER_CAUSE, _TORCH_BUG),
    ),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Lost stores, missing clients, failed rendezvous, gloo peers."""
    return by_literal(_RULES, line, following)
