"""Logs of made incidents: what the simulator says of them is what gpufleet's own parsers read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest

from gpufleet_cli.errors import ParseError
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import Fact, Progress, Sign, Speaker, WatchdogTimeout
from gpufleet_cli.operate.simulate import log_files, log_watchdog, numbering, world
from gpufleet_cli.operate.simulate.log_frameworks import FRAMEWORKS, printers
from gpufleet_cli.operate.simulate.log_wrappers import WRAPPERS
from gpufleet_cli.operate.simulate.story import HEALTHY, Class, Story, Written
from gpufleet_cli.parsers import training_log
from gpufleet_cli.verdict import Kind

RELEASES = ("2.1", "2.4", "2.6", "2.8", "2.10")
SIZE = 32


@cache
def story(cls: Class, seed: int = 1, size: int = SIZE) -> Story:
    return world.make(cls, seed=seed, size=size).story


def styled(of: Story, **style: Any) -> Story:
    """The same story, written otherwise."""
    usual: dict[str, Any] = {"rank0_only": False, "lost_prefixes": False}
    return replace(of, style=replace(of.style, **{**usual, **style}))


def written(of: Story, seed: int = 7) -> Written:
    return log_files.write(of, Random(seed))


def facts(of: Story, files: Written) -> list[Fact]:
    """What gpufleet reads in all log files together."""
    evidences = [
        Evidence(path=path, size_bytes=len(data), content=data)
        for path, data in sorted(files.files.items())
    ]
    found: list[Fact] = []
    for evidence, result in training_log.parse_many(evidences, near_ns=of.wall_ns(of.captured_s)):
        assert not isinstance(result, ParseError), evidence.path
        found += result
    return found


def timeouts(of: Story, files: Written) -> list[WatchdogTimeout]:
    """The words of each watchdog once: the end of its process repeats them."""
    found = {}
    for fact in facts(of, files):
        if isinstance(fact, WatchdogTimeout):
            key = (
                fact.origin.path,
                rank_of(of, fact.speaker),
                fact.group_rank,
                fact.seq,
                fact.ran_ms,
            )
            found.setdefault(key, fact)
    return list(found.values())


def rank_of(of: Story, speaker: Speaker) -> int | None:
    """Who speaks, by whatever the line and the path show."""
    if of.style.wrapper == "torchrun-tree" and speaker.local_rank is not None:
        assert speaker.node is not None or speaker.rank is not None
        if speaker.rank is None:
            index = of.layout.nodes.index(str(speaker.node))
            return of.layout.ranks_of(index)[speaker.local_rank]
    for shown in (speaker.rank, speaker.prefix_rank, speaker.task):
        if shown is not None:
            return shown
    return None


# --- Everywhere --------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", list(Class))
def test_what_a_file_is_said_to_tell_is_in_it(cls: Class) -> None:
    """The text of every clue is in the file that it names, in every wrapper."""
    for seed, wrapper in enumerate(WRAPPERS):
        found = written(styled(story(cls), wrapper=wrapper), seed)
        for clue in found.clues:
            assert clue.text.encode() in found.files[clue.path]
            assert clue.ranks or clue.kinds == (Kind.HEALTHY,)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_same_story_gives_the_same_bytes(wrapper: str) -> None:
    of = styled(story(Class.SKIPPED), wrapper=wrapper)
    assert written(of) == written(of)


def test_files_lie_below_logs() -> None:
    for wrapper in WRAPPERS:
        found = written(styled(story(Class.SEGFAULT), wrapper=wrapper))
        assert found.files
        assert all(path.startswith("logs/") for path in found.files)


def test_a_job_of_64_ranks_writes_less_than_a_megabyte() -> None:
    of = story(Class.LOADER_STALL, size=64)
    for framework in FRAMEWORKS:
        found = written(styled(of, wrapper="cri", framework=framework))
        assert 30_000 < sum(map(len, found.files.values())) < 1_000_000


# --- Watchdogs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("torch", RELEASES)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_timeouts_are_those_of_the_ranks_that_are_said_to_time_out(
    wrapper: str, torch: str
) -> None:
    """No timeout is lost in a wrapper and none is made up; who speaks is read where it is written."""
    of = styled(story(Class.GC_STALL), wrapper=wrapper, torch=torch)
    found = written(of)
    read = timeouts(of, found)
    assert len(read) == len(found.timed_out) == len(of.firings) > 0
    if torch != "2.1":
        assert sorted(rank_of(of, fact.speaker) or 0 for fact in read) == sorted(found.timed_out)


@pytest.mark.parametrize("torch", RELEASES)
def test_a_timeout_names_its_call(torch: str) -> None:
    """Number, operation, sizes and place in the group are those of the call in the program."""
    of = styled(story(Class.NODE_DEATH), wrapper="rank-files", torch=torch)
    found = written(of)
    for fact in timeouts(of, found):
        rank = int(fact.origin.path.removesuffix(".log").rpartition("rank")[2].strip("_"))
        call = found.timed_out[rank]
        op = of.programs[rank][call]
        assert op.group is not None
        assert fact.seq == numbering.seq_of(of, rank, call)
        assert fact.op == log_watchdog.op_type(op)
        assert fact.group_rank == op.group.members.index(rank)
        if op.does != "ring":
            assert (fact.numel_in, fact.numel_out) == log_watchdog.numels(op)
        if torch != "2.1" and fact.group is not None:
            assert (fact.group.name, fact.group.desc) == (str(op.group.number), op.group.desc)


def test_a_rank_that_saw_the_signal_alone_says_so() -> None:
    """A guilty rank that lives prints the signal of others and no timeout of its own."""
    of = styled(story(Class.LOADER_STALL), wrapper="rank-files", torch="2.6")
    assert of.signalled
    signs = {
        rank_of(of, fact.speaker)
        for fact in facts(of, written(of))
        if getattr(fact, "sign", None) is Sign.DUMP_SIGNAL_OTHER
    }
    alone = of.signalled.keys() - {firing.rank for firing in of.firings}
    assert alone <= signs


def test_lost_prefixes_of_an_old_release_leave_nobody_known() -> None:
    """`[Rank 3]` counts inside its group: without prefixes nobody is known to have waited."""
    of = styled(story(Class.GC_STALL), wrapper="stern", torch="2.1", lost_prefixes=True)
    found = written(of)
    assert (found.timed_out, found.complete) == ({}, frozenset())
    of = styled(of, wrapper="rank-files", torch="2.1", lost_prefixes=True)
    assert len(written(of).complete) == SIZE


def test_a_line_that_names_nobody_leaves_its_whole_pod_without_prefixes() -> None:
    """A warning of the loader has no tag of PyTorch's own."""
    for seed in range(12):
        of = styled(story(Class.LOADER_STALL), wrapper="cri", torch="2.6", lost_prefixes=True)
        (guilty,) = of.faults[0].ranks
        node = tuple(of.layout.ranks_of(of.layout.node_index(guilty)))
        retries = [c for c in written(of, seed).clues if "thrown while requesting" in c.text]
        assert all(clue.ranks == node for clue in retries)


