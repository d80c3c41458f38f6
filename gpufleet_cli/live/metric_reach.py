"""How far back a metrics server reaches: a retention, a tenant's look-back limit or a young server cuts a month short.

None of them is an error: the server answers with what it has. Where it has nothing of the window's first day, the time
at which its samples begin is looked for by halves, a question each, and in the last one asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gpufleet_cli.errors import SourceError
from gpufleet_cli.facts import Gap
from gpufleet_cli.live import metric_queries
from gpufleet_cli.live.metric_asks import Run
from gpufleet_cli.live.metric_queries import Matcher
from gpufleet_cli.timestamps import format_ns

DAY_S = 86_400
EXACT_S = DAY_S // 2
"""Within so much time the first sample itself is asked for."""
LOOK_S = 3600
"""So much of the time before each moment is looked at: samples may come seldom."""
STEP_S = 300
"""An instant question finds samples that are so old."""
BEFORE = "XID history before"


def missing(run: Run, conditions: Sequence[Matcher]) -> Iterator[Gap]:
    """A gap for the part of the window in which no GPU of these conditions has a sample; none where it cannot be told."""
    try:
        begins_s = _begins(run, conditions)
    except SourceError:  # whoever asks for the codes themselves says why
        return
    if begins_s is not None:
        yield Gap(
            what=f"{BEFORE} {format_ns(round(begins_s) * 10**9)}",
            why=f"{run.server.name} has no sample from then",
            would_settle="a longer retention or look-back limit of the metrics",
        )


def _begins(run: Run, conditions: Sequence[Matcher]) -> float | None:
    """When samples begin; None where they reach back to the window's first day, or there are none at all."""
    without_s, with_s = run.end_s - run.span_s + DAY_S, run.end_s
    if with_s - without_s < DAY_S or _has(run, conditions, without_s, DAY_S):
        return None
    if not _has(run, conditions, with_s, LOOK_S):
        return None
    while with_s - without_s > EXACT_S:
        middle_s = (without_s + with_s) / 2
        if _has(run, conditions, middle_s, LOOK_S):
            with_s = middle_s
        else:
            without_s = middle_s
    try:
        first = run.server.query(_first_sample(conditions, math.ceil(with_s - without_s)), with_s)
    except SourceError:  # a limit of the server: then half a day is exact enough
        return with_s
    times = [one.number for one in first if without_s <= one.number <= with_s]
    return min(times, default=with_s)


def _first_sample(conditions: Sequence[Matcher], span_s: int) -> str:
    return " or ".join(
        f"min(min_over_time(timestamp({metric_queries.selector(name, conditions)})[{span_s}s:{STEP_S}s]))"
        for name in metric_queries.XID_GAUGES
    )


def _has(run: Run, conditions: Sequence[Matcher], at_s: float, span_s: int) -> bool:
    highest = metric_queries.highest(metric_queries.XID_GAUGES, conditions, span_s)
    return bool(run.server.query(f"count({highest})", at_s))
