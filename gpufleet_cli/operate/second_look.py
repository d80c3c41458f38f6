"""The second look: does a job that seems to have stopped go on?

What is new is told by each log itself: lines behind the newest one that the first look kept of it, whatever the
clock of its node says. How long to wait is told by our own clock. A log that cannot be read tells nothing; where
no step can be seen at all, the words that a job has stopped must stand in most of its logs, or a rank have ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpufleet_cli.bundle import Target
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import LogSign, Progress, Sign, WatchdogTimeout, Writes
from gpufleet_cli.live import log_depth, pod_logs, threads
from gpufleet_cli.live.answers import LATE, LogRead, read_log
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.bundle_writer import stamp
from gpufleet_cli.live.log_tasks import LogTask
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.operate import progress_look
from gpufleet_cli.operate.evict_guard import Second
from gpufleet_cli.operate.progress_look import NS
from gpufleet_cli.parsers import training_log
from gpufleet_cli.reason.job_state import ABORT_SIGNS
from gpufleet_cli.verdict import JobState, JobView, Proof, Triage

LEAST_S, MOST_S, MOST_OWN_S = 5.0, 600.0, 300.0
RHYTHM_S = 30.0
"""As old may a last step be of a job that prints one every few seconds."""
HINT_STEPS, OWN_STEPS, JITTER_S = 3.0, 1.5, 2.0
BACK_S = 900
"""So far back a log is read that the first look could not read."""
TAIL_BYTES = 65_536
_BEGINS = frozenset({*progress_look.OPENS, Sign.SAVE_DURABLE, Sign.RENDEZVOUS_DONE})
_WORK: Mapping[Sign, str] = {
    Sign.EVAL_STARTED: "an evaluation began",
    Sign.COMPILE_STARTED: "a compilation began",
    Sign.SAVE_DURABLE: "a checkpoint was saved",
    Sign.RENDEZVOUS_DONE: "its ranks met anew",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """What the first look kept, by the path of each log in the bundle. `began_ns`: when it began, by the API server's
    clock; `over_s`: when it was over, by ours. `printers` are the pods in whose logs steps stand: of an MPIJob the launcher."""

    logs: Mapping[str, Evidence]
    job: JobView
    printers: frozenset[str]
    began_ns: int
    over_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was found, and in what words a refusal tells it."""

    second: Second
    why: str = ""


def first_of(read: Target, told: Triage, began_ns: int) -> First:
    """Kept right after the first look."""
    origins = [row.origin for row in told.ranks if row.last_step is not None]
    paths = [one.path.split("/") for one in origins if one is not None]
    return First(
        logs={one.path: one for one in read.evidences},
        job=told.job,
        printers=frozenset(parts[3] for parts in paths if parts[0] == "namespaces" and parts[3:]),
        began_ns=began_ns,
        over_s=time.monotonic(),
    )


def look(
    api: Api, pods: Sequence[Pod], first: First, proof: Proof | None, say: Callable[[str], None]
) -> Look:
    """Wait until a job that goes on must have shown it, and look whether it did."""
    if proof not in ("own-lines", "recorder", "hint"):
        return Look(second="unseen")
    if not pods:
        return Look(second="unseen", why="its pods are not known")
    if not running(pods):
        return Look(second="idle")
    excuse = _excuse(pods, first.job, proof)
    if excuse is not None:
        return excuse
    since_s = time.monotonic() - first.over_s
    wait = wait_s(proof, first.job, since_s=since_s, now_ns=api.now_ns())
    if wait > MOST_S:
        every = first.job.step_interval_s or 0.0
        why = f"it prints a step every {every:,.0f} s"
        if proof == "hint":
            why += ": too seldom to see by a short look that none comes"
        else:
            why += f": whether another comes is told in {wait / 60:,.0f} min"
        return Look(second="early", why=why)
    if wait > 0:
        say(f"a second look in {wait:.0f} s: does it still step?")
    if wait > 2 * LEAST_S:  # most that go on show it at once
        api.deadline.pause(LEAST_S)
        wait -= LEAST_S
        soon = again(api, pods, first, proof)
        if soon.second == "moves":
            return soon
    api.deadline.pause(wait)
    return again(api, pods, first, proof)


