"""Metrics and log stores as sources of a look: the configured one, else what the cluster's Services offer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlencode

import msgspec

from gpufleet_cli import settings_file
from gpufleet_cli.errors import GpufleetError, SourceError
from gpufleet_cli.live import (
    gone_pods,
    known_services,
    log_store,
    log_stores,
    metric_fleet,
    metrics,
    node_past,
    node_watch,
    rights,
)
from gpufleet_cli.live.answers import why_not
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.bundle_writer import BundleWriter
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.gather import NODES_FILE
from gpufleet_cli.live.gathered import Gathered
from gpufleet_cli.live.http_source import (
    Connection,
    Fetch,
    Lost,
    Params,
    Patient,
    through_api_server,
)
from gpufleet_cli.live.node_look import XidHistory
from gpufleet_cli.live.node_watch import NodeWatch
from gpufleet_cli.live.pods import Attempt
from gpufleet_cli.live.service_access import secrets_of
from gpufleet_cli.live.service_ref import ServiceRef, service_ref
from gpufleet_cli.live.service_words import Response
from gpufleet_cli.node_card import Missing
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.settings_file import Access, SettingsFile, choose

WINDOW_NS = 6 * 3600 * 1_000_000_000
"""How much of a long attempt is asked for, before its end."""
AROUND_NS = 3600 * 1_000_000_000
MOST_TRIED = 2
ASK_S = 30.0
FOUND = "the Services of the cluster"
XIDS = "the XID history and readings of the GPUs"


@contextmanager
def opened(api: Api, place: str, access: Access) -> Iterator[tuple[Fetch, str]]:
    """A store by URL, or as `svc:...` through the API server; with the name that gaps give it."""
    service = service_ref(place)
    if service is not None:
        ask = partial(_ask, api, service)
        yield Patient(through_api_server(service, ask), api.deadline), str(service)
        return
    with Connection(place, access, api.deadline) as connection:
        yield Patient(connection.fetch, api.deadline), connection.shown


def _ask(api: Api, service: ServiceRef, path: str, params: Params) -> Response:
    query = urlencode(params, doseq=True)
    answer = api.get(
        f"{path}?{query}" if query else path, timeout_s=ASK_S, kind="services/proxy", tries=1
    )
    if answer.status == 0:
        raise Lost(answer.failed or "no answer from the API server")
    if answer.status == 403 and "services/proxy" in answer.message:
        raise SourceError(
            f"{service}: not allowed: needs get on services/proxy in {service.namespace}",
            hint=rights.grant_of(service.namespace, service.target, "--user=USER"),
        )
    return answer.status, answer.headers, answer.body


def gather_metrics(
    api: Api,
    job: Job,
    attempt: Attempt,
    sink: BundleWriter,
    *,
    flag: str | None,
    file: SettingsFile,
) -> None:
    """XID history, readings and kube-state-metrics of the attempt's nodes, as `metrics/*.json`."""
    context = file.of(api.access.context)
    chosen = choose("prometheus", flag=flag, file=file, context=api.access.context)
    sink.about["metrics_from"] = FOUND if chosen is None else chosen.source
    try:
        places = [chosen.value] if chosen else _found(api, (known_services.METRICS,))
    except SourceError as exc:
        sink.gap("metrics of the GPUs", exc.message, XIDS)
        return
    start_ns, end_ns = _window(api, attempt)
    wanted = metrics.Wanted(
        nodes=_nodes(attempt, sink),
        start_ns=start_ns,
        end_ns=end_ns,
        namespace=job.namespace,
        pods=tuple(pod.name for pod in attempt.pods),
        pod_names=gone_pods.names(job).pattern if _are_gone(job, attempt) else None,
        gone_since_ns=gone_pods.began_ns(job, attempt),
    )

    def ask(fetch: Fetch, name: str) -> Gathered:
        return metrics.gather(fetch, name, wanted, matchers=context.matchers)

    if not places:
        why = "no --prometheus is given, and no known one is among the Services"
        sink.gap("metrics of the GPUs", why, XIDS)
        return
    tries = ((place, context.access, ask) for place in places[:MOST_TRIED])
    found = _first(api, tries, sink, "metrics of the GPUs", XIDS)
    for path, data in () if found is None else found.files:
        sink.add_answer(path, data)


