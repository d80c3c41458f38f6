"""torchft's lines of every step: the commit vote of a manager, and the lighthouse's quorum. Sampled.

    [torchtitan_ft_0:6cc4c926-56d9-4bb9-96f6-544803cae49c/0 - step 21] should_commit=True enough_replicas=True, errored=None

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> sign, progress = read(recognise, "[ft_0:6cc4c926-56d9-4bb9-96f6-544803cae49c/0 - step 21] should_commit=True "
...     "enough_replicas=True, errored=None")
>>> sign.sign.value, sign.step, progress.points[0].step
('step-committed', 21, 21)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Progress, Sign, StepPoint
from gpufleet_cli.parsers.lines.signs import Rule, by_literal, make_sign, patterns_of
from gpufleet_cli.parsers.lines.torchft import manager_prefix
from gpufleet_cli.parsers.log_line import Following, LogLine

SAMPLED = True

_ERRORED = re.compile(r"errored=(?P<what>[^\n]{1,200})")
_MEMBER = re.compile(r'replica_id: "(?P<id>[^"\n]{1,160})"')
_ID = re.compile(r"quorum_id: (?P<id>\d{1,12})")


def _commit(line: LogLine, following: Following) -> Iterator[Fact]:
    prefix = manager_prefix(line.text)
    step = prefix[1] if prefix is not None else None
    replica = f"replica {prefix[0]}" if prefix is not None else None
    if "should_commit=True" in line.text:
        yield make_sign(Sign.STEP_COMMITTED, line, step=step, detail=replica)
        if step is not None:
            point = StepPoint(at_ns=line.at_ns, step=step, step_s=None, line=line.line)
            yield Progress(speaker=line.speaker, points=(point,), total_steps=None, path=line.path)
    else:
        found = _ERRORED.search(line.text)
        why = found["what"] if found is not None else ""
        yield make_sign(
            Sign.QUORUM_CHANGE, line, step=step, detail=f"step not committed: {replica}: {why}"
        )


def _quorum(line: LogLine, following: Following) -> Iterator[Fact]:
    members = [found["id"] for found in _MEMBER.finditer(line.text)]
    found = _ID.search(line.text)
    names = ", ".join(sorted(member.partition(":")[0] for member in members))
    quorum = found["id"] if found is not None else "?"
    yield make_sign(
        Sign.QUORUM_CHANGE, line, joined=len(members), detail=f"quorum {quorum}: {names}"
    )


_RULES: tuple[Rule, ...] = (
    (("should_commit=",), _commit),
    (("Quorum! ",), _quorum),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Committed steps and members of the quorum."""
    return by_literal(_RULES, line, following)
