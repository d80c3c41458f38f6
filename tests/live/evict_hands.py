"""What tests of evictions on the real cluster do again and again: a gang, the operator who acts on it, its logs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from servers import jobs, namespaces, nodes, pods
from servers.cluster import kubeconfig_context, write_kubeconfig
from servers.jobs import Shape
from servers.namespaces import Namespace
from servers.running import wait_until

from gpufleet_cli.cli import main
from gpufleet_cli.operate import tear_down_run
from live import cluster_stories as stories

RBAC = Path(__file__).parents[2] / "deploy" / "rbac"
SHAPE = Shape(pods=3, gpus=2, args=("--nproc-per-node=2", "train.py"))
SUSPEND = {
    "job": ("/apis/batch/v1", "jobs", ("suspend",)),
    "jobset": ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets", ("suspend",)),
    "pytorchjob": ("/apis/kubeflow.org/v1", "pytorchjobs", ("runPolicy", "suspend")),
}
MAKERS: dict[str, tuple[Callable[..., object], str]] = {
    "job": (jobs.indexed_job, "batch.kubernetes.io/job-name={}"),
    "jobset": (jobs.jobset, "jobset.sigs.k8s.io/jobset-name={}"),
    "pytorchjob": (jobs.pytorchjob, "training.kubeflow.org/job-name={}"),
    "pods": (jobs.plain_pods, "job-id={}"),
}
LEAVING_S = 4.0
"""Most controllers do not run here, and the pods of their jobs stay: so long they are waited for."""
WRITES = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A job on the cluster and the operator who may act on it."""

    namespace: Namespace
    kind: str
    name: str
    pods: tuple[str, ...]
    folder: Path
    capsys: pytest.CaptureFixture[str]
    token: str

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace.name}:operator"

    @property
    def container(self) -> str:
        return "pytorch" if self.kind == "pytorchjob" else "trainer"

    @property
    def target(self) -> list[str]:
        what = (
            ["-l", f"job-id={self.name}"] if self.kind == "pods" else [f"{self.kind}/{self.name}"]
        )
        return [*what, "-n", self.namespace.name]

    @property
    def log(self) -> Path:
        """Of the first pod."""
        logs = self.namespace.cluster.folder / "logs" / self.namespace.name
        return logs / self.pods[0] / f"{self.container}.log"

    def config(self, *, token: str | None = None, url: str | None = None) -> str:
        context = kubeconfig_context(
            self.namespace.cluster, "admin", url=url, token=token or self.token,
            namespace=self.namespace.name,
        )  # fmt: skip
        path = self.folder / "kubeconfig"
        return str(write_kubeconfig(path, {"prod": context}, current="prod"))

    def run(self, *words: str, config: str | None = None) -> tuple[int, str, str]:
        """A command and how it ended: exit status, standard output, standard error."""
        self.capsys.readouterr()
        code = main([*words, "--kubeconfig", config or self.config()])
        told = self.capsys.readouterr()
        assert "Traceback" not in told.err
        return code, told.out, told.err

    def evict(self, *words: str, config: str | None = None) -> tuple[int, str, str]:
        return self.run("evict", *self.target, "--yes", *words, config=config)

    def triage(self) -> dict[str, Any]:
        code, out, err = self.run("triage", *self.target, "-o", "json")
        assert code in (0, 3), err
        found: dict[str, Any] = json.loads(out)
        return found

    def written(self) -> list[str]:
        """What the operator changed, Events and dry runs apart, by the server's own audit log."""
        return [
            f"{one['verb']} {one['requestURI'].partition('?')[0]}"
            for one in self.namespace.cluster.audit(user=self.user)
            if one["verb"] in WRITES
            and "dryRun" not in one["requestURI"]
            and one["objectRef"]["resource"]
            not in ("events", "selfsubjectaccessreviews", "selfsubjectreviews")
        ]

    def standing(self) -> set[str]:
        """Pods that nobody told to go."""
        there = pods.found(self.namespace)
        return {p["metadata"]["name"] for p in there if "deletionTimestamp" not in p["metadata"]}

    def stall(self) -> None:
        stories.stall(
            self.namespace, self.pods, silent=1, at=stories.began(), container=self.container
        )

    def step(self) -> None:
        """All ranks step, up to now."""
        logs = {
            pod: list(stories.steps(2 * index, 2, stories.began(1), 60))
            for index, pod in enumerate(self.pods)
        }
        pods.give_logs(self.namespace, logs, container=self.container)


Make = Callable[[str], Gang]


@pytest.fixture
def make(
    namespace: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Make:
    """`make("job")`: its pods run, on nodes of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUFLEET_NO_STATE")
    monkeypatch.setattr(tear_down_run, "LEAVING_S", LEAVING_S)

    def made(kind: str) -> Gang:
        there = nodes.make(namespace, 3, gpus=2)
        name = f"run-{namespace.name.removeprefix('test-')}"
        maker, selector = MAKERS[kind]
        maker(namespace, name, SHAPE)
        found = pods.wait(namespace, selector.format(name), 3)
        assert set(there) == {pod["spec"]["nodeName"] for pod in found}
        return Gang(
            namespace=namespace, kind=kind, name=name, folder=tmp_path, capsys=capsys,
            pods=tuple(pod["metadata"]["name"] for pod in found), token=user(namespace, "operator"),
        )  # fmt: skip

    return made


def user(namespace: Namespace, role: str) -> str:
    """A token with the rules of that file of deploy/rbac."""
    rules = yaml.safe_load((RBAC / f"{role}.yaml").read_text(encoding="utf-8"))["rules"]
    return namespaces.make_user(namespace, role, rules, whole_cluster=True)


def audit_lines() -> list[dict[str, Any]]:
    from gpufleet_cli.operate import audit

    return [json.loads(line)["deed"] for line in audit.place().read_text().splitlines()]


def replace_pod(gang: Gang, name: str) -> None:
    """Delete a pod and make it again under its name, in a later second: creation times have no fractions."""
    newest = max(p["metadata"]["creationTimestamp"] for p in pods.found(gang.namespace))
    later = datetime.fromisoformat(newest) + timedelta(seconds=1)
    wait_until(lambda: datetime.now(UTC) > later, "the second of the newest pod is over")
    pods.remake(gang.namespace, name)


@contextmanager
def meanwhile(
    gang: Gang, then: Callable[[], object] | None, *, steps: bool = True, every_s: int = 15
) -> Iterator[None]:
    """The first rank goes on stepping; once the evidence was gathered `then` happens, each so many seconds."""
    over, happened = threading.Event(), threading.Event()

    def live() -> None:
        step, waited = 2000, 0
        while not over.wait(1.0):
            step += 1
            if steps:
                append(gang, f"[rank0]: step {step} loss 2.31 lr 1.0e-04")
            waited += _is_gathered(gang)
            if waited % every_s == 1 and then is not None:
                then()
                happened.set()

    thread = threading.Thread(target=live)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert then is None or happened.is_set()


def _is_gathered(gang: Gang) -> bool:
    manifest = gang.folder / "kept" / "manifest.json"
    return manifest.exists() and json.loads(manifest.read_bytes())["complete"] is True


def append(gang: Gang, text: str) -> None:
    with gang.log.open("ab") as log:
        log.write(pods.cri_line(datetime.now(UTC), text))
