"""Kernel logs: every prefix form, every Xid form, host events, bursts, and what a broken log gives."""

from __future__ import annotations

import json

import pytest
from builders import evidence

from gpufleet_cli.facts import (
    Fact,
    HostEvent,
    HostSign,
    IdentityLink,
    KernelLogSpan,
    NodeBoot,
    Origin,
    Speaker,
    SxidEvent,
    XidEvent,
)
from gpufleet_cli.parsers import (
    kernel_candidates,
    kernel_host,
    kernel_lines,
    kernel_log,
    kernel_origin,
    kernel_prefix,
    kernel_xid,
)
from gpufleet_cli.parsers.lines import pasted
from gpufleet_cli.parsers.log_line import LogLine
from gpufleet_cli.timestamps import format_ns, parse_rfc3339

BUS_LOSS = (
    "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)


def ns(text: str) -> int:
    found = parse_rfc3339(text)
    assert found is not None
    return found[0]


def parse(text: str | bytes, path: str = "kernel/gpu-1.log") -> list[Fact]:
    data = text.encode() if isinstance(text, str) else text
    return list(kernel_log.parse(evidence(data, path)))


def events(text: str | bytes, path: str = "kernel/gpu-1.log") -> list[Fact]:
    """Without the span that every kernel log has."""
    return [f for f in parse(text, path) if not isinstance(f, KernelLogSpan)]


def only_xid(text: str, path: str = "kernel/gpu-1.log") -> XidEvent:
    found = [f for f in parse(text, path) if isinstance(f, XidEvent)]
    assert 1 == len(found)
    return found[0]


# --- Prefixes -------------------------------------------------------------------------------------

FEB = "2025-02-18T04:11:47Z"


@pytest.mark.parametrize(
    ("prefix", "at", "zone", "host"),
    [
        ("2025-02-18T04:11:47+0100 gpu-b08 kernel: ", "2025-02-18T03:11:47Z", True, "gpu-b08"),
        ("2025-02-18T04:11:47.5+00:00 g kernel: [ 12.3] ", "2025-02-18T04:11:47.5Z", True, "g"),
        ("2025-02-18T04:11:47,123456+01:00 ", "2025-02-18T03:11:47.123456Z", True, None),
        ("[Tue Feb 18 04:11:47 2025] ", FEB, False, None),
        ("[二 2月 18 04:11:47 2025] ", FEB, False, None),
        ("[火  2月 18 04:11:47 2025] ", FEB, False, None),
        ("[화  2월 18 04:11:47 2025] ", FEB, False, None),
        ("[Di Feb 18 04:11:47 2025] ", FEB, False, None),
        ("[mar. févr. 18 04:11:47 2025] ", FEB, False, None),
        ("[Mon Mär  3 04:11:47 2025] ", "2025-03-03T04:11:47Z", False, None),
        ("Tue 2025-02-18 04:11:47 CET g kernel: ", FEB, False, "g"),
        ("Tue 2025-02-18 04:11:47 UTC g kernel: ", FEB, True, "g"),
        ("1739848307.123456 g kernel: ", "2025-02-18T03:11:47.123456Z", True, "g"),
        ("<4>1 2025-02-18T04:11:47Z g kernel - - - ", FEB, True, "g"),
        ("10.5.0.2: kern:     err: [2025-02-18T04:11:47.5Z]: ", "2025-02-18T04:11:47.5Z", True, "10.5.0.2"),
        ("kern:     err: [2025-02-18T04:11:47.5Z]: ", "2025-02-18T04:11:47.5Z", True, None),
        ("2025-02-18T04:11:47.1Z stdout F ", "2025-02-18T04:11:47.1Z", True, None),
        ("2025-02-18T04:11:48Z stdout F 2025-02-18T05:11:47+0100 g kernel: ", FEB, True, "g"),
        ("[pod/dmesg-1/tail] 2025-02-18T04:11:47Z ", FEB, True, None),
        ("2025-02-18T04:11:47+0000 g kern.err kernel: ", FEB, True, "g"),
    ],
)  # fmt: skip
def test_a_prefix_with_a_date_gives_the_time(
    prefix: str, at: str, zone: bool, host: str | None
) -> None:
    """Time, zone and host of every dated form, and the message without any of them."""
    line = kernel_prefix.read(prefix + "NVRM: x")
    assert (ns(at), zone, host, "NVRM: x") == (line.ns, line.zone_stated, line.host, line.message)


@pytest.mark.parametrize(
    "prefix",
    [
        "[1235733.431527] ",
        "<4>[1235733.431527] ",
        "kern  :err   : [1235733.431527] ",
        "[1235733.431527 <    0.000316>] ",
        "[1235733.431527][  T123] ",
        "[1235733.431527] [T123] ",
        "[1235733.431527] gpu-1 kernel: ",
    ],
)
def test_seconds_since_boot_are_no_time(prefix: str) -> None:
    """A log that counts from boot has no date until somebody knows the boot."""
    line = kernel_prefix.read(prefix + "NVRM: x")
    assert (None, 1235733.431527, "NVRM: x") == (line.ns, line.boot_s, line.message)


def test_a_daemon_quoting_the_kernel_is_not_the_kernel() -> None:
    """dcgm or kubelet lines repeat Xids; counting them would double every event."""
    text = f"Feb 18 04:11:47 gpu-1 nv-hostengine[812]: {BUS_LOSS}\n"
    assert [] == [f for f in parse(text) if isinstance(f, XidEvent)]


def test_stamps_inside_stamps_end_somewhere() -> None:
    """A line of nothing but collector stamps cannot exhaust the stack."""
    line = "2025-02-18T04:11:47Z stdout F " * 5_000 + BUS_LOSS
    assert kernel_prefix.read(line).ns == ns(FEB)


def test_syslog_has_no_year_until_one_is_near() -> None:
    """`Mar  3 22:14:06` is put into the year that is closest to a known time, once one is known."""
    event = only_xid(f"Mar  3 22:14:06 gpu-1 kernel: [812345.1] {BUS_LOSS}\n")
    assert (False, False) == (event.year_stated, event.zone_stated)
    dated = kernel_log.with_year(event, ns("2025-03-04T00:00:00Z"))
    assert "2025-03-03T22:14:06Z" == format_ns(dated.at_ns or 0)
    assert dated.year_stated


def test_a_line_of_december_stays_in_its_year() -> None:
    """New Year: a line of 31 December beside a report of 1 January is a day old."""
    event = only_xid(f"Dec 31 23:59:59 gpu-1 kernel: {BUS_LOSS}\n")
    dated = kernel_log.dated(event, ns("2026-01-01T00:10:00Z"), None)
    assert "2025-12-31T23:59:59Z" == format_ns(dated.at_ns or 0)


def test_a_rotation_date_in_the_name_states_the_year() -> None:
    """messages-20250304 holds lines of the days before."""
    event = only_xid(f"Mar  3 22:14:06 gpu-1 kernel: {BUS_LOSS}\n", "gpu-1/messages-20250304")
    assert "2025-03-03T22:14:06Z" == format_ns(event.at_ns or 0)
    assert event.year_stated


def test_the_boot_time_dates_a_dmesg() -> None:
    """Seconds since boot and a boot time make a time, to the microsecond."""
    event = only_xid(f"[1840221.771101] {BUS_LOSS}\n")
    assert (None, 1840221.771101) == (event.at_ns, event.boot_s)
    dated = kernel_log.with_boot(event, ns("2025-11-10T04:59:30Z"))
    assert "2025-12-01T12:09:51.771101Z" == format_ns(dated.at_ns or 0)


def test_an_audit_line_tells_the_boot_time() -> None:
    """A dmesg that shows both clocks dates itself."""
    found = parse(
        "[   12.500000] audit: type=2000 audit(1739848312.500:1): state=initialized\n"
        f"[  100.250000] {BUS_LOSS}\n"
    )
    boot = next(f for f in found if isinstance(f, NodeBoot))
    event = next(f for f in found if isinstance(f, XidEvent))
    assert 1_739_848_300_000_000_000 == boot.boot_ns
    assert 1_739_848_400_250_000_000 == event.at_ns


def test_two_boots_in_one_file_date_nothing() -> None:
    """Seconds mean something else after a reboot."""
    event = only_xid(
        "[    0.000000] Linux version 6.8.0\n[ 1.0] audit: audit(1739848312.500:1): x\n"
        f"[    0.000000] Linux version 6.8.0\n[  100.250000] {BUS_LOSS}\n"
    )
    assert event.at_ns is None


def test_human_deltas_add_up() -> None:
    """dmesg -H prints a minute, then distances; the minute is as good as it gets."""
    found = events(
        f"[Feb18 04:11] usb 1-1: new device\n[  +0.500000] usb 1-1: ok\n[  +1.250000] {BUS_LOSS}\n"
    )
    event = found[0]
    assert isinstance(event, XidEvent)
    assert 60.0 == event.resolution_s
    dated = kernel_log.with_year(event, ns("2025-02-20T00:00:00Z"))
    assert "2025-02-18T04:11:01.75Z" == format_ns(dated.at_ns or 0)


# --- The journal ----------------------------------------------------------------------------------

ENTRY = {
    "__REALTIME_TIMESTAMP": "1739848307123456",
    "_TRANSPORT": "kernel",
    "_HOSTNAME": "gpu-b08",
    "MESSAGE": BUS_LOSS,
}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ENTRY) + "\n",
        json.dumps(ENTRY, indent=8) + "\n",
        "[" + json.dumps(ENTRY) + "]",
        "\x1e" + json.dumps(ENTRY) + "\n",
        json.dumps({**ENTRY, "MESSAGE": list(BUS_LOSS.encode() + b"\xff")}, separators=(",", ":")),
        "\n".join(f"{key}={value}" for key, value in ENTRY.items()) + "\n\n",
    ],
    ids=["json", "pretty", "list", "seq", "bytes", "export"],
)
def test_the_journal_in_all_its_outputs(text: str) -> None:
    """-o json, json-pretty, json-seq and export, a slurped list, and a message that is no UTF-8."""
    event = only_xid(text, "journal.json")
    assert (79, "gpu-b08", 1_739_848_307_123_456_000) == (event.xid, event.node, event.at_ns)


