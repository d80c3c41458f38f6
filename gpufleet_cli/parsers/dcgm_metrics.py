"""dcgm-exporter's metrics: Xid history, readings, which pod held which GPU, and series that end.

    {"metric": {"__name__": "DCGM_FI_DEV_XID_ERRORS", "Hostname": "gpu-b011", "gpu": "5",
                "pci_bus_id": "0000:C3:00.0", "UUID": "GPU-..."},
     "values": [[1772939520.0, "0"], [1772939550.0, "62"], [1772939580.0, "45"]]}

says: Xid 62 in the 30 s up to 1772939550, and 45 up to 1772939580. Forms are in `metric_series`,
labels in `dcgm_labels`, how a gauge becomes events in `dcgm_xid`. Field names before and after DCGM
4.6 are both known (data/dcgm-fields.csv). A GPU whose series end while others go on is gone, or its
exporter is. kube-state-metrics' `kube_pod_info` and node-exporter's boot time are read too.
"""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from gpufleet_cli import timestamps
from gpufleet_cli.bundle import Evidence
from gpufleet_cli.facts import (
    Fact,
    GpuReading,
    IdentityLink,
    Link,
    NodeBoot,
    Origin,
    SeriesEnd,
    XidEvent,
)
from gpufleet_cli.parsers import dcgm_xid, metric_series
from gpufleet_cli.parsers.dcgm_labels import Gpu, gpu_of, link_of, node_of
from gpufleet_cli.parsers.dcgm_xid import SXID_GAUGES, XID_COUNTS, XID_GAUGES, Run
from gpufleet_cli.parsers.metric_series import Series

FIELDS_FILE = Path(__file__).parent.parent / "data" / "dcgm-fields.csv"
END_STEPS = 2.5
MOST_KEPT_VALUES = 200_000

_JSON_HEAD = re.compile(
    rb'"metric"\s{0,8}:\s{0,8}\{|"resultType"\s{0,8}:\s{0,8}"(?:matrix|vector)"'
)
_ERROR_HEAD = re.compile(rb'"status"\s{0,8}:\s{0,8}"error"')
_TEXT_HEAD = re.compile(rb"^(?:# (?:HELP|TYPE) )?DCGM_(?:FI|EXP)_[A-Z]", re.MULTILINE)


def matches(path: str, head: bytes) -> bool:
    """A Prometheus answer, also one that only says why there is none, or exporter text."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] in (b"{", b"["):
        is_error = b'"errorType"' in start[:4096] and _ERROR_HEAD.search(start[:4096]) is not None
        return is_error or _JSON_HEAD.search(start) is not None
    return b"DCGM_" in head and _TEXT_HEAD.search(head) is not None


@lru_cache(maxsize=1)
def field_names() -> Mapping[str, str]:
    """Every field that we know, under its new and old name, to its name before DCGM 4.6."""
    names: dict[str, str] = {}
    with FIELDS_FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            old = row["metric"]
            if re.fullmatch(r"DCGM_[A-Z0-9_]+", old):
                names[old] = old
                names[row["new_name_dcgm_4_6"] or old] = old
    return names


class _Span(NamedTuple):
    """The samples of one series: its first, its last, and when its value changed last."""

    first_ns: int | None
    last_ns: int | None
    changed_ns: int | None
    first: float
    last: float
    entry: int


@dataclass(slots=True)
class _Readings:
    """Samples of one field of one GPU, over all its series: of one pod after another, of replicas side by side."""

    values: array[float] = field(default_factory=lambda: array("d"))
    spans: list[_Span] = field(default_factory=list)


@dataclass(slots=True)
class _Seen:
    """What the series of a file have said so far."""

    xid_runs: dict[Gpu, list[Run]] = field(default_factory=dict)
    counts: dict[tuple[Gpu, str], list[Series]] = field(default_factory=dict)
    switches: dict[tuple[str, ...], list[Series]] = field(default_factory=dict)
    readings: dict[tuple[Gpu, str], _Readings] = field(default_factory=dict)
    ends: dict[Gpu, tuple[int, int, float, int]] = field(default_factory=dict)
    links: dict[IdentityLink, IdentityLink] = field(default_factory=dict)
    began_ns: int | None = None


def parse(evidence: Evidence) -> Iterator[Fact]:
    """Facts of every DCGM series of the file; series of other programs are passed over."""
    yield from facts_of(metric_series.read(evidence.read()), evidence.path)


def facts_of(found: Iterable[Series], path: str) -> Iterator[Fact]:
    """The same of series that were read already, all of one file."""
    seen = _Seen()
    for series in found:
        yield from _one(series, seen, path)
    yield from seen.links.values()
    yield from _xids(seen, path)
    for together in seen.switches.values():
        yield from dcgm_xid.sxid_events(together, path)
    yield from _readings(seen, path)
    yield from _ends(seen, path)


def _one(series: Series, seen: _Seen, path: str) -> Iterator[Fact]:
    origin = Origin(path=path, entry=series.entry)
    if series.name == "kube_pod_info":
        yield from _pod_info(series, origin)
    elif series.name == "node_boot_time_seconds":
        yield from _boot(series, origin)
    elif series.name in SXID_GAUGES:
        seen.switches.setdefault(dcgm_xid.switch_of(series), []).append(series)
    elif series.name in field_names() or _is_unnamed_xid(series):
        yield from _dcgm(series, seen, origin)


def _is_unnamed_xid(series: Series) -> bool:
    """An aggregation such as `max by (UUID)` drops the name; the code's label keeps it known."""
    return not series.name and "err_code" in series.labels


