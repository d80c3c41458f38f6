"""NCCL's plain sockets: bootstrap, out-of-band and socket transport (NCCL 2.4 to 2.30).

A connection that the peer closed means that the peer's process ended: it is earlier in the chain, not
always its root. To 2.9 the peer has no name. A connection that could not be made points at the peer.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "trainer-worker-0:70:570 [0] misc/socket.cc:50 NCCL WARN socketProgress: "
...     "Connection closed by remote peer trainer-worker-1.trainer.train.svc.cluster.local<41230>")
>>> fact.sign.value, fact.peer, fact.speaker.host, fact.speaker.pid
('peer-closed', 'trainer-worker-1.trainer.train.svc.cluster.local', 'trainer-worker-0', 70)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.nccl_prefix import nccl_speaker, parse_prefix
from gpufleet_cli.parsers.lines.signs import Rule, by_literal, cut, make_sign, patterns_of
from gpufleet_cli.parsers.log_line import Following, LogLine

_PEER = re.compile(r"\[?(?P<peer>[0-9A-Za-z:][\w.:%-]{0,252}?)\]?\s?<(?P<port>\d{1,5})>")
_FAILED = re.compile(r"failed ?:? ?(?P<why>[^\n]{0,120})")


def _peer(text: str) -> str | None:
    """The address that the line points at: the last one, since the prefix may hold one too."""
    peers = [found["peer"] for found in _PEER.finditer(text)]
    return peers[-1] if peers else None


def _words(line: LogLine) -> str:
    prefix = parse_prefix(line.text)
    return cut(prefix.message if prefix is not None else line.text, 200)


def _closed(line: LogLine, following: Following) -> Iterator[Fact]:
    yield make_sign(
        Sign.PEER_CLOSED,
        line,
        speaker=nccl_speaker(line),
        peer=_peer(line.text),
        detail="closed by the remote peer",
    )


def _call(line: LogLine, following: Following) -> Iterator[Fact]:
    """A send or receive that failed: the other side ended, unless the network timed out."""
    why = _FAILED.search(line.text)
    reason = why["why"] if why is not None else _words(line)
    is_network = any(word in reason for word in ("timed out", "No route", "unreachable"))
    yield make_sign(
        Sign.PEER_UNREACHABLE if is_network else Sign.PEER_CLOSED,
        line,
        speaker=nccl_speaker(line),
        peer=_peer(line.text),
        detail=reason,
    )


def _connect(line: LogLine, following: Following) -> Iterator[Fact]:
    """A connection that could not be made; one that is tried again accuses nobody."""
    weak = "weak: " if "retrying" in line.text else ""
    yield make_sign(
        Sign.PEER_UNREACHABLE,
        line,
        speaker=nccl_speaker(line),
        peer=_peer(line.text) if not weak else None,
        detail=f"{weak}{_words(line)}",
    )


_RULES: tuple[Rule, ...] = (
    (("onnection closed by remote peer",), _closed),
    (
        (
            "Call to recv from ",
            "Call to send to ",
            "Call to recvmsg from ",
            "Call to sendmsg to ",
            "Call to recv failed",
            "Call to send failed",
        ),
        _call,
    ),
    (
        (
            "socketStartConnect: Connect to",
            "socketPollConnect",
            "Call to connect returned",
            "Net : Connect to",
        ),
        _connect,
    ),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Peers that closed a connection, or with whom none could be made."""
    return by_literal(_RULES, line, following)
