"""Back-dated metrics as text: OpenMetrics for promtool, the older exposition format for VictoriaMetrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

Sample = tuple[datetime, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One time series. A value that stays is written at each scrape, see `held`."""

    name: str
    labels: Mapping[str, str]
    samples: Sequence[Sample]


def held(
    begin: datetime,
    end: datetime,
    changes: Iterable[Sample] = (),
    *,
    first: float = 0,
    every_s: float = 30,
) -> list[Sample]:
    """Samples of a gauge that keeps its value: `first`, then each of `changes` from its time on."""
    steps = sorted(changes)
    made, at, value = [], begin, float(first)
    while at <= end:
        while steps and steps[0][0] <= at:
            value = steps.pop(0)[1]
        made.append((at, value))
        at += timedelta(seconds=every_s)
    return made


def xid_series(
    node: str,
    gpu: int,
    samples: Sequence[Sample],
    *,
    pod: str = "",
    namespace: str = "",
    more: Mapping[str, str] | None = None,
) -> Series:
    """`DCGM_FI_DEV_XID_ERRORS` of one GPU with the labels of dcgm-exporter 4 scraped by Kubernetes discovery."""
    labels = {
        "gpu": str(gpu),
        "UUID": f"GPU-{node}-{gpu}",
        "pci_bus_id": f"00000000:{0x19 + gpu * 0x11:02X}:00.0",
        "device": f"nvidia{gpu}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": node,
        "job": "dcgm-exporter",
        "instance": f"{node}:9400",
    }
    if pod:
        labels |= {"exported_pod": pod, "exported_namespace": namespace}
        labels |= {"exported_container": "trainer"}
    return Series(name="DCGM_FI_DEV_XID_ERRORS", labels={**labels, **(more or {})}, samples=samples)


def open_metrics(series: Iterable[Series]) -> Iterator[str]:
    """The lines that `promtool tsdb create-blocks-from openmetrics` takes: families together, seconds.

    Series that share their samples (one list of them for many GPUs) cost no more than their text.
    """
    by_name: dict[str, list[Series]] = {}
    for one in series:
        by_name.setdefault(one.name, []).append(one)
    texts: dict[int, list[str]] = {}
    for name, members in by_name.items():
        yield f"# TYPE {name} gauge\n"
        for one in members:
            head = _head(one)
            if id(one.samples) not in texts:
                texts[id(one.samples)] = [f" {v!r} {at.timestamp():.3f}\n" for at, v in one.samples]
            yield from (head + text for text in texts[id(one.samples)])
    yield "# EOF\n"


def exposition(series: Iterable[Series]) -> str:
    """The text that VictoriaMetrics imports: milliseconds."""
    lines = [
        f"{_head(one)} {value!r} {round(at.timestamp() * 1000)}"
        for one in series
        for at, value in one.samples
    ]
    return "\n".join([*lines, ""])


def _head(series: Series) -> str:
    """Name and labels."""
    pairs = [
        '{}="{}"'.format(name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
        for name, value in series.labels.items()
    ]
    return f"{series.name}{{{','.join(pairs)}}}"