def gather_lost_logs(
    api: Api,
    job: Job,
    attempt: Attempt,
    sink: BundleWriter,
    *,
    flag: str | None,
    file: SettingsFile,
) -> None:
    """Logs of the gang's pods that the cluster no longer has, from a log store."""
    pods, are_gone = _lost(job, attempt, sink)
    if not pods and not are_gone:
        return
    context = file.of(api.access.context)
    chosen = choose("log_store", flag=flag, file=file, context=api.access.context)
    sink.about["log_store_from"] = FOUND if chosen is None else chosen.source
    what = f"logs of {len(pods)} pods that the cluster did not give"
    if not pods:
        what = "logs of the pods that are gone"
    settles = "their last lines"
    try:
        addresses = _log_stores(api, None if chosen is None else chosen.value)
    except GpufleetError as exc:
        sink.gap(what, exc.message, settles)
        return
    if not addresses:
        sink.gap(what, "no --log-store is given, and no known one is among the Services", settles)
        return
    start_ns, end_ns = _window(api, attempt)
    wanted = log_store.Wanted(
        namespace=job.namespace,
        start_ns=min(max(start_ns, gone_pods.began_ns(job, attempt) or 0), end_ns),
        end_ns=end_ns,
        pods=pods,
        pod_names=gone_pods.names(job) if are_gone else None,
    )

    def asked(kind: str) -> Callable[[Fetch, str], Gathered]:
        return lambda fetch, name: log_store.gather(
            log_stores.made(kind, fetch, name), wanted, fields=context.log_store_fields
        )

    tries = ((one.url, context.store_access, asked(one.kind)) for one in addresses[:MOST_TRIED])
    found = _first(api, tries, sink, what, settles)
    for path, data in () if found is None else found.files:
        sink.add_log(path, data)


def has_log_store(api: Api, flag: str | None) -> bool:
    """Whether a log store is named, or one is among the Services."""
    chosen = choose("log_store", flag=flag, file=settings_file.load(), context=api.access.context)
    try:
        return chosen is not None or bool(candidates(api, ("loki", "victorialogs")))
    except SourceError:
        return False


def _log_stores(api: Api, stated: str | None) -> list[log_store.StoreAddress]:
    """The configured one, else those among the Services."""
    if stated is not None:
        return [log_store.store_address(stated)]
    found = candidates(api, ("loki", "victorialogs"))
    return [log_store.StoreAddress(one.kind, str(one.service)) for one in found]


def _first(
    api: Api,
    tries: Iterator[tuple[str, Access, Callable[[Fetch, str], Gathered]]],
    sink: BundleWriter,
    what: str,
    settles: str,
) -> Gathered | None:
    """The first store that answers; what each other one said is a gap."""
    for place, access, ask in tries:
        sink.know(secrets_of(access, place))
        try:
            with opened(api, place, access) as (fetch, name):
                found = ask(fetch, name)
        except SourceError as exc:
            sink.gap(what, exc.message, settles)
            continue
        for gap in found.gaps:
            sink.gap(gap.what, gap.why, gap.would_settle)
        return found
    return None


def candidates(api: Api, kinds: Sequence[str]) -> list[known_services.Candidate]:
    listed = api.list("/api/v1/services", kind="services")
    if not listed.ok:
        why = why_not(listed.answer, "services")
        raise SourceError(f"cannot look for one among the Services: {why}")
    items = [js.mapping(msgspec.json.decode(raw)) for raw in listed.items]
    return [one for one in known_services.candidates(items) if one.kind in kinds]


