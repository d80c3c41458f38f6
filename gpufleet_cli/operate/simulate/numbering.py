"""The sequence numbers that PyTorch gives to the calls of a rank, shared by logs and dumps.

Each process group keeps two counters on each rank, and both start at 1 with the first call of the
job. The collective's rises with a collective and with a batch of sends and receives (`ring`); the
other rises with a single send or receive and with a batch. A single send or receive carries the
group's collective number as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpufleet_cli.operate.simulate import programs
from gpufleet_cli.operate.simulate.programs import Op
from gpufleet_cli.operate.simulate.story import Story

Counters = dict[int, tuple[int, int]]  # number of a group -> (collectives, sends and receives)

_RISES = {"call": (1, 0), "ring": (1, 1), "send": (0, 1), "recv": (0, 1)}


def group_counts(program: Iterable[Op]) -> Counters:
    """How far a program raises the two counters of each group that it uses."""
    found: Counters = {}
    for op in program:
        if op.group is not None and op.does in _RISES:
            _raise(found, op)
    return found


def before(story: Story, rank: int) -> Counters:
    """The counters of a rank at the begin of the window: all earlier steps went as they should."""
    one = group_counts(programs.step(story.layout, rank, seconds=1.0))
    return {
        group: (story.steps_before * collectives, story.steps_before * p2p)
        for group, (collectives, p2p) in one.items()
    }


def numbers(story: Story, rank: int) -> list[tuple[int, int]]:
    """(collective, p2p) numbers that each call of a rank carries; (0, 0): it is no group's call."""
    counters = before(story, rank)
    return [
        _raise(counters, op) if op.group is not None and op.does in _RISES else (0, 0)
        for op in story.programs[rank]
    ]


def seq_of(story: Story, rank: int, call: int) -> int:
    """The number that a log or dump shows for a call: a lone send's or receive's is of its own kind."""
    op = story.programs[rank][call]
    group = op.group
    if group is None or op.does not in _RISES:
        message = f"call {call} of rank {rank} is no group's call: {op.does}"
        raise ValueError(message)
    kind = 1 if op.does in ("send", "recv") else 0
    usual = group_counts(programs.step(story.layout, rank, seconds=1.0)).get(group.number, (0, 0))
    earlier = (o for o in story.programs[rank][: call + 1] if o.group == group)
    return story.steps_before * usual[kind] + sum(_RISES.get(o.does, (0, 0))[kind] for o in earlier)


def _raise(counters: Counters, op: Op) -> tuple[int, int]:
    assert op.group is not None
    collectives, p2p = counters.get(op.group.number, (0, 0))
    more, more_p2p = _RISES[op.does]
    now = (collectives + more, p2p + more_p2p)
    counters[op.group.number] = now
    return now
