"""Parts made by shards that never see each other give the answer that all files at once give."""

from __future__ import annotations

import json
import random
import resource
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from gpufleet_cli.bundle import Target, read_target
from gpufleet_cli.errors import ParseError
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import Gap, JobNumbers, Origin
from gpufleet_cli.manifest import described
from gpufleet_cli.parsers import training_log
from gpufleet_cli.reason import parts
from gpufleet_cli.reason.parts import NoPart, Part
from gpufleet_cli.reason.summary import pieces
from gpufleet_cli.render import render
from gpufleet_cli.render.layout import Look
from gpufleet_cli.triage import triage_summary, triage_target

FIXTURES = Path(__file__).parents[2] / "fixtures"
INCIDENTS = sorted(
    [one.parent for kind in ("cases", "built") for one in (FIXTURES / kind).rglob("case.json")]
    + [FIXTURES / "train-run-7"]
)
NUMBERS = JobNumbers(source="flag")
LOOK = Look(color=False, unicode=True)


def told(found: object) -> str:
    """The report without what names the target."""
    report = json.loads(render(found, "json", LOOK))  # type: ignore[arg-type]
    del report["target"]
    return json.dumps(report, indent=0)


def decided(made: Sequence[Part]) -> str:
    whole = parts.merge(made)
    target, summary = parts.target_of(whole), parts.summary_of(whole, strict=True)
    return told(triage_summary(target, summary, NUMBERS, strict=True))


def sent(part: Part) -> Part:
    """Through bytes, as it travels."""
    return parts.decode(parts.encode(part))


def shards_of(target: Target, incident: Path) -> list[list[Evidence]]:
    """By piece, at random."""
    rng = random.Random(incident.name)
    split = pieces(target.evidences)
    rng.shuffle(split)
    shards: list[list[Evidence]] = [[] for _ in range(rng.randint(1, 6))]
    for piece in split:
        rng.choice(shards).extend(piece)
    return shards


@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda incident: incident.name)
def test_any_sharding_in_any_grouping_gives_the_same_bytes(incident: Path) -> None:
    """Every incident of the fixtures, cut at random, sent, merged in random groups."""
    target = read_target(incident)
    expected = told(triage_target(target, NUMBERS, strict=True))
    rng = random.Random(incident.name)
    made = [sent(parts.part_of(target, one, strict=True)) for one in shards_of(target, incident)]
    while len(made) > 1 and rng.random() < 0.7:
        rng.shuffle(made)
        some = rng.randint(1, len(made))
        made = [sent(parts.merge(made[:some])), *made[some:]]
    rng.shuffle(made)
    assert expected == decided(made)


def log(path: str, *lines: str) -> Evidence:
    content = "".join(f"{line}\n" for line in lines).encode()
    return Evidence(path=path, size_bytes=len(content), content=content)


def target_with(*evidences: Evidence) -> Target:
    return described("incident", evidences, (), None)


YEARLESS = [
    f"[rank{{rank}}]:[E1231 23:59:{second:02}.000000000 ProcessGroupNCCL.cpp:685] [Rank {{rank}}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=8, NumelOut=8,"
    " Timeout(ms)=600000) ran for 600009 milliseconds before timing out."
    for second in (57, 58)
] + ["[rank{rank}]:[W101 00:00:03.000000000 ProcessGroupNCCL.cpp:746] after midnight"]


def yearless(rank: int) -> Evidence:
    return log(f"rank_{rank}.log", *(line.format(rank=rank) for line in YEARLESS))


@pytest.mark.parametrize("year", [2024, 2025])
def test_stamps_without_a_year_take_that_of_the_whole_target(year: int) -> None:
    """The shard that has a year comes last, and the log goes over New Year: no shift would put it right."""
    files = [
        yearless(0),
        yearless(1),
        log("rank_2.log", f"{year}-12-31 23:49:00,000 - step: 4 loss: 1.0"),
    ]
    target = target_with(*files)
    expected = told(triage_target(target, NUMBERS, strict=True))
    assert f'"as_of": "{year + 1}-01-01T00:00:03Z"' in expected
    made = [sent(parts.part_of(target, [file], strict=True)) for file in files]
    assert [True, True, False] == [part.frames[0].content is not None for part in made]
    assert expected == decided(made)
    assert expected == decided([parts.merge(made[:2]), made[2]])


def test_a_newer_time_elsewhere_counts() -> None:
    """A shard that had a year of its own reads again by the newest of all."""
    old = log("rank_2.log", "2024-12-31 23:49:00,000 - step: 4 loss: 1.0")
    new = log("rank_3.log", "2025-12-31 23:49:00,000 - step: 4 loss: 1.0")
    files = [yearless(0), old, new]
    target = target_with(*files)
    made = [sent(parts.part_of(target, files[:2])), sent(parts.part_of(target, files[2:]))]
    assert told(triage_target(target, NUMBERS, strict=True)) == decided(made)


def test_years_of_files_that_did_not_travel_are_said() -> None:
    """Too large to be carried: read in the wrong year perhaps, and that is among what is missing."""
    files = [yearless(0), log("rank_2.log", "2025-12-31 23:49:00,000 - step: 4 loss: 1.0")]
    target = target_with(*files)
    made = [parts.part_of(target, [file], keep_content=False) for file in files]
    assert "not of all" in decided(made)
    again = parts.part_of(
        target, files[:1], near_ns=parts.narrow(made[1].hint_ns), keep_content=False
    )
    assert told(triage_target(target, NUMBERS)) == decided([again, made[1]])


