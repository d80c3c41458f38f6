"""Messages of the NVIDIA driver: Xid, SXid, and the line that joins a PCI address to a GPU.

    NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    NVRM: Xid (PCI:0000:01:00 GPU-I:05): 13, pid=1122, name=python3, Graphics SM ...     (MIG)
    NVRM: Xid (0000:03:00): 14, Channel 00000001                                         (old)
    NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 ...)
    nvidia-nvswitch3: SXid (PCI:0000:0a:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
    NVRM: GPU at PCI:0000:4e:00: GPU-1f0d2c44-90ab-47de-a5f3-0d9b7c6e2211

Codes: https://docs.nvidia.com/deploy/xid-errors/ . The pid is the host's and may belong to an
innocent caller (119 names whoever asked, often nvidia-smi).

>>> found = read("NVRM: Xid (PCI:0000:4e:00): 45, pid=7, name=python3, Ch 1 caused by previous Xid 149")
>>> found.xid, found.pid, found.caused_by
(45, 7, 149)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpufleet_cli.facts import IdentityLink, Link, Origin, SxidEvent, XidEvent
from gpufleet_cli.parsers.kernel_prefix import KernelLine
from gpufleet_cli.xid_catalog import NVLINK5_CODES

TEXT_CHARS = 400
MAX_XID = 9_999
MAX_WORD = 0xFFFF_FFFF

_XID = re.compile(
    r"Xid \((?:PCI:)?(?P<bdf>[0-9a-fA-F:.]{5,18})(?: GPU-I:(?P<gi>\d{1,3}))?(?: GPU-CI:\d{1,3})?\): "
    r"(?P<code>\d{1,5})(?P<rest>.{0,2000})",
    re.DOTALL,
)
_PID = re.compile(r"pid=(?:'?<unknown>'?|'?(?P<pid>\d{1,10})'?)")
_NAME = re.compile(r"name=(?P<name>[^,]{1,128})")
_CAUSED_BY = re.compile(r"caused by previous Xid (\d{1,5})")
_NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]{2,40})\s{1,8}(?P<severity>Non-?[Ff]atal|Link[ -]?[Ff]atal|Fatal)\b"
    r"(?:[^(]{0,80}?\bLink\s{1,4}(?P<link>-?\d{1,3}))?(?:[^(]{0,80}\((?P<words>[^)]{1,400})\))?"
)
_NVLINK74 = re.compile(
    r"link\s{1,4}(?P<link>-?\d{1,3})\s{0,4}\((?P<words>[0-9a-fA-Fx, ]{1,200})\)", re.IGNORECASE
)
_RECOVERY = re.compile(
    r"from (?P<old>0x[0-9a-fA-F]{1,8}|\d{1,8}) \((?P<old_name>[^)]{0,80})\) "
    r"to (?P<new>0x[0-9a-fA-F]{1,8}|\d{1,8}) \((?P<name>[^)]{0,80})\)"
)
_GPC_TPC = re.compile(r"GPC (\d{1,3}),? {0,2}TPC (\d{1,3})")
_SXID = re.compile(
    r"SXid \(PCI:(?P<bdf>[0-9a-fA-F:.]{5,18})\): (?P<code>\d{1,6}), "
    r"(?P<severity>Fatal|Non-fatal)(?:, Link (?P<link>-?\d{1,4}))?",
    re.IGNORECASE,
)
_GPU_AT = re.compile(
    r"NVRM: GPU at (?:PCI:)?(?P<bdf>[0-9a-fA-F:.]{5,18}): (?P<uuid>GPU-[0-9a-zA-Z-]{4,60})"
)
_PCI = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.[0-7])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class XidMessage:
    """The parts of an Xid message."""

    xid: int
    pci_bus_id: str
    gpu_instance: int | None = None
    pid: int | None = None
    process: str | None = None
    severity: str | None = None
    unit: str | None = None
    link: int | None = None
    words: tuple[int, ...] = ()
    recovery: str | None = None
    caused_by: int | None = None

    @property
    def subcode(self) -> int | None:
        """Bits 25 to 20 of the first word, NVLink 5 only."""
        if self.xid not in NVLINK5_CODES or not self.words:
            return None
        return self.words[0] >> 20 & 0x3F


def pci_key(address: str | None) -> tuple[int, int, int] | None:
    """Domain, bus and device, which the kernel, nvidia-smi and DCGM all write differently."""
    found = _PCI.fullmatch(address.strip()) if address else None
    if found is None:
        return None
    return int(found[1] or "0", 16), int(found[2], 16), int(found[3], 16)


def _words(text: str | None) -> tuple[int, ...]:
    if not text:
        return ()
    words = [
        word for word in re.split(r"[\s,]+", text) if re.fullmatch(r"0x[0-9a-fA-F]{1,8}", word)
    ]
    return tuple(int(word, 16) for word in words[:16])


def _link(text: str | None) -> int | None:
    """A link number; -1 stands for none."""
    return int(text) if text and int(text) >= 0 else None


def read(message: str) -> XidMessage | None:
    """The Xid of a message, None when it has none."""
    found = _XID.search(message)
    if found is None or int(found["code"]) > MAX_XID:
        return None
    code, rest = int(found["code"]), found["rest"]
    pid = _PID.search(rest[:80])
    name = _NAME.search(rest[:300])
    process = name["name"].strip(" '\"") if name else ""
    caused = _CAUSED_BY.search(rest)
    severity, unit, link, words = _nvlink(code, rest)
    recovery = _RECOVERY.search(rest) if code == 154 else None
    if recovery:
        words = (int(recovery["old"], 0) & MAX_WORD, int(recovery["new"], 0) & MAX_WORD)
    return XidMessage(
        xid=code,
        pci_bus_id=found["bdf"],
        gpu_instance=int(found["gi"]) if found["gi"] else None,
        pid=int(pid["pid"]) if pid and pid["pid"] else None,
        process=process if process not in ("", "<unknown>") else None,
        severity=severity,
        unit=_gpc_tpc(rest) if code == 13 else unit,
        link=link,
        words=words,
        recovery=recovery["name"] if recovery else None,
        caused_by=int(caused[1]) if caused else None,
    )


def _nvlink(code: int, rest: str) -> tuple[str | None, str | None, int | None, tuple[int, ...]]:
    """Severity, unit, link and words of an NVLink line."""
    if code in NVLINK5_CODES:
        found = _NVLINK5.search(rest)
        if found is None:
            return None, None, None, ()
        severity = found["severity"].lower().replace("-", "").replace(" ", "")
        named = {"fatal": "Fatal", "nonfatal": "Non-fatal", "linkfatal": "Link Fatal"}[severity]
        return named, found["unit"], _link(found["link"]), _words(found["words"])
    if code == 74:
        found = _NVLINK74.search(rest)
        if found:
            return None, None, _link(found["link"]), _words(found["words"])
    return None, None, None, ()


def _gpc_tpc(rest: str) -> str | None:
    found = _GPC_TPC.search(rest)
    return f"GPC {found[1]}, TPC {found[2]}" if found else None


def xid_event(line: KernelLine, node: str | None, origin: Origin) -> XidEvent | None:
    """The Xid that a kernel line reports."""
    found = read(line.message)
    if found is None:
        return None
    return XidEvent(
        xid=found.xid,
        node=node,
        pci_bus_id=found.pci_bus_id,
        at_ns=line.ns,
        text=line.message[:TEXT_CHARS],
        origin=origin,
        source="kernel",
        boot_s=line.boot_s,
        resolution_s=line.resolution_s,
        pid=found.pid,
        process=found.process,
        severity=found.severity,
        unit=found.unit,
        subcode=found.subcode,
        link=found.link,
        words=found.words,
        recovery=found.recovery,
        caused_by=found.caused_by,
        zone_stated=line.zone_stated,
        year_stated=line.year_stated,
        gpu_instance=found.gpu_instance,
    )


def sxid_event(line: KernelLine, node: str | None, origin: Origin) -> SxidEvent | None:
    """The NVSwitch error that a line reports; its `Severity` and `Data` lines are details of the
    same event and carry no Fatal or Non-fatal, so they are none."""
    found = _SXID.search(line.message)
    if found is None:
        return None
    return SxidEvent(
        sxid=int(found["code"]),
        node=node,
        pci_bus_id=found["bdf"],
        at_ns=line.ns,
        fatal=found["severity"].lower() == "fatal",
        link=_link(found["link"]),
        text=line.message[:TEXT_CHARS],
        origin=origin,
        boot_s=line.boot_s,
        zone_stated=line.zone_stated,
        year_stated=line.year_stated,
        resolution_s=line.resolution_s,
    )


def gpu_link(line: KernelLine, node: str | None, origin: Origin) -> IdentityLink | None:
    """The boot or fault line that gives the UUID of a PCI address."""
    found = _GPU_AT.search(line.message)
    if found is None:
        return None
    return IdentityLink(
        how=Link.KERNEL, origin=origin, node=node, pci_bus_id=found["bdf"], gpu_uuid=found["uuid"]
    )
