"""Xid events out of DCGM's gauges: a transition is an event, a value is none.

`DCGM_FI_DEV_XID_ERRORS` (since DCGM 4.6 `DCGM_FI_DEV_XID_ERROR`) holds the last code for days. A code
that a GPU's series show for the first time after samples without it dates an event to one step. A
code already there at the first sample happened before: undated. Repeats of a code are invisible, and
45 often hides the 48 or 62 before it. Newer exporters put the code in the label `err_code`, so that a
change is a new series; a new series of a pod's labels is none. `DCGM_EXP_XID_ERRORS_COUNT` counts
samples in a sliding window and falls by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from gpufleet_cli.facts import Origin, SxidEvent, XidEvent
from gpufleet_cli.parsers.dcgm_labels import Gpu, gpu_of
from gpufleet_cli.parsers.metric_series import Series, median_step_s

XID_GAUGES = frozenset({"DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR"})
XID_COUNTS = frozenset({"DCGM_EXP_XID_ERRORS_COUNT"})
SXID_GAUGES = {
    "DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS": True,
    "DCGM_FI_DEV_SXID_FATAL_ERROR": True,
    "DCGM_FI_DEV_NVSWITCH_NON_FATAL_ERRORS": False,
    "DCGM_FI_DEV_SXID_NON_FATAL_ERROR": False,
}
MAX_CODE = 99_999
MOST_CHANGES = 10_000
DEFAULT_STEP_S = 30.0
DEFAULT_WINDOW_S = 300.0


class Run(NamedTuple):
    """Consecutive samples of one series with one code. `before_ns` is its sample before them."""

    code: int
    first_ns: int
    last_ns: int
    before_ns: int | None
    step_s: float
    has_code_label: bool
    entry: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A code that came up. `at_ns` None: it was there when the samples began, `seen_ns`."""

    code: int
    at_ns: int | None
    seen_ns: int | None
    resolution_s: float
    entry: int
    repeats: int = 0


def runs_of(series: Series) -> list[Run]:
    """The series as runs of equal codes; values that are no codes are left out."""
    step_s = median_step_s(series.times) or DEFAULT_STEP_S
    labelled = "err_code" in series.labels
    runs: list[Run] = []
    before: int | None = None
    for at, value in zip(series.times, series.values, strict=True):
        if at is None or not value.is_integer() or not 0 <= value <= MAX_CODE:
            continue
        code = int(value)
        if runs and runs[-1].code == code and at >= runs[-1].last_ns:
            runs[-1] = runs[-1]._replace(last_ns=at)
        else:
            runs.append(Run(code, at, at, before, step_s, labelled, series.entry))
        before = at
    return runs


def changes(runs: Iterable[Run], began_ns: int) -> list[Change]:
    """What the runs of all series of one GPU say. `began_ns` is when samples began at all."""
    ordered = sorted(runs, key=lambda r: (r.first_ns, r.code, r.last_ns))
    found: list[Change] = []
    shown: dict[int, int] = {}  # code -> its last sample so far
    latest: int | None = None
    for _, together in groupby(ordered, key=lambda r: r.first_ns):
        started = list(together)
        for code, same in groupby(started, key=lambda r: r.code):
            run = next(same)
            if code and not _is_shown(run, shown, latest) and len(found) < MOST_CHANGES:
                found.append(_change(run, latest, began_ns))
        for run in started:
            shown[run.code] = max(shown.get(run.code, run.last_ns), run.last_ns)
            latest = run.last_ns if latest is None else max(latest, run.last_ns)
    return found


def _is_shown(run: Run, shown: dict[int, int], latest: int | None) -> bool:
    """The code was there in the last sample before: another label, the same value."""
    last = shown.get(run.code)
    if last is None or latest is None:
        return False
    if run.before_ns is not None:  # this series showed another code just before
        return last >= run.before_ns
    step_ns = round(run.step_s * 1e9)
    before = run.first_ns - step_ns
    return min(latest, before) - min(last, before) <= step_ns // 2


def _change(run: Run, latest: int | None, began_ns: int) -> Change:
    step_ns = round(run.step_s * 1e9)
    if latest is None:
        if run.has_code_label and run.first_ns - began_ns >= step_ns:
            return _dated(run, run.first_ns - step_ns)
        return Change(
            code=run.code,
            at_ns=None,
            seen_ns=run.first_ns,
            resolution_s=run.step_s,
            entry=run.entry,
        )
    before = run.before_ns if run.before_ns is not None else min(latest, run.first_ns - step_ns)
    return _dated(run, before)


def _dated(run: Run, before_ns: int) -> Change:
    return Change(
        code=run.code,
        at_ns=run.first_ns,
        seen_ns=run.first_ns,
        resolution_s=max((run.first_ns - before_ns) / 1e9, 0.0),
        entry=run.entry,
    )


