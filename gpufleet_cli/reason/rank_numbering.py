"""Ranks that no line places, from the order in which launchers number them.

torchrun gives each agent's processes consecutive ranks, in the order of the agents' node ranks
(https://docs.pytorch.org/docs/stable/elastic/run.html). Used only where that order fills the whole
world and no line contradicts it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from gpufleet_cli.facts import IdentityLink, Link, PodState, Speaker
from gpufleet_cli.reason.names import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What an order of the pods gives: links, or why it gives none though it should."""

    links: tuple[IdentityLink, ...] = ()
    why_not: str | None = None


def left_over(
    homes: Mapping[int, tuple[str | None, str | None]],
    speakers: Sequence[Speaker],
    pods: Sequence[PodState],
    names: Names,
    size: int,
) -> Order:
    """Ranks that no line places, by what a few lines and the order of the pods tell. `homes`: the pod and the node
    of each rank that is placed."""
    on_node: dict[str | None, list[str]] = defaultdict(list)
    for one in pods:
        on_node[one.node].append(one.name)
    known: dict[int, str] = {}
    for rank, (pod, node) in homes.items():
        alone = on_node[node] if node is not None else []
        pod = pod or (alone[0] if len(alone) == 1 else None)
        if pod is not None:
            known[rank] = pod
    for speaker in speakers:
        pod = names.unit(speaker)[0]
        if speaker.rank is not None and pod is not None:
            known.setdefault(speaker.rank, pod)
    spoken = by_speakers(speakers, pods, known, size)
    known |= {one.rank: one.pod for one in spoken if one.rank is not None and one.pod is not None}
    order = by_host_names(speakers, pods, known, size)
    return Order(links=(*spoken, *order.links), why_not=order.why_not)


def of_pods(pods: Sequence[PodState]) -> list[PodState]:
    """The pods that hold ranks: those with GPUs where some have any, else all (a launcher, Ray's head)."""
    return [pod for pod in pods if pod.gpus] or list(pods)


def processes(pods: Sequence[PodState]) -> int | None:
    """How many ranks each pod starts, where all that say it agree."""
    each = {pod.nproc or pod.gpus for pod in pods} - {None}
    return each.pop() if len(each) == 1 else None


def by_pod_index(
    links: list[IdentityLink], pods: list[PodState], size: int | None
) -> list[IdentityLink]:
    """The ranks of pods whose spec fixes their node rank: as many a pod as it starts processes, in order.

    Only where all pods of the job agree on that number and fill the world, and no line says otherwise. Where
    the specs state the number (not the GPUs alone), a pod that is gone takes nobody else's rank away.
    """
    held = of_pods(pods)
    known = {p.node_rank: p for p in held if p.node_rank is not None and p.rendezvous == "static"}
    count = processes(held)
    if not count or size is None or not held or len(known) != len(held) or size % count:
        return []
    is_stated = all(pod.nproc for pod in held)
    if max(known) >= size // count or (not is_stated and len(known) * count != size):
        return []
    home = {
        node_rank * count + local: pod
        for node_rank, pod in sorted(known.items())
        for local in range(count)
    }
    for link in links:
        stated = None if link.rank is None else home.get(link.rank)
        if stated is not None and link.pod is not None and link.pod != stated.name:
            return []
        if stated is not None and link.node is not None and stated.node not in (None, link.node):
            return []
    return [_in_pod(pod, rank, rank % count, Link.POD_SPEC) for rank, pod in home.items()]


def _in_pod(pod: PodState, rank: int, local: int | None, how: Link) -> IdentityLink:
    return IdentityLink(
        how=how,
        origin=pod.origin,
        rank=rank,
        local_rank=local,
        pod=pod.name,
        pod_uid=pod.uid,
        node=pod.node,
        pod_ip=pod.pod_ip,
        namespace=pod.namespace,
    )


def by_speakers(
    speakers: Sequence[Speaker], pods: Sequence[PodState], placed: Mapping[int, str], size: int
) -> list[IdentityLink]:
    """The ranks that are left, in pods of which one line states both a global and a local rank; and in the
    one pod that nobody spoke for, where just as many are left as it starts.

    `placed`: the pod of each rank that is known. A rank that another pod has been given contradicts all.
    """
    held = {pod.name: pod for pod in of_pods(pods)}
    count = processes(list(held.values()))
    if not count or len(held) * count != size:
        return []
    firsts: dict[str, int] = {}
    for speaker in speakers:
        if speaker.rank is None or speaker.local_rank is None or speaker.pod not in held:
            continue
        if not 0 <= speaker.local_rank < count:
            return []
        first = speaker.rank - speaker.local_rank
        if firsts.setdefault(speaker.pod, first) != first:
            return []
    home = {rank: pod for pod, first in firsts.items() for rank in range(first, first + count)}
    if len(home) != len(firsts) * count or any(
        rank >= size or placed.get(rank, pod) != pod for rank, pod in home.items()
    ):
        return []
    found = [
        _in_pod(held[pod], rank, rank - firsts[pod], Link.DERIVED)
        for rank, pod in home.items()
        if rank not in placed
    ]
    left = [rank for rank in range(size) if rank not in placed and rank not in home]
    empty = sorted(set(held) - set(placed.values()) - set(firsts))
    if len(empty) == 1 and len(left) == count and left == list(range(left[0], left[0] + count)):
        pod = held[empty[0]]
        found += [_in_pod(pod, rank, rank - left[0], Link.DERIVED) for rank in left]
    return found


