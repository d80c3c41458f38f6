"""The sample of every wrapper says what `expected.json` beside it says, line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parsers.log_reading import lines

SAMPLES = Path(__file__).parents[2] / "fixtures" / "samples" / "logs"
YEAR_FROM_ELSEWHERE = 1_747_043_865 * 10**9
EXPECTED: dict[str, list[list[Any]]] = json.loads((SAMPLES / "expected.json").read_text())


def found_in(path: str) -> list[list[Any]]:
    found = lines((SAMPLES / path).read_bytes(), path=path, near_ns=YEAR_FROM_ELSEWHERE)
    return [[line.text[:60], line.at, line.who, line.line] for line in found]


@pytest.mark.parametrize("path", sorted(EXPECTED))
def test_a_sample_reads_as_expected(path: str) -> None:
    """Text, time, speaker and line number of every line."""
    assert EXPECTED[path] == found_in(path)


def test_every_sample_has_an_expectation() -> None:
    """A sample that nothing holds would prove nothing."""
    names = {
        str(file.relative_to(SAMPLES))
        for file in SAMPLES.rglob("*")
        if file.is_file() and file.name not in ("README.md", "expected.json")
    }
    assert names == set(EXPECTED)
