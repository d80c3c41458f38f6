"""What holds a gang back, read beside it: Kueue's Workload, Volcano's PodGroup, and its own `suspend`."""

from __future__ import annotations

import msgspec

from gpufleet_cli.live.answers import why_not
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.bundle_writer import BundleWriter
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.kinds import POD_GROUP, Object
from gpufleet_cli.live.pods import Attempt
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_gangs import is_over, is_suspended, why_refused

NONE_YET = Attempt(number=0, pods=(), state="pending", started_ns=None, ended_ns=None)
"""Of a job that is held back before it has pods."""
_KUEUE_VERSIONS = ("v1beta2", "v1beta1")


def is_held(api: Api, job: Job) -> bool:
    """Whether a job without pods is one that waits, and not one whose pods are gone."""
    if any(is_suspended(one) for one in job.objects):
        return True
    if job.kind is not None and job.kind.kind == "VolcanoJob":
        return True
    return not any(is_over(one) for one in job.objects) and _is_refused(api, job)


def _is_refused(api: Api, job: Job) -> bool:
    """Whether its controller was told that it may not make pods, as an event of the last hour has it."""
    listed = api.list(
        f"/api/v1/namespaces/{job.namespace}/events",
        {"fieldSelector": "type=Warning"},
        kind="events",
    )
    owners = {js.text_at(one, "metadata", "uid") for one in job.objects} - {None}
    for raw in listed.items:
        event = js.mapping(msgspec.json.decode(raw))
        told = js.text_at(event, "reason") or "", js.text_at(event, "message") or ""
        if js.text_at(event, "involvedObject", "uid") in owners and why_refused(*told):
            return True
    return False


def beside(api: Api, job: Job, sink: BundleWriter) -> list[Object]:
    """The objects of queues that belong to the job; a queue that is not installed has none."""
    if job.uid is None:
        return _of_pod_group(api, job)
    if job.kind is not None and job.kind.kind == "VolcanoJob":
        return _pod_groups(api, job)
    return _workloads(api, job, sink) if _is_queued(job) else []


def _is_queued(job: Job) -> bool:
    return any(
        "kueue.x-k8s.io" in key
        for one in (*job.objects, *(pod.raw for pod in job.pods[:1]))
        for key in (
            *js.mapping(js.at(one, "metadata", "labels")),
            *js.mapping(js.at(one, "metadata", "annotations")),
        )
    )


def _workloads(api: Api, job: Job, sink: BundleWriter) -> list[Object]:
    for version in _KUEUE_VERSIONS:
        listed = api.list(
            f"/apis/kueue.x-k8s.io/{version}/namespaces/{job.namespace}/workloads",
            {"labelSelector": f"kueue.x-k8s.io/job-uid={job.uid}"},
            kind="workloads",
        )
        if listed.ok:
            head = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": "Workload"}
            return [{**head, **js.mapping(msgspec.json.decode(raw))} for raw in listed.items]
    sink.gap(
        "Kueue's workload", why_not(listed.answer, "workloads"), "why the gang is not admitted"
    )
    return []


def _of_pod_group(api: Api, job: Job) -> list[Object]:
    """The Workload of plain pods that Kueue admits together: it has their group's name."""
    groups = {group for pod in job.pods if (group := pod.marks.get(POD_GROUP))}
    for version in _KUEUE_VERSIONS if len(groups) == 1 else ():
        root = f"/apis/kueue.x-k8s.io/{version}/namespaces/{job.namespace}/workloads"
        answer = api.get(f"{root}/{next(iter(groups))}", kind="workloads")
        if answer.ok:
            head = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": "Workload"}
            return [{**head, **js.mapping(msgspec.json.decode(answer.body))}]
    return []


def _pod_groups(api: Api, job: Job) -> list[Object]:
    """The one of the job's name and uid, or (older) of its name alone."""
    version = "scheduling.volcano.sh/v1beta1"
    for name in (f"{job.name}-{job.uid}", job.name):
        answer = api.get(
            f"/apis/{version}/namespaces/{job.namespace}/podgroups/{name}", kind="podgroups"
        )
        if answer.ok:
            found = js.mapping(msgspec.json.decode(answer.body))
            return [{"apiVersion": version, "kind": "PodGroup", **found}]
    return []
