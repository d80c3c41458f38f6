"""By what means a gang of each kind is torn down: its controller's own, so that its object stays and it can be
resumed; where there is none, the eviction API, pod by pod. Pure: objects in, a plan out.

    Job, JobSet, TrainJob, RayCluster   spec.suspend
    RayJob                              spec.suspend, which KubeRay takes with shutdownAfterJobFinishes alone
    PyTorchJob, MPIJob                  spec.runPolicy.suspend
    Volcano Job                         a Command AbortJob, as `vcctl job suspend` makes it
    under Kueue                         spec.active of its Workload: Kueue would lift a suspend of ours at once
    LeaderWorkerSet                     eviction of the group's pods: it has no suspend, and a scale to 0 would take
                                        every group and change what its owner wrote
    plain pods, and pods that a job which is over left running: eviction
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.pods import Object, Pod
from gpufleet_cli.live.rights import Right
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_gangs import is_over

OPERATOR = "gpufleet-operator"
MOST_NAMES = 16
"""So many pods are named in a command; more go by their labels."""
_SUSPEND: Mapping[str, tuple[str, ...]] = {
    "Job": ("spec", "suspend"),
    "JobSet": ("spec", "suspend"),
    "TrainJob": ("spec", "suspend"),
    "RayJob": ("spec", "suspend"),
    "RayCluster": ("spec", "suspend"),
    "PyTorchJob": ("spec", "runPolicy", "suspend"),
    "MPIJob": ("spec", "runPolicy", "suspend"),
}
SLURM_GROUPS = ("slinky.slurm.net", "slurm.nebius.ai")
COMMANDS = "bus.volcano.sh/v1alpha1"
Means = Literal["suspend", "deactivate", "abort", "evict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How this gang goes down. `path` is the object that is patched (or where the Command is made), `field` what is
    set in it to `value`; `undo` the command that starts it again, None where its owner does. `blocked` is why
    the means does not work, and `by_hand` the command that a person may still run."""

    means: Means
    right: Right
    says: str
    by_hand: str
    path: str = ""
    field: tuple[str, ...] = ()
    value: bool = True
    undo: str | None = None
    blocked: str | None = None

    @property
    def is_one_by_one(self) -> bool:
        return self.means == "evict"

    @property
    def change(self) -> dict[str, object]:
        """The merge patch."""
        return nested(self.field, self.value)


def nested(field: Sequence[str], value: object) -> dict[str, object]:
    """`("spec", "suspend"), True` as an object."""
    found: object = value
    for key in reversed(field):
        found = {key: found}
    assert isinstance(found, dict)
    return found


def plan(job: Job, *, workloads: Sequence[Object] | None) -> Plan:
    """The plan. `workloads` are Kueue's of this job; None where it is queued and none was found."""
    if job.kind is None:
        return _evictions(job, "plain pods are evicted one by one")
    top, kind = top_of(job), job.kind.kind
    if is_over(top):
        return _evictions(job, f"the {kind} is over: pods that it left are evicted one by one")
    if kind == "LeaderWorkerSet":
        return _evictions(
            job, "the group's pods are evicted; its controller makes them anew at once"
        )
    if kind == "VolcanoJob":
        return _abort(job, top)
    if workloads is None or workloads:
        return _deactivate(job, top, list(workloads or ()))
    return _suspend(job, top)


def top_of(job: Job) -> Object:
    """The job's own object."""
    return next(
        (one for one in job.objects if js.text_at(one, "metadata", "uid") == job.uid),
        job.objects[0] if job.objects else {},
    )


def is_down(top: Object, planned: Plan) -> bool:
    """Whether the means has been used already."""
    return bool(planned.field) and js.at(top, *planned.field) is planned.value


def who_makes(job: Job) -> tuple[Literal["known", "slinky", "other"], str]:
    """Whether the pods' maker is one whose means we know; of another its KIND/NAME."""
    for pod in job.pods:
        for owner in js.items(js.at(pod.raw, "metadata", "ownerReferences")):
            version = js.text_at(owner, "apiVersion") or ""
            kind, name = js.text_at(owner, "kind") or "?", js.text_at(owner, "name") or "?"
            if version.partition("/")[0] in SLURM_GROUPS or kind == "NodeSet":
                return "slinky", f"{kind}/{name}"
            if js.at(owner, "controller") is True and job.kind is None and kind != "Node":
                return "other", f"{kind}/{name}"
    return "known", ""


def loses(pods: Sequence[Pod], *, one_by_one: bool) -> list[str]:
    """What goes with the pods, in words to be read before it is done."""
    left = [pod for pod in pods if not pod.state.terminating]
    how = "are evicted" if one_by_one else "are deleted by their controller"
    lines = [f"{len(left)} pods {how}, and with each its logs as the cluster keeps them"]
    volumes = {
        js.text_at(one, "name") or "?"
        for pod in left
        for one in js.items(js.at(pod.raw, "spec", "volumes"))
        if isinstance(one, dict) and "emptyDir" in one
    }
    if volumes:
        shown = ", ".join(sorted(volumes)[:4])
        lines.append(f"emptyDir volumes go too ({shown}): dumps and checkpoints in them")
    lines.append("checkpoints in memory or on the pods' own disks die with them")
    return lines


