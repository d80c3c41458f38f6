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

from gpufleet_cli.facts import OpenOp, RankDump
from gpufleet_cli.parsers.recorder_program import OpKind, unpack
from gpufleet_cli.reason import recorder_world
from gpufleet_cli.reason.recorder_world import Group, Role, Slot, Wait, World


@dataclass(slots=True)
class Ghost:
    """A rank without a dump: where it would wait, and its counters by group, if healthy."""

    rank: int
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
    rising; `sends` are the lines that send; `entered` is how far that rank got in each slot.
    """

    lines: tuple[Line, ...]
    places: Mapping[Slot, list[int]]
    seqs: Mapping[Slot, list[int]]
    sends: tuple[int, ...]
    entered: Mapping[Slot, int]


def ghosts(world: World, missing: Iterable[int]) -> dict[int, Ghost]:
    """Every missing rank, replayed as far as its peers tell."""
    wanted = sorted(missing)
    if not wanted:
        return {}
    memberships = _memberships(world, set(wanted))
    shared = _shared(world)
    roles = _roles(world)
    scripts: dict[Role, Script | None] = {}
    found = {}
    for rank in wanted:
        own = recorder_world.slots(world, memberships.get(rank, []))
        key = recorder_world.role(world, rank, own)
        if key not in scripts:
            scripts[key] = _script(world, roles.get(key, []))
        script = scripts[key]
        found[rank] = Ghost(rank) if script is None else _replay(rank, own, script, shared)
    return found


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


def _script(world: World, ranks: Sequence[int]) -> Script | None:
    """The program of the rank of this role that has entered most."""
    able = [
        rank for rank in ranks if world.dumps[rank].program and not world.dumps[rank].only_active
    ]
    if not able:
        return None
    best = max(able, key=lambda rank: (_progress(world.dumps[rank]), -rank))
    own = recorder_world.slots(world, world.own[best])
    slot_of = {group.number: slot for slot, group in own.items()}
    program = unpack(world.dumps[best].program)
    numbers = world.own[best]
    lines: list[Line] = []
    places: dict[Slot, list[int]] = defaultdict(list)
    seqs: dict[Slot, list[int]] = defaultdict(list)
    for row, seq in zip(program.order, program.seqs, strict=True):
        kind = program.kinds[row]
        slot = slot_of.get(numbers[kind.group])
        if slot is None:
            continue
        if not kind.is_p2p:
            places[slot].append(len(lines))
            seqs[slot].append(seq)
        lines.append(Line(slot, seq, kind))
    entered = {
        slot: count
        for slot, group in own.items()
        if (count := group.seen[best].last_enqueued) is not None
    }
    sends = tuple(i for i, line in enumerate(lines) if any(send for _, send in line.kind.peers))
    return Script(tuple(lines), places, seqs, sends, entered)


def _progress(dump: RankDump) -> int:
    return sum((g.last_enqueued or 0) + (g.last_p2p or 0) for g in dump.groups)


def _shared(world: World) -> dict[int, int]:
    """By group, the last number that every member must have entered, since some completed it."""
    found = {}
    for group in world.groups:
        proofs = [recorder_world.proven(world, rank, group) for rank in group.seen]
        numbers = [number for number in proofs if number is not None]
        if numbers:
            found[group.number] = max(numbers)
    return found


def _replay(
    rank: int, own: Mapping[Slot, Group], script: Script, shared: Mapping[int, int]
) -> Ghost:
    position = 0
    for slot, group in own.items():
        if group.number in shared:
            passed = bisect_right(script.seqs.get(slot, []), shared[group.number])
            if passed:
                position = max(position, script.places[slot][passed - 1] + 1)
    for i in script.sends[bisect_left(script.sends, position) :]:
        line = script.lines[i]
        if line.slot in own and _is_received(own[line.slot], line):
            position = i + 1
    ghost = Ghost(rank)
    for slot, group in own.items():
        count = _entered_by(script, slot, position)
        done = max(count, shared.get(group.number, 0))
        ghost.completed[group.number] = ghost.entered[group.number] = done
    if position < len(script.lines) and any(g.number in shared for g in own.values()):
        line = script.lines[position]
        if line.slot in own:
            ghost.wait = _wait(rank, own, line)
            if not line.kind.is_p2p:
                ghost.entered[ghost.wait.group] = line.seq
    return ghost


def _entered_by(script: Script, slot: Slot, position: int) -> int:
    """The slot's last collective before a line of the program."""
    places, seqs = script.places.get(slot), script.seqs.get(slot)
    if not places or not seqs:
        return script.entered.get(slot, 0)
    before = bisect_left(places, position)
    return seqs[before - 1] if before else seqs[0] - 1


def _is_received(group: Group, line: Line) -> bool:
    return any(is_send and _received(group, peer, line.seq) for peer, is_send in line.kind.peers)


def _received(group: Group, peer: int, seq: int) -> bool:
    """Whether the peer of a pair has completed its operation of this number, a receive."""
    other = group.rank_at(peer)
    seen = None if other is None else group.seen.get(other)
    if seen is None or len(group.members) != 2 or seen.last_p2p is None or seen.last_p2p < seq:
        return False
    open_from = min((op.seq for op in seen.open_ops if op.is_p2p), default=seq + 1)
    return seq < open_from


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
