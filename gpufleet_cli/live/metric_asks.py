"""Series of many nodes or GPUs, asked for in pieces that the server answers: halves where it finds one too much."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from gpufleet_cli.errors import SourceError
from gpufleet_cli.facts import Gap
from gpufleet_cli.live import metric_files, metric_queries, thanos_stores
from gpufleet_cli.live.http_source import Fetch
from gpufleet_cli.live.metric_nodes import Where
from gpufleet_cli.live.metric_queries import Matcher
from gpufleet_cli.live.metric_server import OneSeries, Server, TooMuch, recognised

BEFORE_S = 15 * 60
"""How long before the window samples begin: a code is only new beside a sample without it."""
THREADS = 4
_SPLITS = 8
MOST_WARNINGS = 3


@dataclass(slots=True, kw_only=True)
class Run:
    """One gathering: who is asked, for which time, and what could not be had of it."""

    server: Server
    matchers: tuple[Matcher, ...]
    start_ns: int
    end_ns: int
    gaps: list[Gap] = field(default_factory=list)

    @classmethod
    def begun(
        cls, fetch: Fetch, name: str, *, start_ns: int, end_ns: int, matchers: str | None
    ) -> Run:
        """The server recognised, its lost stores noted. SourceError where it cannot be asked at all."""
        run = cls(
            server=recognised(fetch, name),
            matchers=metric_queries.matchers(matchers),
            start_ns=start_ns,
            end_ns=end_ns,
        )
        thanos_stores.note_lost(run.server, run.matchers, run.end_s - run.span_s, run.end_s)
        return run

    @property
    def end_s(self) -> float:
        return self.end_ns / 1e9

    @property
    def span_s(self) -> int:
        """The window in whole seconds, with the time before it."""
        return math.ceil((self.end_ns - self.start_ns) / 1e9) + BEFORE_S


def many(
    run: Run, names: Sequence[str], places: Sequence[Where], what: str, *, step_s: int = 0
) -> list[OneSeries]:
    """Samples of these metrics in all places, asked for side by side; each series once. Raw without a step."""
    ask = partial(halved, run, names, what=what, step_s=step_s)
    with ThreadPoolExecutor(THREADS) as pool:
        parts = list(pool.map(ask, places))
    return metric_files.merged([one for part in parts for one in part])


def halved(
    run: Run, names: Sequence[str], place: Where, *, what: str, step_s: int = 0
) -> list[OneSeries]:
    """One place; where the server finds it too much, in halves: of the nodes, then of the time."""
    pending = [(place, run.end_s, run.span_s, 0)]
    found: list[OneSeries] = []
    while pending:
        where, end_s, span_s, depth = pending.pop()
        try:
            found += _ask(run, names, where, end_s, span_s, step_s)
        except TooMuch as exc:
            halves = list(_halves(where, end_s, span_s)) if depth < _SPLITS else []
            if not halves:
                run.gaps.append(not_had(what, where, exc))
            pending += [(*half, depth + 1) for half in halves]
        except SourceError as exc:
            run.gaps.append(not_had(what, where, exc))
    return found


def _ask(
    run: Run, names: Sequence[str], where: Where, end_s: float, span_s: int, step_s: int
) -> list[OneSeries]:
    conditions = (*where.conditions, *run.matchers)
    if step_s == 0:
        return run.server.query(metric_queries.raw(names, conditions, span_s), end_s)
    # The last sample of each step alone: a plain selector would keep a dead series alive for minutes.
    text = f"last_over_time({metric_queries.raw(names, conditions, step_s)})"
    return run.server.query_range(text, end_s - span_s, end_s, step_s)


def _halves(where: Where, end_s: float, span_s: int) -> Iterator[tuple[Where, float, int]]:
    if len(where.nodes) > 1:
        for nodes, condition in where.pieces(math.ceil(len(where.nodes) / 2)):
            yield Where(tuple(nodes), (condition, *where.conditions[1:])), end_s, span_s
    elif span_s > 120:
        later = span_s // 2
        yield where, end_s, later
        yield where, end_s - later, span_s - later


def not_whole(server: Server) -> Iterator[Gap]:
    """What the server said of answers that are not whole; of many stores that are down a few are named."""
    told = sorted(server.warnings)
    for said in told[:MOST_WARNINGS]:
        more = len(told) - MOST_WARNINGS if said == told[:MOST_WARNINGS][-1] else 0
        yield Gap(
            what="part of the metrics",
            why=f"{server.name} says: {said}" + (f" (and {more:,} more)" if more > 0 else ""),
            would_settle="XID history",
        )


def not_had(what: str, where: Where | None, exc: SourceError) -> Gap:
    of = ""
    if where is not None and where.nodes:
        things = "GPUs" if where.conditions[0].label == "UUID" else "nodes"
        more = f" and {len(where.nodes) - 1:,} more {things}" if len(where.nodes) > 1 else ""
        of = f" of {where.nodes[0]}{more}"
    return Gap(what=f"{what}{of}", why=exc.message, would_settle=exc.hint or "whether a GPU failed")
