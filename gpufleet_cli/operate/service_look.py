"""What the gate of the return to service is judged by, from what was read of a node and its metrics."""

from __future__ import annotations

from collections.abc import Iterable

from gpufleet_cli.errors import SourceError
from gpufleet_cli.facts import ClusterEvent, Origin
from gpufleet_cli.live import node_gangs
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.node_look import addresses_of
from gpufleet_cli.live.node_view import Seen
from gpufleet_cli.live.node_watch import NodeWatch, Watched
from gpufleet_cli.node_card import NodeCard
from gpufleet_cli.operate.cordon_facts import Marks
from gpufleet_cli.operate.service_gate import ServiceFacts
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers import kubernetes_events
from gpufleet_cli.parsers.kubernetes_pods import time_of

NO_METRICS = "no --prometheus is given, and no known one is among the Services"


def facts(
    api: Api,
    seen: Seen,
    card: NodeCard,
    marks: Marks | None,
    watch: NodeWatch | None,
    *,
    xid_free_s: float,
    diagnostics: str | None,
) -> ServiceFacts:
    """The facts of one node, now."""
    cordoned_ns = None if marks is None else marks.at_ns
    watched, why = _watched(api, seen, watch, xid_free_s)
    return ServiceFacts(
        now_ns=card.read_at_ns,
        cordoned_ns=cordoned_ns,
        created_ns=card.created_ns,
        rebooted_ns=_newest(seen, ("Rebooted",)),
        kubelet_ns=_newest(seen, ("Starting",)),
        runs_since=_runs_since(seen, cordoned_ns),
        ready=card.ready,
        is_silent=card.is_silent,
        bad=tuple(f"{one.kind}={one.status}" for one in card.bad if one.kind != "Ready"),
        capacity=card.gpus.capacity,
        allocatable=card.gpus.allocatable,
        watched=watched,
        why_not_watched=why,
        xid_free_s=xid_free_s,
        diagnostics=diagnostics,
    )


def _watched(
    api: Api, seen: Seen, watch: NodeWatch | None, span_s: float
) -> tuple[Watched | None, str]:
    if watch is None:
        return None, NO_METRICS
    try:
        return watch(seen.name, addresses_of(seen.node), api.now_ns(), span_s), ""
    except SourceError as exc:
        return None, exc.message


def _newest(seen: Seen, reasons: Iterable[str]) -> int | None:
    wanted = set(reasons)
    times = [
        fact.at_ns
        for one in seen.events
        for fact in kubernetes_events.read(one, Origin(path="events"))
        if isinstance(fact, ClusterEvent) and fact.reason in wanted and fact.at_ns is not None
    ]
    return max(times, default=None)


def _runs_since(seen: Seen, cordoned_ns: int | None) -> str | None:
    """A job with GPUs that has run there since before the cordon: nothing was reset under it."""
    by_uid = {uid: one for one in seen.owners if (uid := js.text_at(one, "metadata", "uid"))}
    for pod in seen.pods or ():
        started_ns = time_of(js.at(pod.raw, "status", "startTime"))
        if not pod.state.gpus or pod.state.phase != "Running" or cordoned_ns is None:
            continue
        if started_ns is not None and started_ns < cordoned_ns:
            job = node_gangs.job_of(pod, by_uid)
            return f"{job.namespace}/{job.name}"
    return None
