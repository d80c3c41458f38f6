"""Each answer to a log read means what the table of the facts says."""

from __future__ import annotations

import json

import pytest

from gpufleet_cli.live.answers import Answer, LogRead, read_log


def status(code: int, message: str) -> Answer:
    return Answer(status=code, body=json.dumps({"kind": "Status", "message": message}).encode())


KUBELET = 'Get "https://10.0.0.7:10250/containerLogs/ml/p/t?tailLines=9": '
TABLE = [
    (status(400, 'container "t" in pod "p" is waiting to start: ContainerCreating'), "waiting"),
    (status(400, 'container "t" in pod "p" is waiting to start: PodInitializing'), "waiting"),
    (status(400, 'previous terminated container "t" in pod "p" not found'), "no-previous"),
    (status(400, 'failed to read log file ".": is a directory'), "no-previous"),
    (
        status(400, "a container name must be specified for pod p, choose one of: [t s]"),
        "no-container",
    ),
    (status(400, "container x is not valid for pod p"), "no-container"),
    (status(401, "Unauthorized"), "unauthorized"),
    (status(403, 'pods "p" is forbidden: User "u" cannot get resource "pods/log"'), "forbidden"),
    (status(404, 'pods "p" not found'), "gone"),
    (status(429, "too many requests"), "throttled"),
    (status(500, KUBELET + "dial tcp 10.0.0.7:10250: i/o timeout"), "kubelet-unreachable"),
    (
        status(500, KUBELET + "dial tcp 10.0.0.7:10250: connect: no route to host"),
        "kubelet-unreachable",
    ),
    (
        status(500, KUBELET + "dial tcp 10.0.0.7:10250: connect: connection refused"),
        "kubelet-unreachable",
    ),
    (status(500, KUBELET + "context deadline exceeded"), "kubelet-unreachable"),
    (status(500, KUBELET + "net/http: TLS handshake timeout"), "kubelet-unreachable"),
    (status(500, KUBELET + "EOF"), "kubelet-unreachable"),
    (status(500, KUBELET + "remote error: tls: internal error"), "serving-cert"),
    (status(500, KUBELET + "x509: certificate signed by unknown authority"), "serving-cert"),
    (status(500, "No agent available"), "tunnel"),
    (status(503, "error dialing backend: EOF"), "tunnel"),
    (status(500, "etcdserver: leader changed"), "odd"),
    (
        Answer(status=200, body=b"unable to retrieve container logs for containerd://8f"),
        "container-gone",
    ),
    (
        Answer(status=200, body=b"failed to try resolving symlinks in path /var/log"),
        "container-gone",
    ),
    (Answer(status=200, body=b'failed to get container status "8f": rpc error'), "container-gone"),
    (Answer(status=200, body=b""), "empty"),
    (Answer(status=200, body=b"2026-01-01T00:00:00Z step 1\n"), "had"),
    (Answer(status=0, failed="connection refused"), "lost"),
    (Answer(status=0, failed="no answer in 6 s", timed_out=True), "kubelet-unreachable"),
    (Answer(status=502, body=b"<html><h1>Bad gateway</h1></html>"), "odd"),
]


@pytest.mark.parametrize(
    ("answer", "expected"), TABLE, ids=[f"{n}-{row[1]}" for n, row in enumerate(TABLE)]
)
def test_an_answer_means_one_thing(answer: Answer, expected: str) -> None:
    """By its code and its words; a person gets one line."""
    what, why = read_log(answer)
    assert LogRead(expected) is what
    assert "containerLogs" not in why, "the address says nothing to a person"
    assert "\n" not in why and (why != "") is (what is not LogRead.HAD)


def test_the_waiting_reason_is_told() -> None:
    """In the API server's word."""
    answer = status(400, 'container "t" in pod "p" is waiting to start: ContainerCreating')
    assert "the container has not started: ContainerCreating" == read_log(answer)[1]


def test_a_line_that_quotes_an_error_is_a_line() -> None:
    """Only a body that is the error is one."""
    line = b"2026-01-01T00:00:00Z the sidecar said: unable to retrieve container logs for x\n"
    assert LogRead.HAD is read_log(Answer(status=200, body=line))[0]


def test_pages_of_proxies_are_read_without_their_markup() -> None:
    """An answer need not be a Status."""
    assert "Bad gateway" == Answer(status=502, body=b"<html><h1>Bad gateway</h1></html>").message
