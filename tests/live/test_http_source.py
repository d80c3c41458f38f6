"""HTTP to services: paths, credentials, errors and pauses; nothing reaches a host that nobody configured."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import httpx
import pytest
import respx

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import http_source
from gpufleet_cli.live.http_source import Connection, Lost, Patient, through_api_server
from gpufleet_cli.live.service_ref import service_ref
from gpufleet_cli.live.service_words import Response, document_of, refusal, shown_url
from gpufleet_cli.settings_file import Access

from .until import Until

BASE = "https://metrics.test/a/prometheus"


def asked(
    base: str = BASE, access: Access | None = None, path: str = "/api/v1/query", **params: str
) -> Response:
    with Connection(base, access or Access(), Until()) as connection:
        return connection.fetch(path, params)


@respx.mock
def test_a_path_is_joined_and_a_query_kept() -> None:
    """Grafana's datasource proxy, a tenant's prefix, a key in the query."""
    route = respx.get("https://metrics.test/a/prometheus/api/v1/query").respond(200, text="{}")
    assert (200, b"{}") == asked(BASE + "/?org=7", query='up{a="b c"}')[::2]
    assert {"org": "7", "query": 'up{a="b c"}'} == dict(route.calls.last.request.url.params)


@respx.mock
def test_who_we_are_is_said_in_headers_alone() -> None:
    """Basic of the URL, tenants, own headers; the URL that goes out holds no password."""
    route = respx.get(url__startswith="https://metrics.test/").respond(200)
    access = Access(headers={"X-Team": "ml"}, tenant="12:3")
    asked("https://me:p%40ss@metrics.test/x", access)
    request = route.calls.last.request
    assert "Basic " + base64.b64encode(b"me:p@ss").decode() == request.headers["Authorization"]
    assert ("ml", "12:3", "12:3") == tuple(
        request.headers[name] for name in ("X-Team", "X-Scope-OrgID", "THANOS-TENANT")
    )
    assert ("12", "3") == (request.headers["AccountID"], request.headers["ProjectID"])
    assert "p%40ss" not in str(request.url)
    assert "https://metrics.test/x" == shown_url("https://me:p%40ss@metrics.test/x?key=1#f")


@respx.mock
def test_a_token_is_read_again_for_each_request(tmp_path: Path) -> None:
    """A file that rotates."""
    route = respx.get(url__startswith=BASE).respond(200)
    file = tmp_path / "token"
    file.write_text("one\n")
    with Connection(BASE, Access(bearer_token_file=file), Until()) as connection:
        connection.fetch("/x", {})
        file.write_text("two\n")
        connection.fetch("/x", {})
    assert ["Bearer one", "Bearer two"] == [c.request.headers["Authorization"] for c in route.calls]
    file.write_text("two words")
    with pytest.raises(SourceError, match="gives no token of one word"):
        asked(access=Access(bearer_token_file=file))
    with pytest.raises(SourceError, match="No such file"):
        asked(access=Access(bearer_token_file=tmp_path / "none"))


@respx.mock
def test_a_command_is_asked_again_after_a_401(tmp_path: Path) -> None:
    """Once: a second 401 is the answer."""
    count = tmp_path / "count"
    program = f"import pathlib; p = pathlib.Path({str(count)!r}); n = len(p.read_text()) if p.exists() else 0; p.write_text('x' * (n + 1)); print(f'token-{{n}}')"
    access = Access(token_command=(sys.executable, "-c", program))
    route = respx.get(url__startswith=BASE)
    route.side_effect = [httpx.Response(401), httpx.Response(200)]
    assert 200 == asked(access=access)[0]
    assert ["Bearer token-0", "Bearer token-1"] == [
        c.request.headers["Authorization"] for c in route.calls
    ]
    route.side_effect = [httpx.Response(401), httpx.Response(401, json={"message": "expired"})]
    error = refusal("metrics", asked(access=access))
    assert "metrics does not know us (401): expired" == error.message


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            (
                sys.executable,
                "-c",
                "import sys; sys.exit('login first: token=abcdefghijklmnop123')",
            ),
            "exit status 1",
        ),
        ((sys.executable, "-c", ""), "no token of one word"),
        (("no-such-program-here",), "No such file"),
    ],
)
def test_a_command_that_fails_is_one_line(command: tuple[str, ...], words: str) -> None:
    """With its own words, without secrets."""
    with pytest.raises(SourceError, match=words) as caught:
        asked(access=Access(token_command=command))
    assert "abcdefghijklmnop123" not in caught.value.message


@respx.mock
def test_a_redirect_is_followed_on_the_same_host_alone() -> None:
    """A token must not go where nobody sent it; a login page is not an answer."""
    first = respx.get("http://metrics.test/api").respond(
        301, headers={"Location": "https://metrics.test/api"}
    )
    second = respx.get("https://metrics.test/api").respond(200, text="{}")
    assert 200 == asked("http://metrics.test", path="/api")[0]
    assert first.called
    assert second.called
    for target in (
        "https://evil.test/x",
        "http://metrics.test/api",
        "https://metrics.test:8443/x",
        "/login?next=1",
    ):
        second.respond(302, headers={"Location": target})
        response = asked("https://metrics.test", path="/api")
        assert 302 == response[0]
        assert "sends us elsewhere (302 to" in refusal("metrics", response).message


@respx.mock
def test_long_parameters_are_posted_where_that_is_allowed() -> None:
    """A URL of many names is cut or refused on the way; 405 is remembered."""
    posted = respx.post(url__startswith=BASE).respond(200)
    got = respx.get(url__startswith=BASE).respond(200)
    with Connection(BASE, Access(), Until()) as connection:
        connection.fetch("/q", {"query": "x" * 3000})
        assert (1, 0) == (posted.call_count, got.call_count)
        assert b"query=xxx" in posted.calls.last.request.content
        posted.respond(405)
        for _ in range(2):
            assert 200 == connection.fetch("/q", {"query": "x" * 3000})[0]
        assert (2, 2) == (posted.call_count, got.call_count)


@pytest.mark.parametrize(
    ("failure", "words", "passes"),
    [
        (httpx.ConnectTimeout("x"), "timed out trying to connect to it", True),
        (httpx.ReadTimeout("x"), "timed out trying to hear from it", True),
        (
            httpx.ConnectError("[Errno -2] Name or service not known"),
            "Name or service not known",
            True,
        ),
        (
            httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"),
            "certificate is not trusted",
            False,
        ),
        (httpx.RemoteProtocolError("peer closed connection"), "peer closed connection", True),
        (httpx.ProxyError("403 Forbidden"), "the proxy of this shell refused", True),
        (httpx.UnsupportedProtocol("odd"), "odd", False),
        (httpx.DecodingError("bad gzip"), "bad gzip", False),
    ],
)
def test_a_connection_that_fails(failure: Exception, words: str, *, passes: bool) -> None:
    """One line; what may pass by itself is of a kind that is tried again."""
    with respx.mock:
        respx.get(url__startswith=BASE).mock(side_effect=failure)
        with pytest.raises(SourceError, match=words) as caught:
            asked()
    assert passes == isinstance(caught.value, Lost)
    assert caught.value.message.startswith(BASE)


@pytest.mark.parametrize("base", ["metrics.test", "ftp://x", "https://", "svc:a/b"])
def test_what_is_no_url(base: str) -> None:
    """Said before anything is asked."""
    with pytest.raises(SourceError, match="no http or https URL"):
        asked(base)


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    """The file is named."""
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    for access in (Access(ca_file=file), Access(client_cert=(file, None))):
        with pytest.raises(SourceError, match=r"ca\.pem: cannot be used for TLS"):
            asked(access=access)


def test_a_socks_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a service at that address would be called; it may come back."""
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(Lost, match=r"^http://metrics\.test: .*refused"):
        asked("http://metrics.test")


