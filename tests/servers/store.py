"""Changes in etcd behind the API server's back, for what no client may write: creation times, mostly. Watches see them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from datetime import datetime

import urllib3

from servers.api import Json
from servers.cluster import Cluster

_ATTEMPTS = 20


def change(cluster: Cluster, key: str, how: Callable[[Json], None]) -> None:
    """Change an object in place under its key, such as `/registry/pods/NAMESPACE/NAME` or `/registry/minions/NODE`."""
    for _ in range(_ATTEMPTS):
        found = _ask(cluster, "range", {"key": _code(key.encode())}).get("kvs")
        if not found:
            raise KeyError(key)
        stored = json.loads(base64.b64decode(found[0]["value"]))
        how(stored)
        put = {"key": _code(key.encode()), "value": _code(json.dumps(stored).encode())}
        unchanged = {
            "key": put["key"],
            "target": "MOD",
            "result": "EQUAL",
            "mod_revision": found[0]["mod_revision"],
        }
        answer = _ask(cluster, "txn", {"compare": [unchanged], "success": [{"request_put": put}]})
        if answer.get("succeeded"):
            return
    raise TimeoutError(f"others wrote {key} each time")


def back_date(cluster: Cluster, key: str, created_at: datetime) -> None:
    """Let an object have been created earlier."""
    text = f"{created_at:%Y-%m-%dT%H:%M:%SZ}"
    change(cluster, key, lambda stored: stored["metadata"].update(creationTimestamp=text))


def put_all(cluster: Cluster, objects: Iterable[tuple[str, Json]], *, at_once: int = 48) -> None:
    """Many new objects under their keys, without the API server's say: whole as it would store them."""
    waiting: list[Json] = []
    for key, made in objects:
        value = _code(json.dumps(made, separators=(",", ":")).encode())
        waiting.append({"request_put": {"key": _code(key.encode()), "value": value}})
        if len(waiting) == at_once:
            _ask(cluster, "txn", {"success": waiting})
            waiting = []
    if waiting:
        _ask(cluster, "txn", {"success": waiting})


def _code(raw: bytes) -> str:
    """As etcd's gateway wants its bytes."""
    return base64.b64encode(raw).decode()


def _ask(cluster: Cluster, call: str, body: Json) -> Json:
    """One call of etcd's HTTP gateway."""
    answer = urllib3.request("POST", f"{cluster.etcd_url}/v3/kv/{call}", json=body)
    if answer.status != 200:
        raise RuntimeError(f"etcd: {answer.status} {answer.data!r}")
    found: Json = answer.json()
    return found
