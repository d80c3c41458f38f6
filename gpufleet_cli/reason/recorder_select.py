"""Which dumps belong together: one a rank, of this attempt, made when the rank stood where it says.

Files lie under the same names from attempt to attempt, and a later dump overwrites an earlier one
only where the rank still lives. Sequence numbers decide before clocks do: a member that completed a
full-sync collective which another has not entered by its dump proves that the other's dump was made
earlier. Then times tell an earlier attempt (`stale`) from a job that moved on between dumps
(`early`); clocks alone convict only against ranks of the same node, or by more than a day.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from gpufleet_cli.facts import Gap, RankDump
from gpufleet_cli.reason import recorder_world
from gpufleet_cli.reason.recorder_world import World

NS = 1_000_000_000
STALE_AFTER_NS = 60 * NS
SIBLINGS_AFTER_NS = 300 * NS
ANY_CLOCK_NS = 86_400 * NS
MOST_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The dumps to reason over, and why the others are not among them."""

    world: World
    stale: tuple[int, ...]
    early: tuple[int, ...]
    gaps: tuple[Gap, ...]


def select(dumps: Sequence[RankDump], node_of: Mapping[int, str]) -> Selection:
    """Sort the dumps of a target."""
    single, gaps = _one_a_rank(dumps)
    world = recorder_world.build(single)
    foreign = _foreign(world)
    stale = foreign | _older_than_siblings(single, node_of) | _very_old(single)
    if stale:
        world = _without(world, stale)
    conflicts = _conflicts(world)
    for _ in range(MOST_ROUNDS):
        old = _stale_by_order(world, conflicts)
        if not old:
            break
        stale |= old
        world = _without(world, old)
        conflicts = _conflicts(world)
    early = {rank for rank, conflict in conflicts.items() if conflict.is_behind}
    gaps += [_stale_gap(single[rank], foreign=rank in foreign) for rank in sorted(stale)]
    gaps += [_early_gap(single[rank]) for rank in sorted(early)]
    return Selection(
        world=world, stale=tuple(sorted(stale)), early=tuple(sorted(early)), gaps=tuple(gaps)
    )


def _without(world: World, ranks: set[int]) -> World:
    return recorder_world.build({r: d for r, d in world.dumps.items() if r not in ranks})


def _one_a_rank(dumps: Sequence[RankDump]) -> tuple[dict[int, RankDump], list[Gap]]:
    """The newest dump of each rank; of equals the one that tells most (JSON has no frames)."""
    by_rank: dict[int, list[RankDump]] = defaultdict(list)
    for dump in dumps:
        by_rank[dump.rank].append(dump)
    chosen, gaps = {}, []
    for rank, several in sorted(by_rank.items()):
        several.sort(key=lambda d: (-(d.newest_ns or 0), -d.entries, not d.has_frames, d.path))
        chosen[rank] = several[0]
        gaps += [
            Gap(
                what=f"flight recorder dump {other.path}",
                why=f"rank {rank} has a newer one in {several[0].path}: not used",
                rank=rank,
                origin=other.origin,
            )
            for other in several[1:]
            if not _is_same(other, several[0])
        ]
    return chosen, gaps


def _is_same(one: RankDump, other: RankDump) -> bool:
    """Whether two files hold the same moment, as a pickle and its JSON do."""
    return (one.newest_ns, one.entries) == (other.newest_ns, other.entries)


# --- Other jobs -----------------------------------------------------------------------------------


def _foreign(world: World) -> set[int]:
    """Ranks whose dump names the same largest group as the others do, with other members, or
    shares no group with anybody although others' groups contain it."""
    votes: Counter[int] = Counter()
    for group in world.groups:
        if group.stated and len(group.members) > 1:
            votes[group.number] = len(group.seen)
    if not votes:
        return set()
    widest = max(votes, key=lambda n: (votes[n], len(world.groups[n].members), -n))
    found: set[int] = set()
    for group in world.groups:
        other = world.groups[widest]
        same_name = (group.name, group.desc) == (other.name, other.desc)
        if same_name and group.stated and group.members != other.members:
            found.update(rank for rank in group.seen if rank not in other.seen)
    expected = {rank for n in votes if votes[n] > 1 for rank in world.groups[n].members}
    for rank, numbers in world.own.items():
        own = [n for n in numbers if world.groups[n].stated and len(world.groups[n].members) > 1]
        if own and rank in expected and all(len(world.groups[n].seen) == 1 for n in own):
            found.add(rank)
    return found if len(found) * 2 < len(world.dumps) else set()