def test_a_journal_of_other_units_says_nothing() -> None:
    """Only kernel entries count, whoever else writes NVRM into the journal."""
    text = json.dumps({**ENTRY, "_TRANSPORT": "stdout", "SYSLOG_IDENTIFIER": "python"}) + "\n"
    assert [] == [f for f in parse(text, "journal.json") if isinstance(f, XidEvent)]


# --- Xid lines ------------------------------------------------------------------------------------


def xid_of(rest: str, place: str = "PCI:0000:4e:00") -> kernel_xid.XidMessage:
    found = kernel_xid.read(f"NVRM: Xid ({place}): {rest}")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("rest", "code", "pid", "process"),
    [
        ("79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 79, None, None),
        ("79, GPU has fallen off the bus.", 79, None, None),
        ("43, pid=22610, name=python3, channel 0x00000002", 43, 22610, "python3"),
        ("119, pid=1, name=nvidia-smi, Timeout after 6s of waiting", 119, 1, "nvidia-smi"),
        ("62, 32260b5e 000154b0 00000000", 62, None, None),
        ("14, Channel 00000001", 14, None, None),
    ],
)
def test_pid_and_name_where_they_stand(
    rest: str, code: int, pid: int | None, process: str | None
) -> None:
    """All the ways in which the driver names, or does not name, the caller."""
    found = xid_of(rest)
    assert (code, pid, process) == (found.xid, found.pid, found.process)


