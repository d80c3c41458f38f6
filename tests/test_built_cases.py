"""Incidents that were built from the facts, with a truth that follows from them.

They cover the kinds that the handed cases do not: every wrapper, every Xid workflow, Kubernetes and Slurm
signals. Each is answered with its map; without it nobody innocent may be named.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from case_tools import Truth, answer_of_triage, cases, copy_evidence, faults

from gpufleet_cli.bundle import read_target
from gpufleet_cli.facts import JobNumbers
from gpufleet_cli.triage import triage_target

BUILT = cases(Path(__file__).resolve().parent.parent / "fixtures" / "built")
LOGS = [truth for truth in BUILT if truth.name.startswith("logs/")]


def answered(truth: Truth, folder: Path, *, topology: bool) -> list[str]:
    """What is wrong with the answer to one case."""
    copy = copy_evidence(truth.folder, folder / "incident", topology=topology)
    triage = triage_target(
        read_target(copy), JobNumbers(source="flag"), as_of_ns=truth.captured_ns, strict=True
    )
    return faults(truth, answer_of_triage(triage), topology=topology)


def test_there_are_many() -> None:
    """A glob that finds nothing would pass every test below."""
    assert len(BUILT) > 250


@pytest.mark.parametrize("truth", BUILT, ids=lambda truth: truth.name)
def test_built_case_is_answered(truth: Truth, tmp_path: Path) -> None:
    """Kind, culprits, nobody innocent, action."""
    assert answered(truth, tmp_path, topology=True) == []


@pytest.mark.parametrize("truth", LOGS, ids=lambda truth: truth.name)
def test_built_case_without_its_map_blames_nobody_innocent(truth: Truth, tmp_path: Path) -> None:
    """A missing topology.json costs precision, never an innocent."""
    wrong = answered(truth, tmp_path, topology=False)
    assert [fault for fault in wrong if fault.startswith("blamed innocent")] == []
