"""Answers of metrics servers that are not whole: said as such, and no code in them is not known to be none."""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

import pytest

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import metric_probe, metrics, node_past, node_watch
from gpufleet_cli.live.http_source import Fetch, Params
from gpufleet_cli.live.metric_server import TooMuch, recognised
from gpufleet_cli.live.metrics import Wanted
from gpufleet_cli.live.service_words import Response

from .test_metrics import ONE, WANTED, answering, matrix, vector_or

NONE_SEEN = {
    "metric": {"Hostname": "gpu-1", "node": "gpu-1", "gpu": "0", "UUID": "u"},
    "value": [1_787_193_600, "0"],
}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"warnings": ["store 10.0.0.3: connection refused"]}, "store 10.0.0.3: connection ref"),
        ({"isPartial": True}, "the answer is partial"),
    ],
)
def test_what_is_not_whole_is_no_clean_bill(more: dict[str, object], words: str) -> None:
    """No code in a part of the answer is not known to be none: for one node, all nodes, the gate and doctor."""
    data = {"resultType": "vector", "result": [NONE_SEEN]}
    fetch = answering({"status": "success", "data": data, **more})

    def opened() -> AbstractContextManager[tuple[Fetch, str]]:
        return nullcontext((fetch, "m"))

    found = metrics.history(fetch, "m", WANTED)
    assert ["part of the metrics"] == [gap.what for gap in found.gaps]
    xids, missing = node_past.xids(opened, "gpu-1", (), WANTED.end_ns, None)
    assert (None, True) == (xids, words in missing[0].why)
    fleet, _ = node_past.fleet(opened, WANTED.end_ns, None)
    assert fleet is not None
    assert (False, True) == (fleet.is_whole, words in fleet.gaps[-1].why)
    assert words in node_watch.watched(opened, "gpu-1", (), WANTED.end_ns, 60, None).not_whole
    told = metric_probe.probe(fetch, "m", now_ns=WANTED.end_ns)
    assert f"part of the metrics: it says: {words}" in told.would_lack


THANOS = {
    "status": "success",
    "data": {"version": "0.42.4", "revision": "", "branch": "", "goVersion": "go1.26.8"},
}
LOST = (
    'rpc error: code = DeadlineExceeded desc = latest balancer error: connection error: desc = "transport: Error'
    ' while dialing: dial tcp 10.0.0.7:10901: connect: connection refused"'
)
STORES = {
    "status": "success",
    "data": {
        "sidecar": [
            {"name": name, "lastCheck": "2026-11-30T15:49:27.450806679Z", "lastError": error,
             "labelSets": [{"cluster": cluster, "prometheus_replica": "a"}],
             "minTime": 1_787_170_000_000, "maxTime": latest}
            for name, error, cluster, latest in (
                ("10.0.0.6:10901", None, "prod", 9_223_372_036_854_775_807),
                ("10.0.0.7:10901", LOST, "prod", 9_223_372_036_854_775_807),
                ("10.0.0.8:10901", LOST, "lab", 9_223_372_036_854_775_807),
                ("10.0.0.9:10901", LOST, "prod", 1_787_180_000_000),
            )
        ]
    },
}  # fmt: skip
"""As Thanos 0.42 answered five seconds after a sidecar had died; the others differ where they may not count."""


@pytest.mark.parametrize(
    ("matchers", "names"),
    [('cluster="prod"', ["10.0.0.7"]), (None, ["10.0.0.7", "10.0.0.8"]), ('cluster="x"', [])],
)
def test_a_store_that_thanos_lost_is_told(matchers: str | None, names: list[str]) -> None:
    """Its answers say nothing of it. Stores of another cluster or time, and those that are well, do not count."""

    def fetch(path: str, params: Params) -> Response:
        if path == "/api/v1/stores":
            return 200, {}, json.dumps(STORES).encode()
        return answering(vector_or(matrix(ONE)), info=THANOS)(path, params)

    told = [
        gap.why
        for gap in metrics.gather(fetch, "thanos", WANTED, matchers=matchers).gaps
        if gap.what == "part of the metrics"
    ]
    assert [f"thanos says: sidecar {name}:10901 does not answer" in why
            for name, why in zip(names, told, strict=True)] == [True] * len(names)  # fmt: skip
    assert all("connection refused" in why for why in told)
    probed = metric_probe.probe(fetch, "thanos", now_ns=WANTED.end_ns, matchers=matchers)
    assert bool(names) == ("does not answer" in probed.would_lack)


LIMIT = (
    "receive series from Addr: 127.0.0.1:52177 MinTime: 1796032261000 MaxTime: 1796053861001: rpc error: code ="
    " ResourceExhausted desc = fetch postings for block 01M8PJE1CJZQ01CHQ0MZRC7TDS: rpc error: code ="
    " ResourceExhausted desc = exceeded series limit: limit 3 violated (got 4)"
)


