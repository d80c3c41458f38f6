"""Pods that the cluster no longer has: what their controller called them, and when they lived.

A log store keeps their lines under names that nobody can list any more. A name's beginning alone would join jobs:
`train-` begins the pods of `train` and those of the job `train-2`. Naming: the controllers' sources (batch/v1 Job,
JobSet v1alpha2, training-operator 1.9, mpi-operator v2beta1, LeaderWorkerSet v1, Volcano, KubeRay v1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.pods import Attempt
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_pods import time_of

NS = 1_000_000_000
SLACK_NS = 60 * NS
"""A node's clock may be behind the API server's."""
_RANDOM = "[a-z0-9]{5}"
_FAILED = ("Failed", "FailureTarget")
_ENDED = (*_FAILED, "Complete", "Completed", "Succeeded", "Finished")


def names(job: Job) -> re.Pattern[str]:
    """What matches the whole name of a pod of this job and no pod of another."""
    top: Object = job.objects[0] if job.objects else {}
    own = re.escape(job.name)
    return re.compile(own + _rest("pods" if job.kind is None else job.kind.kind, top), re.ASCII)


def _rest(kind: str, top: Object) -> str:
    """What stands behind the job's own name."""
    match kind:
        case "Job":
            mode = js.text_at(top, "spec", "completionMode")
            index = {"Indexed": r"\d{1,6}-", "NonIndexed": ""}.get(mode or "", r"(?:\d{1,6}-)?")
            return f"-{index}{_RANDOM}"
        case "JobSet":
            groups = _one_of(_named(js.at(top, "spec", "replicatedJobs")))
            return rf"-{groups}-\d{{1,6}}-(?:\d{{1,6}}-)?{_RANDOM}"
        case "TrainJob":  # its JobSet's groups are its runtime's
            return rf"-[a-z][a-z0-9-]{{0,40}}-\d{{1,6}}-(?:\d{{1,6}}-)?{_RANDOM}"
        case "PyTorchJob":
            roles = js.mapping(js.at(top, "spec", "pytorchReplicaSpecs"))
            return rf"-{_one_of(role.lower() for role in roles)}-\d{{1,6}}"
        case "MPIJob":
            return rf"-(?:worker-\d{{1,6}}|launcher(?:-{_RANDOM})?)"
        case "LeaderWorkerSet":
            return r"-\d{1,6}(?:-\d{1,6})?"
        case "VolcanoJob":
            return rf"-{_one_of(_named(js.at(top, 'spec', 'tasks')))}-\d{{1,6}}"
        case "RayJob":
            return rf"-(?:raycluster-)?{_RANDOM}(?:-[a-z0-9-]{{1,60}})?"
        case "RayCluster":
            return r"-(?:[a-z0-9-]{1,40}-)?(?:head|worker)(?:-[a-z0-9-]{1,20})?"
        case _:
            return r"-\d{1,6}"


def _named(entries: object) -> Iterable[str]:
    return (name for one in js.items(entries) if (name := js.text_at(one, "name")) is not None)


def _one_of(words: Iterable[str]) -> str:
    shown = "|".join(sorted(re.escape(word) for word in words))
    return f"(?:{shown})" if shown else "[a-z][a-z0-9]{0,40}"


# --- When -----------------------------------------------------------------------------------------


def began_ns(job: Job, attempt: Attempt) -> int | None:
    """Before this nothing was written by pods of this attempt: those of an attempt before it have the same names."""
    made = [time_of(js.at(one, "metadata", "creationTimestamp")) for one in job.objects[:1]]
    own = [attempt.started_ns] if attempt.number else made
    known = [at for at in own if at is not None]
    return min(known) - SLACK_NS if known else None


def attempt_of(job: Job) -> Attempt:
    """The attempt of a job without a pod, as its own object tells it."""
    top: Object = job.objects[0] if job.objects else {}
    started = time_of(js.at(top, "status", "startTime"))
    conditions = [
        one
        for one in js.items(js.at(top, "status", "conditions"))
        if js.text_at(one, "status") == "True" and js.text_at(one, "type") in _ENDED
    ]
    ends = [time_of(js.at(one, "lastTransitionTime")) for one in conditions]
    ends.append(time_of(js.at(top, "status", "completionTime")))
    known = [at for at in ends if at is not None]
    has_failed = any(js.text_at(one, "type") in _FAILED for one in conditions)
    return Attempt(
        number=0,
        pods=(),
        state="failed" if has_failed else "exited" if known else "pending",
        started_ns=started or time_of(js.at(top, "metadata", "creationTimestamp")),
        ended_ns=max(known, default=None),
    )
