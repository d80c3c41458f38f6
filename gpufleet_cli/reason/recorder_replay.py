"""Where ranks without a dump would stand if nothing were wrong with them.

Ranks of one role run the same program, so a missing rank's next operation is the one behind the
last that its peers completed with it. A healthy missing rank so becomes one more that waits, and a
guilty one the end of the waiting (facts: localisation 3). What cannot be replayed (a role with no
dump at all, groups with no present member) stays unknown, and says so by having no wait.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpufleet_cli.facts import OpenOp
from gpufleet_cli.reason import recorder_world
from gpufleet_cli.reason.recorder_cast import Line, Part, Script
from gpufleet_cli.reason.recorder_world import Group, Slot, Wait, World


@dataclass(slots=True)
class Ghost:
    """A rank without a dump: where it would wait, and its counters by group, if healthy.

    `is_partly_known`: its role has groups of which no member left a dump. `is_sure`: a rank with a
    dump shows that the operation it would wait in is not over, so it cannot stand behind it.
    `is_logged`: its own log says where it waits, as well as a dump would; `opposite` is then the other
    side's number of the transfer that it waits in. `part` is what it was replayed from.
    """

    rank: int
    is_logged: bool = False
    opposite: int | None = None
    part: Part | None = None
    is_partly_known: bool = True
    is_sure: bool = False
    wait: Wait | None = None
    entered: dict[int, int] = field(default_factory=dict)
    completed: dict[int, int] = field(default_factory=dict)


def ghosts(world: World, parts: Mapping[int, Part]) -> dict[int, Ghost]:
    """Every missing rank, replayed as far as its peers tell."""
    shared = proven_numbers(world)
    return {
        rank: Ghost(rank) if part.script is None else _replay(rank, part, part.script, shared)
        for rank, part in parts.items()
    }


def proven_numbers(world: World) -> dict[int, int]:
    """By group, the last number that every member must have entered, since some completed it."""
    found = {}
    for group in world.groups:
        proofs = [recorder_world.proven(world, rank, group) for rank in group.seen]
        numbers = [number for number in proofs if number is not None]
        if numbers:
            found[group.number] = max(numbers)
    return found


def _replay(rank: int, part: Part, script: Script, shared: Mapping[int, int]) -> Ghost:
    own = part.own
    position = 0
    for slot, group in own.items():
        if group.number in shared:
            passed = bisect_right(script.seqs.get(slot, []), shared[group.number])
            if passed:
                position = max(position, script.places[slot][passed - 1] + 1)
    for i in sorted(script.facing):
        line = script.lines[i]
        # What the other side received, this one has sent; a small send ends without its receiver.
        is_send = line.kind.peers[0][1]
        if i < position or not is_send or line.slot not in own:
            continue
        if _is_done(own[line.slot], *script.facing[i]):
            position = i + 1
    for i, distances in sorted(script.rings.items()):
        line = script.lines[i]
        if i >= position and _has_passed(rank, own.get(line.slot), line.seq, distances):
            position = i + 1
    if part.stands is not None:
        position = part.stands
    reached = position
    while (
        position < len(script.lines)
        and position != part.stands
        and _is_unsure(rank, own, script, position)
    ):
        position += 1
    ghost = Ghost(
        rank,
        is_logged=part.stands is not None,
        opposite=_opposite(script, part.stands),
        part=part,
        is_partly_known=not set(script.entered) <= set(own),
    )
    for slot, group in own.items():
        count = _entered_by(script, slot, position)
        done = max(count, shared.get(group.number, 0))
        ghost.completed[group.number] = ghost.entered[group.number] = done
    is_placed = part.stands is not None or any(g.number in shared for g in own.values())
    if position < len(script.lines) and is_placed:
        line = script.lines[position]
        if line.slot in own:
            ghost.wait = _wait(rank, own, line)
            seen = bool(own[line.slot].seen) or part.stands is not None
            ghost.is_sure = position == reached and seen
            if not line.kind.is_p2p:
                ghost.entered[ghost.wait.group] = line.seq
    return ghost


def _opposite(script: Script, stands: int | None) -> int | None:
    facing = None if stands is None else script.facing.get(stands)
    return None if facing is None else facing[1]


def _entered_by(script: Script, slot: Slot, position: int) -> int:
    """The slot's last collective before a line of the program."""
    places, seqs = script.places.get(slot), script.seqs.get(slot)
    if not places or not seqs:
        return script.entered.get(slot, 0)
    before = bisect_left(places, position)
    return seqs[before - 1] if before else seqs[0] - 1


def _is_unsure(rank: int, own: Mapping[Slot, Group], script: Script, position: int) -> bool:
    """Whether a line is a transfer of which nothing tells that it is not over."""
    line = script.lines[position]
    if not line.kind.is_p2p or position in script.facing or line.slot not in own:
        return False
    group = own[line.slot]
    me = group.index(rank)
    others = [group.rank_at(place) for place, _ in line.kind.peers]
    return not any(
        (me, not is_send) in op.peers
        for other, (_, is_send) in zip(others, line.kind.peers, strict=True)
        if other in group.seen
        for op in group.seen[other].open_ops
    )


def _is_done(group: Group, place: int, seq: int) -> bool:
    """Whether the other side of a transfer has completed it, by its own number of it."""
    other = group.rank_at(place)
    seen = None if other is None else group.seen.get(other)
    if seen is None or seen.last_p2p is None or seen.last_p2p < seq:
        return False
    return all(op.seq != seq for op in seen.open_ops if op.is_p2p)


def has_passed(part: Part, group: Group, facing: tuple[int | None, bool], number: int) -> bool:
    """Whether a rank's own log shows it behind a transfer: `facing` is the other side's place and the
    rank's own direction, `number` the other side's number of it."""
    if part.script is None or part.stands is None:
        return False
    found = [
        i
        for i, (_, theirs) in part.script.facing.items()
        if theirs == number
        and part.own.get(part.script.lines[i].slot) is group
        and part.script.lines[i].kind.peers == (facing,)
    ]
    return bool(found) and found[0] < part.stands


def _has_passed(rank: int, group: Group | None, seq: int, distances: Sequence[int]) -> bool:
    """Whether the other side of a batch has completed it, which takes this rank's part."""
    me = None if group is None else group.index(rank)
    if group is None or me is None:
        return False
    size = len(group.members)
    return any(_is_done(group, (me + distance) % size, seq) for distance in distances)


def _wait(rank: int, own: Mapping[Slot, Group], line: Line) -> Wait:
    op = OpenOp(
        entry=0,
        seq=line.seq,
        op=line.kind.op,
        is_p2p=line.kind.is_p2p,
        sizes=line.kind.sizes,
        dtypes=line.kind.dtypes,
        created_ns=None,
        peers=line.kind.peers,
    )
    return Wait(rank, own[line.slot].number, op)
