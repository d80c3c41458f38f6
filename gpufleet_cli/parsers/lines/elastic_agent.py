"""The elastic agent of torchrun (torch 1.9 to 2.10): attempts, rank maps, first failures, stop orders.

The prefix differs by version (`WARNING:torch.distributed.elastic...:`, `[2024-01-10 12:00:00,123] ...:
[WARNING]`, `W0325 20:57:27.620000 2606 ...py:897] `), the words do not. The agent names the first child
that failed ON ITS NODE and a root cause that is the first process to EXIT there: with timeouts that is
the first witness to abort. Siblings get SIGTERM and are innocent. Exit codes below zero are signals.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "E1129 14:40:05.842000 16691 torch/distributed/elastic/multiprocessing/api.py:1002] "
...     "failed (exitcode: -9) local_rank: 2 (pid: 16713) of binary: /usr/local/bin/python3")
>>> fact.sign.value, fact.exit_code, fact.local_rank, fact.pid, fact.detail
('child-failed', -9, 2, 16713, 'SIGKILL')
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import replace

from gpufleet_cli.facts import Fact, IdentityLink, Link, Sign, Speaker
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    continuation,
    fixed,
    make_sign,
    parse_ranks,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine

_FAILED = re.compile(
    r"failed \(exitcode: (?P<code>-?\d{1,5})\) local_rank: (?P<local>\d{1,5}) \(pid: (?P<pid>\d{1,10})\)"
)
_CLOSING = re.compile(r"Sending process (?P<pid>\d{1,10}) closing signal (?P<signal>\w{1,20})")
_FORCED = re.compile(
    r"Unable to shutdown process (?P<pid>\d{1,10}) via (?:Signals\.)?(?P<signal>\w{1,20}), forcefully"
)
_STOPPED = re.compile(
    r"Received (?:Signals\.)?(?P<signal>\w{1,20}) death signal"
    r"|Process (?P<pid>\d{1,10}) got signal: (?P<number>\d{1,3})"
)
_FIELD = re.compile(r"\s{0,8}(?P<name>[a-z_]{1,40})=(?P<value>[^\n]{0,20000})")
_REPLY_FILE = re.compile(
    r"Setting worker(?P<local>\d{1,5}) reply file to: \S{0,800}?/attempt_(?P<attempt>\d{1,6})/"
)
_REAPED = re.compile(r"Reaped child process (?P<pid>\d{1,10}) with status (?P<status>-?\d{1,6})")
_TRANSITION = re.compile(r"Transitioned from AgentState\.\w{1,30} to AgentState\.(?P<to>\w{1,30})")
_RENDEZVOUS_LINES = 16


def signal_name(exit_code: int) -> str | None:
    """SIGKILL for -9 and for 137; None for an exit that no signal made.

    >>> signal_name(-11), signal_name(143), signal_name(1)
    ('SIGSEGV', 'SIGTERM', None)
    """
    number = -exit_code if exit_code < 0 else exit_code - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def signal_number(name: str) -> int:
    """9 for SIGKILL; 0 for a name that is no signal's."""
    return int(signal.Signals[name]) if name in signal.Signals.__members__ else 0


def _rendezvous(line: LogLine, following: Following) -> Iterator[Fact]:
    """The block `restart_count=..., global_ranks=[...]`: an attempt begins, and who is who."""
    fields: dict[str, str] = {}
    for row in continuation(line, following, _RENDEZVOUS_LINES):
        found = _FIELD.fullmatch(row.text.rstrip())
        if found is None:
            if fields and row.text.strip():
                break
            continue
        fields.setdefault(found["name"], found["value"])
    attempt = _number(fields.get("restart_count"))
    speaker = line.speaker
    if attempt is not None:
        speaker = replace(speaker, attempt=attempt)
    world = parse_ranks(fields.get("global_world_sizes", ""))
    detail = [
        f"{name}={fields[name]}" for name in ("restart_count", "master_addr") if name in fields
    ]
    yield make_sign(
        Sign.RENDEZVOUS_DONE,
        line,
        speaker=speaker,
        expected=world[0] if world else None,
        named_ranks=parse_ranks(fields.get("global_ranks", "")),
        detail=" ".join(detail) or "rendezvous complete",
    )
    yield from _links(line, fields, attempt)


