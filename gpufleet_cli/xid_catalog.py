"""Typed look-up over data/*.csv: what an Xid, an NVLink 5 sub-code or an SXid means.

The tables carry a source per row. Meaning and action are NVIDIA's (catalog of 2025-10-29); what
follows for a job (stops, degrades, worsens, disposition, role) is our judgement and says so. An
unknown code is answered as unknown, never as the worst or the mildest case.

>>> xid(79).meaning, xid(79).role
('GPU fell off the PCIe bus; unreachable', 'cause')
>>> xid(9999).known
False
>>> sorted([45, 79, 74, 43], key=severity_rank)
[79, 74, 43, 45]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpufleet_cli import xid_tables as tables
from gpufleet_cli.xid_tables import (
    Disposition,
    Nvlink5Row,
    RecoveryAction,
    RegisterReading,
    Role,
    Side,
    StopPrior,
    SxidEntry,
    XidEntry,
)

if TYPE_CHECKING:  # the facts cost more to import than the look-up of a code
    from gpufleet_cli.facts import XidEvent

__all__ = [
    "NVLINK5_CODES",
    "Disposition",
    "Nvlink5Row",
    "RecoveryAction",
    "RegisterReading",
    "Role",
    "Side",
    "StopPrior",
    "SxidEntry",
    "XidEntry",
    "XidReading",
    "codes",
    "nvlink5",
    "nvlink74",
    "read",
    "recovery",
    "severity_rank",
    "sxid",
    "xid",
]

NVLINK5_CODES = frozenset(range(144, 151))
_ROLE_ORDER = {"cause": 0, "either": 1, "effect": 2}
_DISPOSITION_ORDER = {
    "evict-now": 0,
    "cordon-at-checkpoint": 1,
    "watch": 2,
    "unknown": 2,
    "fix-app": 3,
    "ignore": 4,
}


# --- Look-ups -----------------------------------------------------------------------------------


def xid(code: int) -> XidEntry:
    """The entry of a code, or one that says that nothing is known of it."""
    return tables.xids().get(code) or XidEntry(
        code=code,
        known=False,
        name="unknown",
        meaning="Not in the catalogue: nothing is known of this code",
        layer="unknown",
        typical_cause="unknown",
        action="not stated",
        investigate="",
        stops_process="unknown",
        degrades="unknown",
        worsens="unknown",
        disposition="unknown",
        returns_to_service_after="unknown",
        notes="Look it up at https://docs.nvidia.com/deploy/xid-errors/ for your driver version.",
        role="either",
        role_why="unknown code",
        stop_prior=None,
        source="none",
        confidence="none",
    )


def codes() -> tuple[int, ...]:
    """Every Xid of the catalogue, ascending."""
    return tuple(sorted(tables.xids()))


def sxid(code: int) -> SxidEntry:
    """The entry of an NVSwitch code, or one that says that nothing is known of it."""
    return tables.sxids().get(code) or SxidEntry(
        code=code,
        known=False,
        meaning="Not in the catalogue: nothing is known of this code",
        fatal=None,
        severity="unknown",
        action="read Fatal or Non-fatal in the log line",
        disagreement="",
        source="none",
        confidence="none",
    )


def recovery(value: int) -> RecoveryAction | None:
    """What the new value of an Xid 154 asks for; None for a value that no source names."""
    return tables.recovery_actions().get(value)


def severity_rank(code: int) -> int:
    """Smaller is likelier the cause: cause before either before effect, then by disposition, then
    by how often the code stops a job. Time breaks ties, after this, never before it."""
    entry = xid(code)
    stops = entry.stop_prior.mean if entry.stop_prior else _ordinary_stop(entry)
    order = _ROLE_ORDER[entry.role] * 10 + _DISPOSITION_ORDER[entry.disposition]
    return order * 100 + round((1 - stops) * 99)


def _ordinary_stop(entry: XidEntry) -> float:
    return {"yes": 0.8, "maybe": 0.5, "no": 0.1, "unknown": 0.5}[entry.stops_process]


# --- NVLink -------------------------------------------------------------------------------------


def nvlink5(event: XidEvent) -> tuple[Nvlink5Row, ...]:
    """The decode rows that fit an NVLink 5 event: one where the line tells all, several where its
    status word has several bits, none where it fits no row (the sub-code is unknown then).

    The unit is told by its name, else by the low bits of the first word: nine to zero before
    driver 575, six to zero from it on, so both patterns are tried.
    """
    if event.xid not in NVLINK5_CODES:
        return ()
    rows = _unit_rows(event)
    if event.words:
        subcode = event.words[0] >> 20 & 0x3F
        if any(row.subcode for row in rows) or any(row.subcode == subcode for row in rows):
            rows = [row for row in rows if row.subcode == subcode]
        status = event.words[1] if len(event.words) > 1 else 0
        rows = _status_rows(rows, status)
    if len(rows) > 1 and event.severity is not None:
        told = [row for row in rows if _is_fatal(row.severity) == _is_fatal(event.severity)]
        rows = told or rows
    return tuple(rows)


def _unit_rows(event: XidEvent) -> list[Nvlink5Row]:
    table = [row for row in tables.nvlink5_rows() if row[0].xid == event.xid]
    word = event.words[0] if event.words else None
    named = [row for row in table if event.unit in row[0].unit.split("/")]
    if named:
        rows = [_with_driver(*row, word) for row in named]
        return [row for row in rows if row.driver] or rows
    if word is None:
        return []
    return [_with_driver(*row, word) for row in table if _driver(row[1], row[2], word)]


def _with_driver(row: Nvlink5Row, before: int, since: int, word: int | None) -> Nvlink5Row:
    return replace(row, driver=_driver(before, since, word) if word is not None else "")


def _driver(before: int, since: int, word: int) -> str:
    if word & 0x3FF == before:
        return "before 575"
    return "575 or later" if word & 0x7F == since else ""


def _status_rows(rows: list[Nvlink5Row], status: int) -> list[Nvlink5Row]:
    exact = [row for row in rows if row.error_status == status]
    if exact or not rows:
        return exact
    if all(row.error_status.bit_count() == 1 for row in rows):
        return [row for row in rows if row.error_status & status]
    return []


def _is_fatal(severity: str) -> bool:
    return severity.lower() in ("fatal", "link fatal")


def nvlink74(words: tuple[int, ...]) -> tuple[RegisterReading, ...]:
    """The set bits of an Xid 74 line that NVIDIA gives a reading for, in register order.

    Register 1 is the first number after the link. Bits without a reading are left out.
    """
    readings = tables.registers()
    return tuple(
        readings[register, bit]
        for register, word in enumerate(words[:7], 1)
        for bit in range(32)
        if word >> bit & 1 and (register, bit) in readings
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class XidReading:
    """What the line of one event says beyond its code.

    `fatal` is True or False where the line or the decode says so. `side` is which end of a link is
    the source, None where the event is no link event. `disposition` is the entry's, made milder or
    sterner by the line. `summary` is one phrase for a report.
    """

    entry: XidEntry
    nvlink5: tuple[Nvlink5Row, ...]
    registers: tuple[RegisterReading, ...]
    recovery: RecoveryAction | None
    fatal: bool | None
    side: Side | None
    role: Role
    disposition: Disposition
    summary: str


def read(event: XidEvent) -> XidReading:
    """Everything that the catalogue can say of one event."""
    entry = xid(event.xid)
    rows = nvlink5(event)
    registers = nvlink74(event.words) if event.xid == 74 else ()
    action = recovery(event.words[-1]) if event.xid == 154 and event.words else None
    fatal = _fatality(event, rows)
    side = _side(event, rows, registers)
    return XidReading(
        entry=entry,
        nvlink5=rows,
        registers=registers,
        recovery=action,
        fatal=fatal,
        side=side,
        role=_role(entry, side, fatal),
        disposition=_disposition(entry, rows, fatal, action),
        summary=_summary(event, entry, rows, action),
    )


def _fatality(event: XidEvent, rows: tuple[Nvlink5Row, ...]) -> bool | None:
    if event.severity is not None:
        return _is_fatal(event.severity)
    told = {_is_fatal(row.severity) for row in rows}
    return told.pop() if len(told) == 1 else None


def _side(
    event: XidEvent, rows: tuple[Nvlink5Row, ...], registers: tuple[RegisterReading, ...]
) -> Side | None:
    if event.xid in NVLINK5_CODES:
        sides = {row.side for row in rows}
        return sides.pop() if len(sides) == 1 else "unclear"
    if event.xid != 74:
        return None
    ends = {reading.side for reading in registers} - {"none"}
    if ends == {"far-end"}:
        return "peer"
    if "local" in ends:
        return "local"
    return "link" if "link" in ends else "unclear"


def _role(entry: XidEntry, side: Side | None, fatal: bool | None) -> Role:
    if side in ("peer", "by-product"):
        return "effect"
    if entry.code in NVLINK5_CODES and fatal and side in ("local", "link"):
        return "cause"
    return entry.role


def _disposition(
    entry: XidEntry,
    rows: tuple[Nvlink5Row, ...],
    fatal: bool | None,
    action: RecoveryAction | None,
) -> Disposition:
    if action is not None:
        return action.disposition
    if entry.code not in NVLINK5_CODES or fatal is None:
        return entry.disposition
    if not fatal:
        return "watch" if any(row.action != "IGNORE" for row in rows) else "ignore"
    link_only = any(row.severity == "Link Fatal" for row in rows)
    return "cordon-at-checkpoint" if link_only else "evict-now"


def _summary(
    event: XidEvent,
    entry: XidEntry,
    rows: tuple[Nvlink5Row, ...],
    action: RecoveryAction | None,
) -> str:
    if action is not None:
        return f"the driver says: {action.meaning}"
    if event.xid in NVLINK5_CODES and event.unit is not None:
        link = f" link {event.link}" if event.link is not None else ""
        source = f", source: {rows[0].side_text}" if len({r.side_text for r in rows}) == 1 else ""
        return f"{entry.meaning} ({event.unit} {event.severity or ''}{link}{source})"
    if event.xid == 74 and event.link is not None:
        return f"{entry.meaning} (link {event.link})"
    return entry.meaning
