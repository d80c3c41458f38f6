"""Properties of the verdict over cases with known answers (facts: localisation, section 9).

The order and the names of files, the names of groups and pods, the clocks of nodes, doubled files
and loud innocents change nothing. Less evidence makes the verdict wider, never another one.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from case_changes import (
    cut_after,
    dump_rank,
    dumps_only,
    shifted_text,
    with_clock_shifted,
    with_groups_renamed,
    with_lines,
    with_text,
    without_dumps,
)
from case_tools import Files, Truth, answer_of_triage, cases, faults, load, store

from gpufleet_cli.bundle import read_target
from gpufleet_cli.facts import JobNumbers
from gpufleet_cli.triage import triage_target
from gpufleet_cli.verdict import Action, Kind, Triage

CASES = {
    truth.name.rpartition("/")[2]: truth
    for truth in cases(Path(__file__).resolve().parent.parent / "fixtures" / "cases")
}
NOTHING_GIVEN = JobNumbers(source="flag")
HOUR = timedelta(hours=1)

STUCK_LOADER = "dataloader-rank0-stuck-kubectl"
OFF_THE_BUS = "xid79-busid-torchrun-logdir"
COLLATERAL = "79-with-43-45-on-innocents"
CASCADE = "fr-04-tp-cascade-16"
ODD_SIZE = "numel-mismatch-stern"
DUMPED = (
    "fr-01-dataloader-stall-8",
    "fr-03-size-mismatch-dp-8",
    CASCADE,
    "fr-07-gloo-verbatim-8",
    "gpu_error_2nd",
    "lock_gil_1st",
)

Run = Callable[[Files], Triage]


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Triage of changed evidence of the case that the test names, as of the case's own time."""
    truth = CASES[request.getfixturevalue("case")]

    def triaged(files: Files) -> Triage:
        folder = tmp_path / str(len(list(tmp_path.iterdir()))) / "incident"
        target = read_target(store(files, folder))
        return triage_target(target, NOTHING_GIVEN, as_of_ns=truth.captured_ns, strict=True)

    return triaged


def evidence(case: str) -> Files:
    return load(CASES[case].folder)


def ranks(triage: Triage) -> set[int]:
    return {c.rank for c in triage.verdict.culprits if c.rank is not None}


def core(triage: Triage) -> tuple[Kind, set[int], Action]:
    """What a person acts on."""
    return triage.verdict.kind, ranks(triage), triage.recommendation.action


def assert_unchanged(case: str, before: Triage, after: Triage) -> None:
    """The same answer, and the right one: a verdict that never says anything keeps every property."""
    assert faults(CASES[case], answer_of_triage(before)) == []
    assert core(before) == core(after)


def still_possible(triage: Triage) -> set[int]:
    """Everybody whom the report leaves in question."""
    return ranks(triage).union(*(other.ranks for other in triage.verdict.alternatives))


def culprits(case: str) -> set[int]:
    return set(CASES[case].culprits or ())


