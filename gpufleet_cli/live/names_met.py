"""Names that a live run met, for completion."""

from __future__ import annotations

from collections.abc import Iterable

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import node_gangs, node_look
from gpufleet_cli.live.answers import why_not
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.name_cache import KINDS, Names
from gpufleet_cli.live.pods import pods_of
from gpufleet_cli.live.troubles import hint_of
from gpufleet_cli.node_card import Missing, NodeCard
from gpufleet_cli.parsers import json_documents as js


def of_cards(cards: Iterable[NodeCard]) -> Names:
    """Nodes and the jobs on them."""
    seen = tuple(cards)
    jobs = sorted({(gang.name, gang.namespace) for one in seen for gang in one.gangs})
    return Names(nodes=[one.name for one in seen], jobs=jobs)


def everywhere(api: Api) -> tuple[Names, frozenset[str], tuple[Missing, ...]]:
    """All nodes, the jobs whose pods are there, all namespaces that may be read; of which kinds these are all,
    and what was not had. SourceError where nothing was."""
    paths = dict(zip(KINDS, (node_look.NODES, "/api/v1/pods", "/api/v1/namespaces"), strict=True))
    lists = {kind: api.list(path, kind=path.rpartition("/")[2]) for kind, path in paths.items()}
    missing = [
        Missing(what=f"{kind}s", why=why_not(listed.answer, f"{kind}s"))
        for kind, listed in lists.items()
        if not listed.ok
    ]
    pods = node_look.pods_with_gpus(lists["job"].items)
    if lists["job"].answer.status == 403:  # whoever may read some namespaces has jobs there
        found = node_look.by_namespace(api, {})[0]
        pods = [pod for pod in pods_of(found) if pod.state.gpus]
    if len(missing) == len(KINDS) and not pods:
        raise SourceError(
            f"no names could be fetched: {missing[0].why}", hint=hint_of(missing[0].why)
        )
    jobs = sorted(
        {(job.name, job.namespace) for pod in pods for job in [node_gangs.job_of(pod, {})]}
    )
    names = Names(
        nodes=[node_look.name_of(raw) for raw in lists["node"].items],
        jobs=jobs,
        namespaces=[node_look.name_of(raw) for raw in lists["namespace"].items],
    )
    whole = frozenset(kind for kind, listed in lists.items() if listed.ok and not listed.note)
    return names, whole, tuple(missing)


def of_pods(nodes: Iterable[str | None], job: str, namespace: str) -> Names:
    """A job that was looked at, and its nodes."""
    return Names(
        nodes=sorted({one for one in nodes if one}),
        jobs=[(job, namespace)],
        namespaces=[js.text(namespace) or "default"],
    )
