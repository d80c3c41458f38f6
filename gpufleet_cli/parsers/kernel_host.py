"""Kernel messages about the host: storage, CPU, PCIe, network adapters, AMD GPUs.

    nfs: server nfs01 not responding, still trying
    INFO: task python3:70110 blocked for more than 120 seconds.
    pcieport 0000:4c:01.0: pciehp: Slot(3): Link Down
    mlx5_core 0000:12:00.0 ens1f0: Link down
    amdgpu 0000:df:00.0: amdgpu: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!

Wordings: Linux 4.18 to 6.12 (net/sunrpc/clnt.c, kernel/hung_task.c, drivers/pci,
mlx5, bnxt_en, ice, amdgpu), Lustre. A wording that fits nothing here is no event.

>>> read("nfs: server nfs01.example.net not responding, still trying")
Host(sign=<HostSign.NFS_DOWN: 'nfs-not-responding'>, server='nfs01.example.net')
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from gpufleet_cli.facts import HostEvent, HostSign, Origin
from gpufleet_cli.parsers.kernel_prefix import KernelLine

TEXT_CHARS = 400


class Host(NamedTuple):
    """The parts of a host message."""

    sign: HostSign
    server: str | None = None
    pid: int | None = None
    process: str | None = None
    pci_bus_id: str | None = None
    fatal: bool | None = None
    device: str | None = None
    pod_uid: str | None = None
    container_id: str | None = None

    def __repr__(self) -> str:
        set_fields = ", ".join(
            f"{name}={value!r}" for name, value in self._asdict().items() if value is not None
        )
        return f"Host({set_fields})"


_PCI = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_NIC_DRIVER = (
    r"(?:mlx5_core|mlx4_core|mlx4_en|bnxt_en|bnxt_re|ice|irdma|i40e|ixgbe|igb|qede|ena|efa|gve"
    r"|ionic|cxgb4|hns3|nfp|sfc|be2net|tg3|e1000e|mana)"
)
_VIRTUAL = re.compile(r"veth|cali|lxc|cni|docker|br-|virbr|flannel|vxlan|tunl|dummy|lo$|nodelocal")

Read = Callable[[re.Match[str], str], Host | None]


def _of(sign: HostSign, *, fatal: bool | None = None) -> Read:
    """A host event of this sign with whatever named parts the pattern found."""

    def found(match: re.Match[str], _message: str) -> Host | None:
        parts = match.groupdict()
        pid = parts.get("pid")
        return Host(
            sign,
            server=parts.get("server"),
            pid=int(pid) if pid else None,
            process=parts.get("process"),
            pci_bus_id=parts.get("pci"),
            fatal=fatal,
            device=parts.get("device"),
        )

    return found


def _nic(sign: HostSign) -> Read:
    """A link of a real adapter: the ends of container networks come and go all day."""

    def found(match: re.Match[str], message: str) -> Host | None:
        device = match.groupdict().get("device")
        if device and _VIRTUAL.match(device):
            return None
        return _of(sign)(match, message)

    return found


def _severity(match: re.Match[str], message: str) -> Host | None:
    """PCIe and machine-check severities: only an uncorrected fatal error is fatal, only a
    corrected one is surely not."""
    text = message.lower()
    fatal: bool | None = None
    if "non-fatal" in text or "nonfatal" in text or "recoverable" in text:
        fatal = None
    elif "uncorrect" not in text and "correct" in text:
        fatal = False
    elif "fatal" in text or "uncorrect" in text:
        fatal = True
    sign = HostSign.PCIE_ERROR if match.re is _PCIE_ERROR else HostSign.MACHINE_CHECK
    return Host(sign, pci_bus_id=match.groupdict().get("pci"), fatal=fatal)


def _edac(match: re.Match[str], _message: str) -> Host | None:
    return Host(HostSign.MACHINE_CHECK, fatal=match["kind"] == "UE", device=match["device"])


def _amd(match: re.Match[str], message: str) -> Host | None:
    text = message.lower()
    fatal: bool | None = None
    if "succeeded" in text or ("correctable" in text and "uncorrectable" not in text):
        fatal = False
    elif "uncorrectable" in text or "lost from bus" in text or "ret = -" in text:
        fatal = True
    if re.search(r"\b0 (?:un)?correctable", text):
        return None
    return Host(HostSign.AMD_GPU_ERROR, pci_bus_id=match["pci"], fatal=fatal)


_PCIE_ERROR = re.compile(
    rf"(?:(?:pcieport|nvidia|nvme|mlx5_core|amdgpu|[\w-]{{2,24}}) )?{_PCI}: "
    r"(?:AER: .{0,60}\berror|PCIe Bus Error: severity=|DPC: (?:containment event|unmasked uncorr))"
)
_HARDWARE_ERROR = re.compile(
    r"(?:mce: )?(?:\{\d{1,8}\})?\[Hardware Error\]:\s{0,4}"
    r"(?:event severity: \w|Machine check events logged|CPU \d{1,5}: Machine Check"
    r"|.{0,40}Uncorrected error|.{0,40}Deferred error)"
)

_PATTERNS: tuple[tuple[re.Pattern[str], Read], ...] = (
    # storage
    (
        re.compile(r"nfs4?: server (?P<server>\S{1,255}) (?:not responding|is not responding)"),
        _of(HostSign.NFS_DOWN),
    ),
    (re.compile(r"nfs4?: server (?P<server>\S{1,255}) OK"), _of(HostSign.NFS_OK)),
    (
        re.compile(
            r"INFO: task (?P<process>.{1,64}?):(?P<pid>\d{1,10}) blocked (?:for|in I/O wait for) "
            r"more than"
        ),
        _of(HostSign.HUNG_TASK),
    ),
    (
        re.compile(r"Lustre: .{0,200}Connection to (?P<server>\S{1,200}) .{0,120}\bwas lost"),
        _of(HostSign.FS_ERROR),
    ),
    (re.compile(r"LustreError: "), _of(HostSign.FS_ERROR)),
    (
        re.compile(r"EXT4-fs error \(device (?P<device>[^):]{1,64})"),
        _of(HostSign.FS_ERROR, fatal=True),
    ),
    (
        re.compile(
            r"XFS \((?P<device>[^)]{1,64})\): .{0,120}(?:[Cc]orruption|[Ss]hut(?:ting)? ?down"
            r"|I/O [Ee]rror|metadata I/O error|log I/O error)"
        ),
        _of(HostSign.FS_ERROR, fatal=True),
    ),
    (
        re.compile(r"BTRFS (?:error|critical)(?: \(device (?P<device>[^)]{1,64})\))?"),
        _of(HostSign.FS_ERROR),
    ),
    (
        re.compile(
            r"(?:blk_update_request: )?(?:critical medium |critical target )?"
            r"I/O error, dev (?P<device>\w{1,32}),"
        ),
        _of(HostSign.FS_ERROR),
    ),
    (
        re.compile(r"Buffer I/O error on dev(?:ice)? (?P<device>[\w-]{1,32})"),
        _of(HostSign.FS_ERROR),
    ),
    (
        re.compile(
            r"nvme (?P<device>nvme\d{1,4}): (?:I/O .{0,80}timeout|controller is down|Abort status"
            r"|Device not ready|Removing after probe failure)"
        ),
        _of(HostSign.FS_ERROR),
    ),
    (re.compile(r".{0,120}[Rr]emounting filesystem read-only"), _of(HostSign.FS_ERROR, fatal=True)),
    (
        re.compile(
            r"(?:libceph|ceph): (?P<server>(?:osd|mon|mds)\d{1,6}) .{0,100}"
            r"(?:down|hung|lost|socket closed|connect error)"
        ),
        _of(HostSign.FS_ERROR),
    ),
    # CPU and kernel
    (
        re.compile(
            r"(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#\d{1,5} stuck for \d{1,8}s!"
            r"(?: \[(?P<process>[^\]:]{1,64}):(?P<pid>\d{1,10})\])?"
        ),
        _of(HostSign.LOCKUP),
    ),
    (
        re.compile(r"(?:NMI )?watchdog: Watchdog detected hard LOCKUP on cpu", re.IGNORECASE),
        _of(HostSign.LOCKUP, fatal=True),
    ),
    (
        re.compile(r"(?:rcu: )?INFO: rcu\w{0,20} .{0,60}(?:self-)?detected .{0,40}stalls?\b"),
        _of(HostSign.LOCKUP),
    ),
    (re.compile(r"rcu: INFO: .{0,80}\bstalls?\b"), _of(HostSign.LOCKUP)),
    (re.compile(r"Kernel panic - not syncing"), _of(HostSign.PANIC, fatal=True)),
    (
        re.compile(
            r"(?:BUG: (?:unable to handle|kernel NULL pointer)|kernel BUG at |Oops: "
            r"|general protection fault|Internal error: Oops|Unable to handle kernel )"
        ),
        _of(HostSign.PANIC),
    ),
    (_HARDWARE_ERROR, _severity),
    (
        re.compile(r"(?:Kernel panic.{0,40})?(?:mce: )?Machine check: Processor context corrupt"),
        _of(HostSign.MACHINE_CHECK, fatal=True),
    ),
    (re.compile(r"EDAC (?P<device>\w{1,32}): \d{1,8} (?P<kind>UE|CE)\b"), _edac),
    (
        re.compile(
            r"(?:mce: )?CPU\d{1,5}: (?:Core|Package) temperature (?:is )?above threshold"
            r"|thermal thermal_zone\d{1,3}: .{0,40}critical temperature"
            r"|(?:CPU|GPU) temperature above threshold"
        ),
        _of(HostSign.THERMAL),
    ),
    (
        re.compile(
            r"(?:traps: )?(?P<process>[^\[\]]{1,64})\[(?P<pid>\d{1,10})\]:?"
            r" (?:segfault at |general protection |trap invalid opcode )"
        ),
        _of(HostSign.SEGFAULT),
    ),
    # PCIe and network
    (
        re.compile(
            rf"(?:pcieport {_PCI}: )?pciehp:? .{{0,60}}Slot\(\S{{1,16}}\): "
            r"(?:Link Down|Card not present)"
        ),
        _of(HostSign.PCIE_LINK_DOWN),
    ),
    (
        re.compile(rf"pcieport {_PCI}: .{{0,60}}Data Link Layer Link Active not set"),
        _of(HostSign.PCIE_LINK_DOWN),
    ),
    (_PCIE_ERROR, _severity),
    (
        re.compile(
            rf"(?:[\w-]{{2,24}} )?{_PCI}: [\d.]{{1,12}} Gb/s available PCIe bandwidth, limited by"
        ),
        _of(HostSign.PCIE_DEGRADED),
    ),
    (
        re.compile(
            rf"mlx5_core {_PCI}:? .{{0,60}}Port module event.{{0,20}}: module \d{{1,4}}, "
            r"(?:Cable unplugged|Cable error|error)",
            re.IGNORECASE,
        ),
        _of(HostSign.NIC_DOWN),
    ),
    (
        re.compile(
            rf"mlx5_core {_PCI}:? .{{0,60}}Port module event.{{0,20}}: module \d{{1,4}}, "
            r"Cable plugged",
            re.IGNORECASE,
        ),
        _of(HostSign.NIC_UP),
    ),
    (
        re.compile(
            rf"mlx5_core {_PCI}:? .{{0,80}}(?:device's health compromised|Fatal error \d"
            r"|assert_var|enter recovery|health recovery (?:failed|flow aborted)"
            r"|firmware (?:internal )?error|Detected insufficient power|timeout\. Will cause)",
            re.IGNORECASE,
        ),
        _of(HostSign.NIC_DOWN, fatal=True),
    ),
    (
        re.compile(
            rf"{_NIC_DRIVER} {_PCI}:? (?P<device>[\w@.-]{{1,32}}): (?:NIC )?Link (?:is )?down",
            re.IGNORECASE,
        ),
        _nic(HostSign.NIC_DOWN),
    ),
    (
        re.compile(
            rf"{_NIC_DRIVER} {_PCI}:? (?P<device>[\w@.-]{{1,32}}): (?:NIC )?Link (?:is )?up",
            re.IGNORECASE,
        ),
        _nic(HostSign.NIC_UP),
    ),
    (
        re.compile(
            r"(?:infiniband )?(?P<device>(?:mlx[45]|bnxt_re|irdma|efa|rocep|ibp)\w{0,24}): "
            r".{0,40}(?:Port:? ?\d{1,3} |port \d{1,3} |link )(?:link )?(?:is )?(?:state )?down",
            re.IGNORECASE,
        ),
        _nic(HostSign.NIC_DOWN),
    ),
    (
        re.compile(
            r"\w{1,32}: link status (?:definitely )?down for "
            r"(?:active )?interface (?P<device>[\w@.-]{1,32})"
        ),
        _nic(HostSign.NIC_DOWN),
    ),
    (
        re.compile(
            r"\w{1,32}: link status (?:definitely )?up for "
            r"(?:active )?interface (?P<device>[\w@.-]{1,32})"
        ),
        _nic(HostSign.NIC_UP),
    ),
    (
        re.compile(r"(?P<device>(?:eth|en|ib)\w{1,28}): (?:NIC )?Link is Down", re.IGNORECASE),
        _nic(HostSign.NIC_DOWN),
    ),
    (
        re.compile(r"(?P<device>(?:eth|en|ib)\w{1,28}): (?:NIC )?Link is Up", re.IGNORECASE),
        _nic(HostSign.NIC_UP),
    ),
    # GPUs
    (
        re.compile(
            rf"(?:\[drm\] )?amdgpu {_PCI}: (?:amdgpu: )*(?:\[drm\] )?"
            r"(?:\*ERROR\* )?.{0,160}(?:uncorrectable hardware error|uncorrectable|correctable hardware"
            r"|\[Hardware Error\]: Accelerator Check|aca entry\[|GPU reset begin|GPU reset\(|GPU reset end"
            r"|GPU Recovery Failed|device lost from bus|ring \S{1,40} timeout|GPU reset failed)",
            re.IGNORECASE,
        ),
        _amd,
    ),
    (
        re.compile(
            r"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)[: ].{0,120}"
            r"(?:has )?fallen off the bus"
        ),
        _of(HostSign.GPU_OFF_BUS, fatal=True),
    ),
    (re.compile(r"NVRM: .{0,80}fallen off the bus"), _of(HostSign.GPU_OFF_BUS, fatal=True)),
    # boots
    (re.compile(r"Linux version \d"), _of(HostSign.REBOOT)),
    (
        re.compile(
            r"(?:reboot: (?:Restarting system|Power down|System halted|Restarting)"
            r"|kexec_core: Starting new kernel|sysrq: Resetting)"
        ),
        _of(HostSign.REBOOT),
    ),
    (re.compile(r"-- (?:Reboot|Boot [0-9a-f]{32}) --"), _of(HostSign.REBOOT)),
)


def read(message: str) -> Host | None:
    """What the message says of the host, None when nothing. OOM kills: see `kernel_oom`."""
    for pattern, build in _PATTERNS:
        found = pattern.match(message)
        if found:
            return build(found, message)
    return None


def host_event(line: KernelLine, host: Host, node: str | None, origin: Origin) -> HostEvent:
    """The fact of one message."""
    return HostEvent(
        sign=host.sign,
        node=node,
        at_ns=line.ns,
        text=line.message[:TEXT_CHARS],
        origin=origin,
        boot_s=line.boot_s,
        pid=host.pid,
        process=host.process,
        pod_uid=host.pod_uid,
        pci_bus_id=host.pci_bus_id,
        server=host.server,
        fatal=host.fatal,
        zone_stated=line.zone_stated,
        year_stated=line.year_stated,
        device=host.device,
        container_id=host.container_id,
    )