def _found(api: Api, kinds: Sequence[str]) -> list[str]:
    return [str(one.service) for one in candidates(api, kinds)]


def _window(api: Api, attempt: Attempt) -> tuple[int, int]:
    """The last hours of the attempt, a while before its pods were made, and a while after its end."""
    now = api.now_ns()
    end = now if attempt.ended_ns is None else min(now, attempt.ended_ns + AROUND_NS)
    started = attempt.started_ns if attempt.started_ns is not None else end - WINDOW_NS
    return min(max(started - AROUND_NS, end - WINDOW_NS), end), end


def _nodes(attempt: Attempt, sink: BundleWriter) -> Mapping[str, tuple[str, ...]]:
    """Node -> its addresses, as the bundle's list has them."""
    nodes: dict[str, tuple[str, ...]] = {
        pod.state.node: () for pod in attempt.pods if pod.state.node is not None
    }
    if NODES_FILE in sink.files:
        document = msgspec.json.decode(sink.read(NODES_FILE))
        for one in js.items(js.at(document, "items")):
            name = js.text_at(one, "metadata", "name")
            if name in nodes and js.text_at(one, "kind") == "Node":
                told = js.items(js.at(one, "status", "addresses"))
                addresses = (js.text_at(address, "address") for address in told)
                nodes[name] = tuple(a for a in addresses if a is not None and a != name)
    return nodes


def node_history(api: Api, flag: str | None) -> XidHistory | None:
    """Where a node's XIDs are asked for: as for a job; None where there is no such place."""
    try:
        place = _metrics(api, flag)
    except SourceError as exc:
        why = Missing(what="XID history", why=exc.message)
        return lambda node, addresses, now_ns: (None, [why])
    if place is None:
        return None
    opening, matchers = place
    return lambda node, addresses, now_ns: node_past.xids(
        opening, node, addresses, now_ns, matchers
    )


def node_watch_of(api: Api, flag: str | None) -> NodeWatch | None:
    """Where a node's last hours are asked for; None where there is no such place."""
    found = _metrics(api, flag)
    if found is None:
        return None
    opening, matchers = found
    return lambda node, addresses, now_ns, span_s: node_watch.watched(
        opening, node, addresses, now_ns, span_s, matchers
    )


def fleet_history(api: Api, flag: str | None) -> tuple[metric_fleet.Found | None, list[Missing]]:
    """The XIDs of all nodes, and why there are none; neither where there is no place to ask for them."""
    try:
        place = _metrics(api, flag)
    except SourceError as exc:
        return None, [Missing(what="XID history", why=exc.message)]
    if place is None:
        return None, []
    opening, matchers = place
    return node_past.fleet(opening, api.now_ns(), matchers)


def _metrics(api: Api, flag: str | None) -> tuple[node_past.Opened, str | None] | None:
    """The configured server, else the first of the cluster's Services, and the matchers for it."""
    file = settings_file.load()
    context = file.of(api.access.context)
    chosen = choose("prometheus", flag=flag, file=file, context=api.access.context)
    place = chosen.value if chosen else next(iter(_found(api, (known_services.METRICS,))), None)
    if place is None:
        return None
    return partial(opened, api, place, context.access), context.matchers


def _lost(job: Job, attempt: Attempt, sink: BundleWriter) -> tuple[tuple[str, ...], bool]:
    """Pods of the attempt without a log in the bundle, and whether there were others that are gone."""
    had = {part for path in sink.files if path.endswith(".log") for part in path.split("/")}
    pods = tuple(
        pod.name for pod in attempt.pods if pod.state.scheduled is not False and pod.name not in had
    )
    return pods, _are_gone(job, attempt)


def _are_gone(job: Job, attempt: Attempt) -> bool:
    """Whether the gang had more pods than the cluster still has."""
    held = [pod for pod in attempt.pods if pod.state.gpus] or list(attempt.pods)
    return not held or (job.gang is not None and len(held) < job.gang)
