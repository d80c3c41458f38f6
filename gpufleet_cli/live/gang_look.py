"""`gpufleet` alone: pods, job objects, nodes and leases of a cluster side by side, then a few last lines.

Pods of DaemonSets are most of a large cluster's and never a gang's: their `pod-template-generation` label
keeps them out of the answer. Pods that ended well are left out too. What is not there by the deadline is
said, and nothing is concluded from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from gpufleet_cli.errors import SourceError
from gpufleet_cli.gang_card import Gangs, MarkedNode
from gpufleet_cli.live import gang_nodes, gang_view, kinds, log_depth, served_kinds, threads
from gpufleet_cli.live.answers import LogRead, read_log
from gpufleet_cli.live.api import Api, Listed
from gpufleet_cli.live.gang_view import Group, Made
from gpufleet_cli.live.gather import LEASES
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.node_gangs import JobRef
from gpufleet_cli.live.node_look import GPU_MARKS, NODES, by_namespace, pods_with_gpus
from gpufleet_cli.live.pods import Pod, pods_of
from gpufleet_cli.node_card import Missing
from gpufleet_cli.parsers import json_documents as js

MOST_ASKED = 100
"""So many gangs are asked for their last lines, the largest first, two pods each."""
LINE_S = 2.0
_PODS = {"fieldSelector": "status.phase!=Succeeded", "labelSelector": "!pod-template-generation"}


def look(api: Api, namespace: str | None) -> Gangs:
    """All gangs, worst first. SourceError where the pods could not be read at all."""
    missing: list[Missing] = []
    where = f"/namespaces/{namespace}" if namespace else ""
    tasks: list[tuple[str, Callable[[], object]]] = [
        ("pods", lambda: _pods(api, f"/api/v1{where}/pods", missing, is_all=namespace is None)),
        ("jobs", lambda: job_objects(api, where, missing)),
        ("nodes", lambda: api.list(NODES, kind="nodes")),
        ("leases", lambda: api.list(LEASES, kind="leases")),
    ]
    asked = threads.each(lambda task: task[1](), tasks, threads=len(tasks), deadline=api.deadline)
    done: dict[str, object] = {}
    groups: list[Group] = []
    others = 0
    lines: dict[JobRef, int] = {}
    for (name, _), result in asked:
        done[name] = result
        if name in ("pods", "jobs") and {"pods", "jobs"} <= done.keys():
            groups, others = gang_view.groups(*_read(done))
            lines = _last_lines(api, groups, missing)
    if "pods" not in done:
        raise SourceError(
            f"the pods of {_where(api)} could not be read by the deadline",
            hint="gpufleet --deadline 30s waits longer",
        )
    if "jobs" not in done:
        groups, others = gang_view.groups(*_read(done))
        missing.append(Missing(what="the objects of the jobs", why=_late(api)))
    return _gangs(api, namespace, groups, others, done, lines, missing)


def _gangs(
    api: Api,
    namespace: str | None,
    groups: Sequence[Group],
    others: int,
    done: Mapping[str, object],
    lines: Mapping[JobRef, int],
    missing: list[Missing],
) -> Gangs:
    now_ns = api.now_ns()
    nodes, leases = (_items(api, done.get(name), name, missing) for name in ("nodes", "leases"))
    marked = gang_nodes.marked(nodes, leases, now_ns)
    is_whole = not any(one.what == "pods" for one in missing)  # a gang lives in one namespace
    cards, old = gang_view.ordered(
        (
            gang_view.card(
                one, marked, wrote_ns=lines.get(one.job), now_ns=now_ns, is_whole=is_whole
            )
            for one in groups
        ),
        now_ns,
    )
    held = {one.name for card in cards for one in card.marked}
    return Gangs(
        context=api.access.context,
        server=api.access.server,
        namespace=namespace,
        read_at_ns=now_ns,
        gangs=tuple(cards),
        spare=tuple(sorted((m for n, m in marked.items() if n not in held), key=_ill_first)),
        others=others,
        old=old,
        missing=tuple(missing),
    )


def _ill_first(one: MarkedNode) -> tuple[bool, str]:
    return not one.is_ill, one.name


def _where(api: Api) -> str:
    return api.access.context or api.access.server


def _late(api: Api) -> str:
    return f"not there after {api.deadline.seconds or 0:g} s: --deadline 30s waits longer"


def _read(done: Mapping[str, object]) -> tuple[Sequence[Pod], Sequence[Made]]:
    pods, objects = done.get("pods"), done.get("jobs")
    return pods if isinstance(pods, list) else (), objects if isinstance(objects, list) else ()


def _items(api: Api, listed: object, what: str, missing: list[Missing]) -> tuple[msgspec.Raw, ...]:
    if not isinstance(listed, Listed):
        missing.append(Missing(what=what, why=_late(api)))
        return ()
    if not listed.ok or listed.note:
        missing.append(Missing(what=what, why=_why(api, listed, what)))
    return listed.items


def _why(api: Api, listed: Listed, what: str) -> str:
    if listed.answer.status == 403:
        return f"not allowed (list on {what})"
    return _late(api) if api.deadline.is_over() else listed.note or listed.answer.message


# --- Pods and jobs --------------------------------------------------------------------------------


def _pods(api: Api, path: str, missing: list[Missing], *, is_all: bool) -> list[Pod]:
    """Pods with GPUs; of every readable namespace where not all may be listed."""
    listed = api.list(path, _PODS, kind="pods")
    if listed.ok and not listed.note:
        return pods_with_gpus(listed.items)
    if listed.answer.status == 403 and is_all:
        found, readable = by_namespace(api, _PODS)
        if readable:
            shown = ", ".join(readable[:4]) + (" and more" if len(readable) > 4 else "")
            why = f"not allowed in all namespaces; read in {shown}"
            missing.append(Missing(what="pods of other namespaces", why=why))
            return [pod for pod in pods_of(found) if pod.state.gpus]
    if not listed.items:
        raise SourceError(
            f"no pod of {_where(api)} could be read: {_why(api, listed, 'pods')}",
            hint="needs list on pods (gpufleet-reader); or -n NAMESPACE",
        )
    missing.append(Missing(what="pods", why=_why(api, listed, "pods")))
    return pods_with_gpus(listed.items)


def job_objects(api: Api, where: str, missing: list[Missing]) -> list[Made]:
    """The objects of all kinds of job that the server has."""
    try:
        served = served_kinds.served(api, kinds.KINDS)
    except SourceError as exc:
        missing.append(Missing(what="the objects of the jobs", why=exc.message))
        return []
    asked = threads.each(
        lambda one: _of_kind(api, f"{one[0].root(one[1])}{{}}/{one[0].plural}", where),
        served,
        threads=4,
        deadline=api.deadline,
    )
    found: list[Made] = []
    refused: dict[str, list[str]] = {}
    for (kind, version), (listed, closed) in asked:
        if closed is not None:
            refused.setdefault(closed, []).append(kind.plural)
        typed = "Job" if kind.kind == "VolcanoJob" else kind.kind
        head = {"apiVersion": f"{kind.group}/{version}", "kind": typed}
        found.extend(
            Made(found={**head, **_object(raw)}, has_gpus=any(m in bytes(raw) for m in GPU_MARKS))
            for raw in listed.items
        )
    for why, plurals in sorted(refused.items()):
        missing.append(Missing(what=f"objects: {', '.join(sorted(set(plurals)))}", why=why))
    return found


def _of_kind(api: Api, path: str, where: str) -> tuple[Listed, str | None]:
    """One list, and what is not in it: of the context's own namespace where not all may be listed."""
    listed = api.list(path.format(where), kind="jobs")
    if listed.answer.status != 403:
        return listed, None
    why = "not allowed to list them in all namespaces"
    if where:
        return listed, why
    own = api.list(path.format(f"/namespaces/{api.access.namespace}"), kind="jobs")
    return (own, f"{why}; read in {api.access.namespace}") if own.ok else (listed, why)


