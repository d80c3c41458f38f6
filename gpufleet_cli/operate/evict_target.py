"""Which gang `evict` means: a job by name or by labels, or the one that holds a node.

What is torn down is always the highest object that its makers would not put right again: the JobSet of a
Job, the RayJob of a RayCluster.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from gpufleet_cli.errors import Refused, SourceError, TargetError, UsageError
from gpufleet_cli.live import find_job, groups, kinds, node_gangs, node_look
from gpufleet_cli.live.answers import why_not
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.find_job import Job, Wanted
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.node_gangs import JobRef
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.operate import tear_down
from gpufleet_cli.operate.tear_down import SLURM_GROUPS
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.plain_text import is_name

_KUEUE_VERSIONS = ("v1beta2", "v1beta1")
_NAMED_SO = "gpufleet evict KIND/NAME -n NAMESPACE, evict node/NAME, or -l LABELS for plain pods"
_POD_GROUP = "kueue.x-k8s.io/pod-group-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """What was meant, in the words in which the finder finds it again. `node`: the node that was named."""

    wanted: Wanted
    node: str | None = None

    @property
    def words(self) -> str:
        """As it is typed behind `gpufleet evict`."""
        wanted = self.wanted
        what = wanted.target or f"-l {shlex.quote(wanted.selector or '')}"
        return f"{what} -n {wanted.namespace}" if wanted.namespace else what


def meant(api: Api, word: str | None, selector: str | None, namespace: str | None) -> Meant | None:
    """None where a node is named that no gang holds."""
    if selector is not None:
        if word is not None:
            raise UsageError("JOB and -l are two ways to say one thing", hint="give one of them")
        return _by_labels(api, selector, namespace)
    if word is None:
        raise UsageError("Missing argument 'JOB'", hint="NAME, KIND/NAME, node/NAME, or -l LABELS")
    kind, _, name = word.partition("/") if "/" in word else ("", "", word)
    if not is_name(name):
        raise UsageError(f"{word!r} is no name of a job or node")
    if kind in ("node", "nodes", "no"):
        return _of_node(api, name)
    if kind:
        return _of_job(find_job.find(api, Wanted(target=word, selector=None, namespace=namespace)))
    return _bare(api, word, namespace)


def found(api: Api, which: Meant) -> Job:
    """The job as it is now, its newest attempt alone; of a LeaderWorkerSet the pods of the ill group."""
    return find_job.find(api, which.wanted)


def newest_pods(
    api: Api, job: Job, *, number: int | None = None, group_of: frozenset[str] = frozenset()
) -> tuple[Pod, ...]:
    """The pods of the newest attempt; where there are groups, of one: `number`, or that of the uids `group_of`."""
    if not job.attempts:
        return ()
    attempt = replace(job.attempts[-1], pods=_own(job, job.attempts[-1].pods))
    if not attempt.pods:
        return ()
    if not group_of or not any(groups.GROUP in pod.marks for pod in attempt.pods):
        return groups.one_world(api, job, attempt, number).attempt.pods
    chosen = {pod.marks.get(groups.GROUP) for pod in attempt.pods if pod.state.uid in group_of}
    return tuple(pod for pod in attempt.pods if pod.marks.get(groups.GROUP) in chosen)


def _own(job: Job, pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """Without pods that another job made, whatever labels somebody has put on them. Where none is left, what is between
    them and the job could not be read, and says nothing."""
    if job.kind is None:
        return tuple(pods)
    owners = {uid: one for one in job.objects if (uid := js.text_at(one, "metadata", "uid"))}
    own = JobRef(namespace=job.namespace, kind=job.kind.kind, name=job.name)
    refs = ((pod, node_gangs.job_of(pod, owners)) for pod in pods)
    kept = tuple(pod for pod, ref in refs if ref == own or ref.job_kind is None)
    return kept or tuple(pods)


def workloads(api: Api, job: Job) -> Sequence[Object] | None:
    """Kueue's Workloads of a job; empty where it is not queued, None where it is and none was found."""
    if job.kind is None or not _is_queued(job):
        return ()
    for version in _KUEUE_VERSIONS:
        listed = api.list(
            f"/apis/kueue.x-k8s.io/{version}/namespaces/{job.namespace}/workloads",
            {"labelSelector": f"kueue.x-k8s.io/job-uid={job.uid}"},
            kind="workloads",
        )
        if listed.ok:
            head = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": "Workload"}
            every = [{**head, **js.mapping(msgspec.json.decode(raw))} for raw in listed.items]
            return [one for one in every if _owns(job, one)] or None
    return None


def _owns(job: Job, workload: Object) -> bool:
    """By its owner reference: a label may be anybody's, and what is deactivated is what Kueue finds there."""
    refs = js.items(js.at(workload, "metadata", "ownerReferences"))
    return any(js.text_at(one, "uid") == job.uid for one in refs)


def _is_queued(job: Job) -> bool:
    """By the labels that Kueue reads on the job itself, or leaves on its pods."""
    tops = [tear_down.top_of(job), *(pod.raw for pod in job.pods[:1])]
    return any(
        key in ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/managed", "kueue.x-k8s.io/podset")
        for one in tops
        for key in js.mapping(js.at(one, "metadata", "labels"))
    )


# --- By name --------------------------------------------------------------------------------------


