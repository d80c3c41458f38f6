"""How far back a metrics server reaches: a retention, a tenant's look-back limit or a young server cuts a month short.

None of them is an error: the server answers with what it has. Where it has nothing of the window's first day, the time
at which its samples begin is looked for by halves, a question each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpufleet_cli.errors import SourceError
from gpufleet_cli.facts import Gap
from gpufleet_cli.live import metric_queries
from gpufleet_cli.live.metric_asks import Run
from gpufleet_cli.live.metric_queries import Matcher
from gpufleet_cli.timestamps import format_ns

DAY_S = 86_400
EXACT_S = DAY_S // 2
"""So exactly is the beginning told."""
LOOK_S = DAY_S // 4
"""So much of the time before each moment is looked at: a server may have been down for an hour."""
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
    """About when samples begin; None where they reach back to the window's first day, or there are none at all."""
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
    return with_s


def _has(run: Run, conditions: Sequence[Matcher], at_s: float, span_s: int) -> bool:
    highest = metric_queries.highest(metric_queries.XID_GAUGES, conditions, span_s)
    return bool(run.server.query(f"count({highest})", at_s))
