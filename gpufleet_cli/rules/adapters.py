"""What each node reports of its own network adapters, from NCCL and from its kernel.

A link that went once and came back within seconds is no fault; one that goes again and again is, although it
always comes back. `network_fault` makes hypotheses of it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from gpufleet_cli.facts import HostSign, Origin, Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import NS, PlacedSign
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import claim
from gpufleet_cli.verdict import Claim

BACK_S = 10.0
BACK_LINES = 4
TOGETHER_S = 120.0
MOST_EVENTS = 3
ONE_MOMENT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What a node reports of its own adapters. `ranks`: whose processes said so, where NCCL did;
    `by_kernel`: its kernel did. `together`: so many of its adapters went within seconds."""

    claims: tuple[Claim, ...]
    first_ns: int | None
    ranks: frozenset[int]
    is_down: bool
    by_kernel: bool
    together: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """An adapter of a node went, or came back."""

    at_ns: int | None
    is_back: bool
    text: str
    origin: Origin
    rank: int | None = None
    is_link: bool = False
    by_kernel: bool = False


def unit_of(case: Case, sign: PlacedSign) -> str | None:
    """The node of a line; where no file tells it, the pod, or the host that NCCL names (cut at its dot)."""
    if sign.node is not None:
        return sign.node
    place = None if sign.rank is None else case.topology.places.get(sign.rank)
    host, pods = sign.fact.speaker.host, case.topology.by_pod
    for name in (None if place is None else place.pod, sign.fact.speaker.pod, host):
        if name is not None and name in pods:
            return name
    cut = [pod for pod in pods if host is not None and pod.split(".")[0] == host]
    return cut[0] if len(cut) == 1 else host


def _changes(case: Case) -> dict[str, dict[str, list[_Change]]]:
    """Node -> adapter -> what it did, in order of time; from NCCL and from the kernel."""
    found: dict[str, dict[str, list[_Change]]] = defaultdict(lambda: defaultdict(list))
    for sign in case.signs_of(Sign.NIC_ERROR, Sign.NIC_RECOVERED):
        node, detail = unit_of(case, sign), sign.fact.detail or sign.fact.text
        if node is None or detail.startswith("weak"):
            continue
        if claims.is_late(case, sign):
            continue
        found[node][f"nccl {sign.fact.device} of {sign.rank}"].append(
            _Change(
                at_ns=sign.at_ns,
                is_back=sign.fact.sign is Sign.NIC_RECOVERED,
                text=f"{node} reports its own adapter{claims.when(sign.at_ns)}: {detail[:100]}",
                origin=sign.fact.origin,
                rank=sign.rank,
                is_link="port" in detail,
            )
        )
    for host in case.hosts:
        if host.node is None or not host.relevant:
            continue
        if host.event.sign not in (HostSign.NIC_DOWN, HostSign.NIC_UP):
            continue
        found[host.node][host.event.device or host.event.pci_bus_id or ""].append(
            _Change(
                at_ns=host.at_ns,
                is_back=host.event.sign is HostSign.NIC_UP,
                text=f"{host.node}: {host.event.text[:120]}",
                origin=host.event.origin,
                is_link=True,
                by_kernel=True,
            )
        )
    return found


def own_events(case: Case) -> dict[str, Own]:
    """Nodes with an adapter that went and stayed away, or that goes and comes back again and again. A
    link that came back at once and stayed is no fault."""
    found: dict[str, Own] = {}
    for node, adapters in sorted(_changes(case).items()):
        listed: list[_Change] = []
        for changes in adapters.values():
            listed += _troubles(changes)
        if not listed:
            continue
        listed.sort(key=lambda c: (c.at_ns is None, c.at_ns or 0, str(c.origin)))
        found[node] = Own(
            claims=tuple(
                claim(
                    c.text,
                    c.origin,
                    claims.STRONG if i == 0 else claims.WEAK,
                    rank=c.rank,
                    at_ns=c.at_ns,
                )
                for i, c in enumerate(listed[:MOST_EVENTS])
            ),
            first_ns=min((c.at_ns for c in listed if c.at_ns is not None), default=None),
            ranks=frozenset(c.rank for c in listed if c.rank is not None),
            is_down=any(c.is_link for c in listed),
            by_kernel=any(c.by_kernel for c in listed),
            together=_at_once(adapters),
        )
    return found


def _at_once(adapters: dict[str, list[_Change]]) -> int:
    """How many adapters lost their link within a few seconds of the first that did, by the kernel."""
    first = [
        min(gone)
        for changes in adapters.values()
        if (gone := [c.at_ns for c in _troubles(changes) if c.by_kernel and c.at_ns is not None])
    ]
    return sum(at - min(first) <= ONE_MOMENT_S * NS for at in first) if first else 0


def _troubles(changes: list[_Change]) -> list[_Change]:
    """Each time that one adapter went, unless it went once and came back within seconds."""
    gone = [c for c in changes if not c.is_back]
    if len(gone) != 1:
        return gone
    return [] if any(_is_soon_after(gone[0], c) for c in changes if c.is_back) else gone


def _is_soon_after(gone: _Change, back: _Change) -> bool:
    """By their times; lines without one, by their order: they stand within a few lines of one file."""
    if gone.at_ns is not None and back.at_ns is not None:
        return 0 <= back.at_ns - gone.at_ns < BACK_S * NS
    first, then = gone.origin, back.origin
    if first.path != then.path or first.line is None or then.line is None:
        return False
    return 0 < then.line - first.line <= BACK_LINES


def same_place(case: Case, own: dict[str, Own]) -> dict[str, Own]:
    """A process that reports its adapter and a kernel that does, under names that nothing ties together:
    where there is one of each, they are one place."""
    known = case.topology.by_node
    processes = [n for n, o in own.items() if not o.by_kernel and n not in known]
    kernels = [n for n, o in own.items() if o.by_kernel and not o.ranks and n not in known]
    if len(processes) != 1 or len(kernels) != 1 or len(own) != 2:
        return own
    said, kernel = own[processes[0]], own[kernels[0]]
    times = [at for at in (said.first_ns, kernel.first_ns) if at is not None]
    if len(times) == 2 and abs(times[0] - times[1]) > TOGETHER_S * NS:
        return own
    joined = replace(kernel, claims=(*kernel.claims, *said.claims[:1]), ranks=said.ranks)
    return {kernels[0]: joined}


def went_together(case: Case, own: dict[str, Own]) -> tuple[str, ...]:
    """Nodes whose links went within the error of their clocks: what they share went, not each. A name
    that only a process gives may be another name of a node whose kernel is heard."""
    is_heard = any(o.by_kernel for o in own.values())
    down = sorted(
        (o.first_ns, node)
        for node, o in own.items()
        if o.is_down
        and o.first_ns
        and (o.by_kernel or not is_heard or node in case.topology.by_node)
    )
    best: tuple[str, ...] = ()
    for i, (first, _) in enumerate(down):
        near = tuple(node for at, node in down[i:] if at - first <= TOGETHER_S * NS)
        if len(near) > len(best):
            best = near
    return tuple(sorted(best)) if len(best) > 1 else ()