# --- Other times ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Conflict:
    """How many dumps a rank's dump cannot be of one moment with, and whether it is the older."""

    count: int = 0
    is_behind: bool = False


def _conflicts(world: World) -> dict[int, _Conflict]:
    """Ranks that have moved on since their dump, and the ranks whose dumps prove it."""
    found: dict[int, _Conflict] = defaultdict(_Conflict)
    for group in world.groups:
        proofs = {
            rank: number
            for rank in group.seen
            if (number := recorder_world.proven(world, rank, group)) is not None
        }
        best = max(proofs.values(), default=-1)
        late = {
            rank: entered
            for rank in group.members
            if rank in world.dumps
            and (entered := world.entered(rank, group)) is not None
            and entered < best
        }
        if not late:
            continue
        least = min(late.values())
        ahead = [rank for rank, number in proofs.items() if number > least and rank not in late]
        for rank in late:
            found[rank].is_behind = True
            found[rank].count += len(ahead)
        for rank in ahead:
            found[rank].count += len(late)
    return found


def _stale_by_order(world: World, conflicts: Mapping[int, _Conflict]) -> set[int]:
    """Of dumps that cannot be of one moment, those that are much older and most at odds."""
    typical = _typical(world.dumps, set(world.dumps))
    if typical is None:
        return set()
    old = {
        rank
        for rank in conflicts
        if (newest := world.dumps[rank].newest_ns) is not None and newest < typical - STALE_AFTER_NS
    }
    most = max((conflicts[rank].count for rank in old), default=0)
    worst = {rank for rank in old if conflicts[rank].count * 2 >= most}
    return worst if len(worst) * 2 <= len(world.dumps) else set()


def _typical(dumps: Mapping[int, RankDump], ranks: set[int]) -> float | None:
    times = [newest for rank in ranks if (newest := dumps[rank].newest_ns) is not None]
    return median(times) if times else None


def _older_than_siblings(dumps: Mapping[int, RankDump], node_of: Mapping[int, str]) -> set[int]:
    """Ranks of one node read one clock."""
    by_node: dict[str, list[int]] = defaultdict(list)
    for rank, dump in dumps.items():
        if rank in node_of and dump.newest_ns is not None:
            by_node[node_of[rank]].append(rank)
    found: set[int] = set()
    for ranks in by_node.values():
        newest = max(dumps[rank].newest_ns or 0 for rank in ranks)
        limit = max(
            SIBLINGS_AFTER_NS, 2_000_000 * max(dumps[rank].timeout_ms or 0 for rank in ranks)
        )
        old = {rank for rank in ranks if (dumps[rank].newest_ns or 0) < newest - limit}
        if len(old) * 2 < len(ranks):
            found |= old
    return found


def _very_old(dumps: Mapping[int, RankDump]) -> set[int]:
    """No node's clock is off by more than a day and still trains."""
    typical = _typical(dumps, set(dumps))
    if typical is None:
        return set()
    return {
        rank
        for rank, dump in dumps.items()
        if dump.newest_ns is not None and dump.newest_ns < typical - ANY_CLOCK_NS
    }


def _stale_gap(dump: RankDump, *, foreign: bool) -> Gap:
    why = (
        "its process groups are not those of this job: left from another run"
        if foreign
        else "its times and numbers do not fit the others': left from an earlier attempt"
    )
    return Gap(
        what=f"flight recorder dump of rank {dump.rank}",
        why=f"stale: {why}",
        would_settle=f"where rank {dump.rank} stopped",
        rank=dump.rank,
        origin=dump.origin,
    )


def _early_gap(dump: RankDump) -> Gap:
    return Gap(
        what=f"flight recorder dump of rank {dump.rank} from the same moment",
        why="peers completed collectives that it had not entered when it was dumped:"
        " the rank moved on afterwards",
        would_settle=f"where rank {dump.rank} stands now",
        rank=dump.rank,
        origin=dump.origin,
    )


def drop(selection: Selection, ranks: Sequence[int]) -> Selection:
    """The selection without some ranks, which then count as ranks without a dump."""
    return replace(selection, world=_without(selection.world, set(ranks)))
