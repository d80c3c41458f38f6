"""Fifty made incidents of a fleet, triaged and kept: who keeps failing is found, and hardly anybody else."""

from __future__ import annotations

import pytest

from benchmarks import accuracy
from benchmarks import history as made
from gpufleet_cli.reason import summary


@pytest.mark.slow
def test_offenders_among_fifty_incidents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each incident is one, however often and in whatever order it was kept; of the three nodes that fail four
    times as often as they may, the history names those whose faults the evidence told."""
    monkeypatch.setattr(summary, "PARSERS", summary.PARSERS)  # put back what the next line changes
    accuracy.read_dumps_here()
    found = made.run(2, ranks=16)
    assert 50 == found.kept
    assert found.offenders >= 2
    assert found.innocents <= found.stated + 1
    assert 0.7 * 36 <= found.right <= found.node_faults <= 36