def test_a_mig_instance_is_no_part_of_the_address() -> None:
    """`(PCI:0000:01:00 GPU-I:05)` is instance 5 of that GPU."""
    found = xid_of(
        "13, pid=1, name=p, Graphics Exception on (GPC 7, TPC 7)", "PCI:0000:01:00 GPU-I:05"
    )
    assert ("0000:01:00", 5, "GPC 7, TPC 7") == (found.pci_bus_id, found.gpu_instance, found.unit)


def test_the_old_form_has_no_pci_word() -> None:
    """`Xid (0000:03:00): 14` is older than the prefix."""
    assert "0000:03:00" == xid_of("14, Channel 00000001", "0000:03:00").pci_bus_id


def test_a_domain_other_than_zero_is_kept() -> None:
    """GB200 has several PCI domains."""
    assert (8, 1, 0) == kernel_xid.pci_key(xid_of("79, x", "PCI:0008:01:00").pci_bus_id)


def test_addresses_of_all_tools_are_one() -> None:
    """The kernel, nvidia-smi and DCGM write one address in three ways."""
    forms = ("0000:3b:00", "0000:3B:00.0", "00000000:3B:00.0")
    assert {(0, 0x3B, 0)} == {kernel_xid.pci_key(form) for form in forms}


def test_registers_of_nvlink_4_become_words() -> None:
    """74 carries a link and seven registers."""
    found = xid_of("74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link "
                   "14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)")  # fmt: skip
    assert (14, (0, 0, 0x10000, 0, 0, 0, 0)) == (found.link, found.words)