@respx.mock
def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """By size, and by the deadline."""
    monkeypatch.setattr(http_source, "MOST_BYTES", 10)
    respx.get(url__startswith=BASE).respond(200, text="x" * 100)
    with pytest.raises(SourceError, match="an answer of over"):
        asked()
    with (
        Connection(BASE, Access(), Until(0)) as connection,
        pytest.raises(SourceError, match="no time left"),
    ):
        connection.fetch("/x", {})


def scripted(*answers: Response | SourceError) -> tuple[http_source.Fetch, list[str]]:
    """A fetch that gives these one after the other."""
    left, log = list(answers), []

    def fetch(path: str, params: http_source.Params) -> Response:
        log.append(path)
        answer = left.pop(0)
        if isinstance(answer, SourceError):
            raise answer
        return answer

    return fetch, log


def test_it_is_tried_again_with_growing_pauses() -> None:
    """429 with the server's own pause, 503, a lost connection; then the answer."""
    fetch, log = scripted(
        (429, {"Retry-After": "3"}, b""), (503, {}, b""), Lost("reset"), (200, {}, b"ok")
    )
    until = Until()
    assert b"ok" == Patient(fetch, until)("/x", {})[2]
    assert [3.0, 1.0, 2.0] == until.paused
    assert 4 == len(log)


