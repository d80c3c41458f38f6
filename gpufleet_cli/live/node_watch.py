"""Whether somebody watched a node's GPUs for a while, which XIDs came then, and when the node booted.

Raw samples of the XID gauges of a short time: codes that came are transitions in them; a code that stands
hides its own repetition, and where there is no sample nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gpufleet_cli.errors import SourceError
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import NodeBoot, XidEvent
from gpufleet_cli.live import metric_files, metric_nodes, metric_queries, metric_scopes
from gpufleet_cli.live.metric_server import OneSeries, Server, recognised
from gpufleet_cli.live.node_past import Opened
from gpufleet_cli.node_card import XidSeen
from gpufleet_cli.parsers import dcgm_metrics, metric_series
from gpufleet_cli.parsers.dcgm_labels import gpu_of

NS = 1_000_000_000
BOOT_NAMES = ("node_boot_time_seconds",)
_BEFORE_S = 300
"""A code is only new beside a sample without it."""
_BOOT_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What the metrics hold of one node. `standing` are codes at which a gauge is now; `longest_pause_s`
    and the first and the last sample are those of the GPU that was watched least. `not_whole` is what the
    server said of an answer that lacks something."""

    xids: tuple[XidSeen, ...]
    standing: tuple[int, ...]
    gpus: int
    first_ns: int | None
    last_ns: int | None
    longest_pause_s: float
    boot_ns: int | None
    not_whole: str = ""


NodeWatch = Callable[[str, Sequence[str], int, float], Watched]
"""(node, its addresses, now, seconds) -> what the metrics of that time hold; raises SourceError."""


def watched(
    opened: Opened,
    node: str,
    addresses: Sequence[str],
    now_ns: int,
    span_s: float,
    matchers: str | None,
) -> Watched:
    """Ask the server. SourceError where it cannot be asked, UsageError for matchers that cannot be read."""
    others = tuple(one for one in addresses if one != node)
    with opened() as (fetch, name):
        asked = _Asked(
            server=recognised(fetch, name),
            nodes={node: others},
            matchers=metric_queries.matchers(matchers),
            now_ns=now_ns,
        )
        gauges = asked.series(metric_queries.XID_GAUGES, math.ceil(span_s) + _BEFORE_S)
        boots = asked.series(BOOT_NAMES, _BOOT_S)
    found = judged(gauges, boots, now_ns=now_ns)
    return replace(found, not_whole="; ".join(sorted(asked.server.warnings)[:2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    server: Server
    nodes: dict[str, tuple[str, ...]]
    matchers: tuple[metric_queries.Matcher, ...]
    now_ns: int

    def series(self, names: Sequence[str], span_s: int) -> list[OneSeries]:
        """Raw samples of these metrics of the node; those that may be another cluster's are left out."""
        end_s = self.now_ns / NS
        found: list[OneSeries] = []
        places = metric_nodes.find(
            self.server, gauges=names, nodes=self.nodes, pods=(), namespace=None,
            matchers=self.matchers, span_s=span_s, end_s=end_s,
        ).places  # fmt: skip
        for place in places:
            text = metric_queries.raw(names, (*place.conditions, *self.matchers), span_s)
            found += self.server.query(text, end_s)
        unique = metric_files.merged(found)
        kept = metric_scopes.judge([metric_files.placed(one) for one in unique]).kept
        if unique and not any(kept):
            raise SourceError(
                f"{self.server.name}: series of another cluster cannot be told apart",
                hint="set matchers in the settings file",
            )
        return [one for one, is_kept in zip(unique, kept, strict=True) if is_kept]


def judged(gauges: Sequence[OneSeries], boots: Sequence[OneSeries], *, now_ns: int) -> Watched:
    """The series as facts."""
    times: dict[object, list[int]] = {}
    newest: dict[object, tuple[int, int]] = {}
    xids: list[XidSeen] = []
    for path, data in metric_files.files("metrics/xid-watch", gauges):
        for series in metric_series.read(data):
            gpu = gpu_of(series.labels)
            known = [
                (at, round(value))
                for at, value in zip(series.times, series.values, strict=True)
                if at is not None
            ]
            times.setdefault(gpu, []).extend(at for at, _ in known)
            newest[gpu] = max([*known, newest.get(gpu, (0, 0))])
        xids += _xids(path, data)
    spans = [sorted(own) for own in times.values() if own]
    return Watched(
        xids=tuple(sorted(xids, key=lambda one: (one.at_ns, one.xid))),
        standing=tuple(sorted({code for _, code in newest.values() if code})),
        gpus=len(spans),
        first_ns=max((own[0] for own in spans), default=None),
        last_ns=min((own[-1] for own in spans), default=None),
        longest_pause_s=max((_pause(own) for own in spans), default=0.0),
        boot_ns=_boot(boots, now_ns),
    )


def _pause(times: Sequence[int]) -> float:
    return max(((later - earlier) / NS for earlier, later in pairwise(times)), default=0.0)


def _xids(path: str, data: bytes) -> Iterator[XidSeen]:
    for fact in dcgm_metrics.parse(Evidence(path=path, size_bytes=len(data), content=data)):
        if isinstance(fact, XidEvent) and fact.at_ns is not None and fact.xid is not None:
            yield XidSeen(
                at_ns=fact.at_ns,
                xid=fact.xid,
                gpu_index=fact.gpu_index,
                pci_bus_id=fact.pci_bus_id,
            )


def _boot(boots: Sequence[OneSeries], now_ns: int) -> int | None:
    """The newest boot that node-exporter tells of; a time to come is a wrong clock's."""
    found = [
        fact.boot_ns
        for path, data in metric_files.files("metrics/boot", boots)
        for fact in dcgm_metrics.parse(Evidence(path=path, size_bytes=len(data), content=data))
        if isinstance(fact, NodeBoot) and fact.boot_ns <= now_ns
    ]
    return max(found, default=None)
