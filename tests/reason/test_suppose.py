"""Which missing ranks may have stopped, by playing what the others would then have done."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import RankDump
from gpufleet_cli.operate.simulate import world
from gpufleet_cli.operate.simulate.numbering import seq_of
from gpufleet_cli.operate.simulate.story import Class
from gpufleet_cli.operate.simulate.world import World
from gpufleet_cli.parsers import flight_recorder
from gpufleet_cli.reason import wait_graph
from gpufleet_cli.reason.recorder_cast import Logged
from gpufleet_cli.reason.recorder_finding import GraphFinding, Terminal

SIZE = 32
SEEDS = range(3_000_000, 3_000_006)
WORDS = {"all_reduce": "ALLREDUCE", "all_to_all": "ALLTOALL_BASE", "ring": "COALESCED"}


def dumps(made: World, without: Collection[int] = ()) -> list[RankDump]:
    found = []
    for path, content in sorted(made.files.items()):
        if not path.startswith("dumps/") or int(path.rpartition("_")[2]) in without:
            continue
        evidence = Evidence(path=path, size_bytes=len(content), content=content)
        found += [f for f in flight_recorder.parse(evidence) if isinstance(f, RankDump)]
    return found


def judge(
    made: World, without: Collection[int], logged: dict[int, Logged] | None = None
) -> GraphFinding:
    job = made.story.layout
    return wait_graph.analyse(
        dumps(made, without),
        world_size=SIZE,
        node_of={rank: job.node_of(rank) for rank in range(SIZE)},
        logged=logged or {},
    )


def stalled(seed: int) -> tuple[World, int]:
    made = world.make(Class.GC_STALL, seed=seed, size=SIZE)
    return made, min(made.truth.culprits)


def innocents(made: World, guilty: int) -> list[int]:
    """Three that are not guilty, of other nodes where there are."""
    others = [rank for rank in range(SIZE) if rank != guilty]
    return [others[3], others[SIZE // 2], others[-4]]


def said_in_the_log(made: World, rank: int) -> Logged:
    """What the rank's own timeout says of the call that it waits in."""
    firing = next(f for f in made.story.firings if f.rank == rank)
    op = made.story.programs[rank][firing.call]
    assert op.group is not None
    name = op.name or op.does
    word = WORDS.get(name, name.replace("all_gather", "allgather").upper())
    return Logged(
        group=str(op.group.number),
        seq=seq_of(made.story, rank, firing.call),
        op=word,
        desc=op.group.desc,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_the_guilty_stays_and_innocents_are_cleared(seed: int) -> None:
    """Its dump and three others are lost: it is among the suspects, and not all of them are. Where all
    ranks share one group, each of the lost may be the one that did not come."""
    made, guilty = stalled(seed)
    lost = {guilty, *innocents(made, guilty)}
    finding = judge(made, lost)
    assert () == finding.culprits
    assert guilty in finding.suspects
    assert set(finding.suspects) <= lost
    if made.story.layout.kind == "fsdp":
        assert set(finding.suspects) == lost
    elif made.story.layout.kind == "hsdp":
        assert len(finding.suspects) <= len(lost)
    else:
        assert set(finding.suspects) < lost


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_rank_says_in_its_log_clears_it(seed: int) -> None:
    """With the timeouts of the others at hand fewer are left, and where ranks share one group, one."""
    made, guilty = stalled(seed)
    lost = {guilty, *innocents(made, guilty)}
    fired = {firing.rank for firing in made.story.firings}
    logged = {rank: said_in_the_log(made, rank) for rank in sorted(lost & fired - {guilty})}
    finding = judge(made, lost, logged)
    assert guilty in finding.suspects
    assert set(finding.suspects) <= set(judge(made, lost).suspects)
    if made.story.layout.kind == "fsdp":
        assert (guilty,) == finding.suspects


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lost_innocent_alone_changes_nothing(seed: int) -> None:
    """The guilty one's own dump convicts it."""
    made, guilty = stalled(seed)
    for rank in innocents(made, guilty):
        assert (guilty,) == judge(made, {rank}).culprits


def test_a_hidden_end_says_that_it_may_hang_in_flight() -> None:
    """Where nothing but the dumps speaks, the members of the operation are named beside the missing."""
    for seed in SEEDS:
        made, guilty = stalled(seed)
        root = judge(made, {guilty}).roots[0]
        assert Terminal.HIDDEN is root.kind
        assert guilty in root.ranks
        assert not root.flight or guilty in root.flight


@pytest.mark.parametrize("seed", SEEDS)
def test_a_hang_in_flight_is_told_from_a_missing_rank(seed: int) -> None:
    """All members are there with their dumps: who is missing elsewhere is no suspect."""
    made = world.make(Class.LINK_IN_FLIGHT, seed=seed, size=SIZE)
    told = made.truth.told
    assert told is not None
    away = [rank for rank in range(SIZE) if rank not in told][:2]
    finding = judge(made, away)
    assert made.truth.culprits <= set(finding.suspects)
    assert not set(away) & set(finding.suspects)


@pytest.mark.parametrize("cls", [Class.SKIPPED, Class.REORDERED])
@pytest.mark.parametrize("seed", SEEDS)
def test_who_left_the_program_of_its_role_is_named(cls: Class, seed: int) -> None:
    """By its next operation, where its peers have another; nobody is called stalled for it."""
    made = world.make(cls, seed=seed, size=SIZE)
    if made.story.style.only_active:
        pytest.skip("done operations are left out")
    finding = judge(made, ())
    assert made.truth.culprits == set(finding.mismatches[0].odd_ranks)
    assert () == finding.culprits


@pytest.mark.parametrize("seed", SEEDS)
def test_sends_before_receives_on_both_sides_are_a_circle(seed: int) -> None:
    """All ranks of a stage alike, so that nobody differs from its role; also where a dump is lost."""
    made = world.make(Class.P2P_DEADLOCK, seed=seed, size=SIZE)
    for lost in ((), (5,)):
        finding = judge(made, lost)
        assert () == finding.culprits
        assert any(root.kind is Terminal.CYCLE for root in finding.roots)


# --- What the dumps that are there, and the logs of others, add ------------------------------------


@pytest.mark.parametrize("seed", [3_000_011, 3_000_015, 3_000_021, 3_000_024, 3_000_029])
def test_a_node_without_dumps_does_not_hide_who_is_missing_elsewhere(seed: int) -> None:
    """Groups that lie within the lost node are those that the shape of the known ones makes: played
    with them, its ranks would have gone on, had somebody elsewhere stopped."""
    made, guilty = stalled(seed)
    job = made.story.layout
    node = set(job.ranks_of(job.node_index(guilty)))
    away = [rank for rank in range(SIZE) if rank not in node][::9][:2]
    finding = judge(made, node | set(away))
    assert guilty in finding.suspects
    assert not set(away) & set(finding.suspects)


@pytest.mark.parametrize(("seed", "lost"), [(3_000_011, 2), (3_000_018, 18), (3_000_031, 21)])
def test_a_skip_that_only_a_log_waits_for_is_seen(seed: int, lost: int) -> None:
    """The one rank that stands in the skipped operation left no dump, and says in its log where it waits."""
    made = world.make(Class.SKIPPED, seed=seed, size=SIZE)
    finding = judge(made, {lost}, {lost: said_in_the_log(made, lost)})
    assert {rank for m in finding.mismatches for rank in m.odd_ranks} == made.truth.culprits


def test_counters_alone_tell_who_skipped() -> None:
    """Dumps of open operations only: at the same place of the program it has called one fewer."""
    made = world.make(Class.SKIPPED, seed=3_000_033, size=SIZE)
    assert made.story.style.only_active
    [mismatch] = judge(made, ()).mismatches
    assert (mismatch.what, set(mismatch.odd_ranks)) == ("order", made.truth.culprits)
    assert "collectives of" in mismatch.summary


@pytest.mark.parametrize("seed", [3_000_001, 3_000_019, 3_000_021])
def test_another_type_is_told_by_its_role_where_the_other_member_left_no_dump(seed: int) -> None:
    made = world.make(Class.MISMATCH, seed=seed, size=SIZE)
    guilty = min(made.truth.culprits)
    call = made.story.faults[0].call
    assert call is not None
    group = made.story.programs[guilty][call].group
    assert group is not None
    [mismatch] = judge(made, set(group.members) - {guilty}).mismatches
    assert (mismatch.what, mismatch.odd_ranks) == ("dtype", (guilty,))


@pytest.mark.parametrize(("seed", "lost"), [(3_000_018, 9), (3_000_046, 9), (3_000_054, 20)])
def test_what_a_lost_rank_waits_for_by_its_log_was_sent(seed: int, lost: int) -> None:
    """A small send ends without its receiver: the sender is not behind, and nobody skipped anything."""
    made = world.make(Class.LINK_IN_FLIGHT, seed=seed, size=SIZE)
    finding = judge(made, {lost}, {lost: said_in_the_log(made, lost)})
    assert [root.kind for root in finding.roots] == [Terminal.IN_FLIGHT]
    assert (set(finding.suspects), finding.mismatches) == (made.truth.culprits, ())
