"""When calls happen: collectives are barriers, CPUs run ahead, and what waits for never happens never."""

from __future__ import annotations

from random import Random

import pytest

from gpufleet_cli.operate.simulate import engine, layout, programs
from gpufleet_cli.operate.simulate.engine import EXCHANGED, Moments, Upset
from gpufleet_cli.operate.simulate.layout import Layout
from gpufleet_cli.operate.simulate.programs import Op

STEPS = 3


def job(kind: layout.Kind, size: int = 32) -> tuple[Layout, list[list[Op]]]:
    made = layout.make(Random(5), size=size, kind=kind)
    return made, [programs.step(made, rank, seconds=0.5) * STEPS for rank in range(size)]


def moments(kind: layout.Kind, upset: Upset, *, ahead: int = 20, eager: bool = False) -> Moments:
    made, of = job(kind)
    return engine.run(made, of, upset, ahead=ahead, eager=eager, seed=3)


@pytest.mark.parametrize("kind", layout.KINDS)
def test_a_healthy_job_comes_to_its_end(kind: layout.Kind) -> None:
    """Every call of every rank is enqueued, starts and ends, in that order."""
    found = moments(kind, Upset())
    for rank, done in enumerate(found.done):
        assert None not in done
        for call, at in enumerate(done):
            enqueued, started = found.enqueued[rank][call], found.started[rank][call]
            assert enqueued is not None
            assert at is not None
            assert enqueued <= at
            assert started is None or enqueued <= started <= at


@pytest.mark.parametrize("kind", layout.KINDS)
def test_a_collective_ends_after_its_last_member_has_started(kind: layout.Kind) -> None:
    """All members of the world's collective end together, and nobody before all are in."""
    made, of = job(kind)
    found = engine.run(made, of, Upset(slow={3: (0, 4.0)}), ahead=20, eager=False, seed=3)
    world = made.groups[0]
    calls = [
        next(i for i, op in enumerate(of[rank]) if op.does == "call" and op.group is world)
        for rank in range(made.size)
    ]
    starts = [found.started[rank][call] or 0.0 for rank, call in enumerate(calls)]
    ends = {found.done[rank][call] for rank, call in enumerate(calls)}
    assert 1 == len(ends)
    assert max(starts) < min(end for end in ends if end is not None)


def test_a_stopped_host_holds_everybody_and_nobody_passes_it() -> None:
    """Its peers come no further than one operation that it has not entered."""
    made, of = job("megatron")
    each = len(of[9]) // STEPS
    found = engine.run(made, of, Upset(host_stops={9: each + 5}), ahead=20, eager=False, seed=3)
    assert each + 5 == sum(at is not None for at in found.enqueued[9])
    assert all(None in done for done in found.done)


def test_a_cpu_runs_ahead_of_a_stuck_gpu_and_stops_at_a_sync() -> None:
    """The kernel never ends; the CPU goes on enqueuing until it must wait for the GPU."""
    made, of = job("fsdp")
    each = len(of[4]) // STEPS
    stuck = next(i for i in range(each, 2 * each) if of[4][i].does == "compute")
    sync = next(i for i in range(stuck, len(of[4])) if of[4][i].does == "sync")
    found = engine.run(
        made, of, Upset(never_ends=frozenset({(4, stuck)})), ahead=100, eager=False, seed=3
    )
    last = max(i for i, at in enumerate(found.enqueued[4]) if at is not None)
    assert stuck < last < sync


def test_calls_that_disagree_never_end() -> None:
    """One member's other size hangs the operation for all of its group."""
    made, of = job("hsdp")
    call = next(i for i, op in enumerate(of[2]) if op.does == "call")
    op = of[2][call]
    odd = Op(op.does, op.phase, op.seconds, op.group, op.name, (7,), op.peer, op.blocks)
    of[2] = [*of[2][:call], odd, *of[2][call + 1 :]]
    found = engine.run(made, of, Upset(), ahead=20, eager=False, seed=3)
    assert op.group is not None
    assert all(None is found.done[rank][call] for rank in op.group.members)


def test_only_a_small_send_ends_without_its_receiver() -> None:
    """Rank 0's first send, whose receiver never comes."""
    made, of = job("megatron")
    send = next(i for i, op in enumerate(of[0]) if op.does == "send")
    other = made.groups_of[0]["pipe"].members[1]
    ended = [
        engine.run(made, of, Upset(host_stops={other: 0}), ahead=20, eager=eager, seed=3).done[0][
            send
        ]
        is not None
        for eager in (False, True)
    ]
    assert [False, True] == ended


def test_linked_programs_run_again_and_again_alike() -> None:
    """A run changes nothing in what it was made from."""
    made, of = job("experts")
    linked = engine.link(made, of, ahead=12)
    first = engine.play(linked, Upset(), eager=True, seed=3)
    engine.play(linked, Upset(host_stops={1: 4}), eager=True, seed=3)
    assert first == engine.play(linked, Upset(), eager=True, seed=3)
    assert any(op.does in EXCHANGED for op in of[0])
