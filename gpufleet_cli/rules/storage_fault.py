"""Storage or the data source stalled.

Storage is claimed when the kernels of several nodes, or all ranks inside one save, name it: then nobody is
to blame. A data stall is claimed of the rank that retries its reads while the others wait. It cannot
see a slow disk that logs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from gpufleet_cli.facts import HostSign, Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import PlacedHost, PlacedSign
from gpufleet_cli.rules import claims, loader_timeouts
from gpufleet_cli.rules.claims import about, claim, ranks_text, waited_in
from gpufleet_cli.verdict import Hypothesis, Kind, Remedy

NAME = "storage_fault"
FEWEST_STUCK = 4


def propose(case: Case) -> Iterator[Hypothesis]:
    """Storage, then data."""
    yield from _storage(case)
    yield from _data(case)


def _storage(case: Case) -> Iterator[Hypothesis]:
    down = [h for h in case.hosts if h.event.sign is HostSign.NFS_DOWN and h.relevant]
    broken = [h for h in case.hosts if h.event.sign is HostSign.FS_ERROR and h.relevant]
    hung = [h for h in case.hosts if h.event.sign is HostSign.HUNG_TASK and h.relevant]
    full = [
        s
        for s in case.signs_of(Sign.FS_ERROR)
        if s.at_ns is None or case.first_timeout_ns is None or s.at_ns < case.first_timeout_ns
    ]
    open_save = case.checkpoints.open_save
    unfinished = _unfinished(case)
    saving = open_save is not None or bool(unfinished)
    stuck = _stuck_in_a_save(case, unfinished, saving=saving)
    told = _one_a_node(down or broken or (hung if saving else []))
    if not told and not stuck and len({s.node for s in full}) < 2:
        return
    found = [
        claim(
            f"{h.node}: {h.event.text[:110]}",
            h.event.origin,
            _first_weight(h, alone=len(told) == 1 and not saving) if i == 0 else claims.FAIR,
            at_ns=h.at_ns,
        )
        for i, h in enumerate(told)
    ][:4]
    if open_save is not None:
        found.append(claim("a save began and never finished", open_save.origin, claims.FAIR))
    if stuck:
        nodes_of = {case.topology.node_of(r) for r in stuck}
        where = f" on {len(nodes_of)} nodes" if len(nodes_of) > 1 else ""
        text = f"{len(stuck)} ranks{where} never came out of a save"
        first = unfinished.get(min(unfinished)) if unfinished else None
        origin = first.fact.origin if first is not None else open_save and open_save.origin
        found.append(claim(text, origin or None, claims.GOOD))
    found.extend(about(s, s.fact.text[:110], claims.FAIR) for s in full[:2])
    nodes = {h.node for h in [*down, *broken] if h.node is not None}
    everywhere = len(nodes) > 1 or len(case.topology.by_node) <= 1 or bool(stuck)
    names = _touched(case, nodes, stuck)
    server = next((h.event.server for h in down if h.event.server), None)
    count = len(names) or "several"
    yield Hypothesis(
        kind=Kind.STORAGE_STALL,
        rule=NAME,
        summary=f"Storage stalled{f' ({server})' if server else ''} on {count}"
        f" node{'s' if len(names) != 1 else ''}"
        + ("; a save was open" if saving else "")
        + (". No rank is to blame." if everywhere else "."),
        claims=tuple(found),
        remedy=Remedy.OUTSIDE,
        nodes=() if everywhere else names,
        spread=names if everywhere else (),
        narrows=not everywhere,
        onset_ns=min((h.at_ns for h in down if h.at_ns is not None), default=case.onset_ns),
        degrades=True,
        worsens=None,
        worsens_why="it lasts as long as the storage is away",
        reason_tag="storage",
        would_settle="the state of the file server",
    )


def _touched(case: Case, nodes: Collection[str], stuck: Collection[int]) -> tuple[str, ...]:
    """The nodes that report the storage or hold a stuck rank; where no file tells nodes, the pods."""
    touched = {*nodes, *(case.topology.node_of(rank) for rank in stuck)} - {None}
    if not touched:
        touched = {
            place.pod for r in stuck if (place := case.topology.places.get(r)) is not None
        } - {None}
    return tuple(sorted(name for name in touched if name is not None))


def _first_weight(host: PlacedHost, *, alone: bool) -> float:
    """A server that does not answer is a cause; one node's file system error without a save may be noise."""
    return claims.STRONG if host.event.sign is HostSign.NFS_DOWN or not alone else claims.FAIR


def _unfinished(case: Case) -> dict[int, PlacedSign]:
    """Ranks whose last word of a checkpoint is that they began one, before anybody gave up."""
    last: dict[int, PlacedSign] = {}
    for sign in case.signs_of(Sign.SAVE_STARTED, Sign.SAVE_STAGED, Sign.SAVE_DURABLE):
        if sign.rank is not None:
            last[sign.rank] = sign
    return {
        rank: sign
        for rank, sign in sorted(last.items())
        if sign.fact.sign is Sign.SAVE_STARTED
        and not ((ahead := claims.before_others_s(case, sign.at_ns)) is not None and ahead < 0)
    }


def _stuck_in_a_save(
    case: Case, unfinished: dict[int, PlacedSign], *, saving: bool
) -> tuple[int, ...]:
    """Many ranks of several nodes that stand still in a save: by their own words, or (one rank prints for
    all) by dumps in which they have called nothing that others wait in."""
    if not saving or not case.stop.stopped:
        return ()
    roots = () if case.graph is None else case.graph.roots
    behind = {r for root in roots if root.kind == "host-silent" for r in root.ranks}
    by_words = set(unfinished) - case.witnesses
    if len(unfinished) > 1 and behind:
        behind &= set(unfinished)
    stuck = max(by_words if len(unfinished) > 1 else set(), behind, key=len)
    nodes = {case.topology.node_of(r) for r in stuck}
    pods = {place.pod for r in stuck if (place := case.topology.places.get(r)) is not None}
    spread = max(len(nodes), len(pods)) > 1
    return tuple(sorted(stuck)) if len(stuck) >= FEWEST_STUCK and spread else ()


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
    gave_up = loader_timeouts.of_ranks(case).get(ranks[0])
    yield Hypothesis(
        kind=Kind.DATA_STALL,
        rule=NAME,
        summary=f"{claims.sentence(ranks_text(ranks))} waited for data"
        f"{'' if gave_up is None else f' ({gave_up.fact.detail})'} while the others waited in"
        f" {claims.collective_text(waited_in(case))}.",
        claims=(
            about(gave_up, f"rank {ranks[0]}: {gave_up.fact.detail}", claims.DECISIVE)
            if gave_up is not None
            else about(
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
