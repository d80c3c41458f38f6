"""Faults of the network: an adapter, one operation in flight, an arc of a ring, a switch."""

from __future__ import annotations

from dataclasses import replace

from gpufleet_cli.operate.simulate.engine import EXCHANGED, Place, Upset
from gpufleet_cli.operate.simulate.fault_kinds import TRIES, NoPlaceError, Plan, Setting, one
from gpufleet_cli.operate.simulate.story import Class


def nic(s: Setting, cls: Class) -> Plan:
    """The adapter of one rank: no exchange with other nodes ends any more."""
    rank, calls = crossing_rank(s)
    call = s.rng.choice(calls)
    lost = frozenset(
        (rank, i)
        for i in range(call, len(s.programs[rank]))
        if s.programs[rank][i].does in EXCHANGED and _spans(s, rank, i)
    )
    plan = one(s, cls, rank, call, Upset(broken=lost))
    return replace(plan, suspects=frozenset(s.members(rank, call)), by_node=True)


def _spans(s: Setting, rank: int, call: int) -> bool:
    return len({s.layout.node_index(r) for r in s.members(rank, call)}) > 1


def crossing_rank(s: Setting) -> tuple[int, list[int]]:
    """A rank, and its exchanges of the second step that leave its node."""
    for _ in range(TRIES):
        rank = s.any_rank()
        calls = s.crossing(rank)
        if calls:
            return rank, calls
    raise NoPlaceError


def link(s: Setting, cls: Class) -> Plan:
    """One operation hangs in flight; which link of its ring is told by nothing."""
    rank, calls = crossing_rank(s)
    call = s.rng.choice(calls)
    members = s.members(rank, call)
    other = members[(members.index(rank) + 1) % len(members)]
    plan = one(s, cls, rank, call, Upset(broken=frozenset({(rank, call)})))
    return replace(plan, culprits=frozenset({rank, other}), suspects=frozenset(members))


def partial(s: Setting, cls: Class) -> Plan:
    """An operation ends for an arc of its ring and not for the rest, of which the first is bad."""
    for _ in range(TRIES):
        rank, calls = crossing_rank(s)
        wide = [
            i for i in calls if s.programs[rank][i].does == "call" and len(s.members(rank, i)) > 3
        ]
        if wide:
            break
    else:
        raise NoPlaceError
    call = s.rng.choice(wide)
    members = s.members(rank, call)
    length = s.rng.randint(2, len(members) - 2)
    start = members.index(rank)
    arc = [members[(start + k) % len(members)] for k in range(length)]
    upset = Upset(partial={(rank, call): frozenset(arc)})
    return replace(one(s, cls, rank, call, upset), suspects=frozenset(arc))


def switch(s: Setting, cls: Class) -> Plan:
    """Two to four neighbouring nodes lose their links together."""
    count = min(len(s.layout.nodes) - 1, s.rng.randint(2, 4))
    if count < 1:
        raise NoPlaceError
    first = s.rng.randrange(len(s.layout.nodes) - count + 1)
    indexes = tuple(range(first, first + count))
    ranks = [r for i in indexes for r in s.layout.ranks_of(i)]
    rank = next((r for r in s.rng.sample(ranks, len(ranks)) if s.crossing(r)), ranks[0])
    call = s.rng.choice(s.crossing(rank) or s.exchanges(rank))
    at = s.at(rank, call)
    lost: set[Place] = set()
    for r in ranks:
        for i in range(len(s.programs[r])):
            if s.programs[r][i].does in EXCHANGED and s.at(r, i) >= at and _spans(s, r, i):
                lost.add((r, i))
    plan = one(s, cls, rank, call, Upset(broken=frozenset(lost)))
    fault = replace(plan.faults[0], ranks=(), node_indexes=indexes)
    return replace(
        plan,
        faults=(fault,),
        culprits=frozenset(),
        node_indexes=indexes,
        may_name=frozenset(ranks),
        suspects=frozenset(ranks),
    )
