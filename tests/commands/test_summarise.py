"""`gpufleet summarise` and `gpufleet triage *.part`: the same report as of the folder, byte for byte."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpufleet_cli.bundle import read_target
from gpufleet_cli.cli import main
from gpufleet_cli.commands import parts_target
from gpufleet_cli.facts import Gap
from gpufleet_cli.reason import fact_wire, parts

ROOT = Path(__file__).parents[2]

RUN_7 = Path(__file__).parents[2] / "fixtures" / "train-run-7"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two nodes of two ranks; the last one stops first."""
    folder = tmp_path / "incident"
    for rank in range(4):
        place = folder / f"gpu-node-{rank // 2}" / f"rank_{rank}.log"
        place.parent.mkdir(parents=True, exist_ok=True)
        last = 30 if rank == 3 else 50
        lines = [
            f"2026-03-11T03:41:{n:02}Z [rank{rank}]: step: {n} loss: 2.0\n" for n in range(last)
        ]
        place.write_text("".join(lines))
    return folder


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def report(text: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(text)
    del found["target"]
    return found


def test_the_tasks_of_an_array_make_parts_that_are_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three tasks over one folder of 1,024 ranks, none of which knows of another."""
    code, whole, _ = run(capsys, "triage", RUN_7, "-o", "json")
    assert 0 == code
    made = [tmp_path / f"{n}.part" for n in range(3)]
    files = 0
    for n, part in enumerate(made):
        code, line, _ = run(capsys, "summarise", RUN_7, "--shard", f"{n}/3", "--to", part)
        told = json.loads(line)
        assert (0, str(part), part.stat().st_size) == (code, told["part"], told["bytes"])
        files += told["files"]
    assert len(read_target(RUN_7).evidences) == files
    code, merged, said = run(capsys, "triage", *reversed(made), "-o", "json")
    assert (0, "") == (code, said)
    assert json.dumps(report(whole)) == json.dumps(report(merged))


def test_each_node_makes_its_own_part(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--under` says where a node's folder stands in the whole: names and nodes come out the same."""
    _, whole, _ = run(capsys, "triage", small, "-o", "json")
    made = []
    for node in sorted(small.iterdir()):
        made.append(tmp_path / f"{node.name}.part")
        run(capsys, "summarise", node, "--under", node.name, "--to", made[-1])
    _, merged, _ = run(capsys, "triage", *made, "-o", "json")
    assert json.dumps(report(whole)) == json.dumps(report(merged))
    folder = tmp_path / "parts"
    folder.mkdir()
    for part in made:
        part.rename(folder / part.name)
    assert merged == run(capsys, "triage", folder, "-o", "json")[1]
    _, ranks, _ = run(capsys, "ranks", folder / made[0].name, "-o", "json")
    assert "gpu-node-0" in ranks


def test_a_torn_part_costs_itself(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gap in the report, a line on standard error; with none that can be used, exit 4 and no report."""
    made = [tmp_path / f"{n}.part" for n in range(2)]
    for n, part in enumerate(made):
        run(capsys, "summarise", small, "--shard", f"{n}/2", "--to", part)
    made[1].write_bytes(made[1].read_bytes()[:-40])
    code, out, said = run(capsys, "triage", *made, "-o", "json")
    assert code in (0, 3)
    missing = {one["what"]: one["why"] for one in json.loads(out)["missing_evidence"]}
    assert "it is torn: its checksum does not fit" == missing["part 1.part"]
    assert "gpufleet: part 1.part: it is torn" in said
    code, out, said = run(capsys, "triage", made[1])
    assert (4, "", 1) == (code, out, said.count("\n"))
    code, out, said = run(capsys, "triage", made[0], tmp_path / "not-there.part", "-o", "json")
    assert "no such file" in said
    assert code in (0, 3)


def test_a_part_that_breaks_the_reasoning_costs_itself(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Well-formed facts that no parser would give may break a rule of ours: the other parts decide."""
    made = [tmp_path / f"{n}.part" for n in range(2)]
    for n, part in enumerate(made):
        run(capsys, "summarise", small, "--shard", f"{n}/2", "--to", part)
    found, gaps = parts_target.read_parts([str(one) for one in made])
    bad = found[1].frames[0].path
    whole = parts.summary_of

    def breaks(part: parts.Part, *, strict: bool = False) -> object:
        if bad in {frame.path for frame in part.frames}:
            raise ZeroDivisionError("odd facts")
        return whole(part, strict=strict)

    monkeypatch.setattr(parts, "summary_of", breaks)
    from gpufleet_cli.facts import JobNumbers

    triage, _ = parts_target.triage_parts(found, gaps, JobNumbers(source="flag"), None)
    assert [gap for gap in triage.missing if "ZeroDivisionError" in gap.why]


def test_facts_that_fill_the_memory_cost_their_part(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A million empty gaps are seven megabytes as bytes and two hundred as objects: bounded by the kernel. Asked of a
    process of its own, since memory that this one has freed is not asked of the kernel again."""
    made = [tmp_path / f"{n}.part" for n in range(2)]
    run(capsys, "summarise", small, "--to", made[0])
    part = parts.decode(made[0].read_bytes())
    one = fact_wire.write([(0, [Gap(what="", why="")])])
    many = one[:3] + b"\xdd" + struct.pack(">I", 1_200_000) + one[4:] * 1_200_000
    frame = msgspec.structs.replace(
        part.frames[0], path="bomb.log", facts=many, content=random.Random(1).randbytes(200_000)
    )
    bomb = msgspec.structs.replace(part, name="bomb", frames=(frame,))
    made[1].write_bytes(parts.encode(bomb))
    code = (
        "import sys\n"
        "from gpufleet_cli.cli import main\n"
        "from gpufleet_cli.reason import parts\n"
        "parts._LEAST_MEMORY = 48 << 20\n"
        f"sys.exit(main({['triage', *map(str, made), '-o', 'json']!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, timeout=120)
    assert done.returncode in (0, 3), done.stderr
    found = json.loads(done.stdout)
    missing = {one["what"]: one["why"] for one in found["missing_evidence"]}
    assert "MemoryError" in missing["part bomb, 1 files"]
    assert len(found["ranks"]) == 4


def test_mistakes_are_one_line(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = tmp_path / "0.part"
    for words, code, needle in (
        (("summarise", small), 2, "--to"),
        (("summarise", small, "--shard", "5/5", "--to", part), 2, "--shard '5/5' is no share"),
        (("summarise", small, "--shard", "x", "--to", part), 2, "0/64 ... 63/64"),
        (("summarise", small, "--under", "../x", "--to", part), 2, "no folder within a target"),
        (("summarise", tmp_path / "nowhere", "--to", part), 4, "no such file or folder"),
        (("summarise", small, "--to", tmp_path / "no" / "0.part"), 4, "cannot be written"),
        (("triage", small, tmp_path), 2, "several targets"),
        (("triage", tmp_path / "a.part", tmp_path / "b.part"), 4, "part a.part: cannot be read"),
    ):
        found, out, said = run(capsys, *words)
        assert (code, "", 1) == (found, out, said.count("\n")), words
        assert needle in said
    assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob(".*"))


def test_magic_is_that_of_parts() -> None:
    """The look at the first bytes imports nothing."""
    assert parts.MAGIC == parts_target.MAGIC