def test_a_log_whose_rotated_files_were_parted_is_said() -> None:
    """One log read as two: what stands in both was seen by nobody."""
    older = log("a.log.1", "2025-12-31 23:49:00,000 - [rank0] step: 4 loss: 1.0")
    newer = log("a.log", "2025-12-31 23:50:00,000 - [rank0] step: 5 loss: 1.0")
    target = target_with(newer, older)
    whole = [parts.part_of(target, [older, newer])]
    assert "different shards" not in decided(whole)
    made = [parts.part_of(target, [one]) for one in (older, newer)]
    assert "its 2 files were read in different shards" in decided(made)


def test_the_same_part_twice_is_one_and_two_of_one_name_are_said() -> None:
    one = parts.part_of(target_with(), [log("a.log", "[rank0]: x")])
    other = parts.part_of(target_with(), [log("a.log", "[rank0]: another")])
    assert parts.merge([one, one]) == parts.merge([one])
    merged = parts.merge([one, other])
    assert merged == parts.merge([parts.merge([other]), one, other])
    assert other.frames == merged.frames
    assert "two parts tell different things" in decided([one, other])


def test_gaps_and_the_manifest_travel() -> None:
    """What the listing said, in the listing's own order."""
    manifest = {
        "schema": "gpufleet.bundle/v1", "captured_at": "2026-01-01T00:00:00Z", "job": "j", "namespace": "n",
        "missing": [{"what": "b", "why": "no"}, {"what": "a", "why": "no"}], "huge": 1 << 80,
    }  # fmt: skip
    gap = Gap(what="c", why="a link", origin=Origin(path="c"))
    target = replace(described("x", (), [gap], manifest), manifest_path="manifest.json")
    part = sent(parts.merge([parts.part_of(target, []), parts.part_of(target_with(), [])]))
    back = parts.target_of(part)
    assert target.gaps == back.gaps
    assert ("bundle", target.captured_ns, "j", "n") == (
        back.kind,
        back.captured_ns,
        back.job,
        back.namespace,
    )
    assert manifest == back.manifest


# --- Bytes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole() -> bytes:
    """A part of a real incident."""
    target = read_target(INCIDENTS[0])
    return parts.encode(parts.part_of(target, target.evidences))


def test_cut_and_flipped_parts_are_none(whole: bytes) -> None:
    """Never another exception; the checksum tells what is torn."""
    rng = random.Random(5)
    for _ in range(600):
        data = bytearray(whole)
        if rng.random() < 0.5:
            del data[rng.randrange(len(data)) :]
        else:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            parts.decode(bytes(data))
        except NoPart:
            continue
        assert bytes(data[: len(parts.MAGIC)]) == parts.MAGIC
        assert (
            data[20:32] != whole[20:32] or bytes(data) == whole
        )  # the maker's name alone may differ


def sealed(raw: bytes, *, size: int | None = None) -> bytes:
    """Bytes of anybody's as a part whose envelope is right."""
    packed = zstandard.ZstdCompressor().compress(raw)
    own = parts.maker()
    head = struct.pack(
        ">H16s8sQI",
        own.schema,
        b"0",
        own.shapes,
        len(raw) if size is None else size,
        zlib.crc32(packed),
    )
    return parts.MAGIC + head + packed


def test_sealed_rubbish_costs_itself(whole: bytes) -> None:
    """Who makes a part can make its checksum: what is inside is looked at all the same."""
    raw = parts._encoder.encode(parts.decode(whole))
    assert parts.decode(sealed(raw)) == parts.decode(whole)
    rng = random.Random(6)
    refused = 0
    for _ in range(600):
        data = bytearray(raw)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            part = parts.decode(sealed(bytes(data)))
            parts.target_of(part)
            told = repr(parts.summary_of(part))
            refused += "no facts of gpufleet" in told
        except ParseError:
            refused += 1
    assert refused > 50


def test_bombs_stay_small() -> None:
    """A size that is a lie, a ratio that no summary has, lengths without bytes, nesting without end."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in (
        sealed(b"\x00" * (300 << 20)),
        sealed(b"\x90", size=1 << 60),
        sealed(b"\x96\xa1n\xdd\xff\xff\xff\xff"),
        sealed(b"\x91" * 5_000_000),
        sealed(b"\x90"),
        parts.MAGIC,
        b"",
    ):
        with pytest.raises(NoPart):
            parts.decode(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # 1 GiB, in KiB


def test_another_gpufleets_part_is_refused_in_one_line(whole: bytes) -> None:
    at = len(parts.MAGIC)
    for other in (
        whole[:at] + b"\x00\x09" + whole[at + 2 :],
        whole[: at + 18] + bytes(8) + whole[at + 26 :],
    ):
        with pytest.raises(NoPart, match=r"made by gpufleet 0\.1\.0 .* this is gpufleet 0\.1\.0"):
            parts.decode(other)


def test_names_that_no_file_has_are_refused() -> None:
    """A terminal's escapes do not come in by way of a part."""
    part = parts.part_of(target_with(), [log("a.log", "[rank0]: x")])
    for name in ("a\x1b[2J", "", "\u202e"):
        odd = msgspec_replace(part, name)
        with pytest.raises(NoPart):
            parts.decode(parts.encode(odd))


def msgspec_replace(part: Part, name: str) -> Part:
    import msgspec

    frame = msgspec.structs.replace(part.frames[0], path=name)
    return msgspec.structs.replace(part, frames=(frame,))


def test_the_mark_of_a_log_is_there() -> None:
    """`year_given` is what a part goes by: set where a year was taken, and nowhere else."""
    for lines, given in (
        (YEARLESS, True),
        (["plain"], False),
        (["2025-01-01 00:00:00,000 - x", YEARLESS[0]], False),
        (["plain", "another", YEARLESS[0]], True),
    ):
        facts = training_log.parse(log("rank_0.log", *(line.format(rank=0) for line in lines)))
        found = {fact.year_given for fact in facts if isinstance(fact, parts.Writes)}
        assert {given} == found, lines