def test_what_will_not_pass_is_not_tried_again() -> None:
    """400, 401, 422, a certificate; and after the last try the answer is handed on."""
    for answer in ((400, {}, b""), (401, {}, b""), (422, {}, b"")):
        fetch, log = scripted(answer)
        assert answer == Patient(fetch, Until())("/x", {})
        assert 1 == len(log)
    fetch, _ = scripted(SourceError("certificate"))
    with pytest.raises(SourceError, match="certificate"):
        Patient(fetch, Until())("/x", {})
    fetch, log = scripted(*[(503, {}, b"busy")] * 5)
    assert 503 == Patient(fetch, Until())("/x", {})[0]
    assert 5 == len(log)
    fetch, _ = scripted(*[Lost("gone")] * 5)
    with pytest.raises(Lost, match="gone"):
        Patient(fetch, Until())("/x", {})


def test_the_deadline_ends_the_trying() -> None:
    """Without a pause that would not be waited out."""
    fetch, log = scripted((503, {}, b""), (503, {}, b""))
    until = Until(0.7)
    assert 503 == Patient(fetch, until)("/x", {})[0]
    assert ([0.5], 2) == (until.paused, len(log))
    with pytest.raises(SourceError, match="no time left"):
        Patient(fetch, Until(0))("/x", {})


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b"", "does not know us (401)"),
        (
            403,
            b'{"message": "rbac: \\u001b[31mno"}',
            "does not allow it (403): rbac: \\u001b[31mno",
        ),
        (404, b"<html><title>404</title>Not here</html>", "no such page (404): 404 Not here"),
        (429, b"slow down", "throttles us (429): slow down"),
        (500, b"\xff\xfe", "is in trouble (500)"),
        (
            422,
            b'{"status":"error","error":"Authorization: Bearer abc.def-123456"}',
            "refused (422): Authorization: Bearer [hidden]",
        ),
    ],
)
def test_a_status_is_one_line(status: int, body: bytes, words: str) -> None:
    """Whatever the body is; controls are visible and secrets hidden."""
    message = refusal("metrics", (status, {}, body)).message
    assert words in message
    assert message.isprintable()


@pytest.mark.parametrize("body", [b"", b"<html>Sign in</html>", b"{", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json(body: bytes) -> None:
    """A login page under 200, half an answer, nothing."""
    with pytest.raises(SourceError) as caught:
        document_of("metrics", (200, {}, body))
    assert ("web page" if b"<" in body else "no JSON") in caught.value.message


def test_a_service_through_the_api_server() -> None:
    """Its name becomes the path of the proxy; https and a path of its own are kept."""
    cases = {
        "svc:monitoring/prometheus-k8s:9090": "/api/v1/namespaces/monitoring/services/prometheus-k8s:9090/proxy",
        "svc:m/https:thanos-querier:web": "/api/v1/namespaces/m/services/https:thanos-querier:web/proxy",
        "svc:vm/vmselect:8481/select/0/prometheus/": "/api/v1/namespaces/vm/services/vmselect:8481/proxy/select/0/prometheus",
    }
    for text, path in cases.items():
        service = service_ref(text)
        assert service is not None
        fetch, log = scripted((200, {}, b""))
        through_api_server(service, fetch)("/api/v1/query", {})
        assert [path + "/api/v1/query"] == log
        assert text.rstrip("/") == str(service)
    assert service_ref("https://x") is None
    for wrong in ("svc:", "svc:a", "svc:a/b", "svc:a/b:", "svc:a/../b:1", "svc:a/b:1/../../x y"):
        with pytest.raises(SourceError, match="names no service"):
            service_ref(wrong)
