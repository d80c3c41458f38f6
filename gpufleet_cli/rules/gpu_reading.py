"""A GPU whose own counters say that it is slowed or waits for repair: throttling, PCIe width, row remap.

Claims the GPU whose DCGM readings stand out against its peers. What could look the same: a job that
is slow everywhere (a power cap on all, hot aisle), which is why more than half of the GPUs showing it
blames nobody. Readings cannot date what happened before the first sample.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from gpufleet_cli.facts import GpuReading
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.xid_history import node_name
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import claim
from gpufleet_cli.verdict import GpuRef, Hypothesis, JobState, Kind, Remedy

NAME = "gpu_reading"
HARD_LIMITS = (
    0x8 | 0x20 | 0x40 | 0x80
)  # hardware slowdown, thermal (software, hardware), power brake
LOW_CLOCK = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """What one field means when it stands out. `slows` answers question two."""

    field: str
    what: str
    slows: bool
    stands_out: Callable[[GpuReading, Sequence[GpuReading]], bool]


def _grew(reading: GpuReading, peers: Sequence[GpuReading]) -> bool:
    return reading.last > reading.first


def _flag(reading: GpuReading, peers: Sequence[GpuReading]) -> bool:
    return reading.last >= 1


def _limited(reading: GpuReading, peers: Sequence[GpuReading]) -> bool:
    return bool(int(reading.last) & HARD_LIMITS)


def _narrower(reading: GpuReading, peers: Sequence[GpuReading]) -> bool:
    return 0 < reading.last < max(peer.high for peer in peers)


def _slower_clock(reading: GpuReading, peers: Sequence[GpuReading]) -> bool:
    """All the time, or since it fell: most samples may be older than that."""
    usual, now = median(peer.median for peer in peers), median(peer.last for peer in peers)
    fell = 0 < reading.last < LOW_CLOCK * min(now, reading.high)
    return fell or 0 < reading.median < LOW_CLOCK * usual


SYMPTOMS = (
    Symptom(
        field="DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
        what="its clocks are limited by temperature or power",
        slows=True,
        stands_out=_limited,
    ),
    Symptom(
        field="DCGM_FI_DEV_THERMAL_VIOLATION",
        what="it is throttled by temperature",
        slows=True,
        stands_out=_grew,
    ),
    Symptom(
        field="DCGM_FI_DEV_PCIE_LINK_WIDTH",
        what="its PCIe link is narrower than its peers'",
        slows=True,
        stands_out=_narrower,
    ),
    Symptom(
        field="DCGM_FI_DEV_SM_CLOCK",
        what="its clock is lower than its peers'",
        slows=True,
        stands_out=_slower_clock,
    ),
    Symptom(
        field="DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        what="it counted an uncorrectable memory error",
        slows=False,
        stands_out=_grew,
    ),
    Symptom(
        field="DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        what="it remapped a row after an uncorrectable error",
        slows=False,
        stands_out=_grew,
    ),
    Symptom(
        field="DCGM_FI_DEV_ROW_REMAP_FAILURE",
        what="a row could not be remapped: the board is to be replaced",
        slows=False,
        stands_out=_flag,
    ),
    Symptom(
        field="DCGM_FI_DEV_ROW_REMAP_PENDING",
        what="a row remap waits for a reset",
        slows=False,
        stands_out=_flag,
    ),
)


def propose(case: Case) -> Iterator[Hypothesis]:
    """One hypothesis a GPU that stands out, with all its symptoms."""
    by_field: dict[str, list[GpuReading]] = defaultdict(list)
    for reading in case.readings:
        by_field[reading.field].append(reading)
    odd: dict[tuple[str, str], list[tuple[Symptom, GpuReading]]] = defaultdict(list)
    for symptom in SYMPTOMS:
        peers = by_field.get(symptom.field, [])
        if symptom.slows and case.stop.stopped:
            continue  # a clock that is low once the job stands still is an effect
        found = [
            reading
            for reading in peers
            if symptom.stands_out(reading, peers)
            and (reading.changed_ns is not None or not case.stop.stopped or symptom.slows)
        ]
        if len(found) * 2 > len(peers) and len(peers) > 1:
            continue
        for reading in found:
            gpu = reading.pci_bus_id or reading.gpu_uuid or str(reading.gpu_index)
            odd[reading.node or "", gpu].append((symptom, reading))
    for _gpu, symptoms in sorted(odd.items()):
        yield _hypothesis(case, symptoms)


def _hypothesis(case: Case, symptoms: list[tuple[Symptom, GpuReading]]) -> Hypothesis:
    first, reading = symptoms[0]
    node = node_name(reading.node, case.topology)
    rank = case.topology.rank_of_gpu(node, reading.pci_bus_id, reading.gpu_uuid)
    slows = any(symptom.slows for symptom, _r in symptoms)
    before, after = case.steps.before_s, case.steps.after_s
    factor = after / before if before and after else None
    runs = case.stop.state is JobState.RUNNING
    if runs and (not slows or factor is not None):
        weight = claims.STRONG
    else:
        weight = claims.MODEST if runs or not slows else claims.WEAK
    who = f"Rank {rank}" if rank is not None else f"{node}"
    return Hypothesis(
        kind=Kind.HARDWARE,
        rule=NAME,
        summary=f"{who}: {first.what}."
        + (f" A step takes {factor:.1f} times as long." if slows and factor else ""),
        claims=tuple(
            claim(
                f"{node} GPU {r.pci_bus_id or r.gpu_index}: {s.what}"
                f" ({r.field.removeprefix('DCGM_FI_DEV_')} {r.first:g} -> {r.last:g})",
                r.origin,
                weight if i == 0 else claims.WEAK,
                rank=rank,
                at_ns=r.changed_ns,
            )
            for i, (s, r) in enumerate(symptoms)
        )
        + tuple(claims.waited_itself(case, rank)),
        remedy=Remedy.NODE,
        ranks=() if rank is None else (rank,),
        nodes=() if node is None else (node,),
        gpu=GpuRef(index=reading.gpu_index, uuid=reading.gpu_uuid, pci_bus_id=reading.pci_bus_id),
        onset_ns=case.steps.changed_ns if slows else reading.changed_ns,
        degrades=slows and factor is not None,
        degrades_why=f"steps take {factor:.2f} times as long" if slows and factor else "",
        slowdown=factor if slows else None,
        worsens=None,
        worsens_why="it lasts until the GPU is reset or cooled",
        reason_tag=first.field.removeprefix("DCGM_FI_DEV_").replace("_", " ").lower(),
        would_settle="the same readings of the other GPUs of the job",
    )
