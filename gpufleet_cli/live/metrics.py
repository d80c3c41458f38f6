"""DCGM's XID history and readings of a job's nodes, from Prometheus and what speaks its API.

Stored as the server's own answers (`{"status":"success","data":{"resultType":"matrix",...}}`), which
`parsers/dcgm_metrics` reads: `metrics/xid.json` (Xids, SXids: raw samples), `metrics/readings.json` (the fields
of dcgm-fields.csv that answer one of the three questions), `metrics/pods.json` (kube-state-metrics: node and
uid of pods, also of those that are gone). What could not be had is a Gap. Facts: kubernetes.md 0.6-0.9 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

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
from gpufleet_cli.live.gathered import Gathered
from gpufleet_cli.live.http_source import Fetch
from gpufleet_cli.live.metric_asks import Run, not_had
from gpufleet_cli.live.metric_nodes import Where
from gpufleet_cli.live.metric_queries import Matcher
from gpufleet_cli.live.metric_server import OneSeries
from gpufleet_cli.parsers.dcgm_labels import gpu_of

NODES_AT_ONCE = 64
MOST_READINGS = 4_000_000
"""Samples of readings in all; above it they are asked for at steps."""
_GPUS = 8  # of a node whose GPUs were not counted yet
_STEP_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked for. `nodes` maps a node's name to its addresses; times are Unix nanoseconds.

    `pods` are names in `namespace`; of `pod_names` (RE2, whole names) all that ran since `gone_since_ns` are meant,
    which the cluster no longer has: their nodes are asked about too.
    """

    nodes: Mapping[str, Sequence[str]]
    start_ns: int
    end_ns: int
    namespace: str | None = None
    pods: Sequence[str] = ()
    pod_names: str | None = None
    gone_since_ns: int | None = None


def gather(fetch: Fetch, name: str, wanted: Wanted, *, matchers: str | None = None) -> Gathered:
    """Everything of the window. SourceError where the server cannot be asked at all, UsageError for wrong matchers.

    `name` is how the source is called in gaps; `fetch` should be `http_source.Patient`.
    """
    run = _run(fetch, name, wanted, matchers)
    pods = _pods(run, wanted)
    wanted = _with_their_nodes(wanted, pods)
    known = run.server.names(
        metric_queries.selector((), (Matcher("__name__", "=~", "DCGM_.+"), *run.matchers)),
        run.end_s - run.span_s,
        run.end_s,
    )
    places = _places(run, wanted, known)
    xids = metric_asks.many(run, metric_queries.XID_NAMES, places, "XID history")
    step_s = metric_files.usual_step(xids)
    readings = _readings(run, wanted, places, known, xids, step_s)
    judged = metric_scopes.judge([metric_files.placed(one) for one in (*xids, *readings, *pods)])
    run.gaps += judged.gaps
    keep = iter(judged.kept)
    xids, readings, pods = ([one for one in part if next(keep)] for part in (xids, readings, pods))
    run.gaps += _absent(run, places, xids)
    run.gaps += metric_asks.not_whole(run.server)
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


def _run(fetch: Fetch, name: str, wanted: Wanted, matchers: str | None) -> Run:
    return Run.begun(fetch, name, start_ns=wanted.start_ns, end_ns=wanted.end_ns, matchers=matchers)


def history(fetch: Fetch, name: str, wanted: Wanted, *, matchers: str | None = None) -> Gathered:
    """Xids of a long time (30 days): raw samples of those GPUs alone that show a code at all.

    A gap says where the server's samples begin later than that.

    `metrics/xid-history.json`; raises as `gather` does.
    """
    run = _run(fetch, name, wanted, matchers)
    places = _places(run, wanted, set(metric_queries.XID_NAMES))
    found: list[OneSeries] = []
    every: list[OneSeries] = []
    of = ",".join(("UUID", "gpu", *metric_queries.NODE_LABELS, *metric_scopes.SCOPE_LABELS))
    for place in places:
        conditions = (*place.conditions, *run.matchers)
        run.gaps += metric_reach.missing(run, conditions)
        text = partial(_highest_by, of, conditions)
        try:
            there = run.server.over(text, run.end_s, run.span_s)
        except SourceError as exc:
            run.gaps.append(not_had("XID history", place, exc))
            continue
        every += there
        marked = [one for one in there if one.number > 0]
        uuids = sorted({uuid for one in marked if (uuid := one.metric.get("UUID"))})
        narrow = [metric_queries.one_of("UUID", uuids)] if uuids else []
        if marked:
            chosen = Where(place.nodes, (*place.conditions, *narrow))
            found += metric_asks.halved(run, metric_queries.XID_NAMES, chosen, what="XID history")
    unique = metric_files.merged(found)
    # Those without a code count here too: a node of another place may be the one that has it.
    judged = metric_scopes.judge([metric_files.placed(one) for one in (*unique, *every)])
    kept = [one for one, is_kept in zip(unique, judged.kept, strict=False) if is_kept]
    return Gathered(
        files=tuple(metric_files.files("metrics/xid-history", kept)),
        gaps=_in_order([*run.gaps, *judged.gaps, *metric_asks.not_whole(run.server)]),
        found=_found(run, kept, []),
        step_s=metric_files.usual_step(kept),
    )


