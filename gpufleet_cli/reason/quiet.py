"""A job that nobody said stopped, and that writes nothing any more: how long, and what its watchdog has left."""

from __future__ import annotations

from dataclasses import dataclass

from gpufleet_cli.reason import Case
from gpufleet_cli.timestamps import format_clock

NS = 1_000_000_000
LEAST_S = 60.0
STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """`ranks` wrote last at `since_ns`, `seconds` before the evidence was collected."""

    ranks: int
    since_ns: int
    seconds: float
    step: int | None
    timeout_s: float
    timeout_source: str

    def told(self) -> str:
        """One sentence for what is known, one for the time that is left."""
        who = f"All {self.ranks:,} ranks" if self.ranks > 1 else "Its one rank"
        step = "" if self.step is None else f", step {self.step:,}"
        said = f"{who} wrote nothing for {self.seconds:,.0f} s (since {format_clock(self.since_ns)}{step})"
        left = self.timeout_s - self.seconds
        default = ", the default," if self.timeout_source == "default" else ""
        then = (
            f"a watchdog of {self.timeout_s:,.0f} s{default} would give up in {left:,.0f} s"
            if left > 0
            else f"no watchdog ({self.timeout_s:,.0f} s{default.rstrip(',')}) has spoken yet"
        )
        return f"{said}; nothing says why. If they hang, {then}."


def quiet(case: Case) -> Quiet | None:
    """None where a rank still writes, where one complained, where the job is known to have stopped, and where
    nobody knows when the evidence was collected."""
    if case.stop.stopped or case.timeouts or not case.is_as_of_told or case.as_of_ns is None:
        return None
    heard = [s for rank in case.world if (s := case.silence.get(rank)) and s.last_ns is not None]
    if not heard or len(heard) < len(case.world):
        return None
    since_ns = max(one.last_ns or 0 for one in heard)
    seconds = (case.as_of_ns - since_ns) / NS
    if seconds < max(LEAST_S, STEPS * (case.steps.step_s or 0.0)):
        return None
    return Quiet(
        ranks=len(case.world),
        since_ns=since_ns,
        seconds=seconds,
        step=case.steps.last_step,
        timeout_s=case.timeout_s,
        timeout_source=case.timeout_source,
    )
