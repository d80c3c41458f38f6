"""The small API server of the fast tests, held to the real one in what changes a cluster, in reviews and in exec.

The same requests in the same order to both. What is compared is what a program acts on: status, reason, causes, and
what stands there afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from servers import jobs, nodes, pods
from servers.jobs import Shape
from servers.namespaces import Namespace
from servers.running import wait_until

from gpufleet_cli.live import access, exec_socket
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.pods import Pod, pods_of
from live import fake_api
from live.fake_api import FakeApi
from live.fake_writes import MERGE_PATCH

Json = dict[str, Any]
STALE = "1"
TRIAL = {"dryRun": "All"}
REVIEWS = "/apis/authorization.k8s.io/v1"
EVENTS = "/api/v1/namespaces/default/events"
DUMP = bytes(range(256)) * 400


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One server with a node, a Job of two pods, two pods under a budget, one pod without, and a Service."""

    api: Api
    namespace: Namespace
    node: str
    dump: str

    def path(self, what: str, root: str = "/api/v1") -> str:
        return self.namespace.path(what, root)

    @property
    def job(self) -> str:
        return self.path("jobs/run", "/apis/batch/v1")

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> tuple[int, Json]:
        """One request, as it is."""
        answer = self.api.access.pool.request(
            method,
            self.api.access.url(f"{path}?{urlencode(query or {})}"),
            body=None if body is None else json.dumps(body).encode(),
            headers={**self.api.access.headers(), "Content-Type": kind},
            retries=False,
        )
        return answer.status, json.loads(answer.data)

    def get(self, path: str) -> Json:
        status, found = self.send("GET", path)
        assert 200 == status, (path, found)
        return found

    def patch(self, path: str, change: Json, **query: str) -> tuple[int, Json]:
        """With the version that stands there: a node's own heartbeat may come in between, so a few times."""
        for _ in range(20):
            version = self.get(path)["metadata"]["resourceVersion"]
            known = {
                **change,
                "metadata": {**change.get("metadata", {}), "resourceVersion": version},
            }
            status, found = self.send("PATCH", path, known, kind=MERGE_PATCH, query=query)
            if status != 409:
                break
        return status, found

    def pods_of_job(self) -> list[str]:
        query = {"labelSelector": "job-name=run"}
        _, found = self.send("GET", self.path("pods"), query=query)
        return [one["metadata"]["name"] for one in found["items"] or []]


def told(answer: tuple[int, Json]) -> list[object]:
    """What a program acts on."""
    status, body = answer
    if body.get("kind") != "Status" or status < 400:
        return [status]
    causes = (body.get("details") or {}).get("causes") or []
    return [status, body["reason"], sorted(str(one.get("reason")) for one in causes)]


# --- The two worlds -------------------------------------------------------------------------------


