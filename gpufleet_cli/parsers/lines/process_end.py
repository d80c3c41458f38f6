"""Processes that died of a signal or of host memory, as they or their shell say it; data loader workers.

A data loader's worker killed by SIGBUS usually ran out of /dev/shm, one that was killed out of host
memory; P is the worker's pid, its parent is the rank. "Killed" alone is a SIGKILL of unknown cause.
"Fatal Python error: Aborted" mostly follows a watchdog's abort.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "RuntimeError: DataLoader worker (pid 2291) is killed by signal: Bus error. It is "
...     "possible that dataloader's workers are out of shared memory.")
>>> fact.sign.value, fact.pid, fact.detail
('loader-killed', 2291, 'Bus error')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    fixed,
    make_sign,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_LOADER = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? (?P<pid>\d{1,10})[\d, ]{0,400}\) "
    r"(?:is killed by signal: (?P<signal>[A-Za-z][\w -]{1,40})|(?P<exited>exited unexpectedly))"
)
_FATAL_PYTHON = re.compile(r"Fatal Python error: (?P<what>[^\n]{1,120})")
_KILLED = re.compile(
    r"(?:[\w./-]{1,200}: line \d{1,7}: {0,8})?(?:\d{1,10} )?(?P<what>Killed|Segmentation fault|Bus error|Aborted)"
    r"(?: \(core dumped\))?(?: {2,}\S[^\n]{0,800})?\s{0,4}"
)
_STAR_SIGNAL = re.compile(r"\*\*\* (?P<what>SIG[A-Z]{2,8}) received at time")
_MPI_SIGNAL = re.compile(r"Signal: (?P<what>[A-Z][A-Za-z ]{2,40}) \(\d{1,2}\)")
_UCX_SIGNAL = re.compile(r"Caught signal \d{1,2} \((?P<what>[^:)\n]{1,60})")
_HOST_MEMORY = re.compile(r"(?<![A-Za-z])(?:_?Array)?MemoryError\b")
_CODES = {"Killed": -9, "Segmentation fault": -11, "Bus error": -7, "Aborted": -6}
_NAMES = {"SIGKILL": -9, "SIGSEGV": -11, "SIGBUS": -7, "SIGABRT": -6, "SIGFPE": -8, "SIGILL": -4}


def _loader(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _LOADER.search(line.text)
    if found is not None:
        yield make_sign(
            Sign.LOADER_KILLED,
            line,
            pid=int(found["pid"]),
            detail=found["signal"] or found["exited"],
        )


def _fatal_python(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _FATAL_PYTHON.search(line.text)
    if found is not None:
        code = _CODES.get(found["what"].strip())
        yield make_sign(Sign.FATAL_SIGNAL, line, exit_code=code, detail=found["what"])


def _killed(line: LogLine, following: Following) -> Iterator[Fact]:
    """A shell's words for a child that a signal ended: the whole line, or nothing."""
    found = _KILLED.fullmatch(line.text[:1400])
    if found is not None:
        what = found["what"]
        yield make_sign(Sign.FATAL_SIGNAL, line, exit_code=_CODES[what], detail=what)


def _signal(line: LogLine, following: Following) -> Iterator[Fact]:
    for pattern in (_STAR_SIGNAL, _MPI_SIGNAL, _UCX_SIGNAL):
        found = pattern.search(line.text)
        if found is not None:
            what = found["what"].strip()
            code = _CODES.get(what, _NAMES.get(what))
            yield make_sign(Sign.FATAL_SIGNAL, line, exit_code=code, detail=what)
            return


def _host_memory(line: LogLine, following: Following) -> Iterator[Fact]:
    """Host memory that was refused, never a GPU's."""
    if "MemoryError" not in line.text or _HOST_MEMORY.search(line.text) is not None:
        yield make_sign(Sign.HOST_OOM, line, detail="allocation refused")


_RULES: tuple[Rule, ...] = (
    (("DataLoader worker (pid",), _loader),
    (
        ("Unexpected bus error encountered in worker",),
        fixed(Sign.LOADER_KILLED, "Bus error"),
    ),
    (
        ("Pin memory thread exited unexpectedly",),
        fixed(Sign.LOADER_KILLED, "pin memory thread ended"),
    ),
    (("Fatal Python error: ",), _fatal_python),
    (("Killed", "Segmentation fault", "Bus error", "Aborted"), _killed),
    (("received at time=", "Signal: ", "Caught signal "), _signal),
    (
        (
            "Segfault encountered",
            "SIGSEGV (Segmentation violation)",
        ),
        fixed(Sign.FATAL_SIGNAL, "Segmentation fault"),
    ),
    (
        (
            "MemoryError",
            "[Errno 12] Cannot allocate memory",
            "DefaultCPUAllocator: can't allocate memory",
            "DefaultCPUAllocator: not enough memory",
        ),
        _host_memory,
    ),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Ends of processes and of data loader workers."""
    return by_literal(_RULES, line, following)
