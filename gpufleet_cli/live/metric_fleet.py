"""XIDs of all GPUs that a metrics server knows, in a few questions whatever the number of nodes.

Which series there are and of which place, which GPUs show a code at all, then the samples of those GPUs alone.
No question names a node: a fleet's names fill hundreds of selectors. How much the server has to read at once is
bounded by the time that one question spans; a few are asked side by side, newest first, so that what a deadline
leaves out is the oldest.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from gpufleet_cli.errors import SourceError
from gpufleet_cli.facts import Gap
from gpufleet_cli.live import (
    metric_asks,
    metric_files,
    metric_nodes,
    metric_queries,
    metric_reach,
    metric_scopes,
)
from gpufleet_cli.live.http_source import Fetch
from gpufleet_cli.live.metric_asks import Run
from gpufleet_cli.live.metric_nodes import Forms, Where
from gpufleet_cli.live.metric_queries import NODE_LABELS, Matcher
from gpufleet_cli.live.metric_scopes import Placed
from gpufleet_cli.live.metric_server import SHORTEST_S, OneSeries
from gpufleet_cli.timestamps import format_ns

WHAT = "XID history"
LOOK_S = 3600
"""So new must a sample be for a GPU without a code to count as seen."""
MOST_SCANNED = 500_000_000
"""Samples that one question may make the server read: some seconds of a Prometheus."""
MOST_SAMPLES = 4_000_000
"""Samples handed over in all; above it they are asked for at steps."""
MOST_STEPS = 10_000  # Prometheus refuses more than 11,000 a series
USUAL_STEP_S = 30
GPUS_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`series` are the samples of GPUs that show a code, `known` the labels of whatever has samples.

    `is_whole` is False where the server itself says that its answers are not: no code is then not none.
    """

    series: tuple[OneSeries, ...]
    known: tuple[Mapping[str, str], ...]
    gaps: tuple[Gap, ...]
    is_whole: bool = True


def history(
    fetch: Fetch, name: str, *, start_ns: int, end_ns: int, matchers: str | None = None
) -> Found:
    """Everything of the window. SourceError where the server cannot be asked, UsageError for wrong matchers."""
    run = Run.begun(fetch, name, start_ns=start_ns, end_ns=end_ns, matchers=matchers)
    places = (*NODE_LABELS, *metric_scopes.SCOPE_LABELS)
    there = run.server.query(f"count by ({','.join(places)}) ({_highest(run, LOOK_S)})", run.end_s)
    if not there:
        why = f"{name} holds no {metric_queries.XID_GAUGES[0]} of the last hour"
        run.gaps.append(Gap(what=WHAT, why=why, would_settle="dcgm-exporter, or matchers that fit"))
    else:
        run.gaps += metric_reach.missing(run, run.matchers)
    series = round(sum(one.number for one in there if one.number > 0))
    marked = list(_marked(run, ",".join(("UUID", "gpu", *places)), series))
    gpus = {tuple(sorted(one.metric.items())): one.metric for one in marked}
    step_s = _step_s(run, len(gpus))
    found = metric_asks.many(
        run, metric_queries.XID_NAMES, list(_wheres(gpus.values())), WHAT, step_s=step_s
    )
    known = (*(one.metric for one in there), *gpus.values())
    gaps = (*run.gaps, *metric_asks.not_whole(run.server))
    return Found(series=tuple(found), known=known, gaps=gaps, is_whole=not run.server.warnings)


def _highest(run: Run, span_s: int) -> str:
    return metric_queries.highest(metric_queries.XID_GAUGES, run.matchers, span_s)


class _Piece(NamedTuple):
    """Some of the window's time, and what the server told of it; `why` where it told nothing."""

    begin_s: float
    end_s: float
    series: list[OneSeries]
    why: str | None = None


