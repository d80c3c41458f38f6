"""Which attempt is meant: `--attempt`, `--at`, else the newest that failed while that is fresh news."""

from __future__ import annotations

from collections.abc import Sequence

from gpufleet_cli.errors import UsageError
from gpufleet_cli.live.pods import Attempt
from gpufleet_cli.timestamps import format_clock

NS = 1_000_000_000
LOOKBACK_S = 2 * 3600.0


def choose(
    attempts: Sequence[Attempt],
    *,
    number: int | None,
    at_ns: int | None,
    lookback_s: float,
    now_ns: int,
    is_stalled: bool = False,
) -> Attempt:
    """The subject. `is_stalled`: the newest runs and wrote nothing for long, which is news too."""
    if number is not None:
        found = next((one for one in attempts if one.number == number), None)
        if found is None:
            there = ", ".join(str(one.number) for one in attempts)
            raise UsageError(f"no attempt {number} in the cluster; there are: {there}")
        return found
    if at_ns is not None:
        return _at(attempts, at_ns)
    newest = attempts[-1]
    if is_stalled or newest.state == "failed":
        return newest
    for one in reversed(attempts[:-1]):
        if one.state == "failed" and one.ended_ns is not None:
            fresh = now_ns - one.ended_ns < lookback_s * NS
            return one if fresh else newest
    return newest


def _at(attempts: Sequence[Attempt], at_ns: int) -> Attempt:
    """The one that ran then, else the nearest before; the first where all are younger."""
    begun = [one for one in attempts if one.started_ns is None or one.started_ns <= at_ns]
    running = [one for one in begun if one.ended_ns is None or one.ended_ns >= at_ns]
    return (running or begun or list(attempts[:1]))[-1]


def told(attempts: Sequence[Attempt], chosen: Attempt, now_ns: int) -> str | None:
    """`attempt 3 failed 03:51; attempt 4 has run 4m`, where there is more than one."""
    if len(attempts) < 2:
        return None
    first = f"attempt {chosen.number} {_state(chosen)}"
    newest = attempts[-1]
    if newest is chosen:
        return f"{first}; the newest of {len(attempts)}"
    return f"{first}; attempt {newest.number} {_state(newest, now_ns)}"


def _state(one: Attempt, now_ns: int | None = None) -> str:
    if one.state in ("failed", "exited") and one.ended_ns is not None:
        return f"{one.state} {format_clock(one.ended_ns)}"
    if one.state == "running" and one.started_ns is not None and now_ns is not None:
        return f"has run {_age(max(0, now_ns - one.started_ns) / NS)}"
    return {"running": "runs", "pending": "has not started"}.get(one.state, one.state)


def _age(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 5400 else f"{seconds / 3600:.1f}h"
