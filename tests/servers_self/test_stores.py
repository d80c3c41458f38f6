"""Metrics and log stores of the tests return what they were given, and keep their limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import urllib3
from servers import loki, services
from servers.metrics import Series, held, xid_series
from servers.namespaces import Namespace
from servers.object_store import ObjectStore
from servers.victoria import Stream

END = datetime(2026, 8, 20, 3, 30, tzinfo=UTC)
XID_AT = END - timedelta(minutes=19)
BEGIN = END - timedelta(days=3)


def history() -> list[Series]:
    """Eight GPUs for three days; one reports XID 79 towards the end."""
    return [
        xid_series("node-17", gpu, held(BEGIN, END, [(XID_AT, 79)] if gpu == 3 else [], every_s=60))
        for gpu in range(8)
    ]


def ask(url: str, **query: str) -> Any:
    """The answer's data."""
    answer = urllib3.request("GET", url, fields=query)
    assert 200 == answer.status, answer.data
    return answer.json()["data"]


def test_prometheus_knows_an_xid_of_days_ago(prometheus: Callable[..., str]) -> None:
    """Raw samples at their own times, under a path prefix."""
    url = prometheus(history(), prefix="/prometheus")
    query = 'DCGM_FI_DEV_XID_ERRORS{gpu="3"}[30m]'
    data = ask(f"{url}/api/v1/query", query=query, time=str(END.timestamp()))
    (series,) = data["result"]
    first = next(at for at, value in series["values"] if value == "79")
    assert XID_AT.timestamp() == first
    assert "node-17" == series["metric"]["Hostname"]
    changed = ask(
        f"{url}/api/v1/query",
        query="changes(DCGM_FI_DEV_XID_ERRORS[30m]) > 0",
        time=str(END.timestamp()),
    )
    assert ["3"] == [one["metric"]["gpu"] for one in changed["result"]]


def test_victoria_metrics_counts_a_first_sample(
    victoria_metrics: Callable[[Iterable[Series]], str],
) -> None:
    """`changes` over a window in which a series begins is where it differs from Prometheus."""
    url = victoria_metrics([xid_series("node-1", 0, held(XID_AT, END, first=79))])
    window = {"time": str(END.timestamp())}
    for function, expected in (("changes", "1"), ("changes_prometheus", "0")):
        query = f"{function}(DCGM_FI_DEV_XID_ERRORS[1h])"
        (found,) = ask(f"{url}/api/v1/query", query=query, **window)["result"]
        assert (function, expected) == (function, found["value"][1])


def streams(count: int = 3, lines: int = 10) -> list[Stream]:
    """The logs of some pods, a line a second."""
    return [
        Stream(
            labels={"namespace": "ml", "pod": f"train-{pod}", "container": "trainer"},
            lines=[(XID_AT + timedelta(seconds=at), f"step {at}") for at in range(lines)],
        )
        for pod in range(count)
    ]


def test_victoria_logs_keeps_pods_that_are_gone(
    victoria_logs: Callable[[Iterable[Stream]], str],
) -> None:
    """JSON lines, by stream and span."""
    url = victoria_logs(streams())
    asked = {
        "query": '{pod="train-1"} "step 9"',
        "start": XID_AT.isoformat(),
        "end": END.isoformat(),
        "limit": "10",
    }
    answer = urllib3.request("GET", f"{url}/select/logsql/query", fields=asked)
    (line,) = answer.data.splitlines()
    assert b'"_msg":"step 9"' in line
    assert b'"pod":"train-1"' in line


def test_loki_has_one_limit_for_all_streams() -> None:
    """Newest first, and the rest is cut off whatever stream it belongs to."""
    span = {"start": f"{XID_AT.timestamp():.0f}000000000", "end": f"{END.timestamp():.0f}000000000"}
    with loki.running(streams()) as it:
        url = f"{it.url}/loki/api/v1/query_range"
        data = ask(url, query='{namespace="ml", pod=~"train-[01]"} |= "step"', limit="2", **span)
        assert [["step 9"], ["step 9"]] == [
            [line for _, line in one["values"]] for one in data["result"]
        ]
        counted = ask(
            url, query='sum by (pod) (count_over_time({namespace="ml"}[1m]))', step="60", **span
        )
        assert {"train-0", "train-1", "train-2"} == {
            one["metric"]["pod"] for one in counted["result"]
        }


def test_loki_refuses_in_its_own_words() -> None:
    """Too many lines, too long a span, a matcher that narrows nothing, no tenant, too many series."""
    long_ago = f"{BEGIN.timestamp() - 90 * 86400:.0f}"
    tenants = {"a": streams(600), "b": []}
    cases = (
        ({"query": '{pod="x"}', "limit": "5001"}, "limit > max_entries_limit_per_query"),
        ({"query": '{pod="x"}', "start": long_ago}, "the query time range exceeds the limit"),
        ({"query": '{pod=~".*"}'}, "empty-compatible value"),
        ({"query": "{pod="}, "parse error at line 1"),
        (
            {
                "query": 'count_over_time({pod=~".+"}[1m])',
                "start": f"{XID_AT.timestamp():.0f}",
                "end": f"{END.timestamp():.0f}",
            },
            "maximum of series (500) reached",
        ),
    )
    with loki.running(tenants=tenants) as it:
        url = f"{it.url}/loki/api/v1/query_range"
        assert 401 == urllib3.request("GET", url, fields={"query": '{pod="x"}'}).status
        for query, words in cases:
            answer = urllib3.request("GET", url, fields=query, headers={"X-Scope-OrgID": "a"})
            assert (400, True) == (answer.status, words in answer.data.decode()), answer.data


def test_a_store_answers_through_the_service_proxy(
    namespace: Namespace, prometheus: Callable[..., str]
) -> None:
    """With the cluster's credentials alone."""
    url = prometheus([xid_series("node-1", 0, held(XID_AT, END, first=79))])
    proxied = services.expose(namespace, "prometheus", int(url.rsplit(":", 1)[1]))
    found = namespace.api.get(
        f"{proxied}/api/v1/query", query="DCGM_FI_DEV_XID_ERRORS", time=str(END.timestamp())
    )
    (series,) = found["data"]["result"]
    assert "79" == series["value"][1]


def test_an_object_store_lists_and_gives(
    object_store: Callable[[Mapping[str, bytes]], ObjectStore],
) -> None:
    """S3's own listing, and the bytes."""
    it = object_store({"job/nccl_trace_rank_0": b"\x80\x02dump", "job/nccl_trace_rank_1": b""})
    listed = urllib3.request("GET", f"{it.url}/{it.bucket}?list-type=2&prefix=job/").data
    assert 2 == listed.count(b"<Key>job/nccl_trace_rank_")
    signed = {
        "Authorization": "AWS4-HMAC-SHA256 Credential=any/20260820/us-east-1/s3/aws4_request, "
        "SignedHeaders=host, Signature=any"
    }
    key = f"{it.url}/{it.bucket}/job/nccl_trace_rank_0"
    assert b"\x80\x02dump" == urllib3.request("GET", key, headers=signed).data
    assert 403 == urllib3.request("GET", key).status
