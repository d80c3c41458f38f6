"""Network errors of NCCL's InfiniBand and socket transports (NCCL 2.4 to 2.30, and HPC-X's copy).

A completion error names the peer it waited for: status 12 (retry exceeded) and 13 point there, 5 is a
request flushed after another error, 4 is local, 9 to 11 are told by the remote side. After an error
`opcode` and `len` are garbage. An async event is about this host's own adapter or port.
Work completion codes: https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/verbs.h

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "gpu-d51:73072:73181 [0] transport/net_ib.cc:1238 NCCL WARN NET/IB : Got "
...     "completion from peer 10.61.4.48<37940> with error 12, opcode 2, len 1, vendor err 129")
>>> fact.sign.value, fact.peer, fact.detail
('peer-unreachable', '10.61.4.48', 'status 12 (retry exceeded), vendor err 129')
>>> fact, = read(recognise, "NET/IB : mlx5_0:1 Got non-fatal async event: port error(10)")
>>> fact.sign.value, fact.device
('nic-error', 'mlx5_0:1')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.nccl_prefix import nccl_speaker
from gpufleet_cli.parsers.lines.signs import Rule, by_literal, make_sign, patterns_of
from gpufleet_cli.parsers.log_line import Following, LogLine

_PEER = r"\[?(?P<peer>[0-9A-Za-z][\w.:%-]{0,252}?|::[\w.:]{1,60})\]?\s?<(?P<port>\d{1,5})>"
_COMPLETION = re.compile(
    rf"Got completion (?:from peer {_PEER} )?with (?:error |status=)"
    r"(?:(?P<name>[A-Z_a-z ]{1,60})\()?(?P<status>\d{1,4})\)?"
)
_VENDOR = re.compile(r"vendor[ _]err[ =](?P<vendor>\d{1,6})")
_HCA = re.compile(r" hca (?P<hca>[\w.:-]{1,64})")
_EVENT = re.compile(
    r"NET/IBP? ?: ?(?:(?!Got )(?P<dev>[A-Za-z][\w.-]{0,62}(?::\d{1,3})?) )?(?:Got )?(?:non-fatal )?"
    r"async (?:fatal |error )?event ?(?P<on>on [QC]P? ?\(?[^\n:]{0,120})? ?: ?(?P<event>[^\n]{1,120})"
)
_GID = re.compile(
    r"NET/IBP? ?: ?(?:(?!Got )(?P<dev>[A-Za-z][\w.:-]{0,62}) )?(?:Got )?.{0,40}GID table change"
)
_MODIFY = re.compile(
    r"Call to ibv_modify_qp failed with (?:error )?(?:(?P<number>\d{1,4}) )?(?P<text>[^\n,\[]{0,120}?)"
    r"(?: \[errno (?P<errno>\d{1,4})\]|,|$)"
)
_DEVICE = re.compile(r" on dev (?P<dev>[\w.-]{1,60}:\d{1,3})")
_REMOTE_GID = re.compile(r"remote GID (?P<gid>[0-9a-fA-F:.]{2,60})")
_VERB = re.compile(r"Call to (?P<verb>ibv_\w{1,40}) failed(?P<why>[^\n]{0,160})")
_STATUS_NAMES = {
    1: "local length",
    2: "local QP operation",
    3: "local EEC operation",
    4: "local protection",
    5: "flushed",
    6: "memory window bind",
    7: "bad response",
    8: "local access",
    9: "remote invalid request",
    10: "remote access",
    11: "remote operation",
    12: "retry exceeded",
    13: "RNR retry exceeded",
    19: "fatal",
    20: "response timeout",
}
_STATUS_SIGNS = {5: Sign.PEER_CLOSED, 9: Sign.REMOTE_ERROR, 10: Sign.REMOTE_ERROR} | {
    11: Sign.REMOTE_ERROR,
    12: Sign.PEER_UNREACHABLE,
    13: Sign.PEER_UNREACHABLE,
    20: Sign.PEER_UNREACHABLE,
}
_ERRNO_SIGNS = {
    19: Sign.NIC_ERROR,
    22: Sign.NETWORK_SETUP_FAILED,
    61: Sign.NIC_ERROR,
    101: Sign.PEER_UNREACHABLE,
    110: Sign.PEER_UNREACHABLE,
    111: Sign.PEER_UNREACHABLE,
    113: Sign.PEER_UNREACHABLE,
}
_HARMLESS_EVENTS = ("table change", "lid change", "sm change", "pkey", "client re")


def _completion(line: LogLine, following: Following) -> Iterator[Fact]:
    """A request that ended in an error; every status of an unknown number is local to this host."""
    found = _COMPLETION.search(line.text)
    if found is None:
        return
    status = int(found["status"])
    vendor, hca = _VENDOR.search(line.text), _HCA.search(line.text)
    named = _STATUS_NAMES.get(status, found["name"] or "unknown")
    prefix = "flushed: " if status == 5 else ""
    suffix = f", vendor err {vendor['vendor']}" if vendor is not None else ""
    yield make_sign(
        _STATUS_SIGNS.get(status, Sign.NIC_ERROR),
        line,
        speaker=nccl_speaker(line),
        peer=found["peer"],
        device=hca["hca"] if hca is not None else None,
        detail=f"{prefix}status {status} ({named}){suffix}",
    )


def _event(line: LogLine, following: Following) -> Iterator[Fact]:
    """An event of this host's adapter; what changes addresses only is marked as weak."""
    found = _EVENT.search(line.text) or _GID.search(line.text)
    if found is None:
        return
    event = (found.groupdict().get("event") or "GID table change").strip()
    is_weak = any(mark in event.lower() for mark in _HARMLESS_EVENTS)
    is_back = "port active" in event
    prefix = "weak: " if is_weak else "fatal: " if "async fatal event" in line.text else ""
    yield make_sign(
        Sign.NIC_RECOVERED if is_back else Sign.NIC_ERROR,
        line,
        speaker=nccl_speaker(line),
        device=found["dev"],
        detail=f"{prefix}{event}",
    )


