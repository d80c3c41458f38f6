"""What the files of a world leave, by the simulator's own record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpufleet_cli.operate.simulate import told, world
from gpufleet_cli.operate.simulate.engine import EXCHANGED, Upset
from gpufleet_cli.operate.simulate.story import Class
from gpufleet_cli.operate.simulate.told import Replay, Seen

SIZE = 16


def record(
    cls: Class, seed: int, lost: float, monkeypatch: pytest.MonkeyPatch
) -> tuple[world.World, Seen, Replay]:
    """A world with what its record was made from."""
    kept: list[tuple[Seen, Replay]] = []
    known = told.tell

    def keep(plan: told.Plan, cls: Class, seen: Seen, replay: Replay) -> told.Told:
        kept.append((seen, replay))
        return known(plan, cls, seen, replay)

    monkeypatch.setattr(told, "tell", keep)
    made = world.make(cls, seed=seed, size=SIZE, lost=lost)
    return made, *kept[-1]


def explaining(rank: int, seen: Seen, replay: Replay) -> Iterator[int]:
    """All places of a rank's program where a stop of its host leaves what is seen."""
    for i, op in enumerate(replay.healthy[rank]):
        if op.does in EXCHANGED:
            moments = replay.run(Upset(host_stops={rank: i}))
            if told._compare(moments, seen, replay) == 0:
                yield i


@pytest.mark.parametrize("seed", range(2_000_000, 2_000_004))
def test_a_rank_that_may_have_stopped_late_in_its_program_is_left(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole node left no dump: whoever of it explains the rest by stopping, wherever, is in the set."""
    made, seen, replay = record(Class.PYTHON_CRASH, seed, 0.0, monkeypatch)
    away = set(range(SIZE)) - seen.dumps - seen.timed_out.keys()
    could = {rank for rank in away if any(explaining(rank, seen, replay))}
    assert could == {rank for rank in away if told._could_be(rank, seen, replay)}
    if not any(clue.loud for clue in seen.clues):
        assert made.truth.told is not None
        assert could <= made.truth.told


@pytest.mark.parametrize(
    ("captured_s", "dumps", "shown"), [(30.0, 16, True), (30.0, 8, False), (90.0, 16, False)]
)
def test_dumps_of_the_last_seconds_tell_that_nothing_is_stuck(
    captured_s: float, dumps: int, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as most ranks left one. Whoever pauses for minutes leaves old ones."""
    _, seen, replay = record(Class.LONG_STEP, 2_000_011, 0.0, monkeypatch)
    moments = replace(
        replay.moments,
        enqueued=[[10.0, None] for _ in range(SIZE)],
        done=[[None, None] for _ in range(SIZE)],
    )
    found = told._just_moved(
        replace(seen, captured_s=captured_s, dumps=frozenset(range(dumps))),
        replace(replay, moments=moments),
    )
    assert found is shown
