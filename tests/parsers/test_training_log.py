"""Streams of log lines: who wrote when, attempts, large files, many files, and hostile input."""

from __future__ import annotations

import random
import time
import typing
from pathlib import Path

import pytest
from parsers.log_reading import evidence_of, facts_of, fields, lines, log_lines, writes

from gpufleet_cli.errors import ParseError
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import (
    Fact,
    Gap,
    IdentityLink,
    LogSign,
    Progress,
    Sign,
    WatchdogTimeout,
    Writes,
)
from gpufleet_cli.parsers import log_stream, log_writes, training_log
from gpufleet_cli.timestamps import format_ns

START = 1_741_000_000


def stamp(second: float) -> str:
    return format_ns(round(START * 10**9 + second * 10**9))


def steps(rank: int, first: int, last: int, *, every: float = 2.0) -> list[tuple[float, str]]:
    return [(n * every, f"[rank{rank}]: step: {n} loss: 2.1") for n in range(first, last)]


def log_of(*parts: list[tuple[float, str]]) -> str:
    """Lines of several speakers in time order, as `kubectl logs --timestamps` has them."""
    merged = sorted((item for part in parts for item in part), key=lambda item: item[0])
    return "".join(f"{stamp(second)} {text}\n" for second, text in merged)


def timeout(rank: int, second: float) -> list[tuple[float, str]]:
    work = "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000)"
    text = f"[rank{rank}]:[E303 11:06:40.000000001 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: {work} ran for 600021 milliseconds before timing out."
    return [(second, text), (second + 1, f"[rank{rank}]: something after it")]


def of_rank(found: list[Writes], rank: int) -> Writes:
    (one,) = [w for w in found if rank in (w.speaker.prefix_rank, w.speaker.rank)]
    return one


def seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / 10**9 - START


# --- Writes ------------------------------------------------------------------------------------------


def test_first_last_and_habit_of_each_speaker() -> None:
    """Median and longest gap per speaker, not per file; lines of one moment are one act."""
    found = writes(
        log_of(
            steps(0, 0, 20),
            steps(1, 0, 20, every=5.0),
            [(3.0, "[rank0]: a"), (3.0005, "[rank0]: b")],
        )
    )
    zero, one = of_rank(found, 0), of_rank(found, 1)
    assert (seconds(zero.first_ns), seconds(zero.last_ns)) == (0.0, 38.0)
    assert (zero.habit_s, zero.lines, zero.dated, zero.zone_stated) == (2.0, 22, True, True)
    assert (one.habit_s, one.habit_max_s, one.complained) == (5.0, 5.0, False)
    assert zero.last_normal_ns == zero.last_ns
    assert zero.last_text == "step: 19 loss: 2.1"


def test_two_lines_are_no_habit() -> None:
    """Fewer than three lines: no habit is claimed."""
    (one,) = writes(log_of(steps(0, 0, 2)))
    assert (one.habit_s, one.habit_max_s) == (None, None)


def test_a_complaint_ends_ordinary_work_for_its_speaker_only() -> None:
    """What a witness writes after its timeout is complaint; another rank's line is not."""
    text = log_of(
        steps(0, 0, 10), timeout(0, 618.0), steps(1, 0, 10), [(700.0, "[rank1]: still here")]
    )
    found = writes(text)
    zero, one = of_rank(found, 0), of_rank(found, 1)
    assert zero.complained and not one.complained
    assert seconds(zero.last_normal_ns) == 18.0 and seconds(zero.last_ns) == 619.0
    assert zero.last_normal_text == "step: 9 loss: 2.1"
    assert zero.last_normal_line is not None and zero.last_normal_line < zero.last_line
    assert seconds(one.last_normal_ns) == 700.0


def test_a_rank_that_only_complained_has_no_ordinary_line() -> None:
    """`last_normal_*` is None, and habit too."""
    (zero,) = writes(log_of(timeout(0, 5.0)))
    assert (zero.last_normal_ns, zero.last_normal_line, zero.last_normal_text) == (None, None, "")


TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 3, in main',
    "    x['text']",
    "KeyError: 'text'",
]


def test_the_header_of_a_traceback_is_where_the_complaint_begins() -> None:
    """Not the exception's own line some rows further down."""
    rows = [(20.0 + n / 1000, f"[rank0]: {text}") for n, text in enumerate(TRACEBACK)]
    (zero,) = writes(log_of(steps(0, 0, 10), rows))
    assert (zero.complained, seconds(zero.last_normal_ns)) == (True, 18.0)