# --- Who is there ---------------------------------------------------------------------------------------


def test_a_lost_log_leaves_no_line() -> None:
    of = replace(styled(story(Class.GC_STALL), wrapper="srun-label"), lost_logs=frozenset({3, 9}))
    found = written(of)
    assert found.complete == frozenset(range(SIZE)) - {3, 9}
    assert not {3, 9} & found.timed_out.keys()
    (data,) = found.files.values()
    assert not any(line.startswith((b" 3:", b" 9:")) for line in data.splitlines())
    assert any(line.startswith(b" 4:") for line in data.splitlines())


def test_rank_0_alone() -> None:
    of = styled(story(Class.GC_STALL), wrapper="rank-files", rank0_only=True)
    found = written(of)
    assert len(found.files) == 1
    assert found.complete == {0}
    assert found.timed_out.keys() <= {0}


def test_a_pod_that_never_came_has_no_file() -> None:
    """At the rendezvous the master counts who joined, and no step is ever made."""
    of = replace(styled(story(Class.RENDEZVOUS), wrapper="pod-files"), captured_s=1900.0)
    found = written(of)
    assert len(found.files) == len(of.layout.pods) - 1
    read = facts(of, found)
    (joined,) = [f for f in read if getattr(f, "sign", None) is Sign.CLIENTS_JOINED]
    absent = len(of.faults[0].ranks)
    assert (getattr(joined, "joined", None), getattr(joined, "expected", None)) == (
        SIZE - absent,
        SIZE,
    )
    assert not any(isinstance(fact, Progress) for fact in read)


# --- Steps and saves ----------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_steps_are_read_as_they_were(framework: str) -> None:
    """The newest step of each printer is no later than its own end, and its lines are dense enough."""
    of = styled(story(Class.LOADER_STALL), wrapper="rank-files", framework=framework, torch="2.6")
    series = [f for f in facts(of, written(of)) if isinstance(f, Progress) and f.series == "train"]
    assert {rank_of(of, one.speaker) or 0 for one in series} <= set(printers(of))
    assert len(series) >= 1
    for one in series:
        steps = [point.step for point in one.points]
        assert steps == sorted(steps)
        assert 5 <= len(steps)
        last = of.first_step + max(len(ends) for ends in of.step_ends) - 1
        assert last - 500 <= steps[-1] <= last