def idle_grace(pods: Sequence[Pod]) -> tuple[int, float]:
    """(seconds, GPU-hours) that a hung gang may still hold its GPUs after it was told to end."""
    graces = [
        (js.integer(js.at(pod.raw, "spec", "terminationGracePeriodSeconds")) or 0, pod)
        for pod in pods
        if pod.is_running
    ]
    hours = sum(grace * (pod.state.gpus or 0) for grace, pod in graces) / 3600
    return max((grace for grace, _ in graces), default=0), round(hours, 2)


# --- The kinds ------------------------------------------------------------------------------------


def _resource(job: Job) -> str:
    """`jobsets.jobset.x-k8s.io`, which means one thing to kubectl whatever else is installed."""
    assert job.kind is not None
    return f"{job.kind.plural}.{job.kind.group}"


def _right(job: Job, verb: str, resource: str, group: str) -> Right:
    return Right(
        verb=verb, resource=resource, group=group, namespace=job.namespace,
        loses="tearing the gang down", role=OPERATOR,
    )  # fmt: skip


def patch_command(what: str, name: str, namespace: str, field: Sequence[str], value: bool) -> str:
    """kubectl's patch of one boolean field."""
    body = "true" if value else "false"
    for key in reversed(field):
        body = f'{{"{key}":{body}}}'
    scope = f"-n {shlex.quote(namespace)}"
    return f"kubectl patch {what} {shlex.quote(name)} {scope} --type merge -p '{body}'"


def _version(top: Object, job: Job) -> str:
    assert job.kind is not None
    return js.text_at(top, "apiVersion") or f"{job.kind.group}/{job.kind.versions[0]}"


def _suspend(job: Job, top: Object) -> Plan:
    assert job.kind is not None
    field = _SUSPEND[job.kind.kind]
    what = _resource(job)
    blocked = None
    by_hand = patch_command(what, job.name, job.namespace, field, True)
    if job.kind.kind == "RayJob" and js.at(top, "spec", "shutdownAfterJobFinishes") is not True:
        blocked = "KubeRay suspends a RayJob only with shutdownAfterJobFinishes: true"
        by_hand = f"kubectl delete {what} {shlex.quote(job.name)} -n {shlex.quote(job.namespace)}"
    version = _version(top, job)
    return Plan(
        means="suspend",
        right=_right(job, "patch", job.kind.plural, job.kind.group),
        says=f"{job.kind.kind} {job.name}: {'.'.join(field)} is set to true",
        by_hand=by_hand,
        path=f"/apis/{version}/namespaces/{job.namespace}/{job.kind.plural}/{job.name}",
        field=field,
        undo=patch_command(what, job.name, job.namespace, field, False),
        blocked=blocked,
    )


def _deactivate(job: Job, top: Object, workloads: list[Object]) -> Plan:
    field = ("spec", "active")
    one = workloads[0] if len(workloads) == 1 else {}
    name = js.text_at(one, "metadata", "name") or "WORKLOAD"
    version = js.text_at(one, "apiVersion") or "kueue.x-k8s.io/v1beta1"
    what = "workloads.kueue.x-k8s.io"
    blocked = None
    if not one:
        count = f"it has {len(workloads)} Workloads" if workloads else "its Workload was not found"
        blocked = f"Kueue runs it and would lift a suspend of ours at once, and {count}"
    return Plan(
        means="deactivate",
        right=_right(job, "patch", "workloads", "kueue.x-k8s.io"),
        says=f"Kueue's Workload {name}: spec.active is set to false; Kueue suspends the job",
        by_hand=patch_command(what, name, job.namespace, field, False)
        if one
        else _suspend(job, top).by_hand,
        path=f"/apis/{version}/namespaces/{job.namespace}/workloads/{name}",
        field=field,
        value=False,
        undo=patch_command(what, name, job.namespace, field, True),
        blocked=blocked,
    )


def _abort(job: Job, top: Object) -> Plan:
    name, space = shlex.quote(job.name), shlex.quote(job.namespace)
    return Plan(
        means="abort",
        right=_right(job, "create", "commands", COMMANDS.partition("/")[0]),
        says=f"Volcano is told to abort Job {job.name}",
        by_hand=f"vcctl job suspend -N {name} -n {space}",
        path=f"/apis/{COMMANDS}/namespaces/{job.namespace}/commands",
        undo=f"vcctl job resume -N {name} -n {space}",
    )


def _evictions(job: Job, says: str) -> Plan:
    what = f"-n {shlex.quote(job.namespace)}"
    names = " ".join(shlex.quote(pod.name) for pod in job.pods)
    if len(job.pods) > MOST_NAMES and job.selector is not None:
        names = f"-l {shlex.quote(job.selector)}"
    by_hand = f"kubectl delete pod {names} {what}"
    if job.kind is not None and job.kind.kind == "LeaderWorkerSet":
        by_hand = f"kubectl scale {_resource(job)} {shlex.quote(job.name)} {what} --replicas=0"
    return Plan(
        means="evict",
        right=_right(job, "create", "pods/eviction", ""),
        says=says,
        by_hand=by_hand,
    )


def command_of(job: Job) -> dict[str, object]:
    """Volcano's Command object."""
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": job.name,
        "uid": job.uid,
        "controller": True,
    }
    return {
        "apiVersion": COMMANDS,
        "kind": "Command",
        "metadata": {
            "generateName": f"{job.name}-abortjob-",
            "namespace": job.namespace,
            "ownerReferences": [owner],
        },
        "action": "AbortJob",
        "target": owner,
        "reason": "gpufleet",
    }
