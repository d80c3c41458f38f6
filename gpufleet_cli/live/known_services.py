"""Metrics and log stores among the Services of a cluster, by the names that charts and operators give.

Used where nobody configured one. Services are reached through the API server's service proxy, with the rights
of the kubeconfig (`services/proxy`). What asks all of a fleet (Thanos, Mimir) comes after what holds the
cluster's own series, since there series of other clusters would have to be told apart.
Names: kube-prometheus-stack, prometheus, thanos, mimir-distributed, loki, victoria-metrics-* and victoria-logs-*
charts, Prometheus operator, VictoriaMetrics operator, OpenShift.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpufleet_cli.live.service_ref import ServiceRef

METRICS = "metrics"


class Known(NamedTuple):
    """A kind of Service. `name` is an expression; `ports` are tried in this order, then the only port."""

    kind: str  # "metrics", "loki" or "victorialogs"
    name: re.Pattern[str]
    ports: tuple[str | int, ...]
    path: str = ""


def _known(kind: str, name: str, *ports: str | int, path: str = "") -> Known:
    return Known(kind, re.compile(name), ports, path)


KNOWN = (
    _known(METRICS, r"prometheus-k8s", "web", 9090),
    _known(METRICS, r"(?:.+-)?kube-prometheus-(?:stack-)?prometheus", "http-web", "web", 9090),
    _known(METRICS, r"(?:.+-)?kube-prom(?:etheus)?-.{0,60}prometheus", "http-web", "web", 9090),
    _known(METRICS, r"prometheus-operated", "web", "http-web", 9090),
    _known(METRICS, r"(?:.+-)?prometheus-server", "http", 80, 9090),
    _known(METRICS, r"vmsingle-.+|(?:.+-)?victoria-metrics-single-server", "http", 8428, 8429),
    _known(METRICS, r"vmselect-.+|(?:.+-)?vmselect", "http", 8481, path="/select/0/prometheus"),
    _known(METRICS, r"prometheus", "web", "http", 9090, 80),
    _known(METRICS, r"(?:.+-)?thanos-quer(?:y|ier)(?:-frontend)?", "web", "http", 9090, 10902),
    _known(METRICS, r"(?:.+-)?mimir-(?:gateway|nginx|query-frontend)", "http-metrics", 80, 8080, path="/prometheus"),
    _known("loki", r"(?:.+-)?loki-gateway", "http-metrics", "http", 80, 8080),
    _known("loki", r"(?:.+-)?loki-query-frontend", "http-metrics", "http", 3100),
    _known("loki", r"(?:.+-)?loki-read", "http-metrics", "http", 3100),
    _known("loki", r"(?:.+-)?loki(?:-stack)?", "http-metrics", "http", 3100),
    _known("victorialogs", r"vlsingle-.+|(?:.+-)?(?:victoria-logs-single-server|vlsingle|victorialogs)", "http", 9428),
    _known("victorialogs", r"vlselect-.+|(?:.+-)?vlselect", "http", 9471),
)  # fmt: skip
"""Surest first."""

_NOT = re.compile(
    r"headless|memberlist|node-exporter|operator$|alertmanager|pushgateway|kube-state-metrics|canary|adapter"
)
_TLS = frozenset({"https", "https-web", "https-metrics"})
_TLS_PORTS = frozenset({443, 8443, 9091})


class Candidate(NamedTuple):
    """A Service that is probably a store; `kind` as in `Known`."""

    kind: str
    service: ServiceRef

    def __str__(self) -> str:
        """As a person would give it with `--prometheus` or `--log-store`."""
        return str(self.service) if self.kind == METRICS else f"{self.kind}+{self.service}"


def candidates(services: Iterable[Mapping[str, object]]) -> list[Candidate]:
    """Stores among the items of a ServiceList (JSON as the API server gives it), surest first.

    Items of another shape are passed over. Whether one answers is for its probe to say.
    """
    found: list[tuple[int, bool, str, str, Candidate]] = []
    for item in services:
        name, namespace, ports, is_headless = _parts(item)
        if not name or not namespace or not ports or _NOT.search(name):
            continue
        for rank, known in enumerate(KNOWN):
            if known.name.fullmatch(name):
                port, scheme = _port(known, ports)
                service = ServiceRef(namespace, name, port, scheme, known.path)
                candidate = Candidate(known.kind, service)
                found.append((rank, is_headless, namespace, name, candidate))
                break
    return [candidate for *_, candidate in sorted(found, key=lambda one: one[:4])]


def _parts(item: Mapping[str, object]) -> tuple[str, str, list[tuple[str, int]], bool]:
    """Name, namespace, (name, number) of its TCP ports, and whether it is headless."""
    meta, spec = item.get("metadata"), item.get("spec")
    if not isinstance(meta, dict) or not isinstance(spec, dict):
        return "", "", [], False
    ports = []
    for one in spec.get("ports") or ():
        number = one.get("port") if isinstance(one, dict) else None
        if isinstance(number, int) and one.get("protocol", "TCP") == "TCP":
            ports.append((str(one.get("name") or ""), number))
    name, namespace = meta.get("name"), meta.get("namespace")
    if not isinstance(name, str) or not isinstance(namespace, str):
        return "", "", [], False
    return name, namespace, ports, spec.get("clusterIP") == "None"


def _port(known: Known, ports: list[tuple[str, int]]) -> tuple[str, str]:
    """The port to ask at, by number, and `https` where it speaks TLS."""
    wanted = (one for want in known.ports for one in ports if want in one)
    name, number = next(wanted, ports[0])
    is_tls = name in _TLS or number in _TLS_PORTS
    return str(number), "https" if is_tls else ""
