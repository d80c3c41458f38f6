"""Every input of the arithmetic with its source, and what is lost so far.

An input is given by a flag or a file, measured in the evidence, or a default; the report says which, and
the arithmetic may only decide when none is a default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpufleet_cli import cost, xid_catalog
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import NS
from gpufleet_cli.verdict import Hypothesis, Input, Kind

Source = Literal["flag", "file", "evidence", "default", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The inputs with their sources, and the stakes that they make; None without a world size.

    `waiting` and `recompute` are from when to when (Unix ns) GPUs waited, and worked for nothing."""

    inputs: tuple[Input, ...]
    stakes: cost.Stakes | None
    all_known: bool
    waiting: tuple[int, int] | None
    recompute: tuple[int, int] | None
    waiting_gpu_hours: float | None
    recompute_gpu_hours: float | None

    @property
    def lost(self) -> float | None:
        known = [x for x in (self.waiting_gpu_hours, self.recompute_gpu_hours) if x is not None]
        return sum(known) if known else None


def price(case: Case, chosen: Hypothesis | None) -> Prices:
    """Every input of the arithmetic with its source, and what is lost so far."""
    gpus = case.topology.world_size
    onset = chosen.onset_ns if chosen is not None and chosen.onset_ns is not None else case.onset_ns
    interval, interval_source = _interval(case)
    since, since_source = _since_checkpoint(case, onset, interval)
    restart, restart_source = _given(case, "restart_s", cost.DEFAULT_RESTART_S)
    saves = case.checkpoints.save_s
    slowdown = chosen.slowdown if chosen is not None and chosen.slowdown is not None else 1.0
    hazard = _hazard(case, chosen)
    inputs = (
        Input(name="gpus", value=gpus, unit="GPUs", source=_size_source(case)),
        Input(name="checkpoint_interval", value=interval, unit="s", source=interval_source),
        Input(name="since_checkpoint", value=since, unit="s", source=since_source),
        Input(
            name="save",
            value=cost.DEFAULT_SAVE_S if saves is None else saves,
            unit="s",
            source="default" if saves is None else "evidence",
        ),
        Input(name="restart", value=restart, unit="s", source=restart_source),
        Input(
            name="watchdog_timeout",
            value=case.timeout_s,
            unit="s",
            source=case.timeout_source,  # type: ignore[arg-type]
        ),
        Input(name="slowdown", value=slowdown, unit="x", source="evidence"),
        Input(
            name="excess_hazard",
            value=round(hazard, 4),
            unit="per hour",
            source="default" if hazard else "evidence",
        ),
    )
    stakes = None
    if gpus is not None:
        stakes = cost.Stakes(
            gpus=gpus,
            interval_s=interval,
            since_checkpoint_s=since,
            save_s=cost.DEFAULT_SAVE_S if saves is None else saves,
            restart_s=restart,
            planned_restart_s=restart,
            detection_s=case.timeout_s,
            slowdown=max(1.0, slowdown),
            hazard_per_hour=hazard,
        )
    waiting, recompute = _waiting(case, onset, chosen), _recompute(case, onset, chosen)
    return Prices(
        inputs=inputs,
        stakes=stakes,
        all_known=all(i.source not in ("default", "unknown") for i in inputs),
        waiting=waiting,
        recompute=recompute,
        waiting_gpu_hours=_held(gpus, waiting),
        recompute_gpu_hours=_held(gpus, recompute),
    )


def _size_source(case: Case) -> Source:
    if case.topology.world_size is None:
        return "unknown"
    source = case.topology.world_size_source
    return source if source in ("flag", "file") else "evidence"  # type: ignore[return-value]


def _interval(case: Case) -> tuple[float, Source]:
    known = case.checkpoints
    if known.interval_s is None:
        return cost.DEFAULT_CHECKPOINT_INTERVAL_S, "default"
    return known.interval_s, known.interval_source


def _since_checkpoint(case: Case, onset: int | None, interval: float) -> tuple[float, Source]:
    """Seconds of work since the last durable checkpoint: to the onset, or to now for a running job."""
    end = onset if case.stop.stopped else case.as_of_ns
    last = case.checkpoints.last_ns
    if end is None or last is None or end < last:
        return interval / 2, "default"
    return (end - last) / NS, case.checkpoints.source


def _given(case: Case, name: str, default: float) -> tuple[float, Source]:
    for numbers in case.given:
        value = getattr(numbers, name)
        if value is not None:
            return float(value), numbers.source
    return default, "default"


def _hazard(case: Case, chosen: Hypothesis | None) -> float:
    """Extra hazard of the fault per hour, from the code's prior; none where no code is known."""
    if chosen is None or chosen.xid is None:
        return 0.0
    prior = xid_catalog.xid(chosen.xid).stop_prior
    if prior is None:
        return 0.0
    hazard = cost.hazard_of(prior.mean)
    last = case.steps.last_step_ns
    if case.stop.stopped or chosen.onset_ns is None or last is None or last <= chosen.onset_ns:
        return hazard
    # The job has lived with the fault since then: each hour survived makes a high hazard less likely.
    return 1.0 / (1.0 / hazard + (last - chosen.onset_ns) / NS / 3600.0)


def _waiting(case: Case, onset: int | None, chosen: Hypothesis | None) -> tuple[int, int] | None:
    """From when to when the job held its GPUs and did nothing, up to its end or now."""
    if onset is None or not case.stop.stopped or is_healthy(chosen):
        return None
    end = case.stop.ended_ns if case.stop.ended_ns is not None else case.as_of_ns
    return None if end is None or end < onset else (onset, end)


def _recompute(case: Case, onset: int | None, chosen: Hypothesis | None) -> tuple[int, int] | None:
    """The work since the checkpoint, which is done again."""
    last = case.checkpoints.last_ns
    if onset is None or last is None or not case.stop.stopped:
        return None
    return None if is_healthy(chosen) or onset < last else (last, onset)


def _held(gpus: int | None, span: tuple[int, int] | None) -> float | None:
    """GPU-hours of all GPUs of the job over a span."""
    if gpus is None or span is None:
        return None
    return cost.gpu_hours(gpus, (span[1] - span[0]) / NS)


def is_healthy(chosen: Hypothesis | None) -> bool:
    return chosen is not None and chosen.kind is Kind.HEALTHY
