"""What a metrics or log store gave, and what `gpufleet doctor` learns of one by daylight."""

from __future__ import annotations

from dataclasses import dataclass

from gpufleet_cli.facts import Gap


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What came of asking: files as (path in the bundle, bytes), gaps, and one line on what was found.

    `step_s` is the usual distance of a metric's samples, by which the time of a transition may be wrong.
    """

    files: tuple[tuple[str, bytes], ...]
    gaps: tuple[Gap, ...]
    found: str
    step_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One source tried: whether tonight's triage has what it needs of it, what was found, what would be lacking.

    `would_lack` is empty where nothing would; `ok` may be True although something would.
    """

    source: str
    ok: bool
    what: str
    would_lack: str = ""