def test_work_after_an_error_shows_that_it_was_survived() -> None:
    """A logged exception, then steps: the last step is ordinary work."""
    rows = [(20.0 + n / 1000, f"[rank0]: {text}") for n, text in enumerate(TRACEBACK)]
    (zero,) = writes(log_of(steps(0, 0, 10), rows, steps(0, 20, 30)))
    assert (zero.complained, seconds(zero.last_normal_ns)) == (False, 58.0)


def test_many_plain_lines_survive_a_mere_traceback_but_no_timeout() -> None:
    """An import error at the start of a rank that logs no steps, against a watchdog's timeout."""
    plain = [(100.0 + 10 * n, f"[rank0]: shard {n} read") for n in range(40)]
    rows = [(1.0 + n / 1000, f"[rank0]: {text}") for n, text in enumerate(TRACEBACK)]
    (zero,) = writes(log_of(rows, plain))
    assert (zero.complained, seconds(zero.last_normal_ns)) == (False, 490.0)
    (zero,) = writes(log_of([(0.0, "[rank0]: hello")], timeout(0, 1.0), plain))
    assert (zero.complained, seconds(zero.last_normal_ns)) == (True, 0.0)


def test_complaints_are_named_by_sign() -> None:
    """The set of effects is fixed: retries, saves and networks are ordinary, aborts are not."""
    assert Sign.ABORT in log_writes.COMPLAINTS and Sign.PYTHON_EXCEPTION in log_writes.COMPLAINTS
    ordinary = {
        Sign.DATA_RETRY,
        Sign.SAVE_STARTED,
        Sign.NETWORK_SOCKET,
        Sign.FINISHED,
        Sign.RENDEZVOUS_DONE,
    }
    assert not ordinary & log_writes.COMPLAINTS


def test_undated_streams_have_only_order() -> None:
    """No time at all: `dated` is False and the line number stays."""
    (zero,) = writes("[rank0]: a\n[rank0]: b\n")
    assert (zero.dated, zero.first_ns, zero.last_ns, zero.last_line) == (False, None, None, 2)


