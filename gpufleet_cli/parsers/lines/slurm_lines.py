"""Slurm's own words inside a job's output: srun and slurmstepd.

A time limit or a preemption is no fault of anybody. `Node failure on H` names the node. `task N` is the
number that `srun --label` prints: it becomes the speaker's `task` (with its host), so that the map of
tasks to ranks decides which rank it was. `tasks 0-3,7` are as many facts. Exit codes below zero are signals.
Words: https://github.com/SchedMD/slurm/tree/master/src/srun and src/slurmd/slurmstepd

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "srun: error: gpu-c07: task 12: Exited with exit code 1")
>>> fact.sign.value, fact.speaker.task, fact.peer, fact.exit_code
('task-exit', 12, 'gpu-c07', 1)
>>> fact, = read(recognise, "slurmstepd: error: *** STEP 9.0 ON gpu-c01 CANCELLED AT 2025-03-03T10:00:00 "
...     "DUE TO TIME LIMIT ***")
>>> fact.sign.value, fact.detail
('job-cancelled', 'time-limit: STEP 9.0 on gpu-c01')
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    fixed,
    make_sign,
    parse_ranks,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_CANCELLED = re.compile(
    r"\*\*\* (?P<what>JOB|STEP) (?P<id>[\w.+-]{1,40}) ON (?P<host>\S{1,253}) CANCELLED AT (?P<at>\S{1,40})"
    r"(?P<why>[^\n]{0,160}?)(?: \*\*\*|$)"
)
_TASK = re.compile(
    r"srun: error: (?P<host>[\w.-]{1,253}): tasks? (?P<tasks>\d{1,7}(?:[,-]\d{1,7}){0,2000}): "
    r"(?P<how>Exited with exit code (?P<code>\d{1,3})|[A-Z][\w ]{2,60}(?: \(core dumped\))?)"
)
_NODE = re.compile(r"[Nn]ode failure on (?P<host>[\w.,\[\]-]{1,500})")
_OOM = re.compile(
    r"Detected (?P<count>\d{1,7}) oom[_-]kill events? ?(?:\(s\) )?in (?P<step>[Ss]tep\S{1,60})"
)
_TASK_LIMIT = 1024
_REASONS = (
    ("TIME LIMIT", "time-limit"),
    ("NODE FAILURE", "node-failure"),
    ("PREEMPTION", "preemption"),
    ("JOB REQUEUE", "requeue"),
    ("SIGNAL", "signal"),
    ("task failure", "task-failure"),
)
_SIGNALS = {
    "Killed": -9,
    "Terminated": -15,
    "Segmentation fault": -11,
    "Bus error": -7,
    "Aborted": -6,
    "Interrupt": -2,
    "Hangup": -1,
    "Floating point exception": -8,
    "Illegal instruction": -4,
}


def _cancelled(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _CANCELLED.search(line.text)
    if found is None:
        return
    words = found["why"]
    reason = next((name for mark, name in _REASONS if mark.lower() in words.lower()), "cancelled")
    yield make_sign(
        Sign.JOB_CANCELLED,
        line,
        detail=f"{reason}: {found['what']} {found['id']} on {found['host']}",
    )


def _task(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _TASK.search(line.text)
    if found is None:
        return
    how = found["how"].partition("(core dumped)")[0].strip()
    code = int(found["code"]) if found["code"] is not None else _SIGNALS.get(how)
    is_memory = how == "Out Of Memory"
    for task in parse_ranks(found["tasks"])[:_TASK_LIMIT]:
        speaker = replace(line.speaker, task=task, host=found["host"])
        for sign in (Sign.TASK_EXIT, Sign.HOST_OOM) if is_memory else (Sign.TASK_EXIT,):
            yield make_sign(
                sign, line, speaker=speaker, peer=found["host"], exit_code=code, detail=how
            )


def _node(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _NODE.search(line.text)
    if found is not None:
        yield make_sign(Sign.NODE_FAILED, line, peer=found["host"], detail="slurm: node failure")


def _oom(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _OOM.search(line.text)
    count = (
        f"{found['count']} oom kills in {found['step']}" if found is not None else "memory limit"
    )
    yield make_sign(Sign.HOST_OOM, line, detail=f"slurm: {count}")


_RULES: tuple[Rule, ...] = (
    ((" CANCELLED AT ",), _cancelled),
    (("srun: error: ",), _task),
    (("ode failure on ",), _node),
    (
        (
            "oom_kill event",
            "oom-kill event",
            "Exceeded job memory limit",
            "exceeded memory limit",
        ),
        _oom,
    ),
    (
        (
            "srun: Job step aborted",
            "srun: Terminating ",
            "srun: First task exited",
            "srun: Force Terminated",
            " FAILED (non-zero exit code",
        ),
        fixed(Sign.ABORT, "slurm: ends the step's other tasks"),
    ),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Cancelled steps, tasks that exited, failed nodes, memory kills."""
    return by_literal(_RULES, line, following)