@pytest.fixture
def real(namespace: Namespace, tmp_path: Path) -> World:
    """On the real server, with a budget that its controller has counted."""
    (node,) = nodes.make(namespace, 1, gpus=8)
    shape = Shape(pods=2, gpus=1, nodes=[node])
    jobs.indexed_job(namespace, "run", shape, labels={"job-name": "run"})
    jobs.plain_pods(namespace, "kept", shape)
    jobs.plain_pods(namespace, "free", Shape(pods=1, gpus=1, nodes=[node]))
    pods.wait(namespace, "", 5)
    api, meta = namespace.api, {"name": "kept", "namespace": namespace.name}
    selector = {"matchLabels": {"job-id": "kept"}}
    budgets = namespace.path("poddisruptionbudgets", "/apis/policy/v1")
    api.post(
        budgets,
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": meta,
            "spec": {"minAvailable": 2, "selector": selector},
        },
    )
    wait_until(
        lambda: api.get(f"{budgets}/kept").get("status", {}).get("currentHealthy") == 2,
        "the budget is counted",
        within_s=60,
    )
    ports = {"ports": [{"port": 80}], "selector": {"app": "nobody"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {**meta, "name": "web"}}
    api.create(service | {"spec": ports})
    wait_until(
        lambda: api.answers(namespace.path("endpoints/web")), "its endpoints are there", within_s=60
    )
    folder = tmp_path / "dumps"
    folder.mkdir()
    (folder / "dump").write_bytes(DUMP)
    pods.allow_exec(namespace, "free-0", folder)
    config = namespace.cluster.write_kubeconfig(tmp_path / "real", namespace=namespace.name)
    way = access.connect(kubeconfig=str(config))
    dump = str(folder / "dump")
    return World(api=Api(way, deadline=Deadline(180)), namespace=namespace, node=node, dump=dump)


@pytest.fixture
def made_up(fake: FakeApi, api: Api, real: World) -> World:
    """The same on the fake."""
    space = real.namespace
    fake.add("/api/v1/nodes", fake_api.node(real.node))
    fake.add(
        space.path("jobs", "/apis/batch/v1"), {"metadata": {"name": "run", "uid": "u"}, "spec": {}}
    )
    for index in range(2):
        own = fake_api.pod(f"run-{index}", namespace=space.name, labels={"job-name": "run"})
        own["metadata"]["ownerReferences"] = [{"uid": "u", "kind": "Job", "name": "run"}]
        fake.add(space.path("pods"), own, fake_api.pod(f"kept-{index}", namespace=space.name))
        fake.guarded.add(f"kept-{index}")
    fake.add(space.path("pods"), fake_api.pod("free-0", namespace=space.name))
    fake.add(space.path("services"), {"metadata": {"name": "web"}})
    fake.files["free-0", "trainer"] = {real.dump: DUMP}
    return World(api=api, namespace=space, node=real.node, dump=real.dump)


# --- What is asked of both ------------------------------------------------------------------------

Said = Iterator[tuple[str, object]]


def reviews(world: World) -> Said:
    """What we may: access by access, and all rules."""
    what = {"verb": "list", "resource": "pods", "namespace": world.namespace.name}
    asked = {"spec": {"resourceAttributes": what}}
    status, found = world.send("POST", f"{REVIEWS}/selfsubjectaccessreviews", asked)
    yield "an access review", (status, found["status"]["allowed"])
    asked = {"spec": {"namespace": world.namespace.name}}
    status, found = world.send("POST", f"{REVIEWS}/selfsubjectrulesreviews", asked)
    yield "all rules", (status, sorted(found["status"]), found["status"]["incomplete"])


def cordons(world: World) -> Said:
    """A node: dry run, stale version, the right version, a key taken away, what is not there."""
    path = f"/api/v1/nodes/{world.node}"
    change = {
        "metadata": {"annotations": {"gpufleet/reason": "XID 79"}},
        "spec": {"unschedulable": True},
    }
    status, found = world.patch(path, change, **TRIAL)
    yield "a dry run", (status, found["spec"]["unschedulable"])
    yield "after a dry run", "unschedulable" in world.get(path).get("spec", {})
    stale = {**change, "metadata": {"resourceVersion": STALE}}
    for query in ({}, TRIAL):
        answer = world.send("PATCH", path, stale, kind=MERGE_PATCH, query=query)
        yield f"a stale version {query}", told(answer)
    # The trap: 0 is no version, and nothing is compared.
    zero = {"metadata": {"resourceVersion": "0"}}
    yield "version 0", told(world.send("PATCH", path, zero, kind=MERGE_PATCH))
    before = world.get(path)["metadata"]["resourceVersion"]
    status, found = world.patch(path, change)
    yield "a cordon", (status, found["spec"]["unschedulable"])
    yield "another version", found["metadata"]["resourceVersion"] != before
    yield "its reason", world.get(path)["metadata"]["annotations"]["gpufleet/reason"]
    undo = {"metadata": {"annotations": {"gpufleet/reason": None}}, "spec": {"unschedulable": None}}
    status, found = world.patch(path, undo)
    yield "an uncordon", (status, "unschedulable" in found["spec"])
    yield "no reason", "gpufleet/reason" in found["metadata"]["annotations"]
    yield (
        "no such node",
        told(world.send("PATCH", "/api/v1/nodes/nobody", change, kind=MERGE_PATCH)),
    )
    yield "no patch", told(world.send("PATCH", path, change, kind="text/plain"))


def events(world: World) -> Said:
    """An Event on the node: dry run, made, made again."""
    name = f"gpufleet.{world.namespace.name}"
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": world.node, "uid": world.node},
        "reason": "GpufleetCordon",
        "type": "Normal",
    }
    yield "a dry run", told(world.send("POST", EVENTS, event, query=TRIAL))
    yield "after a dry run", told(world.send("GET", f"{EVENTS}/{name}"))
    yield "made", told(world.send("POST", EVENTS, event))
    yield "made again", told(world.send("POST", EVENTS, event))
    yield "read", world.get(f"{EVENTS}/{name}")["reason"]
    yield "deleted", told(world.send("DELETE", f"{EVENTS}/{name}"))


