"""Kernel logs: what dmesg, the journal, syslog and talosctl print, in every time form.

    2025-02-18T04:11:47+0100 gpu-b08 kernel: NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', ...
    [1840221.771034] NVRM: GPU at PCI:0000:ab:00: GPU-0b4f9a21-6d21-40ce-9a7a-7e12bb0f9c10

Prefixes are in `kernel_prefix`, the driver's messages in `kernel_xid`, the host's in `kernel_host`
and `kernel_oom`. Only lines that hold a known literal are decoded (`kernel_candidates`), bursts
become one event (`kernel_bursts`). Seconds since boot get a time when the file shows both clocks;
else `dated` gives them one, as it gives lines without a year theirs.
"""

from __future__ import annotations

import datetime
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from gpufleet_cli import timestamps
from gpufleet_cli.bundle import Evidence
from gpufleet_cli.facts import (
    Fact,
    HostEvent,
    HostSign,
    IdentityLink,
    KernelLogSpan,
    NodeBoot,
    Origin,
    SxidEvent,
    XidEvent,
)
from gpufleet_cli.parsers import (
    kernel_bursts,
    kernel_candidates,
    kernel_host,
    kernel_journal,
    kernel_oom,
    kernel_origin,
    kernel_prefix,
    kernel_xid,
)
from gpufleet_cli.parsers.kernel_host import Host
from gpufleet_cli.parsers.kernel_prefix import KernelLine

LINE_CHARS = 8_192
BOOT_ERROR_S = 2.0
SPAN_LINES = 50
OOM_GROUP_S = 5.0

Event = TypeVar("Event", XidEvent, SxidEvent, HostEvent, XidEvent | SxidEvent | HostEvent)

_KERNEL_PATH = re.compile(
    r"(?:^|[/._-])(?:dmesg|kern|kernel|klog|kmsg|journal|journalctl|syslog|messages)(?:[/._-]|$)",
    re.IGNORECASE,
)
_KERNEL_LINE = re.compile(
    rb"(?:<\d{1,3}>(?:1 )?|[\w.:-]{1,80}: (?=kern))?(?:(?:kern|user|daemon) {0,8}: {0,8}\w{3,7} {0,5}: {1,5})?"
    rb"(?:\[ {0,12}\d{1,10}\.\d{6}[\] <]|\[ {1,9}\+\d{1,6}\.\d{6}\] |\[\d{4}-\d\d-\d\dT"
    rb"|\[[^\[\]:]{0,24}[^\s\[\]\d]{1,9}\.? {1,3}\d{1,2} {1,2}\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})? 20\d\d)?[\] ]"
    rb"|\[[A-Z][a-z]{2}\d\d \d\d:\d\d\]|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]"
    rb"|[^\[]{8,60} \S{1,253} (?:[a-z0-7]{3,8}\.[a-z]{3,7} )?kern(?:el)?(?:\[\d{1,5}\])?(?:: | - - ))"
)
_JOURNAL_HEAD = re.compile(rb'"_TRANSPORT" ?: ?"|^_TRANSPORT=', re.MULTILINE)
_DELTAS = re.compile(
    rb"^\[(?:([A-Z][a-z]{2}) ?(\d{1,2}) (\d\d):(\d\d)| {0,9}\+(\d{1,9}\.\d{1,9}))\]", re.MULTILINE
)
_DELTA_HEAD = re.compile(rb"^\[ {1,9}\+\d{1,6}\.\d{6}\] ", re.MULTILINE)
_JSON_LINE = re.compile(rb"(?:\x1e|data: )?\{ ?\"")
_ANSI = re.compile(rb"\x1b\[[0-9;]{0,16}m")
_GPU_NOTICE = re.compile(r"NVRM: The NVIDIA GPU (?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F:.]{5,10})")


