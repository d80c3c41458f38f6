"""What a fault is made with and ends as: the job it falls into, the plan of what goes wrong, and which
kinds of verdict are right for each class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

from gpufleet_cli.operate.simulate.engine import EXCHANGED, Moments, Upset
from gpufleet_cli.operate.simulate.layout import Layout
from gpufleet_cli.operate.simulate.programs import Op
from gpufleet_cli.operate.simulate.story import Class, Fault
from gpufleet_cli.verdict import Kind

TRIES = 40
# How much longer a step takes than its even share, where the work of ranks differs.
UNEVEN = (0.1, 0.6)

Side = Literal["software", "hardware", "neither"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The world as it goes wrong. `suspects`: ranks that look alike where nothing but the recorders
    speaks (the members of an operation that hangs in flight); empty where the guilty stands alone.
    `may_name`: ranks that a verdict may name without need. `at_s` is when the fault begins."""

    programs: list[list[Op]]
    upset: Upset
    faults: tuple[Fault, ...]
    culprits: frozenset[int]
    kinds: frozenset[Kind]
    side: Side
    at_s: float
    node_indexes: tuple[int, ...] = ()
    by_node: bool = False
    suspects: frozenset[int] = frozenset()
    may_name: frozenset[int] = frozenset()
    decoys: tuple[Fault, ...] = ()
    crashes: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a maker works with. `steps` programs of one step stand one after another."""

    layout: Layout
    programs: list[list[Op]]
    healthy: Moments
    steps: int
    rng: Random

    def second(self, rank: int) -> range:
        """The calls of the second step."""
        each = len(self.programs[rank]) // self.steps
        return range(each, 2 * each)

    @property
    def step_s(self) -> float:
        """How long a healthy step takes."""
        return self.at(0, self.second(0)[0])

    def at(self, rank: int, call: int) -> float:
        found = self.healthy.enqueued[rank][call]
        assert found is not None
        return found

    def edited(self, rank: int, program: list[Op]) -> list[list[Op]]:
        return [program if r == rank else p for r, p in enumerate(self.programs)]

    def any_rank(self, *, beside: Sequence[int] = ()) -> int:
        nodes = {self.layout.node_index(r) for r in beside}
        free = [r for r in range(self.layout.size) if self.layout.node_index(r) not in nodes]
        return self.rng.choice(free or [r for r in range(self.layout.size) if r not in beside])

    def crossing(self, rank: int) -> list[int]:
        """Exchanges of the second step whose group spans nodes."""
        return [i for i in self.exchanges(rank) if len(self._nodes(rank, i)) > 1]

    def exchanges(self, rank: int, *does: str) -> list[int]:
        wanted = does or EXCHANGED
        return [i for i in self.second(rank) if self.programs[rank][i].does in wanted]

    def members(self, rank: int, call: int) -> tuple[int, ...]:
        """Those who meet in an exchange: for a send or a receive, its two ends."""
        op = self.programs[rank][call]
        assert op.group is not None
        if op.peer is not None:
            return tuple(sorted((rank, op.group.members[op.peer])))
        return op.group.members

    def _nodes(self, rank: int, call: int) -> set[int]:
        return {self.layout.node_index(r) for r in self.members(rank, call)}


class NoPlaceError(Exception):
    """This layout has no place for a fault of the class."""


Maker = Callable[[Setting, Class], Plan]


def one(s: Setting, cls: Class, rank: int, call: int, upset: Upset, **more: object) -> Plan:
    """The plan of a fault that begins with one call of one rank."""
    kinds = KINDS_OF[cls]
    fault = Fault(
        cls=cls,
        at_s=s.at(rank, call),
        ranks=(rank,),
        node_indexes=(s.layout.node_index(rank),),
        call=call,
        kinds=tuple(sorted(kinds)),
    )
    base = Plan(
        programs=s.programs,
        upset=upset,
        faults=(fault,),
        culprits=frozenset({rank}),
        kinds=kinds,
        side=SIDES.get(cls, "neither"),
        at_s=fault.at_s,
        node_indexes=fault.node_indexes,
    )
    return replace(base, **more)  # type: ignore[arg-type]


K = Kind
KINDS_OF: dict[Class, frozenset[Kind]] = {
    Class.LOADER_STALL: frozenset({K.DATA_STALL, K.RANK_MISSING}),
    Class.GC_STALL: frozenset({K.RANK_MISSING}),
    Class.CHECKPOINT_STALL: frozenset({K.RANK_MISSING, K.STORAGE_STALL}),
    Class.LOCK_STALL: frozenset({K.RANK_MISSING}),
    Class.PYTHON_CRASH: frozenset({K.RANK_CRASHED}),
    Class.SEGFAULT: frozenset({K.RANK_CRASHED}),
    Class.OOM_KILL: frozenset({K.HOST_OOM}),
    Class.GPU_STALL: frozenset({K.HARDWARE, K.RANK_MISSING}),
    Class.XID_79: frozenset({K.HARDWARE}),
    Class.XID_119: frozenset({K.HARDWARE}),
    Class.XID_48: frozenset({K.HARDWARE}),
    Class.XID_94: frozenset({K.HARDWARE}),
    Class.XID_95: frozenset({K.HARDWARE}),
    Class.NODE_DEATH: frozenset({K.HARDWARE, K.RANK_MISSING}),
    Class.NIC_DOWN: frozenset({K.NETWORK, K.HARDWARE}),
    Class.RAIL_FLAP: frozenset({K.NETWORK, K.HARDWARE}),
    Class.LINK_IN_FLIGHT: frozenset({K.NETWORK}),
    Class.PARTIAL: frozenset({K.NETWORK}),
    Class.SWITCH: frozenset({K.NETWORK}),
    Class.SKIPPED: frozenset({K.COLLECTIVE_MISMATCH}),
    Class.REORDERED: frozenset({K.COLLECTIVE_MISMATCH}),
    Class.MISMATCH: frozenset({K.COLLECTIVE_MISMATCH}),
    Class.P2P_DEADLOCK: frozenset({K.COLLECTIVE_MISMATCH}),
    Class.STORAGE: frozenset({K.STORAGE_STALL}),
    Class.RENDEZVOUS: frozenset({K.RENDEZVOUS_FAILURE}),
    Class.SLOW_GPU: frozenset({K.STRAGGLER, K.HARDWARE}),
    Class.SLOW_LINK: frozenset({K.STRAGGLER, K.NETWORK, K.HARDWARE}),
    Class.IMBALANCE: frozenset({K.STRAGGLER, K.HEALTHY, K.UNDECIDABLE}),
    Class.LONG_STEP: frozenset({K.HEALTHY}),
    Class.COMPILE: frozenset({K.HEALTHY}),
    Class.CHECKPOINT: frozenset({K.HEALTHY}),
}
_SOFTWARE = (
    Class.PYTHON_CRASH,
    Class.SKIPPED,
    Class.REORDERED,
    Class.MISMATCH,
    Class.P2P_DEADLOCK,
)
_HARDWARE = (
    Class.GPU_STALL,
    Class.XID_79,
    Class.XID_119,
    Class.XID_48,
    Class.XID_94,
    Class.XID_95,
    Class.NODE_DEATH,
    Class.NIC_DOWN,
    Class.RAIL_FLAP,
    Class.LINK_IN_FLIGHT,
    Class.PARTIAL,
    Class.SWITCH,
    Class.SLOW_GPU,
    Class.SLOW_LINK,
)
SIDES: dict[Class, Side] = {
    **dict.fromkeys(_SOFTWARE, "software"),
    **dict.fromkeys(_HARDWARE, "hardware"),
}
