"""The end of the waiting is found in small worlds whose guilty rank is known, and in real dumps.

Properties are those of facts/localisation section 9.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from recorder_worlds import (
    Call,
    Job,
    Run,
    dumps,
    parsed,
    programs,
    raw,
    run,
)

from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import DumpGroup, OpenOp, Origin, RankDump
from gpufleet_cli.parsers import flight_recorder
from gpufleet_cli.reason.wait_graph import (
    GraphFinding,
    analyse,
    clock_offsets,
    explain_rank,
    recorded_world_size,
)

CASES = Path(__file__).parents[2] / "fixtures" / "cases"
JOBS = [Job(2, 2, 2), Job(2, 4, 1), Job(1, 8, 1), Job(4, 2, 2), Job(1, 4, 4), Job(8, 1, 1)]


def judge(job: Job, found: Iterable[RankDump]) -> GraphFinding:
    return analyse(list(found), world_size=job.size, node_of=job.nodes())


def named(finding: GraphFinding) -> list[tuple[str, tuple[int, ...]]]:
    return [(str(root.kind), root.ranks) for root in finding.roots]


def stalls(seed: int) -> tuple[Job, int, Run]:
    """A job of some shape in which one rank's host stops somewhere."""
    rng = random.Random(seed)
    job = rng.choice(JOBS)
    of = programs(job, 4)
    guilty = rng.randrange(job.size)
    return job, guilty, run(job, of, stops={guilty: rng.randrange(6, len(of[guilty]) - 1)})


SEEDS = range(24)


# --- One guilty rank ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rank_that_stopped_is_the_only_root(seed: int) -> None:
    """Whoever waits for whom in between, the waiting ends at the rank whose host stopped."""
    job, guilty, happened = stalls(seed)
    finding = judge(job, dumps(happened))

    assert [("host-silent", (guilty,))] == named(finding)
    assert (1.0, False) == (finding.roots[0].share, finding.roots[0].virtual)
    assert (guilty,) == finding.culprits
    assert finding.waiting == set(range(job.size)) - {guilty}


@pytest.mark.parametrize("seed", SEEDS)
def test_names_order_and_clocks_change_nothing(seed: int) -> None:
    """Groups renamed to hashes, files in another order, nodes' clocks hours apart: same verdict."""
    job, _, happened = stalls(seed)
    expected = named(judge(job, dumps(happened)))
    hours = {"node-0": 3_600_000, "node-1": -7_200_000}
    moved = dumps(happened, names=lambda i: f"{i * 7919 % 104729:x}z", shift_ms=hours)
    random.Random(seed).shuffle(moved)

    assert expected == named(judge(job, moved))


@pytest.mark.parametrize("seed", SEEDS)
def test_order_of_files_gives_equal_findings(seed: int) -> None:
    """The whole finding is equal, words and all."""
    job, _, happened = stalls(seed)
    found = dumps(happened)
    shuffled = random.Random(seed).sample(found, len(found))

    assert repr(judge(job, found)) == repr(judge(job, shuffled))


