"""What it cost, with the arithmetic: GPUs times hours, and from when to when."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli import cost
from gpufleet_cli.postmortem_card import BillLine, Times
from gpufleet_cli.prices import price
from gpufleet_cli.reason.placed import NS
from gpufleet_cli.render.layout import duration, figure
from gpufleet_cli.triage import Inquiry


def bill(found: Inquiry, told: Times) -> tuple[BillLine, ...]:
    """Waiting and recompute, their sum as triage has it, and what is not in the sum."""
    return (*_counted(found), *_beside(found, told))


def _counted(found: Inquiry) -> Iterator[BillLine]:
    prices, gpus = price(found.case, found.chosen), found.case.topology.world_size
    advice = found.triage.recommendation
    yield BillLine(
        name="idle: GPUs held and doing nothing",
        gpu_hours=advice.lost_waiting_gpu_hours,
        span=prices.waiting,
        arithmetic=_product(gpus, prices.waiting, "from the standstill to the end")
        if prices.waiting is not None
        else "the job is not known to have stopped, or no time of it is known",
    )
    yield BillLine(
        name="recompute: work since the last checkpoint",
        gpu_hours=advice.lost_recompute_gpu_hours,
        span=prices.recompute,
        arithmetic=_product(gpus, prices.recompute, "from the checkpoint to the standstill")
        if prices.recompute is not None
        else "no durable checkpoint before it is known, or the job still runs",
    )
    yield BillLine(
        name="lost", gpu_hours=advice.lost_gpu_hours,
        arithmetic="idle + recompute" if advice.lost_gpu_hours is not None else "nothing of it is known",
    )  # fmt: skip


def _beside(found: Inquiry, told: Times) -> Iterator[BillLine]:
    """What is not in the sum: triage counts what is certain when the job ends."""
    gpus, advice = found.case.topology.world_size, found.triage.recommendation
    if told.ended_ns is not None and told.recovered.at_ns is not None and gpus is not None:
        down = (told.ended_ns, told.recovered.at_ns)
        hours = round(cost.gpu_hours(gpus, (down[1] - down[0]) / NS), 2)
        yield BillLine(
            name="down until it worked again", gpu_hours=hours, counted=False, span=down,
            arithmetic=f"{_product(gpus, down, 'from the end to the first new step')}; not in the sum",
        )  # fmt: skip
    restart = next((one for one in advice.inputs if one.name == "restart"), None)
    if gpus is not None and found.case.stop.stopped and restart is not None:
        seconds = restart.value
        if isinstance(seconds, float):
            yield BillLine(
                name="a restart", gpu_hours=round(cost.gpu_hours(gpus, seconds), 2), counted=False,
                arithmetic=f"{gpus:,} GPUs × {duration(seconds)} ({restart.source}); not in the sum",
            )  # fmt: skip
    degrading = next((q for q in advice.questions if q.id == "degrading-now"), None)
    if degrading is not None and degrading.gpu_hours_per_hour:
        yield BillLine(
            name="while it lasts", gpu_hours=None, counted=False,
            arithmetic=f"{figure(degrading.gpu_hours_per_hour)} GPU-hours each hour: {degrading.why}",
        )  # fmt: skip


def _product(gpus: int | None, span: tuple[int, int], what: str) -> str:
    seconds = (span[1] - span[0]) / NS
    held = "the GPUs (their number is not known)" if gpus is None else f"{gpus:,} GPUs"
    return f"{held} × {duration(seconds)} ({seconds:,.1f} s / 3,600), {what}"
