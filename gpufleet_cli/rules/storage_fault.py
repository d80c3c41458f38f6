"""Storage or the data source stalled.

Storage is claimed when the kernels of several nodes, or all ranks inside one save, name it: then nobody is
to blame. A data stall is claimed of the rank that retries its reads while the others wait. It cannot
see a slow disk that logs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.facts import HostSign, Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import PlacedHost, PlacedSign
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import about, claim, ranks_text, waited_in
from gpufleet_cli.verdict import Hypothesis, Kind, Remedy

NAME = "storage_fault"


def propose(case: Case) -> Iterator[Hypothesis]:
    """Storage, then data."""
    yield from _storage(case)
    yield from _data(case)


def _storage(case: Case) -> Iterator[Hypothesis]:
    down = [h for h in case.hosts if h.event.sign is HostSign.NFS_DOWN and h.relevant]
    hung = [
        h
        for h in case.hosts
        if h.event.sign in (HostSign.HUNG_TASK, HostSign.FS_ERROR) and h.relevant
    ]
    full = [
        s
        for s in case.signs_of(Sign.FS_ERROR)
        if s.at_ns is None or case.first_timeout_ns is None or s.at_ns < case.first_timeout_ns
    ]
    nodes = {h.node for h in [*down, *(h for h in hung if h.event.sign is HostSign.FS_ERROR)]}
    open_save = case.checkpoints.open_save
    if not down and not (open_save is not None and hung) and len({s.node for s in full}) < 2:
        return
    found = [
        claim(
            f"{h.node}: {h.event.text[:110]}",
            h.event.origin,
            claims.STRONG if i == 0 else claims.FAIR,
            at_ns=h.at_ns,
        )
        for i, h in enumerate(_one_a_node(down or hung))
    ][:4]
    if open_save is not None:
        found.append(claim("a save began and never finished", open_save.origin, claims.FAIR))
    found.extend(about(s, s.fact.text[:110], claims.FAIR) for s in full[:2])
    everywhere = len(nodes) > 1 or len(case.topology.by_node) <= 1
    server = next((h.event.server for h in down if h.event.server), None)
    yield Hypothesis(
        kind=Kind.STORAGE_STALL,
        rule=NAME,
        summary=f"Storage stalled{f' ({server})' if server else ''} on {len(nodes) or 'several'}"
        f" node{'s' if len(nodes) != 1 else ''}"
        + ("; a save was open" if open_save is not None else "")
        + ". No rank is to blame.",
        claims=tuple(found),
        remedy=Remedy.OUTSIDE,
        nodes=() if everywhere else tuple(sorted(n for n in nodes if n is not None)),
        onset_ns=min((h.at_ns for h in down if h.at_ns is not None), default=case.onset_ns),
        degrades=True,
        worsens=None,
        worsens_why="it lasts as long as the storage is away",
        reason_tag="storage",
        would_settle="the state of the file server",
    )


def _one_a_node(hosts: list[PlacedHost]) -> list[PlacedHost]:
    found: dict[str | None, PlacedHost] = {}
    for host in hosts:
        found.setdefault(host.node, host)
    return [found[node] for node in sorted(found, key=str)]


def _data(case: Case) -> Iterator[Hypothesis]:
    """The ranks that retry their reads while the others wait."""
    if not case.stop.stopped and not case.timeouts:
        return
    witnesses = case.witnesses
    retries = [
        s
        for s in case.signs_of(Sign.DATA_RETRY)
        if case.first_timeout_ns is None or s.at_ns is None or s.at_ns < case.first_timeout_ns
    ]
    by_rank: dict[int, list[PlacedSign]] = {}
    for sign in retries:
        if sign.rank is not None and sign.rank not in witnesses:
            by_rank.setdefault(sign.rank, []).append(sign)
    if not by_rank:
        return
    ranks = tuple(sorted(by_rank))
    many = len(ranks) > max(1, len(case.world) // 2)
    first = by_rank[ranks[0]]
    yield Hypothesis(
        kind=Kind.DATA_STALL,
        rule=NAME,
        summary=f"{claims.sentence(ranks_text(ranks))} waited for data while the others waited in"
        f" {claims.collective_text(waited_in(case))}.",
        claims=(
            about(
                first[-1],
                f"rank {ranks[0]} retried its data source {len(first)} times, last"
                f"{claims.when(first[-1].at_ns)}: {first[-1].fact.text[:80]}",
                claims.GOOD,
            ),
        ),
        remedy=Remedy.CODE,
        ranks=() if many else ranks,
        onset_ns=case.onset_ns,
        degrades=True,
        worsens=None,
        worsens_why="depends on the data source",
        reason_tag="data source",
        would_settle="the loader's stack on that rank and the state of the data source",
    )
