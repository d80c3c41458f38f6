"""Alert rules as records: what `operate/alerts` decides and `render/alert_rules` writes down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "info"]
"""`critical` pages, `warning` is for working hours, `info` is for whoever looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One input of the rules, as a person reads it, and where it came from."""

    words: str
    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One rule. `needs` are counters that dcgm-exporter does not export by default, any of which will do;
    `commands` what to run, the first one first. Texts may hold Prometheus templates, and nothing of a
    user's in them is one. `labels` are beside the severity."""

    name: str
    expr: str
    for_s: int
    severity: Severity
    summary: str
    description: str
    commands: tuple[str, ...]
    needs: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertGroup:
    """Rules that are evaluated together."""

    name: str
    interval_s: int
    rules: tuple[AlertRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRules:
    """The whole file of one job."""

    job: str
    namespace: str | None
    known: tuple[Known, ...]
    groups: tuple[AlertGroup, ...]
