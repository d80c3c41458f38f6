"""Whether all ranks run one program: found before anything else is blamed.

NCCL pairs the n-th collective of a group on each member, whatever it is. Where members called
different operations, sizes or types under one number, they hang, and no node is at fault. The
minority is the odd side; one against one is told by sibling groups (same description and size, and
ranks of the same role), else nobody is named. A circle of waiting is an order in which some rank
left its role's program: it entered a later operation without an earlier one.
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
from gpufleet_cli.reason.recorder_graph import HOST_BEHIND, Graph
from gpufleet_cli.reason.recorder_words import called, ranks_text, user_frame
from gpufleet_cli.reason.recorder_world import Group, Role, Wait, World
from gpufleet_cli.verdict import CollectiveRef

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
MOST_PEERS = 64

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
    claims = tuple(
        GraphClaim(
            text=f"{ranks_text(side.ranks)} called {side.call} as number {seq} of"
            f" {group.desc or group.name}"
            + (f", from {user_frame(side.frames)}" if side.frames else ""),
            origin=_entry(world, side.ranks[0], callers),
            rank=side.ranks[0] if len(side.ranks) == 1 else None,
        )
        for side, (_, callers) in sorted(
            zip(sides, ordered, strict=True), key=lambda pair: not set(pair[0].ranks) & set(odd)
        )
    )
    return Mismatch(
        what=what,
        collective=ref,
        sides=sides,
        odd_ranks=tuple(odd),
        decided_by=decided_by,
        summary=summary,
        claims=claims,
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


# --- Order ----------------------------------------------------------------------------------------


def order_divergence(graph: Graph, circle: Sequence[int]) -> tuple[list[int], list[int], str]:
    """In a circle of waiting ranks: who left its role's program, who is only late, and a sentence.

    Rank q waits in Z and others wait for it in X, which it has not entered. If ranks of its role
    entered X and not yet Z, then X comes first and q skipped it. If they entered Z before X, q's
    own program simply stopped between the two.
    """
    world = graph.world
    inside = set(circle)
    votes = _OrderVotes(world)
    left: dict[int, int] = {}
    late: set[int] = set()
    said = ""
    disputed = [op for op in graph.operations if inside & set(op.at)]
    disputed.sort(key=lambda op: (-len(op.at), op.number))
    for operation in disputed[:MOST_PEERS]:
        candidates = [r for r in operation.behind if r in inside and r in world.waits]
        for rank in sorted(candidates)[:MOST_PEERS]:
            wait = world.waits[rank]
            if operation.behind[rank] != HOST_BEHIND or operation.wait.op.is_p2p:
                continue
            skipped, stopped = votes.of(rank, operation.wait, wait)
            if skipped > stopped:
                left[rank] = max(skipped, left.get(rank, 0))
                own = world.groups[wait.group].ref(wait.op.op, wait.op.seq)
                said = said or (
                    f"rank {rank} entered {called(own)} without {called(operation.ref(world))},"
                    f" which {skipped} {'rank' if skipped == 1 else 'ranks'} of its role"
                    " entered first"
                )
            elif stopped > skipped:
                late.add(rank)
    if len(left) > 1 and max(left.values()) < 2:
        return [], sorted(late), said  # one against one: each is the other's only witness
    return sorted(left), sorted(late), said


class _OrderVotes:
    """Asks ranks of the same role in which order they entered two operations."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.slots = {
            rank: recorder_world.slots(world, numbers) for rank, numbers in world.own.items()
        }
        self.roles: dict[Role, list[int]] = defaultdict(list)
        for rank, own in self.slots.items():
            self.roles[recorder_world.role(world, rank, own)].append(rank)
        self.programs: dict[int, list[tuple[int, bool, int]]] = {}

    def of(self, rank: int, x: Wait, z: Wait) -> tuple[int, int]:
        """How many entered X before Z, and how many Z before X."""
        own = self.slots[rank]
        slot_of = {group.number: slot for slot, group in own.items()}
        if x.group not in slot_of or z.group not in slot_of:
            return 0, 0
        before, after = 0, 0
        for peer in self.roles[recorder_world.role(self.world, rank, own)][:MOST_PEERS]:
            at_x = self.slots[peer].get(slot_of[x.group])
            at_z = self.slots[peer].get(slot_of[z.group])
            if peer != rank and at_x is not None and at_z is not None:
                first = self._first(peer, (at_x, x.op), (at_z, z.op))
                before += first == "x"
                after += first == "z"
        return before, after

    def _first(self, peer: int, x: tuple[Group, OpenOp], z: tuple[Group, OpenOp]) -> str:
        """Which of the two a rank entered first; "" where it has entered neither."""
        has_x, has_z = self._has_entered(peer, *x), self._has_entered(peer, *z)
        if has_x != has_z:
            return "x" if has_x else "z"
        places = {n: i for i, n in enumerate(self.world.own[peer])}
        wanted = {
            (places[group.number], op.is_p2p, op.seq): name
            for (group, op), name in ((x, "x"), (z, "z"))
        }
        found = (wanted[key] for key in self._program(peer) if key in wanted)
        return next(found, "") if has_x else ""

    def _has_entered(self, rank: int, group: Group, op: OpenOp) -> bool:
        if op.is_p2p:
            return (group.seen[rank].last_p2p or 0) >= op.seq
        return (self.world.entered(rank, group) or 0) >= op.seq

    def _program(self, rank: int) -> list[tuple[int, bool, int]]:
        """(place of the group, is p2p, number) of a rank's last operations in program order."""
        if rank not in self.programs:
            program = unpack(self.world.dumps[rank].program)
            self.programs[rank] = [
                (program.kinds[row].group, program.kinds[row].is_p2p, seq)
                for row, seq in zip(program.order, program.seqs, strict=True)
            ]
        return self.programs[rank]


def order_mismatch(
    graph: Graph, circle: Sequence[int], odd: Sequence[int], said: str, ref: CollectiveRef
) -> Mismatch:
    """A circle of waiting as a disagreement about order."""
    others = tuple(rank for rank in circle if rank not in set(odd))
    text = said or f"{ranks_text(circle)} wait for one another in operations that others skipped"
    sides = (Side(call="entered it", ranks=others), Side(call="skipped it", ranks=tuple(odd)))
    witness = (list(odd) or list(circle))[0]
    wait = graph.world.waits[witness]
    origin = Origin(path=graph.world.dumps[witness].path, entry=wait.op.entry)
    return Mismatch(
        what="order",
        collective=ref,
        sides=sides if odd else (Side(call="waits", ranks=tuple(circle)),),
        odd_ranks=tuple(odd),
        decided_by="role" if odd else "",
        summary=f"Ranks disagree on the order of collectives: {text}.",
        claims=(GraphClaim(text=text, origin=origin, rank=odd[0] if len(odd) == 1 else None),),
    )
