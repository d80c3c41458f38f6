"""Ranks that run different programs are told, and the odd one where something tells it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from recorder_worlds import Call, Job, Programs, dumps, programs, run

from gpufleet_cli.facts import DumpGroup, OpenOp, Origin, RankDump
from gpufleet_cli.parsers.recorder_program import OpKind, pack
from gpufleet_cli.reason.programs import call_of
from gpufleet_cli.reason.wait_graph import GraphFinding, analyse

JOBS = [Job(2, 2, 2), Job(2, 4, 1), Job(1, 8, 1), Job(4, 2, 2), Job(1, 4, 4)]
SEEDS = range(16)


def judge(job: Job, of: Programs) -> GraphFinding:
    return analyse(dumps(run(job, of)), world_size=job.size, node_of=job.nodes())


def pick(seed: int, desc: str | None = None) -> tuple[Job, Programs, int, int]:
    """A job, its programs, a rank, and one of its collectives with other members."""
    rng = random.Random(seed)
    job = rng.choice([j for j in JOBS if desc is None or len(j.group(desc, 0)[1]) > 1])
    of = programs(job, 4)
    rank = rng.randrange(job.size)
    places = [
        i
        for i, call in enumerate(of[rank])
        if call.peer is None
        and len(call.group[1]) > 1
        and i > len(of[rank]) // 3
        and (desc is None or call.group[0] == desc)
    ]
    return job, of, rank, rng.choice(places[:-1] or places)


def changed(of: Programs, rank: int, at: int, **over: Any) -> Programs:
    calls = list(of[rank])
    calls[at] = replace(calls[at], **over)
    return {**of, rank: calls}


@pytest.mark.parametrize(
    ("what", "over"),
    [
        ("size", {"sizes": ((7,),)}),
        ("operation", {"op": "_reduce_scatter_base"}),
        ("dtype", {"dtype": "BFloat16"}),
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_odd_rank_is_named(seed: int, what: str, over: dict[str, object]) -> None:
    """By the majority of its group, or by what sibling groups called under the same number."""
    job, of, rank, at = pick(seed)
    finding = judge(job, changed(of, rank, at, **over))
    mismatch = finding.mismatches[0]

    assert (what, (rank,)) == (mismatch.what, mismatch.odd_ranks)
    assert mismatch.decided_by == (
        "majority" if len(of[rank][at].group[1]) > 2 else "sibling groups"
    )
    assert () == finding.culprits
    assert "in-flight" not in {str(root.kind) for root in finding.roots}


def test_the_claim_shows_both_calls_and_where_from() -> None:
    """The odd side first, each with its entry and its own frame."""
    job = Job(1, 4, 1)
    finding = judge(job, changed(programs(job), 2, 9, sizes=((4088,),)))
    odd, right = finding.mismatches[0].claims

    assert "rank 2 called all_reduce of 4088 Float as number 3 of mesh_dp" in odd.text
    assert "from main (/workspace/train.py:462)" in odd.text
    assert (2, None) == (odd.rank, right.rank)
    assert odd.origin is not None
    assert ("dumps/nccl_trace_rank_2", 9) == (odd.origin.path, odd.origin.entry)


def test_one_against_one_without_siblings_names_nobody() -> None:
    """A group of two and no other of its kind: both sides are shown, none is blamed."""
    job = Job(1, 2, 1)
    finding = judge(job, changed(programs(job), 1, 9, sizes=((7,),)))

    assert ((), "") == (finding.mismatches[0].odd_ranks, finding.mismatches[0].decided_by)
    assert {(0,), (1,)} == {side.ranks for side in finding.mismatches[0].sides}


def test_two_against_two_names_nobody() -> None:
    """Half and half is no majority."""
    job = Job(1, 4, 1)
    of = programs(job)
    of = changed(changed(of, 0, 9, sizes=((7,),)), 3, 9, sizes=((7,),))

    assert () == judge(job, of).mismatches[0].odd_ranks


def test_other_shapes_of_the_same_size_agree() -> None:
    """NCCL counts elements."""
    job = Job(1, 4, 1)
    of = changed(programs(job), 2, 9, sizes=((16, 16),))

    assert (
        ()
        == analyse(
            [replace(d, path=d.path) for d in dumps(run(job, programs(job)))],
            world_size=4,
            node_of={},
        ).mismatches
    )
    assert call_of("all_reduce", "16x16", "Float") == call_of("all_reduce", "256", "Float")
    assert () == judge(job, {**of, 2: programs(job)[2]}).mismatches


def test_all_to_all_may_differ() -> None:
    """Experts get different numbers of tokens."""
    job = Job(1, 4, 1)
    of = {
        rank: [
            replace(call, op="all_to_all", sizes=((2000 + rank, 5120),))
            if call.group[0] == "mesh_dp"
            else call
            for call in calls
        ]
        for rank, calls in programs(job).items()
    }
    stopped = run(job, of, stops={2: 15})
    finding = analyse(dumps(stopped), world_size=4, node_of={})

    assert () == finding.mismatches
    assert (2,) == finding.culprits


@pytest.mark.parametrize("desc", ["mesh_tp", "mesh_dp"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_skipped_collective_is_found_by_role(seed: int, desc: str) -> None:
    """What looks like a circle, or like a group in flight, is one rank that left its role."""
    job, of, rank, at = pick(seed, desc)
    calls = list(of[rank])
    del calls[at]
    finding = judge(job, {**of, rank: calls})

    assert [(rank,)] == [mismatch.odd_ranks for mismatch in finding.mismatches[:1]]
    assert () == finding.culprits


def test_a_circle_of_two_names_nobody() -> None:
    """Two ranks that enter two groups in opposite order: each is the other's only witness."""
    job = Job(2, 1, 1)
    world, tensor = job.group("default_pg", 0), job.group("mesh_tp", 0)
    head = [Call(tensor), Call(world)] * 3
    finding = judge(
        job, {0: [*head, Call(tensor), Call(world)], 1: [*head, Call(world), Call(tensor)]}
    )

    assert ["cycle"] == [str(root.kind) for root in finding.roots] or finding.mismatches
    assert () == finding.culprits
    assert all(mismatch.odd_ranks == () for mismatch in finding.mismatches)