@pytest.mark.parametrize(
    ("rest", "unit", "severity", "link", "subcode"),
    [
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x0)", "NETIR_LINK_EVT", "Fatal", 8, 4),
        ("149, pid='<unknown>', name=<unknown>, NETIR_LINK_EVT  Fatal   XC0 i0 Link 00 (0x004505c6 0x0)",
         "NETIR_LINK_EVT", "Fatal", 0, 4),
        ("145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x6 0x8)", "RLW_RXPIPE", "Non-fatal", 13, 0),
        ("144, SAW_MVB Nonfatal", "SAW_MVB", "Non-fatal", None, None),
        ("145, RLW_REMAP Non-fatal XC0 i0 Link -1 (0x4 0x4)", "RLW_REMAP", "Non-fatal", None, 0),
    ],
)  # fmt: skip
def test_nvlink_5_lines(
    rest: str, unit: str, severity: str, link: int | None, subcode: int | None
) -> None:
    """Unit, severity, link and sub-code of 144 to 150."""
    found = xid_of(rest)
    assert (unit, severity, link, subcode) == (
        found.unit,
        found.severity,
        found.link,
        found.subcode,
    )


def test_recovery_and_the_xid_before() -> None:
    """154 says what the GPU needs now; a 45 may name what it follows."""
    recovery = xid_of(
        "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    )
    assert ("Node Reboot Required", (0, 2)) == (recovery.recovery, recovery.words)
    assert 149 == xid_of("45, pid=7, name=p, Ch 00000001 caused by previous Xid 149").caused_by


def test_a_switch_error_counts_once() -> None:
    """Severity and data lines are details of the Fatal or Non-fatal line."""
    found = events(
        "[1.0] nvidia-nvswitch3: SXid (PCI:0000:0a:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"
        "[1.0] nvidia-nvswitch3: SXid (PCI:0000:0a:00.0): 20034, Severity 1 Engine instance 30\n"
        "[1.0] nvidia-nvswitch3: SXid (PCI:0000:0a:00.0): 20034, Data {0x1, 0x2}\n"
        "[1.5] nvidia-nvswitch3: SXid (PCI:0000:0a:00.0): 12028, Non-fatal, Link 32 egress (First)\n"
    )
    assert [(20034, True, 30), (12028, False, 32)] == [
        (f.sxid, f.fatal, f.link) for f in found if isinstance(f, SxidEvent)
    ]
    assert 2 == len(found)


def test_the_uuid_of_an_address() -> None:
    """The line that joins PCI address and UUID is a link, once however often it is printed."""
    line = "[1.0] NVRM: GPU at PCI:0000:ab:00: GPU-0b4f9a21-6d21-40ce-9a7a-7e12bb0f9c10\n"
    found = events(line * 3)
    assert 1 == len(found)
    link = found[0]
    assert isinstance(link, IdentityLink)
    assert ("gpu-1", "0000:ab:00") == (link.node, link.pci_bus_id)
    assert "GPU-0b4f9a21-6d21-40ce-9a7a-7e12bb0f9c10" == link.gpu_uuid


def test_off_the_bus_without_a_number() -> None:
    """The driver may say it without an Xid, in one line or in a notice of three."""
    one = events("[1.0] NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.\n")
    three = events(
        "[1.0] NVRM: The NVIDIA GPU 0000:18:00.0\n[1.0] NVRM: (PCI ID: 10de:2330) installed in this "
        "system has\n[1.0] NVRM: fallen off the bus and is not responding to commands.\n"
    )
    for found in (one, three):
        event = found[0]
        assert isinstance(event, HostEvent)
        assert (HostSign.GPU_OFF_BUS, "0000:18:00.0") == (event.sign, event.pci_bus_id)


def test_off_the_bus_beside_79_is_the_same_event() -> None:
    """With the Xid on the same GPU the second line says nothing new; on another GPU it does."""
    same = f"[1.0] {BUS_LOSS}\n[1.1] NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus.\n"
    other = f"[1.0] {BUS_LOSS}\n[1.1] NVRM: GPU 0000:9d:00.0: GPU has fallen off the bus.\n"
    assert 1 == len(events(same))
    assert 2 == len(events(other))


# --- Bursts ---------------------------------------------------------------------------------------


def test_hundreds_of_clean_up_lines_are_one_event() -> None:
    """45 comes once per channel."""
    text = "".join(
        f"[{100 + i / 1000:.6f}] NVRM: Xid (PCI:0000:4e:00): 45, pid=7, name=p, Ch {i:08x}\n"
        for i in range(300)
    )
    event = only_xid(text)
    assert (299, 100.0) == (event.repeats, event.boot_s)


def test_the_same_code_later_is_another_event() -> None:
    """A burst ends after its window of quiet."""
    text = "".join(f"[{at}.000000] NVRM: Xid (PCI:0000:4e:00): 63, x\n" for at in (100, 102, 400))
    found = [f for f in events(text) if isinstance(f, XidEvent)]
    assert [(100.0, 1), (400.0, 0)] == [(f.boot_s, f.repeats) for f in found]


def test_links_and_gpus_do_not_share_a_burst() -> None:
    """One GPU with many bad links and many GPUs with one are told apart by these lines."""
    text = (
        "[1.0] NVRM: Xid (PCI:0000:4e:00): 74, x, NVLink: fatal error detected on link 1(0x1)\n"
        "[1.1] NVRM: Xid (PCI:0000:4e:00): 74, x, NVLink: fatal error detected on link 2(0x1)\n"
        "[1.2] NVRM: Xid (PCI:0000:9d:00): 74, x, NVLink: fatal error detected on link 1(0x1)\n"
    )
    assert 3 == len(events(text))


# --- The host -------------------------------------------------------------------------------------

MESSAGES = [
    ("nfs: server nfs01 not responding, still trying", HostSign.NFS_DOWN, None),
    ("nfs: server nfs01 OK", HostSign.NFS_OK, None),
    ("INFO: task python3:70110 blocked for more than 120 seconds.", HostSign.HUNG_TASK, None),
    ("LustreError: 11-0: lustre-OST0001-osc: operation failed", HostSign.FS_ERROR, None),
    ("EXT4-fs error (device nvme0n1p1): ext4_find_entry", HostSign.FS_ERROR, True),
    ("I/O error, dev nvme0n1, sector 12 op 0x0", HostSign.FS_ERROR, None),
    ("nvme nvme0: I/O 12 QID 3 timeout, aborting", HostSign.FS_ERROR, None),
    ("watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python3:12]", HostSign.LOCKUP, None),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", HostSign.LOCKUP, None),
    ("Kernel panic - not syncing: Fatal machine check", HostSign.PANIC, True),
    ("mce: [Hardware Error]: Machine check events logged", HostSign.MACHINE_CHECK, None),
    ("EDAC MC0: 1 UE memory read error", HostSign.MACHINE_CHECK, True),
    ("EDAC MC0: 1 CE memory read error", HostSign.MACHINE_CHECK, False),
    ("pcieport 0000:4c:01.0: pciehp: Slot(3): Link Down", HostSign.PCIE_LINK_DOWN, None),
    ("pcieport 0000:4c:01.0: AER: Corrected error received: 0000:4c:01.0", HostSign.PCIE_ERROR, False),
    ("pcieport 0000:4c:01.0: AER: Uncorrected (Fatal) error received: 0", HostSign.PCIE_ERROR, True),
    ("pcieport 0000:4c:01.0: AER: Uncorrected (Non-Fatal) error received: 0", HostSign.PCIE_ERROR, None),
    (
        "mlx5_core 0000:4c:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at"
        " 0000:4a:01.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)",
        HostSign.PCIE_DEGRADED,
        None,
    ),
    ("mlx5_core 0000:12:00.0: Port module event: module 0, Cable unplugged", HostSign.NIC_DOWN, None),
    ("mlx5_core 0000:12:00.0 ens1f0np0: Link down", HostSign.NIC_DOWN, None),
    ("mlx5_core 0000:12:00.0 ens1f0np0: Link up", HostSign.NIC_UP, None),
    ("mlx5_core 0000:12:00.0: poll_health:812:(pid 0): Fatal error 1 detected", HostSign.NIC_DOWN, True),
    ("bond0: link status definitely down for interface eth0, disabling it", HostSign.NIC_DOWN, None),
    ("amdgpu 0000:df:00.0: amdgpu: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
     HostSign.AMD_GPU_ERROR, True),
    ("amdgpu 0000:df:00.0: amdgpu: amdgpu: GPU reset begin!. Source:  3", HostSign.AMD_GPU_ERROR, None),
    ("amdgpu 0000:df:00.0: amdgpu: GPU reset(1) succeeded!", HostSign.AMD_GPU_ERROR, False),
    ("amdgpu 0000:df:00.0: amdgpu: GPU reset end with ret = -19", HostSign.AMD_GPU_ERROR, True),
    ("amdgpu 0000:df:00.0: amdgpu: device lost from bus!", HostSign.AMD_GPU_ERROR, True),
    ("amdgpu 0000:df:00.0: [drm] *ERROR* ring sdma0.0 timeout, signaled seq=12, emitted seq=14",
     HostSign.AMD_GPU_ERROR, None),
    ("mce: CPU0: Package temperature above threshold, cpu clock throttled", HostSign.THERMAL, None),
    ("python3[70110]: segfault at 0 ip 00007f error 4 in libnccl.so.2", HostSign.SEGFAULT, None),
    ("Linux version 5.15.0-113-generic (buildd)", HostSign.REBOOT, None),
    ("-- Reboot --", HostSign.REBOOT, None),
]  # fmt: skip


@pytest.mark.parametrize(("message", "sign", "fatal"), MESSAGES)
def test_what_the_host_says(message: str, sign: HostSign, fatal: bool | None) -> None:
    """Each wording, found in a file and with its severity."""
    found = [f for f in parse(f"[12.0] {message}\n") if isinstance(f, HostEvent)]
    assert [(sign, fatal)] == [(f.sign, f.fatal) for f in found]


@pytest.mark.parametrize(
    "message",
    [
        "eth2: renamed from veth71ab3c0",
        "veth123: Link is Down",
        "IPv6: ADDRCONF(NETDEV_CHANGE): cali0: link becomes ready",
        "CPU0: Core temperature/speed normal",
        "XFS (dm-0): Mounting V5 Filesystem",
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0",
        "amdgpu 0000:df:00.0: amdgpu: 0 correctable hardware errors detected in umc block",
    ],
)
def test_everyday_lines_are_no_events(message: str) -> None:
    """Container networks come and go all day."""
    assert kernel_host.read(message) is None
    assert [] == events(f"[12.0] {message}\n")


UID = "8c1f77d0-5b11-4d2e-9f60-1a2b3c4d5e61"


@pytest.mark.parametrize(
    "cgroup",
    [
        f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{'a' * 64}.scope",
        f"/kubepods/burstable/pod{UID}/{'a' * 64}",
    ],
)
def test_an_oom_kill_is_one_event_with_its_pod(cgroup: str) -> None:
    """The cgroup gives pod and container, the next line the words that people look for."""
    found = events(
        "[812345.101773] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0\n"
        "[812345.102440] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,"
        f"oom_memcg=/kubepods.slice,task_memcg={cgroup},task=python,pid=918234,uid=0\n"
        "[812345.102577] Memory cgroup out of memory: Killed process 918234 (python) total-vm:1kB\n"
        "[812346.901120] oom_reaper: reaped process 918234 (python), now anon-rss:0kB\n"
    )
    assert 1 == len(found)
    event = found[0]
    assert isinstance(event, HostEvent)
    assert (HostSign.OOM_KILL, 918234, "python") == (event.sign, event.pid, event.process)
    assert (UID, "a" * 64) == (event.pod_uid, event.container_id)
    assert event.text.startswith("Memory cgroup out of memory: Killed process 918234")


def test_an_old_kernel_names_the_cgroup_first() -> None:
    """Before 4.19: a `Task in` line, then `Killed process`."""
    found = events(
        f"[10.0] Task in /kubepods/pod{UID}/{'b' * 64} killed as a result of limit of /kubepods\n"
        "[10.1] Killed process 77 (python) total-vm:1kB, anon-rss:1kB\n"
    )
    assert [UID] == [f.pod_uid for f in found if isinstance(f, HostEvent)]


def test_a_cut_oom_report_still_counts() -> None:
    """The log may end between the two lines."""
    text = (
        "[10.0] oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/,task=python,pid=9,uid=0"
    )
    assert [9] == [f.pid for f in events(text) if isinstance(f, HostEvent)]


# --- Files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "node"),
    [
        ("logs/kernel/gpu-b08.journal-k.log", "gpu-b08"),
        ("kernel/gpu-n01.dmesg-T.txt", "gpu-n01"),
        ("kernel/gpu-01.log", "gpu-01"),
        ("dmesg-gpu-n01.txt", "gpu-n01"),
        ("dmesg_20250218_gpu-n01.txt", "gpu-n01"),
        ("gpu-n01/var/log/kern.log.2", "gpu-n01"),
        ("nodes/gpu-b07/kernel.log", "gpu-b07"),
        ("node-17.example.com.dmesg", "node-17.example.com"),
        ("kernel/10.0.0.5.log", "10.0.0.5"),
        ("dmesg.txt", None),
        ("messages-20250218", None),
        ("logs/kern.log.1", None),
    ],
)
def test_the_node_in_a_file_name(path: str, node: str | None) -> None:
    """What is left of a name when the words for a kernel log are taken off."""
    assert node == kernel_origin.node_of(path)


