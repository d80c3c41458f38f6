"""Would tonight's triage find XID history and readings in this metrics server? Asked by daylight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import metric_nodes, metric_queries, metric_scopes, thanos_stores
from gpufleet_cli.live.gathered import Probe
from gpufleet_cli.live.http_source import Fetch
from gpufleet_cli.live.metric_queries import Matcher
from gpufleet_cli.live.metric_server import Server, recognised

LOOK_S = 3600
WORTH_HAVING: Mapping[str, str] = {
    "DCGM_FI_DEV_POWER_USAGE": "which GPU waits and which works",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "whether memory must be replaced",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "whether a reset is due",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "uncorrectable errors",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "throttling",
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": "a narrow PCIe link",
}
"""Fields that decide one of the three questions and are missed, each under its name before DCGM 4.6."""

_NODE_NAMES = ("node", "Hostname", "hostname", "instance")


def probe(
    fetch: Fetch,
    name: str,
    *,
    now_ns: int,
    matchers: str | None = None,
    nodes: Mapping[str, Sequence[str]] | None = None,
) -> Probe:
    """What the last hour holds, with one XID series as a sample. Never raises SourceError: that is a finding.

    `nodes` are some node names with their addresses, to see whether they are found under any label.
    UsageError for matchers that cannot be read.
    """
    chosen = metric_queries.matchers(matchers)
    try:
        server = recognised(fetch, name)
        thanos_stores.note_lost(server, chosen, now_ns / 1e9 - LOOK_S, now_ns / 1e9)
        return _probed(server, chosen, now_ns / 1e9, nodes or {})
    except SourceError as exc:
        what = exc.message if exc.hint is None else f"{exc.message} ({exc.hint})"
        return Probe(source="metrics", ok=False, what=what, would_lack="XID history and readings")


def _probed(
    server: Server, matchers: tuple[Matcher, ...], now_s: float, nodes: Mapping[str, Sequence[str]]
) -> Probe:
    every = metric_queries.selector((), (Matcher("__name__", "=~", "DCGM_.+"), *matchers))
    known = server.names(every, now_s - LOOK_S, now_s)
    version = f" {server.version}" if server.version else ""
    found = [f"{server.flavour}{version}"]
    gauge = _gauge(server, matchers, known, now_s)
    if gauge is None:
        count = f"{len(known)} DCGM metrics" if known else "no DCGM metrics"
        found.append(f"{count} and no XID series in the last hour")
        lack = "XID history: dcgm-exporter, or matchers that fit"
        if server.warnings:
            lack = f"XID history: it says: {'; '.join(sorted(server.warnings)[:2])}"
        return Probe(source="metrics", ok=False, what=", ".join(found), would_lack=lack)
    found.append(_sample(server, gauge, matchers, now_s))
    lacks = [*_unknown_fields(known)]
    if nodes:
        where = metric_nodes.find(
            server,
            gauges=(gauge,),
            nodes=nodes,
            pods=(),
            namespace=None,
            matchers=matchers,
            span_s=LOOK_S,
            end_s=now_s,
        )
        labels = sorted({place.conditions[0].label for place in where.places})
        found.append(
            f"{len(nodes) - len(where.lost)} of {len(nodes)} nodes by {', '.join(labels) or 'no label'}"
        )
        if where.lost:
            lacks.insert(0, f"XID history of {where.lost[0]} and {len(where.lost) - 1} more nodes")
    mixed = _mixed(server, gauge, matchers, now_s)
    if mixed:
        lacks.insert(0, f"metrics of {mixed}: other clusters have the same names, so set matchers")
    if server.warnings:
        lacks.insert(0, f"part of the metrics: it says: {'; '.join(sorted(server.warnings)[:2])}")
    is_ok = not mixed and (not nodes or len(where.lost) < len(nodes))
    return Probe(source="metrics", ok=is_ok, what=", ".join(found), would_lack="; ".join(lacks))


def _gauge(
    server: Server, matchers: tuple[Matcher, ...], known: set[str] | None, now_s: float
) -> str | None:
    """The XID gauge that this server has."""
    for gauge in metric_queries.XID_GAUGES:
        if known is not None and gauge not in known:
            continue
        text = metric_queries.raw(gauge, matchers, LOOK_S)
        if known is not None or server.query(f"count(max_over_time({text}))", now_s):
            return gauge
    return None


def _sample(server: Server, gauge: str, matchers: tuple[Matcher, ...], now_s: float) -> str:
    text = metric_queries.raw(gauge, matchers, LOOK_S)
    one = ",".join(
        ("UUID", "gpu", "GPU_I_ID", *metric_queries.NODE_LABELS)
    )  # replicas are no more GPUs
    counted = server.query(f"count(max by ({one}) (max_over_time({text})))", now_s)
    series = server.query(f"topk(1, max_over_time({text}))", now_s)
    count = _value(counted[0].value) if counted else "?"
    if not series:
        return f"{count} XID series"
    labels = series[0].metric
    shown = [f'{key}="{labels[key]}"' for key in (*_NODE_NAMES, "gpu", "UUID") if labels.get(key)]
    return f"{count} XID series such as {gauge}{{{', '.join(shown)}}} {_value(series[0].value)}"


def _value(raw: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=tuple[float, str])[1][:20]
    except (msgspec.DecodeError, msgspec.ValidationError):
        return "?"


def _unknown_fields(known: set[str] | None) -> Iterator[str]:
    """What is not exported and would be missed; nothing where the server cannot list its metrics."""
    if known is None:
        return
    old_names = metric_queries.old_names()
    had = {old_names.get(name, name) for name in known}
    for name, answers in WORTH_HAVING.items():
        if name not in had:
            yield f"{answers} ({name} is not exported)"


def _mixed(server: Server, gauge: str, matchers: tuple[Matcher, ...], now_s: float) -> str:
    """Nodes that series of several places bear the name of."""
    text = metric_queries.selector(gauge, matchers)
    of, places = ",".join(_NODE_NAMES), ",".join(metric_scopes.SCOPE_LABELS)
    query = f"count by ({of}) (count by ({of},{places}) ({text})) > 1"
    found = server.query(query, now_s)
    names = sorted(
        next((one.metric[key] for key in _NODE_NAMES if key in one.metric), "?") for one in found
    )
    return f"{names[0]} and {len(names) - 1} more nodes" if len(names) > 1 else "".join(names)
