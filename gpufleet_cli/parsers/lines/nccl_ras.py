"""What NCCL's RAS subsystem says (`ncclras` on port 28028; text since 2.24, JSON since 2.28.7).

INCOMPLETE and DEAD name processes that did not answer: strong. A mismatch is listed for the smaller set
of ranks, which may be ahead and innocent (nccl #1911), and one snapshot of a running job is normal: its
`detail` begins with "weak". RAS may say OK while a collective is stuck (nccl #1730). Ranks are ranks of the
communicator.
Source: https://github.com/NVIDIA/nccl/blob/master/src/ras/client_support.cc

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, '''  Missing communicator data from 1 rank
...   Rank 21 -- GPU 5 managed by process 4105 on node 10.51.0.8
... ''')
>>> fact.named_ranks, fact.peer, fact.pid, fact.device, fact.detail
((21,), '10.51.0.8', 4105, '5', 'incomplete: no answer')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, LogSign, Sign
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    continuation,
    cut,
    make_sign,
    parse_ranks,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_PROCESS = re.compile(
    r"Process (?P<pid>\d{1,10}) on node (?P<node>\S{1,253}) managing GPUs? (?P<gpu>[\d,]{1,64})"
)
_RANK = re.compile(
    r"Rank (?P<rank>\d{1,7})(?P<what>[^\n]{0,80}?) -- (?:GPU (?P<gpu>\d{1,4})(?: \(NVML \d{1,4}\))? "
    r"managed by process (?P<pid>\d{1,10}) on node (?P<node>\S{1,253})|\[process information not found\])"
)
_MISSING = re.compile(r"[Tt]he missing ranks?: (?P<ranks>[\d, -]{1,4000})")
_SET = re.compile(
    r"(?P<count>\d{1,7}) ranks have (?P<what>launched up to operation \d{1,20}|not launched any operations|"
    r"status \w{1,20})"
)
_REPORTED = re.compile(r"reported (?P<error>[A-Z][A-Za-z ]{1,60}?) --")
_OBJECT = re.compile(r"\{[^{}]{0,2000}(?:\{[^{}]{0,500}\})?[^{}]{0,500}\}")
_FIELD = re.compile(
    r'"(?P<name>\w{1,40})"\s{0,9}:\s{0,9}(?P<value>"[^"]{0,253}"|-?\d{1,10}|true|false)'
)
_LIST_LIMIT = 64
_JSON_LINES = 12 * _LIST_LIMIT
_KINDS = {
    "Unhandled CUDA error": "cuda",
    "System error": "system",
    "Internal error": "internal",
} | {
    "Invalid argument": "usage",
    "Invalid usage": "usage",
    "Remote process error": "remote",
}


def _listed(line: LogLine, following: Following, detail: str) -> Iterator[LogSign]:
    """The processes or ranks under a heading, up to the blank line that ends it."""
    count = 0
    for row in continuation(line, following, _LIST_LIMIT):
        process, rank = _PROCESS.search(row.text), _RANK.search(row.text)
        found = process if process is not None else rank
        if found is None:
            if not row.text.strip():
                break
            continue
        count += 1
        yield make_sign(
            Sign.RAS_MISSING,
            row,
            named_ranks=(int(rank["rank"]),) if rank is not None else (),
            ranks_are_group_local=True,
            peer=found["node"],
            pid=int(found["pid"]) if found["pid"] is not None else None,
            device=found["gpu"],
            detail=detail,
        )
    if not count:
        yield make_sign(Sign.RAS_MISSING, line, detail=f"{detail}: {line.text}")


def _incomplete(line: LogLine, following: Following) -> Iterator[Fact]:
    return _listed(line, following, "incomplete: no answer")


def _dead(line: LogLine, following: Following) -> Iterator[Fact]:
    return _listed(line, following, "dead: considered dead")


def _missing(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _MISSING.search(line.text)
    if found is not None:
        yield make_sign(
            Sign.RAS_MISSING,
            line,
            named_ranks=parse_ranks(found["ranks"]),
            ranks_are_group_local=True,
            detail="incomplete: missing rank",
        )


def _different(line: LogLine, following: Following) -> Iterator[Fact]:
    """Ranks whose status or counts differ: weak, and only the smaller set is listed."""
    said, heading = "", cut(line.text, 80)
    for row in continuation(line, following, _LIST_LIMIT):
        if not row.text.strip():
            return
        group, rank = _SET.search(row.text), _RANK.search(row.text)
        if group is not None:
            said = group["what"]
        if rank is not None:
            what = rank["what"].strip().removeprefix("has ") or said
            yield make_sign(
                Sign.RAS_MISSING,
                row,
                named_ranks=(int(rank["rank"]),),
                ranks_are_group_local=True,
                peer=rank["node"],
                pid=int(rank["pid"]) if rank["pid"] is not None else None,
                device=rank["gpu"],
                detail=f"weak: {heading}: {what}",
            )


def _reported(line: LogLine, following: Following) -> Iterator[Fact]:
    found, rank = _REPORTED.search(line.text), _RANK.search(line.text)
    if found is not None and rank is not None:
        yield make_sign(
            Sign.ASYNC_ERROR,
            line,
            named_ranks=(int(rank["rank"]),),
            ranks_are_group_local=True,
            peer=rank["node"],
            pid=int(rank["pid"]) if rank["pid"] is not None else None,
            device=rank["gpu"],
            detail=f"{_KINDS.get(found['error'], 'unknown')}: RAS: {found['error']}",
        )


def _json(line: LogLine, following: Following) -> Iterator[Fact]:
    """Members of `missing_ranks`, whether the document stands on one line or on many."""
    text = line.text.partition('"missing_ranks"')[2]
    if '"missing_ranks"' not in line.text:
        return
    if "]" not in text:
        rows = [row.text for row in continuation(line, following, _JSON_LINES)]
        text = "\n".join((text, *rows))
    for found in _OBJECT.finditer(text.partition("]")[0]):
        fields = {f["name"]: f["value"].strip('"') for f in _FIELD.finditer(found.group())}
        if not fields.get("rank", "").isdigit():
            continue
        pid = fields.get("pid", "")
        is_dead = fields.get("considered_dead") == "true"
        is_silent = is_dead or fields.get("unresponsive") == "true"
        yield make_sign(
            Sign.RAS_MISSING,
            line,
            named_ranks=(int(fields["rank"]),),
            ranks_are_group_local=True,
            peer=fields.get("host"),
            pid=int(pid) if pid.isdigit() else None,
            device=fields.get("cuda_dev"),
            detail="dead: considered dead"
            if is_dead
            else "incomplete: no answer"
            if is_silent
            else "weak: not in this communicator",
        )


_RULES: tuple[Rule, ...] = (
    (("Missing communicator data from",), _incomplete),
    (("process is considered dead", "processes are considered dead"), _dead),
    (("he missing rank",), _missing),
    (("Communicator ranks have different",), _different),
    (tuple(f"reported {words}" for words in _KINDS), _reported),
    (("missing_ranks",), _json),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Processes and ranks that RAS misses, and errors it repeats."""
    return by_literal(_RULES, line, following)