def _bare(api: Api, name: str, namespace: str | None) -> Meant | None:
    answer = api.get(f"{node_look.NODES}/{name}", kind="nodes", tries=3)
    if answer.status in (0, 401) or answer.status >= 500:
        raise SourceError(f"cannot look for {name}: {why_not(answer, 'nodes')}")
    try:
        job = find_job.find(api, Wanted(target=name, selector=None, namespace=namespace))
    except TargetError as exc:
        if answer.ok:
            return _of_node(api, name)
        if exc.hint != find_job.NAMED_SO:
            raise
        no_node = ", and no node of that name" if answer.status == 404 else ""
        raise TargetError(f"{exc.message}{no_node}", hint=_NAMED_SO) from exc
    if answer.ok:
        kind = "job" if job.kind is None else job.kind.kind.lower()
        raise UsageError(
            f"{name} is both a job and a node", hint=f"say {kind}/{name} or node/{name}"
        )
    return _of_job(job)


def _of_job(job: Job) -> Meant:
    assert job.kind is not None
    top = tear_down.top_of(job)
    for owner in js.items(js.at(top, "metadata", "ownerReferences")):
        version, kind = js.text_at(owner, "apiVersion") or "", js.text_at(owner, "kind") or ""
        above = kinds.kind_of(version, kind)
        if js.at(owner, "controller") is True and above is not None:
            name = js.text_at(owner, "name") or "?"
            raise UsageError(
                f"{job.shown} is a part of {above.kind} {name}, which would put it right again",
                hint=f"gpufleet evict {above.kind.lower()}/{name} -n {job.namespace}",
            )
    return _named(job.kind.kind, job.name, job.namespace)


def _named(kind: str, name: str, namespace: str) -> Meant:
    target = f"{kind.lower()}/{name}"
    return Meant(wanted=Wanted(target=target, selector=None, namespace=namespace))


# --- By labels and by node ------------------------------------------------------------------------


def _by_labels(api: Api, selector: str, namespace: str | None) -> Meant:
    job = find_job.find(api, Wanted(target=None, selector=selector, namespace=namespace))
    owners = {uid: one for one in job.objects if (uid := js.text_at(one, "metadata", "uid"))}
    refs = sorted({node_gangs.job_of(pod, owners) for pod in job.pods})
    known = [one for one in refs if one.job_kind is not None]
    if not known:
        _one_gang(job, selector, owners)
        wanted = Wanted(target=None, selector=selector, namespace=job.namespace)
        return Meant(wanted=wanted)
    if len(refs) > 1:
        raise Refused(f"-l {selector} finds pods of several jobs: {_shown(refs)}", hint="name one")
    return _named(known[0].kind, known[0].name, known[0].namespace)


def _one_gang(job: Job, selector: str, owners: dict[str, Object]) -> None:
    """Refused where labels by which people tell jobs apart differ among plain pods; those for roles (`app`) may, once
    the selector names a job itself."""
    words = selector.replace("==", "=").split(",")
    names_one = any(word.partition("=")[0].strip() in node_gangs.PLAIN_LABELS for word in words)
    apart = node_gangs.STRONG_LABELS if names_one else node_gangs.PLAIN_LABELS
    told = sorted(
        {f"{key}={pod.marks[key]}" if key is not None else "none" for pod in job.pods
         for key in (next((key for key in apart if pod.marks.get(key)), None),)}
    )  # fmt: skip
    if len(told) > 1:
        shown = ", ".join(told[:6]) + (", ..." if len(told) > 6 else "")
        raise Refused(
            f"-l {selector} finds pods of several jobs: {shown}",
            hint=f"name one: gpufleet evict -l {shlex.quote(told[0])} -n {job.namespace}",
        )


def _of_node(api: Api, node: str) -> Meant | None:
    card = node_look.look_at(api, node)
    unread = [one for one in card.missing if one.what.startswith("pods")]
    if unread:
        raise SourceError(f"cannot tell which gang holds {node}: {unread[0].what}: {unread[0].why}")
    held = [gang for gang in card.gangs if not gang.is_over]
    if not held:
        return None
    refs = [JobRef(namespace=one.namespace, kind=one.kind, name=one.name) for one in held]
    if len(refs) > 1:
        first = _named(refs[0].kind, refs[0].name, refs[0].namespace).words
        raise Refused(
            f"several gangs hold {node}: {_shown(refs)}", hint=f"name one: gpufleet evict {first}"
        )
    return replace(_of_ref(refs[0], node), node=node)


def _of_ref(ref: JobRef, node: str) -> Meant:
    if ref.job_kind is not None:
        return _named(ref.kind, ref.name, ref.namespace)
    if ref.kind == "PodGroup":
        selector = f"{_POD_GROUP}={ref.name}"
        return Meant(wanted=Wanted(target=None, selector=selector, namespace=ref.namespace))
    if ref.kind == "NodeSet":
        raise Refused(
            f"{node} holds a Slurm node ({SLURM_GROUPS[0]} {ref.name}): evicting it kills every"
            " Slurm job on it",
            hint="in Slurm: scancel JOBID, or scontrol update nodename=... state=drain",
        )
    raise Refused(
        f"{ref.kind} {ref.namespace}/{ref.name} on {node} is no job of a known kind, and its gang is"
        " not told by the node",
        hint=f"say which pods are one gang: gpufleet evict -l LABELS -n {ref.namespace}",
    )


def _shown(refs: Sequence[JobRef]) -> str:
    names = [f"{one.kind.lower()}/{one.name} -n {one.namespace}" for one in refs]
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
