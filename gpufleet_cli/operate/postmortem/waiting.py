"""Who waits for whom, as few boxes: ranks in one operation, what they wait for, and where the waiting ends.

From the Flight Recorder where there are dumps, else from what watchdogs and the verdict say. Operations of
the same kind that lead to the same end are one box, so that 128 tensor groups are one and not 128.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpufleet_cli.postmortem_card import WaitBox, WaitPicture
from gpufleet_cli.verdict import CollectiveRef, DumpsReport, GroupReport, RankRow, Triage

MOST_BOXES = 10
_DIGITS = re.compile(r"\d+")

EndKind = Literal["culprit", "suspect", "absent", "behind"]
BoxKind = Literal["waits", "culprit", "suspect", "absent", "behind"]
END_WORDS: dict[EndKind, str] = {
    "culprit": "the culprit",
    "suspect": "among those that the evidence leaves",
    "absent": "no usable dump of it",
    "behind": "behind the others, and waits for nobody",
}


def waiting(triage: Triage) -> WaitPicture | None:
    """The picture, or None where nobody is known to wait."""
    report = triage.dumps
    busy = [] if report is None else [g for g in report.groups if g.waiting]
    if busy:
        return _of_dumps(triage, busy)
    return _of_logs(triage)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operation:
    group: GroupReport
    to: frozenset[int]
    ends: frozenset[int]


def _of_dumps(triage: Triage, groups: Sequence[GroupReport]) -> WaitPicture:
    where: dict[int, int] = {}
    for index, group in enumerate(groups):
        for rank in group.waiting:
            where.setdefault(rank, index)
    operations = []
    for index, group in enumerate(groups):
        awaited = {*group.behind, *group.missing}
        to = {where[rank] for rank in awaited if rank in where and where[rank] != index}
        ends = {rank for rank in awaited if rank not in where}
        operations.append(_Operation(group=group, to=frozenset(to), ends=frozenset(ends)))
    operations = _to_the_guilty(triage, operations)
    return _drawn(triage, operations, _merged(operations), _source(triage.dumps))


def _to_the_guilty(triage: Triage, operations: Sequence[_Operation]) -> list[_Operation]:
    """Where waiting leads to somebody who is blamed, those who merely left no dump are left out."""
    blamed = {row.rank for row in triage.ranks if row.standing in ("culprit", "suspect")}
    reach = _reached(operations)
    return [
        replace(one, ends=one.ends & blamed) if reach[index] & blamed else one
        for index, one in enumerate(operations)
    ]


def _source(report: DumpsReport | None) -> str:
    assert report is not None
    return f"{report.dumps:,} Flight Recorder {'dump' if report.dumps == 1 else 'dumps'}"


def _merged(operations: Sequence[_Operation]) -> list[list[int]]:
    """Operations of one kind whose waiting ends at the same ranks, together; most ranks first."""
    reach = _reached(operations)
    alike: dict[tuple[str, str, frozenset[int], int], list[int]] = defaultdict(list)
    depth = _depths(operations)
    for index, one in enumerate(operations):
        kind = _DIGITS.sub("N", one.group.desc or one.group.name)
        alike[one.group.op or "", kind, reach[index], depth[index]].append(index)
    return sorted(alike.values(), key=lambda members: (-_size(operations, members), members[0]))


def _size(operations: Sequence[_Operation], members: Sequence[int]) -> int:
    return sum(len(operations[index].group.waiting) for index in members)


def _reached(operations: Sequence[_Operation]) -> list[frozenset[int]]:
    """The ranks at which the waiting of each operation ends, through whatever lies between."""
    found = [set(one.ends) for one in operations]
    for _ in operations:
        changed = False
        for index, one in enumerate(operations):
            before = len(found[index])
            for other in one.to:
                found[index] |= found[other]
            changed = changed or len(found[index]) != before
        if not changed:
            break
    return [frozenset(ends) for ends in found]


def _depths(operations: Sequence[_Operation]) -> list[int]:
    """How many operations lie between one and the end of its waiting; in a circle, as far as it is followed."""
    depth = [0] * len(operations)
    for _ in range(min(len(operations), MOST_BOXES)):
        again = [
            max((depth[other] + 1 for other in one.to), default=0) if one.to else 0
            for one in operations
        ]
        if again == depth:
            break
        depth = again
    return depth


def _drawn(
    triage: Triage, operations: Sequence[_Operation], merged: Sequence[list[int]], told_by: str
) -> WaitPicture:
    kept = merged[:MOST_BOXES]
    box_of = {index: box for box, members in enumerate(kept) for index in members}
    standing = {row.rank: row.standing for row in triage.ranks}
    boxes = [_box(operations, members, standing) for members in kept]
    arrows: set[tuple[int, int]] = set()
    ends: dict[tuple[EndKind, frozenset[int]], set[int]] = defaultdict(set)
    by_end: dict[int, set[int]] = defaultdict(set)
    for index, one in enumerate(operations):
        if index not in box_of:
            continue
        own = box_of[index]
        arrows |= {(own, box_of[to]) for to in one.to if to in box_of and box_of[to] != own}
        for rank in one.ends:
            by_end[rank].add(own)
    for rank, waiters in by_end.items():
        ends[_end_kind(triage, standing, rank), frozenset(waiters)].add(rank)
    for (kind, waiting_boxes), ranks in sorted(ends.items(), key=lambda item: min(item[1])):
        boxes.append(_end_box(triage, kind, tuple(sorted(ranks))))
        arrows |= {(waiter, len(boxes) - 1) for waiter in waiting_boxes}
    arrows = _direct(arrows)
    ordered, moved = _ordered(boxes, arrows)
    return WaitPicture(
        boxes=ordered,
        arrows=tuple(sorted((moved[a], moved[b]) for a, b in arrows)),
        told_by=told_by,
        left_out=len(merged) - len(kept),
    )


def _end_kind(triage: Triage, standing: Mapping[int, str], rank: int) -> EndKind:
    match standing.get(rank):
        case "culprit":
            return "culprit"
        case "suspect":
            return "suspect"
    report = triage.dumps
    return "absent" if report is not None and rank in report.missing else "behind"


def _box(
    operations: Sequence[_Operation], members: Sequence[int], standing: Mapping[int, str]
) -> WaitBox:
    """Ranks in one operation. Where all of them are blamed, the box is drawn as theirs."""
    ranks = tuple(sorted({r for index in members for r in operations[index].group.waiting}))
    first = operations[members[0]].group
    seqs = {operations[index].group.seq for index in members}
    called = " ".join(str(part) for part in (first.op, first.seq if len(seqs) == 1 else None) if part is not None)  # fmt: skip
    name = first.desc or first.name
    kinds = {standing.get(rank) for rank in ranks}
    kind: BoxKind = "waits"
    if kinds == {"culprit"}:
        kind = "culprit"
    elif kinds == {"suspect"}:
        kind = "suspect"
    if len(members) > 1:
        alike = _DIGITS.sub("N", name)
        title = f"{len(ranks):,} ranks wait in {called} of {len(members)} groups ({alike})"
        detail = "operations of one kind, drawn together"
    else:
        title, detail = f"{_ranks(len(ranks))} in {called} of {name}", first.note
    if len(ranks) == 1:
        title = f"rank {ranks[0]} waits in {called} of {name}"
    return WaitBox(title=title, ranks=ranks, detail=detail, kind=kind)


def _ranks(count: int) -> str:
    return "1 rank waits" if count == 1 else f"{count:,} ranks wait"


def _end_box(triage: Triage, kind: EndKind, ranks: tuple[int, ...]) -> WaitBox:
    rows = {row.rank: row for row in triage.ranks}
    if len(ranks) == 1:
        row = rows.get(ranks[0])
        where = "" if row is None else row.node or row.pod or ""
        title = f"rank {ranks[0]}" + (f" on {where}" if where else "")
    else:
        title = f"{len(ranks):,} ranks"
    detail = END_WORDS[kind]
    report = triage.dumps
    if kind == "culprit" and report is not None and set(ranks) <= set(report.missing):
        detail += "; it left no usable dump"
    return WaitBox(title=title, ranks=ranks, detail=detail, kind=kind)


def _direct(arrows: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Without the arrows that others lead to as well: who waits for A through B waits for B."""
    after: dict[int, set[int]] = defaultdict(set)
    for waiter, awaited in arrows:
        after[waiter].add(awaited)

    def leads(start: int, to: int) -> bool:
        seen, left = {start}, [start]
        while left:
            for following in after[left.pop()]:
                if following == to:
                    return True
                if following not in seen:
                    seen.add(following)
                    left.append(following)
        return False

    return {
        (waiter, awaited)
        for waiter, awaited in arrows
        if not any(
            other not in (waiter, awaited) and leads(other, awaited) and not leads(other, waiter)
            for other in after[waiter]
        )
    }


