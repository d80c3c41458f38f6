"""Events out of a state: the same numbers with each."""

from __future__ import annotations

from gpufleet_cli.operate.watch import habits
from gpufleet_cli.operate.watch.model import Look, State
from gpufleet_cli.watch_card import Event, Kind

Told = tuple[State, list[Event]]
"""The next state, and what is told."""


def event(state: State, look: Look, kind: Kind, text: str, paged_s: float | None = None) -> Event:
    return Event(
        kind=kind,
        at_ns=look.at_ns,
        text=text,
        step=state.step,
        quiet_s=state.quiet_s(look.now_s),
        paged_s=paged_s,
        step_s=state.pace_s,
        usual_step_s=habits.usual_step_s(state.habit),
        checkpoint_age_s=state.saved_age_s(look.now_s),
    )
