"""What ranks without a dump have to play: their groups and the program of their role.

Ranks of one role run the same program, and the numbers of its operations are the same. The rank of a
role that got furthest gives the script; where a missing rank waits by its own log, that is its line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gpufleet_cli.facts import OpenOp, RankDump
from gpufleet_cli.parsers.recorder_program import OpKind, operations, unpack
from gpufleet_cli.reason import recorder_world
from gpufleet_cli.reason.op_names import op_type
from gpufleet_cli.reason.recorder_world import Group, Role, Slot, World

MOST_ALIKE = 8
"""How many ranks of a role are asked for the transfers that the first of them leaves open."""


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
    """The oldest operation that a rank's own watchdog gave up on, by its log: `group` and `desc` are
    the process group's where the line has them, `op` the watchdog's word."""

    group: str | None
    seq: int
    op: str
    desc: str | None = None


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
    roles = _roles(world)
    _add_logged_groups(world, wanted, logged, roles)
    memberships = _memberships(world, set(wanted))
    scripts: dict[Role, Script | None] = {}
    cast_as: dict[int, tuple[dict[Slot, Group], Script | None]] = {}
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
        cast_as[rank] = own, script
    _add_unseen_groups(world, cast_as)
    return {
        rank: Part(own, script, _stands(own, script, logged.get(rank)))
        for rank, (own, script) in cast_as.items()
    }


def _add_unseen_groups(
    world: World, cast_as: Mapping[int, tuple[dict[Slot, Group], Script | None]]
) -> None:
    """Groups none of whose members left a dump: of the missing ranks that lack a group of their role,
    those that stand to one another as the members of the groups that are known do."""
    lacking: dict[Slot, list[int]] = defaultdict(list)
    for rank, (own, script) in cast_as.items():
        for slot in set() if script is None else {line.slot for line in script.lines} - own.keys():
            lacking[slot].append(rank)
    for slot, ranks in sorted(lacking.items()):
        desc, size, _ = slot
        for members in _split(sorted(ranks), size, _shape(world, desc, size)):
            name = f"({desc} of rank {members[0]} and others without a dump)"
            group = Group(len(world.groups), name, desc, members, stated=True)
            world.groups.append(group)
            for rank in members:
                cast_as[rank][0][slot] = group


def _shape(world: World, desc: str, size: int) -> tuple[int, ...] | None:
    """How far the members of such a group stand from its first, where that is the same in all."""
    shapes = {
        tuple(member - group.members[0] for member in group.members)
        for group in world.groups
        if group.stated and group.desc == desc and len(group.members) == size
    }
    shape = shapes.pop() if len(shapes) == 1 else None
    return shape if shape is not None and min(shape) == 0 else None


def _split(ranks: Sequence[int], size: int, shape: tuple[int, ...] | None) -> list[tuple[int, ...]]:
    """Ranks as groups of one shape; none where they are not made of such groups alone.

    >>> _split([4, 5, 6, 7], 2, (0, 2)), _split([4, 5, 6, 9], 2, (0, 2)), _split([4, 9], 2, None)
    ([(4, 6), (5, 7)], [], [(4, 9)])
    """
    if len(ranks) == size:
        return [tuple(ranks)]
    left, found = set(ranks), []
    for rank in () if shape is None else ranks:
        if rank not in left:
            continue
        assert shape is not None
        members = tuple(rank + distance for distance in shape)
        if not left.issuperset(members):
            return []
        left.difference_update(members)
        found.append(members)
    return found


def _stands(own: Mapping[Slot, Group], script: Script | None, said: Logged | None) -> int | None:
    return None if script is None or said is None else _line_of(own, script, said)


def _add_logged_groups(
    world: World,
    wanted: Sequence[int],
    logged: Mapping[int, Logged],
    roles: Mapping[Role, list[int]],
) -> None:
    """Groups none of whose members left a dump, where all of them say in their logs that they wait in
    it: as many as such a group has in a role that left dumps."""
    known = {group.name for group in world.groups}
    sizes = {(slot[0], slot[1]) for role in roles for slot in role[0]}
    members: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank in wanted:
        said = logged.get(rank)
        if said is not None and said.group is not None and said.group not in known:
            members[said.group, said.desc or ""].append(rank)
    for (name, desc), ranks in sorted(members.items()):
        if (desc, len(ranks)) in sizes:
            world.groups.append(Group(len(world.groups), name, desc, tuple(ranks), stated=True))


def _line_of(own: Mapping[Slot, Group], script: Script, logged: Logged) -> int | None:
    """The line of a script that a log speaks of; None where it is not told, or not the only one."""
    found = [
        i
        for i, line in enumerate(script.lines)
        if line.seq == logged.seq
        and _is_called(line.kind.op, logged.op)
        and line.slot in own
        and (logged.group in (None, own[line.slot].name) or not own[line.slot].seen)
    ]
    return found[0] if len(found) == 1 else None


def _is_called(op: str, word: str) -> bool:
    """Whether a watchdog's word may be this operation: one word stands for both kinds of all-to-all."""
    return (op_type(op) or "").removesuffix("_BASE") == word.removesuffix("_BASE")


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
    lines = lines_of(world, best, own)
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


