"""`--capture`: fresh dumps and stacks out of a job that stalls now. First do no harm.

A byte into the pipe that each rank listens on makes it write its Flight Recorder dump, and training goes
on; py-spy, where the image has it, reads stacks without stopping the process. NCCL RAS is never asked: it
has crashed jobs. All of it is argv by exec, no shell, and stops a margin before the watchdog ends the job:
evidence must not hold up what would end the stall. Nothing is captured where that margin is not left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gpufleet_cli.live import capture_stacks, dump_gaps, exec_socket, log_depth, rights, threads
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.bundle_writer import BundleWriter
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.exec_dumps import (
    EMPTY,
    NO_RANKS,
    Dump,
    by_host_names,
    log_of,
    ranks_of,
    why_not,
)
from gpufleet_cli.live.exec_socket import Heard
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.pods import Attempt, Pod
from gpufleet_cli.parsers import kubernetes_volumes
from gpufleet_cli.timestamps import format_clock

PIPE = ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE",)
MARGIN_S = 60.0
"""So long before the watchdog may fire nothing is asked of a rank any more."""
MOST_S = 120.0
POLL_S = 0.5
THREADS = 8
NS = 1_000_000_000
WHAT = "fresh evidence (--capture)"
SETTLES = "what each rank does now, while the stall lasts"
_WRITE_S = "5"
"""A pipe that nobody reads any more would hold its writer for ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchdog:
    """How long a rank waits before it ends the job, and who says so."""

    timeout_s: float = log_depth.DEFAULT_TIMEOUT_S
    source: str = "torch's default"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One rank's pipe, and the dump that it writes."""

    dump: Dump
    pipe: str


def gather(api: Api, job: Job, attempt: Attempt, sink: BundleWriter, *, watchdog: Watchdog) -> None:
    """Fresh dumps into the bundle, then stacks; what was not asked for, and why, among the gaps."""
    running = [pod for pod in attempt.pods if pod.state.gpus and why_not(pod) is None]
    now_ns = api.now_ns()
    refusal, left_s = _budget(running, sink, watchdog, now_ns)
    if refusal is None and running:
        refusal = _no_right(api, job.namespace)
    if refusal is not None:
        sink.gap(WHAT, refusal, SETTLES)
        return
    until = Deadline(api.deadline.bound(min(left_s, MOST_S)))
    sink.about["captured_for_s"] = round(until.seconds or 0.0)
    ordered = sorted(running, key=lambda pod: _newest(pod, sink) or 0)
    _dumps(api, ordered, attempt.pods, sink, until)
    capture_stacks.gather(api, ordered, sink, until)


# --- Whether ---------------------------------------------------------------------------------------


def _budget(
    running: Sequence[Pod], sink: BundleWriter, watchdog: Watchdog, now_ns: int
) -> tuple[str | None, float]:
    """Why nothing may be asked, or None; and the seconds that are left for it."""
    if not running:
        return "no container of the job runs any more", 0.0
    told = [log_depth.told_by(sink.read(path)) for pod in running if (path := log_of(pod, sink))]
    fired = [one.first_timeout_ns for one in told if one.first_timeout_ns is not None]
    if fired:
        at = format_clock(min(fired))
        return f"refused: a watchdog fired at {at}; its own dumps are under way", 0.0
    newest = [one.newest_ns for one in told if one.newest_ns is not None]
    if not newest:
        return "refused: no log tells how long the job has been quiet", 0.0
    quiet_s = max(0.0, (now_ns - max(newest)) / NS)
    left_s = watchdog.timeout_s - quiet_s - MARGIN_S
    if left_s > 0:
        return None, left_s
    return (
        f"refused: quiet for {quiet_s:.0f} s, and the watchdog ends the job after"
        f" {watchdog.timeout_s:.0f} s ({watchdog.source}): less than {MARGIN_S:.0f} s are left",
        0.0,
    )


