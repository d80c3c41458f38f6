"""Series of one or more answers put together, and written again as answers that our parser reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from gpufleet_cli.live import metric_queries, metric_scopes
from gpufleet_cli.live.metric_server import OneSeries
from gpufleet_cli.parsers.dcgm_labels import gpu_of, node_of, pod_of

FILE_SAMPLES = 1_000_000
"""Samples in one file, some 20 MB; a node is never cut in two."""


def merged(found: Sequence[OneSeries]) -> list[OneSeries]:
    """Each series once, its samples in order of time."""
    by_labels: dict[tuple[tuple[str, str], ...], list[OneSeries]] = {}
    for one in found:
        by_labels.setdefault(tuple(sorted(one.metric.items())), []).append(one)
    return [
        parts[0] if len(parts) == 1 else _joined(parts) for _, parts in sorted(by_labels.items())
    ]


def _joined(parts: Sequence[OneSeries]) -> OneSeries:
    """One series out of the parts of its time; a sample that two parts have counts once."""
    samples = {
        _time(sample): sample
        for part in parts
        if memoryview(part.values)
        for sample in msgspec.json.decode(part.values, type=list[msgspec.Raw])
    }
    values = msgspec.json.encode([samples[at] for at in sorted(samples)])
    return OneSeries(metric=parts[0].metric, values=msgspec.Raw(values), value=parts[-1].value)


def _time(sample: msgspec.Raw) -> float:
    return msgspec.json.decode(sample, type=tuple[float, str])[0]


def _count(one: OneSeries) -> int:
    """How many samples, by their brackets."""
    return max(bytes(one.values).count(b"[") - 1, 1)


def placed(one: OneSeries) -> metric_scopes.Placed:
    """What a series speaks of: node and GPU, or the pod where it is about one."""
    labels = one.metric
    if labels.get("__name__") == "kube_pod_info":
        pod = labels.get("exported_pod") or labels.get("pod", "")
        space = labels.get("exported_namespace") or labels.get("namespace", "")
        return metric_scopes.Placed(labels, (("pod", f"{space}/{pod}"),))
    gpu, (pod_name, space_name, _) = gpu_of(labels), pod_of(labels)
    things = (
        [
            (
                "node",
                gpu.node.partition(".")[0] if not metric_queries.is_address(gpu.node) else gpu.node,
            )
        ]
        if gpu.node
        else []
    )
    things += [("gpu", gpu.uuid)] if gpu.uuid else []
    things += [("pod", f"{space_name}/{pod_name}")] if pod_name else []
    return metric_scopes.Placed(labels, tuple(things))


def usual_step(series: Sequence[OneSeries]) -> float | None:
    """The median distance of the samples of some series."""
    steps = []
    for one in series[:16]:
        if not memoryview(one.values):
            continue
        times = [at for at, _ in msgspec.json.decode(one.values, type=list[tuple[float, str]])]
        steps += [later - earlier for earlier, later in pairwise(times)]
    steps = sorted(step for step in steps if step > 0)
    return steps[len(steps) // 2] if steps else None


def files(stem: str, series: Sequence[OneSeries]) -> Iterator[tuple[str, bytes]]:
    """The series as answers of the API, in files of bounded size; all of a node in one of them."""
    ordered = sorted(
        ((node_of(one.metric), one) for one in series),
        key=lambda pair: (pair[0] or "", sorted(pair[1].metric.items())),
    )
    files: list[list[OneSeries]] = []
    size, last = 0, None
    for node, one in ordered:
        if not files or (size >= FILE_SAMPLES and node != last):
            files.append([])
            size = 0
        files[-1].append(one)
        size += _count(one)
        last = node
    for index, part in enumerate(files):
        path = f"{stem}.json" if len(files) == 1 else f"{stem}-{index:03}.json"
        yield path, _document(part)


def _document(series: Sequence[OneSeries]) -> bytes:
    is_vector = all(memoryview(one.value) for one in series)
    result = [
        {
            "metric": dict(sorted(one.metric.items())),
            **({"value": one.value} if is_vector else {"values": one.values}),
        }
        for one in series
    ]
    data = {"resultType": "vector" if is_vector else "matrix", "result": result}
    return msgspec.json.encode({"status": "success", "data": data}) + b"\n"
