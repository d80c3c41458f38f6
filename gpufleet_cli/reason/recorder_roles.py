"""Who left the program of its role, by what each rank recorded next after the same operation.

Ranks of one role enter the same operations in the same order. A rank that skips one, calls two in
the wrong order or puts one in between has, at one place, another next operation than its peers;
everything after it may look like waiting in a circle, or like a fault in flight. Only places count
where the stall is: the peers' next operation, or the rank's own, is open. Programs that differ in
operations which all ended differ by intent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from gpufleet_cli.facts import Origin
from gpufleet_cli.reason import recorder_world
from gpufleet_cli.reason.recorder_cast import Line, lines_of
from gpufleet_cli.reason.recorder_finding import GraphClaim, Mismatch, Side
from gpufleet_cli.reason.recorder_words import called, ranks_text
from gpufleet_cli.reason.recorder_world import Group, Role, Slot, World
from gpufleet_cli.verdict import CollectiveRef

MOST_PEERS = 64
LEAST_VOTES = 2
MOST_ODD = 0.34

Call = tuple[Slot, bool, int, str, str, str]  # slot, is p2p, number, operation, sizes, dtypes
Place = tuple[int, bool, int]  # number of the group, is p2p, number


@dataclass(frozen=True, slots=True)
class Divergence:
    """`rank` entered `own` after `before`, where `votes` of its role entered `usual`. `what`: how the two
    differ, which is in size or type alone where nobody of its role makes such a call under any number."""

    rank: int
    before: Call
    own: Call
    usual: Call
    votes: int
    what: Literal["order", "size", "dtype"] = "order"


def divergences(
    world: World, candidates: Collection[int], waited: Collection[Place] = ()
) -> list[Divergence]:
    """The ranks among `candidates` that left the majority of their role, the first place of each.
    `waited`: operations that ranks without a dump wait in by their logs."""
    roles = _by_role(world, candidates)
    found: list[Divergence] = []
    for (_role, asked), peers in sorted(roles.items(), key=lambda item: item[1]):
        among = sorted({*asked, *peers[:MOST_PEERS]})
        slots = {r: recorder_world.slots(world, world.own[r]) for r in among}
        programs = {r: _program(world, r, slots[r]) for r in among}
        odd = [
            d
            for rank in asked
            if (d := _first_difference(world, rank, slots[rank], programs, waited)) is not None
        ]
        if len(odd) <= max(1, MOST_ODD * len(among)):
            found += odd
    return found


@dataclass(frozen=True, slots=True)
class Miscount:
    """`rank` has entered `own` collectives of a group when it entered `last`, where `votes` of its role
    had entered `usual`."""

    rank: int
    last: Call
    slot: Slot
    own: int
    usual: int
    votes: int


def miscounts(world: World, candidates: Collection[int]) -> list[Miscount]:
    """The ranks among `candidates` that skipped a collective, or put one in, by their counters alone: two
    ranks of a role whose newest operation is the same stand at one place of one program. A whole group
    may have called more than others of its kind by intent; one member of it may not."""
    found: list[Miscount] = []
    for (_role, asked), peers in sorted(
        _by_role(world, candidates, with_active=True).items(), key=lambda item: item[1]
    ):
        slots = {
            r: recorder_world.slots(world, world.own[r])
            for r in sorted({*asked, *peers[:MOST_PEERS]})
        }
        together: dict[Call, list[int]] = defaultdict(list)
        for rank, own in slots.items():
            program = _program(world, rank, own)
            if program:
                together[program[-1]].append(rank)
        for last, ranks in sorted(together.items()):
            odd = [
                m
                for slot in sorted(slots[ranks[0]])
                for m in _odd_counts(world, ranks, slots, slot, last)
            ]
            found += [m for m in odd if m.rank in asked]
    return found


def _odd_counts(
    world: World,
    ranks: Sequence[int],
    slots: Mapping[int, Mapping[Slot, Group]],
    slot: Slot,
    last: Call,
) -> list[Miscount]:
    """Of ranks at one place, those whose count of a group is not that of most, nor of its other members."""
    counts = {
        rank: count
        for rank in ranks
        if (count := world.entered(rank, slots[rank][slot])) is not None
    }
    usual, votes = Counter(counts.values()).most_common(1)[0] if counts else (0, 0)
    odd = [rank for rank, count in counts.items() if count != usual]
    if votes < LEAST_VOTES or len(odd) > max(1, MOST_ODD * len(counts)):
        return []
    return [
        Miscount(rank, last, slot, counts[rank], usual, votes)
        for rank in odd
        if any(counts.get(member) == usual for member in slots[rank][slot].members)
        and any(seen.open_ops for seen in slots[rank][slot].seen.values())
    ]


def _by_role(
    world: World, candidates: Collection[int], *, with_active: bool = False
) -> dict[tuple[Role, tuple[int, ...]], list[int]]:
    """The candidates of each role, with all ranks of it."""
    wanted = set(candidates)
    everyone: dict[Role, list[int]] = defaultdict(list)
    for rank in sorted(world.dumps):
        dump = world.dumps[rank]
        if dump.program and (with_active or not dump.only_active):
            own = recorder_world.slots(world, world.own[rank])
            everyone[recorder_world.role(world, rank, own)].append(rank)
    return {
        (role, asked): ranks
        for role, ranks in everyone.items()
        if (asked := tuple(rank for rank in ranks if rank in wanted)) and len(ranks) > LEAST_VOTES
    }


def _program(world: World, rank: int, own: Mapping[Slot, Group]) -> list[Call]:
    return [_call(line) for line in lines_of(world, rank, own)]


def _call(line: Line) -> Call:
    """What has to agree: all-to-all has other sizes on each rank, and a ring other peers."""
    kind = line.kind
    is_loose = kind.is_p2p or bool(kind.peers) or "all_to_all" in kind.op
    sizes, dtypes = ("", "") if is_loose else (kind.sizes, kind.dtypes)
    return line.slot, kind.is_p2p, line.seq, kind.op, sizes, dtypes


def _first_difference(
    world: World,
    rank: int,
    own: Mapping[Slot, Group],
    programs: Mapping[int, Sequence[Call]],
    waited: Collection[Place],
) -> Divergence | None:
    mine = programs[rank]
    following: dict[Call, Counter[Call]] = defaultdict(Counter)
    for peer, program in programs.items():
        if peer != rank:
            for before, after in pairwise(program):
                following[before][after] += 1
    for before, after in pairwise(mine):
        votes = following.get(before)
        if not votes:
            continue
        usual, count = votes.most_common(1)[0]
        if usual == after or count < LEAST_VOTES or votes[after] * 3 >= count:
            continue
        if _is_open(own, usual, waited) or _is_open(own, after, waited):
            others = [program for peer, program in programs.items() if peer != rank]
            return Divergence(rank, before, after, usual, count, _what(after, usual, others))
    return None


def _what(
    own: Call, usual: Call, others: Iterable[Sequence[Call]]
) -> Literal["order", "size", "dtype"]:
    if own[:4] != usual[:4]:
        return "order"
    if any(call[0] == own[0] and call[3:] == own[3:] for program in others for call in program):
        return "order"
    return "size" if own[4] != usual[4] else "dtype"


def _is_open(own: Mapping[Slot, Group], call: Call, waited: Collection[Place]) -> bool:
    """Whether a member of the rank's own group has the operation open, by its dump or its log."""
    slot, is_p2p, seq = call[:3]
    group = own.get(slot)
    if group is None:
        return False
    if (group.number, is_p2p, seq) in waited:
        return True
    return any(
        op.seq == seq and op.is_p2p == is_p2p
        for seen in group.seen.values()
        for op in seen.open_ops
    )