@pytest.mark.parametrize("seed", SEEDS)
def test_an_innocent_dump_less_widens_at_most(seed: int) -> None:
    """Without up to three dumps of innocent ranks: the same rank, or a set with it; never another."""
    job, guilty, happened = stalls(seed)
    innocent = [rank for rank in range(job.size) if rank != guilty]
    lost = random.Random(seed).sample(innocent, 1 + seed % 3)
    finding = judge(job, dumps(happened.without(*lost)))

    assert (guilty,) == finding.culprits or (
        not finding.culprits and guilty in finding.suspects and len(finding.suspects) > 1
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_without_the_guilty_dump_it_stays_in_the_set(seed: int) -> None:
    """Nobody with a dump is convicted, and the rank without one is suspected."""
    job, guilty, happened = stalls(seed)
    finding = judge(job, dumps(happened.without(guilty)))

    assert () == finding.culprits
    assert guilty in finding.suspects
    assert ["hidden"] == [str(root.kind) for root in finding.roots]


@pytest.mark.parametrize("seed", SEEDS)
def test_with_its_whole_node_gone_it_stays_in_the_set(seed: int) -> None:
    """Siblings that left no dump either may be suspected, ranks with dumps not."""
    job, guilty, happened = stalls(seed)
    node = [rank for rank, name in job.nodes().items() if name == job.nodes()[guilty]]
    finding = judge(job, dumps(happened.without(*node)))

    assert () == finding.culprits
    assert guilty in finding.suspects
    assert set(finding.suspects) <= set(node)
    if 2 * len(node) <= job.size:
        assert (job.nodes()[guilty],) == finding.whole_nodes


@pytest.mark.parametrize("seed", SEEDS)
def test_a_short_ring_is_enough(seed: int) -> None:
    """Rings that kept the last ten operations, different ones on each rank."""
    job, guilty, happened = stalls(seed)

    assert (guilty,) == judge(job, dumps(happened, ring=10)).culprits


@pytest.mark.parametrize("seed", SEEDS)
def test_start_stamps_do_not_confuse(seed: int) -> None:
    """Kernels that started and wait are no stalled GPUs."""
    job, guilty, happened = stalls(seed)

    assert [("host-silent", (guilty,))] == named(judge(job, dumps(happened, timing=True)))


def test_two_guilty_ranks_are_both_named() -> None:
    """Ranks that both hold up the same collective are both without excuse."""
    job = Job(1, 8, 1)
    finding = judge(job, dumps(run(job, programs(job), stops={2: 12, 5: 12})))

    assert [("host-silent", (2, 5))] == named(finding)


# --- GPUs -----------------------------------------------------------------------------------------


def test_completions_that_stop_early_convict_their_rank() -> None:
    """Rank 3's record of completion stops while its peers complete with it; its host runs on."""
    job = Job(4, 2, 1)
    finding = judge(job, dumps(run(job, programs(job), stops={3: 24}, gpu_stops={3: 15})))

    assert [("gpu-stalled", (3,))] == named(finding)
    assert finding.roots[0].behind_by >= 2
    assert "its GPU never reported" in finding.roots[0].claims[0].text


def test_one_lost_completion_convicts_nobody() -> None:
    """A ring that broke in its middle leaves some done and some not: the incomplete are a set."""
    job = Job(4, 1, 1)
    happened = run(job, programs(job), stops=dict.fromkeys(range(4), 12))
    last = happened.records[2][-1]
    last.done_ms = None
    for rank in (0, 1, 3):  # they went on to the next operation, and wait in it
        happened.records[rank].append(replace(last, seq=last.seq + 1, call=Call(last.call.group)))
    finding = judge(job, dumps(happened))

    assert () == finding.culprits
    assert 2 in finding.suspects


def test_the_kernel_that_alone_has_not_started_holds_the_others() -> None:
    """With timing, the member whose kernel did not start is a stalled GPU."""
    job = Job(4, 1, 1)
    happened = run(job, programs(job), stops=dict.fromkeys(range(4), 11))
    for records in happened.records.values():
        records[-1].done_ms = None
    happened.records[1][-1].started = False
    finding = judge(job, dumps(happened, timing=True))

    assert [("gpu-stalled", (1,))] == named(finding)


def test_without_start_stamps_it_is_in_flight_and_unproven() -> None:
    """The same moment without timing names the members and says that nothing dates it."""
    job = Job(4, 1, 1)
    happened = run(job, programs(job), stops=dict.fromkeys(range(4), 11))
    for records in happened.records.values():
        records[-1].done_ms = None
    finding = judge(job, dumps(happened))

    assert [("in-flight", (0, 1, 2, 3))] == named(finding)
    assert "unproven" == finding.stall
    assert () == finding.culprits


def test_a_timed_out_entry_proves_the_stall() -> None:
    """An entry that outlived its timeout says that the job has stopped, and where it says so."""
    job = Job(4, 1, 1)
    happened = run(job, programs(job), stops={1: 11})
    found = [replace(dump, timed_out=3) if dump.rank == 2 else dump for dump in dumps(happened)]
    finding = judge(job, found)

    assert "timed-out" == finding.stall
    assert Origin(path="dumps/nccl_trace_rank_2", entry=3) == finding.timed_out_origin


# --- No fault -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_dumps_that_know_their_time_show_a_young_wait(seed: int) -> None:
    """A healthy run cut anywhere: dumps made within a second of the operation show no fault."""
    rng = random.Random(seed)
    job = rng.choice(JOBS)
    of = programs(job, 4)
    total = run(job, of).clock_ms
    cut = run(job, of, limit=rng.randrange(total // 2, total - 1))

    finding = judge(job, dumps(cut, fresh=True))

    assert finding.no_fault
    assert () == finding.roots


@pytest.mark.parametrize("seed", SEEDS)
def test_dumps_of_different_moments_show_a_job_that_moves(seed: int) -> None:
    """Half of the ranks dumped steps later than the other half: nobody is behind."""
    rng = random.Random(seed)
    job = rng.choice(JOBS)
    of = programs(job, 6)
    early, late = run(job, of, limit=job.size * 12), run(job, of, limit=job.size * 36)
    half = set(rng.sample(range(job.size), job.size // 2))
    found = [parsed(raw(early if rank in half else late, rank), rank) for rank in range(job.size)]

    finding = judge(job, found)

    assert finding.no_fault
    assert "moved on" in finding.no_fault_claims[0].text
    assert set(finding.early) <= half


def test_nothing_open_is_no_fault() -> None:
    """A finished run."""
    job = Job(2, 2, 2)
    finding = judge(job, dumps(run(job, programs(job))))

    assert finding.no_fault
    assert "none of 8 ranks" in finding.no_fault_claims[0].text


def test_many_idle_ranks_are_a_job_in_mid_step() -> None:
    """Five of eight ranks between two operations are no five faults."""
    job = Job(1, 8, 1)
    finding = judge(job, dumps(run(job, programs(job), stops=dict.fromkeys((0, 2, 3, 5, 7), 11))))

    assert finding.no_fault


def test_an_old_open_operation_is_no_youth() -> None:
    """A live capture at half the watchdog's timeout shows the fault."""
    job = Job(1, 4, 1)
    found = dumps(run(job, programs(job), stops={2: 12}), fresh=True)
    aged = [
        replace(dump, dumped_ns=dump.dumped_ns + 300 * 10**9) if dump.dumped_ns else dump
        for dump in found
    ]

    assert judge(job, found).no_fault
    assert (2,) == judge(job, aged).culprits


# --- Dumps that do not belong ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stale_dump_is_left_out_and_named(seed: int) -> None:
    """An innocent rank's dump of an attempt three hours ago neither convicts nor hides anybody."""
    job, guilty, happened = stalls(seed)
    innocent = next(rank for rank in range(job.size) if rank != guilty)
    before = run(job, programs(job, 4), limit=job.size * 9)
    old = parsed(raw(before, innocent, shift_ms=-3 * 3_600_000), innocent)
    finding = judge(job, [*dumps(happened.without(innocent)), old])

    assert (innocent,) == finding.stale
    assert (guilty,) == finding.culprits or guilty in finding.suspects
    assert any(gap.rank == innocent and "stale" in gap.why for gap in finding.gaps)


def test_a_stale_dump_from_further_on_is_left_out_too() -> None:
    """The earlier attempt had got further than this one."""
    job = Job(2, 2, 2)
    happened = run(job, programs(job), stops={5: 14})
    before = run(job, programs(job, 9))
    old = parsed(raw(before, 2, shift_ms=-86_000_000), 2)
    finding = judge(job, [*dumps(happened.without(2)), old])

    assert (2,) == finding.stale
    assert 5 in finding.culprits


def test_a_dump_of_another_job_is_left_out() -> None:
    """The default group has other members: the file is of another world."""
    job, other = Job(2, 2, 2), Job(2, 2, 1)
    happened = run(job, programs(job), stops={5: 14})
    foreign = parsed(raw(run(other, programs(other)), 1), 1)
    finding = judge(job, [*dumps(happened.without(1)), foreign])

    assert (1,) == finding.stale
    assert 5 in {*finding.culprits, *finding.suspects}


def test_a_whole_node_an_hour_off_is_not_stale() -> None:
    """A clock is no reason to leave a node out."""
    job = Job(2, 2, 2)
    finding = judge(
        job, dumps(run(job, programs(job), stops={5: 14}), shift_ms={"node-1": -3_600_000})
    )

    assert () == finding.stale
    assert (5,) == finding.culprits


def test_of_two_dumps_of_a_rank_the_newer_counts() -> None:
    """The older one is named among the gaps; a pickle and its JSON are one dump."""
    job = Job(1, 4, 1)
    happened = run(job, programs(job), stops={2: 12})
    found = dumps(happened)
    before = parsed(raw(run(job, programs(job), limit=20), 1), 1, prefix="old/rank_")
    finding = judge(job, [*found, before, *(replace(d, path=f"json/{d.path}") for d in found)])

    assert (2,) == finding.culprits
    assert ["flight recorder dump dumps/old/rank_1"] == [gap.what for gap in finding.gaps]


def test_a_dump_from_before_the_rank_died_counts_as_missing() -> None:
    """Rank 3 left only a dump from steps ago: it is suspected, not its peers."""
    job = Job(1, 8, 1)
    of = programs(job, 6)
    happened = run(job, of, stops={3: 30})
    before = parsed(raw(run(job, of, stops=dict.fromkeys(range(8), 16)), 3), 3)
    finding = judge(job, [*dumps(happened.without(3)), before])

    assert (3,) == finding.early
    assert [("hidden", (3,))] == named(finding)


def test_unreadable_dumps_are_told_apart_from_missing_ones() -> None:
    """A file that cannot be read says that its rank wrote."""
    job = Job(1, 4, 1)
    found = dumps(run(job, programs(job), stops={2: 12}).without(1, 2))
    finding = analyse(found, world_size=4, node_of=job.nodes(), unreadable=[1])

    assert ((1, 2), (1,)) == (finding.missing, finding.unreadable)
    assert "unreadable" == finding.standing[1].standing
    assert [2] == [gap.rank for gap in finding.gaps]


# --- Groups without members, counters without entries ---------------------------------------------


def gloo(happened: Run, rank: int, *, failed: bool = False) -> RankDump:
    """The rank's dump as Gloo writes it."""
    document = raw(happened, rank)
    for each in document["entries"]:
        each["retired"] = each["state"] == "completed"
        each.update(state="scheduled", time_discovered_completed_ns=None)
        each["profiling_name"] = each["profiling_name"].replace("nccl:", "gloo:")
    if failed:
        document["entries"][-1]["retired"] = True
    document["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[]"}}
    return parsed(document, rank)


def test_gloo_groups_are_who_has_entries() -> None:
    """No members in the file, `retired` alone tells what is done."""
    job = Job(1, 4, 1)
    happened = run(job, programs(job), stops={2: 12})

    assert (2,) == judge(job, [gloo(happened, rank) for rank in range(4)]).culprits


def test_a_gloo_operation_that_failed_counts_as_open() -> None:
    """Gloo retires what failed: nobody can have completed what a member has not entered."""
    job = Job(1, 4, 1)
    happened = run(job, programs(job), stops={2: 11})
    finding = judge(job, [gloo(happened, rank, failed=rank != 2) for rank in range(4)])

    assert (2,) == finding.culprits
    assert () == finding.early


def bare(rank: int, groups: Sequence[DumpGroup], **over: object) -> RankDump:
    """A dump by hand."""
    fields: dict[str, object] = {
        "rank": rank,
        "path": f"rank_{rank}",
        "version": "2.10",
        "backend": "nccl",
        "entries": 10,
        "wrapped": False,
        "oldest_ns": None,
        "newest_ns": None,
        "groups": tuple(groups),
        "timed_out": None,
        "has_start_stamps": False,
        "has_frames": False,
        "only_active": False,
        "origin": Origin(path=f"rank_{rank}"),
        **over,
    }
    return RankDump(**fields)  # type: ignore[arg-type]


def pg(
    name: str,
    members: Sequence[int],
    entered: int,
    completed: int,
    *ops: OpenOp,
    from_status: bool = False,
    last_p2p: int | None = None,
) -> DumpGroup:
    return DumpGroup(
        name=name,
        desc=name,
        members=tuple(members),
        last_enqueued=entered,
        last_completed=completed,
        from_status=from_status,
        last_p2p=last_p2p,
        open_count=len(ops),
        open_ops=ops,
    )


def op(entry: int, seq: int, name: str = "all_reduce", **over: object) -> OpenOp:
    fields: dict[str, object] = {
        "entry": entry,
        "seq": seq,
        "op": name,
        "is_p2p": False,
        "sizes": "8",
        "dtypes": "Float",
        "created_ns": None,
        **over,
    }
    return OpenOp(**fields)  # type: ignore[arg-type]


def transfer(entry: int, seq: int, peer: int, *, is_send: bool, name: str = "send") -> OpenOp:
    return op(entry, seq, name, is_p2p=True, peers=((peer, is_send),))


def test_counters_alone_show_who_is_behind() -> None:
    """A rank without entries: all that it enqueued is done, and it enqueued less."""
    world = range(3)
    finding = analyse(
        [
            bare(0, [pg("g", world, 9, 8, op(9, 9))]),
            bare(1, [pg("g", world, 8, 8, from_status=True)], entries=0),
            bare(2, [pg("g", world, 9, 8, op(9, 9))]),
        ],
        world_size=3,
        node_of={},
    )

    assert [("host-silent", (1,))] == named(finding)


def test_a_dump_that_says_nothing_leaves_its_rank_suspected() -> None:
    """Neither entries nor counters: it may be this rank, and no other."""
    world = range(3)
    finding = analyse(
        [
            bare(0, [pg("g", world, 9, 8, op(9, 9))]),
            bare(1, [], entries=0),
            bare(2, [pg("g", world, 9, 8, op(9, 9))]),
        ],
        world_size=3,
        node_of={},
    )

    assert {1} == {*finding.culprits, *finding.suspects}


def test_a_root_that_completed_its_broadcast_proves_nothing() -> None:
    """Rooted operations end on their root alone: no bound, no stalled GPU."""
    world = range(3)
    finding = analyse(
        [
            bare(0, [pg("g", world, 12, 11, op(12, 12))]),
            bare(
                1,
                [pg("g", world, 12, 9, op(7, 10, "broadcast"), op(8, 11, "broadcast"), op(9, 12))],
            ),
            bare(2, [pg("g", world, 9, 9)]),
        ],
        world_size=3,
        node_of={},
    )

    assert [("host-silent", (2,))] == named(finding)


def test_a_wait_behind_an_older_operation_is_followed() -> None:
    """Rank 1 has entered what rank 0 waits for, behind one that waits for rank 2."""
    finding = analyse(
        [
            bare(0, [pg("a", [0, 1], 5, 4, op(9, 5))]),
            bare(1, [pg("a", [0, 1], 5, 4, op(9, 5)), pg("b", [1, 2], 3, 2, op(8, 3))]),
            bare(2, [pg("b", [1, 2], 2, 2)]),
        ],
        world_size=3,
        node_of={},
    )

    assert [("host-silent", (2,))] == named(finding)
    assert (0, 1, "stream-behind") in finding.edges


def test_sends_meet_receives_by_pair_and_order() -> None:
    """A receive waits for the peer whose send is missing; numbers of p2p are each rank's own."""
    pipe = [0, 1, 2]
    finding = analyse(
        [
            bare(0, [pg("pp", pipe, 0, 0, last_p2p=40)]),
            bare(1, [pg("pp", pipe, 0, 0, transfer(9, 81, 0, is_send=False), last_p2p=81)]),
            bare(2, [pg("pp", pipe, 0, 0, transfer(9, 40, 1, is_send=False), last_p2p=40)]),
        ],
        world_size=3,
        node_of={},
    )

    assert [("host-silent", (0,))] == named(finding)


def test_a_send_and_its_receive_that_both_stand_are_in_flight() -> None:
    """Both sides entered the transfer: the pair is the set."""
    finding = analyse(
        [
            bare(0, [pg("pp", [0, 1], 0, 0, transfer(9, 7, 1, is_send=True), last_p2p=7)]),
            bare(1, [pg("pp", [0, 1], 0, 0, transfer(9, 7, 0, is_send=False), last_p2p=7)]),
        ],
        world_size=2,
        node_of={},
    )

    assert ("in-flight", (0, 1)) in named(finding)
    assert "unproven" == finding.stall


def test_a_batch_waits_for_all_its_peers() -> None:
    """A coalesced batch is one operation over the union of its other sides."""
    pipe = [0, 1, 2]
    batch = op(9, 5, "coalesced", is_p2p=True, peers=((0, False), (2, True)))
    finding = analyse(
        [
            bare(0, [pg("pp", pipe, 0, 0, transfer(9, 5, 1, is_send=True), last_p2p=5)]),
            bare(1, [pg("pp", pipe, 0, 0, batch, last_p2p=5)]),
            bare(2, [pg("pp", pipe, 0, 0, last_p2p=4)]),
        ],
        world_size=3,
        node_of={},
    )

    assert [("host-silent", (2,))] == named(finding)


def test_a_group_that_a_rank_never_used_is_one_it_has_not_entered() -> None:
    """Communicators are made at first use: a dump that does not list a group has not called it."""
    finding = analyse(
        [
            bare(0, [pg("w", [0, 1], 3, 3), pg("late", [0, 1], 1, 0, op(9, 1))]),
            bare(1, [pg("w", [0, 1], 3, 3)]),
        ],
        world_size=2,
        node_of={},
    )

    assert [("host-silent", (1,))] == named(finding)


# --- Odd sizes ------------------------------------------------------------------------------------


def test_no_dumps_say_nothing() -> None:
    """Nothing is claimed of nothing."""
    finding = analyse([], world_size=None, node_of={})

    assert (0, (), False) == (finding.dumps, finding.roots, finding.no_fault)
    assert explain_rank(finding, 0)


def test_one_rank_alone() -> None:
    """A world of one rank that waits in its own collective has nobody else to blame."""
    finding = analyse([bare(0, [pg("w", [0], 3, 2, op(9, 3))])], world_size=1, node_of={})

    assert [("gpu-stalled", (0,))] == named(finding)


def test_the_world_size_is_that_of_the_largest_group() -> None:
    """Also from ranks when no group has members."""
    assert 8 == recorded_world_size([bare(1, [pg("w", range(8), 1, 1)])])
    assert 6 == recorded_world_size([bare(5, [])])
    assert recorded_world_size([]) is None


def test_a_world_of_thousands_takes_no_quadratic_step() -> None:
    """4,096 ranks in one world group, a rank behind and a hundred without dumps: counted by the
    edges of the graph, which stay as many as ranks."""
    size = 4096
    world = tuple(range(size))
    waiting = pg("w", world, 9, 8, op(9, 9))
    found = [bare(rank, [waiting]) for rank in world if rank % 40 != 7]
    found[17] = bare(found[17].rank, [pg("w", world, 8, 8)])
    finding = analyse(found, world_size=size, node_of={})

    assert (found[17].rank,) == finding.culprits
    assert len(finding.edges) <= 256
    assert 103 == len(finding.missing)


# --- Clocks ---------------------------------------------------------------------------------------


def test_clock_offsets_are_found_from_completions() -> None:
    """A node that is 90 s ahead of three others shows it; the median of all is zero."""
    job = Job(1, 8, 1, ranks_per_node=2)
    found = dumps(run(job, programs(job, 9)), shift_ms={"node-2": 90_000})
    offsets = clock_offsets(found, job.nodes())

    assert 90.0 == pytest.approx(offsets["node-2"][0], abs=0.1)
    assert all(abs(offsets[f"node-{n}"][0]) < 0.1 for n in (0, 1, 3))
    assert all(error < 0.1 for _, error in offsets.values())


def test_nodes_without_a_shared_group_are_joined_through_others() -> None:
    """Node 0 shares a group with node 1, node 1 with node 2."""
    job = Job(1, 3, 1, ranks_per_node=1)
    found = dumps(run(job, programs(job, 9)), shift_ms={"node-1": 5_000, "node-2": 9_000})
    pairs = {0: {0, 1}, 1: {0, 1, 2}, 2: {1, 2}}
    groups = {
        rank: [
            replace(dump.groups[0], name=f"{a}-{b}", members=(a, b))
            for a, b in ((0, 1), (1, 2))
            if {a, b} <= pairs[rank]
        ]
        for rank, dump in enumerate(found)
    }
    linked = [replace(dump, groups=tuple(groups[dump.rank])) for dump in found]
    offsets = clock_offsets(linked, job.nodes())

    assert 9.0 == pytest.approx(offsets["node-2"][0] - offsets["node-0"][0], abs=0.1)


def test_nodes_without_stamps_have_no_offset() -> None:
    """Gloo stamps nothing."""
    job = Job(1, 4, 1)
    happened = run(job, programs(job))

    assert {} == clock_offsets([gloo(happened, rank) for rank in range(4)], job.nodes())


# --- Words ----------------------------------------------------------------------------------------


def test_every_rank_is_explained() -> None:
    """The culprit by what it did not enter, a witness by whom it waits for, the missing as such."""
    job = Job(2, 2, 2)
    finding = judge(job, dumps(run(job, programs(job), stops={5: 14}).without(0)))

    assert "never entered" in " ".join(explain_rank(finding, 5))
    assert "witness: its waiting leads to rank 5" in " ".join(explain_rank(finding, 7))
    assert ["Rank 0 left no dump."] == explain_rank(finding, 0)
    assert ["No dump speaks of rank 99."] == explain_rank(finding, 99)


def test_claims_stand_on_entries_of_dumps() -> None:
    """Each sentence names the file, and the witness's entry."""
    job = Job(2, 2, 2)
    finding = judge(job, dumps(run(job, programs(job), stops={5: 14})))
    claims = finding.roots[0].claims

    assert "dumps/nccl_trace_rank_5" == str(claims[0].origin)
    assert claims[1].origin is not None
    assert claims[1].origin.entry is not None


def test_the_report_lists_what_is_waited_in() -> None:
    """Groups with most waiting ranks first; sums and the sentence agree with the finding."""
    job = Job(2, 2, 2)
    report = judge(job, dumps(run(job, programs(job), stops={5: 14}))).report

    assert report is not None
    assert (8, (5,), 7) == (report.dumps, report.roots, report.waiting)
    assert "Rank 5 never entered" in report.finding
    assert any(5 in group.behind for group in report.groups)


# --- Real dumps -----------------------------------------------------------------------------------


def case(name: str, *, without: int | None = None) -> GraphFinding:
    """The dumps of a handed case, its ranks on its nodes."""
    folder = CASES / name
    evidences = [
        Evidence(path=str(p.relative_to(folder)), size_bytes=p.stat().st_size, file=p)
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    ]
    wanted = [e for e in evidences if flight_recorder.matches(e.path, e.head)]
    results = [found for _, found in flight_recorder.parse_many(wanted)]
    found = [
        fact
        for facts in results
        if isinstance(facts, list)
        for fact in facts
        if isinstance(fact, RankDump) and fact.rank != without
    ]
    lost = [r.rank for r in results if isinstance(r, flight_recorder.UnreadableDump)]
    topology = folder / "topology.json"
    ranks = json.loads(topology.read_text())["ranks"] if topology.exists() else []
    return analyse(
        found,
        world_size=recorded_world_size(found),
        node_of={each["rank"]: each["node"] for each in ranks},
        unreadable=[rank for rank in lost if rank is not None],
    )


@pytest.mark.parametrize(
    ("name", "kind", "ranks"),
    [
        ("fr/fr-01-dataloader-stall-8", "host-silent", (5,)),
        ("fr/fr-04-tp-cascade-16", "host-silent", (9,)),
        ("fr/fr-06-frozen-bad-dumps-8", "hidden", (2,)),
        ("fr/fr-07-gloo-verbatim-8", "host-silent", (1,)),
        ("fr-gpu/gpu_error_2nd", "gpu-stalled", (9, 14)),
        ("fr-gpu/lock_gil_1st", "host-silent", (9, 14)),
    ],
)
def test_real_dumps_lead_to_the_injected_fault(
    name: str, kind: str, ranks: tuple[int, ...]
) -> None:
    """The dumps alone name who was made to fail."""
    assert [(kind, ranks)] == named(case(name))


def test_a_killed_rank_is_among_its_nodes_lost_ranks() -> None:
    """The agent ended the siblings too: the dumps leave the node, and say that it is whole."""
    finding = case("fr/fr-02-sigkill-node-16")

    assert () == finding.culprits
    assert 6 in finding.suspects
    assert set(finding.suspects) <= {4, 5, 6, 7}
    assert 1 == len(finding.whole_nodes)


@pytest.mark.parametrize("lost", [8, 9, 12, 14])
def test_a_lost_dump_beside_two_guilty_ranks(lost: int) -> None:
    """Without one of their dumps the other is still named, and the lost one stays unsettled; a lost
    innocent adds no culprit."""
    finding = case("fr-gpu/gpu_error_2nd", without=lost)

    assert tuple(rank for rank in (9, 14) if rank != lost) == finding.culprits
    assert (lost,) == finding.unsettled
    assert "its dump would settle" in " ".join(explain_rank(finding, lost))


def test_a_live_dump_of_a_healthy_job_shows_no_fault() -> None:
    """Ranks steps apart, one waiting: the job moved on."""
    assert case("fr/fr-05-healthy-midflight-8").no_fault


def test_damaged_files_are_named() -> None:
    """Cut, empty and a web page: three ranks that wrote something."""
    assert (0, 5, 7) == case("fr/fr-06-frozen-bad-dumps-8").unreadable
