"""A node's past: XIDs of 30 days with the pod that held the GPU, and whether it fails more often than chance.

A node fault is an XID whose cause is no program (the catalogue's layer and role), or a past incident that
named the node; `repeats` has the test.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from gpufleet_cli import repeats, xid_catalog
from gpufleet_cli.errors import SourceError
from gpufleet_cli.facts import XidEvent
from gpufleet_cli.live import metric_fleet, metric_reach, metrics
from gpufleet_cli.live.http_source import Fetch
from gpufleet_cli.node_card import FaultRate, Missing, NodeCard, PastIncident, RepeatTest, XidSeen
from gpufleet_cli.parsers import dcgm_metrics, metric_series
from gpufleet_cli.parsers.dcgm_labels import Gpu, gpu_of, pod_of
from gpufleet_cli.repeats import USUAL

NS = 1_000_000_000
DAY_NS = repeats.DAY_NS
HISTORY_DAYS = 30
Opened = Callable[[], AbstractContextManager[tuple[Fetch, str]]]


def xids(
    opened: Opened, node: str, addresses: Sequence[str], now_ns: int, matchers: str | None
) -> tuple[list[XidSeen] | None, list[Missing]]:
    """The XIDs of one node's GPUs, oldest first; None where the metrics could not be asked."""
    begin_ns = now_ns - HISTORY_DAYS * DAY_NS
    wanted = metrics.Wanted(
        nodes={node: tuple(one for one in addresses if one != node)},
        start_ns=begin_ns,
        end_ns=now_ns,
    )
    try:
        with opened() as (fetch, name):
            found = metrics.history(fetch, name, wanted, matchers=matchers)
    except SourceError as exc:
        return None, [Missing(what="XID history", why=exc.message)]
    missing = [Missing(what=gap.what, why=gap.why) for gap in found.gaps]
    if not found.files and any(not gap.what.startswith(metric_reach.BEFORE) for gap in found.gaps):
        return None, missing  # none is not known; of the time that the metrics reach back it is
    seen: list[XidSeen] = []
    for path, data in found.files:
        undated: list[XidSeen | Missing] = list(_of_file(path, data))
        seen += [one for one in undated if isinstance(one, XidSeen)]
        missing += [one for one in undated if isinstance(one, Missing)]
    return sorted(seen, key=lambda one: (one.at_ns, one.xid)), missing


def fleet(
    opened: Opened, now_ns: int, matchers: str | None
) -> tuple[metric_fleet.Found | None, list[Missing]]:
    """The XIDs of all nodes' GPUs, not told apart yet; None where the metrics could not be asked."""
    try:
        with opened() as (fetch, name):
            found = metric_fleet.history(
                fetch,
                name,
                start_ns=now_ns - HISTORY_DAYS * DAY_NS,
                end_ns=now_ns,
                matchers=matchers,
            )
    except SourceError as exc:
        return None, [Missing(what="XID history", why=exc.message)]
    return found, []


def with_xids(
    cards: Iterable[NodeCard], addresses: Mapping[str, Sequence[str]], found: metric_fleet.Found
) -> tuple[list[NodeCard], list[Missing]]:
    """The cards with what the metrics tell of each, a node fault before none among those alike."""
    owned = metric_fleet.by_node(found, addresses)
    made: list[NodeCard] = []
    undated = 0
    for card in cards:
        files = owned.files.get(card.name)
        if files is None:
            made.append(card)
            continue
        told = [one for data in files for one in _of_file("xids.json", data)]
        seen = sorted(
            (one for one in told if isinstance(one, XidSeen)), key=lambda one: (one.at_ns, one.xid)
        )
        missing = [one for one in told if isinstance(one, Missing)]
        undated += len(missing)
        told_all = tuple(seen) if seen or found.is_whole else None
        made.append(replace(card, xids=told_all, missing=(*card.missing, *missing)))
    made.sort(key=_fell_ill)
    missing = [Missing(what=gap.what, why=gap.why) for gap in owned.gaps]
    return made, [*missing, *_not_told(made, owned.files, undated)]


def _fell_ill(card: NodeCard) -> tuple[bool, bool]:
    """Those that look well stay behind the others; among them a node fault comes first."""
    has_fault = any(is_node_fault(one.xid) for one in card.xids or ())
    looks_well = not card.is_ill and card.cordon is None
    return looks_well, looks_well and not has_fault


def _not_told(cards: Sequence[NodeCard], known: Container[str], undated: int) -> Iterator[Missing]:
    lost = [card.name for card in cards if card.gpus.capacity and card.name not in known]
    if lost:
        more = f" and {len(lost) - 1:,} more nodes" if len(lost) > 1 else ""
        why = "no XID series of the last hour bears the name or address"
        yield Missing(what=f"XID history of {lost[0]}{more}", why=why)
    if undated:
        why = "they were there when the samples began"
        yield Missing(what=f"when {undated:,} XIDs came", why=why)


def _of_file(path: str, data: bytes) -> Iterable[XidSeen | Missing]:
    held: dict[Gpu, list[tuple[int, int, str | None, str | None]]] = {}
    found = list(metric_series.read(data))
    for series in found:
        times = [at for at in series.times if at is not None]
        if times:
            pod, namespace, _ = pod_of(series.labels)
            held.setdefault(gpu_of(series.labels), []).append((times[0], times[-1], pod, namespace))
    for fact in dcgm_metrics.facts_of(found, path):
        if not isinstance(fact, XidEvent):
            continue
        gpu = f"GPU {fact.gpu_index}" if fact.gpu_index is not None else "a GPU"
        if fact.at_ns is None:
            why = "it was there when the samples began"
            yield Missing(what=f"when XID {fact.xid} of {gpu} came", why=why)
            continue
        spans = held.get(Gpu(fact.node, fact.gpu_uuid, fact.pci_bus_id, fact.gpu_index), [])
        inside = [one for one in spans if one[0] <= fact.at_ns <= one[1] and one[2]]
        _, _, pod, namespace = inside[0] if inside else (0, 0, None, None)
        yield XidSeen(
            at_ns=fact.at_ns,
            xid=fact.xid,
            gpu_index=fact.gpu_index,
            pci_bus_id=fact.pci_bus_id,
            pod=pod,
            namespace=namespace,
        )


def is_node_fault(xid: int) -> bool:
    """Whether the code speaks of the machine: neither a program's fault nor what follows another code.

    >>> [is_node_fault(code) for code in (13, 31, 45, 48, 79)]
    [False, False, False, True, True]
    """
    entry = xid_catalog.xid(xid)
    return entry.known and entry.layer not in ("app", "unused") and entry.role != "effect"


def repeat_test(
    seen: Sequence[XidSeen] | None,
    incidents: Sequence[PastIncident],
    *,
    now_ns: int,
    nodes: int | None,
    rate: FaultRate = USUAL,
) -> RepeatTest | None:
    """Whether the node had more faults than chance gives a healthy one; None without any."""
    times = [one.at_ns for one in seen or () if is_node_fault(one.xid)]
    times += [one.at_ns for one in incidents if one.at_ns is not None and one.is_node_fault]
    return repeats.judge(times, now_ns=now_ns, nodes=nodes, rate=rate)
