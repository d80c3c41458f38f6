"""The time of the last checkpoint as the job's own metric has it: a gauge of Unix seconds, by pod."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from gpufleet_cli import settings_file
from gpufleet_cli.errors import UsageError
from gpufleet_cli.live import metric_queries, stores
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.metric_scopes import Placed, judge
from gpufleet_cli.live.metric_server import OneSeries, recognised
from gpufleet_cli.operate.boundary import MetricTime

USUAL = "training_last_checkpoint_timestamp_seconds"
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,200}", re.ASCII)
_POD = {
    "exported_pod": ("exported_namespace",),
    "pod": ("namespace", "kubernetes_namespace"),
    "kubernetes_pod_name": ("kubernetes_namespace", "namespace"),
}
"""Labels that may name the job's pod, and beside each those of its namespace."""
AHEAD_S = 30.0
"""So far may a trainer's clock be ahead; a later time is of the future, or no time of a checkpoint."""
_MOST_S = 4_102_444_800.0  # 2100: what is beyond counts in milliseconds


def reader(
    api: Api,
    pods: Sequence[str],
    namespace: str,
    *,
    flag: str | None,
    metric: str,
    say: Callable[[str], None],
) -> MetricTime | None:
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

    said: set[float] = set()

    def newest() -> float | None:
        now_s = api.now_ns() / 1e9
        with stores.opened(api, place, context.access) as (fetch, name):
            times = times_of(recognised(fetch, name).query(query, now_s), own, namespace)
        for ahead in sorted(time for time in times - said if time > now_s + AHEAD_S):
            said.add(ahead)
            say(
                f"the metrics tell of a checkpoint {ahead - now_s:,.0f} s from now: it does not count"
            )
        return max((time for time in times if time <= now_s + AHEAD_S), default=None)

    return newest


def times_of(found: Sequence[OneSeries], pods: frozenset[str], namespace: str) -> set[float]:
    """The times in the series of these pods, whose name may stand under `exported_pod`. Pods of that name in another
    namespace, or in what may be another cluster, are others."""
    placed = [(one, pod) for one in found if (pod := _pod_of(one, namespace)) in pods]
    series = [Placed(metric=one.metric, of=(("pod", pod or ""),)) for one, pod in placed]
    kept = judge(series).kept
    return {
        value
        for (one, _), is_kept in zip(placed, kept, strict=True)
        if is_kept and (value := _value(one)) is not None and 0 < value < _MOST_S
    }


def _pod_of(one: OneSeries, namespace: str) -> str | None:
    """The pod that a series speaks of, None where that is one of another namespace."""
    key = next((key for key in _POD if key in one.metric), None)
    if key is None:
        return None
    stated = next((one.metric[label] for label in _POD[key] if one.metric.get(label)), namespace)
    return one.metric[key] if stated == namespace else None


def _value(one: OneSeries) -> float | None:
    try:
        _, text = msgspec.json.decode(one.value)
        return float(text)
    except (msgspec.DecodeError, TypeError, ValueError):
        return None