def evictions(world: World) -> Said:
    """Pods: dry run, a wrong uid, a budget that refuses, what is not there, and one that goes."""

    def evict(name: str, uid: str | None, **query: str) -> tuple[int, Json]:
        meta = {"name": name, "namespace": world.namespace.name}
        options = {"preconditions": {"uid": uid}} if uid else {}
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": meta,
            "deleteOptions": options,
        }
        return world.send("POST", world.path(f"pods/{name}/eviction"), body, query=query)

    uid = world.get(world.path("pods/free-0"))["metadata"]["uid"]
    kept = world.get(world.path("pods/kept-0"))["metadata"]["uid"]
    yield "a dry run", told(evict("free-0", uid, **TRIAL))
    yield "after a dry run", world.get(world.path("pods/free-0"))["metadata"]["uid"] == uid
    yield "a wrong uid", told(evict("free-0", "another"))
    yield "a budget", told(evict("kept-0", kept))
    yield "a budget in a dry run", told(evict("kept-0", kept, **TRIAL))
    yield "a budget and a wrong uid", told(evict("kept-0", "another"))
    yield "no such pod", told(evict("nobody", None))
    yield "a pod", told(evict("free-0", uid))
    yield from _goes(world, "free-0 is gone", lambda: _is_gone(world, world.path("pods/free-0")))


def teardowns(world: World) -> Said:
    """A Job: a stale version, suspended, and deleted by its uid."""
    suspend = {"spec": {"suspend": True}}
    status, _ = world.patch(world.job, suspend, **TRIAL)
    yield "a dry run", (status, len(world.pods_of_job()))
    stale = {**suspend, "metadata": {"resourceVersion": STALE}}
    yield "a stale version", told(world.send("PATCH", world.job, stale, kind=MERGE_PATCH))
    status, found = world.patch(world.job, suspend)
    yield "suspended", (status, found["spec"]["suspend"])
    yield from _goes(world, "its pods are gone", lambda: not world.pods_of_job())
    uid = found["metadata"]["uid"]

    def delete(
        uid: str, query: Mapping[str, str] | None = None, **more: object
    ) -> tuple[int, Json]:
        options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}, **more}
        return world.send("DELETE", world.job, options, query=query)

    yield "a wrong uid", told(delete("another"))
    yield "deleted in a dry run", told(delete(uid, dryRun=["All"]))
    yield "after a dry run", world.get(world.job)["metadata"]["uid"] == uid
    # The trap: beside a body the query says nothing, and the Job is deleted.
    yield "a dry run of the query alone", told(delete(uid, TRIAL))
    yield from _goes(world, "the Job is gone", lambda: _is_gone(world, world.job))
    yield "deleted again", told(delete(uid))


