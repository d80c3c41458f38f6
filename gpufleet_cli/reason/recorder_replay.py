"""Where ranks without a dump would stand if nothing were wrong with them.

Ranks of one role run the same program, so a missing rank's next operation is the one behind the
last that its peers completed with it. A healthy missing rank so becomes one more that waits, and a
guilty one the end of the waiting (facts: localisation 3). What cannot be replayed (a role with no
dump at all, groups with no present member) stays unknown, and says so by having no wait.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from gpufleet_cli.facts import OpenOp, RankDump
from gpufleet_cli.parsers.recorder_program import OpKind, operations, unpack
from gpufleet_cli.reason import recorder_world
from gpufleet_cli.reason.op_names import op_type
from gpufleet_cli.reason.recorder_world import Group, Role, Slot, Wait, World

MOST_ALIKE = 8
"""How many ranks of a role are asked for the transfers that the first of them leaves open."""


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


@dataclass(frozen=True, slots=True)
class Line:
    """One operation of a role's program."""

    slot: Slot
    seq: int
    kind: OpKind


@dataclass(frozen=True, slots=True)
class Script:
    """The program of a role, as the rank that got furthest has recorded its end.

    `places[slot]` are the lines of that slot's collectives and `seqs[slot]` their numbers, both
    rising; `entered` is how far that rank got in each slot. `facing` gives, for lines that send or
    receive, the other side's place in the group and its number of the same transfer. `rings` are
    batches whose other sides stand opposite with a batch of the same number, with how far off they sit.
    """

    lines: tuple[Line, ...]
    places: Mapping[Slot, list[int]]
    seqs: Mapping[Slot, list[int]]
    facing: Mapping[int, tuple[int, int]]
    rings: Mapping[int, tuple[int, ...]]
    entered: Mapping[Slot, int]


@dataclass(frozen=True, slots=True)
class Logged:
    """The oldest operation that a rank's own watchdog gave up on, by its log: `group` is the name of
    the process group where the line has it, `op` the watchdog's word."""

    group: str | None
    seq: int
    op: str


@dataclass(frozen=True, slots=True)
class Part:
    """What a missing rank has to play: its groups by slot, and the script of its role (None: no
    rank of its role left a program). `stands` is the line that its own log says it waits in."""

    own: Mapping[Slot, Group]
    script: Script | None
    stands: int | None = None


def cast(
    world: World, missing: Iterable[int], logged: Mapping[int, Logged] = MappingProxyType({})
) -> dict[int, Part]:
    """Every missing rank with the script of its role."""
    wanted = sorted(missing)
    if not wanted:
        return {}
    memberships = _memberships(world, set(wanted))
    roles = _roles(world)
    scripts: dict[Role, Script | None] = {}
    found: dict[int, Part] = {}
    for rank in wanted:
        own = recorder_world.slots(world, memberships.get(rank, []))
        key = recorder_world.role(world, rank, own)
        if key not in scripts:
            scripts[key] = _script(world, roles[key]) if key in roles else None
        script = scripts[key]
        if script is None:
            of = _role_of_peers(world, own, key, roles)
            if of is not None:
                scripts.setdefault(of, _script(world, roles[of]))
                script = scripts[of]
        stands = None
        if script is not None and rank in logged:
            stands = _line_of(own, script, logged[rank])
        found[rank] = Part(own, script, stands)
    return found


def _line_of(own: Mapping[Slot, Group], script: Script, logged: Logged) -> int | None:
    """The line of a script that a log speaks of; None where it is not told, or not the only one."""
    found = [
        i
        for i, line in enumerate(script.lines)
        if line.seq == logged.seq
        and _is_called(line.kind.op, logged.op)
        and line.slot in own
        and logged.group in (None, own[line.slot].name)
    ]
    return found[0] if len(found) == 1 else None


def _is_called(op: str, word: str) -> bool:
    """Whether a watchdog's word may be this operation: one word stands for both kinds of all-to-all."""
    return (op_type(op) or "").removesuffix("_BASE") == word.removesuffix("_BASE")