def _dcgm(series: Series, seen: _Seen, origin: Origin) -> Iterator[Fact]:
    gpu = gpu_of(series.labels)
    if not gpu.is_named:
        return
    link = link_of(series.labels, origin)
    if link is not None:
        seen.links.setdefault(_without_origin(link), link)
    known = [at for at in series.times if at is not None]
    if known and series.is_range:
        seen.began_ns = known[0] if seen.began_ns is None else min(seen.began_ns, known[0])
        _note_end(gpu._replace(instance=None), known[0], known[-1], series, seen)
    if series.name in XID_GAUGES or _is_unnamed_xid(series):
        if series.is_range and known:
            seen.xid_runs.setdefault(gpu, []).extend(dcgm_xid.runs_of(series))
        else:
            for change in dcgm_xid.undated(series):
                text = f"{series.name} {change.code} (last code; no history)"
                yield dcgm_xid.xid_event(change, gpu, origin.path, text)
    elif series.name in XID_COUNTS:
        seen.counts.setdefault((gpu, series.labels.get("xid", "")), []).append(series)
    else:
        _note_reading(gpu, series, seen)


def _without_origin(link: IdentityLink) -> IdentityLink:
    return replace(link, origin=Origin(path=link.origin.path))


# --- Xids ---------------------------------------------------------------------------------------


def _xids(seen: _Seen, path: str) -> Iterator[XidEvent]:
    began = seen.began_ns if seen.began_ns is not None else 0
    counted: list[XidEvent] = []
    for (gpu, code), told in seen.counts.items():
        for change in dcgm_xid.once([dcgm_xid.counted(series, began) for series in told]):
            text = f"{told[0].name} of {code} rose"
            counted.append(dcgm_xid.xid_event(change, gpu, path, text))
    yield from counted
    for gpu, runs in seen.xid_runs.items():
        for change in dcgm_xid.changes(runs, began):
            how = "was there before the first sample" if change.at_ns is None else "came up"
            event = dcgm_xid.xid_event(change, gpu, path, f"DCGM XID gauge: {change.code} {how}")
            if not any(_is_same(event, other) for other in counted):
                yield event


def _is_same(gauge: XidEvent, count: XidEvent) -> bool:
    """The count tells repeats and so replaces the gauge's word for the same event."""
    if (gauge.xid, gauge.node, gauge.gpu_uuid, gauge.pci_bus_id, gauge.gpu_index) != (
        count.xid,
        count.node,
        count.gpu_uuid,
        count.pci_bus_id,
        count.gpu_index,
    ):
        return False
    if gauge.at_ns is None or count.at_ns is None:
        return False
    return abs(gauge.at_ns - count.at_ns) / 1e9 <= 2 * max(gauge.resolution_s, count.resolution_s)


# --- Readings -----------------------------------------------------------------------------------


def _note_reading(gpu: Gpu, series: Series, seen: _Seen) -> None:
    if not series.values:
        return
    kept = seen.readings.setdefault((gpu, field_names()[series.name]), _Readings())
    changed_ns, last = None, series.values[0]
    for at, value in zip(series.times, series.values, strict=True):
        if value != last:
            changed_ns, last = at, value
    kept.values.extend(series.values[: max(MOST_KEPT_VALUES - len(kept.values), 0)])
    kept.spans.append(
        _Span(series.times[0], series.times[-1], changed_ns, series.values[0], last, series.entry)
    )


