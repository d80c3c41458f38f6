"""One Xid or SXid as a card: what it means, what it does to a job, what to do about it.

Text is plain and fits 80 columns; `document` is the same as a JSON object. Needs no evidence.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpufleet_cli import xid_catalog
from gpufleet_cli.plain_text import visible
from gpufleet_cli.xid_catalog import Nvlink5Row, StopPrior, XidReading

if TYPE_CHECKING:  # a code alone needs no facts, and importing them takes its time
    from gpufleet_cli.facts import SxidEvent, XidEvent

WIDTH = 80
LABEL = 24
QUOTE_CHARS = 200

ACTIONS = {
    "RESTART_APP": "restart the application",
    "RESET_GPU": "reset the GPU",
    "RESTART_BM": "restart the whole node",
    "RESTART_VM": "restart the virtual machine",
    "IGNORE": "nothing for this line alone",
    "CONTACT_SUPPORT": "contact support",
    "CHECK_MECHANICALS": "check cables and seating",
    "UPDATE_SWFW": "update software and firmware",
    "CHECK_UVM": "reset the GPU if unified memory or vGPU is used",
    "XID_154": "follow the value of the line",
    "XID_154_EVAL": "follow Xid 154 if one appeared, else restart the application",
    "WORKFLOW_XID_45": "with another Xid follow that one; alone, look at the fabric manager",
    "WORKFLOW_XID_48": "reset the GPU; see 63, 64, 94, 95 beside it",
    "WORKFLOW_NVLINK_ERR": "read the registers of the line",
    "WORKFLOW_NVLINK5_ERR": "read severity and sub-code of the line",
    "not stated": "no action published",
    "not in catalog": "not in the published catalogue",
}
DISPOSITIONS = {
    "evict-now": "evict now if the job is stopped, slowed by it, or its state suspect; "
    "else cordon now and evict at the next checkpoint",
    "cordon-at-checkpoint": "cordon now, evict at the next checkpoint; reset at once where the "
    "job is stopped anyway",
    "watch": "leave the node alone and watch",
    "fix-app": "look at the program first; no cordon for this alone",
    "ignore": "nothing",
    "unknown": "not known: do not act on this code alone",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A code, and the line it was read from, if there was one. `note` is a remark on the line."""

    code: int
    is_sxid: bool = False
    event: XidEvent | None = None
    sxid_event: SxidEvent | None = None
    note: str = ""


def text(card: Card) -> str:
    """The card for a person."""
    rows = _sxid_rows(card) if card.is_sxid else _xid_rows(card)
    return "\n".join(line for label, value in rows if value for line in _row(label, value))


def document(card: Card) -> dict[str, object]:
    """The card for a script."""
    return _sxid_document(card) if card.is_sxid else _xid_document(card)


def _row(label: str, value: str) -> list[str]:
    if not label:
        return textwrap.wrap(visible(value), WIDTH, subsequent_indent=" " * 8) or [""]
    lines = textwrap.wrap(visible(value), WIDTH - LABEL - 2, break_on_hyphens=False) or [""]
    head = f"  {label:<{LABEL}}{lines[0]}"
    return [head, *(" " * (LABEL + 2) + line for line in lines[1:])]


# --- Xid ----------------------------------------------------------------------------------------


def _reading(card: Card) -> XidReading | None:
    return xid_catalog.read(card.event) if card.event else None


def _xid_rows(card: Card) -> list[tuple[str, str]]:
    entry, reading = xid_catalog.xid(card.code), _reading(card)
    disposition = reading.disposition if reading else entry.disposition
    title = f"XID {card.code}  {entry.meaning}"
    if not entry.known:
        title = f"XID {card.code}  unknown: not in the catalogue, nothing can be said of it"
    role = reading.role if reading else entry.role
    return [
        ("", title),
        ("name", f"{entry.name} ({entry.layer})" if entry.known else ""),
        *_event_rows(card, reading),
        ("stops the process?", _stops(entry.stops_process, entry.stop_prior)),
        ("degrading it now?", entry.degrades),
        ("worse if left?", entry.worsens),
        ("cause or effect?", f"{role}: {entry.role_why}" if role == entry.role else role),
        ("what to do", DISPOSITIONS[disposition]),
        ("in service again after", entry.returns_to_service_after if entry.known else ""),
        ("NVIDIA's action", _action(entry.action) if entry.known else ""),
        ("NVIDIA's second step", _action(entry.investigate)),
        ("typical cause", entry.typical_cause if entry.known else ""),
        ("notes", entry.notes),
        ("", card.note),
        ("source", f"{entry.source} (confidence {entry.confidence})" if entry.known else ""),
    ]


def _stops(answer: str, prior: StopPrior | None) -> str:
    if prior is None:
        return answer
    note = f", {prior.note}" if prior.note else ""
    return f"{answer}; a synchronous job in {prior.mean:.0%} of cases (estimate{note})"


def _action(name: str) -> str:
    """NVIDIA's word with what it means."""
    meaning = ACTIONS.get(name)
    return f"{name}: {meaning}" if meaning else name


def _event_rows(card: Card, reading: XidReading | None) -> list[tuple[str, str]]:
    """What the pasted line says beyond its code."""
    event = card.event
    if event is None or reading is None:
        return []
    where = " ".join(
        part
        for part in (
            event.node or "",
            event.pci_bus_id or "",
            f"MIG instance {event.gpu_instance}" if event.gpu_instance is not None else "",
        )
        if part
    )
    process = event.process or "unknown process"
    return [
        ("this line", event.text[:QUOTE_CHARS]),
        ("where", where),
        ("process", f"{process} (host pid {event.pid})" if event.pid is not None else ""),
        ("after", f"Xid {event.caused_by}: follow that one" if event.caused_by else ""),
        ("unit, severity, link", _nvlink_line(event)),
        *(("decoded", _nvlink5(row)) for row in reading.nvlink5),
        ("decoded", _undecoded(event, reading)),
        *(
            ("decoded", f"register {bit.register} bit {bit.bit}: {bit.reading}")
            for bit in reading.registers
        ),
        ("source of the fault", reading.side or ""),
        ("driver asks for", reading.recovery.meaning if reading.recovery else event.recovery or ""),
    ]