def _highest_by(of: str, conditions: Sequence[Matcher], span_s: int) -> str:
    return (
        f"max by ({of}) ({metric_queries.highest(metric_queries.XID_GAUGES, conditions, span_s)})"
    )


# --- Which series -----------------------------------------------------------------------------------


def _places(run: Run, wanted: Wanted, known: set[str] | None) -> list[Where]:
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
            nodes=wanted.nodes,
            pods=wanted.pods,
            namespace=wanted.namespace,
            matchers=run.matchers,
            span_s=run.span_s,
            end_s=run.end_s,
        )
    except SourceError as exc:
        run.gaps.append(not_had("XID history and readings", None, exc))
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


def _absent(run: Run, places: Sequence[Where], xids: Sequence[OneSeries]) -> Iterator[Gap]:
    has_gauge = any(one.metric.get("__name__") in metric_queries.XID_NAMES for one in xids)
    told = any("XID history" in gap.what or gap.what.startswith("metrics of") for gap in run.gaps)
    if places and not has_gauge and not told:
        yield Gap(
            what="XID history",
            why=f"{run.server.name} has metrics of these GPUs, but {metric_queries.XID_GAUGES[0]} is not among them",
            would_settle="whether a GPU failed",
        )


# --- Readings and pods -----------------------------------------------------------------------------


def _readings(
    run: Run,
    wanted: Wanted,
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
    gpus = len({gpu_of(one.metric) for one in xids}) or _GPUS * max(len(wanted.nodes), 1)
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
    return metric_asks.many(run, names, places, "readings", step_s=step)


def _pods(run: Run, wanted: Wanted) -> list[OneSeries]:
    """kube-state-metrics' word on the job's pods, newest value each; nothing where nobody asked for pods."""
    if wanted.namespace is None or not (wanted.pods or wanted.pod_names):
        return []
    found: list[OneSeries] = []
    forms = [
        metric_queries.one_of("pod", piece).value for piece in metric_queries.chunks(wanted.pods)
    ]
    forms += [] if wanted.pod_names is None else [wanted.pod_names]
    since_ns = max(wanted.gone_since_ns or wanted.start_ns, wanted.start_ns)
    span_s = max(1, (wanted.end_ns - since_ns) // 1_000_000_000) if wanted.pod_names else run.span_s
    for pod, namespace in (("pod", "namespace"), ("exported_pod", "exported_namespace")):
        for form in forms:
            where = (
                Matcher(namespace, "=", wanted.namespace),
                Matcher(pod, "=~", form),
                *run.matchers,
            )
            text = metric_queries.raw("kube_pod_info", where, span_s)
            try:
                found += run.server.query(f"last_over_time({text})", run.end_s)
            except SourceError as exc:
                run.gaps.append(not_had("nodes of pods that are gone", None, exc))
                return metric_files.merged(found)
        if found:
            break
    for one in found:
        one.metric.setdefault("__name__", "kube_pod_info")
    return metric_files.merged(found)


def _with_their_nodes(wanted: Wanted, pods: Sequence[OneSeries]) -> Wanted:
    """The nodes of pods that are gone beside those that the cluster told: one of them may be why they are gone."""
    if wanted.pod_names is None:
        return wanted
    told = {one.metric.get("node") or one.metric.get("exported_node") for one in pods}
    found = dict.fromkeys(sorted(node for node in told if node), ())
    return replace(wanted, nodes={**found, **wanted.nodes})


# --- What is kept -----------------------------------------------------------------------------------


def _in_order(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    """Threads add theirs as they come; the same server must give the same list."""
    return tuple(sorted(gaps, key=lambda gap: (gap.what, gap.why)))


def _found(run: Run, xids: Sequence[OneSeries], readings: Sequence[OneSeries]) -> str:
    version = f" {run.server.version}" if run.server.version else ""
    gpus = len({gpu_of(one.metric) for one in (*xids, *readings)})
    fields = len({one.metric.get("__name__") for one in readings})
    return (
        f"{run.server.flavour}{version}: {gpus:,} GPUs, {len(xids):,} XID series, {fields} fields"
    )
