"""`gpufleet triage s3://...` without any cluster: from a real S3 server, by child processes of this machine."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from live.test_object_dumps import SECRET, Start, s3

from gpufleet_cli.cli import main
from gpufleet_cli.operate.fleet import gather as gathering

pytest.importorskip("fsspec", reason="pip install '.[fleet]'")
pytest.importorskip("obstore", reason="pip install '.[fleet]'")

__all__ = ["s3"]
FIXTURES = Path(__file__).parents[3] / "fixtures"


@pytest.fixture
def triage(capsys: pytest.CaptureFixture[str]) -> Any:
    """`triage(*words)`: exit status, the report without its target, what was said beside it."""

    def run(*words: object) -> tuple[int, str, str]:
        code = main(["triage", *map(str, words), "-o", "json"])
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err
        assert code != 1, said.err
        if not said.out:
            return code, "", said.err
        report = json.loads(said.out)
        del report["target"]
        return code, json.dumps(report, indent=0), said.err

    return run


def objects_of(folder: Path, prefix: str = "run7/") -> dict[str, bytes]:
    return {
        f"{prefix}{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def a_few_shards(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(gathering, "SMALLEST", size)
    monkeypatch.setattr(gathering, "LARGEST", size)


def small(folder: Path) -> Path:
    """Four ranks, of whom one has its log in three files, two of them packed."""
    folder = folder / "incident"
    folder.mkdir()
    for rank in range(4):
        lines = [f"2026-03-11T03:41:{n:02}Z [rank{rank}]: step: {n} loss: 2.0\n" for n in range(50)]
        (folder / f"rank_{rank}.log").write_text("".join(lines[30:] if rank == 3 else lines))
        if rank == 3:
            for at in (1, 2):
                some = "".join(lines[30 - 15 * at : 45 - 15 * at])
                (folder / f"rank_3.log.{at}.gz").write_bytes(gzip.compress(some.encode()))
    return folder


def test_the_report_is_that_of_the_folder(
    s3: Start, triage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rotated, packed, in shards of a few hundred bytes; with and without a slash at the end."""
    folder = small(tmp_path)
    s3(
        {
            **objects_of(folder),
            "other/x.log": b"[rank9]: x\n",
            "run7/": b"",
            "run7/case.json": b"{}",
        }
    )
    a_few_shards(monkeypatch, 2000)
    expected = triage(folder)
    for place in ("s3://dumps/run7/", "s3://dumps/run7"):
        assert expected == triage(place)
    code, report, said = triage("s3://dumps/run7", "-v")
    assert expected[:2] == (code, report)
    assert "6 files in " in said or "7 files in " in said


def test_shares_of_a_store(
    s3: Start, triage: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`summarise s3://... --shard I/N`, each task by itself."""
    folder = small(tmp_path)
    s3(objects_of(folder))
    expected = triage(folder)
    made = []
    for n in range(3):
        made.append(tmp_path / f"{n}.part")
        assert 0 == main(
            ["summarise", "s3://dumps/run7/", "--shard", f"{n}/3", "--to", str(made[-1])]
        )
    capsys.readouterr()
    assert expected == triage(*made)


def test_what_is_not_there_or_lets_nobody_in_is_one_line(
    s3: Start, triage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = s3({"run7/a.log": b"[rank0]: x\n"})
    for place, code, needle in (
        ("s3://dumps/nothing/", 4, "there is no file"),
        ("s3://no-such-bucket/run7/", 4, "NoSuchBucket"),
        ("s3://dumps/run7/?X-Amz-Signature=abc", 2, "a signed URL opens one file"),
        (f"s3://me:{SECRET}@dumps/run7/", 2, "credentials do not belong into the location"),
        ("nosuch://dumps/run7", 2, "nosuch"),
        ("file:///no/such/folder", 4, "no such folder"),
    ):
        found, report, said = triage(place)
        assert (code, "", 1) == (found, report, said.count("\n")), (place, said)
        assert needle in said
        assert "X-Amz" not in said
    monkeypatch.setenv("AWS_ENDPOINT_URL", made.url.rpartition(":")[0] + ":1")
    found, report, said = triage("s3://dumps/run7/")
    assert (4, "", 1) == (found, report, said.count("\n"))


def test_hostile_files_cost_themselves(
    s3: Start, triage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A pickle that wants a class, one that asks for gigabytes, odd names: the rest is read."""
    folder = small(tmp_path)
    hostile = {
        "run7/dumps/nccl_trace_rank_0": b"cos\nsystem\n(S'true'\ntR.",
        "run7/dumps/nccl_trace_rank_1": b"\x80\x02}r\xff\xff\xff\x7fU\x01a." + b"x" * 64,
        "run7/..hidden/a 'b' $(c) \u202e.log": b"[rank2]: x\n",
    }
    made = s3({**objects_of(folder), **hostile})
    a_few_shards(monkeypatch, 1)
    code, report, said = triage("s3://dumps/run7/")
    assert code in (0, 3), said
    missing = {one["what"] for one in json.loads(report)["missing_evidence"]}
    assert {
        "file dumps/nccl_trace_rank_0",
        "file dumps/nccl_trace_rank_1",
    } <= missing
    assert "\x1b" not in said
    assert [one for one in json.loads(report)["ranks"] if one["rank"] == 3]
    made.put("run7/\x1b[2J.log", b"[rank2]: x\n")  # the store's library refuses to list such a name
    code, report, said = triage("s3://dumps/run7/")
    assert (4, "", 1) == (code, report, said.count("\n"))
    assert "\x1b" not in said


def test_a_folder_that_all_have(triage: Any, tmp_path: Path) -> None:
    """`file://`: read where it lies; a link is not followed, and is named."""
    folder = small(tmp_path)
    assert triage(folder)[:2] == triage(f"file://{folder}")[:2]
    (folder / "out.log").symlink_to("/etc/hostname")
    report = json.loads(triage(f"file://{folder}")[1])
    assert "a link: not followed in a shared folder" in {
        one["why"] for one in report["missing_evidence"]
    }
