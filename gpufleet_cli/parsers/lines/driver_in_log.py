"""Driver lines inside a job's own log: NVIDIA Xid and SXid, and AMD's amdgpu and ROCm runtime.

A job's log may carry kernel lines (a merged journal, a node-local prologue). `HW Exception by GPU node-9`
has no rank and no stamp, may be glued to a progress bar, and EVERY process of the node prints it: the number
is the KFD node, it points at that GPU and not at the printer. `device` is the number alone.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, " 12%|# | 60/500 [03:01<22:00, 3.01s/it]HW Exception by GPU node-9 (Agent handle: 0x5) "
...     "reason :GPU Hang")
>>> fact.sign.value, fact.device
('rocm-gpu-hang', '9')
>>> fact, = read(recognise, "NVRM: Xid (PCI:0000:4e:00): 79, pid=1122, name=python3, GPU has fallen off the bus.")
>>> fact.xid, fact.pci_bus_id, fact.pid, fact.process, fact.source
(79, '0000:4e:00', 1122, 'python3', 'log')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, HostEvent, HostSign, Sign, SxidEvent, XidEvent
from gpufleet_cli.parsers.lines.signs import (
    TEXT_LIMIT,
    Rule,
    by_literal,
    fixed,
    make_sign,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<bdf>[0-9a-fA-F:.]{4,20})\): (?P<code>\d{1,4})(?:, pid=(?P<pid>'<unknown>'|\d{1,10}))?"
    r"(?:, name=(?P<name>[^,\n]{1,80}))?(?:,? ?(?P<rest>[^\n]{0,400}))?"
)
_SXID = re.compile(
    r"SXid \(PCI:(?P<bdf>[0-9a-fA-F:.]{4,20})\): (?P<code>\d{1,6}), (?P<sev>Fatal|Non-fatal), Link (?P<link>-?\d{1,3})"
)
_CAUSED = re.compile(r"caused by previous Xid (?P<xid>\d{1,4})")
_RECOVERY = re.compile(
    r"recovery action changed from [^\n]{1,60}? to 0x[0-9a-fA-F]{1,8} \((?P<to>[^)\n]{1,60})\)"
)
_FABRIC = re.compile(r"\b(?P<severity>Fatal|Nonfatal)\b[^\n]{0,60}?\bLink (?P<link>-?\d{1,3})")
_ROCM = re.compile(
    r"HW Exception by GPU node-(?P<node>\d{1,3})[^\n]{0,80}?reason ?: ?(?P<why>[^\n]{1,80})"
)
_FAULT = re.compile(r"Memory access fault by GPU node-(?P<node>\d{1,3})")
_AMD = re.compile(r"amdgpu (?P<bdf>[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)")
_NVLINK5 = range(144, 151)


def _xid(line: LogLine, following: Following) -> Iterator[Fact]:
    for found in _XID.finditer(line.text):
        code, rest = int(found["code"]), found["rest"] or ""
        caused, recovery = _CAUSED.search(rest), _RECOVERY.search(rest)
        fabric = _FABRIC.search(rest) if code in _NVLINK5 else None
        pid = found["pid"] or ""
        name = found["name"]
        yield XidEvent(
            xid=code,
            node=line.speaker.node,
            pci_bus_id=found["bdf"],
            at_ns=line.at_ns,
            text=line.text[:TEXT_LIMIT],
            origin=line.origin,
            source="log",
            pid=int(pid) if pid.isdigit() else None,
            process=name if name is not None and name != "<unknown>" else None,
            severity=fabric["severity"] if fabric is not None else None,
            link=int(fabric["link"]) if fabric is not None else None,
            recovery=recovery["to"] if recovery is not None else None,
            caused_by=int(caused["xid"]) if caused is not None else None,
            zone_stated=line.zone_stated,
        )


def _sxid(line: LogLine, following: Following) -> Iterator[Fact]:
    for found in _SXID.finditer(line.text):
        yield SxidEvent(
            sxid=int(found["code"]),
            node=line.speaker.node,
            pci_bus_id=found["bdf"],
            at_ns=line.at_ns,
            fatal=found["sev"] == "Fatal",
            link=int(found["link"]),
            text=line.text[:TEXT_LIMIT],
            origin=line.origin,
            zone_stated=line.zone_stated,
        )


def _rocm(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _ROCM.search(line.text)
    if found is not None:
        yield make_sign(Sign.ROCM_GPU_HANG, line, device=found["node"], detail=found["why"].strip())


def _fault(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _FAULT.search(line.text)
    if found is not None:
        yield make_sign(
            Sign.ILLEGAL_ACCESS, line, device=found["node"], detail="ROCm: memory access fault"
        )


def _amdgpu(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _AMD.search(line.text)
    yield HostEvent(
        sign=HostSign.AMD_GPU_ERROR,
        node=line.speaker.node,
        at_ns=line.at_ns,
        text=line.text[:TEXT_LIMIT],
        origin=line.origin,
        pci_bus_id=found["bdf"] if found is not None else None,
        zone_stated=line.zone_stated,
    )


_RULES: tuple[Rule, ...] = (
    (("NVRM: Xid (",), _xid),
    (("SXid (PCI:",), _sxid),
    (("HW Exception by GPU node-",), _rocm),
    (("Memory access fault by GPU node-",), _fault),
    (
        ("ncorrectable hardware error", "device lost from bus", "amdgpu: GPU reset begin"),
        _amdgpu,
    ),
    (("aborting with error : HSA_STATUS_ERROR",), fixed(Sign.CUDA_ERROR)),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Driver errors that stand in a job's log."""
    return by_literal(_RULES, line, following)
