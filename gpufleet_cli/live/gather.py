"""Everything about one attempt into a bundle: objects first, then logs, then dumps. Judges nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import msgspec

from gpufleet_cli.facts import Gap
from gpufleet_cli.live import first_facts, pod_logs, queues, rights, threads
from gpufleet_cli.live.answers import why_not
from gpufleet_cli.live.api import Api, Listed
from gpufleet_cli.live.bundle_writer import BundleWriter, stamp
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.first_facts import Node
from gpufleet_cli.live.log_tasks import tasks_of
from gpufleet_cli.live.pods import Attempt, Object, Pod
from gpufleet_cli.parsers import json_documents as js

FEW_NODES = 48
"""So many nodes are read one by one; more by listing all of the cluster."""
MOST_EVENTS = 20_000
RIGHTS_S = 1.0
"""So long the logs wait for what our rights are: their reviews began before the first facts were read."""
PODS_FILE = "kubernetes/pods.json"
NODES_FILE = "kubernetes/nodes.json"
EVENTS_FILE = "kubernetes/events.json"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Who is told: of lines that are certain already, and of pieces of work (how many, one done)."""

    say: Callable[[str], None]
    begin: Callable[[int], None]
    done: Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What was had: world size where known, and whether somebody interrupted."""

    ranks: int | None
    interrupted: bool


def gather(
    api: Api,
    job: Job,
    attempt: Attempt,
    sink: BundleWriter,
    hooks: Hooks,
    sources: Sources,
    asked: rights.Round | None = None,
) -> Gathered:
    """Gather one attempt. Ctrl-C ends the gathering, and what is there stays.

    `asked` are reviews of our rights, under way beside the first reads: what they say comes after the
    first facts, or at the end.
    """
    interrupted = False
    beside: list[threads.Beside[None]] = []
    for gap in job.gaps:
        _add(sink, gap)
    ranks = world_size(job, attempt)
    sink.about |= _about(api, job, attempt, ranks, sink)
    try:
        nodes = _objects(api, job, attempt, sink)
        sink.write_manifest(complete=False)
        for line in first_facts.lines(attempt.pods, nodes, job.gang, api.now_ns()):
            hooks.say(f"provisional: {line}")
        sink.about["seconds"] = took = {"first_facts": round(api.deadline.elapsed_s(), 3)}
        beside += [
            threads.Beside(partial(one, api, job, attempt, sink), deadline=api.deadline)
            for one in (_add_events, *sources.beside)
        ]
        _rights(asked, sink, hooks, wait_s=RIGHTS_S)
        _logs(api, attempt, nodes, sink, hooks)
        took["logs"] = round(api.deadline.elapsed_s(), 3)
        for source in sources.after:
            source(api, job, attempt, sink)
        for one in beside:
            one.result()
        took["all"] = round(api.deadline.elapsed_s(), 3)
    except KeyboardInterrupt:
        api.deadline.stop()
        interrupted = True
        for one in beside:
            one.settle()
        sink.gap("the rest of the evidence", "interrupted", "all that is not in the bundle")
    if not interrupted and api.deadline.is_over():
        sink.gap(
            "what was not there by the deadline",
            f"--deadline of {api.deadline.seconds:g} s" if api.deadline.seconds else "stopped",
            "all that is not in the bundle",
        )
    _rights(asked, sink, hooks, wait_s=0.0)
    _count_gang(job, attempt, sink)
    sink.about["requests"] = dict(sorted(api.requests.items()))
    if api.throttled:
        sink.about["throttled"] = api.throttled
    sink.write_manifest(complete=not interrupted)
    return Gathered(ranks=ranks, interrupted=interrupted)


Source = Callable[[Api, Job, Attempt, BundleWriter], None]
"""A further source of evidence: dumps, metrics, a log store."""


class Sources(NamedTuple):
    """Those that need no log of the cluster, asked beside the logs, and those that come after them."""

    beside: tuple[Source, ...]
    after: tuple[Source, ...]


def _rights(asked: rights.Round | None, sink: BundleWriter, hooks: Hooks, *, wait_s: float) -> None:
    """What will not be seen for want of a right, said now and kept with the bundle."""
    if asked is None:
        return
    refused = asked.refused(wait_s)
    rights.tell(refused, hooks.say)
    for one in refused:
        right = one.right
        sink.gap(f"the right to {right.shown}", f"not granted ({right.role})", right.loses)


def _add(sink: BundleWriter, gap: Gap) -> None:
    sink.gap(gap.what, gap.why, gap.would_settle)


def world_size(job: Job, attempt: Attempt) -> int | None:
    """Ranks of the gang, where pods that hold GPUs say how many processes each has."""
    return ranks_in(attempt.pods, job.gang)


def ranks_in(pods: Sequence[Pod], gang: int | None) -> int | None:
    """Ranks of so many pods of which these are the ones that are there."""
    sizes = [p.state.nproc or p.state.gpus for p in pods if p.state.gpus]
    known = [size for size in sizes if size]
    if not known:
        return None
    stated = max((pod.state.nnodes or 0 for pod in pods), default=0)
    count = max(len(known), gang or 0, stated)
    return sum(known) if count == len(known) else count * max(known)


def _about(
    api: Api, job: Job, attempt: Attempt, ranks: int | None, sink: BundleWriter
) -> dict[str, object]:
    access = api.access
    before = sink.before.get("captured_at")
    return {
        "captured_at": before or stamp(api.now_ns()),
        "job": job.name,
        "namespace": job.namespace,
        "kind": None if job.kind is None else job.kind.kind,
        "selector": job.selector,
        "uid": job.uid,
        "gang": job.gang,
        "world_size": ranks,
        "attempt": attempt.number,
        "attempts": [
            {
                "attempt": one.number,
                "state": one.state,
                "started_at": stamp(one.started_ns),
                "ended_at": stamp(one.ended_ns),
            }
            for one in job.attempts
        ],
        "pods": sorted(pod.state.uid or pod.name for pod in attempt.pods),
        "server": access.server,
        "server_version": api.server_version,
        "context": access.context,
        "user": access.user,
        "access": access.how,
    }


# --- Objects --------------------------------------------------------------------------------------


def _objects(api: Api, job: Job, attempt: Attempt, sink: BundleWriter) -> dict[str, Node]:
    """Pods with their owners, nodes with their leases; the nodes for those who come next."""
    pods = [{"apiVersion": "v1", "kind": "Pod", **pod.raw} for pod in attempt.pods]
    if sink.has(PODS_FILE):
        sink.learn([*job.objects, *pods])
    else:
        sink.add_objects(PODS_FILE, [*job.objects, *queues.beside(api, job, sink), *pods])
    names = sorted({pod.state.node for pod in attempt.pods if pod.state.node is not None})
    if sink.has(NODES_FILE):
        document = msgspec.json.decode(sink.read(NODES_FILE))
        objects = [js.mapping(one) for one in js.items(js.at(document, "items"))]
    else:
        leases = threads.Beside(lambda: _leases(api, names, sink), deadline=api.deadline)
        objects = [*_nodes(api, names, sink), *(leases.result() or ())]
        if objects:
            sink.add_objects(NODES_FILE, objects)
    return first_facts.nodes_of(objects)


def _add_events(api: Api, job: Job, attempt: Attempt, sink: BundleWriter) -> None:
    if sink.has(EVENTS_FILE):
        return
    names = {pod.state.node for pod in attempt.pods if pod.state.node is not None}
    events = _events(api, job, attempt, names, sink)
    if events:
        sink.add_objects(EVENTS_FILE, events)


def _items(listed: Listed) -> list[Object]:
    return [js.mapping(msgspec.json.decode(raw)) for raw in listed.items]


def _nodes(api: Api, names: Sequence[str], sink: BundleWriter) -> list[Object]:
    return _named(
        api, names, "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node"}, sink,
        settles="whether a node is dead, cordoned or lost a GPU",
    )  # fmt: skip


def _leases(api: Api, names: Sequence[str], sink: BundleWriter) -> list[Object]:
    return _named(
        api, names, LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}, sink,
        settles="when a node died",
    )  # fmt: skip


def _named(
    api: Api,
    names: Sequence[str],
    path: str,
    head: dict[str, str],
    sink: BundleWriter,
    *,
    settles: str,
) -> list[Object]:
    """Objects of these names: one by one where they are few, else from the whole list."""
    if not names:
        return []
    plural = path.rsplit("/", 1)[-1]
    found: dict[str, Object] = {}
    refused: dict[str, str] = {}
    if len(names) > FEW_NODES:
        listed = api.list(path, kind=plural)
        wanted = set(names)
        for one in _items(listed):
            name = js.text_at(one, "metadata", "name")
            if name in wanted:
                found[str(name)] = one
        if not listed.ok:
            refused = {plural: why_not(listed.answer, plural)}
    else:
        asked = threads.each(
            lambda name: api.get(f"{path}/{name}", kind=plural),
            names,
            threads=api.threads,
            deadline=api.deadline,
        )
        for name, answer in asked:
            if answer.ok and not answer.cut:
                found[name] = js.mapping(msgspec.json.decode(answer.body))
            else:
                refused[name] = why_not(answer, plural)
    reasons = set(refused.values())
    if len(reasons) == 1 and len(refused) > 1:
        sink.gap(f"{plural} of {len(refused)} nodes", reasons.pop(), settles)
    else:
        for name, why in refused.items():
            sink.gap(f"{plural.removesuffix('s')} {name}", why, settles)
    for name in names:
        if name not in found and not refused and not api.deadline.is_over():
            sink.gap(f"{plural.removesuffix('s')} {name}", "not in the list: gone", settles)
    return [{**head, **found[name]} for name in sorted(found)]


def _events(
    api: Api, job: Job, attempt: Attempt, nodes: set[str], sink: BundleWriter
) -> list[Object]:
    """Events of the job's pods and owners, and of its nodes (by name; those stand in `default`)."""
    names = {pod.name for pod in attempt.pods}
    names |= {n for one in job.objects if (n := js.text_at(one, "metadata", "name"))} | {job.name}
    found: list[Object] = []
    space = f"/api/v1/namespaces/{job.namespace}/events"
    own = api.list(space, kind="events")
    _note(own, f"events of {job.namespace}", sink)
    for one in _items(own):
        about = js.text_at(one, "involvedObject", "name") or ""
        if about in names or about.startswith(f"{job.name}-"):
            found.append(one)
    if nodes:
        query = {"fieldSelector": "involvedObject.kind=Node"}
        theirs = api.list("/api/v1/namespaces/default/events", query, kind="events")
        _note(theirs, "events of nodes", sink)
        found += [
            one for one in _items(theirs) if js.text_at(one, "involvedObject", "name") in nodes
        ]
    head = {"apiVersion": "v1", "kind": "Event"}
    return [{**head, **one} for one in found[-MOST_EVENTS:]]


