"""Names that a live run met, for completion."""

from __future__ import annotations

from collections.abc import Iterable

from gpufleet_cli.live import node_gangs, node_look
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.name_cache import Names
from gpufleet_cli.node_card import Missing, NodeCard
from gpufleet_cli.parsers import json_documents as js


def of_cards(cards: Iterable[NodeCard]) -> Names:
    """Nodes and the jobs on them."""
    seen = tuple(cards)
    jobs = sorted({(gang.name, gang.namespace) for one in seen for gang in one.gangs})
    return Names(nodes=[one.name for one in seen], jobs=jobs)


def everywhere(api: Api) -> tuple[Names, tuple[Missing, ...]]:
    """All nodes, the jobs whose pods are there, all namespaces that may be read."""
    missing: list[Missing] = []
    lists = {
        path: api.list(path, kind=path.rpartition("/")[2])
        for path in (node_look.NODES, "/api/v1/pods", "/api/v1/namespaces")
    }
    for path, listed in lists.items():
        if not listed.ok:
            missing.append(Missing(what=path.rpartition("/")[2], why=listed.answer.message))
    pods = node_look.pods_with_gpus(lists["/api/v1/pods"].items)
    jobs = sorted(
        {(job.name, job.namespace) for pod in pods for job in [node_gangs.job_of(pod, {})]}
    )
    names = Names(
        nodes=[node_look.name_of(raw) for raw in lists[node_look.NODES].items],
        jobs=jobs,
        namespaces=[node_look.name_of(raw) for raw in lists["/api/v1/namespaces"].items],
    )
    return names, tuple(missing)


def of_pods(nodes: Iterable[str | None], job: str, namespace: str) -> Names:
    """A job that was looked at, and its nodes."""
    return Names(
        nodes=sorted({one for one in nodes if one}),
        jobs=[(job, namespace)],
        namespaces=[js.text(namespace) or "default"],
    )
