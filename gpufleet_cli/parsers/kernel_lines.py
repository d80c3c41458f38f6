"""Kernel messages inside another log: a log store's answer, a collector's export, a pasted line.

Satisfies `log_line.Recogniser`. The wrapper gives time and speaker; a prefix of the kernel's own
inside the text is taken off as in a file. Files that are kernel logs by their name are left to
`kernel_log`, or their events would count twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpufleet_cli.facts import Fact, XidEvent
from gpufleet_cli.parsers import kernel_log, kernel_prefix
from gpufleet_cli.parsers.log_line import Following, LogLine

PATTERNS: tuple[str, ...] = (
    r"Xid \((?:PCI:)?[0-9a-fA-F:.]+",
    r"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?[0-9a-fA-F]+:",
    r"fallen off the bus",
    r"oom-kill:constraint=",
    r"Killed process \d+",
    r"nfs: server \S+ (?:not responding|OK)",
    r"INFO: task .+ blocked for more than",
    r"LustreError: ",
    r"soft lockup - CPU#",
    r"Kernel panic - not syncing",
    r"pciehp: Slot",
    r"AER: .*error",
    r"mlx5_core [0-9a-f:.]+",
    r"amdgpu [0-9a-f:.]+",
)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """What the message says; Xids from here have the source "log"."""
    del following
    if kernel_log.is_kernel_path(line.path):
        return
    read = kernel_prefix.read(line.text, near_ns=line.at_ns)
    if not read.is_kernel:
        return
    if read.ns is None:
        read = read._replace(ns=line.at_ns, zone_stated=line.zone_stated)
    node = read.host or line.speaker.node or line.speaker.host or line.speaker.pod
    for fact in kernel_log.read_line(read, node, line.origin):
        yield replace(fact, source="log") if isinstance(fact, XidEvent) else fact
