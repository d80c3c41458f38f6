"""What `label-gangs` asks of the API server: pods that are or serve a gang, the jobs' objects, the marks.

All of it by pages; of nodes the metadata alone. What could not be read whole is said, and nothing may be
concluded from what is not in it: see `Held.spaces`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import gang_look, held_gangs, threads
from gpufleet_cli.live.answers import why_not
from gpufleet_cli.live.api import METADATA_ONLY, Api
from gpufleet_cli.live.held_gangs import Gang
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.node_look import GPU_MARKS, NODES, by_namespace
from gpufleet_cli.live.pods import pods_of
from gpufleet_cli.live.troubles import hint_of
from gpufleet_cli.node_card import Missing
from gpufleet_cli.parsers import json_documents as js

_PODS = {
    "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
    "labelSelector": "!pod-template-generation",
}
# bytes of the pods that matter: with GPUs, or a head, a launcher, a submitter without one
_GANG_MARKS = (
    *GPU_MARKS, b"training.kubeflow.org/job-name", b"ray.io/cluster", b"jobset.sigs.k8s.io/jobset-name",
    b"volcano.sh/job-name", b"leaderworkerset.sigs.k8s.io/name", b"ray-job-submitter",
)  # fmt: skip


class NodeMeta(msgspec.Struct, frozen=True, kw_only=True):
    """A node without its spec and status."""

    name: str
    uid: str = ""
    resourceVersion: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Node(msgspec.Struct):
    metadata: NodeMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The gangs of a cluster. `spaces`: the namespaces that were read, None for all of them."""

    gangs: tuple[Gang, ...]
    others: int = 0
    spaces: frozenset[str] | None = None
    missing: tuple[Missing, ...] = field(default=())


def look(api: Api, namespace: str | None) -> Held:
    """All gangs. SourceError where the pods could not be read whole: nothing can be told then."""
    where = f"/namespaces/{namespace}" if namespace else ""
    missing: list[Missing] = []
    objects = threads.Beside(
        lambda: gang_look.job_objects(api, where, missing), deadline=api.deadline
    )
    raws, spaces = _pods(api, namespace, missing)
    made = objects.result()
    if made is None:
        raise SourceError(
            "the jobs could not be read by the deadline", hint="--deadline 5m waits longer"
        )
    owners = {uid: one.found for one in made if (uid := js.text_at(one.found, "metadata", "uid"))}
    every = held_gangs.found_in(pods_of(raws), owners)
    with_gpus = [one for one in every if one.gpus]
    gangs = tuple(one for one in with_gpus if one.is_gang)
    return Held(
        gangs=gangs,
        others=len(with_gpus) - len(gangs),
        spaces=frozenset({namespace}) if namespace else spaces,
        missing=tuple(missing),
    )


def _pods(
    api: Api, namespace: str | None, missing: list[Missing]
) -> tuple[list[Object], frozenset[str] | None]:
    """The pods that matter here, and of which namespaces they are where not all may be read."""
    where = f"/namespaces/{namespace}" if namespace else ""
    listed = api.list(f"/api/v1{where}/pods", _PODS, kind="pods")
    if listed.ok and not listed.note:
        return _decoded(listed.items), None
    if listed.answer.status == 403 and namespace is None:
        found, readable = by_namespace(api, _PODS)
        if readable:
            shown = ", ".join(readable[:4]) + (" and more" if len(readable) > 4 else "")
            why = (
                f"not allowed in all namespaces; read in {shown}; other marks are left as they are"
            )
            missing.append(Missing(what="pods of other namespaces", why=why))
            return found, frozenset(readable)
    why = listed.note or why_not(listed.answer, "pods")
    raise SourceError(
        f"the pods could not be read whole: {why}; nothing is marked",
        hint=hint_of(why) or "needs list on pods (gpufleet-reader)",
    )


def _decoded(raws: Iterable[msgspec.Raw]) -> list[Object]:
    found = []
    for raw in raws:
        if any(mark in bytes(raw) for mark in _GANG_MARKS):
            try:
                found.append(js.mapping(msgspec.json.decode(raw)))
            except (msgspec.DecodeError, ValueError, RecursionError):
                continue
    return found


# --- Nodes ----------------------------------------------------------------------------------------


def nodes(api: Api) -> dict[str, NodeMeta]:
    """The metadata of all nodes, by name. SourceError where they could not be read whole."""
    listed = api.list(NODES, kind="nodes", accept=METADATA_ONLY)
    if not listed.ok or listed.note:
        why = listed.note or why_not(listed.answer, "nodes")
        raise SourceError(
            f"the nodes could not be read whole: {why}; nothing is marked",
            hint=hint_of(why) or "needs list on nodes (gpufleet-reader)",
        )
    found = (meta for raw in listed.items if (meta := meta_of(raw)) is not None)
    return {meta.name: meta for meta in found}


def node(api: Api, name: str) -> NodeMeta | None:
    """One node as it is now; None where it is gone or was not to be had."""
    answer = api.get(f"{NODES}/{name}", kind="nodes", tries=3)
    return meta_of(answer.body) if answer.ok else None


def meta_of(raw: bytes | msgspec.Raw) -> NodeMeta | None:
    try:
        return msgspec.json.decode(raw, type=_Node).metadata
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
