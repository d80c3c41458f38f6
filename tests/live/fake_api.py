"""A small API server for fast tests: pages, logs, odd answers, throttling; over plain HTTP on loopback.

Held to the real one by `test_contract.py`. What it answers is set from the test while it runs. What it makes of
changes stands in `fake_writes`, of exec in `fake_exec`.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from live import fake_exec, fake_writes
from live.fake_answers import Json, Said, answer, failure

GROUPS = {"batch": ["v1"], "jobset.x-k8s.io": ["v1alpha2"], "kubeflow.org": ["v2beta1", "v1"]}
_LOG = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/log")
_EXEC = re.compile(r"(/api/v1/namespaces/[^/]+/pods)/([^/]+)/exec")
_PROXY = re.compile(r"(/api/v1/namespaces/[^/]+/services)/(?:https?:)?([^/:]+)(?::[^/]*)?/proxy/.*")


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
        """Verb and resource (with `/subresource`) that a review says no to, for sure or not. Changes and exec that are
        denied are refused too."""
        self.user = "anna"
        self.files: dict[tuple[str, str], dict[str, bytes]] = {}
        """What `cat` finds by exec, by pod and container."""
        self.guarded: set[str] = set()
        """Pods that a disruption budget does not let go."""
        self.changes: list[tuple[str, str]] = []
        """Method and path of all that would change something, refused and dry runs too."""
        self.changing = threading.Lock()

    def add(self, collection: str, *objects: Json) -> None:
        """Objects of one collection, such as `/api/v1/namespaces/ml/pods`."""
        for one in objects:
            one["metadata"].setdefault("resourceVersion", "100")
        self.collections.setdefault(collection, []).extend(objects)

    def count(self, pattern: str) -> int:
        return sum(re.search(pattern, path) is not None for path, _ in self.asked)

    def said(self, path: str, query: Query) -> Said:
        for answerer in self.odd:
            found = answerer(path, query)
            if found is not None:
                return found
        if path == "/version":
            return answer({"gitVersion": "v1.34.4"})
        if path == "/apis":
            return answer(
                {"kind": "APIGroupList", "groups": [group(n, v) for n, v in GROUPS.items()]}
            )
        log = _LOG.fullmatch(path)
        if log:
            return self._log(log[1], log[2], query)
        proxied = _PROXY.fullmatch(path)
        if proxied:
            return self._proxied(proxied[1], proxied[2])
        if path in self.collections:
            return self._list(path, query)
        collection, _, name = path.rpartition("/")
        for one in self.collections.get(collection, ()):
            if one["metadata"]["name"] == name:
                return answer(one)
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

    def changed(self, asked: fake_writes.Change) -> Said:
        """What a review answers (who we are, whether we may), and what comes of a change."""
        for answerer in self.odd:
            found = answerer(asked.path, asked.query)
            if found is not None:
                return found
        kind = asked.path.rpartition("/")[2]
        if kind == "selfsubjectreviews":
            return answer({"status": {"userInfo": {"username": self.user}}}, status=201)
        if kind == "selfsubjectrulesreviews":
            rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
            rules = {"resourceRules": [rule], "nonResourceRules": [], "incomplete": False}
            return answer({"status": rules}, status=201)
        if kind == "selfsubjectaccessreviews":
            return self._may(asked.body["spec"]["resourceAttributes"])
        with self.changing:
            self.changes.append((asked.method, asked.path))
            return fake_writes.changed(self, asked)

    def _may(self, asked: Json) -> Said:
        part = asked.get("subresource")
        right = asked["verb"], asked["resource"] + (f"/{part}" if part else "")
        status: Json = {"allowed": right not in self.denied | self.unsure}
        if right in self.unsure:
            status["evaluationError"] = "webhook: connection refused"
        return answer({"status": status}, status=201)

    def _proxied(self, services: str, name: str) -> Said:
        """The service proxy: no Service has a pod here. A test that has one answers by `odd`."""
        if not any(one["metadata"]["name"] == name for one in self.collections.get(services, ())):
            return failure(404, f'services "{name}" not found')
        return failure(503, f'no endpoints available for service "{name}"')

    def entered(self, path: str, container: str) -> tuple[Said | None, Mapping[str, bytes]]:
        """Exec into a container: a refusal, or the files that are there."""
        for answerer in self.odd:
            found = answerer(path, {})
            if found is not None:
                return found, {}
        asked = _EXEC.fullmatch(path)
        assert asked is not None, path
        pods, name = asked[1], asked[2]
        if self.denied & {("get", "pods/exec"), ("create", "pods/exec")}:
            return failure(403, f'pods "{name}" is forbidden'), {}
        every = self.collections.get(pods, ())
        pod = next((one for one in every if one["metadata"]["name"] == name), None)
        if pod is None:
            return failure(404, f'pods "{name}" not found'), {}
        if container not in [one["name"] for one in pod["spec"]["containers"]]:
            return failure(400, f"container {container} is not valid for pod {name}"), {}
        return None, self.files.get((name, container), {})

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
        return answer(
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


def group(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


@contextmanager
def running() -> Iterator[FakeApi]:
    """One server until the end of the block."""
    fake = FakeApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            split = urlsplit(self.path)
            every = parse_qs(split.query)
            query = {key: values[-1] for key, values in every.items()}
            self._noted(split.path, query)
            if self.headers.get("Upgrade", "").lower() != "websocket":
                self._answer(fake.said(split.path, query))
                return
            refused, files = fake.entered(split.path, query.get("container", ""))
            if refused is None:
                fake_exec.speak(self, every["command"], files)
            else:
                self._answer(refused)

        def do_POST(self) -> None:
            split = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(split.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self._noted(split.path, query)
            asked = fake_writes.Change(
                method=self.command, path=split.path, query=query,
                content_type=self.headers.get("Content-Type", ""), body=fake_writes.parsed(body),
            )  # fmt: skip
            self._answer(fake.changed(asked))

        do_PATCH = do_DELETE = do_POST

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
