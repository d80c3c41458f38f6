"""A LeaderWorkerSet is several gangs: each group is a world of its own, with a rank 0 of its own.

A group that is ill is the subject, else the one that `--group` says; the others are named, those that are ill
too first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpufleet_cli.errors import UsageError
from gpufleet_cli.facts import Gap
from gpufleet_cli.live import pod_logs, threads
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.pods import Attempt, Pod
from gpufleet_cli.parsers import json_documents as js

_LWS = "leaderworkerset.sigs.k8s.io"
GROUP = f"{_LWS}/group-index"
ILL = ("failed", "pending", "stalled")
"""Worst first."""
MOST_ASKED = 64
MOST_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is looked at. `told` is for a person, `about` for the manifest."""

    job: Job
    attempt: Attempt
    told: str | None = None
    about: Mapping[str, object] = field(default_factory=dict)


def one_world(api: Api, job: Job, attempt: Attempt, number: int | None = None) -> World:
    """Job and attempt with the pods of one group alone: `number`, else one that is ill."""
    groups = _groups(attempt.pods)
    if number is not None and number not in groups:
        raise _no_group(job, number, groups)
    if not groups:
        return World(job=job, attempt=attempt)
    size = size_of_group(attempt.pods)
    if len(groups) < 2:
        return World(job=replace(job, gang=size or job.gang), attempt=attempt)
    states = _states(api, groups)
    chosen = _ill(states) if number is None else number
    others = sorted(set(groups) - {chosen}, key=lambda index: (states[index] not in ILL, index))
    gaps = [_gap(job, index, chosen, states[index]) for index in others]
    return World(
        job=replace(job, gang=size or job.gang, gaps=(*job.gaps, *gaps)),
        attempt=replace(attempt, pods=tuple(groups[chosen])),
        told=_told(chosen, states),
        about={
            "group": chosen,
            "groups": [{"group": i, "state": state} for i, state in sorted(states.items())],
        },
    )


def only(job: Job, number: int) -> Job:
    """The job with the pods of that group alone, of its newest attempt; nothing is asked."""
    newest = job.attempts[-1] if job.attempts else None
    groups = _groups(job.pods if newest is None else newest.pods)
    if number not in groups:
        raise _no_group(job, number, groups)
    pods = tuple(groups[number])
    return replace(
        job,
        pods=pods,
        gang=size_of_group(pods) or job.gang,
        attempts=() if newest is None else (replace(newest, pods=pods),),
    )


def _groups(pods: Sequence[Pod]) -> dict[int, list[Pod]]:
    """The pods by their group; none where one has none."""
    groups: dict[int, list[Pod]] = defaultdict(list)
    for pod in pods:
        index = js.integer(pod.marks.get(GROUP))
        if index is None:
            return {}
        groups[index].append(pod)
    return groups


def _no_group(job: Job, number: int, groups: Mapping[int, object]) -> UsageError:
    there = ", ".join(map(str, sorted(groups)[:12]))
    if not there:
        return UsageError(f"--group {number}: {job.shown} has no groups (a LeaderWorkerSet has)")
    return UsageError(f"no group {number} of {job.shown}; there are: {there}")


def _told(chosen: int, states: Mapping[int, str]) -> str:
    """`group 1 of 4 groups, each a world of its own; ill too: 2 (failed), 3 (stalled): --group 2`."""
    ill = [index for index in sorted(states) if states[index] in ILL and index != chosen]
    told = f"group {chosen} of {len(states)} groups, each a world of its own"
    if not ill:
        return told
    shown = ", ".join(f"{index} ({states[index]})" for index in ill[:MOST_SHOWN])
    more = f" and {len(ill) - MOST_SHOWN} more" if len(ill) > MOST_SHOWN else ""
    return f"{told}; ill too: {shown}{more}; --group {ill[0]} chooses it"


def size_of_group(pods: Sequence[Pod]) -> int | None:
    """Pods of one group, as each of them says."""
    return next(
        (size for pod in pods if (size := js.integer(pod.marks.get(f"{_LWS}/size"))) is not None),
        None,
    )


def _states(api: Api, groups: Mapping[int, list[Pod]]) -> dict[int, str]:
    """How each group is, as far as its pods and the newest lines of a few of them tell."""
    found = {
        index: "failed"
        if _has_failed(pods)
        else "pending"
        if _is_not_whole(pods)
        else "not looked at"
        for index, pods in groups.items()
    }
    quiet = [index for index in sorted(found) if found[index] not in ILL][:MOST_ASKED]
    now = api.now_ns()
    asked = threads.each(
        lambda index: pod_logs.is_stalled(api, groups[index], now),
        quiet,
        threads=min(api.threads, 8),
        deadline=api.deadline,
    )
    return found | {index: "stalled" if is_so else "running" for index, is_so in asked}


def _ill(states: Mapping[int, str]) -> int:
    """The first group in which something failed, else one that cannot start, else one that wrote nothing
    for long, else the first."""
    return min(states, key=lambda index: (*(states[index] != one for one in ILL), index))


def _has_failed(pods: Sequence[Pod]) -> bool:
    return any(pod.has_failed or any(one.restarts for one in pod.state.containers) for pod in pods)


def _is_not_whole(pods: Sequence[Pod]) -> bool:
    return any(pod.state.phase == "Pending" for pod in pods)


def _gap(job: Job, index: int, chosen: int, state: str) -> Gap:
    how = f"it is ill too ({state}), and " if state in ILL else ""
    return Gap(
        what=f"group {index} of {job.name}",
        why=f"{how}each group is a world of its own; this is of group {chosen}",
        would_settle="how that group is: gpufleet triage"
        f" leaderworkerset/{job.name} -n {job.namespace} --group {index}",
    )
