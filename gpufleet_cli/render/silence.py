"""Ranks by silence as a few bars: who is quiet, for how long, and how many are alike.

Thousands of ranks fall into a handful of groups of equal silence, so that is what is drawn: the
culprits or suspects by themselves, then the others from the quietest to the liveliest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpufleet_cli.render.layout import counted, rank_list
from gpufleet_cli.verdict import RankRow

_SHORTEST_SCALE_S = 10.0  # below this a full bar would make a healthy job look silent
_ALIKE = 0.1  # two silences within 10 % of the longest count as equal


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceGroup:
    """Ranks of about equal silence. `quiet_s` is the longest; None where nothing tells."""

    label: str
    ranks: tuple[int, ...]
    quiet_s: float | None
    accused: bool
    share: float


def silence_groups(rows: Sequence[RankRow], *, most: int = 4) -> tuple[SilenceGroup, ...]:
    """At most `most` groups, the accused first; what does not fit is drawn together."""
    known = [row for row in rows if row.silence_known and row.quiet_s is not None]
    known.sort(key=lambda row: (-(row.quiet_s or 0.0), row.rank))
    scale = max([_SHORTEST_SCALE_S, *(row.quiet_s or 0.0 for row in known[:1])])
    accused = [row for row in known if row.standing in ("culprit", "suspect")]
    rest = [row for row in known if row.standing not in ("culprit", "suspect")]
    unknown = [row for row in rows if not row.silence_known or row.quiet_s is None]
    room = most - bool(unknown)
    parts = [(part, True) for part in _alike(accused, scale, max(1, room - 1))]
    parts += [(part, False) for part in _alike(rest, scale, max(1, room - len(parts)))]
    groups = [
        _group(part, scale, accused=flag, first=not at) for at, (part, flag) in enumerate(parts)
    ]
    if unknown:
        groups.append(_unknown_group(unknown, alone=not groups))
    return tuple(groups)


def _alike(rows: Sequence[RankRow], scale: float, most: int) -> list[list[RankRow]]:
    """Neighbours in silence drawn together, the widest gaps kept when there are too many parts."""
    if not rows:
        return []
    gaps = [
        ((before.quiet_s or 0.0) - (after.quiet_s or 0.0), at)
        for at, (before, after) in enumerate(pairwise(rows), start=1)
    ]
    wide = sorted(
        (gap for gap in gaps if gap[0] > _ALIKE * scale), key=lambda gap: (-gap[0], gap[1])
    )
    edges = [0, *sorted(at for _, at in wide[: most - 1]), len(rows)]
    return [list(rows[start:end]) for start, end in pairwise(edges)]


def _group(rows: Sequence[RankRow], scale: float, *, accused: bool, first: bool) -> SilenceGroup:
    longest = max(row.quiet_s or 0.0 for row in rows)
    ranks = tuple(sorted(row.rank for row in rows))
    return SilenceGroup(
        label=_label(ranks, named=accused or len(ranks) <= 2, first=first),
        ranks=ranks,
        quiet_s=longest,
        accused=accused,
        share=min(1.0, max(0.0, longest / scale)),
    )


def _unknown_group(rows: Sequence[RankRow], *, alone: bool) -> SilenceGroup:
    ranks = tuple(sorted(row.rank for row in rows))
    return SilenceGroup(
        label=_label(ranks, named=len(ranks) <= 2, first=alone),
        ranks=ranks,
        quiet_s=None,
        accused=any(row.standing in ("culprit", "suspect") for row in rows),
        share=0.0,
    )


def _label(ranks: tuple[int, ...], *, named: bool, first: bool) -> str:
    if named:
        listed = rank_list(ranks, 16)
        return f"{'rank' if len(ranks) == 1 else 'ranks'} {listed}"
    return counted(len(ranks), "rank") if first else f"{len(ranks):,} more"
