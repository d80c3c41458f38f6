"""Reads: pages, retries, throttling, deadlines, what is never retried."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import access, threads
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from live import fake_api
from live.fake_api import FakeApi, Said, failure

PODS = "/api/v1/namespaces/ml/pods"


def test_a_list_is_read_page_by_page(fake: FakeApi, api: Api) -> None:
    """Raw objects, all of them, in order; `items: null` is an empty list."""
    fake.page = 2
    fake.add(PODS, *(fake_api.pod(f"p-{n}") for n in range(5)))
    found = api.list(PODS)
    assert [f"p-{n}" for n in range(5)] == [
        json.loads(bytes(raw))["metadata"]["name"] for raw in found.items
    ]
    assert 3 == fake.count(PODS)
    assert () == api.list("/api/v1/namespaces/empty/pods").items


def test_an_expired_page_begins_again(fake: FakeApi, api: Api) -> None:
    """410 Gone in the middle; nothing stands twice."""
    fake.page = 2
    fake.add(PODS, *(fake_api.pod(f"p-{n}") for n in range(4)))
    gone = [failure(410, "The provided continue parameter is too old")]
    fake.odd.append(lambda path, query: gone.pop() if "continue" in query and gone else None)
    found = api.list(PODS)
    assert found.ok
    assert 4 == len(found.items)


def test_one_odd_object_does_not_cost_the_list(fake: FakeApi, api: Api) -> None:
    """What a client's models refuse: null where a value must be."""
    odd = {"metadata": {"name": "odd", "annotations": {"a": None}}, "status": {"conditions": [{}]}}
    fake.add(PODS, odd, fake_api.pod("p"))
    assert 2 == len(api.list(PODS).items)


def test_throttling_is_waited_out(fake: FakeApi, api: Api) -> None:
    """429 with Retry-After, then the answer."""
    said = [failure(429, **{"Retry-After": "1"})]
    fake.odd.append(lambda *_: said.pop() if said else None)
    began = time.monotonic()
    assert api.get("/version").ok
    assert time.monotonic() - began >= 1.0
    assert 2 == api.requests["object"]


def test_a_server_that_stumbles_is_asked_again(fake: FakeApi, api: Api) -> None:
    """5xx before a body, and a body that broke off."""
    said = [failure(503), Said(body=b"x" * 100, cut=10)]
    fake.odd.append(lambda *_: said.pop() if said else None)
    assert api.get("/version").ok
    assert 3 == len(fake.asked)


def test_no_answer_ends_at_the_deadline(fake: FakeApi, fake_kubeconfig: Path) -> None:
    """A server that takes the request and says nothing."""
    fake.odd.append(lambda *_: Said(hold_s=5))
    api = Api(access.connect(kubeconfig=str(fake_kubeconfig)), deadline=Deadline(0.6))
    began = time.monotonic()
    answer = api.get("/version")
    assert time.monotonic() - began < 2
    assert (0, True) == (answer.status, answer.timed_out)


def test_one_slot_does_not_wait_behind_another(fake: FakeApi, api: Api) -> None:
    """A path that hangs holds its own thread alone; what is not done by the deadline is not yielded."""
    fake.odd.append(lambda path, _: Said(hold_s=3) if path.endswith("slow") else None)
    deadline = Deadline(1.5)
    api.deadline = deadline
    tasks = ["/x/slow", *(["/version"] * 8)]
    done = [path for path, _ in threads.each(api.get, tasks, threads=2, deadline=deadline)]
    assert 8 == done.count("/version")


def test_the_newest_bytes_are_kept(fake: FakeApi, api: Api) -> None:
    """Of a body over the cap the end stays, and the answer says that it begins later."""
    fake.odd.append(lambda *_: Said(body=b"old\n" * 100_000 + b"newest\n"))
    answer = api.get("/x", newest=1000)
    assert answer.body.endswith(b"newest\n")
    assert 1000 == len(answer.body)
    assert "x-begins-later" in answer.headers


def test_expired_credentials_are_one_line(fake: FakeApi, api: Api) -> None:
    """401 at the beginning."""
    fake.odd.append(lambda *_: failure(401, "Unauthorized"))
    with pytest.raises(SourceError, match="expired or wrong token"):
        api.check()


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    """With its address and the context."""
    kubeconfig = fake_api.write_kubeconfig(tmp_path / "k", "http://127.0.0.1:9")
    api = Api(access.connect(kubeconfig=str(kubeconfig)), deadline=Deadline(5))
    with pytest.raises(
        SourceError, match=r"cannot reach the API server http://127.0.0.1:9 \(context fake\)"
    ):
        api.check()


def test_something_else_that_listens_is_told(fake: FakeApi, api: Api) -> None:
    """A page is no API server."""
    fake.odd.append(lambda *_: Said(body=b"<html>Sign in</html>"))
    with pytest.raises(SourceError, match="is no Kubernetes API server: Sign in"):
        api.check()


def test_a_lost_server_fails_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so long without a connection nothing waits in a queue of retries."""
    kubeconfig = fake_api.write_kubeconfig(tmp_path / "k", "http://127.0.0.1:9")
    monkeypatch.setattr("gpufleet_cli.live.pace.LOST_S", 0.2)
    api = Api(access.connect(kubeconfig=str(kubeconfig)), deadline=Deadline(60))
    api.get("/x", tries=2)
    time.sleep(0.2)
    api.get("/x", tries=1)
    sent = sum(api.requests.values())
    answer = api.get("/x", tries=1)
    assert ("the API server is lost", sent) == (answer.failed, sum(api.requests.values()))
