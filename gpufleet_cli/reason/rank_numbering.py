"""Ranks that no line places, from the order in which launchers number them.

torchrun gives each agent's processes consecutive ranks, in the order of the agents' node ranks
(https://docs.pytorch.org/docs/stable/elastic/run.html). Used only where that order fills the whole
world and no line contradicts it.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpufleet_cli.facts import IdentityLink, Link, PodState


def by_pod_index(
    links: list[IdentityLink], pods: list[PodState], size: int | None
) -> list[IdentityLink]:
    """The ranks of pods whose spec fixes their node rank: as many a pod as it starts processes, in order.

    Only where all pods of the job agree on that number and fill the world, and no line says otherwise.
    """
    known = {p.node_rank: p for p in pods if p.node_rank is not None and p.rendezvous == "static"}
    each = {p.nproc or p.gpus for p in known.values()}
    count = each.pop() if len(each) == 1 else None
    if (
        not count
        or size is None
        or len(known) != len(pods)
        or sorted(known) != list(range(len(known)))
    ):
        return []
    if len(known) * count != size:
        return []
    home = {rank: known[rank // count] for rank in range(size)}
    for link in links:
        stated = None if link.rank is None else home.get(link.rank)
        if stated is not None and link.pod is not None and link.pod != stated.name:
            return []
        if stated is not None and link.node is not None and stated.node not in (None, link.node):
            return []
    return [
        IdentityLink(
            how=Link.POD_SPEC,
            origin=pod.origin,
            rank=rank,
            local_rank=rank % count,
            pod=pod.name,
            pod_uid=pod.uid,
            node=pod.node,
            pod_ip=pod.pod_ip,
            namespace=pod.namespace,
        )
        for rank, pod in home.items()
    ]


def by_agent(links: Sequence[IdentityLink], size: int | None) -> list[IdentityLink]:
    """The other ranks of each agent that named at least one of its own with its local rank.

    Only where the agents' first ranks are one distance apart and fill the world; a `size` of None is
    what they fill.
    """
    by_first = _agents(links)
    firsts = sorted(by_first)
    count = firsts[1] if len(firsts) > 1 else 0
    filled = count * len(firsts)
    if count < 2 or firsts != list(range(0, filled, count)) or size not in (None, filled):
        return []
    if any((link.local_rank or 0) >= count for link in by_first.values()):
        return []
    placed = {link.rank: link for link in links if link.rank is not None and link.pod is not None}
    if any(by_first[rank - rank % count].pod != link.pod for rank, link in placed.items()):
        return []
    return [
        IdentityLink(
            how=Link.DERIVED,
            origin=link.origin,
            rank=rank,
            local_rank=rank - first,
            pod=link.pod,
            pod_uid=link.pod_uid,
            container=link.container,
            namespace=link.namespace,
            node=link.node,
            host=link.host,
        )
        for first, link in by_first.items()
        for rank in range(first, first + count)
        if rank not in placed
    ]


def _agents(links: Sequence[IdentityLink]) -> dict[int, IdentityLink]:
    """The first rank of each agent, with a link of it; nothing where its lines disagree."""
    homes: dict[str, int] = {}
    by_first: dict[int, IdentityLink] = {}
    for link in links:
        name = link.pod or link.node or link.host
        if link.how is not Link.AGENT or name is None:
            continue
        if link.rank is None or link.local_rank is None:
            continue
        first = link.rank - link.local_rank
        if homes.setdefault(name, first) != first:
            return {}
        by_first[first] = link
    return by_first if len(by_first) == len(homes) else {}
