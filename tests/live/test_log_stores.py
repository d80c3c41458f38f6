"""Log stores without a server: odd answers, limits, addresses; and the names of known services."""

from __future__ import annotations

import json

import pytest

from gpufleet_cli.errors import SourceError, UsageError
from gpufleet_cli.live import known_services, log_store, log_stores
from gpufleet_cli.live.http_source import Fetch, Params
from gpufleet_cli.live.log_store import Wanted, store_address
from gpufleet_cli.live.service_words import Response

WANTED = Wanted(namespace="ml", pods=("t-0",), start_ns=10**18, end_ns=10**18 + 10**12)


def scripted(kind: str, lines: Response) -> Fetch:
    """A store whose fields are known and whose lines are this."""
    pages: dict[str, object] = {
        "/loki/api/v1/labels": {"data": ["namespace", "pod"]},
        "/loki/api/v1/series": {"data": [{"namespace": "ml", "pod": "t-0"}]},
        "/select/logsql/field_names": {
            "values": [{"value": "pod", "hits": 1}, {"value": "namespace"}]
        },
        "/select/logsql/field_values": {"values": [{"value": "t-0", "hits": "3"}]},
    }

    def fetch(path: str, params: Params) -> Response:
        return (200, {}, json.dumps(pages[path]).encode()) if path in pages else lines

    return fetch


@pytest.mark.parametrize("kind", ["loki", "victorialogs"])
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((200, {}, b"<html>Sign in</html>"), "web page|cut off"),
        ((200, {}, b'{"data":{"result":[{"str'), "no JSON|cut off"),
        ((200, {}, b'{"data": 3}\n{'), "JSON|form|cut off"),
        ((400, {}, b"parse error at line 1"), "refused (400): parse error"),
        ((500, {}, b"too many outstanding requests"), "in trouble (500)"),
        ((401, {}, b"no org id"), "wants the name of a tenant (401: no org id)"),
    ],
)
def test_an_answer_that_is_none_is_a_gap(kind: str, lines: Response, words: str) -> None:
    """Of that pod; nothing is raised."""
    found = log_store.gather(log_stores.made(kind, scripted(kind, lines), "logs"), WANTED)
    (gap,) = found.gaps
    assert "log of t-0 in the log store" == gap.what
    assert any(word in gap.why for word in words.split("|")), gap.why
    assert () == found.files


@pytest.mark.parametrize("kind", ["loki", "victorialogs"])
@pytest.mark.parametrize(
    "answer",
    [
        (502, {}, b""),
        (404, {}, b"404 page not found"),
        (200, {}, b"[1]"),
        (200, {}, b""),
        (200, {}, b'{"data":"x","values":3}'),
    ],
)
def test_a_store_that_cannot_be_asked_is_an_error(kind: str, answer: Response) -> None:
    """One for the whole source; for doctor a finding."""
    store = log_stores.made(kind, lambda path, params: answer, "logs")
    with pytest.raises(SourceError):
        log_store.gather(store, WANTED)
    told = log_stores.probe(store, now_ns=WANTED.end_ns, namespace="ml")
    assert (False, "logs of pods that are gone") == (told.ok, told.would_lack)


def test_nanoseconds_stay_whole_and_metadata_names_the_speaker() -> None:
    """A float would lose the last digits; structured metadata is the third element."""
    at = 10**18 + 123_456_789
    values = [[str(at), "a\nb", {"trace_id": "x"}], ["bad", "c"], [], [str(at + 1), "d"]]
    body = {
        "status": "success",
        "data": {"resultType": "streams", "result": [{"stream": {"pod": "t-0"}, "values": values}]},
    }
    store = log_stores.made("loki", scripted("loki", (200, {}, json.dumps(body).encode())), "logs")
    ((_, data),) = log_store.gather(store, WANTED).files
    first, second = map(json.loads, data.splitlines())
    assert {
        "labels": {"pod": "t-0", "trace_id": "x"},
        "line": "a\nb",
        "timestamp": "2001-09-09T01:46:40.123456789Z",
    } == first
    assert "2001-09-09T01:46:40.12345679Z" == second["timestamp"]


def test_a_label_of_loki_may_stand_in_the_metadata() -> None:
    """Then it filters lines, behind a selector of what is a label."""
    asked: list[Params] = []

    def fetch(path: str, params: Params) -> Response:
        asked.append(params)
        body: object = (
            {"data": ["service_name"]} if path.endswith("/labels") else {"data": {"result": []}}
        )
        return 200, {}, json.dumps(body).encode()

    store = log_stores.made("loki", fetch, "logs")
    log_store.gather(
        store, WANTED, fields={"pod": "k8s_pod_name", "namespace": "k8s_namespace_name"}
    )
    assert (
        '{service_name=~".+"} | k8s_namespace_name="ml" | k8s_pod_name="t-0"' == asked[-1]["query"]
    )
    with pytest.raises(UsageError, match="names no log store"):
        store_address("https://x")


@pytest.mark.parametrize("text", ["", "loki", "loki+", "elastic+http://x", "http://x"])
def test_what_names_no_store(text: str) -> None:
    """Said with the form it should have."""
    with pytest.raises(UsageError, match="names no log store"):
        store_address(text)


def service(
    namespace: str, name: str, *ports: tuple[str, int], ip: str = "10.0.0.1"
) -> dict[str, object]:
    listed = [{"name": port, "port": number} for port, number in ports]
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"clusterIP": ip, "ports": listed},
    }


def test_known_services_are_found_surest_first() -> None:
    """By the names of charts and operators; the one of a cluster before the one of a fleet."""
    services = [
        service("obs", "thanos-query", ("grpc", 10901), ("http", 9090)),
        service("monitoring", "prometheus-operated", ("http-web", 9090), ip="None"),
        service(
            "monitoring",
            "kps-kube-prometheus-stack-prometheus",
            ("http-web", 9090),
            ("reloader-web", 8080),
        ),
        service("monitoring", "kps-kube-prometheus-stack-alertmanager", ("http-web", 9093)),
        service("monitoring", "kps-kube-prometheus-stack-operator", ("https", 443)),
        service("vm", "vmselect-main", ("http", 8481)),
        service("openshift-monitoring", "thanos-querier", ("web", 9091), ("tenancy", 9092)),
        service("logs", "loki-gateway", ("http-metrics", 80)),
        service("logs", "loki", ("http-metrics", 3100), ("grpc", 9095)),
        service("logs", "loki-headless", ("http-metrics", 3100), ip="None"),
        service("logs", "vl-victoria-logs-single-server", ("http", 9428)),
        service("ml", "train", ("http", 80)),
        {"metadata": {"name": "prometheus"}},
        {"metadata": {"name": "prometheus", "namespace": "x"}, "spec": {"ports": None}},
        {
            "metadata": {"name": "prometheus", "namespace": "x"},
            "spec": {"ports": ["y", {"port": "web"}]},
        },
        {},
    ]
    assert [
        "svc:monitoring/kps-kube-prometheus-stack-prometheus:9090",
        "svc:monitoring/prometheus-operated:9090",
        "svc:vm/vmselect-main:8481/select/0/prometheus",
        "svc:obs/thanos-query:9090",
        "svc:openshift-monitoring/https:thanos-querier:9091",
        "loki+svc:logs/loki-gateway:80",
        "loki+svc:logs/loki:3100",
        "victorialogs+svc:logs/vl-victoria-logs-single-server:9428",
    ] == [str(one) for one in known_services.candidates(services)]
    assert [] == known_services.candidates([])
