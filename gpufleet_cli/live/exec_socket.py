"""One command in a running container by exec: argv only, no shell, no glob, no standard input.

Protocol: v4.channel.k8s.io over WebSocket. The way is that of all other requests: our certificates,
the proxy of the kubeconfig (a SOCKS proxy resolves the name), never a way of the library's own.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from gpufleet_cli.live.answers import LATE, LOST, NO_LOGIN
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.pods import Pod
from gpufleet_cli.parsers import json_documents as js

if TYPE_CHECKING:
    import socket

TIMEOUT_S = 20.0
MOST_BYTES = 512 << 20
NOT_ALLOWED = "not allowed"
NO_RIGHT = f"{NOT_ALLOWED}: needs create and get on pods/exec (gpufleet-capture)"
NO_FILE = "no such file: no dump was written there (yet)"
_STDOUT, _STDERR, _STATUS = 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What exec gave, and why that is not all of it: a program that fails may have said something."""

    data: bytes
    failed: str | None


def run(api: Api, pod: Pod, command: Sequence[str]) -> Heard:
    """One command in the rank's container: its standard output, or why there is none."""
    import websocket

    if api.access.through_kubectl:
        return Heard(data=b"", failed="exec does not go through kubectl proxy")

    api.requests["exec"] += 1
    query = [
        ("container", pod.state.rank_container or ""),
        ("stdout", "true"),
        ("stderr", "true"),
        *(("command", word) for word in command),
    ]
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/exec?{urlencode(query)}"
    url = "ws" + api.access.url(path).removeprefix("http")
    bound = max(0.1, api.deadline.bound(TIMEOUT_S))
    try:
        connection = websocket.create_connection(
            url,
            timeout=bound,
            header=[f"{name}: {value}" for name, value in api.access.headers().items()],
            subprotocols=["v4.channel.k8s.io"],
            **_way(api, bound),
        )
    except websocket.WebSocketBadStatusException as exc:
        return Heard(data=b"", failed=_refused(exc.status_code, exc.resp_body))
    except (websocket.WebSocketException, OSError) as exc:
        return Heard(data=b"", failed=_broken(api, f"{LOST}: exec did not connect", exc))
    try:
        return _hear(connection, command[0])
    except (websocket.WebSocketException, OSError) as exc:
        return Heard(data=b"", failed=_broken(api, "exec broke off", exc))
    finally:
        connection.close(timeout=1)


def _broken(api: Api, what: str, exc: Exception) -> str:
    return LATE if api.deadline.is_over() else f"{what}: {' '.join(str(exc).split())[:120]}"


def _way(api: Api, timeout_s: float) -> dict[str, Any]:
    """Certificates and proxy of the connection, as for all other requests."""
    tls = api.access.tls
    if (api.access.proxy or "").startswith("socks"):
        return {"socket": _through_socks(api, timeout_s)}
    found: dict[str, Any] = {}
    if "ssl_context" in tls:
        found["sslopt"] = {"context": tls["ssl_context"]}
        if "server_hostname" in tls:
            found["sslopt"]["server_hostname"] = tls["server_hostname"]
    if api.access.proxy is not None:
        proxy = urlsplit(api.access.proxy)
        found |= {
            "http_proxy_host": proxy.hostname,
            "http_proxy_port": proxy.port,
            "proxy_type": "http",
            "http_no_proxy": [],
        }
        if proxy.username:
            found["http_proxy_auth"] = (proxy.username, proxy.password or "")
    else:
        found["http_no_proxy"] = ["*"]
    return found


def _through_socks(api: Api, timeout_s: float) -> socket.socket:
    """A connection that the proxy makes, which resolves the name too. The WebSocket library wants a
    package of its own for SOCKS; PySocks is here already, for all other requests."""
    import socks

    proxy, server = urlsplit(api.access.proxy or ""), urlsplit(api.access.server)
    opened: socket.socket = socks.create_connection(
        (server.hostname, server.port or (443 if server.scheme == "https" else 80)),
        timeout=timeout_s,
        proxy_type=socks.SOCKS4 if proxy.scheme.startswith("socks4") else socks.SOCKS5,
        proxy_addr=proxy.hostname,
        proxy_port=proxy.port or 1080,
        proxy_rdns=True,
        proxy_username=proxy.username,
        proxy_password=proxy.password,
    )
    context = api.access.tls.get("ssl_context")
    if not isinstance(context, ssl.SSLContext):
        return opened
    name = api.access.tls.get("server_hostname") or server.hostname
    return context.wrap_socket(opened, server_hostname=str(name))


def _refused(status: int, body: bytes | None) -> str:
    message = (body or b"").decode("utf-8", "replace")
    try:
        message = str(json.loads(message)["message"])
    except (ValueError, KeyError, TypeError):
        message = " ".join(message.split())[:120]
    if status == 401:
        return NO_LOGIN
    if status == 403:
        return NO_RIGHT
    return f"exec was refused ({status}): {message[:160]}"


def _hear(connection: Any, program: str) -> Heard:  # noqa: ANN401
    """Frames until the end: the first byte is the channel."""
    import websocket

    out: list[bytes] = []
    errors: list[bytes] = []
    size = 0
    status: Mapping[str, object] = {}
    while True:
        try:
            code, frame = connection.recv_data()
        except websocket.WebSocketConnectionClosedException:
            break
        if code == websocket.ABNF.OPCODE_CLOSE:
            break
        if not frame:
            continue
        channel, payload = frame[0], frame[1:]
        if channel == _STDOUT:
            out.append(payload)
            size += len(payload)
            if size > MOST_BYTES:
                return Heard(data=b"", failed=f"over {MOST_BYTES >> 20} MB: not read")
        elif channel == _STDERR:
            errors.append(payload)
        elif channel == _STATUS:
            status = js.mapping(_json(payload))
            break
    if status.get("status") == "Success":
        return Heard(data=b"".join(out), failed=None)
    said = b"".join(errors).decode("utf-8", "replace") or str(status.get("message") or "")
    return Heard(data=b"".join(out), failed=_failure(said, program))


def _json(payload: bytes) -> object:
    try:
        return json.loads(payload)
    except ValueError:
        return None


def _failure(said: str, program: str) -> str:
    line = " ".join(said.split())
    if "No such file or directory" in line and f'exec: "{program}"' not in line:
        return NO_FILE
    if "executable file not found" in line or f'exec: "{program}"' in line:
        return f"the image has no {program} (distroless)"
    if "Permission denied" in line:
        return "permission denied inside the container"
    return line[:160] or "exec ended without a status"
