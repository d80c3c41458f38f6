"""What the rules of one job are made from: its own numbers, and how far each may go."""

from __future__ import annotations

from dataclasses import dataclass

from gpufleet_cli.live.metric_queries import Matcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where each rule fires. A sign counts as one; `width_share` is the only one where less is worse."""

    stall_of_watchdog: float = 0.5
    step_time: float = 1.18
    checkpoint_intervals: float = 2.0
    signs: float = 1.0
    width_share: float = 0.5
    thermal_share: float = 0.001
    power_share: float = 0.3

    def doubled(self) -> Limits:
        """Twice as lenient everywhere: a set of rules that must miss what it is there for."""
        return Limits(
            stall_of_watchdog=2 * self.stall_of_watchdog,
            step_time=2 * self.step_time,
            checkpoint_intervals=2 * self.checkpoint_intervals,
            signs=2 * self.signs,
            width_share=self.width_share / 2,
            thermal_share=2 * self.thermal_share,
            power_share=2 * self.power_share,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """One job. `match` chooses its own metrics, `pods` (a regular expression, anchored) its pods."""

    job: str
    typed: str
    namespace: str | None
    match: tuple[Matcher, ...]
    pods: str
    step_s: float
    checkpoint_interval_s: float
    watchdog_s: float
    step_metric: str
    last_step_metric: str
    checkpoint_metric: str
    limits: Limits = Limits()

    @property
    def triage(self) -> str:
        """The command that looks at the job."""
        return f"gpufleet triage {self.typed}"
