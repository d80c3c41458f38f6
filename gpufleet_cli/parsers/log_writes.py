"""When each speaker wrote: its last line, its last ordinary one, and its habit of writing.

A speaker's first complaint (watchdog, abort, traceback, teardown) ends its ordinary lines. Work that
goes on afterwards (a step, a durable save) shows that the complaint was survived, and so does a long
run of plain lines after a mere traceback, which programs also log for errors they handle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from gpufleet_cli.facts import Fact, GroupStatus, LogSign, Sign, Speaker, WatchdogTimeout, Writes
from gpufleet_cli.timestamps import NS_PER_S

COMPLAINTS = frozenset(
    {
        Sign.DUMP_SIGNAL_OWN, Sign.DUMP_SIGNAL_OTHER, Sign.ABORT, Sign.WATCHDOG_STUCK, Sign.GIL_HELD,
        Sign.ASYNC_ERROR, Sign.REMOTE_ERROR, Sign.STORE_LOST, Sign.STORE_WAIT, Sign.RENDEZVOUS_FAILED,
        Sign.PORT_IN_USE, Sign.CHILD_FAILED, Sign.ROOT_CAUSE_BLOCK, Sign.CHILD_SIGTERM,
        Sign.AGENT_TOLD_TO_STOP, Sign.PYTHON_EXCEPTION, Sign.CUDA_OOM, Sign.HOST_OOM, Sign.ECC_ERROR,
        Sign.CUDA_ERROR, Sign.CUDA_PEER_ERROR, Sign.ILLEGAL_ACCESS, Sign.DEVICE_ASSERT,
        Sign.NVLS_FAILED, Sign.ROCM_GPU_HANG, Sign.PEER_UNREACHABLE, Sign.PEER_CLOSED, Sign.MISMATCH,
        Sign.BARRIER_MISSING, Sign.DESYNC_REPORT, Sign.LOADER_KILLED, Sign.JOB_CANCELLED,
        Sign.TASK_EXIT, Sign.NODE_FAILED, Sign.FATAL_SIGNAL, Sign.NVRX_ABORT, Sign.CLIENTS_JOINED,
    }
)  # fmt: skip
"""Signs that are no ordinary work: what a speaker writes from there on counts as complaint."""

WORK = frozenset({Sign.SAVE_DURABLE, Sign.SAVE_STARTED, Sign.STEP_COMMITTED, Sign.EVAL_STARTED})
"""Signs that ordinary work goes on."""

_WEAK = frozenset({Sign.PYTHON_EXCEPTION, Sign.STORE_LOST, Sign.PEER_CLOSED})
_SURVIVED_LINES = 20
_SURVIVED_NS = 60 * NS_PER_S
_BURST_NS = 2_000_000
_TEXT_LIMIT = 400


class Seen(NamedTuple):
    """One line of a speaker. `run` numbers the stretch of lines that were read without a gap."""

    pos: int
    path: str
    line: int
    ns: int | None
    zone_stated: bool
    text: str
    run: int


class Event(NamedTuple):
    """A place where a speaker complained or worked. `is_weak`: ordinary lines may follow."""

    pos: int
    is_complaint: bool
    is_weak: bool = False


class Account:
    """What one speaker wrote and said, and where its step lines stand (`worked`). Fills up while its
    stream is read."""

    __slots__ = ("events", "seen", "speaker", "worked")

    def __init__(self, speaker: Speaker) -> None:
        self.speaker = speaker
        self.seen: list[Seen] = []
        self.events: list[Event] = []
        self.worked: list[int] = []


class StreamEnd(NamedTuple):
    """What is true of all speakers of a stream: how its bytes end, and whether ranks are kept out,
    and where the year is from."""

    cut: bool
    buffered: bool
    rank_filtered: bool
    year_given: bool


def event_of(fact: Fact, pos: int) -> Event | None:
    """What a fact says about ordinary work."""
    if isinstance(fact, WatchdogTimeout):
        return Event(pos, True)
    if isinstance(fact, GroupStatus):
        return Event(pos, True)
    if isinstance(fact, LogSign):
        if fact.sign in COMPLAINTS:
            return Event(pos, True, fact.sign in _WEAK)
        if fact.sign in WORK:
            return Event(pos, False)
    return None


def writes_of(account: Account, end: StreamEnd) -> Writes | None:
    """The Writes of one speaker, None without any line."""
    lines = _in_order(account.seen)
    if not lines:
        return None
    complaint = _first_complaint(lines, _in_turn(account))
    normal = lines if complaint is None else [line for line in lines if line.pos < complaint]
    last = lines[-1]
    dated = [line for line in lines if line.ns is not None]
    habit = _habit(normal)
    return Writes(
        speaker=account.speaker,
        first_ns=_extreme(dated, last=False),
        last_ns=_extreme(dated, last=True),
        last_normal_ns=_extreme([line for line in normal if line.ns is not None], last=True),
        last_line=last.line,
        last_normal_line=normal[-1].line if normal else None,
        last_text=last.text[:_TEXT_LIMIT],
        last_normal_text=normal[-1].text[:_TEXT_LIMIT] if normal else "",
        lines=len(lines),
        habit_s=habit[0],
        habit_max_s=habit[1],
        zone_stated=bool(dated) and dated[-1].zone_stated,
        dated=bool(dated),
        cut=end.cut,
        buffered=end.buffered,
        complained=complaint is not None,
        path=last.path,
        rank_filtered=end.rank_filtered,
        year_given=end.year_given,
    )


def _in_order(seen: Iterable[Seen]) -> list[Seen]:
    """Each line once, in stream order; a line read in two runs counts to the later, wider one."""
    by_pos: dict[int, Seen] = {}
    for line in seen:
        known = by_pos.get(line.pos)
        if known is None or known.run <= line.run:
            by_pos[line.pos] = line
    return [by_pos[pos] for pos in sorted(by_pos)]


def _in_turn(account: Account) -> list[Event]:
    """The events in order. Of the step lines between two others the last one stands for all."""
    events = sorted(account.events)
    worked = sorted(account.worked)
    last = {bisect_right(worked, event.pos) for event in events} | {len(worked)}
    return sorted([*events, *(Event(worked[n - 1], False) for n in last if n)])


def _extreme(dated: Sequence[Seen], *, last: bool) -> int | None:
    """The newest or oldest time; lines of a merged stream may stand slightly out of order."""
    times = [line.ns for line in dated if line.ns is not None]
    return (max(times) if last else min(times)) if times else None


def _first_complaint(lines: Sequence[Seen], events: Sequence[Event]) -> int | None:
    """Where the complaints began that were not survived."""
    begun: Event | None = None
    for event in events:
        if not event.is_complaint:
            begun = None
        elif begun is None or (begun.is_weak and _survived(lines, begun.pos, event.pos)):
            begun = event
    if begun is not None and begun.is_weak and events[-1].is_weak:
        last = events[-1].pos
        if _survived(lines, last, lines[-1].pos + 1):
            return None
    return None if begun is None else begun.pos


def _survived(lines: Sequence[Seen], start: int, end: int) -> bool:
    """Many lines, a minute and more after an error that programs also handle."""
    at = next((line.ns for line in lines if line.pos >= start and line.ns is not None), None)
    if at is None:
        return False
    later = [
        line
        for line in lines
        if start < line.pos < end and line.ns is not None and line.ns - at > _SURVIVED_NS
    ]
    return len(later) >= _SURVIVED_LINES


def _habit(normal: Sequence[Seen]) -> tuple[float | None, float | None]:
    """(median, longest) gap in seconds between ordinary lines that follow each other.

    Lines of one moment are one act of writing: gaps of under two milliseconds do not count.
    """
    gaps: list[int] = []
    before: Seen | None = None
    count = 0
    for line in normal:
        if line.run < 0 or line.ns is None:
            continue
        count += 1
        if before is not None and before.run == line.run and before.ns is not None:
            gap = line.ns - before.ns
            if gap > _BURST_NS:
                gaps.append(gap)
        before = line
    if count < 3 or not gaps:
        return None, None
    return median(gaps) / NS_PER_S, max(gaps) / NS_PER_S
