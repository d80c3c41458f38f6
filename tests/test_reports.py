"""Reports of whole incidents: schema, strict JSON, fit on the screen, the same bytes twice."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema
import pytest
from case_tools import Truth, cases

from gpufleet_cli.bundle import read_target
from gpufleet_cli.facts import JobNumbers
from gpufleet_cli.render import brief, render
from gpufleet_cli.render.layout import Look
from gpufleet_cli.triage import triage_target
from gpufleet_cli.verdict import Triage

ROOT = Path(__file__).resolve().parent.parent
HANDED = cases(ROOT / "fixtures" / "cases")
SCHEMA = json.loads((ROOT / "gpufleet_cli" / "schema" / "triage-v1.schema.json").read_text())
PLAIN = Look()


@cache
def triaged(folder: Path, captured_ns: int | None) -> Triage:
    target = read_target(folder)
    return triage_target(target, JobNumbers(source="flag"), as_of_ns=captured_ns, strict=True)


@pytest.mark.parametrize("truth", HANDED, ids=lambda truth: truth.name)
def test_json_is_strict_and_fits_the_schema(truth: Truth) -> None:
    """No NaN, no missing key, no key that the schema does not know."""
    text = render(triaged(truth.folder, truth.captured_ns), "json", PLAIN)
    report = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} in strict JSON"))
    jsonschema.validate(report, SCHEMA)
    assert report["schema"] == "gpufleet.triage/v1"


@pytest.mark.parametrize("truth", HANDED, ids=lambda truth: truth.name)
def test_first_screen_fits_80_by_24(truth: Truth) -> None:
    """The verdict stands in the first screen; only a command may be wider."""
    lines = render(triaged(truth.folder, truth.captured_ns), "text", PLAIN).splitlines()
    wide = [line for line in lines if len(line) > 80 and "gpufleet " not in line]
    assert wide == []
    assert len(lines) <= 24


@pytest.mark.parametrize("truth", HANDED, ids=lambda truth: truth.name)
def test_brief_is_ten_plain_lines_at_most(truth: Truth) -> None:
    """A chat thread takes it as it is."""
    text = brief.render(triaged(truth.folder, truth.captured_ns), PLAIN)
    assert 2 <= len(text.splitlines()) <= 10
    assert "\x1b" not in text


@pytest.mark.parametrize("form", ["text", "json", "yaml", "markdown", "html"])
def test_two_runs_give_the_same_bytes(form: str) -> None:
    """Nothing depends on the order of a set, the clock or a process."""
    truth = next(t for t in HANDED if t.name.endswith("fr-02-sigkill-node-16"))
    again = triage_target(
        read_target(truth.folder),
        JobNumbers(source="flag"),
        as_of_ns=truth.captured_ns,
        strict=True,
    )
    first = triaged(truth.folder, truth.captured_ns)
    assert render(again, form, PLAIN) == render(first, form, PLAIN)


@pytest.mark.parametrize("truth", HANDED, ids=lambda truth: truth.name)
def test_every_claim_stands_on_a_place_in_the_evidence(truth: Truth) -> None:
    """A claim that supports the verdict names a file of the target."""
    triage = triaged(truth.folder, truth.captured_ns)
    paths = {file.path for file in triage.files}
    places = {c.origin.path for c in triage.verdict.evidence if c.origin is not None}
    assert places <= paths
    assert all(c.origin is not None for c in triage.verdict.evidence if c.supports)
