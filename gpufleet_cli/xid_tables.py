"""The tables of data/*.csv as typed rows: Xid, NVLink 5 decode, Xid 74 registers, SXid, Xid 154.

Every row carries its source. `xid_catalog` has the look-ups.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, cast

DATA = Path(__file__).parent / "data"

Ternary = Literal["yes", "no", "maybe", "unknown"]
Role = Literal["cause", "effect", "either"]
Disposition = Literal["evict-now", "cordon-at-checkpoint", "watch", "fix-app", "ignore", "unknown"]
Side = Literal["local", "peer", "link", "software", "by-product", "unclear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPrior:
    """Beta(stopped, went_on): does a synchronous job stop within 10 minutes of this code?

    It is not the chance that the hardware is bad: 13 and 31 stop jobs and are mostly software.
    """

    stopped: float
    went_on: float
    note: str
    source: str

    @property
    def mean(self) -> float:
        return self.stopped / (self.stopped + self.went_on)


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEntry:
    """One code of the catalogue.

    `action` is NVIDIA's immediate action, `investigate` its second one. `role` is whether the code
    starts a story or follows one; `effect` codes never make their GPU the root.
    """

    code: int
    known: bool
    name: str
    meaning: str
    layer: str
    typical_cause: str
    action: str
    investigate: str
    stops_process: Ternary
    degrades: Ternary
    worsens: Ternary
    disposition: Disposition
    returns_to_service_after: str
    notes: str
    role: Role
    role_why: str
    stop_prior: StopPrior | None
    source: str
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink5Row:
    """One row of the NVLink 5 decode table (Xid 144-150). `driver` is "575 or later" or "before
    575" when the unit bits told, "" when the unit's name did."""

    xid: int
    unit: str
    subcode: int
    error_status: int
    severity: str
    action: str
    second_action: str
    investigate: str
    kind: str
    side: Side
    side_text: str
    driver: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterReading:
    """One bit set in the registers of an Xid 74 line (NVLink 4 and older)."""

    register: int
    bit: int
    reading: str
    side: Literal["local", "far-end", "link", "unclear", "none"]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SxidEntry:
    """One NVSwitch code. `fatal` is None where no source classes it: read the word in the line."""

    code: int
    known: bool
    meaning: str
    fatal: bool | None
    severity: str
    action: str
    disagreement: str
    source: str
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryAction:
    """A value of Xid 154: what the driver says this GPU needs."""

    value: int
    name: str
    meaning: str
    returns_to_service_after: str
    disposition: Disposition
    source: str


# --- Tables -------------------------------------------------------------------------------------


def _rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@lru_cache(maxsize=1)
def xids() -> Mapping[int, XidEntry]:
    roles = {int(row["code"]): row for row in _rows("xid-roles.csv")}
    priors = {int(row["code"]): row for row in _rows("xid-stop-priors.csv")}
    return {
        int(row["code"]): _entry(row, roles[int(row["code"])], priors.get(int(row["code"])))
        for row in _rows("xid.csv")
    }


def _entry(row: dict[str, str], role: dict[str, str], prior: dict[str, str] | None) -> XidEntry:
    action, _, investigate = row["nvidia_action"].partition(" (investigate: ")
    return XidEntry(
        code=int(row["code"]),
        known=True,
        name=row["name"],
        meaning=row["meaning"],
        layer=row["layer"],
        typical_cause=row["typical_cause"],
        action=action,
        investigate=investigate.removesuffix(")").replace("\\n", "; "),
        stops_process=cast(Ternary, row["stops_process"]),
        degrades=cast(Ternary, row["degrades_running_job"]),
        worsens=cast(Ternary, row["worsens_if_left"]),
        disposition=cast(Disposition, row["default_disposition"]),
        returns_to_service_after=row["returns_to_service_after"],
        notes=row["arch_notes"],
        role=cast(Role, role["role"]),
        role_why=role["why"],
        stop_prior=_prior(prior) if prior else None,
        source=row["source"],
        confidence=row["confidence"],
    )


def _prior(row: dict[str, str]) -> StopPrior:
    return StopPrior(
        stopped=float(row["stopped"]),
        went_on=float(row["went_on"]),
        note=row["note"],
        source=row["source"],
    )


_SIDES: tuple[tuple[str, Side], ...] = (
    ("local", "local"),
    ("peer", "peer"),
    ("link", "link"),
    ("software", "software"),
    ("by-product", "by-product"),
)


@lru_cache(maxsize=1)
def nvlink5_rows() -> tuple[tuple[Nvlink5Row, int, int], ...]:
    """Rows with their unit bits before and from driver 575."""
    return tuple(
        (
            Nvlink5Row(
                xid=int(row["xid"]),
                unit=row["unit"],
                subcode=int(row["subcode_bits25_20"]),
                error_status=int(row["error_status"], 16),
                severity=row["severity"],
                action=row["action"],
                second_action=row["second_action"],
                investigate=row["investigate"],
                kind=row["kind"],
                side=next((s for p, s in _SIDES if row["which_side"].startswith(p)), "unclear"),
                side_text=row["which_side"],
            ),
            int(row["unit_bits_before_r575"], 16),
            int(row["unit_bits_from_r575"], 16),
        )
        for row in _rows("xid-nvlink5.csv")
    )


@lru_cache(maxsize=1)
def sxids() -> Mapping[int, SxidEntry]:
    fatal = {"fatal": True, "always-fatal": True, "non-fatal": False}
    return {
        int(row["code"]): SxidEntry(
            code=int(row["code"]),
            known=True,
            meaning=row["meaning"],
            fatal=fatal.get(row["class"]),
            severity=row["class"],
            action=row["action"],
            disagreement=row["disagreement"],
            source=row["source"],
            confidence=row["confidence"],
        )
        for row in _rows("sxid.csv")
    }


@lru_cache(maxsize=1)
def registers() -> Mapping[tuple[int, int], RegisterReading]:
    return {
        (int(row["register"]), int(row["bit"])): RegisterReading(
            register=int(row["register"]),
            bit=int(row["bit"]),
            reading=row["reading"],
            side=cast(Literal["local", "far-end", "link", "unclear", "none"], row["side"]),
            source=row["source"],
        )
        for row in _rows("xid74-registers.csv")
    }


@lru_cache(maxsize=1)
def recovery_actions() -> Mapping[int, RecoveryAction]:
    return {
        int(row["value"]): RecoveryAction(
            value=int(row["value"]),
            name=row["name"],
            meaning=row["meaning"],
            returns_to_service_after=row["returns_to_service_after"],
            disposition=cast(Disposition, row["disposition"]),
            source=row["source"],
        )
        for row in _rows("xid154-actions.csv")
    }
