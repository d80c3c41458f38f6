"""Made incidents: the same from the same seed, silent about their truth, and true in what they tell."""

from __future__ import annotations

import pytest

from gpufleet_cli.errors import UsageError
from gpufleet_cli.operate.simulate import world
from gpufleet_cli.operate.simulate.fault_kinds import KINDS_OF
from gpufleet_cli.operate.simulate.story import HEALTHY, Class
from gpufleet_cli.operate.simulate.world import World

SIZE = 16


def made(cls: Class, seed: int = 1, *, lost: float = 0.0) -> World:
    return world.make(cls, seed=seed, size=SIZE, lost=lost)


@pytest.mark.parametrize("cls", list(Class))
def test_the_same_seed_makes_the_same_bytes(cls: Class) -> None:
    """Files and truth; another seed makes others."""
    one, same, other = made(cls, 3, lost=0.2), made(cls, 3, lost=0.2), made(cls, 4, lost=0.2)
    assert (one.files, one.truth) == (same.files, same.truth)
    assert one.files != other.files


@pytest.mark.parametrize("cls", list(Class))
def test_the_truth_is_whole_and_not_in_the_files(cls: Class) -> None:
    """The guilty are ranks of the job and in the set that the files leave; no file names the class."""
    for lost in (0.0, 0.2):
        found = made(cls, 5, lost=lost)
        truth = found.truth
        assert truth.culprits <= set(range(SIZE))
        assert truth.kinds
        if truth.told is not None and not truth.decided:
            assert truth.culprits & truth.told
        if (
            truth.decided
            and truth.told is not None
            and not truth.by_node
            and len(truth.culprits) == 1
        ):
            assert truth.culprits == truth.told
        if cls is not Class.OOM_KILL:  # the kernel's own word for it
            assert not any(str(cls).encode() in content for content in found.files.values())
        assert not any("truth" in path or "case" in path for path in found.files)


def test_every_fault_has_kinds_and_healthy_ones_no_culprit() -> None:
    """What may be said of a class is stated for each that is not a mixture."""
    mixtures = {Class.TWO_FAULTS, Class.RED_HERRING, Class.OTHER_JOB}
    assert set(Class) - mixtures == set(KINDS_OF)
    assert all(not made(cls, 2).truth.culprits for cls in HEALTHY)


def test_losing_more_dumps_leaves_the_story_as_it_was() -> None:
    """The same ranks, logs and times; only dumps are fewer, and at 1.0 none is left."""
    few, many, none = (made(Class.GC_STALL, 8, lost=lost) for lost in (0.0, 0.2, 1.0))
    assert few.truth.culprits == many.truth.culprits == none.truth.culprits
    dumps = [
        {path for path in found.files if path.startswith("dumps/")} for found in (few, many, none)
    ]
    assert dumps[2] == set()
    assert len(dumps[1]) < len(dumps[0])
    logs = [
        {path: content for path, content in found.files.items() if path.startswith("logs/")}
        for found in (few, many)
    ]
    assert logs[0] == logs[1]


def test_a_class_without_a_place_is_a_usage_error() -> None:
    """One node has no link that crosses to another."""
    with pytest.raises(UsageError, match="no place"):
        world.make(Class.SWITCH, seed=1, size=4)
