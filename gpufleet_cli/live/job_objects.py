"""A job's own objects, and what stands beside them in its namespace: budgets, autoscalers, policies, Services.

Reads alone, each list by itself: one that is not installed costs nothing, one that may not be read is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from gpufleet_cli.live import find_job, reach, restart_room, threads
from gpufleet_cli.live.answers import why_not
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.find_job import Job, Wanted
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.node_look import NODES
from gpufleet_cli.live.session import LiveOptions
from gpufleet_cli.node_card import Spares
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.restart_room import MOST_NODES

BESIDE = (
    ("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    ("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    ("autoscaling.k8s.io/v1", "verticalpodautoscalers", "VerticalPodAutoscaler"),
    ("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy"),
    ("v1", "services", "Service"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobObjects:
    """`objects`: the job's first; `unread`: (what, why) of what may not be read; `spares`: for nodes that hold
    a pod of it, whether it places without them."""

    namespace: str
    objects: tuple[Object, ...]
    unread: tuple[tuple[str, str], ...]
    told: str
    spares: Mapping[str, Spares]


def read(options: LiveOptions) -> JobObjects:
    """Find the job and read what belongs to it."""
    deadline = Deadline(options.deadline_s)
    reached = reach.reached(
        kubeconfig=options.kubeconfig, context=options.context, deadline=deadline
    )
    api = reached.api
    wanted = Wanted(
        target=options.target,
        selector=options.selector,
        namespace=options.namespace,
        is_whole=True,
    )
    job = find_job.find(api, wanted)
    objects = list(job.objects) or [pod.raw for pod in job.pods]
    unread: list[tuple[str, str]] = []
    asked = threads.each(
        lambda one: _listed(api, job, *one), BESIDE, threads=len(BESIDE), deadline=deadline
    )
    answered = {}
    for (_, plural, _), (found, why) in asked:
        answered[plural] = found
        if why is not None:
            unread.append((plural, why))
    for _, plural, _ in BESIDE:
        if plural not in answered:
            unread.append((plural, "no answer in time"))
        objects += answered.get(plural, [])
    objects += _runtime(api, job, unread)
    return JobObjects(
        namespace=job.namespace,
        objects=tuple(_typed(one) for one in objects),
        unread=tuple(sorted(unread)),
        told=reached.told,
        spares=_spares(api, job),
    )


def _spares(api: Api, job: Job) -> Mapping[str, Spares]:
    """Asked of a gang whose pods have nodes; of the others nothing can be lost yet."""
    if not job.attempts:
        return {}
    newest = job.attempts[-1]
    names = sorted({pod.state.node for pod in newest.pods if pod.state.node is not None})
    asked = threads.each(
        lambda name: api.get(f"{NODES}/{name}", kind="nodes"),
        names[:MOST_NODES], threads=api.threads, deadline=api.deadline,
    )  # fmt: skip
    nodes = [js.mapping(_decoded(answer.body)) for _, answer in asked if answer.ok]
    return restart_room.without_each(api, job, newest, nodes)[0]


def _typed(one: Object) -> Object:
    """A pod of a list has no type of its own."""
    return one if "kind" in one else {"apiVersion": "v1", "kind": "Pod", **one}


def _listed(
    api: Api, job: Job, version: str, plural: str, kind: str
) -> tuple[list[Object], str | None]:
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    listed = api.list(f"{root}/namespaces/{job.namespace}/{plural}", kind=plural)
    found: list[Object] = [
        {"apiVersion": version, "kind": kind, **js.mapping(_decoded(raw))} for raw in listed.items
    ]
    if listed.ok or listed.answer.status == 404:
        return found, None
    return found, why_not(listed.answer, plural)


def _runtime(api: Api, job: Job, unread: list[tuple[str, str]]) -> list[Object]:
    """The runtime that a TrainJob names: most of its pod template stands there."""
    if job.kind is None or job.kind.kind != "TrainJob" or not job.objects:
        return []
    ref = js.mapping(js.at(job.objects[0], "spec", "runtimeRef"))
    name, kind = js.text(ref.get("name")), js.text(ref.get("kind")) or "ClusterTrainingRuntime"
    version = js.text_at(job.objects[0], "apiVersion") or "trainer.kubeflow.org/v1alpha1"
    space = "" if kind.startswith("Cluster") else f"namespaces/{job.namespace}/"
    if name is None:
        return []
    answer = api.get(f"/apis/{version}/{space}{kind.lower()}s/{name}", kind="runtime")
    if answer.ok:
        return [{"apiVersion": version, "kind": kind, **js.mapping(_decoded(answer.body))}]
    if answer.status != 404:
        unread.append((f"{kind} {name}", why_not(answer, "runtime")))
    return []


def _decoded(raw: bytes | msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
