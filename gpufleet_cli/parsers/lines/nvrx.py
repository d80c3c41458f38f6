"""NVIDIA Resiliency Extension: in-process restart, and the rank monitor of its fault tolerance.

`rank=N` in a message is the rank of the current cycle, while the logger's bracket holds the one at set-up.
`fn_ex` is an own failure, or an abort that was received (RankShouldRestart: an effect). `exit_ex` leaves for
good. `starting iteration=K rank=R world_size=W` begins cycle K. A hot spare has no rank and is not missing.
Source: https://github.com/NVIDIA/nvidia-resiliency-ext (inprocess/wrap.py, monitor_process.py)

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "aborting: Interruption.EXCEPTION on ranks=[5, 7]")
>>> fact.sign.value, fact.named_ranks, fact.detail
('nvrx-abort', (5, 7), 'EXCEPTION')
>>> sign, link = read(recognise, "starting iteration=2 rank=5 world_size=16")
>>> link.rank, link.cycle, sign.expected
(5, 2, 16)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpufleet_cli.facts import Fact, IdentityLink, Link, Sign
from gpufleet_cli.parsers.lines.effects import mark_effect
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    fixed,
    make_sign,
    parse_ranks,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_INTERRUPTED = re.compile(
    r"Interruption\.(?P<kind>[A-Z_]{1,40}) on ranks=\[(?P<ranks>[\d, ]{0,4000})\]"
)
_EXCEPTION = re.compile(r"\brank=(?P<rank>\d{1,7}) (?P<name>\w{1,20}_ex): (?P<what>[^\n]{0,600})")
_CYCLE = re.compile(
    r"starting iteration=(?P<cycle>\d{1,6}) rank=(?P<rank>\d{1,7}) world_size=(?P<world>\d{1,7})"
)
_HEARTBEAT = re.compile(r"Waited (?P<seconds>\d{1,7}(?:\.\d{1,3})?) seconds")
_SECTION = re.compile(
    r"(?:Section '(?P<name>[^'\n]{1,80})' has been open|Was out of section) for (?P<seconds>\d{1,7}(?:\.\d{1,3})?)"
)


def _interrupted(line: LogLine, following: Following) -> Iterator[Fact]:
    for found in _INTERRUPTED.finditer(line.text):
        yield make_sign(
            Sign.NVRX_ABORT,
            line,
            named_ranks=parse_ranks(found["ranks"]),
            detail=found["kind"],
        )


def _exception(line: LogLine, following: Following) -> Iterator[Fact]:
    """An exception of the wrapper, by the name of the place that caught it."""
    found = _EXCEPTION.search(line.text)
    if found is None:
        return
    name, what = found["name"], found["what"]
    speaker = replace(line.speaker, rank=int(found["rank"]))
    if name in ("restart_ex", "async_ex"):
        return
    if name in ("fn_ex", "init_ex", "other_ex"):
        kind, _, message = what.partition("(")
        marked = mark_effect(f"{kind}: {message.removesuffix(')')}")
        yield make_sign(Sign.PYTHON_EXCEPTION, line, speaker=speaker, detail=f"{marked} ({name})")
    elif name == "term_ex":
        yield make_sign(Sign.ABORT, line, speaker=speaker, detail=f"nvrx: {name}: {what}")
    else:
        leaves = "leaves for good: " if name == "exit_ex" else ""
        yield make_sign(
            Sign.OTHER_CAUSE, line, speaker=speaker, detail=f"nvrx: {leaves}{name}: {what}"
        )


def _cycle(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _CYCLE.search(line.text)
    if found is None:
        return
    rank, cycle, world = int(found["rank"]), int(found["cycle"]), int(found["world"])
    yield make_sign(
        Sign.RENDEZVOUS_DONE,
        line,
        speaker=replace(line.speaker, cycle=cycle),
        expected=world,
        detail=f"nvrx cycle {cycle}",
    )
    speaker = line.speaker
    yield IdentityLink(
        how=Link.LOG,
        origin=line.origin,
        rank=rank,
        rank_in=world,
        cycle=cycle,
        pod=speaker.pod,
        pod_uid=speaker.pod_uid,
        container=speaker.container,
        namespace=speaker.namespace,
        node=speaker.node,
        host=speaker.host,
        pid=speaker.pid,
        local_rank=speaker.local_rank,
        attempt=speaker.attempt,
    )


def _monitor(line: LogLine, following: Following) -> Iterator[Fact]:
    heartbeat, section = _HEARTBEAT.search(line.text), _SECTION.search(line.text)
    found = heartbeat if heartbeat is not None else section
    what = "no heartbeat" if heartbeat is not None else "section open too long"
    yield make_sign(
        Sign.OTHER_CAUSE,
        line,
        value=float(found["seconds"]) if found is not None else None,
        detail=f"nvrx rank monitor: {what}",
    )


_RULES: tuple[Rule, ...] = (
    (("Interruption.",), _interrupted),
    (("_ex: ",), _exception),
    (("starting iteration=",), _cycle),
    (("target process is terminated",), fixed(Sign.TASK_EXIT, "nvrx monitor: process is gone")),
    (
        (
            "Did not get initial heartbeat",
            "Did not get subsequent heartbeat",
            " has been open for ",
            "Was out of section for ",
        ),
        _monitor,
    ),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Interruptions, exceptions and cycles of an in-process restart."""
    return by_literal(_RULES, line, following)
