"""The catalogue: every row sourced, unknown codes said unknown, causes before symptoms."""

from __future__ import annotations

import csv
from itertools import pairwise

import pytest
from builders import origin

from gpufleet_cli import xid_catalog, xid_tables
from gpufleet_cli.facts import XidEvent
from gpufleet_cli.parsers import kernel_xid


def event_of(line: str) -> XidEvent:
    """The event of a driver message."""
    found = kernel_xid.read(line)
    assert found is not None
    return XidEvent(
        xid=found.xid,
        node="gpu-1",
        pci_bus_id=found.pci_bus_id,
        at_ns=None,
        text=line,
        origin=origin(),
        source="kernel",
        severity=found.severity,
        unit=found.unit,
        subcode=found.subcode,
        link=found.link,
        words=found.words,
        recovery=found.recovery,
        caused_by=found.caused_by,
    )


def nvlink(rest: str) -> xid_catalog.XidReading:
    return xid_catalog.read(event_of(f"NVRM: Xid (PCI:0008:01:00): {rest}"))


# --- Tables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(p.name for p in xid_tables.DATA.glob("*.csv")))
def test_every_row_has_a_source(name: str) -> None:
    """A table of the outside world says where each row comes from."""
    with (xid_tables.DATA / name).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    # One table of NVIDIA's, whose source is in the catalogue's row; and our own words for completion.
    if name not in ("xid-nvlink5.csv", "words.csv"):
        assert all(row["source"].strip() for row in rows)


def test_every_code_has_a_role_and_a_known_word_for_everything() -> None:
    """No row falls back on a default, and no word stands outside its set."""
    for code in xid_catalog.codes():
        entry = xid_catalog.xid(code)
        assert entry.role in ("cause", "effect", "either")
        assert {entry.stops_process, entry.degrades, entry.worsens} <= {"yes", "no", "maybe"}
        assert entry.disposition in (
            "evict-now",
            "cordon-at-checkpoint",
            "watch",
            "fix-app",
            "ignore",
        )
        assert entry.role_why


def test_roles_and_priors_speak_of_codes_that_exist() -> None:
    """Judgement about a code that the catalogue does not have would never be used."""
    known = set(xid_catalog.codes())
    for name in ("xid-roles.csv", "xid-stop-priors.csv"):
        with (xid_tables.DATA / name).open(encoding="utf-8", newline="") as file:
            assert {int(row["code"]) for row in csv.DictReader(file)} <= known


def test_unused_codes_are_never_a_reason_to_evict() -> None:
    """CONTACT_SUPPORT on an unused code is a placeholder."""
    for code in xid_catalog.codes():
        entry = xid_catalog.xid(code)
        if "Marked Unused" in entry.notes:
            assert entry.disposition in ("watch", "ignore", "cordon-at-checkpoint"), code


# --- Xid ------------------------------------------------------------------------------------------


def test_the_bus_loss() -> None:
    """79: the whole node, whoever else complains."""
    entry = xid_catalog.xid(79)
    assert ("RESTART_BM", "reboot", "evict-now", "cause") == (
        entry.action,
        entry.returns_to_service_after,
        entry.disposition,
        entry.role,
    )
    assert entry.stop_prior is not None
    assert 0.98 == entry.stop_prior.mean


@pytest.mark.parametrize("code", [0, 177, 5_000, 9_999])
def test_an_unknown_code_is_unknown(code: int) -> None:
    """Neither the worst nor the mildest case."""
    entry = xid_catalog.xid(code)
    assert (False, "unknown", "unknown", None) == (
        entry.known,
        entry.disposition,
        entry.stops_process,
        entry.stop_prior,
    )


@pytest.mark.parametrize("code", [43, 45, 154])
def test_symptoms_are_effects(code: int) -> None:
    """They stand on innocent GPUs after somebody else died."""
    assert "effect" == xid_catalog.xid(code).role


def test_causes_come_before_symptoms() -> None:
    """Ranked by what the code is, not by when or how often it came."""
    order = [79, 74, 31, 43]
    ranks = [xid_catalog.severity_rank(code) for code in order]
    assert all(a < b for a, b in pairwise(ranks))
    assert xid_catalog.severity_rank(95) < xid_catalog.severity_rank(63)
    assert xid_catalog.severity_rank(63) < xid_catalog.severity_rank(45)


