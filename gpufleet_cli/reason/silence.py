"""Silence per rank: its last ordinary sign of life, against its own habit of writing.

A rank that a launcher's filter keeps out of the log, or whose log was not collected, has unknown
silence, never long silence (facts: log-formats 0.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from gpufleet_cli.facts import Origin, Writes
from gpufleet_cli.reason import clocks
from gpufleet_cli.reason.placed import NS, Silence
from gpufleet_cli.reason.topology import Topology


def by_rank(
    writes: Iterable[Writes],
    topology: Topology,
    offsets: Mapping[str, clocks.Offset],
    complained_ns: Mapping[int, int],
) -> dict[int, Silence]:
    """One Silence per rank that wrote, over all streams that carry it.

    `complained_ns` is each rank's first complaint: what it wrote afterwards under another prefix
    (stack frames carry none) is no ordinary sign of life.
    """
    found: dict[int, list[Writes]] = {}
    for write in writes:
        rank = topology.by_speaker.get(write.speaker)
        if rank is not None:
            found.setdefault(rank, []).append(write)
    return {
        rank: _merge(rank, found[rank], topology, offsets, complained_ns.get(rank))
        for rank in sorted(found)
    }


def _merge(
    rank: int,
    writes: list[Writes],
    topology: Topology,
    offsets: Mapping[str, clocks.Offset],
    complained_ns: int | None,
) -> Silence:
    ordered = sorted(writes, key=lambda w: (w.last_normal_ns or 0, w.last_line, w.path))
    node = topology.node_of(rank) or topology.clock_of(ordered[-1].speaker)
    before = [
        w
        for w in ordered
        if complained_ns is None
        or w.last_normal_ns is None
        or (clocks.corrected(w.last_normal_ns, node, offsets) or 0) < complained_ns
    ]
    newest = (before or ordered)[-1]
    last = max((w.last_ns for w in writes if w.last_ns is not None), default=None)
    sign = newest.last_normal_ns
    if sign is None and complained_ns is not None and any(w.last_normal_ns for w in writes):
        sign = complained_ns  # it wrote ordinary lines until then, the last of which is not kept
    habits = [w.habit_s for w in writes if w.habit_s is not None]
    error = clocks.error_s(node, offsets)
    if not newest.zone_stated:
        error += 1.0
    line = newest.last_normal_line if newest.last_normal_line is not None else newest.last_line
    return Silence(
        rank=rank,
        last_ns=clocks.corrected(last, node, offsets),
        last_sign_ns=clocks.corrected(sign, node, offsets),
        habit_s=min(habits) if habits else None,
        error_s=error,
        known=not all(w.rank_filtered for w in writes),
        complained=any(w.complained for w in writes),
        buffered=any(w.buffered for w in writes),
        order=max(w.last_line for w in writes),
        text=newest.last_normal_text or newest.last_text,
        origin=Origin(path=newest.path, line=line),
    )


def quieter_by_s(silence: Mapping[int, Silence], rank: int) -> float | None:
    """How much longer this rank has written nothing at all than the median of the others."""
    own = silence.get(rank)
    if own is None or own.last_ns is None:
        return None
    others = [s.last_ns for r, s in silence.items() if r != rank and s.last_ns is not None]
    return (median(others) - own.last_ns) / NS if others else None
