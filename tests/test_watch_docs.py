"""docs/watch.md has a row for each event and each alert of a watch, and its command's own numbers."""

from __future__ import annotations

import re
from pathlib import Path

from gpufleet_cli.operate.watch.log_eyes import ASKED, FOLLOWED, HISTORY_LINES, TAIL_LINES
from gpufleet_cli.operate.watch.outbox import NAMES
from gpufleet_cli.watch_card import SCHEMA, Kind

TEXT = (Path(__file__).parents[1] / "docs" / "watch.md").read_text(encoding="utf-8")


def test_every_event_and_alert_has_its_row() -> None:
    """And there is none that the program does not tell."""
    rows = TEXT.split("| event | when | alert |")[1].split("\n\n")[0].splitlines()[2:]
    named = [one for row in rows for one in re.findall(r"`([\w-]+)`", row.split("|")[1])]
    assert sorted(named) == sorted(kind.value for kind in Kind)
    alerts = {
        alert: severity
        for row in rows
        for alert, severity in re.findall(r"`(Gpufleet\w+)`, (\w+)", row)
    }
    assert alerts == dict(NAMES.values())
    assert SCHEMA in TEXT


def test_what_it_asks_is_what_is_said() -> None:
    assert f"at most {FOLLOWED} logs ({ASKED} until" in " ".join(TEXT.split())
    assert f"or {TAIL_LINES} lines" in TEXT
    assert f"{HISTORY_LINES:,} lines of one log" in " ".join(TEXT.split())