def _newest(pod: Pod, sink: BundleWriter) -> int | None:
    path = log_of(pod, sink)
    return None if path is None else log_depth.told_by(sink.read(path)).newest_ns


def _no_right(api: Api, namespace: str) -> str | None:
    """What the server cannot tell is tried."""
    asked = rights.review(api, rights.to_exec(namespace))
    return exec_socket.NO_RIGHT if any(one.allowed is False for one in asked) else None


# --- Dumps -----------------------------------------------------------------------------------------


def _dumps(
    api: Api, pods: Sequence[Pod], every: Sequence[Pod], sink: BundleWriter, until: Deadline
) -> None:
    refused: dict[str, list[tuple[int | None, str]]] = defaultdict(list)
    asked = []
    sorted_so = by_host_names(every)
    for pod in pods:
        pipe = kubernetes_volumes.setting(pod.raw, pod.state.rank_container, PIPE)
        place = pod.state.dumps
        if pipe is None or place is None:
            lacks = PIPE[0] if pipe is None else "TORCH_FR_DUMP_TEMP_FILE"
            refused[f"its environment does not set {lacks}"].append((None, pod.name))
            continue
        ranks = ranks_of(pod, sink) or sorted_so.get(pod.name, [])
        if not ranks:
            refused[NO_RANKS].append((None, pod.name))
        for rank in ranks:  # its pipe proves a guess
            dump = Dump(pod=pod, rank=rank, place=place)
            if not sink.has(dump.kept_as):
                asked.append(_Asked(dump=dump, pipe=f"{pipe}{rank}.pipe"))
    done = set()
    for one, heard in threads.each(
        lambda one: _fresh(api, one, until), asked, threads=THREADS, deadline=until
    ):
        dump = one.dump
        done.add(dump.rank)
        if heard.failed is None:
            sink.add_bytes(
                dump.kept_as, heard.data, pod=dump.pod.name, read_from=dump.path, captured=True
            )
        else:
            refused[heard.failed].append((dump.rank, ""))
    late = [(one.dump.rank, "") for one in asked if one.dump.rank not in done]
    if late:
        refused[capture_stacks.LATE].extend(late)
    dump_gaps.tell(refused, sink, what="fresh dump", settles=SETTLES)


def _fresh(api: Api, asked: _Asked, until: Deadline) -> Heard:
    """Ask one rank, and wait for a dump that is newer than the question and written to its end."""
    pod, path = asked.dump.pod, asked.dump.path
    is_pipe = exec_socket.run(api, pod, ("test", "-p", asked.pipe))
    if is_pipe.failed is not None:
        return Heard(data=b"", failed=_no_pipe(is_pipe.failed))
    before = _state(api, pod, path)
    write = ("dd", "if=/dev/zero", f"of={asked.pipe}", "bs=1", "count=1")
    written = exec_socket.run(api, pod, ("timeout", _WRITE_S, *write))
    if written.failed is not None:
        return Heard(data=b"", failed=f"nobody reads its pipe: {written.failed}")
    last = before
    while not until.is_over():
        until.pause(POLL_S)
        now = _state(api, pod, path)
        if now is not None and now != before and now == last:
            found = exec_socket.run(api, pod, ("cat", path))
            if found.failed is None and not found.data:
                return Heard(data=b"", failed=EMPTY)
            return found
        last = now
    return Heard(data=b"", failed="asked by its pipe, and no dump came: it does not answer")


def _no_pipe(said: str) -> str:
    if said.startswith((exec_socket.NOT_ALLOWED, "exec ", "the image has no")):
        return said
    return "it made no pipe (torch through 2.10 wants TORCH_NCCL_TRACE_BUFFER_SIZE above 0)"


def _state(api: Api, pod: Pod, path: str) -> bytes | None:
    """Time and size of the file, by the container's own clock; None where it is not there."""
    heard = exec_socket.run(api, pod, ("stat", "-c", "%y %s", path))
    return None if heard.failed is not None else heard.data
