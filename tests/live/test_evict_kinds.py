"""`gpufleet evict` of Volcano, Ray and MPI jobs, its JSON, a checkpoint that Prometheus tells of, and a cluster that only
kubectl reaches."""

from __future__ import annotations

import http.server
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from servers import nodes, other_jobs, pods
from servers.fixtures import require
from servers.jobs import Shape
from servers.namespaces import Namespace

from live import cluster_stories as stories
from live.evict_hands import Gang, Make, meanwhile
from live.test_ways_in import for_kubectl_alone as for_kubectl_alone
from live.test_ways_in import kubectl as kubectl

SHAPE = Shape(pods=2, gpus=2, args=("--nproc-per-node=2", "train.py"))


def stalled_log(namespace: Namespace, logs: Mapping[str, int], container: str) -> None:
    """Of each pod the first rank in its log: two ranks a pod; the last pod's fall silent."""
    names = sorted(logs, key=lambda name: logs[name])
    stories.stall(namespace, names, silent=len(names) - 1, at=stories.began(), container=container)


def answered(gang: Gang, *words: str) -> tuple[int, dict[str, Any], str]:
    code, out, err = gang.run("evict", *words, "-n", gang.namespace.name, "--yes", "-o", "json")
    found: dict[str, Any] = json.loads(out) if out else {}
    return code, found, err


def workers(namespace: Namespace, selector: str, count: int) -> list[str]:
    return [one["metadata"]["name"] for one in pods.wait(namespace, selector, count)]


# --- Means ----------------------------------------------------------------------------------------


def test_a_volcano_job_is_aborted_by_a_command(make: Make) -> None:
    """As `vcctl job suspend` does it: an object that names the job and its uid; its spec is not touched."""
    gang = make("pods")
    nodes.make(gang.namespace, 2, gpus=2, prefix="vc")
    job = other_jobs.volcano_job(gang.namespace, "vc", SHAPE)
    names = workers(gang.namespace, "volcano.sh/job-name=vc", 2)
    stalled_log(gang.namespace, {name: index for index, name in enumerate(names)}, "trainer")
    code, found, err = answered(gang, "volcanojob/vc")
    assert 0 == code, err
    assert ("done", "abort", "stalled") == (found["outcome"], found["means"], found["state"])
    path = gang.namespace.path("commands", "/apis/bus.volcano.sh/v1alpha1")
    (made,) = gang.namespace.api.items(path)
    assert ("AbortJob", "vc") == (made["action"], made["target"]["name"])
    assert job["metadata"]["uid"] == made["target"]["uid"]
    assert [f"create {path}"] == gang.written()
    assert ["vcctl job resume -N vc -n " + gang.namespace.name] == [
        one["run"] for one in found["commands"]
    ]


def test_a_ray_job_is_suspended_where_its_operator_takes_that(make: Make) -> None:
    """Without shutdownAfterJobFinishes KubeRay would not: 5, and its own means; its cluster alone is a part of it."""
    gang = make("pods")
    nodes.make(gang.namespace, 4, gpus=2, prefix="ray")
    other_jobs.rayjob(gang.namespace, "ray", SHAPE)
    names = workers(gang.namespace, "ray.io/node-type=worker", 2)
    stalled_log(gang.namespace, {name: index for index, name in enumerate(names)}, "ray-worker")
    code, found, err = answered(gang, "rayjob/ray")
    assert (5, "refused") == (code, found["outcome"]), err
    assert "shutdownAfterJobFinishes" in found["why"]
    assert f"kubectl delete rayjobs.ray.io ray -n {gang.namespace.name}" in [
        one["run"] for one in found["commands"]
    ]
    code, found, err = answered(gang, "raycluster/ray-00000")
    assert (2, {}) == (code, found), err
    assert "evict rayjob/ray" in err
    assert [] == gang.written()
    path = gang.namespace.path("rayjobs/ray", "/apis/ray.io/v1")
    gang.namespace.api.patch(path, {"spec": {"shutdownAfterJobFinishes": True}})
    code, found, err = answered(gang, "rayjob/ray")
    assert (0, "suspend") == (code, found["means"]), err
    assert gang.namespace.api.get(path)["spec"]["suspend"] is True
    assert [f"patch {path}"] == gang.written()


