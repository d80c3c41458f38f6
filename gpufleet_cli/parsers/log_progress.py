"""The step lines of one speaker, joined into one thinned series."""

from __future__ import annotations

from collections.abc import Sequence

from gpufleet_cli.facts import Progress, Speaker, StepPoint
from gpufleet_cli.step_points import packed

NEWEST = 256
OLDER = 256


def joined(speaker: Speaker, found: Sequence[tuple[int, Progress]]) -> Progress:
    """One Progress of many, by place in the stream; the newest points all, older ones evenly."""
    ordered = sorted(found, key=lambda item: item[0])
    points = [point for _, progress in ordered for point in progress.points]
    totals = [progress.total_steps for _, progress in ordered if progress.total_steps is not None]
    return Progress(
        speaker=speaker,
        points=packed(thinned(points)),
        total_steps=totals[-1] if totals else None,
        path=ordered[-1][1].path,
    )


def thinned(points: Sequence[StepPoint]) -> Sequence[StepPoint]:
    """At most OLDER + NEWEST points: the first, every n-th, and the newest."""
    older, newest = points[:-NEWEST], points[-NEWEST:]
    if len(older) <= OLDER:
        return points
    kept = [older[index * len(older) // OLDER] for index in range(OLDER)]
    return [*kept, *newest]