def _nvlink_line(event: XidEvent) -> str:
    if event.unit is None and event.link is None:
        return ""
    link = f"link {event.link}" if event.link is not None else ""
    return ", ".join(part for part in (event.unit or "", event.severity or "", link) if part)


def _nvlink5(row: Nvlink5Row) -> str:
    driver = f", driver {row.driver}" if row.driver else ""
    return (
        f"{row.unit} sub-code {row.subcode:#x} status {row.error_status:#010x}: {row.severity}, "
        f"{_action(row.action)}; source: {row.side_text}; investigate: {row.investigate}{driver}"
    )


def _undecoded(event: XidEvent, reading: XidReading) -> str:
    if event.xid not in xid_catalog.NVLINK5_CODES or reading.nvlink5:
        return ""
    return "sub-code unknown: the line fits no row of the decode table"


def _xid_document(card: Card) -> dict[str, object]:
    entry, reading = xid_catalog.xid(card.code), _reading(card)
    prior = entry.stop_prior
    return {
        "kind": "xid",
        "xid": card.code,
        "known": entry.known,
        "name": entry.name,
        "meaning": entry.meaning,
        "layer": entry.layer,
        "typical_cause": entry.typical_cause,
        "nvidia_action": entry.action,
        "nvidia_investigate": entry.investigate or None,
        "stops_process": entry.stops_process,
        "degrades_running_job": entry.degrades,
        "worsens_if_left": entry.worsens,
        "stop_probability": round(prior.mean, 4) if prior else None,
        "role": reading.role if reading else entry.role,
        "role_why": entry.role_why,
        "disposition": reading.disposition if reading else entry.disposition,
        "what_to_do": DISPOSITIONS[reading.disposition if reading else entry.disposition],
        "returns_to_service_after": entry.returns_to_service_after,
        "notes": entry.notes,
        "source": entry.source,
        "confidence": entry.confidence,
        "note": card.note or None,
        "event": _event_document(card.event, reading) if card.event and reading else None,
    }


def _event_document(event: XidEvent, reading: XidReading) -> dict[str, object]:
    return {
        "text": visible(event.text[:QUOTE_CHARS]),
        "node": None if event.node is None else visible(event.node),
        "pci_bus_id": event.pci_bus_id,
        "gpu_instance": event.gpu_instance,
        "pid": event.pid,
        "process": None if event.process is None else visible(event.process),
        "caused_by": event.caused_by,
        "unit": event.unit,
        "severity": event.severity,
        "subcode": event.subcode,
        "link": event.link,
        "words": [f"{word:#010x}" for word in event.words],
        "fatal": reading.fatal,
        "side": reading.side,
        "recovery": reading.recovery.meaning if reading.recovery else event.recovery,
        "decoded": [
            {
                "unit": row.unit,
                "subcode": row.subcode,
                "error_status": f"{row.error_status:#010x}",
                "severity": row.severity,
                "action": row.action,
                "second_action": row.second_action or None,
                "investigate": row.investigate,
                "side": row.side_text,
                "driver": row.driver or None,
            }
            for row in reading.nvlink5
        ],
        "registers": [
            {"register": bit.register, "bit": bit.bit, "reading": bit.reading, "side": bit.side}
            for bit in reading.registers
        ],
    }


# --- SXid ---------------------------------------------------------------------------------------


def _fatality(card: Card) -> str:
    entry, event = xid_catalog.sxid(card.code), card.sxid_event
    if event is not None:
        said = "Fatal" if event.fatal else "Non-fatal"
        return f"{said}, as the line says" + (f" (table: {entry.severity})" if entry.known else "")
    return entry.severity


def _sxid_rows(card: Card) -> list[tuple[str, str]]:
    entry, event = xid_catalog.sxid(card.code), card.sxid_event
    title = f"SXID {card.code}  {entry.meaning}"
    if not entry.known:
        title = f"SXID {card.code}  unknown: not in the catalogue, nothing can be said of it"
    where = " ".join(part for part in (event.node or "", event.pci_bus_id or "")) if event else ""
    return [
        ("", title),
        ("this line", event.text[:QUOTE_CHARS] if event else ""),
        ("where", where.strip()),
        ("link", str(event.link) if event and event.link is not None else ""),
        ("fatal?", _fatality(card)),
        ("whose fault", "an NVSwitch: all GPUs of the node, no single one"),
        ("what to do", entry.action),
        ("sources disagree", entry.disagreement),
        ("source", f"{entry.source} (confidence {entry.confidence})" if entry.known else ""),
    ]


def _sxid_document(card: Card) -> dict[str, object]:
    entry, event = xid_catalog.sxid(card.code), card.sxid_event
    return {
        "kind": "sxid",
        "sxid": card.code,
        "known": entry.known,
        "meaning": entry.meaning,
        "fatal": event.fatal if event else entry.fatal,
        "severity": entry.severity,
        "what_to_do": entry.action,
        "disagreement": entry.disagreement or None,
        "source": entry.source,
        "confidence": entry.confidence,
        "event": {
            "text": visible(event.text[:QUOTE_CHARS]),
            "node": None if event.node is None else visible(event.node),
            "pci_bus_id": event.pci_bus_id,
            "link": event.link,
            "fatal": event.fatal,
        }
        if event
        else None,
    }