def test_a_ray_cluster_of_its_own_is_suspended(make: Make) -> None:
    """One that no RayJob made."""
    gang = make("pods")
    nodes.make(gang.namespace, 3, gpus=2, prefix="ray")
    other_jobs.raycluster(gang.namespace, "alone", SHAPE)
    names = workers(gang.namespace, "ray.io/node-type=worker", 2)
    stalled_log(gang.namespace, {name: index for index, name in enumerate(names)}, "ray-worker")
    code, found, err = answered(gang, "raycluster/alone")
    assert (0, "suspend") == (code, found["means"]), err
    path = gang.namespace.path("rayclusters/alone", "/apis/ray.io/v1")
    assert gang.namespace.api.get(path)["spec"]["suspend"] is True


def test_an_mpi_job_is_suspended_by_what_its_launcher_says(make: Make) -> None:
    """All ranks write there. A launcher whose log goes on, or cannot be read, is no job that stopped."""
    gang = make("pods")
    nodes.make(gang.namespace, 3, gpus=2, prefix="mpi")
    other_jobs.mpijob(gang.namespace, "mpi", SHAPE)
    pods.wait(gang.namespace, "training.kubeflow.org/job-name=mpi", 3)
    (launcher,) = workers(gang.namespace, "training.kubeflow.org/job-role=launcher", 1)
    at = stories.began()
    end = list(stories.timeouts(0, 3, stories.began(20 - 11)))
    for index in range(2):
        pods.give_log(gang.namespace, f"mpi-worker-{index}", [(at, "Server listening on :: port 2222.")],
                      container="worker")  # fmt: skip
    pods.give_logs(
        gang.namespace, {launcher: [*stories.steps(0, 4, at, 60), *end]}, container="launcher"
    )
    node = pods.read(gang.namespace, launcher)["spec"]["nodeName"]
    path = gang.namespace.path("mpijobs/mpi", "/apis/kubeflow.org/v2beta1")
    log = gang.namespace.cluster.folder / "logs" / gang.namespace.name / launcher / "launcher.log"
    there = replace(gang, pods=(launcher,))
    with meanwhile(there, lambda: step(log), steps=False):
        code, found, err = answered(gang, "mpijob/mpi", "--save", "kept")
    assert (5, "refused") == (code, found["outcome"]), err
    assert "it made step 2000" in found["why"]
    pods.give_logs(
        gang.namespace, {launcher: [*stories.steps(0, 4, at, 60), *end]}, container="launcher"
    )
    code, found, err = answered(gang, "mpijob/mpi")
    assert (0, "suspend") == (code, found["means"]), err
    assert gang.namespace.api.get(path)["spec"]["runPolicy"]["suspend"] is True
    assert [f"patch {path}"] == gang.written(), node


def step(log: Path) -> None:
    from live.test_evict_attacked import now

    with log.open("ab") as opened:
        opened.write(pods.cri_line(now(), "[rank0]: step 2000 loss 2.31 lr 1.0e-04"))


# --- JSON -----------------------------------------------------------------------------------------


def test_the_answer_as_json(make: Make) -> None:
    """A refusal with its price and its commands, a dry run, the deed; one document each, and the exit status in it."""
    gang = make("jobset")
    gang.step()
    what = f"jobset/{gang.name}"
    code, found, err = answered(gang, what, "--no-collect")
    assert (5, 5, "refused", "running") == (
        code,
        found["exit_code"],
        found["outcome"],
        found["state"],
    )
    assert "gpufleet.evict/v1" == found["schema"]
    assert found["gpu_hours"] > 0
    assert {"waits-for-checkpoint", "by-its-own-means", "looks-again"} == {
        one["does"] for one in found["commands"]
    }
    assert (sorted(gang.pods), [], None) == (
        sorted(found["standing"]), found["evicted"], found["bundle"],
    )  # fmt: skip
    assert found["why"] in err
    gang.stall()
    code, found, err = answered(gang, what, "--dry-run")
    assert (0, "done", True, []) == (code, found["outcome"], found["dry_run"], found["evicted"]), (
        err
    )
    code, found, err = answered(gang, what)
    assert (0, "done", "suspend") == (code, found["outcome"], found["means"]), err
    assert {"kind": "JobSet", "name": gang.name, "namespace": gang.namespace.name} == found["job"]
    assert sorted(gang.pods) == sorted(found["evicted"])
    assert (gang.folder / found["bundle"] / "manifest.json").is_file()
    assert ["starts-again"] == [one["does"] for one in found["commands"]]
    code, found, err = answered(gang, what)
    assert (0, "already") == (code, found["outcome"]), err
    (empty,) = nodes.make(gang.namespace, 1, gpus=2, prefix="empty")
    code, out, err = gang.run("evict", empty, "--yes", "-o", "json")
    found = json.loads(out)
    assert (0, "already", None, f"{empty}") == (code, found["outcome"], found["job"], found["node"])


