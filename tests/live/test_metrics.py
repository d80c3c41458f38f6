"""Metrics without a server: queries as text, odd answers, and which series may be joined."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from gpufleet_cli.errors import SourceError, UsageError
from gpufleet_cli.live import metric_probe, metric_queries, metric_scopes, metrics
from gpufleet_cli.live.http_source import Params
from gpufleet_cli.live.metric_queries import Matcher, chunks, matchers, of_nodes, one_of, selector
from gpufleet_cli.live.metric_scopes import Placed
from gpufleet_cli.live.metric_server import Flavour, TooMuch, recognised
from gpufleet_cli.live.metrics import Wanted
from gpufleet_cli.live.service_words import Response

WANTED = Wanted(nodes={"gpu-1": ()}, start_ns=1_787_190_000 * 10**9, end_ns=1_787_193_600 * 10**9)


# --- Text -----------------------------------------------------------------------------------------


def test_matchers_of_the_settings_are_read_and_quoted_again() -> None:
    """With or without braces; escapes are what they mean."""
    read = matchers('{cluster="a\\"b", env=~"x|y\\\\.z",r!="",s!~"q",}')
    assert (
        Matcher("cluster", "=", 'a"b'),
        Matcher("env", "=~", r"x|y\.z"),
        Matcher("r", "!=", ""),
        Matcher("s", "!~", "q"),
    ) == read
    assert 'up{cluster="a\\"b",env=~"x|y\\\\.z",r!="",s!~"q"}' == selector("up", read)
    assert () == matchers(None) == matchers(" ") == matchers("{}")


@pytest.mark.parametrize(
    "text", ["cluster", "cluster=a", 'a="b" c="d"', 'a="b"} or up{x="y"', 'a="b', "a='b'", ","]
)
def test_what_is_no_matcher(text: str) -> None:
    """Nothing of the settings gets into a query unread."""
    with pytest.raises(UsageError, match="cannot be read at"):
        matchers(text)


def test_names_match_themselves_alone() -> None:
    """Dots, brackets, quotes and line breaks are escaped for the expression, then for the string."""
    names = ["a.b-c", 'x"}\nor', "p(1)|.*", "back\\slash"]
    found = one_of("pod", names)
    for name in names:
        assert [name] == [
            other for other in names if re.fullmatch(found.value, other) and other == name
        ]
    assert not re.fullmatch(found.value, "aXb-c")
    assert "\n" not in str(found)
    assert 'pod=~"a\\\\.b-c|x\\"\\\\}\\nor|p\\\\(1\\\\)\\\\|\\\\.\\\\*|back\\\\\\\\slash"' == str(
        found
    )


def test_a_node_in_all_its_forms() -> None:
    """Full, short, with a port; not another whose name begins alike."""
    host = re.compile(of_nodes("Hostname", ["gpu-1", "gpu-2.a.b"]).value)
    for name, fits in {
        "gpu-1": True,
        "gpu-1.a.b": True,
        "gpu-2": True,
        "gpu-2.a.b": True,
        "gpu-10": False,
    }.items():
        assert fits == bool(host.fullmatch(name)), name
    instance = re.compile(of_nodes("instance", ["gpu-1", "10.0.0.1", "fd00::1"]).value)
    for name in ("gpu-1:9400", "gpu-1", "10.0.0.1:9400", "[fd00::1]:9400"):
        assert instance.fullmatch(name), name
    assert not instance.fullmatch("10.0.0.11:9400")
    assert not instance.fullmatch("10x0.0.1:9400")


def test_names_come_in_pieces() -> None:
    """By count and by bytes; none is lost, also one that is longer than a piece."""
    names = [f"train-run-7-worker-{n:04}" for n in range(1000)]
    pieces = list(chunks(names))
    assert names == [name for piece in pieces for name in piece]
    assert max(map(len, pieces)) <= metric_queries.MOST_NAMES
    assert max(len(one_of("pod", piece).value) for piece in pieces) <= metric_queries.MOST_BYTES
    assert [["x" * 9000], ["y"]] == list(chunks(["x" * 9000, "y"]))
    assert [] == list(chunks([]))


def test_fields_that_answer_a_question_are_asked_for_by_old_and_new_names() -> None:
    """And none of those by which Xids are found."""
    names = metric_queries.readings()
    assert {"DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_ROW_REMAP_FAILED"} <= set(names)
    assert not set(names) & set(metric_queries.XID_NAMES)
    assert set(metric_queries.usual_readings()) < set(names)
    assert "DCGM_FI_DEV_POWER_USAGE" in metric_queries.usual_readings()
    assert metric_probe.WORTH_HAVING.keys() <= set(names)


# --- Which series may be joined -------------------------------------------------------------------


def placed(node: str, name: str = "X", **labels: str) -> Placed:
    return Placed({"__name__": name, **labels}, (("node", node),))


def test_a_label_that_one_has_and_one_lacks_differs() -> None:
    """Within a metric; two exporters may carry different labels, but not different places."""
    mixed = metric_scopes.judge([placed("a", cluster="x"), placed("a")])
    assert ([False, False], 1) == (mixed.kept, len(mixed.gaps))
    assert [True, True] == metric_scopes.judge([placed("a", cluster="x"), placed("a", "Y")]).kept
    assert [False, False] == metric_scopes.judge(
        [placed("a", region="x"), placed("a", "Y", region="y")]
    ).kept


def test_a_fabric_is_no_cluster_and_replicas_are_no_places() -> None:
    """NVLink's cluster UUID and Prometheus' replica differ for good reasons."""
    same = [placed("a", cluster_uuid="1", replica="0"), placed("a", cluster_uuid="2", replica="1")]
    assert ([True, True], ()) == metric_scopes.judge(same)


def test_what_shares_a_thing_goes_with_it() -> None:
    """A GPU whose node is clear is left out where its UUID is not."""
    one = Placed({"cluster": "a"}, (("node", "n1"), ("gpu", "u")))
    two = Placed({"cluster": "b"}, (("node", "n2"), ("gpu", "u")))
    clear = Placed({"cluster": "a"}, (("node", "n3"),))
    found = metric_scopes.judge([one, two, clear])
    assert [False, False, True] == found.kept
    assert ["metrics of gpu u"] == [gap.what for gap in found.gaps]


def test_without_a_majority_no_place_is_ours() -> None:
    """One node here, one there: who could say."""
    found = metric_scopes.judge([placed("a", cluster="x"), placed("b", cluster="y")])
    assert [False, False] == found.kept
    assert ["metrics of node a and node b"] == [gap.what for gap in found.gaps]
    many = metric_scopes.judge([placed(f"n{n}", cluster=str(n % 2)) for n in range(100)])
    assert "and 94 more" in many.gaps[0].what


# --- Odd answers ----------------------------------------------------------------------------------

PROMETHEUS = {"status": "success", "data": {"version": "3.1.0", "goVersion": "go1.25"}}
NAMES = {"status": "success", "data": ["DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_GPU_TEMP"]}


def answering(
    queries: Callable[[Params], object] | object,
    *,
    info: object = PROMETHEUS,
    names: object = NAMES,
) -> Callable[[str, Params], Response]:
    """A server: what it answers to queries is a document, a `Response`, or a function of the parameters."""

    def fetch(path: str, params: Params) -> Response:
        found = {
            "/api/v1/status/buildinfo": info,
            "/api/v1/label/__name__/values": names,
            "/api/v1/stores": {"status": "success", "data": {}},
        }.get(path, queries)
        if callable(found):
            found = found(params)
        return found if isinstance(found, tuple) else (200, {}, json.dumps(found).encode())

    return fetch


def matrix(*series: object, **more: object) -> dict[str, object]:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(series)}, **more}


ONE = {
    "metric": {"__name__": "DCGM_FI_DEV_XID_ERRORS", "Hostname": "gpu-1", "gpu": "0", "UUID": "u"},
    "values": [[1_787_193_000, "0"], [1_787_193_030, "79"]],
}


def vector_or(raw: object) -> Callable[[Params], object]:
    """Nodes are found; raw samples are this."""

    def answer(params: Params) -> object:
        query = str(params["query"])
        if query.startswith("count by"):
            result = (
                [{"metric": {"Hostname": "gpu-1"}, "value": [1, "1"]}]
                if "(Hostname)" in query
                else []
            )
            return {"status": "success", "data": {"resultType": "vector", "result": result}}
        return raw

    return answer


def test_a_partial_answer_is_a_gap() -> None:
    """Thanos answers with what it has, and a warning."""
    fetch = answering(vector_or(matrix(ONE, warnings=["store 10.0.0.3: connection refused"])))
    found = metrics.gather(fetch, "thanos", WANTED)
    (gap,) = found.gaps
    assert "thanos says: store 10.0.0.3: connection refused" == gap.why
    assert b'"79"' in found.files[0][1]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (
            (
                422,
                {},
                b'{"status":"error","errorType":"execution","error":"expanding series: boom"}',
            ),
            "expanding series: boom",
        ),
        ((503, {}, b"busy"), "in trouble (503): busy"),
        ((200, {}, b"<html>Sign in</html>"), "answered with a web page"),
        ((200, {}, b'{"status":"success","data":{"resul'), "no JSON"),
        ((200, {}, b'{"status":"success"}'), "without data"),
        ((200, {}, b'{"status":"success","data":[]}'), "in a form"),
        (
            (200, {}, b'{"status":"error","errorType":"bad_data","error":"parse"}'),
            "bad_data: parse",
        ),
        ((200, {}, b'{"status":"success","data":{"result":[{"metric":{"a":3}}]}}'), "in a form"),
        ((403, {}, b""), "does not allow it (403)"),
    ],
)
def test_an_answer_that_is_none_is_a_gap_of_its_part(raw: Response, words: str) -> None:
    """The rest is kept, and nothing is raised."""
    found = metrics.gather(answering(vector_or(raw)), "m", WANTED)
    assert () == found.files
    assert any(words in gap.why for gap in found.gaps), found.gaps
    assert any("XID history of gpu-1" == gap.what for gap in found.gaps)


def test_a_server_that_does_not_let_us_in_is_an_error() -> None:
    """Nothing can be had: the caller makes one gap of it."""
    for info in (
        (401, {}, b""),
        (503, {}, b""),
        (302, {"Location": "https://sso.test/login"}, b""),
    ):
        with pytest.raises(SourceError):
            metrics.gather(answering(matrix(), info=info), "m", WANTED)
        told = metric_probe.probe(answering(matrix(), info=info), "m", now_ns=WANTED.end_ns)
        assert (False, "XID history and readings") == (told.ok, told.would_lack)
    with pytest.raises(UsageError):
        metrics.gather(answering(matrix()), "m", WANTED, matchers="oops")


def test_a_proxy_that_lets_only_queries_through_is_asked_on() -> None:
    """No build information, no list of names: the usual fields are asked for."""
    asked: list[str] = []

    def answer(params: Params) -> object:
        asked.append(str(params["query"]))
        return vector_or(matrix(ONE))(params)

    fetch = answering(answer, info=(404, {}, b""), names=(403, {}, b""))
    found = metrics.gather(fetch, "m", WANTED, matchers='cluster="c"')
    assert b'"79"' in found.files[0][1]
    assert all('cluster="c"' in query for query in asked)
    assert any("DCGM_FI_DEV_POWER_USAGE" in query for query in asked)


def test_a_job_of_very_many_samples_is_read_at_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings alone; the gap says how far apart, and a dead series does not linger."""
    monkeypatch.setattr(metrics, "MOST_READINGS", 10)
    asked: list[Params] = []

    def answer(params: Params) -> object:
        asked.append(params)
        return vector_or(matrix(ONE))(params)

    found = metrics.gather(answering(answer), "m", WANTED)
    (stepped,) = [params for params in asked if "step" in params]
    step = int(str(stepped["step"]))
    assert f"[{step}s]" in str(stepped["query"])
    assert str(stepped["query"]).startswith("last_over_time(")
    assert [f"readings of 1 GPUs between steps of {step} s"] == [gap.what for gap in found.gaps]


