"""Sequence numbers: those of the calls before the window and in it, per group and kind."""

from __future__ import annotations

from functools import cache

from gpufleet_cli.operate.simulate import numbering, world
from gpufleet_cli.operate.simulate.layout import Group
from gpufleet_cli.operate.simulate.programs import Op
from gpufleet_cli.operate.simulate.story import Class, Story

GROUP = Group(number=3, role="context", desc="c", members=(0, 1))


@cache
def story() -> Story:
    return world.make(Class.GC_STALL, seed=3, size=32).story


def test_a_batch_raises_both_counters() -> None:
    """A ring is one collective and one batch; a lone send is no collective; compute counts nowhere."""
    program = [
        Op("ring", "forward", 0.1, GROUP, "ring"),
        Op("send", "forward", 0.1, GROUP, "send", peer=1),
        Op("call", "forward", 0.1, GROUP, "all_reduce", (1,)),
        Op("compute", "forward", 0.1),
        Op("wait", "forward", 0.0, GROUP),
    ]
    assert numbering.group_counts(program) == {3: (2, 2)}


def test_the_first_call_of_a_job_has_number_one() -> None:
    """The window begins after `steps_before` steps like its first."""
    of = story()
    each = numbering.before(of, 0)
    numbers = numbering.numbers(of, 0)
    seen = set()
    for op, number in zip(of.programs[0], numbers, strict=True):
        if op.group is not None and op.does == "call" and op.group.number not in seen:
            seen.add(op.group.number)
            assert number[0] == each[op.group.number][0] + 1
    assert seen


def test_one_call_alone_has_the_number_that_it_has_among_all() -> None:
    """`seq_of` and `numbers` agree on every call of a rank."""
    of = story()
    for rank in (0, 17):
        for call, (op, pair) in enumerate(
            zip(of.programs[rank], numbering.numbers(of, rank), strict=True)
        ):
            if op.does in ("call", "ring", "send", "recv"):
                lone = op.does in ("send", "recv")
                assert numbering.seq_of(of, rank, call) == (pair[1] if lone else pair[0])
