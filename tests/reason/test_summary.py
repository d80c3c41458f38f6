"""Files to summaries, summaries to one: in any order, in any grouping, through any pickle."""

import pickle
import random
from dataclasses import replace
from pathlib import Path

import pytest
from recorder_worlds import Job, dumps, programs, run

from gpufleet_cli.bundle import Target, read_target
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import DumpGroup, Fact, JobNumbers, Progress
from gpufleet_cli.reason.summary import (
    Summary,
    facts_of,
    merge,
    newest_year_hint,
    pieces,
    summarise,
)
from gpufleet_cli.render import render
from gpufleet_cli.render.layout import Look
from gpufleet_cli.triage import decide

CASES = Path(__file__).parents[2] / "fixtures" / "cases"
SOME = ("fr", "fr-gpu", "logs", "xid")


def _verdict(target: Target, summary: Summary) -> str:
    facts, files = facts_of(summary, target.gaps)
    numbers = JobNumbers(source="flag")
    found = decide(target, [numbers, *facts], files, as_of_ns=None, strict=True)
    return render(found, "json", Look(color=False, unicode=True))


def _cases() -> list[Path]:
    found = [case for kind in SOME for case in sorted((CASES / kind).iterdir()) if case.is_dir()]
    return found[::4]


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case.name)
def test_any_partition_in_any_order_gives_the_same_bytes(case: Path) -> None:
    """Shards that never see each other, merged as they come, against all files at once."""
    target = read_target(case)
    expected = _verdict(target, summarise(target.evidences, strict=True))
    rng = random.Random(case.name)
    split = pieces(target.evidences)
    rng.shuffle(split)
    near_ns = max(
        (hint for piece in split if (hint := newest_year_hint(piece)) is not None), default=None
    )
    shards: list[list[Evidence]] = [[] for _ in range(rng.randint(2, 5))]
    for piece in split:
        rng.choice(shards).extend(piece)
    summaries = [summarise(shard, near_ns=near_ns, strict=True) for shard in shards]
    travelled = [pickle.loads(pickle.dumps(summary)) for summary in summaries]
    rng.shuffle(travelled)
    at = rng.randrange(len(travelled))
    grouped = [merge(travelled[:at]), *travelled[at:]]
    assert expected == _verdict(target, merge(reversed(grouped)))


def test_merge_is_associative_commutative_and_idempotent() -> None:
    one, two, three = (
        summarise([Evidence(path=path, size_bytes=2, content=f"[rank{n}]: x\n".encode())])
        for n, path in enumerate(("b.log", "a.log", "c.log"))
    )
    whole = merge([one, two, three])
    assert [file.path for file in whole.files] == ["a.log", "b.log", "c.log"]
    assert merge([merge([one, two]), three]) == merge([one, merge([two, three])]) == whole
    assert merge([three, two, one]) == merge([whole, one]) == whole
    assert merge([]) == Summary(())


def test_told_of_every_file() -> None:
    heard: list[int] = []
    files = [
        Evidence(path=f"{n}.log", size_bytes=2, content=f"[rank{n}]: x\n".encode())
        for n in range(9)
    ]
    summarise(files, told=heard.append)
    assert sum(heard) == 9


def test_the_summary_of_a_dump_is_small() -> None:
    """Some hundred bytes a group, whatever the size of the group, and the end of the ring."""
    job = Job()
    dump = dumps(run(job, programs(job, steps=100), stops={5: 1700}))[0]
    world = tuple(range(16_384))
    wide = replace(dump, groups=tuple(replace(group, members=world) for group in dump.groups))
    sent = pickle.dumps(wide, protocol=pickle.HIGHEST_PROTOCOL)
    assert len(sent) < 8 << 10
    assert pickle.loads(sent) == wide


@pytest.mark.parametrize(
    "members", [None, (), (5,), (0, 1), (9, 7, 5), (3, 3), (0, 1, 5), tuple(range(0, 64, 8))]
)
def test_members_of_a_group_survive_a_pickle(members: tuple[int, ...] | None) -> None:
    group = DumpGroup(name="0", desc="default_pg", members=members)
    assert pickle.loads(pickle.dumps(group)) == group


def test_the_summary_of_a_log_is_small() -> None:
    """A thousand step lines and a watchdog's storm: a tenth of the log."""
    text = "".join(
        f"2026-11-29T14:{n // 60:02}:{n % 60:02}.5Z [rank3]: step: {n} loss: 2.1\n"
        for n in range(1000)
    )
    summary = summarise([Evidence(path="a.log", size_bytes=len(text), content=text.encode())])
    facts: list[Fact] = [fact for _, part in summary.files[0].parts for fact in part]
    assert any(isinstance(fact, Progress) and len(fact.points) > 200 for fact in facts)
    assert len(pickle.dumps(summary, protocol=pickle.HIGHEST_PROTOCOL)) < 16 << 10
