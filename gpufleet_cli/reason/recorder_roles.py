"""Who left the program of its role, by what each rank recorded next after the same operation.

Ranks of one role enter the same operations in the same order. A rank that skips one, calls two in
the wrong order or puts one in between has, at one place, another next operation than its peers;
everything after it may look like waiting in a circle, or like a fault in flight. Only places count
where the stall is: the peers' next operation, or the rank's own, is open. Programs that differ in
operations which all ended differ by intent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

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


@dataclass(frozen=True, slots=True)
class Divergence:
    """`rank` entered `own` after `before`, where `votes` of its role entered `usual`."""

    rank: int
    before: Call
    own: Call
    usual: Call
    votes: int


def divergences(world: World, candidates: Collection[int]) -> list[Divergence]:
    """The ranks among `candidates` that left the majority of their role, the first place of each."""
    roles = _by_role(world, candidates)
    found: list[Divergence] = []
    for (_role, asked), peers in sorted(roles.items(), key=lambda item: item[1]):
        among = sorted({*asked, *peers[:MOST_PEERS]})
        slots = {r: recorder_world.slots(world, world.own[r]) for r in among}
        programs = {r: _program(world, r, slots[r]) for r in among}
        odd = [
            d
            for rank in asked
            if (d := _first_difference(world, rank, slots[rank], programs)) is not None
        ]
        if len(odd) <= max(1, MOST_ODD * len(among)):
            found += odd
    return found


def _by_role(
    world: World, candidates: Collection[int]
) -> dict[tuple[Role, tuple[int, ...]], list[int]]:
    """The candidates of each role, with all ranks of it."""
    wanted = set(candidates)
    everyone: dict[Role, list[int]] = defaultdict(list)
    for rank in sorted(world.dumps):
        dump = world.dumps[rank]
        if dump.program and not dump.only_active:
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
    world: World, rank: int, own: Mapping[Slot, Group], programs: Mapping[int, Sequence[Call]]
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
        if _is_open(world, own, usual) or _is_open(world, own, after):
            return Divergence(rank, before, after, usual, count)
    return None


def _is_open(world: World, own: Mapping[Slot, Group], call: Call) -> bool:
    """Whether a member of the rank's own group has the operation open."""
    slot, is_p2p, seq = call[:3]
    group = own.get(slot)
    if group is None:
        return False
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
    return Mismatch(
        what="order",
        collective=ref,
        sides=(Side(call="entered it", ranks=others), Side(call="left it out", ranks=odd)),
        odd_ranks=odd,
        decided_by="role",
        summary=f"Ranks disagree on the order of collectives: {claims[0].text}.",
        claims=claims,
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
    dump = world.dumps[d.rank]
    wait = world.waits.get(d.rank)
    entry = wait.op.entry if wait is not None else max(0, dump.entries - 1)
    return GraphClaim(text=text, origin=Origin(path=dump.path, entry=entry), rank=d.rank)
