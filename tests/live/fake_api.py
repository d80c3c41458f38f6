"""A small API server for fast tests: pages, logs, odd answers, throttling; over plain HTTP on loopback.

Held to the real one by `test_contract.py`. What it answers is set from the test while it runs.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
GROUPS = {"batch": ["v1"], "jobset.x-k8s.io": ["v1alpha2"], "kubeflow.org": ["v2beta1", "v1"]}
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}
_LOG = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/log")


@dataclass(slots=True)
class Said:
    """One answer; `hold_s` comes before it, `cut` ends the body after so many bytes."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    hold_s: float = 0.0
    cut: int | None = None


Query = Mapping[str, str]
Answerer = Callable[[str, Query], Said | None]


class FakeApi:
    """Objects by the path of their collection, logs by pod and container, and odd answers in front."""

    def __init__(self) -> None:
        self.collections: dict[str, list[Json]] = {}
        self.logs: dict[tuple[str, str], bytes] = {}
        self.previous: dict[tuple[str, str], bytes] = {}
        self.odd: list[Answerer] = []
        self.asked: list[tuple[str, Query]] = []
        self.headers: list[Mapping[str, str]] = []
        self.url = ""
        self.page = 500
        self.denied: set[tuple[str, str]] = set()
        self.unsure: set[tuple[str, str]] = set()
        """Verb and resource (with `/subresource`) that a review says no to, for sure or not."""
        self.user = "anna"

    def add(self, collection: str, *objects: Json) -> None:
        """Objects of one collection, such as `/api/v1/namespaces/ml/pods`."""
        self.collections.setdefault(collection, []).extend(objects)

    def count(self, pattern: str) -> int:
        return sum(re.search(pattern, path) is not None for path, _ in self.asked)

    def said(self, path: str, query: Query) -> Said:
        for answerer in self.odd:
            found = answerer(path, query)
            if found is not None:
                return found
        if path == "/version":
            return _json({"gitVersion": "v1.34.4"})
        if path == "/apis":
            return _json(
                {"kind": "APIGroupList", "groups": [_group(n, v) for n, v in GROUPS.items()]}
            )
        log = _LOG.fullmatch(path)
        if log:
            return self._log(log[1], log[2], query)
        if path in self.collections:
            return self._list(path, query)
        collection, _, name = path.rpartition("/")
        for one in self.collections.get(collection, ()):
            if one["metadata"]["name"] == name:
                return _json(one)
        if "/namespaces/" not in path:
            every = [
                one
                for place, objects in self.collections.items()
                if re.sub(r"/namespaces/[^/]+", "", place) == path
                for one in objects
            ]
            return self._page(every, query)
        return (
            self._page([], query) if re.search(r"/namespaces/[^/]+/[^/]+$", path) else failure(404)
        )

    def reviewed(self, path: str, question: Json) -> Said:
        """What a review answers: who we are, and whether we may."""
        for answerer in self.odd:
            found = answerer(path, {})
            if found is not None:
                return found
        if path.endswith("/selfsubjectreviews"):
            return _json({"status": {"userInfo": {"username": self.user}}})
        if not path.endswith("/selfsubjectaccessreviews"):
            return failure(405)
        asked = question["spec"]["resourceAttributes"]
        part = asked.get("subresource")
        right = asked["verb"], asked["resource"] + (f"/{part}" if part else "")
        status: Json = {"allowed": right not in self.denied | self.unsure}
        if right in self.unsure:
            status["evaluationError"] = "webhook: connection refused"
        return _json({"status": status})

    def _list(self, path: str, query: Query) -> Said:
        return self._page(self.collections[path], query)

    def _page(self, objects: list[Json], query: Query) -> Said:
        parts = [part for part in query.get("labelSelector", "").split(",") if part]
        wanted = dict(part.split("=") for part in parts if not part.startswith("!"))
        without = {part[1:] for part in parts if part.startswith("!")}
        named = re.search(r"metadata\.name=([^,]+)", query.get("fieldSelector", ""))
        kept = [
            one
            for one in objects
            if all(one["metadata"].get("labels", {}).get(k) == v for k, v in wanted.items())
            and not without & set(one["metadata"].get("labels", {}))
            and (named is None or one["metadata"]["name"] == named[1])
        ]
        size = min(int(query.get("limit", "500")), self.page)
        start = int(query.get("continue", "0"))
        meta = {"resourceVersion": "1"}
        if start + size < len(kept):
            meta["continue"] = str(start + size)
        return _json(
            {"kind": "List", "metadata": meta, "items": kept[start : start + size] or None}
        )

    def _log(self, namespace: str, pod: str, query: Query) -> Said:
        container = query.get("container", "")
        if query.get("stream", "All") != "All" and "tailLines" in query:
            return failure(422, "tailLines and specific stream are mutually exclusive for now")
        kept = self.previous if query.get("previous") == "true" else self.logs
        data = kept.get((pod, container))
        if data is None:
            if kept is self.previous:
                said = f'previous terminated container "{container}" in pod "{pod}" not found'
                return failure(400, said)
            known = {name for one, name in (*self.logs, *self.previous) if one == pod}
            if known and container not in known:
                return failure(400, f"container {container} is not valid for pod {pod}")
            return failure(404, f'pods "{pod}" not found')
        lines = data.splitlines(keepends=True)
        if "sinceTime" in query:
            lines = [one for one in lines if one[:19].decode() >= query["sinceTime"][:19]]
        if "tailLines" in query:
            lines = lines[-int(query["tailLines"]) :]
        if query.get("timestamps") != "true":
            lines = [one.split(b" ", 1)[-1] for one in lines]
        return Said(body=b"".join(lines))


