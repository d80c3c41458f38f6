"""Hypotheses that tell the same of the same ranks or node, made one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpufleet_cli.verdict import Hypothesis


def merge_same(hypotheses: Iterable[Hypothesis]) -> list[Hypothesis]:
    """Hypotheses of one kind about the same ranks or node are one, with all their claims."""
    merged: list[Hypothesis] = []
    alike: dict[tuple[object, ...], list[int]] = {}  # a whole fleet can have a fault on each node
    for hypothesis in hypotheses:
        near = sorted({index for key in _keys(hypothesis) for index in alike.get(key, ())})
        index = next((i for i in near if _same_culprits(merged[i], hypothesis)), len(merged))
        if index < len(merged):
            merged[index] = _joined(merged[index], hypothesis)
        else:
            merged.append(hypothesis)
        for key in _keys(merged[index]):
            if index not in alike.setdefault(key, []):
                alike[key].append(index)
    return merged


def _keys(hypothesis: Hypothesis) -> list[tuple[object, ...]]:
    """Hypotheses with the same culprits share one of these."""
    kind = hypothesis.kind
    found: list[tuple[object, ...]] = []
    if hypothesis.ranks:
        found.append((kind, "ranks", hypothesis.ranks))
    elif hypothesis.suspects:
        found.append((kind, "suspects", hypothesis.suspects))
    if hypothesis.nodes or not found:
        found.append((kind, "nodes", hypothesis.nodes))
    return found


def _same_culprits(one: Hypothesis, other: Hypothesis) -> bool:
    if one.ranks or other.ranks:
        if one.ranks == other.ranks:
            return True
        return bool(one.nodes) and one.nodes == other.nodes and not (one.ranks and other.ranks)
    if one.suspects or other.suspects:
        return one.suspects == other.suspects
    return one.nodes == other.nodes


def _joined(known: Hypothesis, other: Hypothesis) -> Hypothesis:
    have = {(c.text, str(c.origin)) for c in known.claims}
    more = tuple(c for c in other.claims if (c.text, str(c.origin)) not in have)
    first, second = (known, other) if known.xid is not None or other.xid is None else (other, known)
    return replace(
        first,
        claims=known.claims + more,
        ranks=known.ranks or other.ranks,
        nodes=known.nodes or other.nodes,
        collective=known.collective or other.collective,
        corrupts=known.corrupts or other.corrupts,
        gpu=known.gpu or other.gpu,
        onset_ns=known.onset_ns if known.onset_ns is not None else other.onset_ns,
        degrades=known.degrades if known.degrades is not None else other.degrades,
        worsens=first.worsens if first.worsens is not None else second.worsens,
    )