def test_an_unknown_code_ranks_between() -> None:
    """Above the symptoms, below the causes."""
    unknown = xid_catalog.severity_rank(5_000)
    assert xid_catalog.severity_rank(79) < unknown < xid_catalog.severity_rank(45)


# --- NVLink 5 -------------------------------------------------------------------------------------


def test_the_published_line_decodes() -> None:
    """0x004505c6: sub-code 4, unit bits of a driver before 575."""
    reading = nvlink("149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)")
    row = reading.nvlink5[0]
    assert 1 == len(reading.nvlink5)
    assert (4, "before 575", "INVESTIGATE_LINK_SI") == (row.subcode, row.driver, row.investigate)
    assert ("link", True, "cordon-at-checkpoint") == (
        reading.side,
        reading.fatal,
        reading.disposition,
    )


@pytest.mark.parametrize("subcode", [0x15, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25])
@pytest.mark.parametrize("unit_bits", [0x1C6, 0x11])
def test_some_sub_codes_blame_the_far_end(subcode: int, unit_bits: int) -> None:
    """On either side of driver 575; the GPU that prints it is then innocent."""
    word = subcode << 20 | unit_bits
    reading = nvlink(f"149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 ({word:#010x} 0x00000000)")
    assert ("peer", "effect") == (reading.side, reading.role)


def test_the_unit_bits_do_without_the_name() -> None:
    """A line whose unit we have no name for is decoded by its bits."""
    word = 0x2 << 20 | 0x11
    reading = nvlink(f"149, NETIR_RENAMED Fatal XC0 i0 Link 08 ({word:#010x} 0x00000000)")
    assert [("575 or later", 2)] == [(row.driver, row.subcode) for row in reading.nvlink5]


def test_a_status_word_of_several_bits_gives_several_rows() -> None:
    """SAW statuses are bits: 0x3 is a corrected and a fatal one; the line's word decides."""
    rows = xid_catalog.nvlink5(
        event_of("NVRM: Xid (PCI:0008:01:00): 144, SAW_MVB Fatal XC0 i0 Link -1 (0x1 0x3)")
    )
    assert [(2, "Fatal")] == [(row.error_status, row.severity) for row in rows]


def test_a_corrected_line_asks_for_nothing() -> None:
    """Non-fatal with IGNORE: no cordon."""
    reading = nvlink("145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x00000006 0x00000008)")
    assert (False, "ignore") == (reading.fatal, reading.disposition)


def test_a_by_product_is_an_effect() -> None:
    """A remap event within 30 s of a dropped link follows that link."""
    reading = nvlink("145, RLW_REMAP Nonfatal XC0 i0 Link 2 (0x00000004 0x00000004)")
    assert ("by-product", "effect") == (reading.side, reading.role)


def test_a_sub_code_of_no_row_is_unknown() -> None:
    """No row is stretched to fit."""
    reading = nvlink("149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x03f00011 0x00000000)")
    assert ((), "unclear") == (reading.nvlink5, reading.side)


# --- 74, 154, SXid --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "side"),
    [
        ("0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "local"),
        ("0x100002, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "peer"),
        ("0x0, 0x0, 0x0, 0x30000, 0x0, 0x0, 0x0", "peer"),
        ("0x200000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "link"),
        ("0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "unclear"),
        ("0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "unclear"),
    ],
)
def test_registers_tell_the_side(words: str, side: str) -> None:
    """ECC is local, sympathetic bits point away, marginal signal is the link, the rest is open."""
    line = f"NVRM: Xid (PCI:0000:3b:00): 74, x, NVLink: fatal error detected on link 1({words})"
    assert side == xid_catalog.read(event_of(line)).side


def test_the_drivers_own_recommendation() -> None:
    """154 is no fault; its value says what the GPU needs."""
    line = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from {} to {}"
    reboot = xid_catalog.read(event_of(line.format("0x0 (None)", "0x2 (Node Reboot Required)")))
    fine = xid_catalog.read(event_of(line.format("0x2 (Node Reboot Required)", "0x0 (None)")))
    assert ("reboot the node", "evict-now") == (
        reboot.recovery and reboot.recovery.meaning,
        reboot.disposition,
    )
    assert "ignore" == fine.disposition
    assert xid_catalog.recovery(99) is None


def test_switch_errors() -> None:
    """Fatal by table, unlisted by table, and not there at all."""
    assert (True, False, None) == tuple(
        xid_catalog.sxid(code).fatal for code in (20034, 12028, 19001)
    )
    assert not xid_catalog.sxid(1).known