def ghosts(world: World, parts: Mapping[int, Part]) -> dict[int, Ghost]:
    """Every missing rank, replayed as far as its peers tell."""
    shared = proven_numbers(world)
    return {
        rank: Ghost(rank) if part.script is None else _replay(rank, part, part.script, shared)
        for rank, part in parts.items()
    }


def _memberships(world: World, ranks: set[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for group in world.groups:
        if group.stated:
            for member in group.members:
                if member in ranks:
                    found[member].append(group.number)
    return found


def _roles(world: World) -> dict[Role, list[int]]:
    found: dict[Role, list[int]] = defaultdict(list)
    for rank, numbers in world.own.items():
        own = recorder_world.slots(world, numbers)
        found[recorder_world.role(world, rank, own)].append(rank)
    return found


def _role_of_peers(
    world: World, own: Mapping[Slot, Group], key: Role, roles: Mapping[Role, list[int]]
) -> Role | None:
    """The role of a rank some of whose groups left no dump at all and are not known: one that has the
    slots that are known and more. Where several have, those of the ranks beside it in its groups tell."""
    slots, places = key
    able = {role for role in roles if set(slots) <= set(role[0]) and set(places) <= set(role[1])}
    if not able:
        return None
    if len({role[1] for role in able}) > 1:
        able = _beside(world, own, able)
    if len({role[1] for role in able}) != 1:
        return None
    return min(able, key=lambda role: (len(role[0]), role))


def _beside(world: World, own: Mapping[Slot, Group], able: set[Role]) -> set[Role]:
    """Roles of the members of the smallest group that has any of one role alone: a group across the
    pipeline holds several."""
    for _, group in sorted(own.items(), key=lambda item: (len(item[1].members), item[0])):
        found = {
            recorder_world.role(world, rank, recorder_world.slots(world, world.own[rank]))
            for rank in group.seen
        } & able
        if found and len({role[1] for role in found}) == 1:
            return found
    return able


def _script(world: World, ranks: Sequence[int]) -> Script | None:
    """The program of the rank of this role that has entered most."""
    able = [
        rank for rank in ranks if world.dumps[rank].program and not world.dumps[rank].only_active
    ]
    if not able:
        return None
    best = max(able, key=lambda rank: (_progress(world.dumps[rank]), -rank))
    own = recorder_world.slots(world, world.own[best])
    lines = _lines(world, best, own)
    places: dict[Slot, list[int]] = defaultdict(list)
    seqs: dict[Slot, list[int]] = defaultdict(list)
    for i, line in enumerate(lines):
        if not line.kind.is_p2p:
            places[line.slot].append(i)
            seqs[line.slot].append(line.seq)
    entered = {
        slot: count
        for slot, group in own.items()
        if (count := group.seen[best].last_enqueued) is not None
    }
    facing = _all_facing(world, best, able, own, lines)
    rings = _rings(world, best, own, lines)
    return Script(tuple(lines), places, seqs, facing, rings, entered)


def _lines(world: World, rank: int, own: Mapping[Slot, Group]) -> list[Line]:
    """What a rank has recorded, oldest first."""
    slot_of = {group.number: slot for slot, group in own.items()}
    numbers = world.own[rank]
    found = []
    for kind, seq in operations(unpack(world.dumps[rank].program)):
        slot = slot_of.get(numbers[kind.group])
        if slot is not None:
            found.append(Line(slot, seq, kind))
    return found


def _progress(dump: RankDump) -> int:
    return sum((g.last_enqueued or 0) + (g.last_p2p or 0) for g in dump.groups)


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


def _all_facing(
    world: World,
    best: int,
    alike: Sequence[int],
    own: Mapping[Slot, Group],
    lines: Sequence[Line],
) -> dict[int, tuple[int, int]]:
    """`_facing` of the rank that got furthest; where its own peer left no dump, of another of its
    role, whose numbers are the same."""
    found = _facing(world, best, own, lines)
    at = {(line.slot, line.seq): i for i, line in enumerate(lines) if line.kind.is_p2p}
    for rank in [rank for rank in alike if rank != best][:MOST_ALIKE]:
        if len(found) == len(at):
            break
        slots = recorder_world.slots(world, world.own[rank])
        theirs = _lines(world, rank, slots)
        for i, facing in _facing(world, rank, slots, theirs).items():
            mine = at.get((theirs[i].slot, theirs[i].seq))
            if mine is not None and lines[mine].kind.peers == theirs[i].kind.peers:
                found.setdefault(mine, facing)
    return found


def other_number(world: World, rank: int, group: Group, op: OpenOp) -> int | None:
    """The other side's number of a transfer that a rank has open, where both left a dump."""
    own = recorder_world.slots(world, world.own[rank])
    lines = _lines(world, rank, own)
    for i, (_, number) in _facing(world, rank, own, lines).items():
        line = lines[i]
        if own[line.slot] is group and line.seq == op.seq and line.kind.peers == op.peers:
            return number
    return None


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


def _rings(
    world: World, rank: int, own: Mapping[Slot, Group], lines: Sequence[Line]
) -> dict[int, tuple[int, ...]]:
    """Batches that all members of a group count alike, by what the rank's present peers recorded:
    by line, the distances in the group to the other sides."""
    theirs: dict[tuple[Slot, int, bool], set[int]] = {}
    found = {}
    for i, line in enumerate(lines):
        if len(line.kind.peers) < 2:
            continue
        group = own[line.slot]
        me = group.index(rank)
        said = []
        for place, is_send in line.kind.peers:
            other = group.rank_at(place)
            if me is None or other is None or other not in group.seen:
                continue
            key = (line.slot, place, is_send)
            if key not in theirs:
                theirs[key] = set(_transfers(world, other, group, (me, not is_send)))
            said.append(line.seq in theirs[key])
        if me is not None and said and all(said):
            found[i] = tuple((place - me) % len(group.members) for place, _ in line.kind.peers)
    return found


def _has_passed(rank: int, group: Group | None, seq: int, distances: Sequence[int]) -> bool:
    """Whether the other side of a batch has completed it, which takes this rank's part."""
    me = None if group is None else group.index(rank)
    if group is None or me is None:
        return False
    size = len(group.members)
    return any(_is_done(group, (me + distance) % size, seq) for distance in distances)


def _facing(
    world: World, rank: int, own: Mapping[Slot, Group], lines: Sequence[Line]
) -> dict[int, tuple[int, int]]:
    """The other side's number of each transfer of a rank.

    The n-th send of one side is the n-th receive of the other; rings may have wrapped differently,
    so both are counted back from the newest transfer that is done.
    """
    mine: dict[tuple[Slot, int, bool], list[int]] = defaultdict(list)
    for i, line in enumerate(lines):
        if line.kind.is_p2p and len(line.kind.peers) == 1:
            mine[line.slot, *line.kind.peers[0]].append(i)
    found: dict[int, tuple[int, int]] = {}
    for (slot, place, is_send), indexes in mine.items():
        group = own[slot]
        other, me = group.rank_at(place), group.index(rank)
        if other is None or me is None or other not in world.dumps or other not in group.seen:
            continue
        theirs = _transfers(world, other, group, (me, not is_send))
        open_here = _open_numbers(group, rank)
        open_there = _open_numbers(group, other)
        done = sum(lines[i].seq not in open_here for i in indexes)
        done_there = sum(seq not in open_there for seq in theirs)
        for nth, i in enumerate(indexes):
            at = nth - done + done_there
            if 0 <= at < len(theirs):
                found[i] = (place, theirs[at])
    return found


def _transfers(world: World, rank: int, group: Group, wanted: tuple[int, bool]) -> list[int]:
    """A rank's own numbers of its sends to, or receives from, one member."""
    place = world.own[rank].index(group.number)
    return [
        seq
        for kind, seq in operations(unpack(world.dumps[rank].program))
        if kind.group == place and kind.is_p2p and wanted in kind.peers
    ]


def _open_numbers(group: Group, rank: int) -> set[int]:
    return {op.seq for op in group.seen[rank].open_ops if op.is_p2p}


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
