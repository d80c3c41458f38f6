"""Logs of the gang's pods: current and previous, as deep as the stall needs, suspects of dead nodes last.

Each request has its own short timeout: a dead node costs the API server its full dial timeout, and must
not hold up the others. `limitBytes` is never sent: it counts from the start and cuts the newest lines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpufleet_cli.live import log_depth, log_gaps, threads
from gpufleet_cli.live.answers import (
    LATE,
    LOST,
    NODE_EVIDENCE,
    Answer,
    LogRead,
    read_log,
    said_of_kubelet,
)
from gpufleet_cli.live.api import Api, Params
from gpufleet_cli.live.bundle_writer import BundleWriter, stamp
from gpufleet_cli.live.log_depth import NS, Told
from gpufleet_cli.live.log_gaps import Missed
from gpufleet_cli.live.log_tasks import LogTask, tasks_of
from gpufleet_cli.live.pods import Pod

TAIL_LINES = 2_000
MOST_TAIL_LINES = 64_000
BYTE_CAP = 24 << 20
PART_BYTES = 16_384
SOME = 16
ODD_SHARE = 32
"""One log in so many may be longer than the others without all being asked for more."""
START_S = 120
"""A program may be silent so long after its start, while it imports."""
PEEKED = 3
DEEP_THREADS = 16
TIMEOUT_S = 12.0
SUSPECT_TIMEOUT_S = 6.0
PROBE_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Had:
    """A log that came: what it tells about depth, and whether more may lie before it."""

    task: LogTask
    told: Told
    is_cut: bool
    is_torn: bool = False
    asked_lines: int = 0


def gather(
    api: Api, tasks: Sequence[LogTask], sink: BundleWriter, told: Callable[[int], None] | None
) -> None:
    """All logs into the sink; what could not be had becomes a gap with its reason, Ctrl-C or not."""
    waiting: list[LogTask] = []
    had: dict[LogTask, Had] = {}
    for task in tasks:
        if sink.has(task.path):
            had[task] = _measure(task, sink.read(task.path))
        else:
            waiting.append(task)
    missed: dict[LogTask, Missed] = {}
    tail = _Tail()
    try:
        for task, one in _read_all(api, waiting, tail, sink):
            if isinstance(one, Had):
                had[task] = one
            else:
                missed[task] = one
            if told is not None:
                told(1)
        _deepen(api, had, sink)
    except KeyboardInterrupt:
        api.deadline.stop()
        raise
    finally:
        _clear_kubelets(api, missed)
        late = "interrupted" if api.deadline.stopped else LATE
        for task in waiting:
            if task not in had and (task not in missed or missed[task].what is LogRead.LATE):
                missed[task] = Missed(what=LogRead.LATE, why=late)
        log_gaps.report(missed, list(had), sink)
        for one in had.values():
            if one.is_torn:
                why = late if api.deadline.is_over() else "the connection broke off"
                sink.gap(f"the end of the {one.task.shown}", why, log_gaps.SETTLES)


Outcome = Had | Missed


class _Tail:
    """How many lines of a log are asked for. Where those that came first begin too late, the others are asked for
    more at once, in place of twice. Safe to call from several threads."""

    def __init__(self) -> None:
        self.lines = TAIL_LINES
        self._lock = threading.Lock()
        self._read: list[Had] = []
        self._cut = 0
        self._looks_at = 2

    def learn(self, one: Had) -> None:
        """A log that came. Logs that were cut are looked at each time they have doubled in number."""
        with self._lock:
            if one.asked_lines == self.lines:
                self._read.append(one)
                self._cut += one.is_cut
                if one.is_cut and self._cut >= self._looks_at:
                    self._look()

    def _look(self) -> None:
        """By the words of a watchdog; by the silence alone once some logs have none."""
        self._looks_at *= 2
        told = [one.told for one in self._read]
        since = log_depth.needed_since_ns(told)
        is_told = len(told) >= SOME or any(one.first_timeout_ns is not None for one in told)
        if since is None or not is_told:
            return
        shallow = sum(_is_shallow(one, since) for one in self._read)
        if shallow > 1 and shallow * ODD_SHARE >= len(told) and self.lines < MOST_TAIL_LINES:
            self.lines *= 2
            self._read, self._cut, self._looks_at = [], 0, 2


def _clear_kubelets(api: Api, missed: dict[LogTask, Missed]) -> None:
    """Reads that nothing answered speak of their kubelets only where the API server answers others
    now; past the deadline nobody can tell."""
    untold = [t for t, one in missed.items() if one.what in NODE_EVIDENCE and one.is_untold]
    if not untold:
        return
    probe = api.get("/version", kind="version", timeout_s=PROBE_TIMEOUT_S, tries=1)
    if probe.status in (0, 502, 503, 504):
        what = LogRead.LATE if probe.late else LogRead.LOST
        for task in untold:
            missed[task] = Missed(what=what, why=f"{LOST}: {missed[task].said}")


def _read_all(
    api: Api, tasks: Sequence[LogTask], tail: _Tail, sink: BundleWriter
) -> Iterator[tuple[LogTask, Outcome]]:

    def read(task: LogTask) -> Outcome:
        one = _read(api, task, {"tailLines": tail.lines}, sink)
        if isinstance(one, Had):
            tail.learn(one)
        return one

    for group in (False, True):  # suspects only when all others are through
        yield from threads.each(
            read,
            [task for task in tasks if task.is_suspect is group],
            threads=api.threads,
            deadline=api.deadline,
        )


def _read(
    api: Api, task: LogTask, params: Params, sink: BundleWriter, before: Had | None = None
) -> Outcome:
    """One log into the sink, or why not. What was had `before` is replaced only by what reaches back
    as far."""
    answer = ask(api, task, params)
    what, why = read_log(answer)
    if what is not LogRead.HAD:
        said = said_of_kubelet(answer) if what in NODE_EVIDENCE else ""
        untold = answer.status == 0
        return Missed(what=what, why=why, said=said, asked_ns=api.now_ns(), is_untold=untold)
    lines = answer.body.count(b"\n")
    asked = int(params.get("tailLines", 0))
    begins_later = "x-begins-later" in answer.headers
    data = _whole_lines(answer.body, begins_later=begins_later, is_torn=answer.cut)
    one = _measure(task, data, is_torn=answer.cut)
    is_cut = begins_later or (asked > 0 and (lines >= asked or _has_parts(data)))
    one = replace(one, is_cut=is_cut, asked_lines=asked)
    if before is None or _is_deeper(one, before):
        sink.add_log(task.path, data, partial=answer.cut)
    return one


def _measure(task: LogTask, data: bytes, *, is_torn: bool = False) -> Had:
    return Had(task=task, told=log_depth.told_by(data), is_cut=False, is_torn=is_torn)


def _has_parts(data: bytes) -> bool:
    """Whether a line is longer than the runtime keeps in one: it counts the parts, so that fewer lines
    than were asked for may be a cut tail too."""
    begin = 0
    while len(data) > PART_BYTES and len(data) - begin >= PART_BYTES:
        end = data.rfind(b"\n", begin, begin + PART_BYTES)
        if end < 0:
            return True
        begin = end + 1
    return False


def ask(api: Api, task: LogTask, params: Params) -> Answer:
    """One read of one log."""
    query: dict[str, str | int] = {"container": task.container, "timestamps": "true", **params}
    if task.previous:
        query["previous"] = "true"
    return api.get(
        f"/api/v1/namespaces/{task.namespace}/pods/{task.pod}/log",
        query,
        timeout_s=SUSPECT_TIMEOUT_S if task.is_suspect else TIMEOUT_S,
        kind="previous log" if task.previous else "log",
        newest=BYTE_CAP,
        retries=_worth_another,
        tries=5,
    )


def _worth_another(answer: Answer) -> bool:
    """Throttling, a tunnel that stutters, a body that broke off; never a kubelet that is silent."""
    if answer.status == 429 or (answer.ok and answer.cut):
        return True
    if answer.status == 0:
        return not answer.timed_out
    if answer.status < 500:
        return False
    return read_log(answer)[0] in (LogRead.TUNNEL, LogRead.ODD)


def _whole_lines(data: bytes, *, begins_later: bool, is_torn: bool) -> bytes:
    """Without a first line that was cut by the cap and a last one that broke off."""
    if begins_later:
        data = data[data.find(b"\n") + 1 :]
    if is_torn:
        data = data[: data.rfind(b"\n") + 1]
    return data


def is_stalled(api: Api, pods: Sequence[Pod], now_ns: int) -> bool:
    """Whether a few running pods of an attempt all wrote nothing for as long as a watchdog waits."""
    tasks = [
        task
        for task in tasks_of(pods, frozenset())
        if not task.previous and task.container in {pod.state.rank_container for pod in pods}
    ]
    newest = []
    for task in tasks[:PEEKED]:
        answer = ask(api, task, {"tailLines": 1})
        at = log_depth.told_by(answer.body).newest_ns if answer.ok else None
        newest.append(at)
    known = [at for at in newest if at is not None]
    return bool(known) and now_ns - max(known) > log_depth.DEFAULT_TIMEOUT_S * NS


# --- Depth ----------------------------------------------------------------------------------------


def _deepen(api: Api, known: dict[LogTask, Had], sink: BundleWriter) -> None:
    """Logs that begin too late are read again from the time that is needed, else with more lines."""
    since = log_depth.needed_since_ns(one.told for one in known.values())
    if since is None:
        return
    stated = stamp(since // NS * NS)
    assert stated is not None
    tail = TAIL_LINES
    params: Params = {"sinceTime": stated}
    while tail <= MOST_TAIL_LINES and not api.deadline.is_over():
        shallow = [one for one in known.values() if _is_shallow(one, since)]
        changed = False
        for task, one in _deep_reads(api, shallow, params, sink):
            if isinstance(one, Had) and _is_deeper(one, known[task]):
                changed = changed or one.told.oldest_ns != known[task].told.oldest_ns
                known[task] = one
        if not shallow or ("tailLines" in params and not changed):
            break
        tail *= 2
        params = {"tailLines": tail}
    for one in known.values():
        _say_where_it_begins(one, since, sink)


def _deep_reads(
    api: Api, shallow: Sequence[Had], params: Params, sink: BundleWriter
) -> list[tuple[LogTask, Outcome]]:
    before = {one.task: one for one in shallow}
    return list(
        threads.each(
            lambda task: _read(api, task, params, sink, before[task]),
            list(before),
            threads=min(api.threads, DEEP_THREADS),
            deadline=api.deadline,
        )
    )


def _is_shallow(one: Had, since: int) -> bool:
    return one.is_cut and one.told.oldest_ns is not None and one.told.oldest_ns > since


def _is_deeper(one: Had, before: Had) -> bool:
    if one.told.oldest_ns is None or before.told.oldest_ns is None:
        return False
    return one.told.oldest_ns <= before.told.oldest_ns


def _say_where_it_begins(one: Had, since: int, sink: BundleWriter) -> None:
    """A log that begins later than it should is a gap, unless its container began no earlier."""
    oldest, started = one.told.oldest_ns, one.task.started_ns
    if oldest is None or oldest <= since:
        return
    if started is not None and oldest - started <= START_S * NS:
        return
    if not one.is_cut and (started is None or started > since):
        return
    why = (
        "cut at the byte cap" if one.is_cut else "older lines were rotated away, or there were none"
    )
    sink.gap(
        f"the beginning of the {one.task.shown}",
        f"it begins at {stamp(oldest)}: {why}",
        f"what was done from {stamp(since)} on",
    )
