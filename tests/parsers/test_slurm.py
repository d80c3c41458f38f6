"""Slurm's words: records, tables, JSON, and host lists within limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import evidence

from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import Fact, Gap, SchedulerJob, SchedulerNode
from gpufleet_cli.parsers import slurm
from gpufleet_cli.parsers.host_list import expand_host_list
from gpufleet_cli.timestamps import parse_rfc3339

SAMPLES = Path(__file__).parents[2] / "fixtures" / "samples" / "slurm"


def ns(text: str) -> int:
    found = parse_rfc3339(text)
    assert found is not None
    return found[0]


def parse(data: bytes, path: str = "slurm.txt") -> list[Fact]:
    return list(slurm.parse(evidence(data, path)))


def sample(name: str) -> list[Fact]:
    return parse((SAMPLES / name).read_bytes(), name)


def jobs(facts: list[Fact]) -> list[SchedulerJob]:
    return [f for f in facts if isinstance(f, SchedulerJob)]


def nodes(facts: list[Fact]) -> list[SchedulerNode]:
    return [f for f in facts if isinstance(f, SchedulerNode)]


# --- Host lists -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-[08-10,12],cpu1", ("gpu-08", "gpu-09", "gpu-10", "gpu-12", "cpu1")),
        ("gpu-1", ("gpu-1",)),
        ("a[1-2]b[1-2]c", ("a1b1c", "a1b2c", "a2b1c", "a2b2c")),
        ("n[9-11]", ("n9", "n10", "n11")),
        (" gpu-1 , gpu-2 ", ("gpu-1", "gpu-2")),
        ("(null)", ()),
        ("None assigned", ()),
        ("", ()),
    ],
)
def test_a_host_list_in_order(text: str, names: tuple[str, ...]) -> None:
    """Zeros are kept, brackets multiply, order is as written."""
    assert names == expand_host_list(text)


def test_a_host_list_of_a_thousand() -> None:
    """`gpu-[0001-1024]` is 1,024 names of equal width."""
    names = expand_host_list("gpu-[0001-1024]")
    assert (1024, "gpu-0001", "gpu-1024") == (len(names), names[0], names[-1])


@pytest.mark.parametrize(
    "text",
    ["a[1-999999999]", "a[1-1000]b[1-1000]", "a[5-1]", "a[", "a]", "a[[1]]", "a[x-y]", "a[1-2-3]"],
)
def test_a_host_list_that_is_none_or_too_long(text: str) -> None:
    """A list cannot cost more memory than a cluster has nodes."""
    with pytest.raises(ParseError):
        expand_host_list(text)


# --- Records --------------------------------------------------------------------------------------


def test_scontrol_show_job() -> None:
    """Names with blanks, nodes, exit code with signal, start and end."""
    failed, running = jobs(sample("scontrol-show-job.txt"))
    assert ("418822", "pretrain 70b", "NODE_FAIL", "NodeFail", "0:9") == (
        failed.job_id,
        failed.name,
        failed.state,
        failed.reason,
        failed.exit_code,
    )
    assert ("gpu-001", "gpu-002", "gpu-003", "gpu-010") == failed.nodes
    assert (ns("2025-02-18T04:22:55Z"), 32, False) == (
        failed.ended_ns,
        failed.tasks,
        failed.zone_stated,
    )
    assert ("RUNNING", None, None) == (running.state, running.ended_ns, running.reason)


def test_a_record_on_one_line_says_the_same() -> None:
    """scontrol -o prints a record per line."""
    text = (SAMPLES / "scontrol-show-job.txt").read_text(encoding="utf-8")
    joined = "\n".join(" ".join(block.split()) for block in text.split("\n\n"))
    wrapped, single = jobs(parse(text.encode())), jobs(parse(joined.encode()))
    assert [(j.job_id, j.state, j.nodes, j.ended_ns) for j in wrapped] == [
        (j.job_id, j.state, j.nodes, j.ended_ns) for j in single
    ]


def test_scontrol_show_node() -> None:
    """The reason runs to the end of its line, with who set it and when taken off."""
    sick, fine = nodes(sample("scontrol-show-node.txt"))
    assert ("gpu-017", "IDLE+DRAIN", "Xid 79 on 0000:4e:00 A=b") == (
        sick.name,
        sick.state,
        sick.reason,
    )
    assert ns("2025-02-18T04:30:00Z") == sick.since_ns
    assert ("ALLOCATED", None) == (fine.state, fine.reason)


# --- Tables ---------------------------------------------------------------------------------------


def test_sacct_with_bars() -> None:
    """Jobs and their steps, states with who cancelled, exit codes with signals."""
    found = jobs(sample("sacct-P.txt"))
    assert [
        ("418822", "CANCELLED by 1000", "0:9"),
        ("418822.batch", "CANCELLED", "0:15"),
        ("418822.0", "OUT_OF_MEMORY", "0:125"),
        ("418823", "RUNNING", "0:0"),
    ] == [(j.job_id, j.state, j.exit_code) for j in found]
    assert ("gpu-001", "gpu-002", "gpu-003", "gpu-004") == found[0].nodes


def test_sacct_in_columns() -> None:
    """Without -P the dashes give the widths."""
    found = jobs(sample("sacct.txt"))
    assert [("418822", "NODE_FAIL"), ("418822.0", "FAILED")] == [(j.job_id, j.state) for j in found]


def test_squeue_and_a_name_with_blanks() -> None:
    """Short states become words; a name with a blank moves no column."""
    found = jobs(sample("squeue.txt"))
    assert [("RUNNING", 128, None), ("RUNNING", 2, None), ("PENDING", 0, "Resources")] == [
        (j.state, len(j.nodes), j.reason) for j in found
    ]
    assert "pre tra" == found[1].name


def test_sinfo_and_its_reasons() -> None:
    """A star says that the node does not respond."""
    assert ("gpu-017", "DRAIN+NOT_RESPONDING") == (
        (first := nodes(sample("sinfo.txt"))[0]).name,
        first.state,
    )
    assert [
        ("gpu-020", "Not responding"),
        ("gpu-021", "Not responding"),
        ("gpu-017", "Xid 79"),
    ] == [(n.name, n.reason) for n in nodes(sample("sinfo-R.txt"))]


def test_json_says_the_same() -> None:
    """scontrol --json: numbers in objects, states in lists, times with a zone."""
    found = jobs(sample("scontrol-show-job.json"))[0]
    assert ("418822", "NODE_FAIL", ("gpu-001", "gpu-002"), "0:9", True) == (
        found.job_id,
        found.state,
        found.nodes,
        found.exit_code,
        found.zone_stated,
    )
    assert 1_739_852_575_000_000_000 == found.ended_ns


# --- Broken input ---------------------------------------------------------------------------------


def test_a_host_list_that_is_cut_is_a_gap() -> None:
    """The job still counts; which nodes it had is said to be unknown."""
    found = parse(b"JobId=1 JobName=a\n   JobState=FAILED\n   NodeList=gpu-[001-\n")
    assert (1, 1) == (len(jobs(found)), sum(isinstance(f, Gap) for f in found))
    assert () == jobs(found)[0].nodes


def test_a_file_of_bombs_ends() -> None:
    """Many long lists in one file cost a limit, not the machine."""
    rows = b"1|FAILED|a[1-100000]\n" * 40
    with pytest.raises(ParseError):
        parse(b"JobID|State|NodeList\n" + rows)


@pytest.mark.parametrize(
    "data",
    [b"", b"JobId=", b"JobId=1", b"\xff\xfeJobId=1 JobState=\xff", b"JobID|State\n|\n||||\n"],
)
def test_scraps_raise_nothing(data: bytes) -> None:
    """Cut, empty and non-UTF-8 files give what they have."""
    assert all(isinstance(f, SchedulerJob | Gap) for f in parse(data))


def test_what_is_slurms() -> None:
    """By its first words; a log of a job is none."""
    for path in sorted(SAMPLES.iterdir()):
        assert slurm.matches(path.name, path.read_bytes()), path.name
    assert not slurm.matches("slurm-418822.out", b"0: iter 83500: loss 1.9\n")
    assert not slurm.matches("pods.json", b'{"kind": "PodList", "apiVersion": "v1", "items": []}')