def again(api: Api, pods: Sequence[Pod], first: First, proof: Proof | None) -> Look:
    """What the ranks that run have written since the first look."""
    tasks = progress_look.logs_of(running(pods))
    if not tasks:
        return Look(second="idle" if pods and not running(pods) else "unseen", why="no log of it")
    news = list(_news(api, tasks, first))
    return judged(
        news, first, proof, is_told=lambda: _has_ended(pods) or _most_say_so(tasks, first)
    )


# --- Before: is there something to wait for -------------------------------------------------------


def running(pods: Sequence[Pod]) -> list[Pod]:
    """Those in which a rank may run."""
    return [
        pod
        for pod in pods
        if pod.is_running
        and any(
            one.state != "terminated" and (one.has_gpu or one.name == pod.state.rank_container)
            for one in pod.state.containers
        )
    ]


def _has_ended(pods: Sequence[Pod]) -> bool:
    """Whether a rank ended with an error: no line of a log is needed for that."""
    return any(
        one.state == "terminated" and one.exit_code and (one.has_gpu or one.name == rank)
        for pod in pods
        for one in pod.state.containers
        for rank in (pod.state.rank_container,)
    )


def _excuse(pods: Sequence[Pod], job: JobView, proof: Proof) -> Look | None:
    """Why the job makes no step though nothing is wrong."""
    if proof == "hint" and job.state is JobState.EXITED:
        why = "it says that its training has finished, and its containers run: it may still save or upload"
        return Look(second="open", why=why)
    if job.open_work is not None and (proof == "hint" or not _has_ended(pods)):
        return Look(second="open", why=job.open_work)
    if proof == "hint" and job.step_interval_s is None:
        return Look(second="unseen", why="it printed too few steps to tell when the next is due")
    return None


def wait_s(proof: Proof, job: JobView, *, since_s: float, now_ns: int) -> float:
    """How long until a job that goes on must have printed a step. A hint waits for three; the job's own words for
    one (of a job that prints very seldom, for five minutes of it), and until the last is old by its node's clock.
    `since_s` have passed since the first look."""
    every = job.step_interval_s
    if proof == "hint":
        return max(0.0, max(LEAST_S, HINT_STEPS * (every or 0.0)) - since_s)
    if every is None or job.last_step_ns is None:
        return max(0.0, RHYTHM_S - since_s)
    age_s = (now_ns - job.last_step_ns) / NS
    by_clock = max(RHYTHM_S, OWN_STEPS * every) - max(0.0, age_s)
    return max(0.0, by_clock, min(OWN_STEPS * every + JITTER_S, MOST_OWN_S) - since_s)