@pytest.mark.parametrize(
    ("size", "ends", "cut", "buffered"),
    [(8192, b"x", True, True), (8192, b"\n", False, False), (5000, b"x", True, False)],
)
def test_a_stream_that_ends_inside_a_line(
    size: int, ends: bytes, cut: bool, buffered: bool
) -> None:
    """A multiple of 4096 bytes that ends inside a line is an unflushed buffer."""
    line = b"[rank0]: step: 1 loss: 2.5\n"
    data = (line * (size // len(line) + 1))[: size - 1] + ends
    found = writes(data)
    assert {(w.cut, w.buffered) for w in found} == {(cut, buffered)}


def test_a_log_that_could_not_be_had_is_a_gap_and_no_line() -> None:
    """kubectl's answer in place of a log (HTTP 200) is nobody's last word."""
    text = "unable to retrieve container logs for containerd://3f9c1d5e7a\n"
    facts = facts_of(text, path="logs/sft-3.log")
    assert not [fact for fact in facts if isinstance(fact, Writes)]
    assert [gap.what for gap in facts if isinstance(gap, Gap)] == ["log of sft-3"]
    assert [fact.sign for fact in facts if isinstance(fact, LogSign)] == [Sign.LOG_UNAVAILABLE]


def test_silence_behind_a_filter_is_not_known() -> None:
    """TorchTitan's `--local-ranks-filter 0` hides other ranks, Ray's de-duplication any worker."""
    text = "+ torchrun --local-ranks-filter 0 --role rank --tee 3 train.py\n[rank0]:[rank8]: hi\n"
    assert {w.speaker.rank: w.rank_filtered for w in writes(text)} == {None: True, 8: False}
    ray = "(TrainWorker pid=1) hi\n(TrainWorker pid=2) ho [repeated 7x across cluster]\n"
    assert all(w.rank_filtered for w in writes(ray))
    assert not any(w.rank_filtered for w in writes("[rank0]: hi\n"))


def test_speakers_of_one_line_form_are_one_object() -> None:
    """Equal speakers are the same object."""
    first, _, third = log_lines("[rank0]: a\n[rank1]: b\n[rank0]: c\n")
    assert first.speaker is third.speaker


# --- One process, attempts, cycles ---------------------------------------------------------------------


def test_a_prefix_proves_the_rank_of_a_whole_torchrun_file() -> None:
    """One line of the file says [rank11]; its local rank stands in the path: a link, and one Writes."""
    text = "plain start\n[rank11]:[E303 11:06:40.000000001 P.cpp:632] [Rank 11] Watchdog caught collective operation timeout: x\nterminate called\n"
    facts = facts_of(text, path="gpu-b08/none_x/attempt_1/3/stderr.log")
    (one,) = [fact for fact in facts if isinstance(fact, Writes)]
    assert fields(one.speaker) == {"rank": 11, "local_rank": 3, "node": "gpu-b08", "attempt": 1}
    (link,) = [fact for fact in facts if isinstance(fact, IdentityLink)]
    assert (link.rank, link.local_rank, link.node, link.attempt) == (11, 3, "gpu-b08", 1)


AGENT = "W0303 11:06:40.000000 26 torch/distributed/elastic/agent/server/api.py:906] [default] "


def test_attempts_in_one_file_never_share_a_speaker() -> None:
    """The agent's restart lines part the file; before the first one the attempt is 0."""
    text = (
        "[default0]:[rank0]: one\n"
        f"{AGENT}Worker group FAILED. 3/3 attempts left; will restart worker group\n"
        f"{AGENT}Rendezvous complete for workers. Result:\n  restart_count=1\n"
        "[default0]:[rank0]: two\n"
        f"{AGENT}Worker group FAILED. 2/3 attempts left; will restart worker group\n"
        "[default0]:[rank0]: three\n"
    )
    found = {line.text: line.speaker.attempt for line in log_lines(text) if line.speaker.rank == 0}
    assert found == {"one": 0, "two": 1, "three": 2}


def test_without_restart_lines_the_attempt_is_not_known() -> None:
    """None is not zero; a first rendezvous says zero."""
    assert log_lines("[rank0]: a\n")[0].speaker.attempt is None
    first = "[default] Rendezvous complete for workers. Result:\n  restart_count=0\n[rank0]: a\n"
    assert log_lines(first)[-1].speaker.attempt == 0
    late = "[rank0]: a\n  restart_count=2\n[rank0]: b\n"
    assert [line.speaker.attempt for line in log_lines(late)] == [1, 2, 2]


@pytest.mark.parametrize(
    "more", ["", "host-1:412:412 [0] NCCL INFO comm 0x5 rank 8 - Init COMPLETE"]
)
def test_ranks_that_share_a_log_are_read_as_if_each_was_alone(more: str) -> None:
    """Eight ranks' lines differ in digits alone, the rank's too: each keeps its own steps and times,
    whatever an agent that never restarted or NCCL said before them."""
    ranks = range(4096, 4104)
    head = [(0.0, "  restart_count=0"), *([(0.5, more)] if more else [])]
    frame = "frame #3: c10d::watchdog() + 0x1d2"
    per_rank = [
        [*steps(rank, 1, 40, every=2.0 + rank % 8 / 100), (99.0, f"[rank{rank}]:{frame}")]
        for rank in ranks
    ]
    together = facts_of(log_of(head, *per_rank))
    found = {f.speaker.prefix_rank: f for f in together if isinstance(f, Progress)}
    ends = {f.speaker.prefix_rank: f.last_ns for f in together if isinstance(f, Writes)}
    for rank, own in zip(ranks, per_rank, strict=True):
        alone = facts_of(log_of(head, own))
        [progress] = [f for f in alone if isinstance(f, Progress)]
        times = [(point.step, point.at_ns) for point in progress.points]
        assert times == [(point.step, point.at_ns) for point in found[rank].points]
        assert {ends[rank]} == {
            f.last_ns for f in alone if isinstance(f, Writes) and f.speaker.prefix_rank == rank
        }
        assert found[rank].speaker.attempt == 0


def test_several_agents_announce_one_restart() -> None:
    """Two nodes in one file fail together: one new attempt, not two."""
    failed = f"{AGENT}Worker group FAILED. 3/3 attempts left; will restart worker group\n"
    text = f"[rank0]: a\n{failed}{failed}  restart_count=1\n  restart_count=1\n[rank0]: b\n"
    assert [line.speaker.attempt for line in log_lines(text) if line.text in "ab"] == [0, 1]


def test_restarts_count_on_from_the_containers() -> None:
    """A container's restart count is the base of its agent's count."""
    path = "ml_sft-0_8c1f77d0-5b10-4d2e-9f60-1a2b3c4d5e60/t/2.log"
    text = "2025-03-03T21:41:00.000000691Z stderr F [rank0]: a\n2025-03-03T21:41:01.000000691Z stderr F   restart_count=1\n"
    assert [line.speaker.attempt for line in log_lines(text, path=path)] == [2, 3]


def test_in_process_restarts_are_cycles_with_their_own_rank() -> None:
    """NVRx: after the restart the message's rank counts, also on lines that do not repeat it."""
    head = "2025-08-14 10:00:0{n},123 [INFO] [gpu-n01] [workload:5(1) infra:0(0)] wrap.py:512 "
    texts = [
        "starting iteration=0 rank=5 world_size=8",
        "working",
        "starting iteration=1 rank=4 world_size=7",
        "working on",
    ]
    text = "".join(head.format(n=n) + t + "\n" for n, t in enumerate(texts))
    found = [(line.speaker.cycle, line.speaker.rank) for line in log_lines(text)]
    assert found == [(0, 5), (0, 5), (1, 4), (1, 4)]


# --- Progress and following lines ------------------------------------------------------------------------


def test_step_lines_become_one_series_per_speaker() -> None:
    """Joined in order, with the newest step last."""
    facts = facts_of(log_of(steps(0, 0, 50), steps(1, 0, 50)))
    series = [fact for fact in facts if isinstance(fact, Progress)]
    assert sorted((s.speaker.prefix_rank, len(s.points), s.points[-1].step) for s in series) == [
        (0, 50, 49),
        (1, 50, 49),
    ]


def test_a_long_series_is_thinned_and_keeps_its_ends() -> None:
    """At most 512 points; the first, the newest and the order stay."""
    facts = facts_of(log_of(steps(0, 0, 3000)))
    (series,) = [fact for fact in facts if isinstance(fact, Progress)]
    found = [point.step for point in series.points]
    assert len(found) <= 512 and found[0] <= 20 and found[-1] == 2999
    assert found == sorted(found)


def test_a_recogniser_sees_the_lines_of_its_speaker_and_of_nobody() -> None:
    """Two ranks' tracebacks alternate line by line; each exception finds its own frames."""
    other = [row.replace("KeyError: 'text'", "ValueError: bad") for row in TRACEBACK]
    text = "".join(f"[rank0]: {a}\n[rank1]: {b}\n" for a, b in zip(TRACEBACK, other, strict=True))
    found = {
        fact.speaker.prefix_rank: fact.detail
        for fact in facts_of(text)
        if isinstance(fact, LogSign) and fact.sign is Sign.PYTHON_EXCEPTION
    }
    assert found[0] is not None and found[0].startswith("KeyError")
    assert found[1] is not None and found[1].startswith("ValueError")


# --- Large files -----------------------------------------------------------------------------------------


def large(
    ranks: int, count: int, *, quiet: dict[int, int] | None = None
) -> list[tuple[float, str]]:
    """Step lines of several ranks; a rank of `quiet` stops at that step."""
    quiet = quiet or {}
    return [
        (
            n * 2.0 + rank / 1000,
            f"[rank{rank}]: step: {n} loss: 2.1 grad_norm: 0.5 lr: 1e-4 tokens/s: 5123",
        )
        for n in range(count)
        for rank in range(ranks)
        if n < quiet.get(rank, count)
    ]


def test_a_large_file_says_the_same_of_its_end() -> None:
    """Last lines, last ordinary lines and last steps of a file that is not read line by line."""
    rows = large(4, 6000)
    text = log_of(rows, *(timeout(rank, 12_600.0 + rank) for rank in range(4)))
    assert len(text) > 4 * log_stream.DENSE_BYTES
    facts = facts_of(text)
    found = [fact for fact in facts if isinstance(fact, Writes)]
    for rank in range(4):
        one = of_rank(found, rank)
        assert one.complained
        assert seconds(one.last_normal_ns) == pytest.approx(11_998.0 + rank / 1000)
        assert seconds(one.last_ns) == pytest.approx(12_601.0 + rank)
        assert one.habit_s == pytest.approx(2.0)
    assert len([fact for fact in facts if isinstance(fact, WatchdogTimeout)]) == 4
    series = [fact for fact in facts if isinstance(fact, Progress)]
    assert {s.points[-1].step for s in series} == {5999}
    assert all(len(s.points) > 15 for s in series)


def test_a_log_of_many_ranks_is_read_back_to_an_earlier_pause() -> None:
    """Hundreds of ranks compile at once, and their lines fill all that is read of the end; the steps stand
    before them, and among these one that took eight minutes."""
    at = [n * 2.0 + (480.0 if n >= 20 else 0.0) for n in range(40)]
    steps = [(one, f"[rank0]: step: {n} loss: 2.1 grad_norm: 0.5") for n, one in enumerate(at)]
    tuned = [
        (600.0 + rank / 1000 + line / 10_000, f"[rank{rank}]:   triton_mm_{line} 0.7683 ms 86.7%")
        for rank in range(256)
        for line in range(40)
    ]
    text = log_of(steps, tuned)
    assert len(text) > 2 * log_stream.DENSE_BYTES
    (series,) = [fact for fact in facts_of(text) if isinstance(fact, Progress)]
    assert [(point.step, seconds(point.at_ns)) for point in series.points] == list(enumerate(at))


def test_the_pace_is_told_where_one_rank_prints_for_all() -> None:
    """Its steps are a small part of a large file, and other lines of its own stand after them."""
    steps = [(n * 30.0, f"[rank0]: step: {n} loss: 2.1 grad_norm: 0.5") for n in range(40)]
    tuned = [
        (1200.0 + n / 100, f"[rank{rank}]: AUTOTUNE mm({n}x4096, 4096x14336)" + " " * 60)
        for rank in range(16)
        for n in range(400)
    ]
    text = "".join(f"{stamp(at)} {line}\n" for at, line in [*steps, *tuned])
    assert len(text) > log_stream.DENSE_BYTES
    points = [p for f in facts_of(text) if isinstance(f, Progress) for p in f.points]
    assert {p.step for p in points} >= set(range(32, 40))


def test_a_rank_that_vanishes_in_the_middle_of_a_large_file_is_found() -> None:
    """Rank 2 stops at step 3000 of 6000; its last line is found by reading backwards."""
    text = log_of(large(4, 6000, quiet={2: 3000}), *(timeout(rank, 12_600.0) for rank in (0, 1, 3)))
    two = of_rank(writes(text), 2)
    assert seconds(two.last_ns) == pytest.approx(5998.002)
    assert (two.complained, two.last_text.split()[1]) == (False, "2999")
    assert two.last_line == text[: text.index(f"{stamp(5998.002)} [rank2]")].count("\n") + 1


def test_every_rank_of_a_merged_stream_finds_its_last_line() -> None:
    """Three hundred ranks in one file: the stretches read grow with the number of speakers."""
    text = log_of(
        large(300, 60, quiet={7: 41}), *(timeout(rank, 720.0) for rank in range(300) if rank != 7)
    )
    found = writes(text)
    last = {
        w.speaker.prefix_rank: seconds(w.last_normal_ns)
        for w in found
        if w.speaker.prefix_rank is not None
    }
    assert len(last) == 300
    assert {rank for rank, at in last.items() if at is not None and at < 110} == {7}
    assert last[7] == pytest.approx(80.007)


def test_line_numbers_of_a_large_file_are_exact() -> None:
    """An error in the middle, far from what is read line by line."""
    rows = large(1, 20_000)
    text = log_of(
        rows,
        [(20_000.5, "[rank0]: RuntimeError: CUDA error: an illegal memory access was encountered")],
    )
    found = [fact for fact in facts_of(text) if isinstance(fact, LogSign)]
    assert {fact.origin.line for fact in found} == {
        text[: text.index("CUDA error")].count("\n") + 1
    }


def test_pages_of_a_very_large_file(tmp_path: Path) -> None:
    """Several pages: numbers run on, a line at a page's border is whole, memory stays bounded."""
    row = (
        "2025-03-03T11:06:40.123456789Z [rank0]: step: 1 loss: 2.1 and some more words to fill it\n"
    )
    count = (66 << 20) // len(row)
    file = tmp_path / "a.log"
    with file.open("w") as out:
        out.write(row * count)
        out.write(
            "2025-03-03T12:06:40Z [rank0]: RuntimeError: CUDA error: device-side assert triggered\n"
        )
    size = file.stat().st_size
    facts = list(training_log.parse(Evidence(path="a.log", size_bytes=size, file=file)))
    signs = [fact for fact in facts if isinstance(fact, LogSign)]
    assert {fact.origin.line for fact in signs} == {count + 1}
    (one,) = [fact for fact in facts if isinstance(fact, Writes)]
    assert one.last_line == count + 1


# --- Many files ----------------------------------------------------------------------------------------


def test_rotated_files_are_read_as_one_stream() -> None:
    """A rank's habit and last line run over the border; every fact names its own file."""
    base = "ml_sft-0_8c1f77d0-5b10-4d2e-9f60-1a2b3c4d5e60/t/0.log"
    old = "".join(
        f"{stamp(n)}  stderr F [rank0]: a {n}\n".replace("Z  ", ".000000000Z ") for n in range(5)
    )
    new = "".join(
        f"{stamp(n)}  stderr F [rank0]: a {n}\n".replace("Z  ", ".000000000Z ") for n in range(5, 9)
    )
    files = [evidence_of(base, new), evidence_of(f"{base}.20250303-214100", old)]
    results = list(training_log.parse_many(files))
    found = {evidence.path: facts for evidence, facts in results}
    newer, older = (found[file.path] for file in files)
    assert not isinstance(newer, ParseError) and not isinstance(older, ParseError)
    assert not [fact for fact in older if isinstance(fact, Writes)]
    (one,) = [fact for fact in newer if isinstance(fact, Writes)]
    assert (one.lines, one.habit_s, one.path, one.last_line) == (9, 1.0, base, 4)
    assert (seconds(one.first_ns), seconds(one.last_ns)) == (0.0, 8.0)


def test_a_file_without_a_year_takes_it_from_its_neighbours() -> None:
    """stderr has only c10 stamps, stdout beside it has dates."""
    files = [
        evidence_of(
            "n/r/attempt_0/0/stderr.log", "[rank0]:[E303 11:06:40.5 P.cpp:632] Watchdog x\n"
        ),
        evidence_of("n/r/attempt_0/0/stdout.log", "2025-03-03 11:00:00,123 INFO step 3 loss 2\n"),
    ]
    (_, first), _ = training_log.parse_many(files)
    assert not isinstance(first, ParseError)
    (one,) = [fact for fact in first if isinstance(fact, Writes)]
    assert one.last_ns is not None and format_ns(one.last_ns) == "2025-03-03T11:06:40.5Z"
    assert not [fact for fact in first if isinstance(fact, Gap)]


def test_many_files_in_processes_say_what_one_process_says(tmp_path: Path) -> None:
    """Over the threshold the work is shared, and the answer is the same."""
    files = []
    for rank in range(70):
        file = tmp_path / f"sft-{rank}.log"
        file.write_text(
            log_of(large(1, 700), timeout(0, 2000.0)).replace("[rank0]", f"[rank{rank}]")
        )
        files.append(Evidence(path=file.name, size_bytes=file.stat().st_size, file=file))
    shared = list(training_log.parse_many(files))
    assert {evidence.path for evidence, _ in shared} == {file.path for file in files}
    for evidence, facts in shared[::23]:
        assert facts == tuple(training_log.parse_stream([evidence]))


def test_one_unreadable_file_costs_itself(tmp_path: Path) -> None:
    """A file that vanished is an error of its own, beside the facts of the others."""
    gone = Evidence(
        path="gone.log", size_bytes=10, file=tmp_path / "gone.log", head=b"[rank0]: a\n"
    )
    results = list(training_log.parse_many([gone, evidence_of("a-0.log", "[rank0]: a\n")]))
    assert isinstance(results[0][1], ParseError)
    assert not isinstance(results[1][1], ParseError)


# --- Hostile input ---------------------------------------------------------------------------------------

FACTS = typing.get_args(Fact)

SEEDS = (
    log_of(steps(0, 0, 20), timeout(0, 60.0), [(61.0 + n, f"[rank1]: {t}") for n, t in enumerate(TRACEBACK)]),
    '{"log":"[rank0]: a\\n","stream":"stderr","time":"2023-06-20T18:00:09.000000242Z"}\n' * 8,
    '{"data":{"resultType":"streams","result":[{"stream":{"pod":"a-0"},"values":[["1754032178000000003","x"]]}]}}',
    "2025-03-03T21:41:00.000000691Z stderr P [rank0]: a\n2025-03-03T21:41:00.000000691Z stderr F b\n" * 5,
    "(Worker pid=1, ip=10.0.0.1) x [repeated 3x across cluster]\n" * 5,
    "2025-08-14 10:00:01,123 [INFO] [n] [workload:5(5) infra:0(0)] w.py:5 starting iteration=1 rank=4 world_size=7\n" * 5,
    "\r  1%|x| 3/600 [00:09<30:00,  3.01s/it]\r  2%|x| 4/600 [00:09<30:00,  3.01s/it]Traceback (most recent call last):\n" * 3,
    "Date,Host,Service,Message\n2025-05-12T09:57:46Z,n1,x,\"b\nmore\"\n",
    f"{AGENT}Worker group FAILED. 3/3 attempts left; will restart worker group\n  restart_count=1\n" * 4,
    "12: text\n 3: [rank3]:[E303 11:06:40.5 P.cpp:632] Watchdog\n" * 6,
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(SEEDS)))
def test_no_mutation_raises_anything_but_a_parse_error(number: int) -> None:
    """Cut, doubled, interleaved, spoiled input of every wrapper."""
    rng = random.Random(number)
    seed = SEEDS[number].encode()
    others = b"".join(s.encode() for s in SEEDS)
    for _ in range(120):
        data = bytearray(seed)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data) + 1)
            kind = rng.randrange(5)
            if kind == 0:
                del data[at : at + rng.randrange(40)]
            elif kind == 1:
                data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(8)))
            elif kind == 2:
                data[at:at] = data[: rng.randrange(60)]
            elif kind == 3:
                start = rng.randrange(len(others))
                data[at:at] = others[start : start + rng.randrange(80)]
            else:
                data[at:at] = rng.choice(
                    [b"\n", b"\r", b"\x00", b"\x1b[", b"[rank", b"]:", b"{", b'"', b"\xff\xfe"]
                )
        name = rng.choice(["a.log", "n/r/attempt_0/3/stderr.log", "sft-0.previous.log", "x.json"])
        try:
            facts: list[Fact] = facts_of(bytes(data), path=name)
        except ParseError:
            continue
        assert all(isinstance(fact, FACTS) for fact in facts)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"\r",
        b"\x00" * 5000,
        b"\n" * 5000,
        b"\r\n" * 500,
        b"\xff\xfe",
        b"{",
        b"[",
        b"[]",
        b"{}",
    ],
)
def test_nothing_much_gives_nothing(data: bytes) -> None:
    """Empty, blank and tiny inputs."""
    assert not [fact for fact in facts_of(data) if isinstance(fact, LogSign)]


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 4_000_000,
        b"[rank0]: " * 300_000,
        b"[" * 1_000_000,
        b"{" * 1_000_000 + b"}" * 10,
        b'{"message":' * 200_000,
        b"a\r" * 1_000_000,
        b"\x1b[" * 1_000_000,
        b"2025-03-03T21:41:00.000000691Z stderr P x\n" * 50_000,
        b"[rank0]:[E303 11:06:40.5 P.cpp:632] " * 60_000,
        b"Traceback (most recent call last):\n" * 40_000,
        b"(" * 500_000 + b"pid=1) x\n",
        ("\u202e" * 500_000).encode(),
    ],
)
def test_hostile_lines_cost_bounded_work(data: bytes) -> None:
    """No quadratic time on lines without end, without newline, or all alike."""
    began = time.process_time()
    facts_of(data)
    assert time.process_time() - began < 20


def test_the_same_input_gives_the_same_facts() -> None:
    """Twice the same, in the same order."""
    text = log_of(large(3, 3000), *(timeout(rank, 7000.0) for rank in range(3)))
    assert facts_of(text) == facts_of(text)


def test_blank_lines_and_crs_are_nobodys_words() -> None:
    """NCCL writes an empty line before a warning: it is no last word."""
    found = lines("a\n\n   \nb\n\n")
    assert [line.text for line in found if line.text.strip()] == ["a", "b"]
    (one,) = writes("a\n\n   \nb\n\n")
    assert (one.last_text, one.last_line) == ("b", 4)
