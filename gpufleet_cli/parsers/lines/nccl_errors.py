"""NCCL's error names as exceptions carry them, and NVLink SHARP that could not be bound.

torch 1.9 and later: `NCCL error in: FILE:LINE, WORDS, NCCL version V`, then `ncclXError: TEXT`, then
`Last error:` and the text of NCCL's last warning. `detail` begins with cuda, system, internal, usage,
remote or unknown: cuda is the printer's own, remote points away, system and internal may be either.
NVLS: three lines, of which the first has the prefix; node-level hardware or fabric state (pytorch #177472).

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, '''torch.distributed.DistBackendError: NCCL error in: x/NCCLUtils.cpp:77, \\
... remote process exited or there was a network error, NCCL version 2.21.5
... ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
... Last error:
... socketProgress: Connection closed by remote peer worker-1<41230>''')
>>> fact.detail
'remote: socketProgress: Connection closed by remote peer worker-1<41230>'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.groups import parse_group
from gpufleet_cli.parsers.lines.nccl_prefix import nccl_speaker
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    continuation,
    make_sign,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_KINDS = (
    ("unhandled cuda error", "cuda"),
    ("unhandled system error", "system"),
    ("internal error", "internal"),
    ("invalid usage", "usage"),
    ("invalid argument", "usage"),
    ("remote process exited or there was a network error", "remote"),
    ("ncclUnhandledCudaError", "cuda"),
    ("ncclSystemError", "system"),
    ("ncclInternalError", "internal"),
    ("ncclInvalidUsage", "usage"),
    ("ncclInvalidArgument", "usage"),
    ("ncclRemoteError", "remote"),
)
_SIZE = re.compile(r"Multicast memory of size (?P<size>\d{1,20})")


def _error(line: LogLine, following: Following) -> Iterator[Fact]:
    """One sign for the exception's line, with the words of the last warning that follow it."""
    named = parse_group(line.text)
    last = _last_error(line, following)
    yield make_sign(
        Sign.ASYNC_ERROR,
        line,
        group=named[0] if named is not None else None,
        speaker=nccl_speaker(line),
        detail=f"{nccl_kind(line.text)}: {last if last is not None else line.text}",
    )


def nccl_kind(text: str) -> str:
    """cuda, system, internal, usage, remote or unknown.

    >>> nccl_kind("NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)")
    'system'
    """
    for words, kind in _KINDS:
        if words in text:
            return kind
    return "unknown"


def _last_error(line: LogLine, following: Following) -> str | None:
    """The text after `Last error:`, which stands within four lines."""
    is_next = False
    for later in continuation(line, following, 4):
        text = later.text.strip()
        if is_next and text:
            return text
        _, mark, tail = text.partition("Last error:")
        if mark and tail.strip():
            return tail.strip()
        is_next = bool(mark) or (is_next and not text)
    return None


def _error_name(line: LogLine, following: Following) -> Iterator[Fact]:
    """The second line of an exception; only where the first is not on the same line."""
    if "NCCL error" not in line.text:
        yield from _error(line, following)


def _nvls(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _SIZE.search(line.text)
    size = f" of {found['size']} bytes" if found is not None else ""
    yield make_sign(
        Sign.NVLS_FAILED,
        line,
        speaker=nccl_speaker(line),
        detail=f"multicast memory{size} not bound",
    )


_RULES: tuple[Rule, ...] = (
    (
        (
            "NCCL error in: ",
            "NCCL error: ",
            "NCCL Error ",
            "following async exception: NCCL",
            "NCCL operation ",
        ),
        _error,
    ),
    (
        (
            "ncclUnhandledCudaError:",
            "ncclSystemError:",
            "ncclInternalError:",
            "ncclInvalidUsage:",
            "ncclInvalidArgument:",
            "ncclRemoteError:",
        ),
        _error_name,
    ),
    (("Failed to bind NVLink SHARP",), _nvls),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """NCCL's error names, and NVLS that failed."""
    return by_literal(_RULES, line, following)
