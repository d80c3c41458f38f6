"""GPU-hours lost and at stake in one job: pure arithmetic, one function per formula.

`gpus` is the number of GPUs that the job holds; durations are seconds, hazards per hour, results GPU-hours.
The three-questions model prices what each option loses from now on against an undisturbed run. What is
asked of a fleet (intervals, efficiency, spares) is in `cost_fleet`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpufleet_cli.verdict import Action

DEFAULT_CHECKPOINT_INTERVAL_S = 1800.0
DEFAULT_RESTART_S = 300.0
DEFAULT_WATCHDOG_S = 600.0
DEFAULT_SAVE_S = 60.0
TIE = 0.10


def gpu_hours(gpus: int, seconds: float) -> float:
    """GPU-hours of `gpus` GPUs over `seconds`.

    >>> round(gpu_hours(8192, 29 * 60), 2)
    3959.47
    """
    return gpus * seconds / 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stakes:
    """Inputs of the three questions. Seconds; `slowdown` is the step-time factor now (>= 1),
    `hazard_per_hour` the extra hazard of the fault, `confidence` that the node is the right one."""

    gpus: int
    interval_s: float
    since_checkpoint_s: float
    save_s: float
    restart_s: float
    planned_restart_s: float
    detection_s: float
    slowdown: float = 1.0
    hazard_per_hour: float = 0.0
    corruption: float = 0.0
    since_clean_s: float = 0.0
    confidence: float = 1.0


def wait_window_s(stakes: Stakes) -> float:
    """Wall seconds until the next boundary: the rest of the interval, slowed, plus the save."""
    rest = max(0.0, stakes.interval_s - stakes.since_checkpoint_s)
    return rest * stakes.slowdown + stakes.save_s


def evict_gpu_hours(stakes: Stakes) -> float:
    """What stopping the job now costs: the work since the checkpoint and an unplanned restart.

    Where it may be the wrong node the price is paid and the hazard is kept: then waiting comes on top.

    >>> case = Stakes(gpus=8192, interval_s=3600, since_checkpoint_s=29 * 60, save_s=60,
    ...               restart_s=300, planned_restart_s=300, detection_s=600)
    >>> round(evict_gpu_hours(case), 2)
    4642.13
    """
    own = gpu_hours(stakes.gpus, stakes.since_checkpoint_s + stakes.restart_s)
    return own + (1.0 - stakes.confidence) * wait_gpu_hours(stakes)


def wait_gpu_hours(stakes: Stakes) -> float:
    """What waiting for the boundary is expected to cost.

    >>> case = Stakes(gpus=8192, interval_s=3600, since_checkpoint_s=29 * 60, save_s=60,
    ...               restart_s=300, planned_restart_s=300, detection_s=600, hazard_per_hour=0.05)
    >>> round(wait_gpu_hours(case), 2)
    880.01
    """
    window = wait_window_s(stakes)
    hazard = stakes.hazard_per_hour
    rest = max(0.0, stakes.interval_s - stakes.since_checkpoint_s)
    survived = math.exp(-hazard * window / 3600.0)
    dies = 1.0 - survived
    if hazard * window / 3600.0 < 1e-9:
        to_death = window / 2
    else:
        to_death = 3600.0 / hazard - window * survived / dies
    seconds = (
        survived * (rest * (stakes.slowdown - 1.0) + stakes.planned_restart_s)
        + dies * (stakes.since_checkpoint_s + to_death + stakes.detection_s + stakes.restart_s)
        + stakes.corruption * (stakes.since_clean_s + window - stakes.since_checkpoint_s)
    )
    return gpu_hours(stakes.gpus, seconds)


def leave_gpu_hours(stakes: Stakes, horizon_s: float) -> float:
    """What leaving the node in the job for `horizon_s` is expected to cost."""
    dies = 1.0 - math.exp(-stakes.hazard_per_hour * horizon_s / 3600.0)
    seconds = horizon_s * (1.0 - 1.0 / stakes.slowdown) + dies * (
        stakes.interval_s / 2 + stakes.detection_s + stakes.restart_s
    )
    return gpu_hours(stakes.gpus, seconds)


def break_even_slowdown(stakes: Stakes) -> float | None:
    """The step-time factor above which evicting at once is cheaper, without extra hazard.

    >>> case = Stakes(gpus=1, interval_s=3600, since_checkpoint_s=29 * 60, save_s=0,
    ...               restart_s=300, planned_restart_s=300, detection_s=600)
    >>> round(break_even_slowdown(case), 3)
    1.935
    """
    rest = stakes.interval_s - stakes.since_checkpoint_s
    if rest <= 0:
        return None
    spared = stakes.since_checkpoint_s + stakes.restart_s - stakes.planned_restart_s
    return max(1.0, 1.0 + spared / rest)


def break_even_hazard_per_hour(stakes: Stakes) -> float | None:
    """The extra hazard above which evicting at once is cheaper, nothing being slow; None when none is.

    >>> case = Stakes(gpus=1, interval_s=3600, since_checkpoint_s=5 * 60, save_s=60,
    ...               restart_s=300, planned_restart_s=300, detection_s=600)
    >>> round(break_even_hazard_per_hour(case), 3)
    0.134
    """
    alone = replace(stakes, gpus=1, slowdown=1.0, corruption=0.0, confidence=1.0)

    def waiting_is_dearer(hazard: float) -> bool:
        changed = replace(alone, hazard_per_hour=hazard)
        return wait_gpu_hours(changed) > evict_gpu_hours(changed)

    low, high = 0.0, 1000.0
    if not waiting_is_dearer(high):
        return None
    if waiting_is_dearer(low):
        return 0.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if waiting_is_dearer(middle) else (middle, high)
    return high


def hazard_of(probability_in_ten_minutes: float) -> float:
    """Hazard per hour from the chance that the job stops within ten minutes.

    >>> round(hazard_of(0.5), 3)
    4.159
    """
    chance = min(max(probability_in_ten_minutes, 0.0), 0.999)
    return -math.log(1.0 - chance) * 6.0


def is_tie(first: float, second: float) -> bool:
    """Two costs within ten per cent of the larger one are a tie.

    >>> is_tie(100, 109), is_tie(100, 120)
    (True, False)
    """
    return abs(first - second) <= TIE * max(abs(first), abs(second))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the arithmetic says of a node whose fault does not corrupt state. GPU-hours; `wait_gpu_hours`
    is None for a job that is stopped, since it reaches no checkpoint."""

    action: Action
    evict_gpu_hours: float
    wait_gpu_hours: float | None
    is_tie: bool = False


def decide(stakes: Stakes, *, stopped: bool = False) -> Decision:
    """Evict now or at the next checkpoint, whichever is cheaper; on a tie the less disruptive.

    A job that is stopped loses nothing more by an eviction.
    """
    if stopped:
        return Decision(action=Action.EVICT_NOW, evict_gpu_hours=0.0, wait_gpu_hours=None)
    evict, wait = evict_gpu_hours(stakes), wait_gpu_hours(stakes)
    tie = is_tie(evict, wait)
    return Decision(
        action=Action.EVICT_NOW if evict < wait and not tie else Action.CORDON_AT_CHECKPOINT,
        evict_gpu_hours=evict,
        wait_gpu_hours=wait,
        is_tie=tie,
    )
