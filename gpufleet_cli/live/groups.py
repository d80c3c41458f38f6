"""A LeaderWorkerSet is several gangs: each group is a world of its own, with a rank 0 of its own.

The group that is ill is the subject; the others are named, with the selector that asks about one of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from gpufleet_cli.facts import Gap
from gpufleet_cli.live import pod_logs
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.pods import Attempt, Pod
from gpufleet_cli.parsers import json_documents as js

_LWS = "leaderworkerset.sigs.k8s.io"
GROUP = f"{_LWS}/group-index"


def one_world(api: Api, job: Job, attempt: Attempt) -> tuple[Job, Attempt, str | None]:
    """Job and attempt with the pods of one group alone, and what is to be said of it."""
    groups: dict[int, list[Pod]] = defaultdict(list)
    for pod in attempt.pods:
        index = js.integer(pod.marks.get(GROUP))
        if index is None:
            return job, attempt, None
        groups[index].append(pod)
    size = size_of_group(attempt.pods)
    if len(groups) < 2:
        return replace(job, gang=size or job.gang), attempt, None
    chosen = _ill(api, groups)
    others = sorted(set(groups) - {chosen})
    gaps = [_gap(job, index, chosen) for index in others]
    return (
        replace(job, gang=size or job.gang, gaps=(*job.gaps, *gaps)),
        replace(attempt, pods=tuple(groups[chosen])),
        f"group {chosen} of {len(groups)} groups, each a world of its own",
    )


def size_of_group(pods: Sequence[Pod]) -> int | None:
    """Pods of one group, as each of them says."""
    return next(
        (size for pod in pods if (size := js.integer(pod.marks.get(f"{_LWS}/size"))) is not None),
        None,
    )


def _ill(api: Api, groups: dict[int, list[Pod]]) -> int:
    """The group in which something failed or cannot start, else one that wrote nothing for long, else the
    first."""
    for is_ill in (_has_failed, _is_not_whole):
        found = sorted(index for index, pods in groups.items() if is_ill(pods))
        if found:
            return found[0]
    now = api.now_ns()
    stalled = (index for index in sorted(groups) if pod_logs.is_stalled(api, groups[index], now))
    return next(stalled, min(groups))


def _has_failed(pods: Sequence[Pod]) -> bool:
    return any(pod.has_failed or any(one.restarts for one in pod.state.containers) for pod in pods)


def _is_not_whole(pods: Sequence[Pod]) -> bool:
    return any(pod.state.phase == "Pending" for pod in pods)


def _gap(job: Job, index: int, chosen: int) -> Gap:
    return Gap(
        what=f"group {index} of {job.name}",
        why=f"each group is a world of its own; this is of group {chosen}",
        would_settle=f"how that group is: gpufleet triage -l {_LWS}/name={job.name},{GROUP}={index}"
        f" -n {job.namespace}",
    )