# --- A checkpoint that Prometheus tells of --------------------------------------------------------


@contextmanager
def exporter(values: Mapping[str, float]) -> Iterator[str]:
    """HOST:PORT of what a trainer would be scraped at: series and their values, as they are now."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write("".join(f"{k} {v!r}\n" for k, v in dict(values).items()).encode())

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_checkpoint_that_prometheus_tells_of(make: Make, prometheus: Callable[..., str]) -> None:
    """A new time of our own pod, of just now: one in the future, an old one that comes late and a namesake's are none."""
    gang = make("jobset")
    gang.step()
    name = "training_last_checkpoint_timestamp_seconds"
    own = f'{name}{{pod="{gang.pods[0]}",namespace="{gang.namespace.name}"}}'
    second = f'{name}{{pod="{gang.pods[1]}",namespace="{gang.namespace.name}"}}'
    namesake = f'{name}{{pod="{gang.pods[0]}",namespace="elsewhere"}}'
    values = {own: time.time() - 3000, second: time.time() - 3000, namesake: 0.0}
    lies = iter(
        [
            lambda: values.update({namesake: time.time()}),
            lambda: values.update({second: time.time() - 900}),
            lambda: values.update({second: time.time() + 3600}),
        ]
    )
    standing: list[set[str]] = []

    def next_one() -> None:
        lie = next(lies, None)
        if lie is not None:
            lie()
            return
        standing.append(gang.standing())
        values.update({own: time.time(), second: 0.0})

    with exporter(values) as there:
        url = prometheus((), targets=(there,), scrape_s=1)
        with meanwhile(gang, next_one, every_s=7):
            code, _, err = gang.evict(
                *("--at-checkpoint", "--save", "kept", "--deadline", "300s", "--prometheus", url)
            )
    assert 0 == code, err
    assert "boundary: the metrics tell of a checkpoint" in err
    assert re.search(r"tell of a checkpoint 9\d\d s ago: too long for a boundary", err), err
    assert "from now: it does not count" in err
    assert standing and set(gang.pods) == standing[0]


# --- Where only kubectl comes in ------------------------------------------------------------------


def test_through_kubectl_proxy_it_says_what_to_paste(make: Make, for_kubectl_alone: Path) -> None:
    """The look is made as ever; nothing is written, and kubectl's own command is there for a job that may go."""
    require("kubectl")
    gang = make("jobset")
    gang.stall()
    config = str(for_kubectl_alone)
    code, out, err = gang.evict("--no-collect", config=config)
    assert (4, "") == (code, out), err
    assert "it has stalled" in err and "nothing is written through kubectl proxy" in err
    assert f"kubectl patch jobsets.jobset.x-k8s.io {gang.name} -n {gang.namespace.name}" in err
    gang.step()
    code, out, err = gang.evict("--no-collect", config=config)
    assert (5, "") == (code, out), err
    node = pods.read(gang.namespace, gang.pods[0])["spec"]["nodeName"]
    code, out, err = gang.run("cordon", node, "--reason", "test", config=config)
    assert (4, "") == (code, out), err
    assert f"kubectl cordon {node}" in err
    path = gang.namespace.path(f"jobsets/{gang.name}", "/apis/jobset.x-k8s.io/v1alpha2")
    assert not gang.namespace.api.get(path)["spec"].get("suspend")
