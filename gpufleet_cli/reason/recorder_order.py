"""Circles of waiting as disagreements about order: who left the program of its role.

Ranks of one role enter collectives and transfers in one order. Where ranks wait for one another,
one of them entered a later operation without an earlier one, or simply stopped between two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from gpufleet_cli.facts import OpenOp, Origin
from gpufleet_cli.parsers.recorder_program import unpack
from gpufleet_cli.reason import recorder_world
from gpufleet_cli.reason.recorder_finding import GraphClaim, Mismatch, Side
from gpufleet_cli.reason.recorder_graph import HOST_BEHIND, Graph
from gpufleet_cli.reason.recorder_words import called, ranks_text
from gpufleet_cli.reason.recorder_world import Group, Role, Wait, World
from gpufleet_cli.verdict import CollectiveRef

MOST_PEERS = 64


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
