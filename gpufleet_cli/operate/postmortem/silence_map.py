"""Ranks by time and by node: those that fell silent alike are one row, however many they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gpufleet_cli.postmortem_card import SilenceMap, SilenceRow, Tile, Times, Tone
from gpufleet_cli.reason.placed import NS
from gpufleet_cli.verdict import RankRow, Triage

MOST_ROWS = 14
MOST_TILES = 2048
APART_NODES = 4
"""So many nodes of culprits or suspects have rows of their own."""
NEAR_S = 120
"""Who fell silent so long before the accused, or twice the time that is drawn, is still drawn."""
ALIKE = 0.04
"""Last lines within this part of the drawn time are alike."""
TONES: dict[str, Tone] = {
    "culprit": "culprit",
    "suspect": "suspect",
    "witness": "waited",
    "stuck": "waited",
    "silent": "silent",
    "finished": "well",
    "running": "well",
    "unknown": "unknown",
}
ORDER: dict[Tone, int] = {
    "culprit": 0, "suspect": 1, "silent": 2, "waited": 3, "well": 4, "unknown": 5,
}  # fmt: skip


def silence_map(triage: Triage, told: Times) -> SilenceMap:
    """The rows and the tiles of the picture."""
    rows = sorted(triage.ranks, key=lambda row: row.rank)
    by: Literal["node", "pod", "rank"] = (
        "node" if any(r.node for r in rows) else "pod" if any(r.pod for r in rows) else "rank"
    )
    start, end = _window(rows, told)
    tiles = _tiles(rows, by)
    return SilenceMap(
        rows=_rows(rows, start, end, by),
        tiles=tuple(tiles[:MOST_TILES]),
        start_ns=start,
        end_ns=end,
        by=by,
        tiles_left_out=max(0, len(tiles) - MOST_TILES),
    )


def _window(rows: Sequence[RankRow], told: Times) -> tuple[int | None, int | None]:
    """From shortly before the first cause, or the first silence, to the last line of anybody."""
    last = [row.last_write_ns for row in rows if row.last_write_ns is not None]
    if not last:
        return None, None
    end = max(last)
    accused = [
        row.last_write_ns
        for row in rows
        if row.standing in ("culprit", "suspect") and row.last_write_ns is not None
    ]
    begin = min([end, told.first_cause.at_ns or end, *accused, *([] if accused else [min(last)])])
    near = begin - max(2 * (end - begin), NEAR_S * NS)
    begin = max(min(one for one in (begin, *last) if one >= near), end - 86_400 * NS)
    margin = max((end - begin) // 8, 2 * NS)
    return begin - margin, end


def _place(row: RankRow, by: str) -> str:
    name = row.node if by == "node" else row.pod if by == "pod" else None
    return name or ""


def _tiles(rows: Sequence[RankRow], by: str) -> list[Tile]:
    """One for each node; ranks that nothing places are put together in eights."""
    groups: dict[str, list[RankRow]] = {}
    for row in rows:
        name = _place(row, by) or f"ranks {row.rank // 8 * 8}-{row.rank // 8 * 8 + 7}"
        groups.setdefault(name, []).append(row)
    return [
        Tile(
            name=name,
            ranks=tuple(row.rank for row in members),
            tones=tuple(TONES[row.standing] for row in members),
        )
        for name, members in sorted(groups.items(), key=lambda item: item[1][0].rank)
    ]


# --- Rows -----------------------------------------------------------------------------------------

Key = tuple[str, int, str]


def _rows(
    rows: Sequence[RankRow], start: int | None, end: int | None, by: str
) -> tuple[SilenceRow, ...]:
    """The accused apart, node by node while they are few; of the others those that are alike together."""
    accused = {_place(r, by) for r in rows if TONES[r.standing] == "culprit"}
    suspected = {_place(r, by) for r in rows if TONES[r.standing] == "suspect"}
    apart = accused | (suspected if len(suspected) <= APART_NODES else set())
    if len(apart) > APART_NODES:
        apart = set(sorted(apart)[:APART_NODES])
    apart.discard("")
    groups: dict[Key, list[RankRow]] = {}
    for row in rows:
        place = _place(row, by)
        key = (TONES[row.standing], _bucket(row, start, end), place if place in apart else "")
        groups.setdefault(key, []).append(row)
    made = [_row(members, end, key[2], rows) for key, members in groups.items()]
    made.sort(key=lambda r: (ORDER[r.tone], -(r.quiet_s or -1.0), r.ranks[0]))
    if len(made) <= MOST_ROWS:
        return tuple(made)
    rest = {rank for row in made[MOST_ROWS - 1 :] for rank in row.ranks}
    kept = made[: MOST_ROWS - 1]
    return (*kept, _row([row for row in rows if row.rank in rest], end, "", rows))


def _bucket(row: RankRow, start: int | None, end: int | None) -> int:
    """Which slice of the drawn time its last line stands in; -1 where that is not known."""
    if row.last_write_ns is None or not row.silence_known or start is None or end is None:
        return -1
    if row.last_write_ns <= start:
        return 0
    return 1 + int((end - row.last_write_ns) / max(1.0, ALIKE * (end - start)))


def _row(
    members: Sequence[RankRow], end: int | None, place: str, every: Sequence[RankRow]
) -> SilenceRow:
    last = sorted(
        row.last_write_ns for row in members if row.last_write_ns is not None and row.silence_known
    )
    nodes = tuple(dict.fromkeys(row.node for row in members if row.node is not None))
    signs = [row.last_sign_ns for row in members if row.last_sign_ns is not None]
    tone = min((TONES[row.standing] for row in members), key=lambda one: ORDER[one])
    return SilenceRow(
        label=_label(members, place, every),
        ranks=tuple(row.rank for row in members),
        nodes=nodes,
        pods=len({row.pod for row in members if row.pod is not None}),
        tone=tone,
        first_ns=last[0] if last else None,
        last_ns=last[-1] if last else None,
        sign_ns=max(signs, default=None) if tone in ("culprit", "suspect") else None,
        quiet_s=None if not last or end is None else round((end - last[0]) / NS, 3),
    )


def _label(members: Sequence[RankRow], place: str, every: Sequence[RankRow]) -> str:
    count = len(members)
    if count == 1:
        one = members[0]
        where = f" on {one.node or one.pod}" if one.node or one.pod else ""
        return f"rank {one.rank}{where}"
    if place:
        whole = sum(1 for row in every if place in (row.node, row.pod))
        other = "" if whole == count else "other "
        return f"{count:,} {other}ranks on {place}"
    nodes = {row.node for row in members if row.node is not None}
    on = f" on {len(nodes):,} {'node' if len(nodes) == 1 else 'nodes'}" if nodes else ""
    return f"{count:,} ranks{on}"
