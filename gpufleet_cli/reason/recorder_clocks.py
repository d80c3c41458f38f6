"""Clock offsets of nodes from completion stamps: a full-sync collective ends everywhere together.

Stamps are taken by a polling thread, so one of them is late by up to a second; the median over many
is not (facts: localisation 5). Nodes that share no group are joined through nodes that share one
with both.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from gpufleet_cli.facts import RankDump

NS = 1_000_000_000
MOST_RANKS_A_NODE = 2

Pair = tuple[str, str]
_Key = tuple[str, int, int]


def clock_offsets(
    dumps: Sequence[RankDump], node_of: Mapping[int, str]
) -> dict[str, tuple[float, float]]:
    """(seconds ahead of the others, error) by node; nodes without shared stamps are left out."""
    links = _links(dumps, node_of)
    offsets: dict[str, tuple[float, float]] = {}
    for start in sorted(links):
        if start in offsets:
            continue
        found = {start: (0.0, 0.0)}
        todo = [start]
        for node in todo:
            for other, (ahead, error) in sorted(links[node].items()):
                if other not in found:
                    base = found[node]
                    found[other] = (base[0] + ahead, math.hypot(base[1], error))
                    todo.append(other)
        middle = median(value for value, _ in found.values())
        offsets.update((node, (value - middle, error)) for node, (value, error) in found.items())
    return dict(sorted(offsets.items()))


def _links(
    dumps: Sequence[RankDump], node_of: Mapping[int, str]
) -> dict[str, dict[str, tuple[float, float]]]:
    """How far each node is ahead of another that shares a group with it: a star in each group."""
    differences: dict[Pair, list[float]] = defaultdict(list)
    for by_seq in _stamps(dumps, node_of).values():
        for by_node in by_seq.values():
            if len(by_node) < 2:
                continue
            centre = min(by_node)
            own = median(by_node[centre])
            for node, times in by_node.items():
                if node != centre:
                    differences[centre, node].append((median(times) - own) / NS)
    links: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for (one, other), values in differences.items():
        ahead = median(values)
        spread = median(abs(value - ahead) for value in values)
        error = 1.48 * spread / math.sqrt(len(values)) if len(values) > 1 else 1.0
        links[one][other] = (ahead, error)
        links[other][one] = (-ahead, error)
    return links


def _stamps(
    dumps: Sequence[RankDump], node_of: Mapping[int, str]
) -> dict[_Key, dict[int, dict[str, list[int]]]]:
    """Completion times by group, number and node, from a few ranks of each node."""
    found: dict[_Key, dict[int, dict[str, list[int]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    used: dict[tuple[_Key, str], int] = defaultdict(int)
    is_local: dict[_Key, bool] = {}
    for dump in dumps:
        node = node_of.get(dump.rank)
        if node is None:
            continue
        for group in dump.groups:
            members = group.members or (-1,)
            key = (group.name, members[0], len(members))
            if key not in is_local:
                is_local[key] = len({node_of.get(member) for member in members}) < 2
            if is_local[key] or not group.done or used[key, node] >= MOST_RANKS_A_NODE:
                continue
            used[key, node] += 1
            pairs = array("q")
            pairs.frombytes(group.done)
            for seq, at_ns in zip(pairs[::2], pairs[1::2], strict=True):
                found[key][seq][node].append(at_ns)
    return found