def test_a_host_that_syslog_cut_at_its_dot_is_the_files() -> None:
    """The file's name goes on where the line's host ends: that is the whole name of the node."""
    line = f"Jun  4 18:56:34 gpu-b08 kernel: [12.5] {BUS_LOSS}\n"
    facts = kernel_log.parse(evidence(line.encode(), "kernel/gpu-b08.cluster.kern.log"))
    assert {f.node for f in facts if isinstance(f, XidEvent)} == {"gpu-b08.cluster"}


def test_the_line_knows_its_host_better_than_the_file() -> None:
    """A central syslog holds many hosts; localhost is nobody's name."""
    text = f"{FEB} gpu-9 kernel: {BUS_LOSS}\n{FEB} localhost kernel: {BUS_LOSS}\n"
    found = [f for f in parse(text) if isinstance(f, XidEvent)]
    assert ["gpu-9", "gpu-1"] == [f.node for f in found]


def test_a_quiet_log_says_how_far_it_goes() -> None:
    """No Xid is evidence only for the time that the log covers."""
    found = parse(
        f"{FEB} gpu-9 kernel: eth2: renamed from veth71\n"
        "2025-02-18T05:00:00Z gpu-9 kernel: eth3: renamed from veth72\n"
    )
    assert 1 == len(found)
    span = found[0]
    assert isinstance(span, KernelLogSpan)
    assert ("gpu-9", ns(FEB), ns("2025-02-18T05:00:00Z"), 2) == (
        span.node,
        span.first_ns,
        span.last_ns,
        span.lines,
    )


