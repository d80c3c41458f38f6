"""What the API server answered, and what an answer to a log read means.

A failed log read is evidence: a kubelet that does not answer says something about its node, and a body
that is an error under status 200 is missing evidence, never the rank's last line. Wording: kubelet and
API server sources; kubernetes/kubernetes issue 142258 (200 with an error as the body).

>>> read_log(Answer(status=400, body=b'container "t" in pod "p" is waiting to start: ContainerCreating'))
(<LogRead.WAITING: 'waiting'>, 'the container has not started: ContainerCreating')
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

_DETAIL_CHARS = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer; status 0: none came, and `failed` says why. `cut`: the body is not whole.
    `timed_out`: the server took the request and was silent for as long as we wait. `late`: we waited
    only until the deadline, which says nothing of the server."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    failed: str | None = None
    cut: bool = False
    timed_out: bool = False
    late: bool = False

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """The server's own words in one line: of its Status, else the beginning of the body."""
        if self.failed is not None:
            return self.failed
        text = self.body[:65_536].decode("utf-8", "replace")
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if isinstance(document, dict) and isinstance(document.get("message"), str):
            text = document["message"]
        elif text.lstrip()[:1] == "<":  # a page of some proxy
            text = " ".join(re.sub(r"<[^>]{0,200}>", " ", text[:4096]).split())
        line = " ".join(text.split())[:_DETAIL_CHARS]
        return line or f"status {self.status}"


class LogRead(StrEnum):
    """What came of asking for a log."""

    HAD = "had"
    EMPTY = "empty"
    WAITING = "waiting"
    NO_PREVIOUS = "no-previous"
    NO_CONTAINER = "no-container"
    GONE = "gone"
    CONTAINER_GONE = "container-gone"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    THROTTLED = "throttled"
    KUBELET = "kubelet-unreachable"
    SERVING_CERT = "serving-cert"
    TUNNEL = "tunnel"
    LOST = "lost"
    LATE = "late"
    ODD = "odd"


NODE_EVIDENCE = frozenset({LogRead.KUBELET})
"""Answers that say something about the node, not about the log."""
REPLIED = frozenset(
    {LogRead.HAD, LogRead.EMPTY, LogRead.CONTAINER_GONE, LogRead.NO_PREVIOUS, LogRead.SERVING_CERT}
)
"""Answers that a kubelet had a part in. The others the API server can give without asking it."""
NO_LOGIN = "the credentials are not accepted (any more)"
THROTTLED = "the API server throttles us (429)"
LOST = "no answer from the API server"
LATE = "not there by the deadline"

_WAITING = re.compile(r"is waiting to start(?:: (?P<why>.{1,120}))?")
_ERROR_BODY = re.compile(
    rb"\A(?:\d{4}-\d\d-\d\dT\S{1,40} )?(?:unable to retrieve container logs for \S|failed to get container status\b"
    rb"|failed to try resolving symlinks\b|rpc error: code = NotFound\b|failed to read log file \")"
)
_ASKED = re.compile(r'\bGet "[^"]{1,2000}": ')  # the address of the log at the kubelet
_TUNNEL = re.compile(
    r"no agent available|error dialing backend|proxy error from|use of closed network connection"
    r"|konnectivity|tunnel",
    re.IGNORECASE,
)
_CERTIFICATE = re.compile(r"x509|remote error: tls|tls: (?!handshake)|certificate", re.IGNORECASE)
_KUBELET = re.compile(
    r"i/o timeout|no route to host|connection refused|context deadline exceeded|host is down"
    r"|network is unreachable|TLS handshake timeout|Client\.Timeout|connection reset|no such host"
    r"|:10250|containerLogs",
    re.IGNORECASE,
)

_TOLD: Mapping[LogRead, str] = {
    LogRead.EMPTY: "the log is empty: no output, or rotated away",
    LogRead.NO_PREVIOUS: "no earlier instance of the container",
    LogRead.NO_CONTAINER: "the pod has no such container",
    LogRead.GONE: "the pod is gone, and its log with it",
    LogRead.CONTAINER_GONE: "the container is gone from its node, and its log with it",
    LogRead.UNAUTHORIZED: NO_LOGIN,
    LogRead.FORBIDDEN: "not allowed: needs get on pods/log",
    LogRead.THROTTLED: THROTTLED,
    LogRead.KUBELET: "the kubelet of its node does not answer",
    LogRead.SERVING_CERT: "the kubelet has no valid serving certificate (CSR not approved?)",
    LogRead.TUNNEL: "no way from the API server to the node (tunnel)",
    LogRead.LOST: LOST,
    LogRead.LATE: LATE,
    LogRead.ODD: "an answer that is not understood",
}


def read_log(answer: Answer) -> tuple[LogRead, str]:
    """What an answer to a log read means, and that in one line for a person."""
    what = _what(answer)
    if what is LogRead.HAD:
        return what, ""
    if what is LogRead.WAITING:
        found = _WAITING.search(answer.message)
        why = found["why"] if found else None
        return what, f"the container has not started{f': {why}' if why else ''}"
    told = _TOLD[what]
    if what in (LogRead.KUBELET, LogRead.TUNNEL, LogRead.SERVING_CERT, LogRead.LOST, LogRead.ODD):
        told = f"{told}: {said_of_kubelet(answer)}"
    return what, told


def _what(answer: Answer) -> LogRead:
    match answer.status:
        case 0:
            if answer.late:
                return LogRead.LATE
            return LogRead.KUBELET if answer.timed_out else LogRead.LOST
        case 200:
            if not answer.body.strip():
                return LogRead.EMPTY
            return LogRead.CONTAINER_GONE if is_error_body(answer.body) else LogRead.HAD
        case 400:
            return _refused(answer.message)
        case 401:
            return LogRead.UNAUTHORIZED
        case 403:
            return LogRead.FORBIDDEN
        case 404:
            return LogRead.GONE
        case 429:
            return LogRead.THROTTLED
        case _ if answer.status >= 500:
            return _broken(answer.message)
        case _:
            return LogRead.ODD


def why_not(answer: Answer, plural: str) -> str:
    """Why an object or a list did not come, in one line for a person."""
    match answer.status:
        case 0:
            return LATE if answer.late else f"{LOST}: {answer.message}"
        case 401:
            return NO_LOGIN
        case 403:
            return f"not allowed to read {plural}"
        case 404:
            return "gone: not found"
        case 429:
            return THROTTLED
        case _:
            return answer.message


def said_of_kubelet(answer: Answer) -> str:
    """The words of the API server about a kubelet, without the address of the log."""
    return _ASKED.sub("", answer.message)[:160]


def is_error_body(body: bytes) -> bool:
    """Whether a body under status 200 is the kubelet's error: short, and in its words."""
    return len(body) < 4096 and _ERROR_BODY.match(body) is not None


def _refused(message: str) -> LogRead:
    if "waiting to start" in message or "is not available" in message:
        return LogRead.WAITING
    if "previous terminated container" in message or "failed to read log file" in message:
        return LogRead.NO_PREVIOUS
    if "is not valid for pod" in message or "container name must be specified" in message:
        return LogRead.NO_CONTAINER
    return LogRead.ODD


def _broken(message: str) -> LogRead:
    if _TUNNEL.search(message):
        return LogRead.TUNNEL
    if "handshake timeout" not in message and _CERTIFICATE.search(message):
        return LogRead.SERVING_CERT
    return LogRead.KUBELET if _KUBELET.search(message) else LogRead.ODD