def _ordered(
    boxes: Sequence[WaitBox], arrows: set[tuple[int, int]]
) -> tuple[tuple[WaitBox, ...], dict[int, int]]:
    """Who waits stands above whom it waits for; ends are at the foot."""
    level = [0] * len(boxes)
    for _ in boxes:
        for waiter, awaited in sorted(arrows):
            if level[awaited] <= level[waiter] < len(boxes):
                level[awaited] = level[waiter] + 1
    order = sorted(range(len(boxes)), key=lambda at: (boxes[at].kind != "waits", level[at], at))
    return tuple(boxes[at] for at in order), {old: new for new, old in enumerate(order)}


# --- Without dumps --------------------------------------------------------------------------------


def _of_logs(triage: Triage) -> WaitPicture | None:
    """Witnesses by the collective in which their watchdogs waited, and those whom the verdict names."""
    waits: dict[tuple[str, str, int], list[RankRow]] = defaultdict(list)
    for row in triage.ranks:
        if row.standing in ("witness", "stuck"):
            waits[_named(row.collective)].append(row)
    named = tuple(sorted(c.rank for c in triage.verdict.culprits if c.rank is not None))
    suspects = tuple(row.rank for row in triage.ranks if row.standing == "suspect")
    if not waits or not (named or suspects):
        return None
    ordered = sorted(waits.items(), key=lambda item: (-len(item[1]), item[0]))
    boxes = [
        WaitBox(
            title=f"{_ranks(len(rows))} in {op or 'a collective'}{f' {seq}' if seq >= 0 else ''}{f' of {group}' if group else ''}",
            ranks=tuple(sorted(row.rank for row in rows)),
            detail="their watchdogs say so",
            kind="waits",
        )
        for (group, op, seq), rows in ordered[:MOST_BOXES]
    ]  # fmt: skip
    ends = [_end_box(triage, "culprit" if named else "suspect", named or suspects)]
    return WaitPicture(
        boxes=(*boxes, *ends),
        arrows=tuple((index, len(boxes)) for index in range(len(boxes))),
        told_by="lines of watchdogs, and the verdict",
        left_out=max(0, len(ordered) - MOST_BOXES),
    )


def _named(one: CollectiveRef) -> tuple[str, str, int]:
    return one.desc or one.group or "", one.op or "", -1 if one.seq is None else one.seq