def test_line_numbers_point_at_the_line() -> None:
    """Every claim is traced to its line."""
    event = only_xid("[1.0] a\n[2.0] b\n\n[3.0] " + BUS_LOSS + "\n")
    assert Origin(path="kernel/gpu-1.log", line=4) == event.origin


def test_both_searches_find_the_same() -> None:
    """Without google-re2 the literals are searched one by one, with equal results."""
    text = "".join(f"[{i}.0] {message}\nnoise {i}\n" for i, (message, _, _) in enumerate(MESSAGES))
    data = (text + f"[9.0] {BUS_LOSS}").encode()
    lines = {kernel_candidates.line_bounds(data, at) for at in kernel_candidates.hits_by_find(data)}
    found = [(start, start + len(raw)) for start, _, raw in
             kernel_candidates.entries(data, kernel_candidates.line_bounds)]  # fmt: skip
    assert sorted(lines) == found
    assert len(MESSAGES) + 1 == len(found)


@pytest.mark.parametrize(
    "prefix",
    [
        "[ 1840221.771101] ",
        "<4>[ 1840221.771101] ",
        "kern  :err   : [ 1840221.771101] ",
        "[Tue Feb 18 04:11:47 2025] ",
        "[二 2月 18 04:11:47 2025] ",
        "[mar. févr. 18 04:11:47 2025] ",
        "[Feb18 04:11] ",
        "[  +0.000316] ",
        "2025-02-18T04:11:47,123456+01:00 ",
        "Feb 18 04:11:47 g kernel: ",
        "2025-02-18T04:11:47+0100 g kernel: ",
        "Tue 2025-02-18 04:11:47 CET g kernel: ",
        "1739848307.123456 g kernel: ",
        "<4>1 2025-02-18T04:11:47Z g kernel - - - ",
        "10.5.0.2: kern:     err: [2025-02-18T04:11:47.5Z]: ",
    ],
)
def test_a_kernel_log_by_its_lines(prefix: str) -> None:
    """Whatever the file is called."""
    assert kernel_log.matches("a/b.txt", f"{prefix}usb 1-1: x\n".encode())