def _note(listed: Listed, what: str, sink: BundleWriter) -> None:
    if not listed.ok or listed.note:
        why = why_not(listed.answer, "events") if not listed.ok else listed.note or ""
        sink.gap(what, why, "who removed, evicted or could not place a pod")


# --- Logs, gang -----------------------------------------------------------------------------------


def _logs(
    api: Api, attempt: Attempt, nodes: dict[str, Node], sink: BundleWriter, hooks: Hooks
) -> None:
    now = api.now_ns()
    suspects = frozenset(name for name, node in nodes.items() if node.is_suspect(now))
    tasks = tasks_of(attempt.pods, suspects)
    hooks.begin(len(tasks))
    pod_logs.gather(api, tasks, sink, hooks.done)
    asked = {task.pod for task in tasks}
    for pod in attempt.pods:
        if pod.name not in asked:
            sink.gap(f"log of {pod.name}", _why_silent(pod), "whether it ever ran")


def _why_silent(pod: Pod) -> str:
    if pod.state.scheduled is False:
        return f"it is not scheduled: {(pod.state.unscheduled_why or 'no reason given')[:160]}"
    waiting = next((c for c in pod.state.containers if c.state == "waiting"), None)
    if waiting is not None:
        return f"its container has not started: {waiting.reason or 'waiting'}"
    return "no container of it has started"


def _count_gang(job: Job, attempt: Attempt, sink: BundleWriter) -> None:
    held = [p for p in attempt.pods if p.state.gpus] or list(attempt.pods)
    if job.gang is not None and len(held) < job.gang:
        sink.gap(
            f"{job.gang - len(held)} of {job.gang} pods of the gang",
            "no such pods in the cluster: gone, or never made",
            "what their ranks did",
        )
