"""The JSON report: schema, names, strictness, size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import builders
import jsonschema
import pytest
import yaml

from gpufleet_cli.render import render
from gpufleet_cli.render.layout import Look
from gpufleet_cli.verdict import SCHEMA, Alternative, Culprit, Kind, Triage

LOOK = Look()
TRIAGES = {
    "hardware": builders.triage(),
    "mismatch": builders.mismatch_triage(),
    "undecidable": builders.undecidable_triage(),
    "bare": builders.triage(
        as_of_ns=None, ranks=(), hardware=(), missing=(), files=(), dumps=None, target_name=None,
        verdict=builders.verdict(culprits=(Culprit(rank=None),)),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def schema() -> Any:
    path = Path(__file__).parents[2] / "gpufleet_cli" / "schema" / "triage-v1.schema.json"
    return json.loads(path.read_text(encoding="utf-8"))


def document(triage: Triage) -> Any:
    return json.loads(render(triage, "json", LOOK))


@pytest.mark.parametrize("name", TRIAGES)
def test_report_fits_its_schema(name: str, schema: Any) -> None:
    """Strictly: no key too many, none missing."""
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document(TRIAGES[name]), schema, cls=jsonschema.Draft202012Validator)


def test_schema_is_strict(schema: Any) -> None:
    """A renamed or added key is refused, and every object says so."""
    changed = document(TRIAGES["hardware"])
    changed["verdict"]["colour"] = "red"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed, schema)

    def objects(part: Any) -> Any:
        if isinstance(part, dict):
            if part.get("type") == "object":
                yield part
            for value in part.values():
                yield from objects(value)
        elif isinstance(part, list):
            for value in part:
                yield from objects(value)

    assert all(one["additionalProperties"] is False for one in objects(schema))
    assert SCHEMA == schema["properties"]["schema"]["const"]


def test_names_are_those_of_the_contract() -> None:
    """The keys that scripts rely on, in the places where they look."""
    report = document(TRIAGES["hardware"])
    assert report["schema"] == "gpufleet.triage/v1"
    assert report["target"] == {"kind": "directory", "name": "train-run-7", "namespace": "train"}
    job = report["job"]
    assert (job["world_size"], job["world_size_source"], job["state"]) == (
        1024,
        "flight-recorder",
        "aborted",
    )
    assert (job["step_seconds"], job["checkpoint_interval_seconds"]) == (0.418, 1800.0)
    (culprit,) = report["verdict"]["culprits"]
    assert culprit == {
        "rank": 800, "pod": "train-run-7-worker-100", "node": "gpu-node-0417", "local_rank": 0,
        "gpu": {"index": 0, "uuid": None, "pci_bus_id": "0000:4e:00.0"},
        "silent_since": "2026-03-11T03:41:07.118Z", "quieter_by_seconds": 612.3,
    }  # fmt: skip
    assert report["verdict"]["process_group"] == {"name": "0", "desc": "default_pg"}
    assert report["verdict"]["collective"] == {"op": "ALLREDUCE", "seq": 88214}
    assert report["verdict"]["witnesses"]["count"] == 1023
    first = report["verdict"]["evidence"][0]
    assert (first["id"], first["supports"], first["source"]) == (
        "e1",
        True,
        "logs/train-run-7-worker-100.log:4113",
    )
    (event,) = report["hardware"]["events"]
    assert (event["xid"], event["role"]) == (79, "cause")
    advice = report["recommendation"]
    assert (advice["action"], advice["nodes"], advice["decided_by"]) == (
        "evict-now",
        ["gpu-node-0417"],
        "rule",
    )
    assert advice["questions"][0] == {
        "id": "stops-job",
        "answer": "no",
        "why": "already stopped",
        "gpu_hours": 0.0,
    }
    assert advice["questions"][1]["gpu_hours_per_hour"] == 1024.0
    assert advice["options"][1] == {"option": "wait-for-boundary", "gpu_hours": None}
    assert advice["commands"][0]["stops_job"] is False
    assert report["generated_by"] == {"gpufleet": "0.1.0"}


def test_unknown_is_null_and_zero_is_zero() -> None:
    """Rank 0 and GPU 0 are values."""
    zero = builders.triage(verdict=builders.verdict(culprits=(builders.culprit(0),)))
    assert document(zero)["verdict"]["culprits"][0]["rank"] == 0
    (nobody,) = document(TRIAGES["bare"])["verdict"]["culprits"]
    assert nobody["rank"] is None
    assert nobody["gpu"] == {"index": None, "uuid": None, "pci_bus_id": None}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_json_is_strict(value: float) -> None:
    """No NaN, no Infinity: a reader that is not Python must not choke."""
    odd = builders.triage(job=builders.job(step_s=value))
    text = render(odd, "json", LOOK)
    assert json.loads(text, parse_constant=pytest.fail)["job"]["step_seconds"] is None


def test_text_is_ascii_with_escapes() -> None:
    """Control and direction characters stand as escapes, and none comes back on decoding."""
    odd = builders.triage(verdict=builders.verdict(summary="a\x1b[31m\u202eb\x9bc"))
    text = render(odd, "json", LOOK)
    assert text.isascii()
    assert not [char for char in text if not char.isprintable() and char != "\n"]
    assert "\\u001b" in text
    assert json.loads(text)["verdict"]["summary"].isprintable()


def test_quoted_lines_are_cut() -> None:
    """At 200 characters."""
    long = builders.triage(verdict=builders.verdict(evidence=(builders.claim("x" * 5_000),)))
    assert len(document(long)["verdict"]["evidence"][0]["claim"]) == 200


def test_lists_are_cut_beside_their_count() -> None:
    """The reader learns how many there were."""
    many = builders.triage(
        missing=(builders.gap(),) * 500,
        verdict=builders.verdict(evidence=(builders.claim(),) * 500),
    )
    report = document(many)
    assert (len(report["missing_evidence"]), report["missing_evidence_count"]) == (100, 500)
    assert (len(report["verdict"]["evidence"]), report["verdict"]["evidence_count"]) == (100, 500)


def test_the_set_that_is_left_is_never_cut() -> None:
    """An undecidable verdict names every suspect."""
    left = Alternative(
        kind=Kind.RANK_MISSING,
        ranks=tuple(range(5000)),
        nodes=(),
        confidence=0.9,
        why_less_likely="",
    )
    triage = builders.triage(
        verdict=builders.verdict(Kind.UNDECIDABLE, culprits=(), alternatives=(left, left))
    )
    first, second = document(triage)["verdict"]["alternatives"]
    assert (len(first["ranks"]), first["ranks_count"]) == (5000, 5000)
    assert (len(second["ranks"]), second["ranks_count"]) == (100, 5000)


def test_sixteen_thousand_ranks_stay_below_five_megabytes(schema: Any) -> None:
    """With names of an ordinary cloud, and every rank in it."""
    rows = tuple(
        builders.rank_row(
            rank,
            pod=f"llama-pretrain-405b-run-20260311-worker-{rank // 8:04}",
            node=f"ip-10-0-{rank // 2048}-{rank // 8 % 256}.us-west-2.compute.internal",
        )
        for rank in range(16_384)
    )
    text = render(builders.triage(ranks=rows), "json", LOOK)
    assert len(text) < 5_000_000
    assert [row["rank"] for row in json.loads(text)["ranks"]] == list(range(16_384))
    jsonschema.validate(json.loads(text), schema)


def test_yaml_is_the_same_document() -> None:
    """For those who read it with other tools."""
    for triage in TRIAGES.values():
        text = render(triage, "yaml", LOOK)
        assert text.isascii()
        assert yaml.safe_load(text) == document(triage)


def test_same_triage_same_bytes() -> None:
    """In every format."""
    for output in ("json", "yaml", "markdown", "html"):
        assert render(builders.triage(), output, LOOK) == render(builders.triage(), output, LOOK)