def _whole(spans: Sequence[_Span]) -> _Span:
    """All series of one reading as one, in the order of their time and not of their labels."""
    ordered = sorted(spans, key=lambda span: span.first_ns or 0)
    newest = max(ordered, key=lambda span: span.last_ns or 0)
    changes = [span.changed_ns for span in ordered if span.changed_ns is not None]
    for before, after in pairwise(ordered):
        if before.last_ns is None or after.first_ns is None:
            continue
        if before.last_ns < after.first_ns and before.last != after.first:
            changes.append(after.first_ns)
    return _Span(
        ordered[0].first_ns,
        newest.last_ns,
        max(changes, default=None),
        ordered[0].first,
        newest.last,
        ordered[0].entry,
    )


def _readings(seen: _Seen, path: str) -> Iterator[GpuReading]:
    for (gpu, name), kept in seen.readings.items():
        ordered, whole = sorted(kept.values), _whole(kept.spans)
        yield GpuReading(
            field=name,
            node=gpu.node,
            gpu_uuid=gpu.uuid,
            pci_bus_id=gpu.pci_bus_id,
            gpu_index=gpu.gpu_index,
            first=whole.first,
            last=whole.last,
            low=ordered[0],
            high=ordered[-1],
            median=ordered[len(ordered) // 2],
            first_ns=whole.first_ns,
            last_ns=whole.last_ns,
            changed_ns=whole.changed_ns,
            samples=len(ordered),
            origin=Origin(path=path, entry=whole.entry),
        )


# --- Series that end ----------------------------------------------------------------------------


def _note_end(gpu: Gpu, first_ns: int, last_ns: int, series: Series, seen: _Seen) -> None:
    step_s = metric_series.median_step_s(series.times)
    if step_s is None:
        return
    first, last, step, entry = seen.ends.get(gpu, (first_ns, last_ns, step_s, series.entry))
    seen.ends[gpu] = (min(first, first_ns), max(last, last_ns), max(step, step_s), entry)


def _ends(seen: _Seen, path: str) -> Iterator[SeriesEnd]:
    """GPUs whose last sample is some steps older than their neighbours', else than everybody's."""
    if len(seen.ends) < 2:
        return
    newest = max(last for _, last, _, _ in seen.ends.values())
    slowest = sorted(step for _, _, step, _ in seen.ends.values())[len(seen.ends) // 2]
    by_node: dict[str | None, int] = {}
    for gpu, (_, last, _, _) in seen.ends.items():
        by_node[gpu.node] = max(by_node.get(gpu.node, last), last)
    for gpu, (_, last, step_s, entry) in seen.ends.items():
        allowed_ns = round(END_STEPS * max(step_s, slowest) * 1e9)
        others = by_node[gpu.node] if by_node[gpu.node] - last > allowed_ns else newest
        if others - last > allowed_ns:
            yield SeriesEnd(
                node=gpu.node,
                gpu_uuid=gpu.uuid,
                pci_bus_id=gpu.pci_bus_id,
                gpu_index=gpu.gpu_index,
                last_ns=last,
                others_last_ns=others,
                origin=Origin(path=path, entry=entry),
            )


# --- Other exporters ----------------------------------------------------------------------------


def _pod_info(series: Series, origin: Origin) -> Iterator[IdentityLink]:
    """Node and uid of pods, also of those that are gone."""
    labels = series.labels
    pod = labels.get("exported_pod") or labels.get("pod")
    if pod:
        yield IdentityLink(
            how=Link.METRICS_LABELS,
            origin=origin,
            pod=pod,
            pod_uid=labels.get("uid") or None,
            namespace=labels.get("exported_namespace") or labels.get("namespace") or None,
            node=labels.get("exported_node") or labels.get("node") or None,
            pod_ip=labels.get("pod_ip") or None,
        )


def _boot(series: Series, origin: Origin) -> Iterator[NodeBoot]:
    if not series.values:
        return
    boot_ns = timestamps.from_epoch(series.values[-1])
    if boot_ns is not None:
        yield NodeBoot(
            node=node_of(series.labels),
            boot_ns=boot_ns,
            error_s=1.0,
            how="node_boot_time_seconds",
            origin=origin,
        )
