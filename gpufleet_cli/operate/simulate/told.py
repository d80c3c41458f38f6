"""What the files of a world can tell: the smallest set of ranks that they leave.

The record is the simulator's own. Where a file names the cause, that is the set; else a rank without
a dump is in it where the engine, with that rank stopped instead of the guilty one, leaves everybody
whose state is known as it was. A rank whose own timeout is in a log waited, and is out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpufleet_cli.operate.simulate import engine
from gpufleet_cli.operate.simulate.engine import EXCHANGED, Moments, Upset
from gpufleet_cli.operate.simulate.faults import SLOWING, Plan
from gpufleet_cli.operate.simulate.layout import Layout
from gpufleet_cli.operate.simulate.programs import Op
from gpufleet_cli.operate.simulate.story import HEALTHY, Class, Clue

FEW_SEEN = 0.1
JUST_NOW_S = 30.0
# Hangs in flight for each stop, and how often a guilty rank leaves no dump, in these worlds.
FLIGHTS_A_STOP, NO_DUMP_IF_GUILTY, WORTH_A_WORD = 0.25, 0.5, 0.1
DIFFERENT = frozenset({Class.SKIPPED, Class.REORDERED, Class.MISMATCH})
OUT_OF_ORDER = frozenset({Class.SKIPPED, Class.REORDERED})
# Faults of a kernel or a link: others wait with the guilty rank in one operation.
TOGETHER = frozenset({Class.GPU_STALL, Class.XID_79, Class.XID_119})
GPU_FAULTS = TOGETHER | {Class.XID_48, Class.XID_94, Class.XID_95}
# Two ends of a link, and nothing that tells which of them, or of the links of the ring: a set at best.
ENDS = frozenset({Class.LINK_IN_FLIGHT})
HANGING = frozenset({Class.GPU_STALL, Class.LINK_IN_FLIGHT, Class.PARTIAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the files hold: ranks with a readable dump, ranks whose own timeout line names a call,
    ranks whose log is there to its end, and the lines that name a cause. `lost`: the part of the dumps
    that was lost by chance."""

    dumps: frozenset[int]
    timed_out: Mapping[int, int]
    complete: frozenset[int]
    clues: tuple[Clue, ...]
    timing: bool
    lost: float
    captured_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """`ranks` None: nobody is to blame. `settle` says what would decide where `decided` is False.

    `by_node`: a file calls the guilty node by its name and none tells its rank, so that the node with
    its rank open is all that an answer can say. `may_abstain`: the files suggest the cause and do not
    prove it. `shown`: of several guilty ranks those of whom the files tell; None: of all.
    """

    ranks: frozenset[int] | None
    decided: bool
    named: bool
    settle: str = ""
    by_node: bool = False
    may_abstain: bool = False
    shown: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The engine as this world ran it, to ask what another fault would have left."""

    layout: Layout
    linked: engine.Linked
    moments: Moments
    ahead: int
    eager: bool
    seed: int

    @property
    def healthy(self) -> Sequence[Sequence[Op]]:
        """The programs with nothing wrong in them."""
        return self.linked.programs

    def run(self, upset: Upset, of: engine.Programs | None = None) -> Moments:
        """The moments of the window with something wrong in it, of other programs where given."""
        linked = self.linked
        if of is not None:
            linked = engine.link(self.layout, of, ahead=self.ahead)
        return engine.play(linked, upset, eager=self.eager, seed=self.seed)


def tell(plan: Plan, cls: Class, seen: Seen, replay: Replay) -> Told:
    """The set, and whether it is the guilty alone."""
    loud = [clue for clue in seen.clues if clue.loud]
    if not plan.culprits:
        return _nobody(cls, seen, loud, replay)
    if len(plan.faults) > 1:
        return _two(plan, seen, replay)
    named = bool(loud)
    # A report of who did not join tells nothing of who stands in an operation that hangs.
    quiet = [clue for clue in seen.clues if not clue.loud and cls not in HANGING]
    pointed = _pointed([*loud, *quiet])
    if pointed == plan.culprits:
        return Told(ranks=pointed, decided=True, named=named)
    if cls in SLOWING:
        ranks = _pointed(loud) or frozenset(range(replay.layout.size))
        return Told(ranks=ranks, decided=False, named=named, settle="a report of each rank's pace")
    on_node = frozenset(r for i in plan.node_indexes for r in replay.layout.ranks_of(i))
    is_node_told = any(set(clue.nodes) == set(plan.node_indexes) for clue in seen.clues)
    if plan.by_node and is_node_told:
        return Told(ranks=pointed & on_node or on_node, decided=True, named=named)
    ranks = _by_recorders(plan, seen, replay, among=pointed) | plan.culprits
    # Several ranks at once are a set, as long as nothing names what they have in common.
    decided = ranks == plan.culprits and cls not in ENDS and (named or len(ranks) == 1)
    is_node_alone = named and is_node_told and not decided
    return Told(
        ranks=ranks & on_node if is_node_alone else ranks,
        decided=decided,
        named=named,
        settle=_settle(plan, seen),
        by_node=is_node_alone,
    )


def _pointed(clues: Iterable[Clue]) -> frozenset[int]:
    """The ranks that all lines agree on, those that name a cause first."""
    found: frozenset[int] = frozenset()
    for clue in clues:
        ranks = frozenset(clue.ranks)
        found = (found & ranks) or found if found else ranks
    return found


def _nobody(cls: Class, seen: Seen, loud: Sequence[Clue], replay: Replay) -> Told:
    if cls is Class.IMBALANCE:
        return Told(ranks=None, decided=True, named=bool(loud))
    if cls in HEALTHY:
        shown = bool(loud) or _stand_still(seen, replay) or _just_moved(seen, replay)
        return Told(
            ranks=None, decided=shown, named=bool(loud), settle="a later look, dumps of all ranks"
        )
    if cls is Class.P2P_DEADLOCK:
        # a few dumps show that ranks wait for one another only where both ends of a pair left one
        decided = len(seen.dumps) >= 0.75 * replay.layout.size
        return Told(
            ranks=None, decided=decided, named=False, settle="the dumps of both ends of a pair"
        )
    is_saving = cls is Class.STORAGE and bool(seen.clues)
    return Told(
        ranks=None,
        decided=bool(loud) or is_saving,
        named=bool(loud),
        settle="kernel logs of the nodes",
        may_abstain=is_saving and not loud,
    )


def _stand_still(seen: Seen, replay: Replay) -> bool:
    """Most ranks left a dump, and in none of them is an operation open."""
    if len(seen.dumps) < 0.75 * replay.layout.size:
        return False
    moments = replay.moments
    return all(
        done is not None and done <= seen.captured_s
        for rank in seen.dumps
        for op, enqueued, done in zip(
            replay.healthy[rank], moments.enqueued[rank], moments.done[rank], strict=True
        )
        if op.does in EXCHANGED and enqueued is not None and enqueued <= seen.captured_s
    )


def _just_moved(seen: Seen, replay: Replay) -> bool:
    """Most ranks left a dump, and most dumps hold a moment of the last seconds before the capture."""
    fresh = 0
    for rank in seen.dumps:
        moments = (*replay.moments.enqueued[rank], *replay.moments.done[rank])
        seconds = [at for at in moments if at is not None and at <= seen.captured_s]
        fresh += bool(seconds) and seen.captured_s - max(seconds) <= JUST_NOW_S
    return fresh > 0.5 * replay.layout.size


def _two(plan: Plan, seen: Seen, replay: Replay) -> Told:
    """Two guilty ranks: each must be shown by its own dump, by a line, or as the one that gave up on
    nothing where all others did. Where one is, and nothing tells of the other, that one is all there
    is to say."""
    everyone = frozenset(range(replay.layout.size))
    by_line = {r for clue in seen.clues for r in clue.ranks if len(clue.ranks) == 1}
    crashed = frozenset(plan.crashes)
    beside = {r for c in crashed for r in _neighbours(replay.layout, c)}
    quiet = everyone - seen.timed_out.keys() - beside if seen.timed_out else frozenset()
    shown = plan.culprits & (seen.dumps | by_line)
    if len(quiet) == 1:
        shown |= quiet & plan.culprits
    if shown and not shown & by_line and not plan.culprits <= shown:
        shown = frozenset()  # a dump alone leaves open who else there was
    unknown = everyone - seen.dumps - seen.timed_out.keys()
    return Told(
        ranks=shown if shown else unknown | plan.culprits,
        decided=bool(shown),
        named=any(clue.loud for clue in seen.clues),
        settle="the dumps of both ranks",
        shown=shown or None,
    )


def _neighbours(layout: Layout, rank: int) -> tuple[int, ...]:
    """All ranks of a rank's node, whom its agent ends with it."""
    return tuple(layout.ranks_of(layout.node_index(rank)))