def counted(series: Series, began_ns: int) -> list[Change]:
    """What a windowed count says of the code in its label: a rise is an event, a fall is none."""
    text = series.labels.get("xid", "")
    if not (text.isascii() and text.isdecimal() and 0 < len(text) <= 5 and int(text) > 0):
        return []
    code = int(text)
    window = series.labels.get("window_size_in_ms", "")
    window_s = int(window) / 1000 if window.isdecimal() and len(window) <= 9 else DEFAULT_WINDOW_S
    step_s = median_step_s(series.times) or DEFAULT_STEP_S
    found: list[Change] = []
    before: tuple[int, float] | None = None
    for at, value in zip(series.times, series.values, strict=True):
        if at is None:
            continue
        last = before[1] if before else 0.0
        if value > last:
            resolution = window_s
            if before is not None:
                resolution = (at - before[0]) / 1e9
            elif at - began_ns >= step_s * 1e9:
                resolution = step_s
            found.append(
                Change(
                    code=code,
                    at_ns=at,
                    seen_ns=at,
                    resolution_s=resolution,
                    entry=series.entry,
                    repeats=max(int(value - last) - 1, 0),
                )
            )
        before = (at, value)
    return found


def once(told: Sequence[Sequence[Change]]) -> list[Change]:
    """What several series say of one GPU and code, each change once.

    Replicas of Prometheus scrape the same exporter some seconds apart; so do the series of one pod and the next.
    Each change of one series stands for at most one of another.
    """
    kept: list[Change] = []
    for found in told:
        fresh, position = [], 0
        for change in sorted(found, key=_when):
            while position < len(kept) and _when(kept[position]) < _when(change):
                if _is_echo(kept[position], change):
                    break
                position += 1
            if position < len(kept) and _is_echo(kept[position], change):
                position += 1
            else:
                fresh.append(change)
        kept = sorted([*kept, *fresh], key=_when)
    return kept


def _when(change: Change) -> int:
    return change.at_ns or 0


def _is_echo(one: Change, other: Change) -> bool:
    if one.code != other.code or one.at_ns is None or other.at_ns is None:
        return one.code == other.code and one.at_ns is other.at_ns
    apart_s = abs(one.at_ns - other.at_ns) / 1e9
    return apart_s <= 2 * max(one.resolution_s, other.resolution_s)


def undated(series: Series) -> list[Change]:
    """A single value, now or without a time: that code happened, nobody knows when."""
    return [
        Change(code=int(value), at_ns=None, seen_ns=at, resolution_s=0.0, entry=series.entry)
        for at, value in zip(series.times, series.values, strict=True)
        if value.is_integer() and 0 < value <= MAX_CODE
    ]


def xid_event(change: Change, gpu: Gpu, path: str, text: str) -> XidEvent:
    """The fact of one change."""
    return XidEvent(
        xid=change.code,
        node=gpu.node,
        pci_bus_id=gpu.pci_bus_id,
        at_ns=change.at_ns,
        text=text,
        origin=Origin(path=path, entry=change.entry),
        source="dcgm",
        gpu_uuid=gpu.uuid,
        gpu_index=gpu.gpu_index,
        resolution_s=change.resolution_s,
        repeats=change.repeats,
        gpu_instance=gpu.instance,
        seen_ns=change.seen_ns,
    )


def switch_of(series: Series) -> tuple[str, ...]:
    """What a switch's gauge speaks of; series of two Prometheus replicas give equal values."""
    gpu, labels = gpu_of(series.labels), series.labels
    told = (gpu.node, gpu.uuid, gpu.pci_bus_id, labels.get("nvswitch"), labels.get("nvlink"))
    return (series.name, *(text or "" for text in told))


def sxid_events(together: Sequence[Series], path: str) -> list[SxidEvent]:
    """NVSwitch errors of one switch's gauge, which several replicas may have scraped."""
    first = together[0]
    if first.is_range and any(len(series.values) > 1 for series in together):
        runs = [run for series in together for run in runs_of(series)]
        found = changes(runs, min((run.first_ns for run in runs), default=0))
    else:
        found = once([undated(series) for series in together])
    fatal = SXID_GAUGES[first.name]
    return [
        SxidEvent(
            sxid=change.code,
            node=gpu_of(first.labels).node,
            pci_bus_id=first.labels.get("pci_bus_id") or None,
            at_ns=change.at_ns,
            fatal=fatal,
            link=None,
            text=f"{first.name} {change.code}",
            origin=Origin(path=path, entry=change.entry),
            resolution_s=change.resolution_s,
        )
        for change in found
    ]
