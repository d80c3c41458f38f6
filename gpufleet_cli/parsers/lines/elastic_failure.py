"""The failure report of torchrun: its block of failed children, and the error file of one child.

    Root Cause (first observed failure):
    [0]:
      time      : 2026-11-29_14:40:05
      host      : gpu-node-1621
      rank      : 6 (local_rank: 2)
      exitcode  : -9 (pid: 16713)  (SIGKILL)
      error_file: <N/A>
      traceback : Signal 9 (SIGKILL) received by PID 16713

One block per node; its root cause is the first process to exit there. `time` has no zone: where the
line has a time, the block's time is taken in the zone that brings it nearest before it, else as UTC.
With -6 it is a watchdog's abort, so a witness. The list `Failures:` has the children that came later: those
with -15 or -9 were ended by the agent, and the code of the others stands only in `detail`, since an exit
after the first may be its consequence.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> sign, link = read(recognise, '''Root Cause (first observed failure):
... [0]:
...   time      : 2026-11-29_14:40:05
...   host      : gpu-node-1621
...   rank      : 6 (local_rank: 2)
...   exitcode  : -9 (pid: 16713)  (SIGKILL)''')
>>> sign.named_ranks, sign.exit_code, sign.pid, sign.peer, sign.detail
((6,), -9, 16713, 'gpu-node-1621', 'SIGKILL; time 2026-11-29_14:40:05')
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.effects import mark_effect
from gpufleet_cli.parsers.lines.elastic_agent import agent_link, signal_name
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    continuation,
    make_sign,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_ROW = re.compile(
    r"\s{0,8}(?P<name>time|host|rank|exitcode|error_file|traceback|msg) {0,12}: ?(?P<value>[^\n]{0,1000})"
)
_RANK = re.compile(r"(?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,5})\)")
_EXIT = re.compile(
    r"(?P<code>-?\d{1,5}) \(pid: (?P<pid>\d{1,10})\)(?: {0,4}\((?P<signal>SIG\w{1,12})\))?"
)
_ITEM = re.compile(r"\s{0,4}\[\d{1,6}\]:\s{0,4}")
_TIME = "%Y-%m-%d_%H:%M:%S"
_ZONE_STEP_NS = 900 * 10**9
_ENDED_BY_AGENT = (-15, -9)
_BLOCK_LINES = 24
_LIST_LINES = 4096
_PY_MESSAGE = re.compile(
    r'"message"\s{0,4}:\s{0,4}\{\s{0,4}"message"\s{0,4}:\s{0,4}"(?P<message>(?:[^"\\]|\\.){0,600})'
)


def _root_cause(line: LogLine, following: Following) -> Iterator[Fact]:
    for block in _blocks(line, following, _BLOCK_LINES):
        yield from _failure(line, block, is_root=True)
        return


def _failures(line: LogLine, following: Following) -> Iterator[Fact]:
    """The other children that failed on this node, which is never the first one."""
    for block in _blocks(line, following, _LIST_LINES):
        yield from _failure(line, block, is_root=False)


def _blocks(line: LogLine, following: Following, limit: int) -> Iterator[dict[str, str]]:
    """The rows of each `[N]:` item, up to the line that ends the list."""
    block: dict[str, str] = {}
    for row in continuation(line, following, limit):
        text = row.text.rstrip()
        if text.startswith(("------", "======", "Root Cause", "Failures:")):
            break
        if _ITEM.fullmatch(text):
            if block:
                yield block
            block = {}
            continue
        found = _ROW.match(text)
        if found is not None:
            block.setdefault(found["name"], found["value"].strip())
        elif "traceback" in block and text.strip():
            block["error"] = text.strip()
    if block:
        yield block


def _failure(line: LogLine, block: Mapping[str, str], *, is_root: bool) -> Iterator[Fact]:
    rank, exit_ = _RANK.match(block.get("rank", "")), _EXIT.match(block.get("exitcode", ""))
    if rank is None or exit_ is None:
        return
    code = int(exit_["code"])
    how = exit_["signal"] or signal_name(code) or f"exit code {code}"
    time = block.get("time", "")
    traceback = block.get("error") or block.get("traceback", "")
    words = [how, f"time {time}"] if time else [how]
    if traceback and not traceback.startswith(("To enable traceback", "Signal ")):
        words.append(traceback)
    sign = Sign.ROOT_CAUSE_BLOCK if is_root else Sign.TASK_EXIT
    if not is_root and code in _ENDED_BY_AGENT:
        sign = Sign.CHILD_SIGTERM
    host = block.get("host") or None
    yield make_sign(
        sign,
        line,
        at_ns=observed_ns(time, line.at_ns),
        named_ranks=(int(rank["rank"]),),
        local_rank=int(rank["local"]),
        exit_code=None if sign is Sign.TASK_EXIT else code,
        pid=int(exit_["pid"]),
        peer=host,
        detail=("later: " if sign is Sign.TASK_EXIT else "") + "; ".join(words),
    )
    yield agent_link(
        line,
        rank=int(rank["rank"]),
        local_rank=int(rank["local"]),
        pid=int(exit_["pid"]),
        host=host,
    )


def observed_ns(time: str, line_ns: int | None) -> int | None:
    """When the agent saw the failure, in the line's own zone; the line's time where that is unclear.

    >>> observed_ns("1970-01-01_01:00:05", 9 * 10**9) // 10**9
    5
    """
    try:
        stated = datetime.strptime(time, _TIME).replace(tzinfo=UTC)
    except ValueError:
        return line_ns
    stated_ns = int(stated.timestamp()) * 10**9
    if line_ns is None:
        return stated_ns
    zone_ns = (line_ns - stated_ns) // _ZONE_STEP_NS * _ZONE_STEP_NS
    is_zone = abs(zone_ns) <= 14 * 4 * _ZONE_STEP_NS
    return stated_ns + zone_ns if is_zone else line_ns


def _error_file(line: LogLine, following: Following) -> Iterator[Fact]:
    """torchrun's error.json: one JSON document with the exception that ended one rank."""
    found = _PY_MESSAGE.search(line.text)
    if found is not None:
        message = found["message"].replace('\\"', '"').split("\\n")[0]
        detail = mark_effect(f"{message} (error file)")
        yield make_sign(Sign.PYTHON_EXCEPTION, line, detail=detail)


_RULES: tuple[Rule, ...] = (
    (("Root Cause (first observed failure)", "Root Cause:"), _root_cause),
    (("Failures:",), _failures),
    (("py_callstack",), _error_file),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Children that failed, as the agent's report lists them."""
    return by_literal(_RULES, line, following)
