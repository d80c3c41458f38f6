"""Timeouts and aborts of PyTorch's collective watchdog (`ProcessGroupNCCL.cpp`, torch 1.7 to 2.10).

A timeout is printed by a rank that waited. The exception text of a line may be repeated a minute
later ("watchdog thread terminated with exception", `what():`): such copies have no time of their
own, so their `WatchdogTimeout` has `at_ns=None`.
Templates: https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "[Rank 3] Watchdog caught collective operation timeout: "
...     "WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) "
...     "ran for 600210 milliseconds before timing out.")
>>> fact.group_rank, fact.seq, fact.op, fact.ran_ms
(3, 91, 'ALLREDUCE', 600210)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpufleet_cli.facts import Fact, GroupRef, GroupStatus, Sign, WatchdogTimeout
from gpufleet_cli.parsers.lines.groups import parse_group, parse_group_rank
from gpufleet_cli.parsers.lines.signs import Rule, by_literal, make_sign, parse_ranks, patterns_of
from gpufleet_cli.parsers.log_line import Following, LogLine

_WORK = re.compile(
    r"Work\w{1,8}\((?:SeqNum=(?P<seq>\d{1,20}), )?OpType=(?P<op>\w{1,64})"
    r"(?:, NumelIn=(?P<nin>\d{1,20}), NumelOut=(?P<nout>\d{1,20}))?, Timeout\(ms\)=(?P<tmo>\d{1,18})\)"
    r"(?: ran for (?P<ran>\d{1,18}) milliseconds| (?P<blocking>timed out in blocking wait))"
)
_STATUS = re.compile(
    r"(?:NCCL work|\w{3,5} work|at work(?: sequence id)?): (?P<at>-?\d{1,20})"
    r"(?:\.|,| PG status:) {0,2}last enqueued (?:\w{3,5} )?work: (?P<enq>-?\d{1,20}), "
    r"last completed (?:\w{3,5} )?work: (?P<comp>-?\d{1,20})"
)
_FRAME = re.compile(r"\s{0,8}#\d{1,3} (?P<name>\S{1,200}) from (?P<place>\S{1,400})")
_UNIQUE_ID = re.compile(
    r"\[(?P<rank>\d{1,7})\] is setting up NCCL communicators? and retr\w{1,10} ncclUniqueId "
    r"from (?:\[(?P<root>\d{1,7})\]|roots).{0,200}?(?:got error|error): ?(?P<error>.{0,400})"
)
_ABORTED_ON = re.compile(r"communicator was aborted on rank (?P<rank>\d{1,7})")
_INT64 = 2**63
_FRAME_LIMIT = 16


def _timeout(line: LogLine, following: Following) -> Iterator[Fact]:
    """The timeouts that a line states, each once however often the line repeats it."""
    is_copy = _is_copy(line.text)
    seen: set[tuple[str | None, ...]] = set()
    for found in _WORK.finditer(line.text):
        if found.groups() in seen:
            continue
        seen.add(found.groups())
        later = () if is_copy else following(_FRAME_LIMIT)
        seq = _count(found["seq"])
        named = parse_group(line.text)
        group_rank = parse_group_rank(line.text[: found.start()])
        yield WatchdogTimeout(
            speaker=line.speaker,
            at_ns=None if is_copy else line.at_ns,
            group=named[0] if named is not None else _group_after(later, seq, group_rank),
            group_rank=group_rank,
            seq=seq,
            op=found["op"],
            numel_in=_count(found["nin"]),
            numel_out=_count(found["nout"]),
            timeout_ms=int(found["tmo"]),
            ran_ms=int(found["ran"] or found["tmo"]),
            origin=line.origin,
            frames=_frames_after(later),
        )


def _is_copy(text: str) -> bool:
    """Whether the line only repeats an exception that was thrown earlier."""
    return any(
        mark in text
        for mark in ("thread terminated with exception", "what():", "Original reason for failure")
    )


def _count(text: str | None) -> int | None:
    """A counter; None where it is absent or the unsigned form of "unset"."""
    return None if text is None or int(text) >= _INT64 else int(text)


def _group_after(
    later: Sequence[LogLine], seq: int | None, group_rank: int | None
) -> GroupRef | None:
    """The group of the status line that follows a timeout and speaks of the same work."""
    for line in later:
        status, named = _STATUS.search(line.text), parse_group(line.text)
        if status is not None and named is not None:
            if named[1] == group_rank and seq is not None and int(status["at"]) == seq:
                return named[0]
        elif _WORK.search(line.text):
            return None
    return None


def _frames_after(later: Sequence[LogLine]) -> tuple[str, ...]:
    """Python frames under "Stack trace of the failed collective", before the next timeout."""
    frames: list[str] = []
    is_open = False
    for line in later:
        if _WORK.search(line.text):
            break
        is_open = is_open or "Stack trace of the failed collective: " in f"{line.text} "
        if is_open:
            frames += [f"{f['name']} ({f['place']})" for f in _FRAME.finditer(line.text)]
    return tuple(frames[:8])


def _status(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _STATUS.search(line.text)
    if found is None:
        return
    named = parse_group(line.text)
    enqueued, completed = status_counts(found["enq"], found["comp"])
    yield GroupStatus(
        speaker=line.speaker,
        at_ns=line.at_ns,
        group=named[0] if named is not None else None,
        group_rank=named[1] if named is not None else parse_group_rank(line.text),
        work=_count(found["at"]),
        last_enqueued=enqueued,
        last_completed=completed,
        from_signal=False,
        origin=line.origin,
    )


def status_counts(enqueued: str, completed: str) -> tuple[int | None, int | None]:
    """Both counters of a status; a completed number above the enqueued one is garbage of 2.3."""
    last_enqueued, last_completed = _count(enqueued), _count(completed)
    if last_enqueued is not None and last_completed is not None and last_completed > last_enqueued:
        last_completed = None
    return last_enqueued, last_completed


def _abort(line: LogLine, following: Following) -> Iterator[Fact]:
    named = parse_group(line.text)
    yield make_sign(
        Sign.ABORT,
        line,
        group=named[0] if named is not None else None,
        detail=abort_reason(line.text),
    )


def abort_reason(text: str) -> str:
    """What ended the process: timeout, cuda, nccl, watchdog hang or just "abort", and the words."""
    _, mark, reason = text.rpartition("exception: ")
    reason = reason if mark else text.rpartition("] ")[2]
    for mark, kind in (
        ("ran for", "timeout"),
        ("CUDA error", "cuda"),
        ("NCCL error", "nccl"),
        ("watchdog hang", "watchdog-hang"),
        ("collective timeout", "timeout"),
    ):
        if mark in text:
            return f"{kind}: {reason}"
    return f"abort: {reason}"


def _aborted_communicator(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _ABORTED_ON.search(line.text)
    sign = make_sign(Sign.ABORT, line, detail=f"communicator aborted: {abort_reason(line.text)}")
    if found is not None:
        ranks = parse_ranks(found["rank"])
        sign = replace(sign, named_ranks=ranks, ranks_are_group_local=True)
    yield sign


def _unique_id(line: LogLine, following: Following) -> Iterator[Fact]:
    found = _UNIQUE_ID.search(line.text)
    if found is None:
        return
    root = (int(found["root"]),) if found["root"] is not None else ()
    yield make_sign(
        Sign.STORE_WAIT,
        line,
        named_ranks=root,
        ranks_are_group_local=True,
        detail=f"rank {found['rank']} of the group waits for ncclUniqueId: {found['error']}",
    )


_RULES: tuple[Rule, ...] = (
    (("milliseconds before timing out", "timed out in blocking wait"), _timeout),
    (
        (
            "detected by watchdog at work",
            "Timeout at NCCL work",
            "Timeout at XCCL work",
            "Timeout at HCCL work",
        ),
        _status,
    ),
    (
        (
            "NCCL operations have failed or timed out",
            "we are taking the entire process down",
            "watchdog thread terminated with exception",
            "terminate called after throwing an instance of",
            "Terminating the process after attempting to dump debug info",
        ),
        _abort,
    ),
    (("communicator was aborted on rank", "communicator was aborted."), _aborted_communicator),
    (("ncclUniqueId from",), _unique_id),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Timeouts, group status, aborts and waits for a communicator's id."""
    return by_literal(_RULES, line, following)
