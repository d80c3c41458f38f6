"""The small API server of the fast tests, held to the real one: the same calls to both, the same shape of answer.

What is compared is what the program looks at: status, whether it is a Status or a list, reason of a failure, how
pages go on, and the bytes of logs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from servers import jobs, nodes, pods
from servers.jobs import Shape
from servers.namespaces import Namespace

from gpufleet_cli.live import access
from gpufleet_cli.live.answers import Answer, LogRead, read_log
from gpufleet_cli.live.api import Api, Params
from gpufleet_cli.live.deadline import Deadline
from live import fake_api
from live.fake_api import FakeApi, failure

AT = datetime(2026, 8, 20, 3, 10, 0, tzinfo=UTC)
LINES = [(AT.replace(second=n), f"step {n}") for n in range(6)]
NAMES = ["run-0", "run-1", "run-2"]

CALLS: dict[str, tuple[str, Params]] = {
    "get": ("pods/run-0", {}),
    "get of what is not there": ("pods/nobody", {}),
    "list": ("pods", {}),
    "list of none": ("pods", {"labelSelector": "job-id=other"}),
    "list by labels": ("pods", {"labelSelector": "job-id=run"}),
    "list by name": ("pods", {"fieldSelector": "metadata.name=run-1"}),
    "first page": ("pods", {"limit": 2}),
    "log": ("pods/run-0/log", {"container": "trainer"}),
    "log with times": ("pods/run-0/log", {"container": "trainer", "timestamps": "true"}),
    "tail": ("pods/run-0/log", {"container": "trainer", "tailLines": 2}),
    "since": (
        "pods/run-0/log",
        {"container": "trainer", "timestamps": "true", "sinceTime": "2026-08-20T03:10:03Z"},
    ),
    "previous that is not there": (
        "pods/run-0/log",
        {"container": "trainer", "previous": "true"},
    ),
    "log of a container that is not there": ("pods/run-0/log", {"container": "nobody"}),
    "log of a pod that is not there": ("pods/nobody/log", {"container": "trainer"}),
    "tail of one stream": (
        "pods/run-0/log",
        {"container": "trainer", "tailLines": 2, "stream": "Stdout"},
    ),
}


@pytest.fixture
def real(namespace: Namespace, tmp_path: Path) -> Api:
    """Three pods on the real server."""
    made = nodes.make(namespace, 1, gpus=8)
    jobs.plain_pods(namespace, "run", Shape(pods=3, gpus=1, nodes=made))
    pods.wait(namespace, "job-id=run", 3)
    pods.give_logs(namespace, dict.fromkeys(NAMES, LINES))
    config = namespace.cluster.write_kubeconfig(tmp_path / "real", namespace=namespace.name)
    return Api(access.connect(kubeconfig=str(config)), deadline=Deadline(120))


@pytest.fixture
def made_up(fake: FakeApi, api: Api, namespace: Namespace) -> Iterator[Api]:
    """The same on the fake."""
    place = namespace.path("pods")
    for name in NAMES:
        labels = {"job-id": "run"}
        fake.add(place, fake_api.pod(name, namespace=namespace.name, labels=labels))
        text = b"".join(f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z {line}\n".encode() for at, line in LINES)
        fake.logs[name, "trainer"] = text
    yield api


def shape(answer: Answer) -> dict[str, Any]:
    """What the program can tell of an answer, without names and numbers of one server."""
    found: dict[str, Any] = {"status": answer.status}
    try:
        document = json.loads(answer.body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return found | {"bytes": answer.body, "log": read_log(answer)[0]}
    if document.get("kind") == "Status":
        return found | {"reason": document.get("reason"), "log": read_log(answer)[0]}
    if "items" in document:
        items = document["items"] or []
        names = [one["metadata"]["name"] for one in items]
        return found | {"names": names, "goes on": bool(document["metadata"].get("continue"))}
    return found | {"name": document["metadata"]["name"]}


def asked(api: Api, namespace: Namespace, call: str) -> dict[str, Any]:
    path, params = CALLS[call]
    return shape(api.get(namespace.path(path), params, tries=1))


def test_the_fake_answers_as_the_real_server_does(
    real: Api, made_up: Api, namespace: Namespace
) -> None:
    """Call by call; then the pages to their end, and a name that one may not read."""
    differ = {}
    for call in CALLS:
        ours, theirs = asked(made_up, namespace, call), asked(real, namespace, call)
        if ours != theirs:
            differ[call] = {"fake": ours, "real": theirs}
    assert {} == differ
    page = {"limit": 2}
    for api in (real, made_up):
        listed = api.list(namespace.path("pods"), page)
        assert NAMES == [json.loads(bytes(raw))["metadata"]["name"] for raw in listed.items]


def test_a_refusal_looks_the_same(
    namespace: Namespace, tmp_path: Path, fake: FakeApi, api: Api
) -> None:
    """403 to a user without rights, 401 to a token that nobody knows: a Status with its reason."""
    cluster = namespace.cluster
    for status, user in ((403, "nobody"), (401, "stranger")):
        config = cluster.write_kubeconfig(tmp_path / user, user=user)
        real = Api(access.connect(kubeconfig=str(config)), deadline=Deadline(60))
        theirs = shape(real.get(namespace.path("pods"), tries=1))
        fake.odd[:] = [lambda *_, status=status: failure(status)]
        assert shape(api.get(namespace.path("pods"), tries=1)) == theirs
        assert status == theirs["status"]
        assert theirs["log"] in (LogRead.FORBIDDEN, LogRead.UNAUTHORIZED)