def _settle(plan: Plan, seen: Seen) -> str:
    if plan.suspects and not seen.timing:
        return "start times of kernels (TORCH_NCCL_ENABLE_TIMING=1), stacks, an XID on a member"
    return "the dumps of the ranks that left none, and logs of their nodes"


# --- By the recorders -------------------------------------------------------------------------------


def _by_recorders(
    plan: Plan, seen: Seen, replay: Replay, *, among: frozenset[int]
) -> frozenset[int]:
    guilty = plan.culprits
    cls = plan.faults[0].cls
    if guilty <= seen.dumps:
        if not plan.suspects:
            return _with_twin(plan, seen, replay, cls)
        if seen.timing and cls in TOGETHER:
            return guilty
    if cls in DIFFERENT and guilty <= seen.timed_out.keys():
        if _is_shown_by_logs(plan, seen, replay):
            return guilty
        if cls in OUT_OF_ORDER:
            return _out_of_order(plan, seen, replay)
    known = seen.dumps | seen.timed_out.keys()
    everyone = frozenset(range(replay.layout.size))
    # A rank whose GPU stands still gives up like all others: its own timeout clears its host alone.
    by_gpu = cls in GPU_FAULTS
    pool = everyone - (seen.dumps if by_gpu else known) - guilty
    if among:
        pool &= among
    if len(known) < FEW_SEEN * replay.layout.size:
        return pool | guilty | (plan.suspects & among if among else plan.suspects)
    could = {rank for rank in sorted(pool) if _could_be(rank, seen, replay)}
    # With its own dump gone, a GPU that stands still leaves what a rank that stopped would leave.
    is_alone_lost = cls is Class.GPU_STALL and not guilty <= seen.dumps
    suspects = frozenset() if is_alone_lost else plan.suspects
    alike = suspects or _as_in_flight(plan, seen, replay)
    return frozenset(could) | guilty | (alike & among if among else alike)


