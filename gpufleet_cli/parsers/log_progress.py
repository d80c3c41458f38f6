"""The step lines of one speaker, joined into one thinned series."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from gpufleet_cli.facts import Progress, Speaker
from gpufleet_cli.step_points import Row, packed_rows

NEWEST = 256
OLDER = 256


Step = tuple[int, str, Row]
"""A step line: its place in the stream, its file, its numbers."""


def joined(speaker: Speaker, total_steps: int | None, found: Sequence[Step]) -> Progress:
    """One Progress of many lines, by place in the stream; the newest points all, older ones evenly."""
    ordered = sorted(found, key=itemgetter(0))
    return Progress(
        speaker=speaker,
        points=packed_rows([row for _, _, row in thinned(ordered)]),
        total_steps=total_steps,
        path=ordered[-1][1],
    )


def thinned(steps: Sequence[Step]) -> Sequence[Step]:
    """At most OLDER + NEWEST steps: the first, every n-th, and the newest."""
    older, newest = steps[:-NEWEST], steps[-NEWEST:]
    if len(older) <= OLDER:
        return steps
    kept = [older[index * len(older) // OLDER] for index in range(OLDER)]
    return [*kept, *newest]
