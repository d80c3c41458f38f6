"""Many dumps in a few processes (`worker_pool`), in their order.

What comes back is plain tuples: a thousand ranks of one group share one list of members, which
travels once for each worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import fields
from operator import attrgetter
from typing import Any

from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import DumpGroup, LastOp, OpenOp, Origin, RankDump
from gpufleet_cli.parsers.recorder_reader import Job, RecorderFact, read_dump, unreadable
from gpufleet_cli.parsers.worker_pool import Pool

Result = list[RecorderFact] | ParseError

AHEAD = 4
PATIENCE_S = 20.0


def read_all(
    count: int, job: Callable[[int], Job], *, is_many: bool, patience_s: float = PATIENCE_S
) -> Iterator[Result]:
    """The result of every job, in order; `job` is asked for each when its turn to be sent comes.

    `patience_s` without any answer means that a file never ends.
    """
    paths: dict[int, str] = {}

    def remembered(turn: int) -> Job:
        found = job(turn)
        paths[turn] = found[0]
        return found

    pool: Pool[Job, list[RecorderFact]] = Pool(
        count,
        remembered,
        reader=_Reader,
        decoder=_Decoder,
        is_heavy=_has_content,
        lost=lambda turn, why: unreadable(paths[turn], why),
        ahead=AHEAD,
        patience_s=patience_s,
    )
    ready: dict[int, Result] = {}
    with closing(pool.results(count if is_many else 1)) as results:
        for turn in range(count):
            while turn not in ready:
                done, result = next(results)
                ready[done] = result
            yield ready.pop(turn)


def _has_content(job: Job) -> bool:
    return job[3] is not None


# --- What travels ---------------------------------------------------------------------------------

_DUMP = tuple(f.name for f in fields(RankDump) if f.name not in ("groups", "origin", "last_op"))
_GROUP = tuple(f.name for f in fields(DumpGroup) if f.name not in ("members", "open_ops"))
_OP = tuple(f.name for f in fields(OpenOp))
_LAST = tuple(f.name for f in fields(LastOp))
_dump_values, _group_values = attrgetter(*_DUMP), attrgetter(*_GROUP)
_op_values, _last_values = attrgetter(*_OP), attrgetter(*_LAST)


class _Reader:
    """In a worker: plain tuples, members by number; lists of members that were not sent before come
    along."""

    def __init__(self) -> None:
        self.sent: dict[int, tuple[int, tuple[int, ...]]] = {}

    def __call__(self, job: Job) -> tuple[Any, ...]:
        return _wire(read_dump(*job), self.sent)


class _Decoder:
    """On this side: facts from the tuples of one worker."""

    def __init__(self) -> None:
        self.members: list[tuple[int, ...]] = []

    def __call__(self, answer: tuple[Any, ...]) -> list[RecorderFact]:
        return _unwire(answer, self.members)


def _wire(
    facts: list[RecorderFact], sent: dict[int, tuple[int, tuple[int, ...]]]
) -> tuple[Any, ...]:
    dump = facts[0]
    assert isinstance(dump, RankDump)
    fresh: list[tuple[int, ...]] = []
    groups = []
    for group in dump.groups:
        number = -1
        if group.members is not None:
            known = sent.get(id(group.members))
            if known is None:
                known = sent[id(group.members)] = (len(sent), group.members)
                fresh.append(group.members)
            number = known[0]
        groups.append((number, _group_values(group), [_op_values(op) for op in group.open_ops]))
    last = None if dump.last_op is None else _last_values(dump.last_op)
    return fresh, _dump_values(dump), groups, last, facts[1:]


def _unwire(answer: tuple[Any, ...], members: list[tuple[int, ...]]) -> list[RecorderFact]:
    fresh, values, groups, last, others = answer
    members.extend(fresh)
    dump = RankDump(
        **dict(zip(_DUMP, values, strict=True)),
        origin=Origin(path=values[_DUMP.index("path")]),
        last_op=None if last is None else LastOp(**dict(zip(_LAST, last, strict=True))),
        groups=tuple(
            DumpGroup(
                **dict(zip(_GROUP, row, strict=True)),
                members=members[number] if number >= 0 else None,
                open_ops=tuple(OpenOp(**dict(zip(_OP, op, strict=True))) for op in ops),
            )
            for number, row, ops in groups
        ),
    )
    return [dump, *others]