@pytest.mark.parametrize(
    ("info", "flavour"),
    [
        (PROMETHEUS, Flavour.PROMETHEUS),
        ({"data": {"version": "0.37.2", "goVersion": "go1.25"}}, Flavour.THANOS),
        ({"data": {"application": "Grafana Mimir", "version": "2.14"}}, Flavour.MIMIR),
        ({"status": "success", "data": {"version": "2.24.0"}}, Flavour.VICTORIA_METRICS),
        ({"status": "success", "data": {}}, Flavour.VICTORIA_METRICS),
        ((404, {"X-Server-Hostname": "vm"}, b""), Flavour.VICTORIA_METRICS),
        ((400, {}, b""), Flavour.UNKNOWN),
        ({}, Flavour.UNKNOWN),
        ([], Flavour.UNKNOWN),
    ],
)
def test_who_answers(info: object, flavour: Flavour) -> None:
    """Thanos is asked for every replica undiluted, VictoriaMetrics for nothing cached, others as the API is."""
    asked: list[Params] = []

    def answer(params: Params) -> object:
        asked.append(params)
        return matrix()

    server = recognised(answering(answer, info=info), "m")
    assert flavour is server.flavour
    server.query("up", 1.0)
    extra = asked[0].keys() - {"query", "time"}
    expected = {
        Flavour.THANOS: {"dedup", "max_source_resolution", "partial_response"},
        Flavour.VICTORIA_METRICS: {"nocache"},
    }
    assert expected.get(flavour, set()) == extra


@pytest.mark.parametrize(
    ("status", "error", "is_too_much"),
    [
        (400, "exceeded maximum resolution of 11,000 points per timeseries", True),
        (422, "query processing would load too many samples into memory in query execution", True),
        (422, "cannot select more than -search.maxSamplesPerQuery=100 samples; exceeded", True),
        (503, "query timed out in expression evaluation", True),
        (413, "", True),
        (400, 'parse error: unexpected "}"', False),
        (422, "many-to-many matching not allowed", False),
    ],
)
def test_what_half_of_the_question_would_mend(
    status: int, error: str, *, is_too_much: bool
) -> None:
    """The rest is asked once."""
    body = json.dumps({"status": "error", "error": error}).encode()
    server = recognised(answering((status, {}, body)), "m")
    with pytest.raises(SourceError) as caught:
        server.query("up", 1.0)
    assert is_too_much == isinstance(caught.value, TooMuch)
