"""The time of the last checkpoint as the job's own metric has it: a gauge of Unix seconds, by pod."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from gpufleet_cli import settings_file
from gpufleet_cli.errors import UsageError
from gpufleet_cli.live import metric_queries, stores
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.metric_server import OneSeries, recognised
from gpufleet_cli.operate.boundary import MetricTime

USUAL = "training_last_checkpoint_timestamp_seconds"
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,200}", re.ASCII)
_POD = ("exported_pod", "pod", "kubernetes_pod_name")
_MOST_S = 4_102_444_800.0  # 2100: what is beyond counts in milliseconds


def reader(api: Api, pods: Sequence[str], *, flag: str | None, metric: str) -> MetricTime | None:
    """How to ask for it; None where no metrics server is given or configured."""
    if _NAME.fullmatch(metric) is None:
        raise UsageError(f"--checkpoint-metric {metric!r} is no name of a metric")
    file = settings_file.load()
    context = file.of(api.access.context)
    chosen = settings_file.choose("prometheus", flag=flag, file=file, context=api.access.context)
    if chosen is None:
        return None
    place, own = chosen.value, frozenset(pods)
    query = metric_queries.selector(metric, metric_queries.matchers(context.matchers))

    def newest() -> float | None:
        with stores.opened(api, place, context.access) as (fetch, name):
            found = recognised(fetch, name).query(query, api.now_ns() / 1e9)
        return newest_of(found, own)

    return newest


def newest_of(found: Sequence[OneSeries], pods: frozenset[str]) -> float | None:
    """The newest time among the series of these pods, whose name may stand under `exported_pod`."""
    times = []
    for one in found:
        pod = next((one.metric[key] for key in _POD if key in one.metric), None)
        value = _value(one)
        if pod in pods and value is not None and 0 < value < _MOST_S:
            times.append(value)
    return max(times, default=None)


def _value(one: OneSeries) -> float | None:
    try:
        _, text = msgspec.json.decode(one.value)
        return float(text)
    except (msgspec.DecodeError, TypeError, ValueError):
        return None
