"""Every error that gpufleet expects, and the exit status of each.

GpufleetError(message, *, hint=None)   one line and one hint on stderr, no traceback
├── UsageError       the question cannot be asked this way            exit 2
├── TargetError      no such target, not readable, unsafe             exit 4
├── SourceError      cannot reach, not allowed, timed out             a Gap; exit 4 if nothing was had
├── ParseError       this file is not what it seemed                  a Gap
│   └── Fault        a bug of ours cost this file                     a Gap; raised when strict
└── Refused          a guard said no, and why                         exit 5
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit status of every command; the contract of `--help` and the README."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    UNDECIDABLE = 3
    UNREADABLE = 4
    REFUSED = 5
    FIX_OR_WATCH = 10
    RESTART_JOB = 20
    CORDON_AT_CHECKPOINT = 21
    EVICT_NOW = 22
    INTERRUPTED = 130


class GpufleetError(Exception):
    """An error that a user can act on. `hint` says how."""

    exit_code = ExitCode.INTERNAL

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(GpufleetError):
    """The question cannot be asked this way."""

    exit_code = ExitCode.USAGE


class TargetError(GpufleetError):
    """The target does not exist, cannot be read, or is not safe to read."""

    exit_code = ExitCode.UNREADABLE


class SourceError(GpufleetError):
    """A source cannot be reached, does not let us in, or did not answer in time."""

    exit_code = ExitCode.UNREADABLE


class ParseError(GpufleetError):
    """A file is not what its name or its first bytes promised; becomes a Gap."""

    exit_code = ExitCode.UNREADABLE


class Fault(ParseError):
    """A bug of ours in a process of its own, told as the reason why one file has no facts."""


class Refused(GpufleetError):
    """A guard refused the action; the message says why."""

    exit_code = ExitCode.REFUSED