def test_a_save_that_hangs_for_one_is_open_for_it_alone() -> None:
    of = styled(
        story(Class.CHECKPOINT_STALL), wrapper="rank-files", framework="deepspeed", torch="2.6"
    )
    found = written(of)
    (guilty,) = of.faults[0].ranks
    save = of.saves[0].step
    for path, data in found.files.items():
        if "rank" not in path.rpartition("/")[2]:
            continue
        rank = int(path.removesuffix(".log").rpartition("rank")[2].strip("_"))
        part = f"global_step{save}/zero_pp_rank_{rank}_"
        assert f"[Torch] Saving /mnt/nfs/run3/{part}".encode() in data
        assert (f"[Torch] Saved /mnt/nfs/run3/{part}".encode() in data) == (rank != guilty)
    assert [clue.ranks for clue in found.clues] == [(guilty,)]
    assert f"Checkpoint global_step{save} is ready now!".encode() not in b"".join(
        found.files.values()
    )


@pytest.mark.parametrize("cls", sorted(HEALTHY))
def test_a_healthy_job_complains_of_nothing(cls: Class) -> None:
    of = styled(story(cls), wrapper="cri")
    found = written(of)
    assert {clue.kinds for clue in found.clues} <= {(Kind.HEALTHY,)}
    assert found.timed_out == {}
    told = {getattr(fact, "sign", None) for fact in facts(of, found)}
    assert not told & {Sign.CHILD_FAILED, Sign.PYTHON_EXCEPTION, Sign.ABORT, Sign.WATCHDOG_STUCK}


# --- Ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "codes"),
    [
        (Class.PYTHON_CRASH, {1}),
        (Class.SEGFAULT, {-11}),
        (Class.OOM_KILL, {-9, 1}),
        (Class.GC_STALL, {-6}),
    ],
)
def test_an_agent_names_the_first_child_that_failed(cls: Class, codes: set[int]) -> None:
    """On the guilty node with the code of its end; elsewhere watchdogs abort, or peers are lost."""
    for seed in range(1, 5):
        of = styled(story(cls, seed), wrapper="pod-files", torch="2.6")
        found = written(of)
        guilty = of.faults[0].ranks[0]
        pod = f"logs/{of.layout.pod_of(guilty)}.log"
        blocks = [
            fact
            for fact in facts(of, found)
            if getattr(fact, "sign", None) is Sign.ROOT_CAUSE_BLOCK
        ]
        assert blocks
        for fact in blocks:
            code, ranks = getattr(fact, "exit_code", None), getattr(fact, "named_ranks", ())
            path = getattr(fact, "origin").path  # noqa: B009
            if path == pod:
                assert code in codes
                assert cls is Class.GC_STALL or ranks == (guilty,)
            else:
                assert code in (-6, 1)


@pytest.mark.parametrize("cls", [Class.XID_48, Class.XID_94, Class.XID_95])
def test_memory_errors_are_said_by_the_rank_itself(cls: Class) -> None:
    for seed in range(1, 6):
        of = styled(story(cls, seed), wrapper="rank-files", torch="2.6")
        ended = {ending.rank: ending for ending in of.endings}
        (guilty,) = of.faults[0].ranks
        if ended[guilty].how != "cuda-error":
            continue
        said = {
            rank_of(of, getattr(fact, "speaker"))  # noqa: B009
            for fact in facts(of, written(of))
            if getattr(fact, "sign", None) is Sign.ECC_ERROR
        }
        assert said == {guilty}


def test_witnesses_of_a_dead_adapter_name_their_peer() -> None:
    """Completion errors point away from who prints them; the adapter's owner sees its own port go."""
    for seed in range(1, 9):
        of = styled(story(Class.NIC_DOWN, seed), wrapper="rank-files", torch="2.6", identity="pods")
        (guilty,) = of.faults[0].ranks
        found = written(of, seed)
        read = facts(of, found)
        events = [f for f in read if getattr(f, "sign", None) is Sign.NIC_ERROR]
        assert {rank_of(of, getattr(f, "speaker")) for f in events} <= {guilty}  # noqa: B009
        node = tuple(of.layout.ranks_of(of.layout.node_index(guilty)))
        pointing = [clue for clue in found.clues if "Got completion" in clue.text]
        assert all(clue.ranks == node and not clue.loud for clue in pointing)


def test_reports_of_a_slow_gpu_name_it() -> None:
    named = set()
    for seed in range(8):
        of = styled(story(Class.SLOW_GPU), wrapper="rank-files", torch="2.6")
        for fact in facts(of, written(of, seed)):
            if getattr(fact, "sign", None) is Sign.SLOW_SECTION and _is_slow(fact):
                named |= set(getattr(fact, "named_ranks", ()))
    assert named == set(of.faults[0].ranks)


def _is_slow(fact: Fact) -> bool:
    """Each section has a slowest rank; only a clear one is slow."""
    value, usual = getattr(fact, "value", None), getattr(fact, "expected_value", None)
    return value is not None and usual is not None and value > 1.2 * usual
