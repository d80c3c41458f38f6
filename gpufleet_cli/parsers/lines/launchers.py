"""Other launchers: DeepSpeed's, mpirun, and frameworks that were told to stop.

torch.multiprocessing.spawn names a process by its index, which is the local rank. DeepSpeed's launcher names the local rank inside the command line that it prints; it then kills the other
children of its node, which are innocent. mpirun's "process rank" is the number of the MPI task.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "[2025-06-26 16:48:29,100] [ERROR] [launch.py:325:sigkill_handler] "
...     "['/opt/conda/bin/python', '-u', 'train.py', '--local_rank=3'] exits with return code = -9")
>>> fact.sign.value, fact.exit_code, fact.local_rank, fact.detail
('child-failed', -9, 3, 'SIGKILL')
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.elastic_agent import signal_name, signal_number
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    fixed,
    make_sign,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_KILLING = re.compile(r"Killing subprocess (?P<pid>\d{1,10})")
_EXITS = re.compile(r"exits with return code = (?P<code>-?\d{1,5})")
_LOCAL = re.compile(r"--local[_-]rank[= '\",]{1,6}(?P<local>\d{1,5})")
_SUCCESS = re.compile(r"Process (?P<pid>\d{1,10}) exits successfully")
_SPAWNED = re.compile(
    r"[Pp]rocess (?P<index>\d{1,5}) terminated with (?:signal (?P<signal>SIG[A-Z]{2,8})"
    r"|exit code (?P<code>\d{1,3})|the following error)"
)
_MPI = re.compile(
    r"process rank (?P<rank>\d{1,7}) with PID (?P<pid>\d{1,10}) on node (?P<node>\S{1,253}) exited on "
    r"signal (?P<signal>\d{1,3})"
)


def _killing(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _KILLING.search(line.text)
    if found is not None:
        yield make_sign(
            Sign.CHILD_SIGTERM, line, pid=int(found["pid"]), detail="killed by the launcher"
        )


def _exits(line: LogLine, following: Following) -> Iterator[Fact]:
    found, local = _EXITS.search(line.text), _LOCAL.search(line.text)
    if found is not None:
        code = int(found["code"])
        yield make_sign(
            Sign.CHILD_FAILED,
            line,
            exit_code=code,
            local_rank=int(local["local"]) if local is not None else None,
            detail=signal_name(code) or f"exit code {code}",
        )


def _spawned(line: LogLine, following: Following) -> Iterator[Fact]:
    """torch.multiprocessing.spawn: the index of a process is its local rank."""
    found = _SPAWNED.search(line.text)
    if found is None:
        return
    code = int(found["code"]) if found["code"] is not None else 1
    if found["signal"] is not None:
        code = -signal_number(found["signal"])
    yield make_sign(
        Sign.CHILD_FAILED,
        line,
        exit_code=code if code else None,
        local_rank=int(found["index"]),
        detail=found["signal"] or ("exception" if found["code"] is None else f"exit code {code}"),
    )


def _success(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _SUCCESS.search(line.text)
    if found is not None:
        yield make_sign(
            Sign.FINISHED, line, pid=int(found["pid"]), exit_code=0, detail="launcher: child ended"
        )


def _mpi(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _MPI.search(line.text)
    if found is not None:
        code = -int(found["signal"])
        yield make_sign(
            Sign.TASK_EXIT,
            line,
            speaker=replace(line.speaker, task=int(found["rank"])),
            peer=found["node"],
            exit_code=code,
            detail=f"mpirun: {signal_name(code) or 'signal'}",
        )


_RULES: tuple[Rule, ...] = (
    (("Killing subprocess ",), _killing),
    (("exits with return code = ",), _exits),
    ((" exits successfully",), _success),
    (
        (
            "terminated with signal ",
            "terminated with exit code ",
            "terminated with the following error",
        ),
        _spawned,
    ),
    (("mpirun noticed that process rank", "exited on signal "), _mpi),
    (
        (
            "Main process received SIGTERM",
            "Main process received SIGINT",
            "exiting program after receiving SIGTERM",
            "Received SIGTERM: 15",
            "received signal SIGTERM",
            "Received SIGTERM",
            "Caught SIGTERM",
            "eceived termination signal",
            "eceived signal 15",
        ),
        fixed(Sign.AGENT_TOLD_TO_STOP, "SIGTERM"),
    ),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Children that a launcher lost or killed, and orders to stop."""
    return by_literal(_RULES, line, following)
