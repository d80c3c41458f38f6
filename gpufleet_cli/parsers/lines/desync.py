"""Reports that name the missing ranks: NCCL_DESYNC_DEBUG of torch, and gloo's monitored barrier.

A desync report spans lines; its ranks are ranks inside the group that timed out. Of its two kinds of
rows, "finished #6, but didn't join #7" names who is missing and "joined but didn't finish" who waits;
`detail` begins with that word. A monitored barrier may blame in a circle (pytorch #83289).

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> facts = read(recognise, '''
...  - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
...    - [1, 3] joined but didn't finish collective #7 (count from 1)
...      [2] finished collective #6, but didn't join collective #7 (count from 1)'''.strip())
>>> [(fact.named_ranks, fact.detail) for fact in facts]
[((1, 3), 'waiting: joined #7'), ((2,), 'missing: finished #6, did not join #7')]
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.groups import parse_group
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    continuation,
    make_sign,
    parse_ranks,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_RANKS = r"\[(?P<ranks>[\d, -]{1,4000})\]"
_JOINED = re.compile(rf"{_RANKS} joined but didn't finish collective #(?P<seq>\d{{1,20}})")
_ABSENT = re.compile(
    rf"{_RANKS} finished collective #(?P<done>\d{{1,20}}), but didn't join collective #(?P<seq>\d{{1,20}})"
)
_NEVER = re.compile(rf"ranks {_RANKS} are the lagging ranks")
_BARRIER = re.compile(
    r"(?:\[[Rr]ank (?P<printer>\d{1,7})\]: )?Ranks? (?P<ranks>\d{1,7}(?:, ?\d{1,7}){0,4096}) "
    r"failed to pass monitoredBarrier(?: in (?P<ms>\d{1,12}) ms)?"
)
_TASKS_HEAD = "timed out task names:"
_TASK = re.compile(r"/job:\w{1,60}/replica:\d{1,6}/task:(?P<task>\d{1,7})")
_REACHED = re.compile(r"tasks (?:that reached|at) the barrier: (?P<have>\d{1,7})/(?P<want>\d{1,7})")
_SNAPSHOT = "Snapshot of ranks' latest states"
_LIMIT = 64


def _desync(line: LogLine, following: Following) -> Iterator[Fact]:
    named = parse_group(line.text)
    group = named[0] if named is not None else None
    for row in (line, *continuation(line, following, _LIMIT)):
        if _SNAPSHOT in row.text:
            return
        for ranks, detail in _rows(row.text):
            yield make_sign(
                Sign.DESYNC_REPORT,
                row,
                speaker=line.speaker,
                at_ns=row.at_ns if row.at_ns is not None else line.at_ns,
                group=group,
                named_ranks=parse_ranks(ranks),
                ranks_are_group_local=True,
                detail=detail,
            )


def _rows(text: str) -> Iterator[tuple[str, str]]:
    for found in _JOINED.finditer(text):
        yield found["ranks"], f"waiting: joined #{found['seq']}"
    for found in _ABSENT.finditer(text):
        detail = f"missing: finished #{found['done']}, did not join #{found['seq']}"
        yield found["ranks"], detail
    for found in _NEVER.finditer(text):
        yield found["ranks"], "missing: never joined any collective"


def _barrier(line: LogLine, following: Following) -> Iterator[Fact]:
    for found in _BARRIER.finditer(line.text):
        yield make_sign(
            Sign.BARRIER_MISSING,
            line,
            named_ranks=parse_ranks(found["ranks"]),
            ranks_are_group_local=True,
            value=int(found["ms"]) / 1000 if found["ms"] is not None else None,
            detail=f"said by rank {found['printer']}" if found["printer"] is not None else None,
        )


def _coordination(line: LogLine, following: Following) -> Iterator[Fact]:
    """JAX's coordination service: tasks that did not reach a barrier, on the lines below."""
    found = _REACHED.search(line.text)
    rows = (
        line.text.partition(_TASKS_HEAD)[2],
        *(r.text for r in continuation(line, following, 16)),
    )
    tasks: list[int] = []
    for row in rows:
        names = [int(f["task"]) for f in _TASK.finditer(row)]
        if row.strip() and not names:
            break
        tasks += names
    yield make_sign(
        Sign.BARRIER_MISSING,
        line,
        named_ranks=tuple(tasks),
        joined=int(found["have"]) if found is not None else None,
        expected=int(found["want"]) if found is not None else None,
        detail="JAX coordination barrier; task numbers",
    )


_RULES: tuple[Rule, ...] = (
    (("To our best knowledge, ",), _desync),
    (("failed to pass monitoredBarrier",), _barrier),
    ((_TASKS_HEAD,), _coordination),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Ranks that a desync report or a monitored barrier names."""
    return by_literal(_RULES, line, following)