def _marked(run: Run, labels: str, series: int) -> Iterator[OneSeries]:
    """The GPUs that show a code, by pieces of time side by side, the newest first; a gap for those not had."""
    samples = max(series, 1) * run.span_s / USUAL_STEP_S
    count = max(math.ceil(samples / MOST_SCANNED), 1)
    span_s = max(math.ceil(run.span_s / count), SHORTEST_S)
    oldest_s = run.end_s - run.span_s
    ends = (run.end_s - turn * span_s for turn in range(math.ceil(run.span_s / span_s)))
    failed = threading.Event()

    def ask(end_s: float) -> _Piece:
        begin_s = max(end_s - span_s, oldest_s)
        if failed.is_set():
            return _Piece(begin_s, end_s, [], "the server failed before")
        try:
            found = run.server.over(
                lambda some_s: f"max by ({labels}) ({_highest(run, some_s)}) > 0",
                end_s,
                math.ceil(end_s - begin_s),
            )
        except SourceError as exc:
            failed.set()
            return _Piece(begin_s, end_s, [], exc.message)
        return _Piece(begin_s, end_s, found)

    with ThreadPoolExecutor(metric_asks.THREADS) as pool:
        pieces = list(pool.map(ask, ends))
    run.gaps += _lost(run, [piece for piece in pieces if piece.why is not None])
    for piece in pieces:
        yield from piece.series


def _lost(run: Run, lost: Sequence[_Piece]) -> Iterator[Gap]:
    """One gap for all pieces that were not had: since when, where the newer ones are there."""
    if not lost:
        return
    newest_s = max(piece.end_s for piece in lost)
    what = WHAT if newest_s == run.end_s else f"{WHAT} before {format_ns(round(newest_s) * 10**9)}"
    why = next(piece.why for piece in lost if piece.why != "the server failed before")
    yield Gap(what=what, why=why or "", would_settle="gpufleet node NODE")


def _step_s(run: Run, gpus: int) -> int:
    """0 for all samples; above what can be handed over the distance at which they are asked for."""
    samples = gpus * run.span_s / USUAL_STEP_S
    if samples <= MOST_SAMPLES:
        return 0
    step_s = math.ceil(max(USUAL_STEP_S * samples / MOST_SAMPLES, run.span_s / MOST_STEPS))
    run.gaps.append(
        Gap(
            what=f"XIDs of {gpus:,} GPUs between steps of {step_s} s",
            why=f"they would be {samples / 1e6:.0f} million samples",
            would_settle="gpufleet node NODE has every sample",
        )
    )
    return step_s


def _wheres(gpus: Iterable[Mapping[str, str]]) -> Iterator[Where]:
    """Selectors of these GPUs: by their UUIDs, else by whatever names their node."""
    names: dict[str, set[str]] = {}
    for labels in gpus:
        label = next((one for one in ("UUID", *NODE_LABELS) if labels.get(one)), None)
        if label is not None:
            names.setdefault(label, set()).add(labels[label])
    for label, values in sorted(names.items()):
        every = Where(tuple(sorted(values)), (Matcher(label, "=~", ""),))
        for piece, condition in every.pieces(GPUS_AT_ONCE):
            yield Where(tuple(piece), (condition,))


# --- Whose they are -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """Answers by node, as the parser reads them; a node that the metrics know may have none."""

    files: Mapping[str, tuple[bytes, ...]]
    gaps: tuple[Gap, ...]


def by_node(found: Found, nodes: Mapping[str, Sequence[str]]) -> Owned:
    """What was found, by the nodes (name to addresses) of this cluster; another's of that name is left out."""
    forms = metric_nodes.forms_of(nodes)
    owned = [(node, labels) for labels in found.known if (node := _owner(labels, forms))]
    held = [(node, one) for one in found.series if (node := _owner(one.metric, forms))]
    judged = metric_scopes.judge(
        [
            *(Placed(labels, (("node", node),)) for node, labels in owned),
            *(Placed(one.metric, (("node", node),)) for node, one in held),
        ]
    )
    kept = iter(judged.kept)
    known = {node for node, _ in owned if next(kept)}
    series: dict[str, list[OneSeries]] = {node: [] for node in sorted(known)}
    for node, one in held:
        if next(kept):
            series.setdefault(node, []).append(one)
    files = {
        node: tuple(data for _, data in metric_files.files("xids", own))
        for node, own in series.items()
    }
    return Owned(files=files, gaps=(*found.gaps, *judged.gaps))


def _owner(labels: Mapping[str, str], forms: Forms) -> str | None:
    """The node by the surest label whose value is one's name or address."""
    for label in NODE_LABELS:
        value = labels.get(label)
        if value:
            node = metric_nodes.node_of_value(value, forms, is_instance=label == "instance")
            if node is not None:
                return node
    return None
