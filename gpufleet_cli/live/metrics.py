"""DCGM's XID history and readings of a job's nodes, from Prometheus and what speaks its API.

Stored as the server's own answers (`{"status":"success","data":{"resultType":"matrix",...}}`), which
`parsers/dcgm_metrics` reads: `metrics/xid.json` (Xids, SXids: raw samples), `metrics/readings.json` (the fields
of dcgm-fields.csv that answer one of the three questions), `metrics/pods.json` (kube-state-metrics: node and
uid of pods, also of those that are gone). What could not be had is a Gap. Facts: kubernetes.md 0.6-0.9 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from gpufleet_cli.errors import SourceError
from gpufleet_cli.facts import Gap
from gpufleet_cli.live import metric_files, metric_nodes, metric_queries, metric_scopes
from gpufleet_cli.live.gathered import Gathered
from gpufleet_cli.live.http_source import Fetch
from gpufleet_cli.live.metric_nodes import Where
from gpufleet_cli.live.metric_queries import Matcher
from gpufleet_cli.live.metric_server import OneSeries, Server, TooMuch, recognised
from gpufleet_cli.parsers.dcgm_labels import gpu_of

BEFORE_S = 15 * 60
"""How long before the window samples begin: a code is only new beside a sample without it."""
NODES_AT_ONCE = 64
MOST_READINGS = 4_000_000
"""Samples of readings in all; above it they are asked for at steps."""
THREADS = 4
_SPLITS = 8
_GPUS = 8  # of a node whose GPUs were not counted yet
_STEP_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for. `nodes` maps a node's name to its addresses; times are Unix nanoseconds.

    `pods` are names in `namespace`; of `pod_prefixes` (a controller's) all that ever ran are meant.
    """

    nodes: Mapping[str, Sequence[str]]
    start_ns: int
    end_ns: int
    namespace: str | None = None
    pods: Sequence[str] = ()
    pod_prefixes: Sequence[str] = ()


@dataclass(slots=True)
class _Run:
    """One gathering."""

    server: Server
    matchers: tuple[Matcher, ...]
    wanted: Wanted
    gaps: list[Gap] = field(default_factory=list)

    @property
    def end_s(self) -> float:
        return self.wanted.end_ns / 1e9

    @property
    def span_s(self) -> int:
        """The window in whole seconds, with the time before it."""
        return math.ceil((self.wanted.end_ns - self.wanted.start_ns) / 1e9) + BEFORE_S


def gather(fetch: Fetch, name: str, wanted: Wanted, *, matchers: str | None = None) -> Gathered:
    """Everything of the window. SourceError where the server cannot be asked at all, UsageError for wrong matchers.

    `name` is how the source is called in gaps; `fetch` should be `http_source.Patient`.
    """
    run = _Run(recognised(fetch, name), metric_queries.matchers(matchers), wanted)
    known = run.server.names(
        metric_queries.selector((), (Matcher("__name__", "=~", "DCGM_.+"), *run.matchers)),
        run.end_s - run.span_s,
        run.end_s,
    )
    places = _places(run, known)
    xids = _many(run, metric_queries.XID_NAMES, places, "XID history")
    step_s = metric_files.usual_step(xids)
    readings = _readings(run, places, known, xids, step_s)
    pods = _pods(run)
    judged = metric_scopes.judge([metric_files.placed(one) for one in (*xids, *readings, *pods)])
    run.gaps += judged.gaps
    keep = iter(judged.kept)
    xids, readings, pods = ([one for one in part if next(keep)] for part in (xids, readings, pods))
    run.gaps += _absent(run, places, xids)
    run.gaps += [
        Gap(what="part of the metrics", why=f"{name} says: {said}", would_settle="XID history")
        for said in sorted(run.server.warnings)
    ]
    files = [
        *metric_files.files("metrics/xid", xids),
        *metric_files.files("metrics/readings", readings),
        *metric_files.files("metrics/pods", pods),
    ]
    return Gathered(
        files=tuple(files),
        gaps=_in_order(run.gaps),
        found=_found(run, xids, readings),
        step_s=step_s,
    )