def matches(path: str, head: bytes) -> bool:
    """By the name, or because most lines have a kernel log's prefix. A log that only quotes a few
    kernel lines is read line by line, by `kernel_lines`."""
    if b"\x00" in head[:1024]:
        return False
    if is_kernel_path(path) or _is_mostly_kernel(head):
        return True
    return b"_TRANSPORT" in head and _JOURNAL_HEAD.search(head) is not None


def is_kernel_path(path: str) -> bool:
    """A name or folder that says dmesg, kern, journal, syslog, messages or the like."""
    return _KERNEL_PATH.search(path) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """What holds for every line of one file. `clock` gives the time at an offset (dmesg -H)."""

    path: str
    node: str | None
    near_ns: int | None
    boot_ns: int | None
    clock: Callable[[int], KernelLine | None] | None


@dataclass(slots=True)
class _Story:
    """What earlier lines said that a later line needs: open OOM kills, the GPU of a notice."""

    kills: dict[int, tuple[KernelLine, kernel_oom.OomPart, str | None, Origin]] = field(
        default_factory=dict
    )
    cgroup: tuple[KernelLine, kernel_oom.OomPart] | None = None
    notice_pci: str | None = None


def parse(evidence: Evidence) -> Iterator[Fact]:
    """Xids, SXids, host events, PCI-to-UUID links, and what stretch of time the log covers."""
    data = evidence.read()
    if b"\x1b[" in data:
        data = _ANSI.sub(b"", data)
    boot = kernel_origin.boot_ns(data)
    near = kernel_origin.near_ns(evidence.path, data)
    file = _File(
        path=evidence.path,
        node=kernel_origin.node_of(evidence.path),
        near_ns=near,
        boot_ns=boot[0] if boot else None,
        clock=_delta_clock(data, near) if _DELTA_HEAD.search(evidence.head) else None,
    )
    if boot:
        yield NodeBoot(
            node=file.node,
            boot_ns=boot[0],
            error_s=BOOT_ERROR_S,
            how=boot[1],
            origin=Origin(path=file.path),
        )
    lines = _lines(data, evidence.head, file)
    yield from kernel_bursts.collapse(_facts(lines, file))
    span = _span(data, evidence, file)
    if span:
        yield span


# --- From bytes to lines ------------------------------------------------------------------------


def _lines(data: bytes, head: bytes, file: _File) -> Iterator[tuple[int, KernelLine]]:
    """(line number, line) of every entry that may say something."""
    start = head.lstrip(b"\xef\xbb\xbf \r\n")
    if kernel_journal.is_export(head):
        for _, number, block in kernel_candidates.entries(data, kernel_candidates.block_bounds):
            entry = kernel_journal.read_export(block)
            if entry:
                yield number, entry
    elif start.startswith(b"[{"):
        yield from _json_list(data)
    elif start.startswith((b"{\n", b"{\r\n")):
        yield from _json_lines(data, kernel_candidates.pretty_bounds)
    elif _JSON_LINE.match(start):
        yield from _json_lines(data, kernel_candidates.line_bounds)
    else:
        for offset, number, raw in kernel_candidates.entries(data, kernel_candidates.line_bounds):
            line = _text_line(offset, raw, file)
            if line.is_kernel:
                yield number, line


def _json_lines(data: bytes, bounds: kernel_candidates.Bounds) -> Iterator[tuple[int, KernelLine]]:
    for _, number, raw in kernel_candidates.entries(data, bounds):
        entry = kernel_journal.read(raw)
        if entry:
            yield number, entry


def _json_list(data: bytes) -> Iterator[tuple[int, KernelLine]]:
    """`jq -s` makes one list of the entries."""
    try:
        entries = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return
    for number, raw in enumerate(entries, 1):
        entry = kernel_journal.read(bytes(raw))
        if entry:
            yield number, entry