def lines_of(world: World, rank: int, own: Mapping[Slot, Group]) -> list[Line]:
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
        theirs = lines_of(world, rank, slots)
        for i, facing in _facing(world, rank, slots, theirs).items():
            mine = at.get((theirs[i].slot, theirs[i].seq))
            if mine is not None and lines[mine].kind.peers == theirs[i].kind.peers:
                found.setdefault(mine, facing)
    return found


def other_number(world: World, rank: int, group: Group, op: OpenOp) -> int | None:
    """The other side's number of a transfer that a rank has open, where both left a dump."""
    own = recorder_world.slots(world, world.own[rank])
    lines = lines_of(world, rank, own)
    for i, (_, number) in _facing(world, rank, own, lines).items():
        line = lines[i]
        if own[line.slot] is group and line.seq == op.seq and line.kind.peers == op.peers:
            return number
    return None


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


def _facing(
    world: World, rank: int, own: Mapping[Slot, Group], lines: Sequence[Line]
) -> dict[int, tuple[int, int]]:
    """The other side's number of each transfer of a rank.

    The n-th send of one side is the n-th receive of the other, counted from a collective that both
    are in; where neither ring holds one, back from the newest transfer that is done.
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
        anchor = _anchor(world, rank, other)
        here = {} if anchor is None else _counted(world, rank, anchor, group, (place, is_send))
        there = {} if anchor is None else _counted(world, other, anchor, group, (me, not is_send))
        if here and there:
            at = {seq: key for key, seq in here.items()}
            for i in indexes:
                number = there.get(at.get(lines[i].seq, (-1, -1)))
                if number is not None:
                    found[i] = (place, number)
            continue
        theirs = _transfers(world, other, group, (me, not is_send))
        open_here = _open_numbers(group, rank)
        open_there = _open_numbers(group, other)
        done = sum(lines[i].seq not in open_here for i in indexes)
        done_there = sum(seq not in open_there for seq in theirs)
        for nth, i in enumerate(indexes):
            place_there = nth - done + done_there
            if 0 <= place_there < len(theirs):
                found[i] = (place, theirs[place_there])
    return found


def _anchor(world: World, rank: int, other: int) -> Group | None:
    """The largest group of both ranks that passes no transfers: its collectives stand in one order."""
    shared = set(world.own[rank]) & set(world.own[other])
    able = [world.groups[n] for n in shared if world.groups[n].stated]
    able = [group for group in able if not group.carries_p2p and len(group.members) > 2]
    return max(able, key=lambda group: (len(group.members), -group.number), default=None)


def _counted(
    world: World, rank: int, anchor: Group, group: Group, wanted: tuple[int, bool]
) -> dict[tuple[int, int], int]:
    """A rank's own numbers of its sends to, or receives from, one member, by the collective of the
    anchor that they follow and how many went between."""
    numbers = world.own[rank]
    marks, place = numbers.index(anchor.number), numbers.index(group.number)
    last: int | None = None
    nth = 0
    found: dict[tuple[int, int], int] = {}
    for kind, seq in operations(unpack(world.dumps[rank].program)):
        if kind.group == marks and not kind.is_p2p:
            last, nth = seq, 0
        elif last is not None and kind.group == place and kind.is_p2p and kind.peers == (wanted,):
            found[last, nth] = seq
            nth += 1
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
