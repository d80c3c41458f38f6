"""What is said of made incidents: the guilty or nobody, and never an innocent whom the advice would hit.

A sample of the classes and losses of `benchmarks/accuracy.py`, small enough for every run. How often
the right one is named is measured there, on many more; here is what must hold of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufleet_cli.bundle import read_target
from gpufleet_cli.facts import JobNumbers
from gpufleet_cli.operate.simulate import world
from gpufleet_cli.operate.simulate.judge import Judged, judge, suspects
from gpufleet_cli.operate.simulate.story import HEALTHY, Class
from gpufleet_cli.operate.simulate.truth import Truth
from gpufleet_cli.triage import triage_target
from gpufleet_cli.verdict import Kind, Triage

SIZE, FIRST_SEED = 32, 2_000_000
CERTAIN = (
    Class.GC_STALL,
    Class.LOCK_STALL,
    Class.PYTHON_CRASH,
    Class.XID_94,
    Class.MISMATCH,
    Class.RENDEZVOUS,
)


def answer(folder: Path, cls: Class, seed: int, lost: float) -> tuple[Truth, Triage, Judged]:
    made = world.make(cls, seed=FIRST_SEED + seed, size=SIZE, lost=lost)
    made.write(folder / "incident")
    numbers = JobNumbers(source="flag")
    target = read_target(folder / "incident")
    found = triage_target(target, numbers, as_of_ns=made.truth.as_of_ns, strict=True)
    return made.truth, found, judge(made.truth, found)


@pytest.mark.parametrize("cls", list(Class))
def test_the_advice_hits_no_innocent(cls: Class, tmp_path: Path) -> None:
    """An eviction or a cordon is for the guilty; nobody healthy is called ill with certainty."""
    for seed, lost in ((1, 0.0), (2, 0.2)):
        truth, found, judged = answer(tmp_path / str(seed), cls, seed, lost)
        assert not judged.acted_on_innocents, (seed, found.verdict.summary)
        named = {c.rank for c in found.verdict.culprits if c.rank is not None}
        if found.verdict.confidence >= 0.95 and truth.decided and truth.culprits:
            assert not named or named & truth.culprits, (seed, found.verdict.summary)
        if cls in HEALTHY:
            assert found.verdict.kind in (Kind.HEALTHY, Kind.UNDECIDABLE)


@pytest.mark.parametrize("cls", CERTAIN)
def test_the_guilty_is_named_where_nothing_is_lost(cls: Class, tmp_path: Path) -> None:
    """Kind and culprit, where the files single them out."""
    for seed in (11, 12, 13):
        truth, found, judged = answer(tmp_path / str(seed), cls, seed, 0.0)
        if truth.decided:
            assert judged.right, (seed, found.verdict.summary, sorted(truth.culprits))


@pytest.mark.parametrize("cls", [Class.LINK_IN_FLIGHT, Class.PARTIAL])
def test_where_the_files_leave_a_set_the_set_is_said(cls: Class, tmp_path: Path) -> None:
    """No single rank is named, the guilty are in the set, and what would settle it is said."""
    for seed in (21, 22, 23):
        truth, found, judged = answer(tmp_path / str(seed), cls, seed, 0.0)
        assert not found.verdict.culprits
        assert truth.culprits <= suspects(found.verdict)
        assert judged.right
        assert found.verdict.would_settle
