"""What a kernel log file says of itself: its node by its name, its year, when the machine booted.

Nobody names these files alike: `gpu-b08.journal-k.log`, `dmesg-gpu-n01.txt`, `gpu-1/dmesg`,
`kern.log.2.gz`. The parts that mean "kernel log" are taken off both ends; what is left is the node,
and where nothing is left, the folder is asked.

>>> node_of("logs/kernel/gpu-b08.journal-k.log"), node_of("sos/gpu-1/var/log/kern.log.2.gz")
('gpu-b08', 'gpu-1')
"""

from __future__ import annotations

import re

from gpufleet_cli import timestamps
from gpufleet_cli.parsers import kernel_prefix

_WORD = (
    r"(?:dmesg(?:[-_.][THxk]\b)*|kern(?:el)?|klog|kmsg|journal(?:ctl)?(?:[-_]k(?:ernel)?)?|syslog|messages"
    r"|var[-_]log|boot|raw|human|iso|previous|current|all)"
)
_DATE = r"20\d{6}(?:[-_T]?\d{4,6}Z?)?|20\d\d-\d\d-\d\d(?:[-_T]\d{2}[-:]?\d{2}[-:]?\d{0,2}Z?)?"
_SUFFIX = re.compile(
    rf"(?:[._-](?:{_WORD}|log|logs|txt|text|out|json|jsonl|ndjson|export|old|gz|zst|bz2|xz|lz4|{_DATE})"
    r"|\.\d{1,2})$",
    re.IGNORECASE,
)
_PREFIX = re.compile(rf"(?:{_WORD}(?:[._-](?=.)|$)|(?:{_DATE})[._-])", re.IGNORECASE)
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_PLAIN = re.compile(
    rf"(?:{_WORD}|logs?|var|nodes?|hosts?|evidence|data|files?|sos|crash|etc|proc|run|tmp|pods?|metrics"
    r"|kernel[-_]logs?|node[-_]logs?|attempt[-_]?\d{1,4}|bundle|case|incident|host_logs|stdin|standard[-_]input|pasted|\.|)",
    re.IGNORECASE,
)
_FILE_DATE = re.compile(r"(?<!\d)(20\d\d)[-_.]?(\d\d)[-_.]?(\d\d)(?!\d)")
_AUDIT = re.compile(rb"audit\((\d{10}\.\d{3}):\d{1,10}\)")
_RTC = re.compile(rb"setting system clock to .{10,40}?\((\d{9,10})\)")
_LINUX_VERSION = b"Linux version "
LINE_BYTES = 1_024


def node_of(path: str) -> str | None:
    """The node that a kernel log's path names, None when it names none."""
    for part in reversed(path.split("/")):
        name = _stripped(part)
        if _ADDRESS.fullmatch(name):
            return name
        if not _PLAIN.fullmatch(name) and not re.fullmatch(r"[\d._-]+", name):
            return name
    return None


def _stripped(part: str) -> str:
    name, previous = part, ""
    while name != previous and not _ADDRESS.fullmatch(name):
        previous = name
        name = _SUFFIX.sub("", name)
    previous = ""
    while name != previous:
        previous = name
        name = _PREFIX.sub("", name, count=1) if _PREFIX.match(name) else name
    return name.strip("._- ")


def near_ns(path: str, data: bytes) -> int | None:
    """A time close to the lines: the newest audit stamp, else the date in the file's name."""
    found = _last(_AUDIT, b"audit(", data)
    if found is not None:
        return timestamps.from_epoch(found[0])
    dates = _FILE_DATE.findall(path)
    if not dates:
        return None
    stamp = timestamps.parse_rfc3339("{}-{}-{}T12:00:00Z".format(*dates[-1]))
    return stamp[0] if stamp else None


def boot_ns(data: bytes) -> tuple[int, str] | None:
    """When the machine booted, and how that is known: a line that has both clocks.

    `[ 12.345678] audit: type=2000 audit(1739848267.123:1)` and the clock chip's line at boot. None
    where several boots stand in one file, since seconds then mean different things.
    """
    first = data.find(_LINUX_VERSION)
    if first >= 0 and data.find(_LINUX_VERSION, first + 1) >= 0:
        return None
    for pattern, literal, how in (
        (_AUDIT, b"audit(", "audit line"),
        (_RTC, b"setting system clock to", "clock chip line"),
    ):
        found = _last(pattern, literal, data)
        epoch_ns = timestamps.from_epoch(found[0]) if found else None
        boot_s = kernel_prefix.read(found[1]).boot_s if found else None
        if epoch_ns is not None and boot_s is not None:
            return epoch_ns - timestamps.from_seconds(boot_s), how
    return None


def _last(pattern: re.Pattern[bytes], literal: bytes, data: bytes) -> tuple[str, str] | None:
    """The number that the last such line states, and the line."""
    at = data.rfind(literal)
    if at < 0:
        return None
    start = max(data.rfind(b"\n", 0, at) + 1, at - LINE_BYTES)
    found = pattern.search(data, at, at + LINE_BYTES)
    if found is None:
        return None
    return found[1].decode("ascii"), data[start : found.end()].decode("utf-8", "replace")