def test_a_limit_of_a_store_is_asked_again_in_halves() -> None:
    """Thanos calls it a success without that store's part, with a warning (0.42, store gateway)."""
    asked: list[Params] = []

    def answer(params: Params) -> object:
        asked.append(params)
        query = str(params["query"])
        if "[4500s]" in query and "XID" in query and not query.startswith("count by"):
            return matrix(warnings=[LIMIT])
        return vector_or(matrix(ONE))(params)

    found = metrics.gather(answering(answer, info=THANOS), "thanos", WANTED)
    assert () == found.gaps
    assert b'"79"' in found.files[0][1]
    assert [True, True] == [any(f"[{s}s]" in str(p["query"]) for p in asked) for s in (4500, 2250)]
    with pytest.raises(TooMuch, match="thanos: exceeded series limit: limit 3 violated"):
        recognised(answering(matrix(warnings=[LIMIT])), "thanos").query("up", 1.0)


TOO_LONG = {
    "status": "error",
    "errorType": "bad_data",
    "error": "the total query time range exceeds the limit (query length: 720h15m0s, limit: 720h0m0s)"
    " (err-mimir-max-total-query-length). To adjust the related per-tenant limit, configure"
    " -query-frontend.max-total-query-length, or contact your service administrator.",
}
"""As Mimir 3.0 answers, with 400."""


def test_a_month_is_asked_in_halves_where_a_tenant_may_not_ask_so_far() -> None:
    """The nodes are found, the GPUs with a code, and their samples."""
    vector = {"status": "success", "data": {"resultType": "vector", "result": [
        {"metric": {**NONE_SEEN["metric"]}, "value": [1, "79"]}]}}  # fmt: skip

    def answer(params: Params) -> object:
        query = str(params["query"])
        if max(map(int, re.findall(r"\[(\d+)s\]", query))) > 30 * 86_400:
            return 400, {}, json.dumps(TOO_LONG).encode()
        return matrix(ONE) if query.startswith("{") else vector

    month = Wanted(
        nodes={"gpu-1": ()},
        start_ns=WANTED.end_ns - 30 * 86_400 * 10**9,
        end_ns=WANTED.end_ns,
    )
    found = metrics.history(answering(answer, info=MIMIR), "mimir", month)
    assert () == found.gaps
    assert 1 == found.files[0][1].count(b'"metric"')


@pytest.mark.parametrize(("kept_days", "before"), [(15, True), (29.5, False), (40, False)])
def test_a_short_memory_is_told(kept_days: float, before: bool) -> None:
    """A retention, or Mimir's look-back limit, cuts a month short without a word; what it reaches is known to be clean."""
    begins_s = WANTED.end_ns / 1e9 - kept_days * 86_400

    def answer(params: Params) -> object:
        result: list[object] = [NONE_SEEN] if float(str(params["time"])) >= begins_s else []
        if "timestamp(" in str(params["query"]):
            result = [{"metric": {}, "value": [0, f"{begins_s + 7:.3f}"]}]
        return {"status": "success", "data": {"resultType": "vector", "result": result}}

    def opened() -> AbstractContextManager[tuple[Fetch, str]]:
        return nullcontext((answering(answer), "m"))

    seen, missing = node_past.xids(opened, "gpu-1", (), WANTED.end_ns, None)
    assert [] == seen
    fleet, _ = node_past.fleet(opened, WANTED.end_ns, None)
    assert fleet is not None
    for told in ([one.what for one in missing], [gap.what for gap in fleet.gaps]):
        assert [before] * len(told) == [what.startswith("XID history before ") for what in told]
        assert before == bool(told)
        for what in told:
            at = datetime.fromisoformat(what.removeprefix("XID history before ")).timestamp()
            assert 7 == round(at - begins_s)


MIMIR = {"status": "success", "data": {"application": "Grafana Mimir", "version": "3.0.5"}}


def test_a_server_of_tenants_says_what_is_missing() -> None:
    """Mimir without X-Scope-OrgID: no token would help."""
    fetch = answering((401, {}, b"no org id\n"), info=MIMIR)
    with pytest.raises(SourceError, match="wants the name of a tenant") as caught:
        recognised(fetch, "mimir").query("up", 1.0)
    assert "tenant" in (caught.value.hint or "")


def test_nodes_of_two_tenants_are_not_joined() -> None:
    """`tenant = "a|b"`: Mimir tells whose each series is."""
    pair = [
        {**ONE, "metric": {**ONE["metric"], "__tenant_id__": tenant}}
        for tenant in ("team-a", "team-b")
    ]
    found = metrics.gather(answering(vector_or(matrix(*pair)), info=MIMIR), "mimir", WANTED)
    assert [] == [path for path, _ in found.files]
    assert "__tenant_id__ team-a and team-b" in found.gaps[0].why


def test_many_stores_that_are_down_are_few_lines() -> None:
    """A remark on the question is none on the data."""
    down = [f"store 10.0.0.{n}: connection refused" for n in range(9)]
    remark = "PromQL info: metric might not be a counter, name does not end in _total"
    fetch = answering(vector_or(matrix(ONE, warnings=[remark, *down])))
    found = metrics.gather(fetch, "thanos", WANTED)
    assert 3 == len(found.gaps)
    assert found.gaps[-1].why.endswith("10.0.0.2: connection refused (and 6 more)")