def test_what_is_no_kernel_log() -> None:
    """By name or by most of its lines, and never a pod's log or binary data."""
    assert kernel_log.matches("kernel/gpu-1.log", b"")
    assert kernel_log.matches("a.json", json.dumps(ENTRY).encode())
    assert not kernel_log.matches("logs/train-0.log", b"2025-02-18 04:11:47 INFO step 1 loss 2.0\n")
    assert not kernel_log.matches(
        "logs/train-0.log", f"step 1\nstep 2\n[1.5] {BUS_LOSS}\n".encode()
    )
    assert not kernel_log.matches("kernel/image.bin", b"\x7fELF\x00\x00")


def test_a_kernel_line_in_another_log() -> None:
    """A log store's stream of kernel lines goes through the line recogniser."""
    found = pasted.read(kernel_lines.recognise, BUS_LOSS, at_ns=5)
    event = found[0]
    assert isinstance(event, XidEvent)
    assert (79, 5, "log") == (event.xid, event.at_ns, event.source)


def test_a_kernel_log_is_not_read_twice() -> None:
    """A file that is a kernel log by its name belongs to the file parser alone."""
    line = LogLine(BUS_LOSS, 5, True, Speaker(stream="s"), "kernel/gpu-1.log", 1)
    assert [] == list(kernel_lines.recognise(line, lambda _count: []))