def history(fetch: Fetch, name: str, wanted: Wanted, *, matchers: str | None = None) -> Gathered:
    """Xids of a long time (30 days): raw samples of those GPUs alone that show a code at all.

    `metrics/xid-history.json`; raises as `gather` does.
    """
    run = _Run(recognised(fetch, name), metric_queries.matchers(matchers), wanted)
    places = _places(run, set(metric_queries.XID_NAMES))
    found: list[OneSeries] = []
    for place in places:
        conditions = (*place.conditions, *run.matchers)
        highest = metric_queries.highest(metric_queries.XID_GAUGES, conditions, run.span_s)
        try:
            marked = run.server.query(f"max by (UUID, gpu) ({highest}) > 0", run.end_s)
        except SourceError as exc:
            run.gaps.append(_gap("XID history", place, exc))
            continue
        uuids = sorted({uuid for one in marked if (uuid := one.metric.get("UUID"))})
        narrow = [metric_queries.one_of("UUID", uuids)] if uuids else []
        if marked:
            chosen = Where(place.nodes, (*place.conditions, *narrow))
            found += _halved(run, metric_queries.XID_NAMES, chosen, what="XID history")
    unique = metric_files.merged(found)
    judged = metric_scopes.judge([metric_files.placed(one) for one in unique])
    kept = [one for one, is_kept in zip(unique, judged.kept, strict=True) if is_kept]
    return Gathered(
        files=tuple(metric_files.files("metrics/xid-history", kept)),
        gaps=_in_order([*run.gaps, *judged.gaps]),
        found=_found(run, kept, []),
        step_s=metric_files.usual_step(kept),
    )


# --- Which series -----------------------------------------------------------------------------------


def _places(run: _Run, known: set[str] | None) -> list[Where]:
    """The selectors that find the job's nodes; a gap for those that none finds."""
    gauges = _gauges(known)
    if not gauges:
        run.gaps.append(
            Gap(
                what="XID history and readings of the GPUs",
                why=f"{run.server.name} holds no DCGM metric of that time",
                would_settle="whether a GPU failed: dcgm-exporter, or matchers that fit",
            )
        )
        return []
    try:
        found = metric_nodes.find(
            run.server,
            gauges=gauges,
            nodes=run.wanted.nodes,
            pods=run.wanted.pods,
            namespace=run.wanted.namespace,
            matchers=run.matchers,
            span_s=run.span_s,
            end_s=run.end_s,
        )
    except SourceError as exc:
        run.gaps.append(_gap("XID history and readings", None, exc))
        return []
    if found.lost:
        shown = ", ".join(found.lost[:6]) + (
            f" and {len(found.lost) - 6:,} more" * (len(found.lost) > 6)
        )
        run.gaps.append(
            Gap(
                what=f"XID history of {shown}",
                why=f"no series in {run.server.name} bears the node's name or address",
                would_settle="whether a GPU failed there",
            )
        )
    return [
        Where(tuple(piece), (condition, *place.conditions[1:]))
        for place in found.places
        for piece, condition in place.pieces(NODES_AT_ONCE)
    ]


def _gauges(known: set[str] | None) -> tuple[str, ...]:
    """The metrics by which nodes are found: the Xid gauges, else any one; none where there is none at all."""
    if known is None:
        return metric_queries.XID_GAUGES
    gauges = tuple(name for name in metric_queries.XID_GAUGES if name in known)
    return gauges or tuple(name for name in metric_queries.readings() if name in known)[:1]


def _absent(run: _Run, places: Sequence[Where], xids: Sequence[OneSeries]) -> Iterator[Gap]:
    has_gauge = any(one.metric.get("__name__") in metric_queries.XID_NAMES for one in xids)
    told = any("XID history" in gap.what or gap.what.startswith("metrics of") for gap in run.gaps)
    if places and not has_gauge and not told:
        yield Gap(
            what="XID history",
            why=f"{run.server.name} has metrics of these GPUs, but {metric_queries.XID_GAUGES[0]} is not among them",
            would_settle="whether a GPU failed",
        )


# --- Asking -----------------------------------------------------------------------------------------