def _text_line(offset: int, raw: bytes, file: _File) -> KernelLine:
    text = raw[: 4 * LINE_CHARS].decode("utf-8", "replace").strip("\r\ufeff")[:LINE_CHARS]
    line = kernel_prefix.read(text, near_ns=file.near_ns)
    if file.clock is not None and line.boot_s is None:
        at = file.clock(offset)
        if at is not None:
            return at._replace(message=line.message, host=line.host)
    if line.ns is None and line.boot_s is not None and file.boot_ns is not None:
        return line._replace(ns=file.boot_ns + timestamps.from_seconds(line.boot_s))
    return line


def _delta_clock(data: bytes, near_ns: int | None) -> Callable[[int], KernelLine | None]:
    """Times of `dmesg -H`, where a line states a minute or its distance from the line before."""
    offsets: list[int] = []
    stamps: list[KernelLine | None] = []
    now: KernelLine | None = None
    for found in _DELTAS.finditer(data):
        if found[5] is None:
            now = kernel_prefix.read(found[0].decode("ascii"), near_ns=near_ns)
        elif now is not None and now.ns is not None:
            now = now._replace(ns=now.ns + timestamps.from_seconds(float(found[5])))
        offsets.append(found.start())
        stamps.append(now)

    def clock(offset: int) -> KernelLine | None:
        index = bisect_right(offsets, offset) - 1
        return stamps[index] if index >= 0 else None

    return clock


# --- From lines to facts ------------------------------------------------------------------------


def _facts(lines: Iterator[tuple[int, KernelLine]], file: _File) -> Iterator[Fact]:
    story = _Story()
    links: set[tuple[str | None, str | None, str | None]] = set()
    for number, line in lines:
        node = _node(line, file)
        for fact in read_line(line, node, Origin(path=file.path, line=number), story):
            if isinstance(fact, IdentityLink):  # the driver repeats it with every error
                named = (fact.node, fact.pci_bus_id, fact.gpu_uuid)
                if named in links:
                    continue
                links.add(named)
            yield fact
    for line, part, node, origin in story.kills.values():
        yield _kill(line, part, node, origin)


def _node(line: KernelLine, file: _File) -> str | None:
    """The line's own host wins, unless it is a name that every machine has. Syslog cuts a host at its
    first dot: where the file's name goes on after it, that is the whole name."""
    if line.host is None or line.host in ("localhost", "localhost.localdomain", "-", "(none)"):
        return file.node
    if file.node is not None and file.node.startswith(f"{line.host}."):
        return file.node
    return line.host


def read_line(
    line: KernelLine, node: str | None, origin: Origin, story: _Story | None = None
) -> Iterator[Fact]:
    """What one kernel message says. `story` carries what reports of several lines need."""
    story = story if story is not None else _Story()
    message = line.message
    if "Xid (" in message:
        event = kernel_xid.sxid_event(line, node, origin) or kernel_xid.xid_event(
            line, node, origin
        )
        if event:
            yield event
        return
    if "NVRM: GPU at" in message:
        link = kernel_xid.gpu_link(line, node, origin)
        if link:
            yield link
            return
    oom = kernel_oom.read(message)
    if oom:
        yield from _oom(line, oom, node, origin, story)
        return
    notice = _GPU_NOTICE.match(message)
    if notice:
        story.notice_pci = notice["pci"]
    host = kernel_host.read(message)
    if host:
        if host.pci_bus_id is None and message.startswith("NVRM: "):
            host = host._replace(pci_bus_id=story.notice_pci)
        yield kernel_host.host_event(line, host, node, origin)


def _oom(
    line: KernelLine,
    part: kernel_oom.OomPart,
    node: str | None,
    origin: Origin,
    story: _Story,
) -> Iterator[HostEvent]:
    """One event a killed process: the line that says "Killed", with the pod of the line before."""
    if not part.killed:
        story.cgroup = (line, part)
        if part.pid is not None:
            story.kills[part.pid] = (line, part, node, origin)
        return
    told = story.kills.pop(part.pid, None) if part.pid is not None else None
    source = told[1] if told else _same_cgroup(line, story)
    if source is not None:
        part = part._replace(pod_uid=source.pod_uid, container_id=source.container_id)
    yield _kill(line, part, node, origin)


