"""Lines that a container runtime split, whole again.

CRI marks a part with P, Docker's json-file leaves the newline off the end of `log`; both split at some
16 KiB, per byte stream, and lines of the other stream may stand between the parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from gpufleet_cli.parsers.log_text import TEXT_LIMIT, decode, printable
from gpufleet_cli.parsers.scan import Scanner, compile_patterns
from gpufleet_cli.parsers.wrappers import Plan, unwrap

MAX_PARTS = 256
JOINED_LIMIT = 1 << 20
RUNTIME = re.compile(r'\S{20,40} std(?:out|err) [FP]|\{"log": ?"')
"""Lines of a runtime's own file, which may have parts."""

_PART = re.compile(rb"\S{20,40} std(?:out|err) P(?::\S{1,32})? ")
_STREAM = re.compile(rb'[ "](std(?:out|err))[ "]')
_LOG_END = re.compile(rb'(\\n|.)", ?"stream": ?"std')
_DOCKER_PART = r'(?:[^n]|[^\\]n)", ?"stream": ?"std'
_DOCKER_TAIL = 512
_MAX_BETWEEN = 16


@lru_cache(maxsize=1)
def _docker_parts() -> Scanner:
    return compile_patterns([(_DOCKER_PART,)])


def has_parts(data: bytes) -> bool:
    """Whether any line of a runtime's file is split."""
    if data[:1] == b"{":
        return next(_docker_parts().spans(data, 0, len(data)), None) is not None
    return b" stderr P" in data or b" stdout P" in data


def joined(
    data: bytes, text: str, start: int, end: int, plan: Plan
) -> tuple[str, tuple[int, ...], int]:
    """A line that the runtime split, whole again: the further parts of the same byte stream."""
    stream = _byte_stream(data[start:end])
    pieces, parts, size = [text], [], len(text)
    last, at = end, end + 1
    for _ in range(MAX_PARTS):
        if at >= len(data) or size > JOINED_LIMIT:
            break
        stop = data.find(b"\n", at)
        stop = len(data) if stop < 0 else stop
        line = data[at : min(stop, at + TEXT_LIMIT)]
        if _byte_stream(line) == stream:
            found = unwrap(printable(decode(line)), plan, depth=1)
            pieces.append(found.text or "")
            parts.append(at)
            size += len(pieces[-1])
            last = stop
            if not found.partial:
                break
        at = stop + 1
    return "".join(pieces), tuple(parts), last


def _byte_stream(line: bytes) -> bytes | None:
    """`stdout` or `stderr` of a line of CRI or Docker."""
    found = _STREAM.search(line[-256:]) if line[:1] == b"{" else _STREAM.search(line[:64])
    return None if found is None else found[1]


def first_part(data: bytes, start: int, is_taken: Callable[[int], bool]) -> int:
    """The offset of the line that this one continues, itself for nearly all lines.

    Lines of the other byte stream may stand between the parts of a line. `is_taken` tells of a line
    whether it was joined to an earlier one already, without this one.
    """
    line_end = data.find(b"\n", start)
    stream = _byte_stream(data[start : len(data) if line_end < 0 else line_end])
    first = at = start
    between = 0
    for _ in range(MAX_PARTS):
        if at <= 0 or between >= _MAX_BETWEEN:
            break
        end = at - 1
        at = data.rfind(b"\n", 0, end) + 1
        line = data[at : min(end, at + TEXT_LIMIT)] if data[at : at + 1] != b"{" else data[at:end]
        if _byte_stream(line) != stream:
            between += 1
            continue
        if not _is_part(line) or is_taken(at):
            break
        first, between = at, 0
    return first


def _is_part(line: bytes) -> bool:
    if line[:1] == b"{":
        found = _LOG_END.search(line[-_DOCKER_TAIL:])
        return found is not None and found[1] != b"\\n"
    return _PART.match(line) is not None
