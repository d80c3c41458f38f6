"""What `doctor` learned of one source: a small record that `live` fills and `render` lays out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCheck:
    """One source tried once. `would_lack` is what tonight's triage would miss, empty for nothing.

    `ok` may be True although something would be lacking; `action` is what to do about that.
    """

    source: str
    ok: bool
    what: str
    would_lack: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckUp:
    """All sources in the order of a triage. `was_reached`: at least one of them answered."""

    context: str | None
    server: str | None
    job: str | None
    namespace: str | None
    checks: tuple[SourceCheck, ...]
    was_reached: bool

    @property
    def lacks(self) -> tuple[SourceCheck, ...]:
        return tuple(one for one in self.checks if one.would_lack or not one.ok)