def proxied(world: World) -> Said:
    """A Service without a pod, and none."""
    yield "no pod", told(world.send("GET", world.path("services/web:80/proxy/api/v1/query")))
    yield "no Service", told(world.send("GET", world.path("services/nobody:80/proxy/")))


def dumps(world: World) -> Said:
    """Exec by our own client: a file of several frames, a file that is not there, and refusals."""
    pod = _pod(world, "free-0")
    yield "a file", exec_socket.run(world.api, pod, ["cat", world.dump])
    yield "nothing", exec_socket.run(world.api, pod, ["cat", "/dev/null"])
    yield "no file", exec_socket.run(world.api, pod, ["cat", f"{world.dump}-none"])
    gone = fake_api.pod("nobody", namespace=world.namespace.name)
    yield "no pod", exec_socket.run(world.api, pods_of([gone])[0], ["cat", world.dump])
    other = fake_api.pod("free-0", namespace=world.namespace.name, container="other")
    heard = exec_socket.run(world.api, pods_of([other])[0], ["cat", world.dump])
    yield "no container", (heard.data, (heard.failed or "").partition(":")[0])


def _pod(world: World, name: str) -> Pod:
    return pods_of([world.get(world.path(f"pods/{name}"))])[0]


def _is_gone(world: World, path: str) -> bool:
    return world.send("GET", path)[0] == 404


def _goes(world: World, what: str, is_so: Callable[[], bool]) -> Said:
    wait_until(is_so, f"{what} at {world.api.access.server}", within_s=60)
    yield what, True


TOPICS = (reviews, proxied, cordons, events, dumps, evictions, teardowns)


def test_the_fake_takes_changes_as_the_real_server_does(real: World, made_up: World) -> None:
    """Topic by topic, to the end of each; both have said something of every one."""
    differ, count = {}, 0
    for topic in TOPICS:
        ours, theirs = dict(topic(made_up)), dict(topic(real))
        count += len(theirs)
        for what in {**ours, **theirs}:
            if ours.get(what) != theirs.get(what):
                differ[f"{topic.__name__}: {what}"] = {
                    "fake": ours.get(what),
                    "real": theirs.get(what),
                }
    assert {} == differ
    assert count > 35


def test_a_user_without_rights_changes_nothing(
    real: World, made_up: World, fake: FakeApi, tmp_path: Path
) -> None:
    """403 for each change and for exec, and nothing is changed."""
    config = real.namespace.cluster.write_kubeconfig(tmp_path / "nobody", user="nobody")
    stranger = Api(access.connect(kubeconfig=str(config)), deadline=Deadline(60))
    fake.denied |= {
        ("patch", "nodes"), ("create", "events"), ("create", "pods/eviction"),
        ("delete", "jobs"), ("patch", "jobs"), ("create", "pods/exec"),
    }  # fmt: skip
    for world, api in ((real, stranger), (made_up, made_up.api)):
        nobody = World(api=api, namespace=world.namespace, node=world.node, dump=world.dump)
        tried = [
            ("PATCH", f"/api/v1/nodes/{world.node}", MERGE_PATCH),
            ("POST", EVENTS, "application/json"),
            ("POST", world.path("pods/free-0/eviction"), "application/json"),
            ("DELETE", world.job, "application/json"),
            ("PATCH", world.job, MERGE_PATCH),
        ]
        for method, path, kind in tried:
            answer = nobody.send(method, path, {"metadata": {"name": "any"}}, kind=kind)
            assert [403, "Forbidden", []] == told(answer), (method, path)
        heard = exec_socket.run(api, _pod(world, "free-0"), ["cat", world.dump])
        assert (b"", exec_socket.NO_RIGHT) == (heard.data, heard.failed)
        assert 2 == len(world.pods_of_job())
    assert 5 == len(fake.changes)
