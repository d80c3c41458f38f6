"""`gpufleet xid`: a code or a pasted line, offline, in text and JSON, and no more imports than needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpufleet_cli.commands import xid
from gpufleet_cli.errors import UsageError

LINE = (
    "2025-02-18T04:11:47+0100 gpu-b08 kernel: NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', "
    "name=<unknown>, GPU has fallen off the bus."
)


def document(asked: str) -> dict[str, object]:
    found = json.loads(xid.report(asked, as_json=True))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("asked", ["79", "Xid 79", "XID79", "xid: 79", "#79", LINE])
def test_a_code_however_it_is_written(asked: str) -> None:
    """Tired fingers type what they read."""
    found = document(asked)
    assert ("xid", 79, True, "evict-now") == (
        found["kind"],
        found["xid"],
        found["known"],
        found["disposition"],
    )


@pytest.mark.parametrize("asked", ["SXid 20034", "20034", "sxid20034"])
def test_a_switch_code(asked: str) -> None:
    """Five digits are the switch's, with and without the word."""
    assert ("sxid", 20034, True) == tuple(document(asked)[key] for key in ("kind", "sxid", "fatal"))


@pytest.mark.parametrize("asked", ["0", "5000", "SXid 99999"])
def test_a_number_that_no_table_has(asked: str) -> None:
    """It is said to be unknown, and that is an answer."""
    found = document(asked)
    assert found["known"] is False
    assert "unknown" in xid.report(asked, as_json=False).splitlines()[0]


@pytest.mark.parametrize(
    "asked", ["", "hello", "gpu 12 of 13", "Traceback (most recent call last)"]
)
def test_what_is_neither_code_nor_line(asked: str) -> None:
    """One line that says what to type."""
    with pytest.raises(UsageError) as caught:
        xid.read(asked)
    assert caught.value.hint is not None


def test_a_pasted_line_shows_where() -> None:
    """Node and GPU stand in the line."""
    event = document(LINE)["event"]
    assert isinstance(event, dict)
    assert ("gpu-b08", "0000:4e:00") == (event["node"], event["pci_bus_id"])


def test_an_nvlink_5_line_is_decoded() -> None:
    """Sub-code, side and what to do by this line, not by the code alone."""
    line = "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x01500011 0x0)"
    found = document(line)
    event = found["event"]
    assert isinstance(event, dict)
    assert ("effect", "peer", 0x15) == (found["role"], event["side"], event["subcode"])
    assert "peer end" in xid.report(line, as_json=False)


def test_several_lines_and_repeats() -> None:
    """A pasted burst is one card, another code another."""
    lines = [
        f"[{i}.0] NVRM: Xid (PCI:0000:4e:00): 45, pid={i}, name=python3, Ch {i}" for i in range(50)
    ]
    found = document("\n".join([LINE, *lines, "noise"]))["xids"]
    assert isinstance(found, list)
    assert [79, 45] == [card["xid"] for card in found]


def test_off_the_bus_without_a_code() -> None:
    """The same statement as 79."""
    found = document("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.")
    assert 79 == found["xid"]
    assert found["note"]


def test_a_sticky_gauge_is_no_date() -> None:
    """A pasted metric gets the warning that it dates nothing."""
    found = document('DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-1"} 79')
    assert 79 == found["xid"]
    assert "dates nothing" in str(found["note"])


@pytest.mark.parametrize("asked", ["79", "74", "149", "SXid 20034", "5000", LINE])
def test_text_fits_80_columns(asked: str) -> None:
    """Nothing wraps in a terminal of 80 columns."""
    assert max(map(len, xid.report(asked, as_json=False).splitlines())) <= 80


def test_a_line_cannot_move_the_cursor() -> None:
    """Escapes and direction marks of a pasted line become visible."""
    line = "NVRM: Xid (PCI:0000:4e:00): 79, pid=7, name=a\x1b[2Jb\u202ec, x"
    for as_json in (False, True):
        shown = xid.report(line, as_json=as_json)
        assert "\x1b" not in shown
        assert "\u202e" not in shown


def test_a_code_needs_no_parsers_and_no_cluster() -> None:
    """`gpufleet xid 79` answers without importing what reads logs or clusters."""
    code = (
        "import sys\n"
        "from gpufleet_cli.commands.xid import report\n"
        "report('79', as_json=True)\n"
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('kubernetes', 'httpx', 'yaml', 'fsspec') or m.startswith('gpufleet_cli.parsers.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert "[]" == done.stdout.strip()