def by_host_names(
    speakers: Sequence[Speaker], pods: Sequence[PodState], placed: Mapping[int, str], size: int
) -> Order:
    """The ranks that are left, in pods whose agents sort themselves (c10d): by their host names as strings, so
    that `w-10` comes before `w-2`. Nothing where any line has a rank elsewhere.

    A torchrun that sorted `w-2` before `w-10` was proposed (pytorch#191190): where the two orders differ, a
    rank that a line places has to tell which one it was.
    """
    held = of_pods(pods)
    count = processes(held)
    hosts = {pod.sorts_as for pod in held}
    if not all(map(_has_begun, held)):  # nobody has a rank before all agents have met
        return Order()
    if not count or None in hosts or len(hosts) < len(held) or len(held) * count != size:
        return Order()
    told = {**_said_as_global(speakers, {pod.name for pod in held}, count), **placed}
    if len(set(placed) & set(range(size))) == size:
        return Order()
    as_text = sorted(held, key=lambda pod: pod.sorts_as or "")
    as_numbers = sorted(held, key=lambda pod: natural(pod.sorts_as or ""))
    fits = [
        order
        for order in (as_text, as_numbers)
        if all(rank < size and order[rank // count].name == pod for rank, pod in told.items())
    ]
    if not fits:
        return Order()
    if len(fits) > 1 and as_text != as_numbers:
        return Order(
            why_not=f"no line tells which of {len(held)} pods holds which ranks: their agents sorted themselves"
            f" (c10d), and an index in a name is no rank"
        )
    links = (
        _in_pod(pod, rank, rank % count, Link.DERIVED)
        for at, pod in enumerate(fits[0])
        for rank in range(at * count, (at + 1) * count)
        if rank not in placed
    )
    return Order(links=tuple(links))


def _has_begun(pod: PodState) -> bool:
    """Whether its agent may have met the others: not one that waits for a node, an image or a volume."""
    own = [one for one in pod.containers if one.name == pod.rank_container]
    waits = any(one.state == "waiting" and not one.restarts for one in own)
    return pod.scheduled is not False and pod.phase != "Pending" and not waits


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """`w-2` before `w-10`."""
    parts = re.split(r"(\d{1,18})", name)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


def _said_as_global(speakers: Sequence[Speaker], pods: Set[str], count: int) -> dict[int, str]:
    """The pod of each `[rankN]:` that is a rank of the world for all that is known: where several pods write
    under one number, none of them is."""
    homes: dict[int, set[str]] = defaultdict(set)
    for speaker in speakers:
        if speaker.prefix_rank is not None and speaker.pod is not None and speaker.pod in pods:
            homes[speaker.prefix_rank].add(speaker.pod)
    is_local = any(len(own) > 1 for own in homes.values())
    return {
        number: own.pop()
        for number, own in homes.items()
        if not is_local or (len(own) == 1 and number >= count)
    }


def by_agent(
    links: Sequence[IdentityLink], speakers: Sequence[Speaker], size: int | None
) -> list[IdentityLink]:
    """The other ranks of each agent that named at least one of its own with its local rank.

    Only where the agents' first ranks are one distance apart and fill the world; a `size` of None is
    what they fill. An agent that said nothing (its pod is gone) makes the distance look longer: then a rank
    speaks where this order would not have it.
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
    if _speak_elsewhere(speakers, {first: link.pod for first, link in by_first.items()}, count):
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


def _speak_elsewhere(
    speakers: Sequence[Speaker], pods: Mapping[int, str | None], count: int
) -> bool:
    """Whether a pod writes of ranks that this order gives to another one. Numbers that several pods carry are
    local ranks, and tell nothing."""
    spoken: dict[int, set[str]] = defaultdict(set)
    for speaker in speakers:
        number = speaker.rank if speaker.rank is not None else speaker.prefix_rank
        if number is not None and speaker.pod is not None:
            spoken[number].add(speaker.pod)
    if any(len(told) > 1 for told in spoken.values()):
        return False
    return any(
        pods.get(number - number % count) not in (None, *told) for number, told in spoken.items()
    )


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