def _as_in_flight(plan: Plan, seen: Seen, replay: Replay) -> frozenset[int]:
    """The members of the operation that the others wait in for the guilty rank, where it may as well
    hang in flight: the guilty one's dump may be lost by chance, and no log says that it did not wait."""
    rank = min(plan.culprits)
    if len(plan.culprits) > 1 or (rank in seen.complete and rank not in seen.timed_out):
        return frozenset()
    for i in (i for i, op in enumerate(replay.healthy[rank]) if op.does in EXCHANGED):
        if replay.moments.done[rank][i] is None and not _is_past(rank, i, seen, replay):
            op = replay.healthy[rank][i]
            assert op.group is not None
            members = op.group.members
            if op.peer is not None:
                members = tuple(sorted((rank, members[op.peer])))
            some_lost = 1 - (1 - seen.lost) ** len(members)
            odds = FLIGHTS_A_STOP * some_lost / NO_DUMP_IF_GUILTY
            if odds < WORTH_A_WORD and rank not in seen.timed_out:
                return frozenset()
            same = _compare(replay.run(Upset(broken=frozenset({(rank, i)}))), seen, replay) == 0
            return frozenset(members) if same else frozenset()
    return frozenset()


def _is_shown_by_logs(plan: Plan, seen: Seen, replay: Replay) -> bool:
    """Whether the guilty rank's own timeout names another operation or size than at least two of its
    peers have open under the same number. Timeouts do not print types."""
    rank = min(plan.culprits)
    call = seen.timed_out[rank]
    op = plan.programs[rank][call]
    if op.does != "call" or op.group is None:
        return False
    nth = sum(
        o.does in ("call", "ring") and o.group is op.group for o in plan.programs[rank][: call + 1]
    )
    others = 0
    for member in op.group.members:
        same = _nth(replay, member, op.group.number, nth)
        if member == rank or same is None:
            continue
        stands = seen.timed_out.get(member) == same
        if member in seen.dumps:
            entered = replay.moments.enqueued[member][same] is not None
            stands = entered and replay.moments.done[member][same] is None
        theirs = replay.healthy[member][same]
        others += stands and (theirs.name, theirs.size) != (op.name, op.size)
    return others >= 2