def _same_cgroup(line: KernelLine, story: _Story) -> kernel_oom.OomPart | None:
    """Old kernels name the cgroup a line before; `memory.oom.group` kills all its processes."""
    if story.cgroup is None or not line.message.startswith(("Memory cgroup", "Killed process")):
        return None
    before, part = story.cgroup
    for now_s, then_s in ((line.boot_s, before.boot_s), (_seconds(line), _seconds(before))):
        if now_s is not None and then_s is not None:
            return part if abs(now_s - then_s) <= OOM_GROUP_S else None
    return part


def _seconds(line: KernelLine) -> float | None:
    return None if line.ns is None else line.ns / 1e9


def _kill(
    line: KernelLine, part: kernel_oom.OomPart, node: str | None, origin: Origin
) -> HostEvent:
    host = Host(
        HostSign.OOM_KILL,
        pid=part.pid,
        process=part.process,
        pod_uid=part.pod_uid,
        container_id=part.container_id,
    )
    return kernel_host.host_event(line, host, node, origin)


# --- What the log covers ------------------------------------------------------------------------


def _span(data: bytes, evidence: Evidence, file: _File) -> KernelLogSpan | None:
    """First and last time of the log, None for a file that only quotes kernel lines."""
    if not matches(evidence.path, evidence.head):
        return None
    raw = data.split(b"\n", SPAN_LINES)[:SPAN_LINES]
    tail = data[-LINE_CHARS * 4 :].split(b"\n")[-SPAN_LINES:]
    first = _first_stamp(raw, 0, file)
    last = _first_stamp(tail[::-1], max(len(data) - 1, 0), file)
    if first is None or last is None:
        return None
    return KernelLogSpan(
        node=_node(first, file),
        first_ns=first.ns,
        last_ns=last.ns,
        boot_first_s=first.boot_s,
        boot_last_s=last.boot_s,
        lines=data.count(b"\n") + (0 if data.endswith(b"\n") else 1),
        zone_stated=first.zone_stated and last.zone_stated,
        year_stated=first.year_stated and last.year_stated,
        origin=Origin(path=file.path),
    )


def _is_mostly_kernel(head: bytes) -> bool:
    lines = [line for line in head.split(b"\n", 41)[:40] if line.strip()]
    others = 0
    for line in lines:
        others += _KERNEL_LINE.match(line.removeprefix(b"\x1b[32m")) is None
        if 2 * others > len(lines):
            return False
    return bool(lines)


def _first_stamp(lines: list[bytes], offset: int, file: _File) -> KernelLine | None:
    for raw in lines:
        entry = kernel_journal.read(raw) if b"{" in raw[:8] else _text_line(offset, raw, file)
        if entry is not None and (entry.ns is not None or entry.boot_s is not None):
            return entry
    return None


# --- Times that the log could not give ----------------------------------------------------------


def with_year(event: Event, near_ns: int | None) -> Event:
    """The event in the year that brings it closest to a known time, if its line had none."""
    if event.year_stated or event.at_ns is None or near_ns is None:
        return event
    day, clock_ns = divmod(event.at_ns, timestamps.NS_PER_DAY)
    date = datetime.date(1970, 1, 1) + datetime.timedelta(days=day)
    at_ns = timestamps.from_parts(date.month, date.day, clock_ns, near_ns=near_ns)
    return event if at_ns is None else replace(event, at_ns=at_ns, year_stated=True)


def with_boot(event: Event, boot_ns: int | None) -> Event:
    """The event's time, from seconds since boot, if it has no other."""
    if event.at_ns is not None or event.boot_s is None or boot_ns is None:
        return event
    return replace(event, at_ns=boot_ns + timestamps.from_seconds(event.boot_s))


def dated(event: Event, near_ns: int | None, boot_ns: int | None) -> Event:
    """Both: the time that can be given when a time nearby and the boot are known."""
    return with_boot(with_year(event, near_ns), boot_ns)
