"""Which bytes of a big kernel log are worth decoding: one pass for a set of literals.

google-re2 does an alternation of literals at memory speed; without it the literals are searched one
by one, which gives the same lines (`re` alternations are ten times slower).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module

LITERALS: tuple[bytes, ...] = (
    b"NVRM: ",
    b"Xid (",
    b"oom-kill:",
    b"Killed process",
    b"killed as a result of limit",
    b"nfs: server",
    b"nfs4: server",
    b"blocked for more than",
    b"blocked in I/O wait",
    b"LustreError: ",
    b"Lustre: ",
    b"EXT4-fs error",
    b"XFS (",
    b"BTRFS error",
    b"BTRFS critical",
    b"I/O error",
    b"nvme nvme",
    b"emounting filesystem read-only",
    b"ceph: ",
    b"soft lockup",
    b"LOCKUP",
    b"rcu",
    b"Kernel panic",
    b"BUG: ",
    b"kernel BUG at",
    b"Oops: ",
    b"Unable to handle kernel",
    b"general protection",
    b"trap invalid opcode",
    b"segfault at ",
    b"Machine check",
    b"[Hardware Error]",
    b"EDAC ",
    b"temperature",
    b"pciehp",
    b"Link Active not set",
    b"AER: ",
    b"PCIe Bus Error",
    b"available PCIe bandwidth",
    b"DPC: ",
    b"mlx5_core",
    b"Link is ",
    b"Link down",
    b"Link up",
    b"link status",
    b"infiniband ",
    b"amdgpu",
    b"Linux version ",
    b"reboot: ",
    b"kexec_core",
    b"sysrq: Resetting",
    b"-- Reboot --",
    b"-- Boot ",
    b'"MESSAGE":[',  # the journal's way to write a message that is no UTF-8
    b'"MESSAGE" : [',
)

try:  # the same lines either way, see the module's docstring
    _PATTERN = import_module("re2").compile(b"|".join(re.escape(literal) for literal in LITERALS))

    def _hits(data: bytes) -> Iterator[int]:
        return (found.start() for found in _PATTERN.finditer(data))

except ImportError:

    def _hits(data: bytes) -> Iterator[int]:
        return iter(hits_by_find(data))


def hits_by_find(data: bytes) -> list[int]:
    """Where a literal begins, ascending, without a regex engine."""
    found: set[int] = set()
    for literal in LITERALS:
        at = data.find(literal)
        while at >= 0:
            found.add(at)
            at = data.find(literal, at + 1)
    return sorted(found)


Bounds = Callable[[bytes, int], tuple[int, int]]
"""Where the entry around a position begins and ends."""


def line_bounds(data: bytes, at: int) -> tuple[int, int]:
    """The line around a position."""
    end = data.find(b"\n", at)
    return data.rfind(b"\n", 0, at) + 1, len(data) if end < 0 else end


def block_bounds(data: bytes, at: int) -> tuple[int, int]:
    """The entry of `journalctl -o export`: blank lines stand between."""
    start, end = data.rfind(b"\n\n", 0, at), data.find(b"\n\n", at)
    return 0 if start < 0 else start + 2, len(data) if end < 0 else end


def pretty_bounds(data: bytes, at: int) -> tuple[int, int]:
    """The entry of `journalctl -o json-pretty`: braces stand at line starts."""
    start, end = data.rfind(b"\n{", 0, at), data.find(b"\n}", at)
    return 0 if start < 0 else start + 1, len(data) if end < 0 else end + 2


def entries(data: bytes, bounds: Bounds) -> Iterator[tuple[int, int, bytes]]:
    """(offset, 1-based line number, bytes) of each entry that holds a literal, once."""
    done, line, counted = 0, 1, 0
    for at in _hits(data):
        if at < done:
            continue
        start, end = bounds(data, at)
        line += data.count(b"\n", counted, start)
        counted = start
        yield start, line, data[start:end]
        done = max(end, at + 1)
