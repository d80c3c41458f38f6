"""Clock offset of every node, from things that happen on all nodes at once.

The same step ends everywhere within one step time, and a full-sync collective completes everywhere
together, so the median difference of a node's stamps from the others' is its clock's offset
(facts: localisation 5). Two times are comparable only beyond 3 times the joint error plus a second.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from gpufleet_cli import step_points
from gpufleet_cli.facts import Progress, WatchdogTimeout
from gpufleet_cli.reason.placed import NS
from gpufleet_cli.reason.topology import Topology

MIN_SHARED_STEPS = 3
MOST_STAMPS, FEWEST_STAMPS = 600_000, 32
"""A clock's offset needs some steps and not all: of many series only the newest are compared."""
ENTRY_SPREAD_S = 10.0
UNKNOWN_ERROR_S = 60.0
"""How far the clock of a node may be off of which no offset is known: drift of a clock nobody keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """A node's clock is `offset_s` ahead of the others', give or take `error_s`."""

    offset_s: float
    error_s: float

    @property
    def matters(self) -> bool:
        return abs(self.offset_s) > 3 * self.error_s + 1.0


def offsets(
    progress: Iterable[Progress],
    timeouts: Iterable[WatchdogTimeout],
    topology: Topology,
    from_dumps: Mapping[str, tuple[float, float]],
) -> dict[str, Offset]:
    """Offsets per node: from shared steps, else from completion stamps of dumps, else from the start
    of the collective that all ranks timed out in."""
    found = _from_timeouts(timeouts, topology)
    found.update(
        {node: Offset(offset_s=off, error_s=err) for node, (off, err) in from_dumps.items()}
    )
    found.update(_from_steps(progress, topology))
    return _against_majority(found)


def _from_timeouts(timeouts: Iterable[WatchdogTimeout], topology: Topology) -> dict[str, Offset]:
    """Line time minus `ran for` is when a rank entered; its peers entered within a step of it."""
    entered: dict[tuple[object, ...], dict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for timeout in timeouts:
        node = topology.clock_of(timeout.speaker)
        if node is not None and timeout.at_ns is not None and timeout.seq is not None:
            key = (timeout.group, timeout.seq, timeout.op)
            entered[key][node].append((timeout.at_ns - timeout.ran_ms * 1_000_000) / NS)
    if not entered:
        return {}
    shared = max(entered, key=lambda key: (len(entered[key]), repr(key)))
    by_node = {node: median(times) for node, times in entered[shared].items()}
    if len(by_node) < 2:
        return {}
    middle = median(by_node.values())
    return {
        node: Offset(offset_s=at - middle, error_s=ENTRY_SPREAD_S)
        for node, at in sorted(by_node.items())
    }


def _from_steps(progress: Iterable[Progress], topology: Topology) -> dict[str, Offset]:
    placed: dict[str, list[Progress]] = defaultdict(list)
    for series in progress:
        node = topology.clock_of(series.speaker)
        if node is not None:
            placed[node].append(series)
    newest = max(FEWEST_STAMPS, MOST_STAMPS // max(1, sum(map(len, placed.values()))))
    by_step: dict[int, dict[str, float]] = defaultdict(dict)
    for node, of_node in placed.items():
        stamps: dict[int, list[int]] = defaultdict(list)
        for series in of_node:
            for step, stamp_ns in step_points.stamps(series.points, newest):
                stamps[step].append(stamp_ns)
        for step, times in stamps.items():
            by_step[step][node] = median(times)
    differences: dict[str, list[float]] = defaultdict(list)
    for own in by_step.values():
        if len(own) < 2:
            continue
        middle = median(own.values())
        for node, at_ns in own.items():
            differences[node].append((at_ns - middle) / NS)
    return {
        node: Offset(offset_s=median(values), error_s=_error(values))
        for node, values in sorted(differences.items())
        if len(values) >= MIN_SHARED_STEPS
    }


def _error(values: list[float]) -> float:
    middle = median(values)
    deviation = median(abs(value - middle) for value in values)
    return 1.48 * deviation / math.sqrt(len(values))


def _against_majority(found: dict[str, Offset]) -> dict[str, Offset]:
    """Offsets counted from the clock that most nodes share, so that the majority reads zero."""
    if not found:
        return {}
    ordered = sorted(found.items(), key=lambda item: (item[1].offset_s, item[0]))
    clusters: list[list[float]] = [[ordered[0][1].offset_s]]
    for _node, offset in ordered[1:]:
        if offset.offset_s - clusters[-1][-1] > 3 * offset.error_s + 1.0:
            clusters.append([])
        clusters[-1].append(offset.offset_s)
    largest = max(clusters, key=lambda values: (len(values), -abs(median(values)), median(values)))
    base = median(largest)
    return {
        node: Offset(offset_s=offset.offset_s - base, error_s=offset.error_s)
        for node, offset in ordered
    }


def corrected(at_ns: int | None, node: str | None, known: Mapping[str, Offset]) -> int | None:
    """A time on the majority's clock; unchanged where the node's offset does not matter."""
    if at_ns is None or node is None:
        return at_ns
    offset = known.get(node)
    if offset is None or not offset.matters:
        return at_ns
    return at_ns - round(offset.offset_s * NS)


def error_s(node: str | None, known: Mapping[str, Offset], *, unknown_s: float = 1.0) -> float:
    """How wrong a time of this node can be against another node's, in seconds."""
    if node is None:
        return 1.0
    offset = known.get(node)
    return unknown_s if offset is None else max(1.0, 3 * offset.error_s)
