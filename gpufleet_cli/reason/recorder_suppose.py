"""Which missing ranks cannot be the one that stopped, since the others would then have gone on.

Suppose that one missing rank alone stopped, right behind what its peers prove that it entered. All
other missing ranks are healthy then, and in a stall of minutes each has gone as far in its role's
program as its peers let it. Where that ends an operation that a dump shows open, the supposition is
false. Only what must happen is played: a rank enters an operation when all before it in its program
are over, and what is not known holds it up; so a rank that is not cleared may still be innocent.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from gpufleet_cli.reason.recorder_cast import Line, Part, Script
from gpufleet_cli.reason.recorder_graph import Operation
from gpufleet_cli.reason.recorder_replay import proven_numbers
from gpufleet_cli.reason.recorder_world import Group, World

MOST_OPERATIONS = 64
MOST_WORK = 4_000_000
"""Suspects times missing ranks: beyond it nobody is cleared, as nobody would wait for it."""

Key = tuple[Hashable, ...]


def cleared(
    world: World,
    parts: Mapping[int, Part],
    operations: Sequence[Operation],
    suspects: Collection[int],
) -> frozenset[int]:
    """Those of the missing `suspects` that did not stop alone."""
    wanted = [rank for rank in sorted(suspects) if rank in parts]
    if not wanted or len(wanted) * len(parts) > MOST_WORK:
        return frozenset()
    stage = _Stage(world, parts)
    if stage.is_anything_full(operations, held=None):
        return frozenset(wanted)
    return frozenset(rank for rank in wanted if stage.is_contradicted(stopped=rank))


def in_flight(
    world: World,
    parts: Mapping[int, Part],
    operations: Sequence[Operation],
    candidates: Sequence[Operation],
) -> list[Operation]:
    """Those of the operations that nobody is behind in which, hanging alone in flight with every
    missing rank healthy, leave the others where their dumps show them."""
    stage = _Stage(world, parts)
    return [
        operation
        for operation in candidates[:MOST_OPERATIONS]
        if not stage.is_anything_full(operations, held=operation)
        and not stage.is_contradicted(held=stage.name_of(operation))
    ]


@dataclass(frozen=True, slots=True)
class _Meeting:
    """An operation that missing ranks may come to; a batch counts as one of the whole group. `needs`: how many of them must come; None: a
    present member is not there, so it cannot end. `is_open`: a dump shows it open."""

    needs: int | None
    is_open: bool


@dataclass(frozen=True, slots=True)
class _What:
    """A collective, or a batch, of a whole group."""

    group: Group
    seq: int
    op: str
    is_batch: bool


@dataclass(slots=True)
class _Stage:
    """Where the missing ranks stand by what is proven, and what meets where."""

    world: World
    parts: Mapping[int, Part]
    proven: Mapping[int, int] = field(init=False)
    starts: dict[int, int] = field(init=False)
    furthest: dict[int, int] = field(init=False)
    meetings: dict[Key, _Meeting] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.proven = proven_numbers(self.world)
        self.furthest = {
            rank: self._proven_to(part)
            for rank, part in self.parts.items()
            if part.script is not None
        }
        self.starts = {
            rank: self._start(rank, part)
            for rank, part in self.parts.items()
            if part.script is not None
        }

    def _proven_to(self, part: Part) -> int:
        """The line behind the last that a rank is proven to have entered."""
        assert part.script is not None
        proven = [i for i, line in enumerate(part.script.lines) if self._is_proven(part, line)]
        return proven[-1] + 1 if proven else 0

    def _start(self, rank: int, part: Part) -> int:
        """The first line of a rank's program that is not proven to be over."""
        assert part.script is not None
        if part.stands is not None:
            return part.stands
        lines = part.script.lines
        for i, line in enumerate(lines):
            group = part.own.get(line.slot)
            is_dark = group is None or not group.seen  # nobody's dump tells of it
            is_over = i < self.furthest[rank] and (line.kind.is_p2p or is_dark)
            if not is_over and not self._is_proven(part, line):
                return i
        return len(lines)

    def _is_proven(self, part: Part, line: Line) -> bool:
        group = part.own.get(line.slot)
        if group is None or line.kind.is_p2p:
            return False
        return line.seq <= self.proven.get(group.number, -1)

    def is_anything_full(self, operations: Sequence[Operation], held: Operation | None) -> bool:
        """Whether all members of an operation that is open are in it, by dumps and logs: it would end."""
        for operation in operations:
            op = operation.wait.op
            group = self.world.groups[operation.group]
            if operation is held or not group.stated:
                continue
            if len(op.peers) == 1:
                if self._is_met(operation, group):
                    return True
                continue
            if op.is_p2p or op.peers:
                continue
            what = _What(group, op.seq, op.op, is_batch=False)
            meeting = self.meetings.get((group.number, op.seq)) or self._gathering(what)
            if meeting.needs == 0 and meeting.is_open:
                return True
        return False

    def _is_met(self, operation: Operation, group: Group) -> bool:
        """Whether the other side of a transfer waits in the same one, by its dump or by its log."""
        wait = operation.wait
        place, is_send = wait.op.peers[0]
        other = group.rank_at(place)
        if other in operation.pair and other in self.world.dumps and wait.rank in self.world.dumps:
            return True
        part = None if other is None else self.parts.get(other)
        if wait.rank not in self.world.dumps or part is None or part.script is None:
            return False
        if part.stands is None:
            return False
        line = part.script.lines[part.stands]
        mine = (group.index(wait.rank), not is_send)
        is_opposite = part.own.get(line.slot) is group and line.kind.peers == (mine,)
        facing = part.script.facing.get(part.stands)
        return is_opposite and facing is not None and facing[1] == wait.op.seq

    def name_of(self, operation: Operation) -> Key:
        """An operation of the graph as `_name` calls it; of a transfer, only that it is one."""
        op = operation.wait.op
        if len(op.peers) > 1:
            return operation.group, op.seq, "batch"
        if op.peers:
            group = self.world.groups[operation.group]
            other = group.rank_at(op.peers[0][0])
            own = operation.wait.rank
            return (
                (operation.group, own, other) if op.peers[0][1] else (operation.group, other, own)
            )
        return operation.group, op.seq

    def is_contradicted(self, *, stopped: int | None = None, held: Key | None = None) -> bool:
        """Whether the others, with this rank stopped or this operation held, end an operation that a
        dump shows open."""
        at = dict(self.starts)
        here: dict[Key, list[int]] = {}
        todo = [rank for rank in at if self.parts[rank].stands is None]
        while todo:
            rank = todo.pop()
            if rank == stopped and at[rank] >= self.furthest[rank]:
                continue
            key = self._name(rank, at[rank])
            if key is None or (held is not None and key[: len(held)] == held):
                continue
            meeting = self.meetings.get(key)
            if meeting is None:
                meeting = self.meetings[key] = self._meeting(rank, at[rank])
            if meeting.needs is None:
                continue
            arrived = here.setdefault(key, [])
            arrived.append(rank)
            if len(arrived) < meeting.needs:
                continue
            if meeting.is_open:
                return True
            for member in arrived:
                at[member] = self._onward(member, at[member] + 1)
            todo.extend(arrived)
        return False

    def _onward(self, rank: int, i: int) -> int:
        """The next line that is not proven to be over."""
        part = self.parts[rank]
        assert part.script is not None
        while i < len(part.script.lines) and self._is_proven(part, part.script.lines[i]):
            i += 1
        return i

    # --- What meets where --------------------------------------------------------------------------

    def _name(self, rank: int, i: int) -> Key | None:
        """The name of the operation at a line, the same for all who meet in it; None: not known."""
        part = self.parts[rank]
        script = part.script
        if script is None or i >= len(script.lines):
            return None
        line = script.lines[i]
        group = part.own.get(line.slot)
        if group is None:
            return None
        if not line.kind.is_p2p and not line.kind.peers:
            return group.number, line.seq
        if len(line.kind.peers) == 1:
            return self._transfer(rank, group, script, i)
        return (group.number, line.seq, "batch") if i in script.rings else None

    def _transfer(self, rank: int, group: Group, script: Script, i: int) -> Key | None:
        """A send and its receive have one name: both ends and the sender's number of it."""
        if i not in script.facing:
            return None
        place, number = script.facing[i]
        other = group.rank_at(place)
        if other is None:
            return None
        line = script.lines[i]
        is_send = line.kind.peers[0][1]
        ends = (rank, other) if is_send else (other, rank)
        return group.number, *ends, line.seq if is_send else number

    def _meeting(self, rank: int, i: int) -> _Meeting:
        part = self.parts[rank]
        assert part.script is not None
        line = part.script.lines[i]
        group = part.own[line.slot]
        if len(line.kind.peers) == 1:
            return self._pair(rank, group, part.script, i)
        return self._gathering(_What(group, line.seq, line.kind.op, bool(line.kind.peers)))

    def _gathering(self, what: _What) -> _Meeting:
        ended = self._has_passed if what.is_batch else self._has_ended
        needs, is_open = 0, False
        for member in what.group.members:
            if member not in self.world.dumps:
                stand = self._standing(member, what)
                needs += stand == "to come"
                is_open = is_open or stand == "here"
                if stand == "elsewhere":
                    return _Meeting(None, is_open=False)
            elif self._waits_in(member, what):
                is_open = True
            elif not ended(member, what.group, what.seq):
                return _Meeting(None, is_open=False)
        return _Meeting(needs, is_open=is_open)

    def _pair(self, rank: int, group: Group, script: Script, i: int) -> _Meeting:
        place, number = script.facing[i]
        other = group.rank_at(place)
        assert other is not None
        if other not in self.world.dumps:
            part = self.parts.get(other)
            if part is None or part.stands is None:
                return _Meeting(2, is_open=False)
            is_here = self._name(other, part.stands) == self._transfer(rank, group, script, i)
            return _Meeting(1 if is_here else None, is_open=is_here)
        seen = group.seen.get(other)
        if seen is None or seen.last_p2p is None or seen.last_p2p < number:
            return _Meeting(None, is_open=False)
        if all(op.seq != number for op in seen.open_ops if op.is_p2p):
            return _Meeting(1, is_open=False)
        wait = self.world.waits.get(other)
        stands = wait is not None and wait.group == group.number and wait.op.seq == number
        return _Meeting(1 if stands else None, is_open=stands)

    def _standing(self, rank: int, what: _What) -> str:
        """Whether a missing rank has still to come to an operation, is proven to be behind it, or says in
        its log where it is."""
        part = self.parts.get(rank)
        if part is None or part.script is None:
            return "to come"
        found = [
            i
            for i, line in enumerate(part.script.lines)
            if part.own.get(line.slot) is what.group
            and (line.seq, line.kind.op) == (what.seq, what.op)
        ]
        if found and found[0] < self.starts[rank]:
            return "past"
        if part.stands is None:
            return "to come"
        return "here" if part.stands in found else "elsewhere"

    def _waits_in(self, rank: int, what: _What) -> bool:
        wait = self.world.waits.get(rank)
        if wait is None or wait.group != what.group.number or wait.op.seq != what.seq:
            return False
        if what.is_batch:
            return len(wait.op.peers) > 1
        return not wait.op.is_p2p and not wait.op.peers

    def _has_passed(self, rank: int, group: Group, seq: int) -> bool:
        seen = group.seen.get(rank)
        if seen is None or seen.last_p2p is None or seen.last_p2p < seq:
            return False
        return all(op.seq != seq for op in seen.open_ops if op.peers)

    def _has_ended(self, rank: int, group: Group, seq: int) -> bool:
        seen = group.seen.get(rank)
        if seen is None:
            return False
        completed = self.world.completed(rank, group)
        if completed is None or completed < seq:
            return False
        return all(op.seq != seq for op in seen.open_ops if not op.is_p2p)