def _object(raw: msgspec.Raw) -> Object:
    try:
        return js.mapping(msgspec.json.decode(raw))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}


# --- Last lines -----------------------------------------------------------------------------------


def _last_lines(api: Api, groups: Sequence[Group], missing: list[Missing]) -> dict[JobRef, int]:
    """When the first and the last pod of each running gang wrote last: whichever is newer."""
    running = [one for one in groups if one.attempts and one.attempts[-1].state == "running"]
    running.sort(key=lambda one: -len(one.pods))
    tasks = [
        (one.job, pod) for one in running[:MOST_ASKED] for pod in {id(p): p for p in (one.newest[0], one.newest[-1])}.values()
    ]  # fmt: skip
    found: dict[JobRef, int] = {}
    refused: list[str] = []
    asked = threads.each(
        lambda task: _line(api, task[1]), tasks, threads=min(api.threads, 16), deadline=api.deadline
    )
    for (job, _), (at_ns, why) in asked:
        if at_ns is None:
            refused.append(why)
        else:
            found[job] = max(at_ns, found.get(job, 0))
    if refused and not found:
        missing.append(Missing(what="last lines", why=min(refused)))
    if len(running) > MOST_ASKED:
        why = f"asked of the {MOST_ASKED} largest gangs alone"
        missing.append(Missing(what="last lines", why=why))
    return found


def _line(api: Api, pod: Pod) -> tuple[int | None, str]:
    """When a pod wrote last, or why that is not known."""
    query: dict[str, str | int] = {"timestamps": "true", "tailLines": 1}
    if pod.state.rank_container:
        query["container"] = pod.state.rank_container
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log"
    answer = api.get(path, query, timeout_s=LINE_S, kind="log", tries=1)
    what, why = read_log(answer)
    if what is not LogRead.HAD:
        return None, why
    return log_depth.told_by(answer.body).newest_ns, "no time in its last line"