# --- In words --------------------------------------------------------------------------------------


def mismatch(world: World, found: Sequence[Divergence]) -> Mismatch:
    """The first place where somebody left its role, as a disagreement about order."""
    odd = tuple(sorted({d.rank for d in found}))
    claims = tuple(_claim(world, d) for d in sorted(found, key=lambda d: (-d.votes, d.rank))[:4])
    first = max(found, key=lambda d: (d.votes, -d.rank))
    ref = _ref(world, first.rank, first.usual)
    group = recorder_world.slots(world, world.own[first.rank])[first.usual[0]]
    others = tuple(r for r in group.members if r in world.dumps and r not in odd)
    what = first.what
    usual, own = (
        ("entered it", "left it out")
        if what == "order"
        else (_shown(first.usual), _shown(first.own))
    )
    return Mismatch(
        what=what,
        collective=ref,
        sides=(Side(call=usual, ranks=others), Side(call=own, ranks=odd)),
        odd_ranks=odd,
        decided_by="role",
        summary=f"Ranks disagree on the {_of(what)}: {claims[0].text}.",
        claims=claims,
    )


def _of(what: str) -> str:
    return "order of collectives" if what == "order" else f"{what} of a collective"


def _shown(call: Call) -> str:
    return f"{call[3]} of {call[4]} {call[5]}".rstrip()


def miscount_mismatch(world: World, found: Sequence[Miscount]) -> Mismatch:
    """Ranks whose counters left their role, as a disagreement about order."""
    odd = tuple(sorted({m.rank for m in found}))
    first = max(found, key=lambda m: (m.votes, -m.rank))
    group = recorder_world.slots(world, world.own[first.rank])[first.slot]
    others = tuple(r for r in group.members if r in world.dumps and r not in odd)
    word = "left one out" if first.own < first.usual else "entered one more"
    text = (
        f"{ranks_text([first.rank])} entered {called(_ref(world, first.rank, first.last))} with"
        f" {first.own:,} collectives of {group.desc or group.name} behind it, where {first.votes:,} of"
        f" its role had {first.usual:,}"
    )
    dump = world.dumps[first.rank]
    wait = world.waits.get(first.rank)
    entry = wait.op.entry if wait is not None else max(0, dump.entries - 1)
    return Mismatch(
        what="order",
        collective=group.ref(seq=min(first.own, first.usual) + 1),
        sides=(Side(call="entered it", ranks=others), Side(call=word, ranks=odd)),
        odd_ranks=odd,
        decided_by="role",
        summary=f"Ranks disagree on the order of collectives: {text}.",
        claims=(
            GraphClaim(text=text, origin=Origin(path=dump.path, entry=entry), rank=first.rank),
        ),
    )


def _ref(world: World, rank: int, call: Call) -> CollectiveRef:
    group = recorder_world.slots(world, world.own[rank])[call[0]]
    return group.ref(call[3], call[2])


def _claim(world: World, d: Divergence) -> GraphClaim:
    own, usual, before = (called(_ref(world, d.rank, call)) for call in (d.own, d.usual, d.before))
    text = (
        f"{ranks_text([d.rank])} entered {own} after {before}, where {d.votes:,} of its role"
        f" entered {usual}"
    )
    if d.what != "order":
        text = (
            f"{ranks_text([d.rank])} called {own} as {_shown(d.own)}, where {d.votes:,} of its role"
            f" called {_shown(d.usual)}"
        )
    dump = world.dumps[d.rank]
    wait = world.waits.get(d.rank)
    entry = wait.op.entry if wait is not None else max(0, dump.entries - 1)
    return GraphClaim(text=text, origin=Origin(path=dump.path, entry=entry), rank=d.rank)
