"""NCCL network plugins: AWS EFA (aws-ofi-nccl, libfabric) and Google's FasTrak, called TCPXO.

EFA: 4124 and device status 13 are a peer that answered before, 4126 and 15 one that never did (from every
pair at the first collective: a security group, nobody to blame), 9 and 8 a peer whose process ended,
1 to 6 are local. `Peer host id` is an EC2 instance id, or N/A before the handshake.
Codes: https://github.com/ofiwg/libfabric/blob/main/prov/efa/src/efa_errno.h
FasTrak: messages carry their own time; `RxDM not ready` speaks of this node's own daemon.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "pod-1:7:9 [0] int f(fi_cq_err_entry*, uint16_t):46 NCCL WARN NET/OFI Request "
...     "0x7f10 completed with error. RC: 103. Error: 4124 (Unresponsive remote. My EFA addr: fi_addr_efa://"
...     "[fe80::1]:2:3 My host id: i-0aa Peer EFA addr: fi_addr_efa://[fe80::2]:1:2 Peer host id: i-0bb)")
>>> fact.sign.value, fact.peer, fact.detail.partition(":")[0]
('peer-unreachable', 'i-0bb', 'EFA 4124')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.nccl_prefix import nccl_speaker
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    cut,
    make_sign,
    patterns_of,
    spoken_by,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_CODE = re.compile(r"Error: (?:(?P<code>\d{1,6})\b)? ?(?P<text>[^\n]{0,300})")
_LIBFABRIC = re.compile(r"err: ?(?P<code>\d{1,6}), message: ?(?P<text>[^\n]{0,300})")
_PEER_HOST = re.compile(r"Peer host id: ?(?P<host>[\w./-]{1,64})")
_PEER_ADDRESS = re.compile(r"Peer EFA addr: ?(?P<address>\S{1,120})")
_MY_HOST = re.compile(r"My host id: ?(?P<host>[\w./-]{1,64})")
_RXDM_HOST = re.compile(r"RxDM not ready on (?P<host>[\w.-]{1,253}) after (?P<seconds>\d{1,7})")
_RXDM = re.compile(r"RxDM not ready after (?P<seconds>\d{1,7}) seconds")
_SIGNS = {
    1: Sign.PEER_CLOSED,
    8: Sign.PEER_CLOSED,
    9: Sign.PEER_CLOSED,
    13: Sign.PEER_UNREACHABLE,
    15: Sign.PEER_UNREACHABLE,
    4124: Sign.PEER_UNREACHABLE,
    4126: Sign.PEER_UNREACHABLE,
} | dict.fromkeys((2, 3, 4, 5, 6), Sign.NIC_ERROR)
_WORDS = (
    ("unresponsive", Sign.PEER_UNREACHABLE),
    ("unreachable", Sign.PEER_UNREACHABLE),
    ("handshake", Sign.PEER_UNREACHABLE),
    ("destination qp", Sign.PEER_CLOSED),
    ("flushed", Sign.PEER_CLOSED),
)


def _efa(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _CODE.search(line.text) or _LIBFABRIC.search(line.text)
    if found is None:
        return
    code = int(found["code"]) if found["code"] is not None else None
    host, address = _PEER_HOST.search(line.text), _PEER_ADDRESS.search(line.text)
    peer = host["host"] if host is not None and host["host"] != "N/A" else None
    mine = _MY_HOST.search(line.text)
    words = found["text"].partition("My EFA addr")[0].partition("Peer host id")[0].strip(" ()")
    peer_address = f"; peer {address['address']}" if address is not None else ""
    mine_id = f"; my host id {mine['host']}" if mine is not None else ""
    yield make_sign(
        _sign_of(code, found["text"], is_device="libfabric:" not in line.text),
        line,
        speaker=nccl_speaker(line),
        peer=peer if peer is not None or address is None else address["address"],
        detail=f"EFA {code if code is not None else 'error'}: {cut(words, 80)}{peer_address}{mine_id}",
    )


def _sign_of(code: int | None, text: str, *, is_device: bool) -> Sign:
    """By the words first; then by the code, which libfabric's own lines give as a plain errno."""
    low = text.lower()
    for word, sign in _WORDS:
        if word in low:
            return sign
    if code is not None and is_device and code in _SIGNS:
        return _SIGNS[code]
    return Sign.REMOTE_ERROR


def _rxdm(line: LogLine, following: Following) -> Iterator[Fact]:
    here, retry = _RXDM_HOST.search(line.text), _RXDM.search(line.text)
    found = here if here is not None else retry
    if found is None:
        return
    speaker = nccl_speaker(line)
    yield make_sign(
        Sign.NETWORK_SETUP_FAILED,
        line,
        speaker=spoken_by(speaker, host=here["host"]) if here is not None else speaker,
        value=float(found["seconds"]),
        detail="FasTrak: RxDM not ready" if here is not None else "weak: RxDM not ready, retrying",
    )


_RULES: tuple[Rule, ...] = (
    (("completed with error. RC:", "completed with error: ", "::efa:cq:", ":efa:cq:"), _efa),
    (("RxDM not ready",), _rxdm),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Errors of EFA and FasTrak."""
    return by_literal(_RULES, line, following)