def test_a_send_and_a_receive_of_different_size() -> None:
    """The two sides of one transfer; nobody can say which is right."""

    def side(rank: int, peer: int, sizes: str, *, is_send: bool) -> RankDump:
        name = "send" if is_send else "recv"
        return by_hand(
            rank,
            group("pp", (0, 1), 0, open_op(name, 3, sizes, peers=((peer, is_send),)), last_p2p=3),
        )

    finding = analyse(
        [side(0, 1, "64x64", is_send=True), side(1, 0, "64x32", is_send=False)],
        world_size=2,
        node_of={},
    )

    assert ("size", ()) == (finding.mismatches[0].what, finding.mismatches[0].odd_ranks)


def test_a_rank_that_is_only_late_is_no_program_error() -> None:
    """Rank 2 has a collective open that waits for rank 0, who waits for rank 2's next one. Rank 3,
    of the same role, entered them in that order: rank 2 did not skip anything, it stopped."""
    kinds = [OpKind(i, "all_reduce", False, "8", "Float", ()) for i in (0, 1)]
    done = pack(kinds, [0, 1], [5, 7])
    finding = analyse(
        [
            by_hand(
                0, group("pp_e", (0, 2), 4), group("pp_c", (0, 2), 7, open_op("all_reduce", 7))
            ),
            by_hand(1, group("pp_e'", (1, 3), 5), group("pp_c'", (1, 3), 7)),
            by_hand(
                2, group("pp_e", (0, 2), 5, open_op("all_reduce", 5)), group("pp_c", (0, 2), 6)
            ),
            replace(by_hand(3, group("pp_e'", (1, 3), 5), group("pp_c'", (1, 3), 7)), program=done),
            *(
                by_hand(rank, group("w", (4, 5, 6, 7), 3, open_op("all_reduce", 3)))
                for rank in range(4, 8)
            ),
        ],
        world_size=8,
        node_of={},
    )

    assert ("host-silent", (2,)) in [(str(root.kind), root.ranks) for root in finding.roots]
    assert () == finding.mismatches


def open_op(
    name: str, seq: int, sizes: str = "8", *, peers: Sequence[tuple[int, bool]] = ()
) -> OpenOp:
    return OpenOp(
        entry=9,
        seq=seq,
        op=name,
        is_p2p=bool(peers),
        sizes=sizes,
        dtypes="Float",
        created_ns=None,
        peers=tuple(peers),
    )


def group(
    name: str, members: tuple[int, ...], entered: int, *ops: OpenOp, last_p2p: int | None = None
) -> DumpGroup:
    return DumpGroup(
        name=name,
        desc=name.rstrip("'"),
        members=members,
        last_enqueued=entered,
        last_completed=entered - sum(not op.is_p2p for op in ops),
        last_p2p=last_p2p,
        open_count=len(ops),
        open_ops=ops,
    )


def by_hand(rank: int, *groups: DumpGroup) -> RankDump:
    return RankDump(
        rank=rank,
        path=f"rank_{rank}",
        version="2.10",
        backend="nccl",
        entries=10,
        wrapped=True,
        oldest_ns=None,
        newest_ns=None,
        groups=groups,
        timed_out=None,
        has_start_stamps=False,
        has_frames=False,
        only_active=False,
        origin=Origin(path=f"rank_{rank}"),
    )