def _many(
    run: _Run, names: Sequence[str], places: Sequence[Where], what: str, *, step_s: int = 0
) -> list[OneSeries]:
    """Samples of these metrics in all places, asked for side by side; each series once. Raw without a step."""
    ask = partial(_halved, run, names, what=what, step_s=step_s)
    with ThreadPoolExecutor(THREADS) as pool:
        parts = list(pool.map(ask, places))
    return metric_files.merged([one for part in parts for one in part])


def _halved(
    run: _Run, names: Sequence[str], place: Where, *, what: str, step_s: int = 0
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
                run.gaps.append(_gap(what, where, exc))
            pending += [(*half, depth + 1) for half in halves]
        except SourceError as exc:
            run.gaps.append(_gap(what, where, exc))
    return found


def _ask(
    run: _Run, names: Sequence[str], where: Where, end_s: float, span_s: int, step_s: int
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


def _readings(
    run: _Run,
    places: Sequence[Where],
    known: set[str] | None,
    xids: Sequence[OneSeries],
    step_s: float | None,
) -> list[OneSeries]:
    """The fields that answer one of the three questions, raw, or at steps where that would be too many."""
    fields = metric_queries.readings()
    names = (
        [name for name in fields if name in known]
        if known
        else list(metric_queries.usual_readings())
    )
    if not names or not places:
        return []
    gpus = len({gpu_of(one.metric) for one in xids}) or _GPUS * max(len(run.wanted.nodes), 1)
    samples = gpus * len(names) * run.span_s / (step_s or _STEP_S)
    step = 0
    if samples > MOST_READINGS:
        step = math.ceil((step_s or _STEP_S) * samples / MOST_READINGS)
        run.gaps.append(
            Gap(
                what=f"readings of {gpus:,} GPUs between steps of {step} s",
                why=f"they would be {samples / 1e6:.0f} million samples",
                would_settle="short throttling; Xids are there with every sample",
            )
        )
    return _many(run, names, places, "readings", step_s=step)


def _pods(run: _Run) -> list[OneSeries]:
    """kube-state-metrics' word on the job's pods, newest value each; nothing where nobody asked for pods."""
    wanted = run.wanted
    if wanted.namespace is None or not (wanted.pods or wanted.pod_prefixes):
        return []
    found: list[OneSeries] = []
    forms = [
        metric_queries.one_of("pod", piece).value for piece in metric_queries.chunks(wanted.pods)
    ]
    forms += [metric_queries.literal(prefix) + ".*" for prefix in wanted.pod_prefixes]
    for pod, namespace in (("pod", "namespace"), ("exported_pod", "exported_namespace")):
        for form in forms:
            where = (
                Matcher(namespace, "=", wanted.namespace),
                Matcher(pod, "=~", form),
                *run.matchers,
            )
            text = metric_queries.raw("kube_pod_info", where, run.span_s)
            try:
                found += run.server.query(f"last_over_time({text})", run.end_s)
            except SourceError as exc:
                run.gaps.append(_gap("nodes of pods that are gone", None, exc))
                return metric_files.merged(found)
        if found:
            break
    for one in found:
        one.metric.setdefault("__name__", "kube_pod_info")
    return metric_files.merged(found)


# --- What is kept -----------------------------------------------------------------------------------


def _gap(what: str, where: Where | None, exc: SourceError) -> Gap:
    of = ""
    if where is not None and where.nodes:
        of = f" of {where.nodes[0]}" + (
            f" and {len(where.nodes) - 1:,} more nodes" if len(where.nodes) > 1 else ""
        )
    return Gap(what=f"{what}{of}", why=exc.message, would_settle=exc.hint or "whether a GPU failed")


def _in_order(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    """Threads add theirs as they come; the same server must give the same list."""
    return tuple(sorted(gaps, key=lambda gap: (gap.what, gap.why)))


def _found(run: _Run, xids: Sequence[OneSeries], readings: Sequence[OneSeries]) -> str:
    version = f" {run.server.version}" if run.server.version else ""
    gpus = len({gpu_of(one.metric) for one in (*xids, *readings)})
    fields = len({one.metric.get("__name__") for one in readings})
    return (
        f"{run.server.flavour}{version}: {gpus:,} GPUs, {len(xids):,} XID series, {fields} fields"
    )
