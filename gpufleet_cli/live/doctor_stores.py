"""Metrics and log stores as `doctor` tries them: the one that is set, else what the Services offer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from gpufleet_cli.errors import GpufleetError, SourceError
from gpufleet_cli.live import known_services, log_store, log_stores, metric_probe, stores
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.gathered import Probe
from gpufleet_cli.live.http_source import Connection, Fetch
from gpufleet_cli.live.service_ref import service_ref
from gpufleet_cli.live.session import LiveOptions
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.settings_file import Access, SettingsFile, choose
from gpufleet_cli.source_check import SourceCheck

MOST_NODES = 8
XIDS = "XID history and readings of the GPUs"
LOGS = "logs of pods that are gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """What the checks share. `api` None: there is no way into the cluster."""

    api: Api | None
    options: LiveOptions
    file: SettingsFile
    deadline: Deadline
    context: str | None

    @property
    def namespace(self) -> str:
        own = self.api.access.namespace if self.api is not None else None
        return self.options.namespace or own or "default"


@contextmanager
def _opened(way: Way, place: str, how: Access) -> Iterator[tuple[Fetch, str]]:
    if way.api is not None:
        with stores.opened(way.api, place, how) as found:
            yield found
        return
    if service_ref(place) is not None:
        raise SourceError(f"{place} is reached through the API server, which is not")
    with Connection(place, how, way.deadline) as connection:
        yield connection.fetch, connection.shown


NONE_GIVEN = "none is given, and no known one is among the Services"


def _services(way: Way, kinds: Sequence[str]) -> tuple[list[known_services.Candidate], str]:
    """Those that the cluster has, and why there is none."""
    if way.api is None:
        return [], NONE_GIVEN
    try:
        return stores.candidates(way.api, kinds), NONE_GIVEN
    except SourceError as exc:
        return [], f"none is given; {exc.message}"


def metrics(way: Way, job: Job | None) -> SourceCheck:
    of_context = way.file.of(way.context)
    chosen = choose("prometheus", flag=way.options.prometheus, file=way.file, context=way.context)
    places = [chosen.value] if chosen else []
    source = chosen.source if chosen else stores.FOUND
    why_none = ""
    if not places:
        found, why_none = _services(way, (known_services.METRICS,))
        places = [str(one.service) for one in found]
    if not places:
        return SourceCheck(
            source="metrics", ok=False, would_lack=XIDS,
            what=why_none,
            action="--prometheus URL or svc:NAMESPACE/NAME:PORT",
        )  # fmt: skip
    now_ns = way.api.now_ns() if way.api is not None else time.time_ns()
    nodes = _nodes(way, job)

    def ask(fetch: Fetch, name: str) -> Probe:
        return metric_probe.probe(
            fetch, name, now_ns=now_ns, matchers=of_context.matchers, nodes=nodes
        )

    tries = [(place, of_context.access, ask) for place in places[: stores.MOST_TRIED]]
    action = "dcgm-exporter scraped by it, or matchers in the settings file"
    return _probed(way, "metrics", source, tries, XIDS, action)


def lost_logs(way: Way, job: Job | None, namespace: str) -> SourceCheck:
    of_context = way.file.of(way.context)
    chosen = choose("log_store", flag=way.options.log_store, file=way.file, context=way.context)
    source = chosen.source if chosen else stores.FOUND
    try:
        addresses = [log_store.store_address(chosen.value)] if chosen else []
    except GpufleetError as exc:
        return SourceCheck(
            source="log store", ok=False, what=exc.message, would_lack=LOGS, action=exc.hint or ""
        )
    why_none = ""
    if not addresses:
        found, why_none = _services(way, ("loki", "victorialogs"))
        addresses = [log_store.StoreAddress(one.kind, str(one.service)) for one in found]
    if not addresses:
        return SourceCheck(
            source="log store", ok=False, would_lack=LOGS,
            what=why_none,
            action="--log-store loki+URL or victorialogs+URL",
        )  # fmt: skip
    pods = tuple(pod.name for pod in job.pods[:64]) if job else ()
    now_ns = way.api.now_ns() if way.api is not None else time.time_ns()

    def asked(kind: str) -> Callable[[Fetch, str], Probe]:
        return lambda fetch, name: log_stores.probe(
            log_stores.made(kind, fetch, name),
            now_ns=now_ns, namespace=namespace, pods=pods, fields=of_context.log_store_fields,
        )  # fmt: skip

    tries = [
        (one.url, of_context.store_access, asked(one.kind))
        for one in addresses[: stores.MOST_TRIED]
    ]
    return _probed(way, "log store", source, tries, LOGS, "log_store_fields in the settings file?")


def _probed(
    way: Way,
    source: str,
    said_by: str,
    tries: Sequence[tuple[str, Access, Callable[[Fetch, str], Probe]]],
    would_lack: str,
    action: str,
) -> SourceCheck:
    """The first that is well, else what the first one said."""
    found: list[SourceCheck] = []
    for place, how, ask in tries:
        try:
            with _opened(way, place, how) as (fetch, name):
                probe = ask(fetch, name)
        except GpufleetError as exc:
            one = SourceCheck(
                source=source, ok=False, what=exc.message, would_lack=would_lack,
                action=exc.hint or "",
            )  # fmt: skip
        else:
            one = SourceCheck(
                source=source, ok=probe.ok, what=f"{name} ({said_by}): {probe.what}",
                would_lack=probe.would_lack, action="" if probe.ok else action,
            )  # fmt: skip
        if one.ok:
            return one
        found.append(one)
    return found[0]


def _nodes(way: Way, job: Job | None) -> Mapping[str, Sequence[str]]:
    """A few nodes with their addresses, to see whether the metrics know them: the job's, else the first."""
    if way.api is None:
        return {}
    if job is not None:
        names = sorted({p.state.node for p in job.pods if p.state.node and p.state.gpus})
        answers = [way.api.get(f"/api/v1/nodes/{n}", tries=2) for n in names[:MOST_NODES]]
        raws = [one.body for one in answers if one.ok]
    else:
        answer = way.api.get("/api/v1/nodes", {"limit": 64}, tries=2)
        if not answer.ok:
            return {}
        items = js.items(js.at(msgspec.json.decode(answer.body), "items"))
        gpus = [one for one in items if js.at(one, "status", "capacity", "nvidia.com/gpu")]
        raws = [msgspec.json.encode(one) for one in gpus[:MOST_NODES]]
    found: dict[str, Sequence[str]] = {}
    for raw in raws:
        one = msgspec.json.decode(raw)
        name = js.text_at(one, "metadata", "name") or ""
        told = (js.text_at(a, "address") for a in js.items(js.at(one, "status", "addresses")))
        found[name] = tuple(a for a in told if a is not None and a != name)
    return found
