"""What was not seen, named once whoever missed it."""

from __future__ import annotations

import json

import builders
import pytest

from gpufleet_cli.render import FORMATS, brief, render
from gpufleet_cli.render.layout import Look

TWICE = (
    builders.gap(what="Flight Recorder dumps", why="no path is known"),
    builders.gap(what="log of rank 3", why="gone"),
    builders.gap(what="Flight Recorder dumps", why="none in the target"),
)
FOUND = builders.triage(missing=TWICE)


def test_a_gap_that_two_have_met_is_one() -> None:
    """In the brief, on the first screen and in the details; JSON keeps both."""
    told = brief.render(FOUND, Look())
    assert "Not seen: Flight Recorder dumps; log of rank 3\n" in told
    assert "and 1 more." in render(FOUND, "text", Look())
    assert 2 == json.loads(render(FOUND, "json", Look()))["missing_evidence_count"] - 1


@pytest.mark.parametrize("output", [one for one in FORMATS if one in ("text", "markdown", "html")])
def test_both_reasons_are_kept(output: str) -> None:
    """Where reasons are shown."""
    page = render(FOUND, output, Look(verbose=True))
    assert "no path is known; none in the target" in page.replace("\n  ", " ")
