"""What goes wrong in a world of a class: an edited program, an `Upset`, and who is guilty.

Each maker takes the healthy programs and moments of the window and changes as little as the fault
does. The fault falls into the second step of the window, so that CPUs can run ahead into the third.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from gpufleet_cli.operate.simulate.engine import EXCHANGED, Place, Upset
from gpufleet_cli.operate.simulate.fault_kinds import (
    KINDS_OF,
    SIDES,
    TRIES,
    UNEVEN,
    Maker,
    NoPlaceError,
    Plan,
    Setting,
    one,
)
from gpufleet_cli.operate.simulate.network_faults import crossing_rank, link, nic, partial, switch
from gpufleet_cli.operate.simulate.story import Class, Fault

__all__ = [
    "HOWS",
    "KINDS_OF",
    "MAKERS",
    "PIPELINED",
    "SIDES",
    "SLOWING",
    "NoPlaceError",
    "Plan",
    "Setting",
]

# --- A host that stops, a process that dies --------------------------------------------------------


def host_stall(s: Setting, cls: Class) -> Plan:
    """The CPU of one rank never makes the next call: in the loader or a save at the begin of a step,
    in a collection or behind a lock anywhere."""
    rank = s.any_rank()
    if cls in (Class.LOADER_STALL, Class.CHECKPOINT_STALL):
        call = s.second(rank)[0]
    else:
        call = s.rng.choice(s.exchanges(rank))
    return one(s, cls, rank, call, Upset(host_stops={rank: call}))


HOWS = {
    Class.PYTHON_CRASH: "exception",
    Class.SEGFAULT: "segfault",
    Class.OOM_KILL: "oom-kill",
    Class.XID_79: "cuda-error",
    Class.XID_119: "cuda-error",
    Class.XID_48: "cuda-error",
    Class.XID_94: "cuda-error",
    Class.XID_95: "cuda-error",
}


def crash(s: Setting, cls: Class) -> Plan:
    """The process of one rank ends by itself, and what its GPU has in flight with it."""
    rank = s.any_rank()
    call = s.rng.choice(s.exchanges(rank))
    upset = Upset(host_stops={rank: call}, deaths={rank: s.at(rank, call)})
    return one(s, cls, rank, call, upset, crashes={rank: HOWS[cls]})


# --- GPU and node -----------------------------------------------------------------------------------


def gpu_stall(s: Setting, cls: Class) -> Plan:
    """A kernel of one rank never ends; its CPU goes on until it must wait for it. The operation that
    the others start and it does not cannot be told from one that hangs in flight, where nothing says
    which kernels started."""
    rank = s.any_rank()
    kernels = [i for i in s.second(rank) if s.programs[rank][i].does == "compute"]
    call = s.rng.choice(kernels[:-1])
    plan = one(s, cls, rank, call, Upset(never_ends=frozenset({(rank, call)})))
    after = next(i for i in range(call, len(s.programs[rank])) if _meets(s, rank, i))
    return replace(plan, suspects=frozenset(s.members(rank, after)))


def _meets(s: Setting, rank: int, call: int) -> bool:
    return s.programs[rank][call].does in EXCHANGED


def xid(s: Setting, cls: Class) -> Plan:
    """A GPU that fails: nothing that it has queued starts any more; its process may notice."""
    rank = s.any_rank()
    call = s.rng.choice(s.exchanges(rank)[:-1])
    dead = frozenset((rank, i) for i in range(call, len(s.programs[rank])))
    notices = s.rng.random() < (
        0.2 if cls is Class.XID_119 else 0.6 if cls is Class.XID_79 else 0.9
    )
    plan = one(s, cls, rank, call, Upset(never_starts=dead))
    plan = replace(plan, suspects=frozenset(s.members(rank, call)))
    return replace(plan, crashes={rank: HOWS[cls]}) if notices else plan


def node_death(s: Setting, cls: Class) -> Plan:
    """All ranks of a node end at one moment and say nothing."""
    rank = s.any_rank()
    call = s.rng.choice(s.exchanges(rank))
    index = s.layout.node_index(rank)
    ranks = tuple(s.layout.ranks_of(index))
    at = s.at(rank, call)
    plan = one(s, cls, rank, call, Upset(deaths=dict.fromkeys(ranks, at)))
    fault = replace(plan.faults[0], ranks=ranks)
    return replace(plan, faults=(fault,), culprits=frozenset(ranks), by_node=True)


# --- Programs that differ ---------------------------------------------------------------------------


def skipped(s: Setting, cls: Class) -> Plan:
    """One rank leaves out a collective that its peers call."""
    rank = s.any_rank()
    call = s.rng.choice(s.exchanges(rank, "call")[:-1])
    program = s.programs[rank]
    plan = one(s, cls, rank, call, Upset())
    return replace(plan, programs=s.edited(rank, program[:call] + program[call + 1 :]))


def reordered(s: Setting, cls: Class) -> Plan:
    """One rank calls two neighbouring collectives that differ in the wrong order."""
    pairs: list[tuple[int, int, int]] = []
    for _ in range(TRIES):
        if pairs:
            break
        rank = s.any_rank()
        calls = s.exchanges(rank, "call")
        program = s.programs[rank]
        pairs = [
            (rank, a, b)
            for a, b in pairwise(calls)
            if (program[a].group, program[a].name, program[a].size)
            != (program[b].group, program[b].name, program[b].size)
            and program[a].blocks
            and all(program[i].does not in EXCHANGED for i in range(a + 1, b))
        ]
    if not pairs:
        raise NoPlaceError
    rank, a, b = s.rng.choice(pairs)
    edited = list(s.programs[rank])
    edited[a], edited[b] = edited[b], edited[a]
    return replace(one(s, cls, rank, a, Upset()), programs=s.edited(rank, edited))


def mismatched(s: Setting, cls: Class) -> Plan:
    """One rank calls with another size, or another type."""
    rank = s.any_rank()
    call = s.rng.choice(
        [i for i in s.exchanges(rank, "call") if s.programs[rank][i].name != "all_to_all"]
    )
    op = s.programs[rank][call]
    odd = (
        replace(op, dtype="Float")
        if s.rng.random() < 0.3
        else replace(op, size=(*op.size[:-1], op.size[-1] + s.rng.choice((1, 64, 128))))
    )
    edited = list(s.programs[rank])
    edited[call] = odd
    return replace(one(s, cls, rank, call, Upset()), programs=s.edited(rank, edited))


def deadlock(s: Setting, cls: Class) -> Plan:
    """A stage sends before it receives, and so does the stage before it: all its ranks alike."""
    if s.layout.pp < 2:
        raise NoPlaceError
    stage = s.rng.randrange(1, s.layout.pp)
    ranks = [r for r in range(s.layout.size) if s.layout.place(r)[3] == stage]
    programs = list(s.programs)
    for r in ranks:
        first = s.exchanges(r, "recv")[0]
        recv = programs[r][first]
        assert recv.peer == stage - 1
        programs[r] = [
            *programs[r][:first],
            replace(recv, does="send", name="send"),
            *programs[r][first:],
        ]
    rank = ranks[0]
    plan = one(s, cls, rank, s.exchanges(rank, "recv")[0], Upset())
    return replace(
        plan,
        programs=programs,
        faults=(replace(plan.faults[0], ranks=(), node_indexes=()),),
        culprits=frozenset(),
        node_indexes=(),
        may_name=frozenset(range(s.layout.size)),
    )


# --- Nobody's fault, and slowness -------------------------------------------------------------------


def storage(s: Setting, cls: Class) -> Plan:
    """Most ranks, or all, hang in a save at the begin of the step; the rest wait for them."""
    part = s.rng.choice((0.5, 0.8, 1.0))
    stuck = [r for r in range(s.layout.size) if s.rng.random() < part] or [0]
    stops = {r: s.second(r)[0] for r in stuck}
    plan = one(s, cls, stuck[0], stops[stuck[0]], Upset(host_stops=stops))
    fault = replace(plan.faults[0], ranks=tuple(stuck), node_indexes=())
    return replace(
        plan,
        faults=(fault,),
        culprits=frozenset(),
        node_indexes=(),
        suspects=frozenset(stuck),
        may_name=frozenset(stuck),
    )


def rendezvous(s: Setting, cls: Class) -> Plan:
    """A pod never comes up, and the others wait for it at the rendezvous."""
    rank = s.any_rank(beside=(0,))
    index = s.layout.node_index(rank)
    ranks = tuple(s.layout.ranks_of(index))
    stops = dict.fromkeys(range(s.layout.size), 0)
    plan = one(s, cls, rank, s.second(rank)[0], Upset(host_stops=stops))
    return replace(
        plan,
        faults=(replace(plan.faults[0], ranks=ranks, at_s=0.0),),
        at_s=0.0,
        culprits=frozenset(),
        node_indexes=(index,),
        may_name=frozenset(ranks),
    )


def slow(s: Setting, cls: Class) -> Plan:
    """The kernels of one rank, or its exchanges, take longer from the fourth step on."""
    rank = s.any_rank() if cls is Class.SLOW_GPU else crossing_rank(s)[0]
    each = len(s.programs[rank]) // s.steps
    call = 3 * each
    factor = round(s.rng.uniform(1.3, 2.2), 2)
    if cls is Class.SLOW_GPU:
        upset = Upset(slow={rank: (call, factor)})
    else:
        exchanged_s = sum(s.programs[rank][i].seconds for i in s.exchanges(rank))
        more_s = (factor - 1) * s.step_s  # what a step takes longer
        upset = Upset(slow_links={rank: (call, 1 + more_s / exchanged_s)})
    plan = one(s, cls, rank, call, upset)
    return replace(
        plan, faults=(replace(plan.faults[0], factor=factor),), by_node=cls is Class.SLOW_LINK
    )


def imbalance(s: Setting, cls: Class) -> Plan:
    """In each step another rank has the longest sequences, as it has always been in this job."""
    late: dict[Place, float] = {}
    for step in range(1, s.steps):
        rank = s.any_rank()
        each = len(s.programs[rank]) // s.steps
        late[rank, step * each] = s.rng.uniform(*UNEVEN) * s.step_s
    rank = next(iter(late))[0]
    plan = one(s, cls, rank, s.second(rank)[0], Upset(late=late))
    return replace(
        plan,
        faults=(replace(plan.faults[0], ranks=(), node_indexes=()),),
        culprits=frozenset(),
        node_indexes=(),
    )


def healthy(s: Setting, cls: Class) -> Plan:
    """All ranks save, evaluate or compile between two steps, or a step has much to compute; nothing
    is wrong."""
    late: dict[Place, float] = {(r, s.second(r)[0]): 1e5 for r in range(s.layout.size)}
    upset = Upset(late=late)
    if cls is Class.LONG_STEP and s.rng.random() < 0.4:
        upset = Upset(slow={r: (s.second(r)[0], 1e6) for r in range(s.layout.size)})
    plan = one(s, cls, 0, s.second(0)[0], upset)
    return replace(
        plan,
        faults=(replace(plan.faults[0], ranks=(), node_indexes=()),),
        culprits=frozenset(),
        node_indexes=(),
    )


# --- Mixtures ---------------------------------------------------------------------------------------


SIMPLE = (
    Class.LOADER_STALL,
    Class.GC_STALL,
    Class.PYTHON_CRASH,
    Class.SEGFAULT,
    Class.XID_79,
    Class.MISMATCH,
)


def two(s: Setting, cls: Class) -> Plan:
    """Two ranks of two nodes stop in one step, each for its own reason."""
    first, second = s.rng.choice(SIMPLE[:4]), s.rng.choice(SIMPLE[:4])
    one = MAKERS[first](s, first)
    for _ in range(TRIES):
        other = MAKERS[second](s, second)
        if other.node_indexes != one.node_indexes:
            break
    else:
        raise NoPlaceError
    upset = Upset(
        host_stops={**one.upset.host_stops, **other.upset.host_stops},
        deaths={**one.upset.deaths, **other.upset.deaths},
    )
    return replace(
        one,
        upset=upset,
        faults=(*one.faults, *other.faults),
        culprits=one.culprits | other.culprits,
        kinds=one.kinds | other.kinds,
        node_indexes=(*one.node_indexes, *other.node_indexes),
        crashes={**one.crashes, **other.crashes},
        at_s=min(one.at_s, other.at_s),
    )


def with_decoy(s: Setting, cls: Class) -> Plan:
    """A fault, and a thing beside it on an innocent node that has nothing to do with it."""
    base_cls = s.rng.choice(SIMPLE)
    plan = MAKERS[base_cls](s, base_cls)
    innocent = s.any_rank(beside=tuple(plan.culprits))
    at = plan.at_s - s.rng.uniform(1, 90) if cls is Class.RED_HERRING else plan.at_s - 7200.0
    decoy = Fault(
        cls=cls,
        at_s=at,
        ranks=(innocent,),
        node_indexes=(s.layout.node_index(innocent),),
    )
    return replace(plan, decoys=(decoy,))


MAKERS: dict[Class, Maker] = {
    Class.LOADER_STALL: host_stall,
    Class.GC_STALL: host_stall,
    Class.CHECKPOINT_STALL: host_stall,
    Class.LOCK_STALL: host_stall,
    Class.PYTHON_CRASH: crash,
    Class.SEGFAULT: crash,
    Class.OOM_KILL: crash,
    Class.GPU_STALL: gpu_stall,
    Class.XID_79: xid,
    Class.XID_119: xid,
    Class.XID_48: xid,
    Class.XID_94: xid,
    Class.XID_95: xid,
    Class.NODE_DEATH: node_death,
    Class.NIC_DOWN: nic,
    Class.RAIL_FLAP: nic,
    Class.LINK_IN_FLIGHT: link,
    Class.PARTIAL: partial,
    Class.SWITCH: switch,
    Class.SKIPPED: skipped,
    Class.REORDERED: reordered,
    Class.MISMATCH: mismatched,
    Class.P2P_DEADLOCK: deadlock,
    Class.STORAGE: storage,
    Class.RENDEZVOUS: rendezvous,
    Class.SLOW_GPU: slow,
    Class.SLOW_LINK: slow,
    Class.IMBALANCE: imbalance,
    Class.LONG_STEP: healthy,
    Class.COMPILE: healthy,
    Class.CHECKPOINT: healthy,
    Class.TWO_FAULTS: two,
    Class.RED_HERRING: with_decoy,
    Class.OTHER_JOB: with_decoy,
}
# Layouts that a class needs.
PIPELINED = frozenset({Class.P2P_DEADLOCK})
SLOWING = frozenset({Class.SLOW_GPU, Class.SLOW_LINK, Class.IMBALANCE})