def _fatal(line: LogLine, following: Following) -> Iterator[Fact]:
    detail = "communicator met a fatal adapter error"
    yield make_sign(Sign.NIC_ERROR, line, speaker=nccl_speaker(line), detail=detail)


def _verb(line: LogLine, following: Following) -> Iterator[Fact]:
    """A verbs call that failed; the number of the error says on which side to look.

    One that is tried again accuses nobody: `peer` is left out.
    """
    modify = _MODIFY.search(line.text)
    found = _VERB.search(line.text)
    if found is None:
        return
    number = (modify["errno"] or modify["number"]) if modify is not None else None
    errno = int(number) if number is not None else _errno_of(line.text)
    gid, device = _REMOTE_GID.search(line.text), _DEVICE.search(line.text)
    weak = "weak: " if ", retrying " in line.text else ""
    default = Sign.NIC_ERROR if modify is not None else Sign.NETWORK_SETUP_FAILED
    yield make_sign(
        _ERRNO_SIGNS.get(errno, default) if errno is not None else default,
        line,
        speaker=nccl_speaker(line),
        peer=_ipv4_of(gid["gid"]) if gid is not None and not weak else None,
        device=device["dev"] if device is not None else None,
        detail=f"{weak}{found['verb']} errno {errno}:{found['why']}",
    )


def _errno_of(text: str) -> int | None:
    for words, errno in (
        ("timed out", 110),
        ("unreachable", 101),
        ("Invalid argument", 22),
        ("No data", 61),
        ("No such device", 19),
    ):
        if words in text:
            return errno
    return None


def _ipv4_of(gid: str) -> str:
    """The address inside an IPv4-mapped GID; any other GID as it is."""
    return gid.rpartition("ffff:")[2] if gid.lower().startswith("::ffff:") else gid


_RULES: tuple[Rule, ...] = (
    (("Got completion with ", "Got completion from peer "), _completion),
    (
        (
            "Got async event",
            "async fatal event",
            "Got async error event",
            "Got non-fatal async event",
            "GID table change",
        ),
        _event,
    ),
    (("detected in ncclIbTest",), _fatal),
    (("Call to ibv_",), _verb),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Completion errors, adapter events and failed verbs calls."""
    return by_literal(_RULES, line, following)
