"""metrics/dcgm.json: what dcgm-exporter's gauges were, as a Prometheus range answer.

The Xid gauge holds the last code, also one of last week; a GPU that fell off the bus has no series
any more, and a node that died has none. Clocks, temperatures and throttle reasons tell a slow GPU;
of a job that stopped they tell nothing. Times are those of the server that scrapes.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from gpufleet_cli.operate.simulate import gathered, identities
from gpufleet_cli.operate.simulate.gathered import XIDS
from gpufleet_cli.operate.simulate.story import Class, Clue, Fault, Story
from gpufleet_cli.verdict import Kind

PATH = "metrics/dcgm.json"
XID, TEMP, CLOCK = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_SM_CLOCK"
REASONS, THERMAL = "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_THERMAL_VIOLATION"
POWER = "DCGM_FI_DEV_POWER_USAGE"
BEFORE_S, BEFORE_SLOW_S = 600.0, 120.0
MOST_SAMPLES, MOST_NODES = 120, 8
COURSES = 4
GONE_AFTER_S = 60.0
LONG_AGO_S = -1e9
# Hardware slowdown with its reason: too hot, or the power brake.
HOT, BRAKED = 0x48, 0x88

Samples = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """How the query was made. `times` are seconds of the story, `heads` the begin of each sample.
    `bus_known`: some label of a series tells whose GPU it is."""

    times: tuple[float, ...]
    heads: tuple[str, ...]
    has_bus: bool
    bus_known: bool
    host_label: str
    pod_labels: Literal["exported", "own", "none"]
    cause: int


def answer(story: Story, rng: Random, *, bus_known: bool) -> tuple[bytes, list[Clue]]:
    """The file, and its series that name a cause."""
    asked = _asked(story, rng, bus_known=bus_known)
    clues: list[Clue] = []
    series: list[str] = []
    for field, rank, samples in _series(story, asked, rng):
        if not samples:
            continue
        text = (
            f'{{"metric": {_labels(story, asked, field, rank)}, "values": [{", ".join(samples)}]}}'
        )
        series.append(text)
        kinds = _names(story, asked, field, rank, samples)
        if kinds:
            ranks = (rank,) if asked.bus_known else _of_node(story, rank)
            node = (story.layout.node_index(rank),)
            clues.append(Clue(ranks=ranks, path=PATH, text=text, kinds=kinds, nodes=node))
    head = '{"status": "success", "data": {"resultType": "matrix", "result": [\n'
    return (head + ",\n".join(series) + "]}}\n").encode(), clues


def _of_node(story: Story, rank: int) -> tuple[int, ...]:
    return tuple(story.layout.ranks_of(story.layout.node_index(rank)))


def _asked(story: Story, rng: Random, *, bus_known: bool) -> _Asked:
    is_slow = any(fault.cls is Class.SLOW_GPU for fault in story.faults)
    step = 5.0 if is_slow else rng.choice((15.0, 30.0))
    before = BEFORE_SLOW_S if is_slow else BEFORE_S
    first = min((fault.at_s for fault in story.faults), default=0.0) - before
    while (story.captured_s - first) / step > MOST_SAMPLES:
        step *= 2
    first += rng.uniform(0, step)
    count = max(0, int((story.captured_s - first) / step) + 1)
    times = tuple(first + i * step for i in range(count))
    base = story.wall_ns(0.0) / 1e9
    has_bus = rng.random() < 0.8
    pod_labels: Literal["exported", "own", "none"] = rng.choice(("exported", "own", "none"))
    return _Asked(
        times=times,
        heads=tuple(f"[{base + at:.3f}, " for at in times),
        has_bus=has_bus,
        bus_known=gathered.names_buses(story) or (bus_known and has_bus),
        host_label=rng.choice(("Hostname", "Hostname", "hostname")),
        pod_labels=pod_labels if gathered.is_in_pods(story) else "none",
        cause=rng.choice((HOT, HOT, BRAKED)),
    )


def _labels(story: Story, asked: _Asked, field: str, rank: int) -> str:
    layout = story.layout
    gpu = str(layout.local_rank(rank))
    labels = {
        "__name__": field,
        asked.host_label: layout.node_of(rank),
        "gpu": gpu,
        "UUID": gathered.gpu_uuid(story, rank),
        "device": f"nvidia{gpu}",
        "modelName": "NVIDIA H100 80GB HBM3",
    }
    if asked.has_bus:
        labels["pci_bus_id"] = f"0000{layout.bus(rank).upper()}"
    if asked.pod_labels != "none":
        prefix = "exported_" if asked.pod_labels == "exported" else ""
        labels[f"{prefix}namespace"] = identities.NAMESPACE
        labels[f"{prefix}pod"] = layout.pod_of(rank)
        labels[f"{prefix}container"] = identities.CONTAINER
    if asked.pod_labels == "exported":
        labels["pod"] = f"dcgm-exporter-{layout.node_index(rank):05x}"
        labels["namespace"] = "gpu-operator"
    return json.dumps(labels)


def _names(
    story: Story, asked: _Asked, field: str, rank: int, samples: Samples
) -> tuple[Kind, ...]:
    """The kinds of the cause that a series shows: the code itself, or a reason to run slowly."""
    for fault in story.faults:
        if rank not in fault.ranks:
            continue
        if fault.cls in XIDS and field == XID:
            is_seen = any(sample.endswith(f'"{XIDS[fault.cls]}"]') for sample in samples)
            return (Kind.HARDWARE,) if is_seen else ()
        is_seen = len([at for at in asked.times if at >= fault.at_s]) >= 2
        tells = field == REASONS or (field == THERMAL and asked.cause == HOT)
        if fault.cls is Class.SLOW_GPU and is_seen and tells:
            return (Kind.STRAGGLER, Kind.HARDWARE)
    return ()


# --- Series -----------------------------------------------------------------------------------------


def _series(story: Story, asked: _Asked, rng: Random) -> Iterator[tuple[str, int, Samples]]:
    """(field, rank, samples) of every GPU. Samples of healthy GPUs are shared: they are most."""
    slow = {
        rank: fault for fault in story.faults if fault.cls is Class.SLOW_GPU for rank in fault.ranks
    }
    fields = (TEMP, CLOCK, REASONS, THERMAL) if slow else (TEMP, CLOCK, POWER)
    shown = _shown(story, slow, rng)
    quiet = [f'{head}"0"]' for head in asked.heads]
    courses = {
        field: [_course(asked, field, number, rng) for number in range(COURSES)] for field in fields
    }
    for rank in range(story.layout.size):
        end = _gone_s(story, rank)
        kept = len(asked.times) if end is None else bisect_right(asked.times, end)
        changes = _changes(story, rank)
        yield XID, rank, (_gauge(asked, changes) if changes else quiet)[:kept]
        if story.layout.node_index(rank) not in shown:
            continue
        for field in fields:
            fault = slow.get(rank)
            if fault is None:
                yield field, rank, courses[field][(rank * 7 + len(field)) % COURSES][:kept]
            else:
                yield field, rank, _throttled(asked, field, fault, rng)


def _shown(story: Story, slow: dict[int, Fault], rng: Random) -> set[int]:
    """Nodes whose readings somebody asked for: all of a small job."""
    everybody = range(len(story.layout.nodes))
    if len(everybody) <= 2 * MOST_NODES:
        return set(everybody)
    return {story.layout.node_index(rank) for rank in slow} | set(rng.sample(everybody, MOST_NODES))


def _changes(story: Story, rank: int) -> list[tuple[float, int]]:
    """(second, code) of each change of the Xid gauge."""
    changes: list[tuple[float, int]] = []
    if rank * 31 % 97 == story.seed % 97:
        changes.append((LONG_AGO_S, (31, 43, 63, 13)[story.seed % 4]))
    for fault in (*story.faults, *story.decoys):
        if rank not in fault.ranks:
            continue
        if fault.cls in XIDS:
            changes.append((fault.at_s, XIDS[fault.cls]))
            if fault.cls not in (Class.XID_79, Class.XID_119) and gathered.clears_own(story):
                changes.append((fault.at_s + 1.0, 45))
        elif fault.cls in (Class.RED_HERRING, Class.OTHER_JOB):
            is_herring = fault.cls is Class.RED_HERRING
            changes.append((fault.at_s, gathered.herring_code(story) if is_herring else 43))
    ending = story.endings[rank]
    if ending.at_s is not None and ending.how in gathered.WITH_WORK_IN_FLIGHT:
        changes += [(ending.at_s + 0.3, code) for code in gathered.cleared_codes(story)[-1:]]
    return sorted(changes)


def _gauge(asked: _Asked, changes: list[tuple[float, int]]) -> list[str]:
    """Each scrape shows the last code before it."""
    seconds = [at for at, _code in changes]
    codes = [0, *(code for _at, code in changes)]
    return [
        f'{head}"{codes[bisect_right(seconds, at)]}"]'
        for at, head in zip(asked.times, asked.heads, strict=True)
    ]


def _gone_s(story: Story, rank: int) -> float | None:
    """The last second at which the exporter can have shown this GPU."""
    for fault in story.faults:
        if fault.cls is Class.XID_79 and rank in fault.ranks:
            return fault.at_s + GONE_AFTER_S
        if fault.cls is Class.NODE_DEATH and rank in fault.ranks:
            return fault.at_s
    return None


def _course(asked: _Asked, field: str, number: int, rng: Random) -> list[str]:
    """One of a few courses of a healthy GPU."""
    level = {TEMP: 58 + 3 * number, CLOCK: 1980, POWER: 640 + 9 * number}.get(field, 0)
    noise = {TEMP: 1, POWER: 20}.get(field, 0)
    return [f'{head}"{level + rng.randint(-noise, noise)}"]' for head in asked.heads]


def _throttled(asked: _Asked, field: str, fault: Fault, rng: Random) -> list[str]:
    """The course of a GPU that is slowed down from the fault on."""
    is_hot = asked.cause == HOT
    values: list[int] = []
    for at in asked.times:
        is_on = at >= fault.at_s
        if field == TEMP:
            values.append((89 if is_on and is_hot else 64) + rng.randint(-1, 1))
        elif field == CLOCK:
            values.append(round(1980 / fault.factor / 15) * 15 if is_on else 1980)
        elif field == REASONS:
            values.append(asked.cause if is_on else 0)
        else:
            values.append(round((at - fault.at_s) * 8e8) if is_on and is_hot else 0)
    return [f'{head}"{value}"]' for head, value in zip(asked.heads, values, strict=True)]
