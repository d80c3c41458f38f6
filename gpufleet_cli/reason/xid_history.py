"""XID history: each event on its GPU and rank, ranked by cause before time.

A cause counts in [onset - 15 min, onset + timeout], clocks allowed for (facts: localisation 7). The
kernel log dates events; the DCGM gauge only to one scrape. A gauge that never changed is undated and
no event at all. Symptom codes (43, 45, and 13 or 31 after an abort) never name a cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from gpufleet_cli import xid_catalog
from gpufleet_cli.facts import HostEvent, SxidEvent, XidEvent
from gpufleet_cli.reason import clocks
from gpufleet_cli.reason.placed import NS, PlacedHost, PlacedSxid, PlacedXid
from gpufleet_cli.reason.topology import Topology, normal_pci

LOOK_BACK_S = 15 * 60.0
SKEW_S = 60.0
RUNNING_LOOK_BACK_S = 2 * 3600.0
DOMAIN_WINDOW_S = 30.0
NVLINK5 = range(144, 151)
IMEX_RECOVERY = "imex"


def window(onset_ns: int | None, as_of_ns: int | None, timeout_s: float) -> tuple[int, int] | None:
    """The time in which an event can be a cause; without an onset, the last two hours."""
    if onset_ns is not None:
        return (
            onset_ns - round((LOOK_BACK_S + SKEW_S) * NS),
            onset_ns + round((timeout_s + SKEW_S) * NS),
        )
    if as_of_ns is not None:
        return as_of_ns - round(RUNNING_LOOK_BACK_S * NS), as_of_ns + round(SKEW_S * NS)
    return None


def node_name(name: str | None, topology: Topology) -> str | None:
    """A node as the topology spells it: names in kernel logs may be short, or full where it is short."""
    if name is None or name in topology.by_node:
        return name
    if name in topology.node_of_pod:
        return topology.node_of_pod[name]
    short = name.split(".")[0]
    for known in topology.by_node:
        if known.split(".")[0] == short:
            return known
    return topology.node_by_address.get(name, name)


def place_xids(
    events: Iterable[XidEvent],
    topology: Topology,
    offsets: Mapping[str, clocks.Offset],
    span: tuple[int, int] | None,
    onset_ns: int | None,
) -> tuple[PlacedXid, ...]:
    """Every event on its rank, causes first, then by time."""
    placed = [_place(event, topology, offsets, span, onset_ns) for event in events]
    return tuple(
        sorted(
            placed,
            key=lambda p: (
                not p.relevant,
                xid_catalog.severity_rank(p.event.xid),
                p.at_ns if p.at_ns is not None else 1 << 62,
                p.node or "",
                p.event.pci_bus_id or "",
                str(p.event.origin),
            ),
        )
    )


def _place(
    event: XidEvent,
    topology: Topology,
    offsets: Mapping[str, clocks.Offset],
    span: tuple[int, int] | None,
    onset_ns: int | None,
) -> PlacedXid:
    node = node_name(event.node, topology)
    rank = topology.rank_of_gpu(node, event.pci_bus_id, event.gpu_uuid)
    if rank is None and event.gpu_index is not None and node is not None:
        rank = _by_index(node, event.gpu_index, event.pci_bus_id, topology)
    at_ns = clocks.corrected(event.at_ns, node, offsets)
    relevant = at_ns is not None and span is not None and span[0] <= at_ns <= span[1]
    lead = None if at_ns is None or onset_ns is None else (onset_ns - at_ns) / NS
    return PlacedXid(
        event=event,
        reading=xid_catalog.read(event),
        rank=rank,
        node=node,
        at_ns=at_ns,
        relevant=relevant,
        lead_s=lead,
    )


def _by_index(node: str, index: int, pci: str | None, topology: Topology) -> int | None:
    """The rank whose GPU has this NVML index on this node, unless its PCI address says otherwise."""
    for rank in topology.by_node.get(node, ()):
        gpu = topology.places[rank].gpu
        if gpu.index == index:
            known, stated = normal_pci(gpu.pci_bus_id), normal_pci(pci)
            return rank if known is None or stated is None or known == stated else None
    return None


def place_hosts(
    events: Iterable[HostEvent],
    topology: Topology,
    offsets: Mapping[str, clocks.Offset],
    span: tuple[int, int] | None,
) -> tuple[PlacedHost, ...]:
    """Every kernel line that is no Xid on its node, and on its pod and rank where it names them."""
    placed = []
    for event in events:
        node = node_name(event.node, topology)
        pod = None if event.pod_uid is None else topology.pod_by_uid.get(event.pod_uid)
        rank = topology.rank_of_gpu(node, event.pci_bus_id, None)
        at_ns = clocks.corrected(event.at_ns, node, offsets)
        relevant = at_ns is not None and span is not None and span[0] <= at_ns <= span[1]
        placed.append(
            PlacedHost(event=event, node=node, rank=rank, pod=pod, at_ns=at_ns, relevant=relevant)
        )
    return tuple(sorted(placed, key=lambda p: (p.at_ns or 0, p.node or "", str(p.event.origin))))


def place_sxids(
    events: Iterable[SxidEvent],
    topology: Topology,
    offsets: Mapping[str, clocks.Offset],
    span: tuple[int, int] | None,
) -> tuple[PlacedSxid, ...]:
    """Every NVSwitch error on its node."""
    placed = []
    for event in events:
        node = node_name(event.node, topology)
        at_ns = clocks.corrected(event.at_ns, node, offsets)
        relevant = at_ns is not None and span is not None and span[0] <= at_ns <= span[1]
        placed.append(PlacedSxid(event=event, node=node, at_ns=at_ns, relevant=relevant))
    return tuple(sorted(placed, key=lambda p: (p.at_ns or 0, p.node or "", str(p.event.origin))))


def domain_faults(
    xids: Sequence[PlacedXid], topology: Topology
) -> dict[str, tuple[PlacedXid, ...]]:
    """NVLink domains in which several nodes logged NVLink 5 or IMEX errors within 30 s.

    Then the domain is the culprit, and no single tray is to be evicted for it.
    """
    by_domain: dict[str, list[PlacedXid]] = defaultdict(list)
    for placed in xids:
        is_fabric = (placed.event.xid in NVLINK5 and placed.reading.fatal is True) or (
            placed.event.xid == 154 and IMEX_RECOVERY in (placed.event.recovery or "").lower()
        )
        if not placed.relevant or not is_fabric or placed.node is None:
            continue
        domain = topology.domain_of_node.get(placed.node)
        if domain is not None:
            by_domain[domain].append(placed)
    found: dict[str, tuple[PlacedXid, ...]] = {}
    for domain, events in sorted(by_domain.items()):
        first = min(e.at_ns for e in events if e.at_ns is not None)
        close = [
            e for e in events if e.at_ns is not None and (e.at_ns - first) / NS <= DOMAIN_WINDOW_S
        ]
        if len({e.node for e in close}) > 1:
            found[domain] = tuple(close)
    return found


ZONE_STEP_S = 1800.0
ZONE_MOST = 28
ZONE_CLOSE_S = 120.0


def zone_shift_s(
    events: Sequence[XidEvent | HostEvent], span: tuple[int, int] | None, onset_ns: int | None
) -> float:
    """Seconds to add to times without a zone, in half hours, so that a cause falls on the onset.

    Kernel logs of `dmesg -T` and syslog are in local time and do not say which. Nothing is shifted
    when a cause lies in the window as it stands, or when no shift, or more than one, fits closely.
    """
    if span is None or onset_ns is None:
        return 0.0
    causes = [
        e.at_ns
        for e in events
        if isinstance(e, XidEvent)
        and not e.zone_stated
        and e.at_ns is not None
        and xid_catalog.xid(e.xid).role == "cause"
    ]
    if not causes or any(span[0] <= at <= span[1] for at in causes):
        return 0.0
    fitting = {
        step
        for step in range(-ZONE_MOST, ZONE_MOST + 1)
        for at in causes
        if abs((at - onset_ns) / NS + step * ZONE_STEP_S) <= ZONE_CLOSE_S
    }
    return fitting.pop() * ZONE_STEP_S if len(fitting) == 1 else 0.0
