"""The dumps of one moment joined: process groups over all ranks, and what each rank waits in.

A group is identified by name and members, since one name may serve several sets. Gloo does not
write members: there they are the ranks that have entries of the group (facts: flight-recorder 1.2).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpufleet_cli.facts import DumpGroup, OpenOp, RankDump
from gpufleet_cli.parsers.recorder_program import is_full_sync
from gpufleet_cli.verdict import CollectiveRef

_PIPELINE = re.compile(r"(?<![a-z])(?:pp|pipe|pipeline)(?![a-z])", re.I)
UNSURE_COUNT = 8
"""A counter of unknown operations proves that members have entered only so far behind it: the last
ones may have been broadcasts, which their root completes alone."""


@dataclass(slots=True)
class Group:
    """One process group over all dumps. `seen` is what each present rank's dump says of it.

    `rank_at` gives the global rank of a rank inside the group, `index` the other way round.
    """

    number: int
    name: str
    desc: str
    members: tuple[int, ...]
    stated: bool
    seen: dict[int, DumpGroup] = field(default_factory=dict)
    carries_p2p: bool = False
    _index: dict[int, int] = field(default_factory=dict)

    def index(self, rank: int) -> int | None:
        if not self._index:
            self._index = {member: i for i, member in enumerate(self.members)}
        return self._index.get(rank)

    def rank_at(self, place: int) -> int | None:
        return self.members[place] if 0 <= place < len(self.members) else None

    def ref(self, op: str | None = None, seq: int | None = None) -> CollectiveRef:
        return CollectiveRef(group=self.name, desc=self.desc or None, op=op, seq=seq)


@dataclass(frozen=True, slots=True)
class Wait:
    """The oldest open operation of a rank: it cannot go on before this one is done."""

    rank: int
    group: int
    op: OpenOp


@dataclass(slots=True)
class World:
    """`groups` by number; `own[rank]` are the numbers of a rank's groups in its dump's order.
    `widest` is the size of the largest group."""

    dumps: Mapping[int, RankDump]
    groups: list[Group]
    own: dict[int, list[int]]
    waits: dict[int, Wait]
    widest: int

    def entered(self, rank: int, group: Group) -> int | None:
        """The number of the last collective that a present rank put in; None where not known.

        A communicator is made at first use: a group that a dump does not list was never used.
        """
        seen = group.seen.get(rank)
        if seen is None:
            return 0 if any(g.members for g in self.dumps[rank].groups) else None
        if seen.last_enqueued is None or (seen.from_status and group.carries_p2p):
            return None
        return seen.last_enqueued

    def completed(self, rank: int, group: Group) -> int | None:
        """The number of the last collective that a present rank saw done; None where not known."""
        seen = group.seen.get(rank)
        if seen is None or seen.last_completed is None:
            return None
        return None if seen.from_status and group.carries_p2p else seen.last_completed


def proven(world: World, rank: int, group: Group) -> int | None:
    """The highest number that all members must have entered, since this rank completed it."""
    seen, dump = group.seen[rank], world.dumps[rank]
    if seen.done:
        pairs = array("q")
        pairs.frombytes(seen.done)
        return max(pairs[::2])
    if seen.last_completed is None or group.carries_p2p:
        return None
    if dump.retired_only and dump.last_op is not None and not seen.open_count:
        # Gloo retires what failed, too: the last thing that a rank did proves nothing.
        is_last = dump.groups[dump.last_op.group] is seen
        return seen.last_completed - is_last
    if dump.retired_only:
        return seen.last_completed
    return seen.last_completed - UNSURE_COUNT


def build(dumps: Mapping[int, RankDump]) -> World:
    """Join the dumps, one a rank."""
    groups: list[Group] = []
    by_identity: dict[tuple[str, int], Group] = {}
    by_value: dict[tuple[str, str, tuple[int, ...] | None], Group] = {}
    own: dict[int, list[int]] = {}
    for rank in sorted(dumps):
        numbers = []
        for seen in dumps[rank].groups:
            identity = (seen.name, id(seen.members))
            group = by_identity.get(identity)
            if group is None:
                key = (seen.name, seen.desc if seen.members is None else "", seen.members)
                group = by_value.get(key)
                if group is None:
                    group = Group(
                        len(groups), seen.name, seen.desc, seen.members or (), bool(seen.members)
                    )
                    groups.append(group)
                    by_value[key] = group
                if seen.members is not None:
                    by_identity[identity] = group
            group.seen[rank] = seen
            group.desc = group.desc or seen.desc
            if seen.last_p2p is not None:
                group.carries_p2p = True
            numbers.append(group.number)
        own[rank] = numbers
    for group in groups:
        if not group.stated:
            group.members = tuple(sorted(group.seen))
    widest = max((len(group.members) for group in groups), default=0)
    world = World(dumps, groups, own, {}, widest)
    world.waits.update(_waits(world))
    return world


def _waits(world: World) -> Iterable[tuple[int, Wait]]:
    for rank, dump in world.dumps.items():
        found = [(seen.open_ops[0].entry, i) for i, seen in enumerate(dump.groups) if seen.open_ops]
        if found:
            _entry, place = min(found)
            op = dump.groups[place].open_ops[0]
            yield rank, Wait(rank, world.own[rank][place], op)
            continue
        failed = _failed(world, rank, dump)
        if failed is not None:
            yield rank, failed


def _failed(world: World, rank: int, dump: RankDump) -> Wait | None:
    """Gloo retires an operation that failed. The last one of a rank counts as open when a present
    member has not entered it: nobody can have completed it."""
    last = dump.last_op
    if not dump.retired_only or last is None:
        return None
    group = world.groups[world.own[rank][last.group]]
    counts = [world.entered(member, group) for member in group.members if member in world.dumps]
    if not is_full_sync(last.op) or all(n is None or n >= last.seq for n in counts):
        return None
    op = OpenOp(
        entry=dump.entries - 1,
        seq=last.seq,
        op=last.op,
        is_p2p=False,
        sizes="",
        dtypes="",
        created_ns=last.created_ns,
        gave_up=True,
    )
    return Wait(rank, group.number, op)


# --- Roles ----------------------------------------------------------------------------------------

Slot = tuple[str, int, int]
Role = tuple[tuple[Slot, ...], tuple[tuple[str, int], ...]]


def slots(world: World, numbers: Sequence[int]) -> dict[Slot, Group]:
    """A rank's groups by (description, size, which of several alike)."""
    found: dict[Slot, Group] = {}
    counts: dict[tuple[str, int], int] = {}
    for number in sorted(numbers, key=lambda n: _name_key(world.groups[n].name)):
        group = world.groups[number]
        if group.stated and len(group.members) < 2:
            continue
        alike = (group.desc, len(group.members))
        counts[alike] = counts.get(alike, -1) + 1
        found[(*alike, counts[alike])] = group
    return found


def role(world: World, rank: int, of: Mapping[Slot, Group]) -> Role:
    """Ranks of one role run the same program: the same slots and the same place in the pipeline."""
    size = world.widest
    places = []
    for _, group in sorted(of.items()):
        piped = group.carries_p2p or _PIPELINE.search(group.desc) is not None
        index = group.index(rank)
        if piped and index is not None and (len(group.members) < size or size <= 2):
            places.append((group.desc, index))
    return tuple(sorted(of)), tuple(places)


def _name_key(name: str) -> tuple[int, int, str]:
    return (0, int(name), "") if name.isdecimal() and len(name) < 18 else (1, 0, name)
