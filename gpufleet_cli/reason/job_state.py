"""Whether the job has stopped. "Stopped" needs positive evidence; quiet logs alone are `unknown`.

Evidence that counts: all rank containers terminated, this attempt's own abort or exit lines, a
Flight Recorder dump that the timeout wrote, the scheduler's word. A step completed after the
complaints means that the job goes on without the rank (elastic, torchft, NCCL shrink): running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpufleet_cli.facts import (
    ContainerState,
    JobNumbers,
    LogSign,
    Origin,
    PodState,
    SchedulerJob,
    Sign,
    WatchdogTimeout,
)
from gpufleet_cli.reason import pauses
from gpufleet_cli.reason.placed import NS, Pause, Placed, Steps, Stop
from gpufleet_cli.reason.recorder_finding import GraphFinding, Stall
from gpufleet_cli.verdict import JobState, Proof

ABORT_SIGNS = frozenset(
    {
        Sign.ABORT,
        Sign.ROOT_CAUSE_BLOCK,
        Sign.CHILD_FAILED,
        Sign.AGENT_TOLD_TO_STOP,
        Sign.JOB_CANCELLED,
        Sign.TASK_EXIT,
        Sign.FATAL_SIGNAL,
        Sign.NODE_FAILED,
    }
)
FAILED_STATES = frozenset(
    {
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "TIMEOUT",
        "CANCELLED",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
    }
)
KNOWN_STATES = frozenset(state.value for state in JobState if state is not JobState.UNKNOWN)


def judge(
    *,
    given: Sequence[JobNumbers],
    signs: Sequence[Placed[LogSign]],
    timeouts: Sequence[Placed[WatchdogTimeout]],
    steps: Steps,
    pods: Sequence[PodState],
    scheduler: Sequence[SchedulerJob],
    graph: GraphFinding | None,
    as_of_ns: int | None,
    pause: Pause | None = None,
    dumped: Sequence[int] = (),
) -> Stop:
    """The state of the job, with the line that says so. `dumped`: the newest times in its dumps."""
    for numbers in given:
        if numbers.state is not None and numbers.state in KNOWN_STATES:
            state = JobState(numbers.state)
            return _stop(state, f"as given by {numbers.source}", numbers.origin, None, "hint")
    finished = [s for s in signs if s.fact.sign is Sign.FINISHED]
    ended = _latest(signs, timeouts)
    gone = _containers(pods)
    if finished and _all_finished(finished, timeouts):
        proof: Proof = "hint" if gone is None else "terminated"
        first_end = finished[0].fact.origin
        return _stop(JobState.EXITED, "the training loop finished", first_end, ended, proof)
    aborts = [s for s in signs if s.fact.sign in ABORT_SIGNS]
    if _goes_on(steps, [*aborts, *timeouts]):
        return _stop(
            JobState.RUNNING, "steps were completed after the complaints", steps.last_origin, None
        )
    if gone is not None:
        return _stop(JobState.ABORTED, gone[0], gone[1], gone[2] or ended, "terminated")
    failed = [j for j in scheduler if (j.state or "").split(" ")[0].rstrip("+") in FAILED_STATES]
    if failed:
        job = failed[0]
        return _stop(JobState.ABORTED, f"the scheduler says {job.state}", job.origin, job.ended_ns)
    if aborts:
        first = min(aborts, key=lambda p: (p.at_ns or 0, str(p.fact.origin)))
        return _stop(JobState.ABORTED, "the attempt's own abort lines", first.fact.origin, ended)
    if timeouts:
        first_timeout = min(timeouts, key=lambda p: (p.at_ns or 0, str(p.fact.origin)))
        return _stop(
            JobState.STALLED, "watchdogs gave up on a collective", first_timeout.fact.origin, None
        )
    stalled = None if graph is None else _recorded_stall(graph)
    if stalled is not None:
        is_old = _before_all(pods, dumped)
        return replace(stalled, proof="older-attempt") if is_old else stalled
    crashed = [s for s in signs if _is_death(s.fact)]
    last_step = steps.last_step_ns
    after = [s for s in crashed if s.at_ns is not None and last_step and s.at_ns >= last_step]
    if crashed and (after or not _is_fresh(steps, as_of_ns)):
        first = min(crashed, key=lambda p: (p.at_ns or 0, str(p.fact.origin)))
        why = "a rank ended with an error"
        return _stop(JobState.ABORTED, why, first.fact.origin, ended, "hint")
    if _is_fresh(steps, as_of_ns):
        return _stop(
            JobState.RUNNING, "the last step is within its rhythm", steps.last_origin, None
        )
    if pause is not None:
        return _stop(JobState.RUNNING, pause.why, pause.origin, None)
    if graph is not None and graph.is_live:
        first_claim = graph.no_fault_claims[0]
        return _stop(JobState.RUNNING, first_claim.text, first_claim.origin, None)
    return _stop(JobState.UNKNOWN, "nothing shows that it stopped", None, None)


def _recorded_stall(graph: GraphFinding) -> Stop | None:
    """A recorder entry older than its timeout; or dumps (which the timeout writes) without a time in
    them, in which most ranks wait, directly or through others, for ranks that are behind."""
    if graph.timed_out_origin is not None:
        return _stop(
            JobState.STALLED,
            "a recorder entry is older than its timeout",
            graph.timed_out_origin,
            None,
            "recorder",
        )
    by_order = graph.stall is Stall.BY_ORDER and not graph.no_fault
    read = sum(
        w.standing not in ("missing", "unreadable", "stale") for w in graph.standing.values()
    )
    if by_order and graph.roots and graph.blocked * 2 > read:
        first = graph.roots[0].claims
        return _stop(
            JobState.STALLED,
            f"{graph.blocked} of {read} ranks with a dump wait for ranks that are behind",
            first[0].origin if first else None,
            None,
            "recorder",
        )
    return None


def _before_all(pods: Sequence[PodState], dumped: Sequence[int]) -> bool:
    """Whether every dump ends before any container of these pods began: left by an earlier run in its place."""
    began = [
        c.started_ns for pod in pods for c in _rank_containers(pod) if c.started_ns is not None
    ]
    return bool(began and dumped) and max(dumped) < min(began)


def _is_death(sign: LogSign) -> bool:
    if sign.sign in (Sign.RENDEZVOUS_FAILED, Sign.CUDA_OOM, Sign.MISMATCH):
        return True
    return (sign.sign is Sign.CLIENTS_JOINED and (sign.joined or 0) < (sign.expected or 0)) or (
        sign.sign is Sign.PYTHON_EXCEPTION
    )


def _stop(
    state: JobState,
    why: str,
    origin: Origin | None,
    ended_ns: int | None,
    proof: Proof = "own-lines",
) -> Stop:
    stopped = state in (JobState.STALLED, JobState.ABORTED, JobState.EXITED)
    return Stop(
        state=state,
        why=why,
        origin=origin,
        ended_ns=ended_ns,
        stopped=stopped,
        proof=proof if stopped else None,
    )


def _latest(
    signs: Sequence[Placed[LogSign]], timeouts: Sequence[Placed[WatchdogTimeout]]
) -> int | None:
    times = [s.at_ns for s in signs if s.at_ns is not None]
    times += [t.at_ns for t in timeouts if t.at_ns is not None]
    return max(times, default=None)


def _all_finished(
    finished: Sequence[Placed[LogSign]], timeouts: Sequence[Placed[WatchdogTimeout]]
) -> bool:
    """Finished before any timeout: what comes after is teardown."""
    done = max((p.at_ns for p in finished if p.at_ns is not None), default=None)
    first = min((p.at_ns for p in timeouts if p.at_ns is not None), default=None)
    return first is None or done is None or done <= first


def _containers(pods: Sequence[PodState]) -> tuple[str, Origin, int | None] | None:
    """All rank containers terminated: a rank's life is its GPU container's, never the pod's phase."""
    states: list[tuple[ContainerState, PodState]] = []
    for pod in pods:
        rank_containers = _rank_containers(pod)
        if not rank_containers:
            return None
        states.extend((container, pod) for container in rank_containers)
    if not states or any(c.state != "terminated" for c, _pod in states):
        return None
    ended = max((c.finished_ns for c, _p in states if c.finished_ns is not None), default=None)
    return "all rank containers have terminated", states[0][1].origin, ended


def _rank_containers(pod: PodState) -> list[ContainerState]:
    """Every container with GPUs, each of which may hold ranks; without any, the one that looks like it."""
    with_gpus = [one for one in pod.containers if one.has_gpu]
    return with_gpus or [one for one in pod.containers if one.name == pod.rank_container]


def _goes_on(steps: Steps, complaints: Sequence[Placed[LogSign] | Placed[WatchdogTimeout]]) -> bool:
    """Three steps after a complaint cannot come from a job that stopped, whatever its clocks do."""
    surely_ns = [p.at_ns + p.clock_error_s * NS for p in complaints if p.at_ns is not None]
    if not surely_ns or steps.last_step_ns is None:
        return False
    pace = max(steps.interval_s or 0.0, steps.step_s or 0.0, 1.0)
    return (steps.last_step_ns - min(surely_ns)) / NS > 3 * pace + 5.0


def _is_fresh(steps: Steps, as_of_ns: int | None) -> bool:
    """The last step line is no older than the job's own rhythm of printing them."""
    age, limit = pauses.age_s(steps, as_of_ns), pauses.rhythm_s(steps)
    return age is not None and limit is not None and age <= limit