def _links(line: LogLine, fields: dict[str, str], attempt: int | None) -> Iterator[IdentityLink]:
    global_ranks = parse_ranks(fields.get("global_ranks", ""))
    local_ranks = parse_ranks(fields.get("local_ranks", "")) or tuple(range(len(global_ranks)))
    for rank, local_rank in zip(global_ranks, local_ranks, strict=False):
        yield agent_link(
            line,
            rank=rank,
            local_rank=local_rank,
            node_rank=_number(fields.get("group_rank")),
            attempt=attempt,
        )


def agent_link(
    line: LogLine,
    *,
    rank: int | None = None,
    local_rank: int | None = None,
    node_rank: int | None = None,
    pid: int | None = None,
    host: str | None = None,
    attempt: int | None = None,
) -> IdentityLink:
    """Names that an agent's line ties together, with what is known of the agent's own place."""
    speaker: Speaker = line.speaker
    return IdentityLink(
        how=Link.AGENT,
        origin=line.origin,
        rank=rank,
        local_rank=local_rank,
        node_rank=node_rank,
        pid=pid,
        host=host if host is not None else speaker.host,
        pod=speaker.pod,
        pod_uid=speaker.pod_uid,
        container=speaker.container,
        namespace=speaker.namespace,
        node=speaker.node,
        attempt=attempt if attempt is not None else speaker.attempt,
        cycle=speaker.cycle,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and len(text) < 10 else None


def _failed(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _FAILED.search(line.text)
    if found is not None:
        code = int(found["code"])
        yield make_sign(
            Sign.CHILD_FAILED,
            line,
            exit_code=code,
            local_rank=int(found["local"]),
            pid=int(found["pid"]),
            detail=signal_name(code) or f"exit code {code}",
        )


def _closing(line: LogLine, following: Following) -> Iterator[Fact]:
    closing, forced = _CLOSING.search(line.text), _FORCED.search(line.text)
    found = closing if closing is not None else forced
    if found is not None:
        yield make_sign(
            Sign.CHILD_SIGTERM,
            line,
            pid=int(found["pid"]),
            detail=found["signal"] if closing is not None else "SIGKILL: did not stop when asked",
        )


def _stopped(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _STOPPED.search(line.text)
    if found is None:
        return
    word = found["number"] if found["number"] is not None else found["signal"]
    name = signal_name(-int(word)) if word.isdigit() else word
    yield make_sign(
        Sign.AGENT_TOLD_TO_STOP,
        line,
        pid=int(found["pid"]) if found["pid"] is not None else None,
        detail=name or f"signal {word}",
    )


def _reply_file(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _REPLY_FILE.search(line.text)
    if found is not None:
        yield agent_link(line, local_rank=int(found["local"]), attempt=int(found["attempt"]))


def _reaped(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _REAPED.search(line.text)
    if found is not None:
        code = int(found["status"])
        yield make_sign(
            Sign.TASK_EXIT,
            line,
            pid=int(found["pid"]),
            exit_code=code,
            detail=signal_name(code) or f"exit code {code}",
        )


def _transition(line: LogLine, following: Following) -> Iterator[Fact]:
    """HyperPod's agent changes state; only the two ends say something."""
    found = _TRANSITION.search(line.text)
    if found is None:
        return
    if found["to"] in ("COMPLETED", "SUCCEEDED"):
        yield make_sign(Sign.FINISHED, line, detail="agent: completed")
    elif found["to"] in ("FAULTED", "FAILED", "ABORTED"):
        yield make_sign(Sign.ABORT, line, detail=f"agent: {found['to'].lower()}")


_RULES: tuple[Rule, ...] = (
    (("Rendezvous complete for workers",), _rendezvous),
    (("failed (exitcode: ",), _failed),
    (("closing signal ", "Unable to shutdown process"), _closing),
    (("death signal", "got signal: "), _stopped),
    (("reply file to: ",), _reply_file),
    (("Worker group FAILED. ",), fixed(Sign.ABORT, "agent: worker group failed")),
    (
        ("Local worker group finished (", "worker group successfully finished"),
        fixed(Sign.FINISHED, "agent: worker group finished"),
    ),
    (("Reaped child process",), _reaped),
    (("Transitioned from AgentState",), _transition),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """What the agent says of its children and of itself."""
    return by_literal(_RULES, line, following)