# --- Broken input ---------------------------------------------------------------------------------


def test_an_empty_log_says_nothing() -> None:
    """An empty file is no statement about a node."""
    assert [] == parse(b"")


def test_cut_lines_and_bytes_that_are_no_text() -> None:
    """A log may end anywhere and hold anything; the lines that are whole still count."""
    data = b"\xff\xfe[1.0] x\n[2.0] " + BUS_LOSS.encode() + b"\r\n[3.0] NVRM: Xid (PCI:00"
    assert [79] == [f.xid for f in parse(data) if isinstance(f, XidEvent)]


def test_colour_and_doubled_lines() -> None:
    """dmesg --color, and a file that was copied twice into one."""
    line = f"\x1b[32m[    2.000000] \x1b[0m\x1b[33mNVRM: \x1b[0m{BUS_LOSS.removeprefix('NVRM: ')}\n"
    assert (2.0, 1) == ((event := only_xid(line * 2)).boot_s, event.repeats)


def test_interleaved_gpus_stay_apart() -> None:
    """Lines of eight GPUs alternate; each keeps its own burst."""
    text = "".join(
        f"[{10 + i / 100:.6f}] NVRM: Xid (PCI:0000:{0x10 + i % 8:02x}:00): 45, pid=7, name=p, Ch {i}\n"
        for i in range(80)
    )
    found = [f for f in events(text) if isinstance(f, XidEvent)]
    assert [9] * 8 == [f.repeats for f in found]
