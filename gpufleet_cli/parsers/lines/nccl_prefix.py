"""The prefix of NCCL's own lines: who wrote it, as HOST:PID:TID, and whether it is INFO or WARN.

    gpu-b07:4100:4800 [0] NCCL INFO Using network IB
    gpu-d48:34050:34121 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error
    [2026-01-01 12:08:32] pod-1:7:9 [0] int cm_entry(a_t*, b_t*):46 NCCL WARN NET/OFI Request ...

WARN lines carry a source place: FILE:LINE, from 2.30.7 with ` (FUNC)`, from aws-ofi-nccl
`function:line` or a whole C++ signature with spaces. `[DEV]` is the calling thread's device and often
0 for every process, so it is not used. HOST is cut at the first dot; in a pod it is the pod's name.

>>> parse_prefix("[2026-01-01 12:08:32] pod-1:7:9 [0] int f(a_t*, b_t*):46 NCCL WARN NET/OFI Request 0x1")
NcclPrefix(host='pod-1', pid=7, level='WARN', message='NET/OFI Request 0x1')
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpufleet_cli.facts import Speaker
from gpufleet_cli.parsers.lines.signs import spoken_by
from gpufleet_cli.parsers.log_line import LogLine

_PREFIX = re.compile(
    r"(?P<host>[A-Za-z0-9][\w.-]{0,252}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) \[-?\d{1,4}\] "
    r"(?:[^\n]{0,400}?)NCCL (?P<level>INFO|WARN|TRACE|ABORT) ?"
)


@dataclass(frozen=True, slots=True)
class NcclPrefix:
    """Who wrote an NCCL line, and what comes after the prefix."""

    host: str
    pid: int
    level: str
    message: str


def parse_prefix(text: str) -> NcclPrefix | None:
    """The prefix of a line, or None where it is not NCCL's."""
    found = _PREFIX.search(text)
    if found is None:
        return None
    return NcclPrefix(found["host"], int(found["pid"]), found["level"], text[found.end() :])


def nccl_speaker(line: LogLine) -> Speaker:
    """The line's speaker, with host and pid of NCCL's prefix where nothing else gave them."""
    prefix = parse_prefix(line.text)
    if prefix is None:
        return line.speaker
    return spoken_by(line.speaker, host=prefix.host, pid=prefix.pid)