def _out_of_order(plan: Plan, seen: Seen, replay: Replay) -> frozenset[int]:
    """A rank that waits elsewhere than its peers, by its own log alone: it left its program, or it and
    not they saw an operation end. Its peers in that operation are not cleared."""
    call, rank = plan.faults[0].call, min(plan.culprits)
    assert call is not None
    op = replay.healthy[rank][call]
    assert op.group is not None
    everyone = frozenset(range(replay.layout.size))
    return frozenset(op.group.members) | (everyone - seen.dumps - seen.timed_out.keys()) | {rank}


def _with_twin(plan: Plan, seen: Seen, replay: Replay, cls: Class) -> frozenset[int]:
    """A rank whose program differs is told by its peers; two alone cannot tell which is odd."""
    if cls not in DIFFERENT:
        return plan.culprits
    call = plan.faults[0].call
    assert call is not None
    rank = min(plan.culprits)
    op = replay.healthy[rank][call]
    assert op.group is not None
    alike = [r for r in _peers(replay.layout, rank) if r in seen.dumps]
    members = [r for r in op.group.members if r in seen.dumps]
    if len(members) > 2 or len(alike) > 2:
        return plan.culprits
    return frozenset(members) | plan.culprits


def _peers(layout: Layout, rank: int) -> list[int]:
    """Ranks that run the same program: those of one pipeline stage."""
    stage = layout.place(rank)[3]
    return [r for r in range(layout.size) if layout.place(r)[3] == stage]


def _could_be(rank: int, seen: Seen, replay: Replay) -> bool:
    """Whether a stop of this rank, alone, leaves all that is seen as it is."""
    return any(_search(rank, seen, replay, kind) for kind in ("host", "gpu"))


def _search(rank: int, seen: Seen, replay: Replay, kind: str) -> bool:
    """Whether some place in its program is one where this rank can have stopped. The later it stops,
    the further all others come, so that each try halves what is left."""
    calls = [i for i, op in enumerate(replay.healthy[rank]) if op.does in EXCHANGED]
    low = next((k for k, i in enumerate(calls) if not _is_past(rank, i, seen, replay)), len(calls))
    high = len(calls)
    while low < high:
        middle = (low + high) // 2
        i = calls[middle]
        if kind == "host":
            upset = Upset(host_stops={rank: i})
        else:
            dead = frozenset((rank, j) for j in range(i, len(replay.healthy[rank])))
            upset = Upset(never_starts=dead)
        order = _compare(replay.run(upset), seen, replay)
        if order == 0:
            return True
        low, high = (low, middle) if order > 0 else (middle + 1, high)
    return False


def _is_past(rank: int, call: int, seen: Seen, replay: Replay) -> bool:
    """Whether a rank with a dump saw the end of this collective: then this one had entered it."""
    op = replay.healthy[rank][call]
    if op.does != "call":
        return False
    assert op.group is not None
    nth = sum(
        o.does in ("call", "ring") and o.group is op.group for o in replay.healthy[rank][: call + 1]
    )
    for member in op.group.members:
        if member == rank or member not in seen.dumps:
            continue
        same = _nth(replay, member, op.group.number, nth)
        if same is not None and replay.moments.done[member][same] is not None:
            return True
    return False


def _nth(replay: Replay, rank: int, group: int, nth: int) -> int | None:
    count = 0
    for i, op in enumerate(replay.healthy[rank]):
        if op.does in ("call", "ring") and op.group is not None and op.group.number == group:
            count += 1
            if count == nth:
                return i
    return None


def _compare(other: Moments, seen: Seen, replay: Replay) -> int:
    """0: the same for all that are seen; 1: somebody came further, so it must have stopped earlier;
    -1: nobody came further and somebody less far."""
    behind = False
    for rank in seen.dumps:
        for mine, theirs in (
            (replay.moments.enqueued[rank], other.enqueued[rank]),
            (replay.moments.done[rank], other.done[rank]),
        ):
            for a, b in zip(mine, theirs, strict=False):
                if (a is None) != (b is None):
                    if a is None:
                        return 1
                    behind = True
    for rank, call in seen.timed_out.items():
        if rank in seen.dumps:
            continue
        blocked = _blocked(other, replay.healthy, rank)
        if blocked is None or blocked > call:
            return 1
        if blocked < call:
            behind = True
    return -1 if behind else 0


def _blocked(moments: Moments, programs: Sequence[Sequence[Op]], rank: int) -> int | None:
    """The first call that was enqueued and never ended."""
    return next(
        (
            i
            for i, at in enumerate(moments.enqueued[rank])
            if at is not None
            and moments.done[rank][i] is None
            and programs[rank][i].does in EXCHANGED
        ),
        None,
    )