# --- What is new ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What one log says that the first look did not know. `moved`: a step, or the beginning of such work; `wrote`:
    any ordinary line; `unread`: why it could not be read."""

    pod: str
    moved: str | None = None
    wrote: bool = False
    unread: str | None = None


def _news(api: Api, tasks: Sequence[LogTask], first: First) -> Iterable[News]:
    known = {task: _newest_ns(first, task) for task in tasks}

    def ask(task: LogTask) -> News:
        newest = known[task]
        since = first.began_ns - BACK_S * NS if newest is None else newest
        answer = pod_logs.ask(api, task, {"sinceTime": stamp(since // NS * NS) or ""})
        what, why = read_log(answer)
        if what not in (LogRead.HAD, LogRead.EMPTY):
            return News(pod=task.pod, unread=why or str(what))
        return new_in(task.pod, answer.body, first.began_ns if newest is None else newest)

    asked = threads.each(ask, tasks, threads=min(api.threads, 16), deadline=api.deadline)
    came = dict(asked)
    return [came.get(task) or News(pod=task.pod, unread=LATE) for task in tasks]


def _newest_ns(first: First, task: LogTask) -> int | None:
    """The newest line that the first look kept of this log, by the clock of its node."""
    log = first.logs.get(task.path)
    return None if log is None else log_depth.told_by(log.read()[-TAIL_BYTES:]).newest_ns


def new_in(pod: str, data: bytes, known_ns: int) -> News:
    """What the lines behind `known_ns` say, each with the runtime's stamp before it.

    >>> data = b"2026-03-11T03:51:19.5Z step 7 loss 2.31\\n2026-03-11T03:51:20.5Z step 8 loss 2.30\\n"
    >>> new_in("p-0", data, 1773201079500000000).moved
    'it made step 8'
    >>> new_in("p-0", data, 1773201080500000000).moved is None
    True
    """
    lines = [line for line in data.splitlines(keepends=True) if _stamp_ns(line) > known_ns]
    moved, wrote = None, False
    for fact in _facts(pod, b"".join(lines)):
        if isinstance(fact, Progress) and fact.points:
            what = "step" if fact.series == "train" else "evaluation step"
            moved = f"it made {what} {fact.points[-1].step}"
        elif isinstance(fact, LogSign) and fact.sign in _BEGINS and moved is None:
            moved = _WORK.get(fact.sign, "a save began")
        elif isinstance(fact, Writes):
            wrote = wrote or fact.last_normal_line is not None
    return News(pod=pod, moved=moved, wrote=wrote)


def _stamp_ns(line: bytes) -> int:
    return log_depth.stamp_ns(line.partition(b" ")[0]) or 0


def _facts(pod: str, data: bytes) -> Iterable[object]:
    if not data.strip():
        return ()
    log = Evidence(path=f"pods/{pod}.log", size_bytes=len(data), content=data)
    return training_log.parse_stream([log])


def _most_say_so(tasks: Sequence[LogTask], first: First) -> bool:
    """Whether at least half of the ranks that run say that the job stopped: a lie stands in one log."""
    had = [first.logs[task.path] for task in tasks if task.path in first.logs]
    told = sum(any(map(_is_end, _facts(log.path, log.read()[-TAIL_BYTES:]))) for log in had)
    return bool(told) and told * 2 >= len(tasks)


def _is_end(fact: object) -> bool:
    return isinstance(fact, WatchdogTimeout) or (
        isinstance(fact, LogSign) and fact.sign in ABORT_SIGNS
    )


# --- What it means --------------------------------------------------------------------------------


def judged(
    news: Sequence[News], first: First, proof: Proof | None, *, is_told: Callable[[], bool]
) -> Look:
    """One answer of many. `is_told`: whether most logs say that it stopped, or a rank ended; asked where no step can
    be seen."""
    for one in news:
        if one.moved is not None:
            return Look(second="moves", why=f"{one.moved} while it was looked at ({one.pod})")
    answered = {one.pod for one in news if one.unread is None}
    unread = next((one for one in news if one.unread is not None), None)
    lacks = "" if unread is None else f"the log of {unread.pod} cannot be read now: {unread.unread}"
    if _sees_steps(news, answered, first):
        return Look(second="still")
    if len(answered) * 2 < len(news):
        return Look(second="unseen", why=lacks)
    if proof == "hint":
        return Look(second="unseen", why=lacks or "no rank that prints steps was heard")
    if (writer := next((one for one in news if one.wrote), None)) is not None:
        return Look(second="moves", why=f"{writer.pod} still writes, and no step of it can be seen")
    if proof == "recorder" or is_told():
        return Look(second="still")
    why = "no step of it can be seen, and few of its logs say that it stopped"
    return Look(second="unseen", why=f"{why}; {lacks}" if lacks else why)


def _sees_steps(news: Sequence[News], answered: set[str], first: First) -> bool:
    """Whether a step would have been seen: of those that print them at least half were heard. All ranks of a synchronous
    job make each step; of an MPIJob the launcher alone prints."""
    if first.job.last_step is None:
        return False
    if not first.printers:
        return len(answered) == len(news)
    printers = first.printers & {
        one.pod for one in news
    }  # those that have ended print none any more
    return bool(printers) and len(printers & answered) * 2 >= len(printers)