def some_innocents(case: str) -> list[int]:
    """The first, a middle and the last innocent rank that left a dump."""
    dumped = {rank for rank in map(dump_rank, evidence(case)) if rank is not None}
    innocent = sorted(dumped - culprits(case))
    return [innocent[0], innocent[len(innocent) // 2], innocent[-1]]


# --- Order and names ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [STUCK_LOADER, OFF_THE_BUS, COLLATERAL, CASCADE, "fr-06-frozen-bad-dumps-8", "gpu_error_2nd"],
)
def test_order_of_files_changes_nothing(case: str, tmp_path: Path) -> None:
    """Neither the order of creation nor the order in which evidence is handed on; twice the same."""
    files = evidence(case)
    reports = []
    for seed in range(3):
        names = sorted(files)
        Random(seed).shuffle(names)
        folder = store(files, tmp_path / str(seed) / "incident", order=names)
        target = read_target(folder)
        shuffled = list(target.evidences)
        Random(seed).shuffle(shuffled)
        target = dataclasses.replace(target, evidences=tuple(shuffled))
        as_of_ns = CASES[case].captured_ns
        reports.append(triage_target(target, NOTHING_GIVEN, as_of_ns=as_of_ns, strict=True))
    assert reports[0] == reports[1] == reports[2]
    assert repr(reports[0]) == repr(reports[1]) == repr(reports[2])


IN_A_FRESH_PROCESS = """
import sys
from gpufleet_cli.bundle import read_target
from gpufleet_cli.facts import JobNumbers
from gpufleet_cli.triage import triage_target
for folder in sys.argv[1:]:
    print(triage_target(read_target(folder), JobNumbers(source="flag"), strict=True))
"""


def test_hash_seed_changes_nothing(tmp_path: Path) -> None:
    """Sets of strings iterate in another order in each process; reports do not."""
    folders = [
        str(store(evidence(case), tmp_path / case))
        for case in (STUCK_LOADER, OFF_THE_BUS, CASCADE, "lock_gil_1st", "host-oom-cri-pidns")
    ]
    printed = [
        subprocess.run(
            [sys.executable, "-c", IN_A_FRESH_PROCESS, *folders],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert len(folders) == printed[0].count(b"Triage(")


def neutral_name(path: str) -> str:
    """A dump keeps its number, which is its rank; a log loses its name."""
    rank = dump_rank(path)
    if rank is not None:
        return f"evidence/part_{rank}"
    return path if path == "topology.json" else f"evidence/{sum(path.encode())}-{len(path)}.txt"


@pytest.mark.parametrize(
    "case", [STUCK_LOADER, ODD_SIZE, "python-crash-docker-json-torch20", "gpu_error_2nd"]
)
def test_names_of_files_change_nothing(case: str, run: Run) -> None:
    """Formats are found by content; where lines and dumps carry the rank, names are not needed."""
    files = evidence(case)
    renamed = {neutral_name(path): data for path, data in files.items()}
    assert len(files) == len(renamed)
    assert_unchanged(case, run(files), run(renamed))


@pytest.mark.parametrize("case", [*DUMPED, STUCK_LOADER])
@pytest.mark.parametrize("rename", ["pg{}", "{}f1d7c40c9be2"])
def test_names_of_groups_change_nothing(case: str, rename: str, run: Run) -> None:
    """Names are counters or hashes; only equality counts."""
    files = evidence(case)
    before, after = run(files), run(with_groups_renamed(files, rename.format))
    assert_unchanged(case, before, after)
    assert before.verdict.confidence == after.verdict.confidence


@pytest.mark.parametrize(
    ("case", "stem"), [(STUCK_LOADER, "llama-train-worker"), (CASCADE, "llm-pretrain-64338-worker")]
)
def test_names_of_pods_change_nothing(case: str, stem: str, run: Run) -> None:
    """Nothing hangs on what a pod is called, as long as it is called so everywhere."""
    files = evidence(case)
    old, new = stem.encode(), b"zebra-7b-node"
    renamed = {
        path.replace(stem, new.decode()): data
        if dump_rank(path) is not None
        else data.replace(old, new)
        for path, data in files.items()
    }
    assert_unchanged(case, run(files), run(renamed))


@pytest.mark.parametrize("case", [STUCK_LOADER, OFF_THE_BUS, ODD_SIZE, CASCADE, "lock_gil_1st"])
def test_doubled_files_change_nothing(case: str, run: Run) -> None:
    """A log or dump that was gathered twice is not two witnesses."""
    files = evidence(case)
    doubled = files | {
        f"again/{path}": data for path, data in files.items() if path != "topology.json"
    }
    assert_unchanged(case, run(files), run(doubled))


# --- Clocks ---------------------------------------------------------------------------------------


def is_on(*marks: str) -> Callable[[str], bool]:
    return lambda path: any(mark in path for mark in marks)


NODES = [
    pytest.param(STUCK_LOADER, is_on("worker-0.log"), (), id="stuck-loader-culprit"),
    pytest.param(STUCK_LOADER, is_on("worker-2.log"), (), id="stuck-loader-innocent"),
    pytest.param(OFF_THE_BUS, is_on("gpu-b08"), (), id="off-the-bus-culprit"),
    pytest.param(OFF_THE_BUS, is_on("gpu-b07"), (), id="off-the-bus-innocent"),
    pytest.param(COLLATERAL, is_on("gpu-a017", "train-0."), (), id="collateral-culprit"),
    pytest.param(COLLATERAL, is_on("gpu-b003", "train-1."), (), id="collateral-innocent"),
    pytest.param(CASCADE, is_on("worker-2.log"), (8, 9, 10, 11), id="cascade-culprit"),
    pytest.param(CASCADE, is_on("worker-0.log"), (0, 1, 2, 3), id="cascade-innocent"),
]


@pytest.mark.parametrize("hours", [1, -1])
@pytest.mark.parametrize(("case", "paths", "of_ranks"), NODES)
def test_clock_of_one_node_changes_nothing(
    case: str, paths: Callable[[str], bool], of_ranks: tuple[int, ...], hours: int, run: Run
) -> None:
    """A node whose clock is an hour off is told by what happens everywhere at once."""
    files = {path: data for path, data in evidence(case).items() if not path.endswith("job.log")}
    moved = with_clock_shifted(files, hours * HOUR, paths=paths, ranks=of_ranks)
    assert files != moved
    assert_unchanged(case, run(files), run(moved))


@pytest.mark.parametrize("case", [STUCK_LOADER, OFF_THE_BUS, CASCADE])
def test_all_clocks_alike_change_nothing(case: str, tmp_path: Path) -> None:
    """The same incident three days later is the same incident."""
    files, by = evidence(case), timedelta(days=3)
    moved = with_clock_shifted(files, by, paths=lambda path: True, ranks=range(16))
    as_of_ns = CASES[case].captured_ns
    later_ns = None if as_of_ns is None else as_of_ns + int(by.total_seconds()) * 10**9
    before, after = (
        triage_target(
            read_target(store(f, tmp_path / str(i) / "incident")),
            NOTHING_GIVEN,
            as_of_ns=now_ns,
            strict=True,
        )
        for i, (f, now_ns) in enumerate(((files, as_of_ns), (moved, later_ns)))
    )
    assert_unchanged(case, before, after)
    assert before.verdict.confidence == pytest.approx(after.verdict.confidence)


# --- Less evidence --------------------------------------------------------------------------------


@pytest.mark.parametrize("case", DUMPED)
def test_lost_dump_of_an_innocent_names_nobody_else(case: str, run: Run) -> None:
    """Healthy ranks lose dumps too: the verdict stays or gets wider."""
    files = dumps_only(evidence(case))
    before = run(files)
    assert ranks(before) <= culprits(case) | set().union(*CASES[case].acceptable)
    for rank in some_innocents(case):
        after = run(without_dumps(files, [rank]))
        assert ranks(before) <= still_possible(after), f"without the dump of rank {rank}"
        assert ranks(after) >= ranks(before) or not ranks(after), f"without rank {rank}"


@pytest.mark.parametrize("case", DUMPED)
def test_lost_dump_of_the_culprit_keeps_it_in_question(case: str, run: Run) -> None:
    """The guilty rank is the one that most often leaves no dump."""
    files = evidence(case)
    for rank in sorted(culprits(case)):
        for kept in (files, dumps_only(files)):
            after = run(without_dumps(kept, [rank]))
            assert rank in still_possible(after)
            assert ranks(after) & set(some_innocents(case)) == set()


@pytest.mark.parametrize(
    ("case", "lost"),
    [
        (OFF_THE_BUS, "kernel/gpu-b08"),
        (OFF_THE_BUS, "topology.json"),
        (COLLATERAL, "kernel/gpu-a017"),
        (STUCK_LOADER, "worker-0.log"),
        ("host-oom-cri-pidns", "kernel/gpu-c02"),
        ("storage-nfs-stall-deepspeed", "kernel/"),
        ("rendezvous-worker-pending", "events.txt"),
        ("gpu_error_2nd", "_dump_9"),
    ],
)
def test_less_evidence_is_never_more_sure(case: str, lost: str, run: Run) -> None:
    """The same verdict without a piece of evidence for it is at most as sure."""
    files = evidence(case)
    rest = {path: data for path, data in files.items() if lost not in path}
    assert len(rest) < len(files)
    before, after = run(files), run(rest)
    assert ranks(after) & CASES[case].innocent == set()
    if core(before)[:2] == core(after)[:2]:
        assert after.verdict.confidence <= before.verdict.confidence + 1e-9


# --- More noise -----------------------------------------------------------------------------------


def watchdog_noise(stamp: str, c10_stamp: str, rank: int, seq: int) -> list[str]:
    """What a witness prints once more, thirty times over: loud, late and innocent."""
    who = f"{stamp}[rank{rank}]:[E{c10_stamp} ProcessGroupNCCL.cpp"
    work = f"WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)"
    return [
        f"{who}:684] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the "
        "asynchronous nature of CUDA kernels, subsequent GPU operations might run on "
        "corrupted/incomplete data.",
        f"{who}:698] [Rank {rank}] To avoid data inconsistency, we are taking the entire process "
        "down.",
        f"{who}:1902] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread "
        f"terminated with exception: [Rank {rank}] Watchdog caught collective operation timeout: "
        f"{work} ran for 600025 milliseconds before timing out.",
    ] * 30


def xid_line(stamp: str, node: str, code: str) -> str:
    return f"{stamp} {node} kernel: NVRM: Xid (PCI:0000:9b:00): {code}"


AFTER_CODES = (
    "43, pid=22610, name=python3, Ch 00000008",
    "45, pid=22610, name=python3, Ch 00000009",
    "45, pid=22611, name=python3, Ch 0000000a",
)
BENIGN_CODES = (
    "63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x000000000030c2b5) marked for "
    "remapping, reset gpu to activate.",
    "92, pid='<unknown>', name=<unknown>, High single-bit ECC error rate",
)


def loud_innocents() -> list[object]:
    """(case, evidence with effect lines on an innocent rank and clean-up codes on its node)."""
    loader = with_lines(
        evidence(STUCK_LOADER),
        "logs/llama-train-worker-2.log",
        watchdog_noise("2025-05-12T09:57:46.100000001Z ", "512 09:57:46.100000001", 5, 18643),
    )
    bus = with_lines(
        evidence(OFF_THE_BUS),
        "logs/gpu-b07/none_k3v9q1zt/attempt_0/3/stderr.log",
        watchdog_noise("", "218 03:22:10.100000001", 3, 40277),
    )
    cascade = with_lines(
        evidence(CASCADE),
        "logs/pods/llm-pretrain-64338-worker-0.log",
        watchdog_noise("[default3]:", "1129 14:54:40.100000001", 3, 14),
    )
    kernel = "2025-05-12T09:57:46.5+00:00"
    after = [xid_line(kernel, "gpu-a03", code) for code in AFTER_CODES]
    b07 = [xid_line("2025-02-18T04:23:00+0100", "gpu-b07", code) for code in AFTER_CODES]
    a099 = [xid_line("2026-03-02T03:22:40.1+00:00", "gpu-a099", code) for code in AFTER_CODES * 9]
    return [
        pytest.param(STUCK_LOADER, with_lines(loader, "logs/kernel/gpu-a03.log", after)),
        pytest.param(OFF_THE_BUS, with_lines(bus, "logs/kernel/gpu-b07.journal-k.log", b07)),
        pytest.param(COLLATERAL, with_lines(evidence(COLLATERAL), "kernel/gpu-a099.log", a099)),
        pytest.param(CASCADE, cascade),
    ]


@pytest.mark.parametrize(("case", "noisy"), loud_innocents())
def test_loud_innocent_changes_nothing(case: str, noisy: Files, run: Run) -> None:
    """Effects (watchdog, abort, Xid 43 and 45 after it) never make their own rank the culprit."""
    assert_unchanged(case, run(evidence(case)), run(noisy))


@pytest.mark.parametrize(
    ("case", "path", "node", "stamp"),
    [
        (STUCK_LOADER, "logs/kernel/gpu-a03.log", "gpu-a03", "2025-05-12T09:44:10.5+00:00"),
        (OFF_THE_BUS, "logs/kernel/gpu-b07.journal-k.log", "gpu-b07", "2025-02-18T04:09:01+0100"),
        (COLLATERAL, "kernel/gpu-b003.log", "gpu-b003", "2026-03-02T03:08:31.552+00:00"),
        (CASCADE, "kernel/gpu-node-2555.log", "gpu-node-2555", "2026-11-29T14:53:59.1+00:00"),
    ],
)
def test_benign_xid_on_an_innocent_node_changes_nothing(
    case: str, path: str, node: str, stamp: str, run: Run
) -> None:
    """A code that stops nothing, shortly before on another node, is no better explanation."""
    files = evidence(case)
    before = run(files)
    after = run(with_lines(files, path, [xid_line(stamp, node, code) for code in BENIGN_CODES]))
    assert_unchanged(case, before, after)
    assert after.verdict.confidence <= before.verdict.confidence + 1e-9


# --- A healthy run, cut anywhere ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "now"),
    [
        ("healthy-megatron-last-rank-logs", "2025-09-02T03:10:00"),
        ("healthy-megatron-last-rank-logs", "2025-09-02T03:17:31"),
        ("healthy-megatron-last-rank-logs", "2025-09-02T03:20:04"),
        (STUCK_LOADER, "2025-05-12T09:30:55"),
        (STUCK_LOADER, "2025-05-12T09:37:10"),  # within a save
        (OFF_THE_BUS, "2025-02-18 03:00:02"),
    ],
)
def test_healthy_run_shows_no_fault_whenever_it_is_cut(case: str, now: str, tmp_path: Path) -> None:
    """Before anything went wrong nobody is blamed and nothing is stopped, save or step open or not."""
    truth: Truth = CASES[case]
    files = with_text(load(truth.folder), lambda text: cut_after(text, now))
    files = {path: data for path, data in files.items() if "kernel" not in path}
    folder = store(files, tmp_path / "incident")
    as_of_ns = dataclasses.replace(truth, captured_at=now).captured_ns
    triage = triage_target(read_target(folder), NOTHING_GIVEN, as_of_ns=as_of_ns, strict=True)
    assert triage.verdict.kind in (Kind.HEALTHY, Kind.UNDECIDABLE)
    assert triage.verdict.culprits == ()
    assert triage.recommendation.action not in (Action.EVICT_NOW, Action.CORDON_AT_CHECKPOINT)


def test_shift_of_text_moves_every_date_form() -> None:
    """The changes themselves work: otherwise the properties above would hold for nothing."""
    lines = (
        ("2025-12-31T23:30:00.1Z a", "2026-01-01T00:30:00.1Z a"),
        (
            "[rank1]:[E512 09:56:45.024000840 P.cpp:1] x",
            "[rank1]:[E512 10:56:45.024000840 P.cpp:1] x",
        ),
        ("W0531 23:42:34.790000 17959 t.py:1] x", "W0601 00:42:34.790000 17959 t.py:1] x"),
        ("  time      : 2026-11-29_14:42:34", "  time      : 2026-11-29_15:42:34"),
    )
    for before, after in lines:
        assert shifted_text(before, HOUR) == after
