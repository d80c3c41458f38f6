"""Dump signals and the heartbeat monitor of `ProcessGroupNCCL.cpp` (torch 2.2 to 2.10).

A dump signal "from this local rank" means that this rank's own watchdog fired (a witness); one from
another rank means that this process lives and saw no timeout (a weak suspect, the first observer
named). The numbers in them belong to the default group. A watchdog that is stuck is a suspect only
as the first line of an incident: after a timeout or after training it is teardown.
Templates: https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> sign, status = read(recognise, "[PG ID 0 PG GUID 0(default_pg) Rank 5] Received a dump signal "
...     "due to a collective timeout from  rank 6 and we will try our best to dump the debug info. "
...     "Last enqueued NCCL work: 13, last completed NCCL work: 13.This is most likely caused by")
>>> sign.sign.value, sign.named_ranks, status.last_completed
('dump-signal-other', (6,), 13)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpufleet_cli.facts import Fact, GroupRef, GroupStatus, Sign
from gpufleet_cli.parsers.lines.groups import parse_group, parse_group_rank
from gpufleet_cli.parsers.lines.signs import Handler, Rule, by_literal, make_sign, patterns_of
from gpufleet_cli.parsers.lines.watchdog import status_counts
from gpufleet_cli.parsers.log_line import Following, LogLine

_SIGNAL = re.compile(
    r"Received a (?:global )?(?:dump|timeout)(?: signal)?(?: due to a collective timeout)? from "
    r"(?:(?P<own>this local rank)|another rank| {0,2}rank (?P<from>-?\d{1,7}))"
)
_COUNTS = re.compile(
    r"[Ll]ast enqueued (?:\w{3,5} )?work: (?P<enq>-?\d{1,20}), "
    r"last completed (?:\w{3,5} )?work: (?P<comp>-?\d{1,20})"
)
_STUCK = re.compile(r"got stuck for (?P<seconds>\d{1,7}) seconds")
_WORKS = re.compile(r"workMetaList_\.size\(\)=(?P<count>\d{1,9})")
_REMOTE = re.compile(r"remote error detected from rank: (?P<rank>\d{1,7})")


def _group(line: LogLine) -> GroupRef | None:
    named = parse_group(line.text)
    return named[0] if named is not None else None


def _signal(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _SIGNAL.search(line.text)
    if found is None:
        return
    first = found["from"]
    yield make_sign(
        Sign.DUMP_SIGNAL_OWN if found["own"] else Sign.DUMP_SIGNAL_OTHER,
        line,
        group=_group(line),
        named_ranks=(int(first),) if first is not None and int(first) >= 0 else (),
        detail="own watchdog" if found["own"] else f"first observer: {first or 'not named'}",
    )
    counts = _COUNTS.search(line.text)
    if counts is not None:
        enqueued, completed = status_counts(counts["enq"], counts["comp"])
        yield GroupStatus(
            speaker=line.speaker,
            at_ns=line.at_ns,
            group=_group(line),
            group_rank=parse_group_rank(line.text),
            work=None,
            last_enqueued=enqueued,
            last_completed=completed,
            from_signal=True,
            origin=line.origin,
        )


def _plain(sign: Sign, detail: str) -> Handler:
    def handler(line: LogLine, following: Following) -> Iterator[Fact]:
        yield make_sign(sign, line, group=_group(line), detail=detail)

    return handler


def _stuck(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _STUCK.search(line.text)
    yield make_sign(
        Sign.WATCHDOG_STUCK,
        line,
        group=_group(line),
        value=float(found["seconds"]) if found is not None else None,
        detail="watchdog made no progress",
    )


def _heartbeat(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _WORKS.search(line.text)
    works = f"; {found['count']} works in flight" if found is not None else ""
    yield make_sign(
        Sign.WATCHDOG_STUCK, line, group=_group(line), detail=f"no heartbeat of the watchdog{works}"
    )


def _remote(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _REMOTE.search(line.text)
    if found is not None:
        yield make_sign(
            Sign.REMOTE_ERROR,
            line,
            group=_group(line),
            named_ranks=(int(found["rank"]),),
            ranks_are_group_local=True,
            detail="first saw an error",
        )


_RULES: tuple[Rule, ...] = (
    (
        (
            "Received a dump signal",
            "Received a timeout signal",
            "Received a global dump signal",
            "Received a global timeout",
        ),
        _signal,
    ),
    (
        ("Observed flight recorder dump signal from another rank",),
        _plain(Sign.DUMP_SIGNAL_OTHER, "seen in the store"),
    ),
    (
        (
            "Broadcasting flight-recorder dump signal",
            "Broadcasting signal to other processes",
            "First PG on this rank to signal dumping",
        ),
        _plain(Sign.DUMP_SIGNAL_OWN, "tells the others"),
    ),
    (("watchdog got stuck for",), _stuck),
    (
        (
            "Heartbeat monitor timed out",
            "First PG on this rank that detected no heartbeat of its watchdog",
        ),
        _heartbeat,
    ),
    (
        ("possible GIL induced hang", "possible GIL deadlock"),
        _plain(Sign.GIL_HELD, "a python thread holds the GIL"),
    ),
    (
        (
            "on TCPStore, (maybe TCPStore server has shut down too early)",
            "Failed to get exception dump flag from the global store",
        ),
        _plain(Sign.STORE_LOST, "dump flag"),
    ),
    (("remote error detected from rank",), _remote),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Dump signals, stuck watchdogs, a held GIL, a lost store."""
    return by_literal(_RULES, line, following)