def _group(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _json(document: Json) -> Said:
    return Said(body=json.dumps(document).encode(), headers={"Content-Type": "application/json"})


def failure(code: int, message: str = "", **headers: str) -> Said:
    """A Status of the API server."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    status |= {"reason": _REASONS.get(code, "InternalError")}
    found = _json(status | {"message": message or f"failure {code}"})
    return Said(status=code, body=found.body, headers={**found.headers, **headers})


@contextmanager
def running() -> Iterator[FakeApi]:
    """One server until the end of the block."""
    fake = FakeApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            split = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(split.query).items()}
            self._noted(split.path, query)
            self._answer(fake.said(split.path, query))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self._noted(self.path, {})
            self._answer(fake.reviewed(self.path, json.loads(body)))

        def _noted(self, path: str, query: Query) -> None:
            fake.asked.append((path, query))
            fake.headers.append({key.lower(): value for key, value in self.headers.items()})

        def _answer(self, said: Said) -> None:
            time.sleep(said.hold_s)
            try:
                self.send_response(said.status)
                for name, value in said.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(said.body)))
                self.end_headers()
                self.wfile.write(said.body[: said.cut])
                if said.cut is not None:
                    self.wfile.flush()
                    self.close_connection = True
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()


def write_kubeconfig(to: Path, url: str, *, namespace: str = "ml", **user: Any) -> Path:
    """One context `fake` of one user."""
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": user or {"token": "secret-token"}}],
        "contexts": [
            {"name": "fake", "context": {"cluster": "fake", "user": "me", "namespace": namespace}}
        ],
        "current-context": "fake",
    }
    to.write_text(json.dumps(made))
    return to


def pod(
    name: str,
    *,
    namespace: str = "ml",
    labels: Mapping[str, str] | None = None,
    node: str = "gpu-1",
    gpus: int = 1,
    phase: str = "Running",
    state: Json | None = None,
    restarts: int = 0,
    last: Json | None = None,
    env: Mapping[str, str] | None = None,
    created: str = "2026-08-20T03:00:00Z",
    args: list[str] | None = None,
    annotations: Mapping[str, str] | None = None,
    container: str = "trainer",
) -> Json:
    """A pod with one container."""
    status = {
        "name": container,
        "restartCount": restarts,
        "state": state or {"running": {"startedAt": created}},
    }
    if last:
        status["lastState"] = {"terminated": last}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": created,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {
                    "name": container,
                    "args": args or ["--nproc-per-node=1", "train.py"],
                    "env": [{"name": k, "value": v} for k, v in (env or {}).items()],
                    "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {},
                }
            ],
        },
        "status": {"phase": phase, "containerStatuses": [status]},
    }


def node(name: str, *, ready: str = "True") -> Json:
    """A node with one condition."""
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-08-20T03:12:00Z"}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "status": {"conditions": [condition], "nodeInfo": {"bootID": "b"}},
    }


def lease(name: str, renewed: str) -> Json:
    """A node's lease."""
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed}
    return {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec}
