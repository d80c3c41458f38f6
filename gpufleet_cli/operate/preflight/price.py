"""What a mistake is paid with, in GPU-hours of this job, on the assumptions that triage makes without better ones.

Half a checkpoint interval of 30 minutes to recompute and 5 minutes to restart; 10 minutes of watchdog.

>>> print(a_kill(1024))
each time 341 GPU-h (half of a 30m checkpoint interval again, 5m restart)
>>> print(a_wait(1024))
each time 171 GPU-h idle until a 10m watchdog fires
"""

from __future__ import annotations

from gpufleet_cli import cost
from gpufleet_cli.render.layout import duration, gpu_hours

_KILL_S = cost.DEFAULT_CHECKPOINT_INTERVAL_S / 2 + cost.DEFAULT_RESTART_S


def a_kill(gpus: int | None) -> str | None:
    """One unplanned restart of the whole gang."""
    if not gpus:
        return None
    told = gpu_hours(cost.gpu_hours(gpus, _KILL_S))
    interval = duration(cost.DEFAULT_CHECKPOINT_INTERVAL_S)
    return (
        f"each time {told} (half of a {interval} checkpoint interval again,"
        f" {duration(cost.DEFAULT_RESTART_S)} restart)"
    )


def a_wait(gpus: int | None, seconds: float = cost.DEFAULT_WATCHDOG_S) -> str | None:
    """The gang waits for a rank that never comes."""
    if not gpus:
        return None
    told = gpu_hours(cost.gpu_hours(gpus, seconds))
    return f"each time {told} idle until a {duration(seconds)} watchdog fires"


def a_repeat(gpus: int | None) -> str | None:
    """An incident that leaves no evidence has to happen once more."""
    if not gpus:
        return None
    told = gpu_hours(cost.gpu_hours(gpus, cost.DEFAULT_WATCHDOG_S + _KILL_S))
    return f"{told} for each incident that must happen again to be understood"


def an_hour(gpus: int | None) -> str | None:
    """The gang holds its GPUs and does nothing."""
    return (
        f"{gpu_hours(float(gpus), per_hour=True)} while it holds them and does nothing"
        if gpus
        else None
    )


def a_loss(gpus: int | None) -> str | None:
    """All work since the start goes with the pod."""
    return f"{gpu_hours(float(gpus))} for each hour that it had run" if gpus else None
