"""What a guard of cordons reads of a node: cordoned or not, our four annotations, and whose cordon it is.

Ours is a cordon that whoever wrote our annotations made too (managedFields). Others are known by their own
labels, annotations and taints, else by who wrote the field: data/cordon_owners.csv, a source per row.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Literal

from gpufleet_cli.live import node_view
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.node_card import NodeCordon
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_pods import time_of
from gpufleet_cli.parsers.kubernetes_ranks import annotations_of, labels_of
from gpufleet_cli.timestamps import format_ns

BY, AT, REASON, INCIDENT = (
    "gpufleet/cordoned-by", "gpufleet/cordoned-at", "gpufleet/reason", "gpufleet/incident",
)  # fmt: skip
KEYS = (BY, AT, REASON, INCIDENT)
_TABLE = Path(__file__).parents[1] / "data" / "cordon_owners.csv"
_EMPTY = ("", "[]", "{}")

Kind = Literal[
    "ours", "person", "nvsentinel", "cloud", "slinky", "autoscaler", "maintenance", "unknown"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Our annotations, as they stand on the node."""

    by: str
    at: str
    reason: str
    incident: str | None = None

    @property
    def at_ns(self) -> int | None:
        return time_of(self.at)

    @property
    def shown(self) -> str:
        incident = f" (incident {self.incident})" if self.incident else ""
        return f"by {self.by or '?'} at {self.at or '?'}: {self.reason or 'no reason'}{incident}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose cordon it is. `undo` is the owner's own means of taking it back."""

    kind: Kind
    name: str
    undo: str
    told_by: str | None = None
    at_ns: int | None = None
    reason: str | None = None
    holds: bool = False
    """Its work goes on and counts on the cordon, whoever made it."""

    @property
    def shown(self) -> str:
        at = f" at {format_ns(self.at_ns)}" if self.at_ns is not None else ""
        told = f" (told by {self.told_by})" if self.told_by else ""
        return f"{self.name}{at}{f': {self.reason}' if self.reason else ''}{told}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonFacts:
    """One node at one resourceVersion. `owner` is None while it is schedulable; `claims` are agents that
    work on it and count on it being cordoned, whoever made the cordon."""

    node: str
    uid: str
    version: str
    is_cordoned: bool
    marks: Marks | None
    owner: Owner | None
    claims: tuple[Owner, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    what: str
    names: tuple[str, ...]
    values: tuple[str, ...]
    kind: Kind
    owner: str
    undo: str
    holds: bool


def read(node: Object) -> CordonFacts:
    """The facts of a node as the API server gave it."""
    name = js.text_at(node, "metadata", "name") or "?"
    cordon = node_view.cordon(node)
    marks = marks_of(node)
    claims = tuple(_claims(node, name))
    return CordonFacts(
        node=name,
        uid=js.text_at(node, "metadata", "uid") or "",
        version=js.text_at(node, "metadata", "resourceVersion") or "",
        is_cordoned=cordon is not None,
        marks=marks,
        owner=None if cordon is None else _owner(node, name, cordon, marks, claims),
        claims=tuple(one for one in claims if one.holds),
    )


def marks_of(node: Object) -> Marks | None:
    """Our annotations; None where not one of them is there."""
    found = annotations_of(node)
    if not any(key in found for key in KEYS):
        return None
    return Marks(
        by=found.get(BY, ""),
        at=found.get(AT, ""),
        reason=found.get(REASON, ""),
        incident=found.get(INCIDENT) or None,
    )


def _owner(
    node: Object, name: str, cordon: NodeCordon, marks: Marks | None, claims: tuple[Owner, ...]
) -> Owner:
    if marks is not None and marks.by and node_view.wrote_together(node):
        undo = f"gpufleet uncordon {name}"
        return Owner(
            kind="ours", name=marks.by, undo=undo, told_by="gpufleet's annotations",
            at_ns=marks.at_ns, reason=marks.reason or None,
        )  # fmt: skip
    agent = next((one for one in claims if one.holds), None)
    if agent is not None:
        if agent.kind == "nvsentinel" and cordon.told_by != "managedFields":
            return replace(agent, name=cordon.by or agent.name, told_by=cordon.told_by,
                           at_ns=cordon.at_ns, reason=cordon.reason)  # fmt: skip
        return agent
    hint = claims[0] if claims else None  # a reason for Slinky's drain says little of who cordoned
    found = _by_manager(name, cordon)
    return hint if hint is not None and found.kind == "unknown" else found


def _by_manager(name: str, cordon: NodeCordon) -> Owner:
    """Whoever wrote the field; a manager that the table does not know is named and no more."""
    manager = cordon.by
    if manager is None:
        undo = f"find out who did it; then: kubectl uncordon {name}"
        return Owner(kind="unknown", name="somebody (nothing tells who)", undo=undo)
    row = next((one for one in _rows("manager") if _fits(manager, one.names)), None)
    if row is None:
        undo = f"ask whoever runs {manager}; then: kubectl uncordon {name}"
        return Owner(
            kind="unknown", name=manager, undo=undo, told_by=cordon.told_by, at_ns=cordon.at_ns
        )
    return Owner(
        kind=row.kind,
        name=f"{row.owner} ({manager})",
        undo=row.undo.replace("NODE", name),
        told_by=cordon.told_by,
        at_ns=cordon.at_ns,
    )


def _claims(node: Object, name: str) -> Iterator[Owner]:
    """Agents that have the node in hand by their own marks, in the order of the table."""
    taints = {
        key: js.text_at(one, "value") or ""
        for one in js.items(js.at(node, "spec", "taints"))
        if (key := js.text_at(one, "key"))
    }
    places: Mapping[str, Mapping[str, str]] = {
        "label": labels_of(node),
        "annotation": annotations_of(node),
        "taint": taints,
    }
    said: set[str] = set()
    for row in _rows("label", "annotation", "taint"):
        for key, value in places[row.what].items():
            if row.owner in said or not _fits(key, row.names) or not _says(row, value):
                continue
            said.add(row.owner)
            yield Owner(
                kind=row.kind,
                name=row.owner,
                undo=row.undo.replace("NODE", name),
                told_by=f"the {row.what} {key}",
                holds=row.holds,
            )


def _says(row: _Row, value: str) -> bool:
    if row.values:
        return _fits(value, row.values)
    return row.what == "taint" or value not in _EMPTY


def _fits(text: str, patterns: tuple[str, ...]) -> bool:
    """Managers are compared without regard to capitals, like everything in the table."""
    return any(fnmatchcase(text.lower(), one.lower()) for one in patterns)


def _rows(*what: str) -> Iterator[_Row]:
    return (one for one in _table() if one.what in what)


@lru_cache(maxsize=1)
def _table() -> tuple[_Row, ...]:
    with _TABLE.open(encoding="utf-8", newline="") as rows:
        return tuple(
            _Row(
                what=row["what"],
                names=tuple(row["name"].split("|")),
                values=tuple(row["value"].split("|")) if row["value"] else (),
                kind=row["kind"],  # type: ignore[arg-type]  # a test compares them
                owner=row["owner"],
                undo=row["undo"],
                holds=row["holds"] == "yes",
            )
            for row in csv.DictReader(rows)
        )
