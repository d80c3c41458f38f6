"""`gpufleet watch` with a metrics server and an Alertmanager that answer what nobody asked for."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpufleet_cli.live import http_source
from live.fake_api import FakeApi
from live.test_watch import Watched, job, kinds
from live.test_watch import watched as watched  # a fixture of that file

Answer = tuple[int, dict[str, str], bytes]
HTML = b"<html><body><h1>502 Bad Gateway</h1>\x1b[31m</body></html>"


def vector(*values: str, at: object = None) -> Answer:
    """What an instant query answers, each series of another rank."""
    result: list[dict[str, Any]] = [
        {
            "metric": {"__name__": "training_last_step_timestamp_seconds", "rank": str(rank)},
            "value": [time.time() if at is None else at, value],
        }
        for rank, value in enumerate(values)
    ]
    document = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()


ODD: dict[str, Answer] = {
    "a page with 200": (200, {"Content-Type": "text/html"}, HTML),
    "a page with 502": (502, {"Content-Type": "text/html"}, HTML),
    "401": (401, {"WWW-Authenticate": "Basic"}, b"Unauthorized"),
    "403": (403, {}, b"no"),
    "redirects for ever": (302, {"Location": "/again"}, b""),
    "a redirect to a login": (302, {"Location": "https://login.invalid/?next=x"}, b""),
    "no number": vector("NaN"),
    "no end": vector("+Inf"),
    "no series": vector(),
    "a word": vector("soon"),
    "null": (200, {}, b"null"),
    "a list": (200, {}, b"[]"),
    "cut": (200, {}, b'{"status":"success","data":{"resultType":"vec'),
    "no result": (200, {}, b'{"status":"success","data":null}'),
    "wrong shapes": (
        200,
        {},
        b'{"status":"success","data":{"result":[1,{"metric":[],"value":{}}]}}',
    ),
    "an error": (422, {}, b'{"status":"error","errorType":"execution","error":"too many samples"}'),
    "deep": (200, {}, b"[" * 100_000),
    "no sample time": vector("1", at="x"),
}


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """`serve(answer)`: the address of a server that answers everything so."""
    running: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, headers, body = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = _answer

            def log_message(self, *_words: object) -> None:
                """Nothing is told."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("name", ODD)
def test_an_odd_metrics_server_costs_the_metrics_alone(
    name: str,
    fake: FakeApi,
    watched: Watched,
    serve: Callable[[Answer], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The logs tell that the job steps: well, whatever the server says; nothing of its page is printed raw."""
    monkeypatch.setattr(http_source, "FIRST_PAUSE_S", 0.01)
    job(fake)
    code, events, err = watched("--once", "--prometheus", serve(ODD[name]))
    assert 0 == code
    assert "stalled" not in kinds(events)
    said = err + "".join(one["text"] for one in events)
    assert "Traceback" not in said
    assert "\x1b" not in said and "<html" not in said


def test_a_reader_who_is_gone_ends_the_watch_and_is_no_fault_of_ours(
    fake: FakeApi, fake_kubeconfig: Path, tmp_path: Path
) -> None:
    """4 and one line: neither 0, which says that the job ended well, nor 1. The next thing to say is the stall."""
    job(fake)
    words = ["watch", "train", "-n", "ml", "--kubeconfig", str(fake_kubeconfig), "--poll", "1s"]
    words += ["--watchdog-timeout", "8s"]
    with subprocess.Popen(
        [sys.executable, "-m", "gpufleet_cli", *words],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.readline()
        run.stdout.close()
        code = run.wait(timeout=120)
        said = run.stderr.read()
    assert 4 == code
    assert said.splitlines()[-1] == "gpufleet: no longer watched: whoever read this is gone"
