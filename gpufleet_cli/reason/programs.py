"""Whether all ranks run one program: found before anything else is blamed.

NCCL pairs the n-th collective of a group on each member, whatever it is. Where members called
different operations, sizes or types under one number, they hang, and no node is at fault. The
minority is the odd side; one against one is told by sibling groups (same description and size, and
ranks of the same role), else nobody is named. Disagreements about order are in `recorder_order`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpufleet_cli.facts import OpenOp, Origin
from gpufleet_cli.parsers.recorder_program import unpack
from gpufleet_cli.reason import recorder_world
from gpufleet_cli.reason.recorder_finding import GraphClaim, Mismatch, Side
from gpufleet_cli.reason.recorder_words import called, ranks_text, user_frame
from gpufleet_cli.reason.recorder_world import Group, Role, World

EQUAL_SIZES = frozenset(
    {
        "all_reduce",
        "all_reduce_barrier",
        "allreduce",
        "allreduce_coalesced",
        "broadcast",
        "reduce",
        "all_gather",
        "_all_gather_base",
        "all_gather_into_tensor_coalesced",
        "reduce_scatter",
        "_reduce_scatter_base",
        "reduce_scatter_tensor_coalesced",
        "barrier",
    }
)
"""Operations whose input is of one size on all members. All-to-all, gather and scatter are not."""

MOST_SIBLINGS = 16
MOST_MISMATCHES = 16

Call = tuple[str, int | None, str]
What = Literal["operation", "size", "dtype"]
DecidedBy = Literal["majority", "sibling groups", "role", ""]


BY: dict[DecidedBy, str] = {
    "majority": "majority",
    "sibling groups": "what sibling groups called",
    "role": "the program of its role",
    "": "nothing",
}


@dataclass(frozen=True, slots=True)
class _Caller:
    """What one rank called under a number."""

    rank: int
    call: Call
    op: OpenOp


def mismatches(world: World) -> list[Mismatch]:
    """Disagreements about open collectives, the one that most ranks wait in first."""
    waiting = Counter((wait.group, wait.op.seq) for wait in world.waits.values())
    disputed = []
    for group in world.groups:
        callers = _open_calls(world, group)
        for seq in sorted(callers):
            if len({caller.call for caller in callers[seq]}) > 1:
                disputed.append(
                    (-waiting[group.number, seq], group.name, group.number, callers[seq])
                )
                break
    disputed.sort(key=lambda found: found[:3])
    found = [
        _mismatch(world, world.groups[number], callers[0].op.seq, callers)
        for _, _, number, callers in disputed[:MOST_MISMATCHES]
    ]
    return [*found, *_pair_mismatches(world)][:MOST_MISMATCHES]


def _open_calls(world: World, group: Group) -> dict[int, list[_Caller]]:
    found: dict[int, list[_Caller]] = defaultdict(list)
    for rank, seen in group.seen.items():
        for op in seen.open_ops:
            if not op.is_p2p and not op.peers:
                found[op.seq].append(_Caller(rank, call_of(op.op, op.sizes, op.dtypes), op))
    return found


def call_of(op: str, sizes: str, dtypes: str) -> Call:
    """What has to agree: the operation, and for most operations the number of elements and type.

    >>> call_of("all_reduce", "64x64", "Float"), call_of("all_to_all", "64", "Float")
    (('all_reduce', 4096, 'Float'), ('all_to_all', None, ''))
    """
    return (op, _elements(sizes), dtypes) if op in EQUAL_SIZES else (op, None, "")


def _elements(sizes: str) -> int:
    total = 0
    for shape in sizes.split(","):
        count = 1 if shape else 0
        for value in shape.split("x") if shape else ():
            count *= int(value)
        total += count
    return total


def _mismatch(world: World, group: Group, seq: int, callers: Sequence[_Caller]) -> Mismatch:
    sides: dict[Call, list[_Caller]] = defaultdict(list)
    for caller in callers:
        sides[caller.call].append(caller)
    ordered = sorted(sides.items(), key=lambda item: (-len(item[1]), item[1][0].rank))
    largest = len(ordered[0][1])
    right: Call | None = None
    decided_by: DecidedBy = ""
    if largest * 2 > len(callers):
        right, decided_by = ordered[0][0], "majority"
    else:
        right = _siblings_say(world, group, seq, [caller.rank for caller in callers], set(sides))
        decided_by = "" if right is None else "sibling groups"
    if right is not None:
        ordered.sort(key=lambda item: item[0] != right)
    odd = [c for call, side in ordered if call != right for c in side] if right else []
    return _worded(world, group, seq, ordered, sorted(c.rank for c in odd), decided_by)


def _worded(
    world: World,
    group: Group,
    seq: int,
    ordered: Sequence[tuple[Call, Sequence[_Caller]]],
    odd: Sequence[int],
    decided_by: DecidedBy,
) -> Mismatch:
    what = _what([call for call, _ in ordered])
    ref = group.ref(ordered[0][0][0] if what != "operation" else None, seq)
    sides = tuple(
        Side(
            call=_shown(side[0]),
            ranks=tuple(sorted(c.rank for c in side)),
            frames=next((c.op.frames for c in side if c.op.frames), ()),
        )
        for _, side in ordered
    )
    against = "; ".join(f"{ranks_text(side.ranks)}: {side.call}" for side in sides)
    summary = f"Ranks disagree on the {what} of {called(ref)}: {against}."
    if odd:
        verb = "is" if len(odd) == 1 else "are"
        summary += f" By {BY[decided_by]}, {ranks_text(odd)} {verb} the odd side."
    return Mismatch(
        what=what,
        collective=ref,
        sides=sides,
        odd_ranks=tuple(odd),
        decided_by=decided_by,
        summary=summary,
        claims=_claims(world, group, seq, sides, [callers for _, callers in ordered], set(odd)),
    )


def _claims(
    world: World,
    group: Group,
    seq: int,
    sides: Sequence[Side],
    callers: Sequence[Sequence[_Caller]],
    odd: set[int],
) -> tuple[GraphClaim, ...]:
    """What each side called and from where, the odd side first."""
    pairs = sorted(zip(sides, callers, strict=True), key=lambda pair: odd.isdisjoint(pair[0].ranks))
    return tuple(
        GraphClaim(
            text=f"{ranks_text(side.ranks)} called {side.call} as number {seq} of"
            f" {group.desc or group.name}"
            + (f", from {user_frame(side.frames)}" if side.frames else ""),
            origin=_entry(world, side.ranks[0], who),
            rank=side.ranks[0] if len(side.ranks) == 1 else None,
        )
        for side, who in pairs
    )


def _what(calls: Sequence[Call]) -> What:
    if len({call[0] for call in calls}) > 1:
        return "operation"
    return "size" if len({call[1] for call in calls}) > 1 else "dtype"


def _shown(caller: _Caller) -> str:
    sizes = f" of {caller.op.sizes}" if caller.op.sizes else ""
    types = f" {caller.op.dtypes}" if caller.op.dtypes else ""
    return f"{caller.op.op}{sizes}{types}"


def _entry(world: World, rank: int, callers: Iterable[_Caller]) -> Origin:
    entry = next((c.op.entry for c in callers if c.rank == rank), None)
    return Origin(path=world.dumps[rank].path, entry=entry)


# --- What sibling groups say ----------------------------------------------------------------------


def _siblings_say(
    world: World, group: Group, seq: int, ranks: Sequence[int], calls: set[Call]
) -> Call | None:
    """The one call of several that groups of the same kind made under the same number."""
    roles = {_role(world, rank) for rank in ranks[:MOST_SIBLINGS]}
    alike = [
        g
        for g in world.groups
        if g.number != group.number
        and g.stated
        and (g.desc, len(g.members)) == (group.desc, len(group.members))
    ]
    same_role = [g for g in alike if any(_role(world, r) in roles for r in list(g.seen)[:2])]
    for among in (same_role, alike):
        votes: Counter[Call] = Counter()
        for sibling in among[:MOST_SIBLINGS]:
            call = _call_in(world, sibling, seq)
            if call in calls:
                votes[call] += 1
        ranked = votes.most_common(2)
        if ranked and (len(ranked) == 1 or ranked[0][1] > ranked[1][1]):
            return ranked[0][0]
    return None


def _role(world: World, rank: int) -> Role:
    return recorder_world.role(world, rank, recorder_world.slots(world, world.own[rank]))


def _call_in(world: World, group: Group, seq: int) -> Call | None:
    """What the ranks of a group called under a number, if they agree."""
    calls = {
        call
        for rank in list(group.seen)[:MOST_SIBLINGS]
        if (call := _call_of_rank(world, rank, group, seq)) is not None
    }
    return calls.pop() if len(calls) == 1 else None


def _call_of_rank(world: World, rank: int, group: Group, seq: int) -> Call | None:
    dump = world.dumps[rank]
    place = world.own[rank].index(group.number)
    program = unpack(dump.program)
    for row, number in zip(program.order, program.seqs, strict=True):
        kind = program.kinds[row]
        if kind.group == place and number == seq and not kind.is_p2p and not kind.peers:
            return call_of(kind.op, kind.sizes, kind.dtypes)
    return None


# --- Sends and receives ---------------------------------------------------------------------------


def _pair_mismatches(world: World) -> list[Mismatch]:
    """A send and the receive that stands opposite it, of different size or type."""
    found = []
    for rank, wait in sorted(world.waits.items()):
        if len(wait.op.peers) != 1 or not wait.op.peers[0][1] or not wait.op.sizes:
            continue
        group = world.groups[wait.group]
        other = group.rank_at(wait.op.peers[0][0])
        facing = None if other is None else world.waits.get(other)
        if other is None or facing is None or facing.group != wait.group:
            continue
        if facing.op.peers != ((group.index(rank), False),) or not facing.op.sizes:
            continue
        sent = ("send", _elements(wait.op.sizes), wait.op.dtypes)
        wanted = ("send", _elements(facing.op.sizes), facing.op.dtypes)
        if sent != wanted:
            sides = [
                (sent, [_Caller(rank, sent, wait.op)]),
                (wanted, [_Caller(other, wanted, facing.op)]),
            ]
            found.append(_worded(world, group, wait.op.seq, sides, [], ""))
    return found
