"""What `preflight` found: small records that `operate` fills and `render` lays out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]
ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFinding:
    """One thing that is wrong, in one or several places. `costs` in GPU-hours, where it has a price."""

    id: str
    severity: Severity
    message: str
    why: str
    fix: str
    where: tuple[str, ...]
    costs: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Silenced:
    """A finding that somebody answers for. `by`: the annotation or the option."""

    finding: SpecFinding
    reason: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRead:
    """A workload that was looked at."""

    source: str
    kind: str
    name: str
    namespace: str | None
    pods: int
    gpus: int | None
    taken_as: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """All of it, worst first."""

    findings: tuple[SpecFinding, ...]
    silenced: tuple[Silenced, ...]
    read: tuple[SpecRead, ...]

    @property
    def stands(self) -> bool:
        """Whether anything at warning or above is left."""
        return any(one.severity != "info" for one in self.findings)
