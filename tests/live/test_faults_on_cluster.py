"""What a person sees, and what the bundle says, when something breaks in the middle of a look.

Each test runs the program itself against the real API server. A job of four pods on four nodes; every look
ends by its deadline, in a line for each trouble, and keeps what it had.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from servers import jobs, namespaces, nodes, pods, proxy
from servers.cluster import Cluster, kubeconfig_context, write_kubeconfig
from servers.faults import FaultProxy
from servers.jobs import Shape
from servers.namespaces import Namespace
from servers.running import free_ports, wait_until

from live import cluster_stories as stories

ROOT = Path(__file__).parents[2]
READER = ROOT / "deploy" / "rbac" / "reader.yaml"
PODS = 4
MARGIN_S = 15.0
"""For a machine that is busy with other things."""
MOST_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How one command ended, and what it left."""

    code: int
    out: str
    err: str
    place: Path

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.place / "manifest.json").read_text())
        return found

    @property
    def missing(self) -> dict[str, str]:
        return {one["what"]: one["why"] for one in self.manifest["missing"]}

    @property
    def logs(self) -> list[str]:
        """The pods whose logs are in the bundle, whole."""
        return sorted(
            path.split("/")[3]
            for path, about in self.manifest["files"].items()
            if path.endswith("current.log") and not about.get("partial")
        )

    @property
    def troubles(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("gpufleet: missing: ")]

    def is_fine(self, code: int, *, within_s: float | None = None) -> None:
        """The exit status; no traceback; one line on standard output, or none with 4; in time."""
        assert code == self.code, self.err
        assert "Traceback" not in self.err + self.out
        assert (0 if code == 4 else 1) == self.out.count("\n"), self.out
        assert len(self.err.splitlines()) < 16, self.err
        if within_s is not None:
            assert json.loads(self.out)["seconds"] < within_s + MARGIN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A job that stalled, its pods each on a node of its own."""

    namespace: Namespace
    pods: list[str]
    nodes: list[str]
    folder: Path

    @property
    def cluster(self) -> Cluster:
        return self.namespace.cluster

    def config(self, *, url: str | None = None, token: str | None = None) -> Path:
        """A kubeconfig of the test's own namespace."""
        name = self.namespace.name
        context = kubeconfig_context(self.cluster, "admin", url=url, token=token, namespace=name)
        return write_kubeconfig(self.folder / "kubeconfig", {"prod": context}, current="prod")

    def start(self, config: Path, *options: str, to: str = "bundle") -> subprocess.Popen[str]:
        """`collect` of the job, running."""
        where = ["-n", self.namespace.name, "--kubeconfig", str(config)]
        command = ["collect", "-l", "job-id=run", "--to", str(self.folder / to), *where, *options]
        return subprocess.Popen(
            [sys.executable, "-m", "gpufleet_cli", *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self, running: subprocess.Popen[str], to: str = "bundle") -> Run:
        try:
            out, err = running.communicate(timeout=MOST_S)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
        _show(out, err, self.folder / to)
        return Run(code=running.returncode, out=out, err=err, place=self.folder / to)

    def collect(self, config: Path, *options: str, to: str = "bundle") -> Run:
        return self.ended(self.start(config, *options, to=to), to)

    def triage(self, config: Path | None, target: str = "", *options: str) -> dict[str, Any]:
        """The JSON of `triage`, live with a kubeconfig or of a bundle; nothing of it may break."""
        where = ["-l", "job-id=run", "-n", self.namespace.name, "--kubeconfig", str(config)]
        command = ["triage", *(where if config else [target]), "-o", "json", *options]
        done = subprocess.run(
            [sys.executable, "-m", "gpufleet_cli", *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=MOST_S,
            check=False,
        )
        _show(done.stdout[:0], done.stderr, None)
        assert done.returncode in (0, 3), done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def until_logs(self, count: int, to: str = "bundle") -> None:
        """Wait until so many logs are in the bundle that is being gathered."""
        place = self.folder / to
        wait_until(
            lambda: len(list(place.rglob("current.log"))) >= count,
            f"{count} logs are in the bundle",
            within_s=MOST_S / 2,
        )


def _show(out: str, err: str, place: Path | None) -> None:
    """What the person saw; pytest shows it with -s, and where a test fails."""
    print(f"\n--- stderr\n{err.rstrip()}\n--- stdout\n{out.rstrip()}")
    if place is not None and (place / "manifest.json").exists():
        for gap in json.loads((place / "manifest.json").read_text())["missing"]:
            print(f"    manifest: {gap['what']}: {gap['why']}")


def made_scene(namespace: Namespace, folder: Path, **env: str) -> Scene:
    made = nodes.make(namespace, PODS, gpus=2)
    shape = Shape(pods=PODS, gpus=2, nodes=made, env=env, args=("--nproc-per-node=2", "train.py"))
    names = jobs.plain_pods(namespace, "run", shape)
    pods.wait(namespace, "job-id=run", PODS)
    stories.stall(namespace, names, silent=1, at=stories.began())
    return Scene(namespace=namespace, pods=names, nodes=made, folder=folder)


@pytest.fixture
def scene(namespace: Namespace, tmp_path: Path) -> Scene:
    """On the cluster that all tests share."""
    return made_scene(namespace, tmp_path)


@pytest.fixture
def front(scene: Scene) -> Iterator[FaultProxy]:
    """A proxy between the program and the API server."""
    with proxy.running(scene.cluster.url, folder=scene.cluster.folder) as it:
        yield it


# --- The API server -------------------------------------------------------------------------------


def test_the_api_server_is_killed_half_way(own_cluster: Cluster, tmp_path: Path) -> None:
    """SIGKILL while half of the logs are there: they are kept; a second run goes on from them."""
    namespace = namespaces.make(own_cluster)
    scene = made_scene(namespace, tmp_path)
    config = scene.config()
    with ExitStack() as stack:
        for node in scene.nodes[2:]:  # their logs take 10 s each, so that there is a half way
            stack.enter_context(nodes.hanging_kubelet(own_cluster, node))
        running = scene.start(config, "--deadline", "40s")
        scene.until_logs(2)
        own_cluster.kill_api_server()
        done = scene.ended(running)
        own_cluster.start_api_server()
    done.is_fine(3, within_s=40)
    assert scene.pods[:2] == done.logs
    for pod in scene.pods[2:]:
        assert done.missing[f"log of {pod}/trainer"].startswith("no answer from the API server")
    (told,) = done.troubles
    assert f"missing: log of {scene.pods[2]}/trainer, log of {scene.pods[3]}/trainer" in told
    assert "the API server stopped answering; when it is back run the same command again" in told
    assert str(done.place) in told
    assert not (done.place / "kubernetes/log_reads.json").exists(), "no kubelet was silent"
    assert "bundle" == scene.triage(None, str(done.place))["target"]["kind"]

    again = scene.collect(config)
    again.is_fine(3)
    assert scene.pods == again.logs
    assert 2 == again.manifest["requests"]["log"], "only what was missing"
    assert again.manifest["captured_at"] == done.manifest["captured_at"]
    assert [] == again.troubles


def test_no_api_server_at_all(cluster: Cluster, tmp_path: Path) -> None:
    """Nothing was had where nobody listens: 4, one line with server, context and what to try."""
    url = f"https://127.0.0.1:{free_ports(1)[0]}"
    context = kubeconfig_context(cluster, "admin", url=url)
    config = write_kubeconfig(tmp_path / "kubeconfig", {"prod": context}, current="prod")
    namespace = Namespace(cluster=cluster, name="ml")
    scene = Scene(namespace=namespace, pods=[], nodes=[], folder=tmp_path)
    done = scene.collect(config, "--deadline", "20s")
    done.is_fine(4)
    (line,) = done.err.splitlines()
    assert f"cannot reach the API server {url} (context prod)" in line
    assert "try: kubectl get nodes" in line
    assert not done.place.exists()


# --- Kubelets -------------------------------------------------------------------------------------


def test_one_kubelet_is_dropped(scene: Scene) -> None:
    """Connection refused: named with its node, evidence, and no reason by itself to evict anybody."""
    nodes.stop_kubelet(scene.cluster, scene.nodes[1])
    config = scene.config()
    done = scene.collect(config, "--deadline", "40s")
    done.is_fine(3, within_s=40)
    assert [scene.pods[0], *scene.pods[2:]] == done.logs
    why = done.missing[f"log of {scene.pods[1]}/trainer"]
    assert why.startswith("the kubelet of its node does not answer:")
    assert "connection refused" in why
    assert f"(node {scene.nodes[1]}: evidence about the node)" in why
    (told,) = done.troubles
    assert told.endswith(f"look at it: gpufleet node {scene.nodes[1]}")
    reads = json.loads((done.place / "kubernetes/log_reads.json").read_text())
    assert [scene.nodes[1]] == [one["node"] for one in reads["silent"]]

    live = scene.triage(config, "", "--save", str(scene.folder / "saved"), "--deadline", "40s")
    saved = scene.triage(None, str(scene.folder / "saved"))
    assert live.pop("target") != saved.pop("target")
    assert json.dumps(live) == json.dumps(saved)
    assert "evict" not in live["recommendation"]["action"]
    assert "cordon" not in live["recommendation"]["action"]
    said = [one for one in live["verdict"]["evidence"] if "did not reply" in one["claim"]]
    assert ["kubernetes/log_reads.json#0"] == [one["source"] for one in said], live["verdict"]


def test_one_kubelet_hangs(scene: Scene) -> None:
    """It holds up nobody else, and the API server's own word is kept."""
    with nodes.hanging_kubelet(scene.cluster, scene.nodes[3]):
        done = scene.collect(scene.config(), "--deadline", "40s")
    done.is_fine(3, within_s=40)
    assert scene.pods[:3] == done.logs
    why = done.missing[f"log of {scene.pods[3]}/trainer"]
    assert "the kubelet of its node does not answer" in why
    assert "evidence about the node" in why


def test_a_kubelet_that_outlasts_the_deadline_is_only_late(scene: Scene) -> None:
    """We did not wait long enough to say anything of its node."""
    with nodes.hanging_kubelet(scene.cluster, scene.nodes[3]):
        done = scene.collect(scene.config(), "--deadline", "6s")
    done.is_fine(3, within_s=6)
    assert "not there by the deadline" == done.missing[f"log of {scene.pods[3]}/trainer"]
    assert not (done.place / "kubernetes/log_reads.json").exists()
    assert any("give --deadline more, or run the same command again" in t for t in done.troubles)


def test_no_kubelet_answers(scene: Scene) -> None:
    """The way from the API server to the nodes is at fault; no node is blamed, live or from the bundle."""
    for node in scene.nodes:
        nodes.stop_kubelet(scene.cluster, node)
    found = scene.triage(scene.config(), "", "--save", str(scene.folder / "saved"))
    for read in (found, scene.triage(None, str(scene.folder / "saved"))):
        assert [] == read["verdict"]["culprits"]
        whys = {one["what"]: one["why"] for one in read["missing_evidence"]}
        told = whys[f"log of {scene.pods[0]}/trainer"]
        assert "no node answers: tunnel or firewall, not the nodes" in told
        assert not [one for one in read["verdict"]["evidence"] if "did not reply" in one["claim"]]


# --- Throttled, no longer known, not allowed ------------------------------------------------------


def test_throttled_for_ten_seconds(scene: Scene, front: FaultProxy) -> None:
    """429 is waited out from the first request on; said once, counted, and nothing is missing for it."""
    front.throttle(seconds=10)
    done = scene.collect(scene.config(url=front.url), "--deadline", "60s")
    done.is_fine(3, within_s=60)
    assert scene.pods == done.logs
    assert 1 == done.err.count("throttles us (429): waiting")
    assert done.manifest["throttled"] > 0
    assert [] == done.troubles


def test_throttled_to_the_end(scene: Scene, front: FaultProxy) -> None:
    """Nothing was had by the deadline: 4, and why."""
    front.throttle(seconds=300)
    began = time.monotonic()
    done = scene.collect(scene.config(url=front.url), "--deadline", "6s")
    done.is_fine(4)
    assert time.monotonic() - began < 6 + 2 * MARGIN_S
    assert "429" in done.err.splitlines()[-1]
    assert not done.place.exists()


def test_a_token_expires_half_way(scene: Scene, front: FaultProxy) -> None:
    """401 from some log on: what is there stays, log in again, and the second run goes on."""
    front.expire_after(2, of=r"/log\?")
    config = scene.config(url=front.url)
    done = scene.collect(config, "--deadline", "40s")
    done.is_fine(3, within_s=40)
    assert 2 == len(done.logs)
    lost = [pod for pod in scene.pods if pod not in done.logs]
    for pod in lost:
        whys = {done.missing[f"log of {pod}/trainer"]}
        assert {"the credentials are not accepted (any more)"} == whys
    (told,) = done.troubles
    assert "the credentials are not accepted (any more); log in again" in told
    assert f"run the same command again: it goes on from {done.place}" in told
    front.expire_after(None)
    again = scene.collect(config)
    again.is_fine(3)
    assert scene.pods == again.logs
    assert 2 == again.manifest["requests"]["log"]


def test_a_token_expires_before_the_job_is_found(scene: Scene, front: FaultProxy) -> None:
    """Never "no such job": it could not be looked for."""
    front.expire_after(1)
    done = scene.collect(scene.config(url=front.url), "--deadline", "20s")
    done.is_fine(4)
    told = done.err.splitlines()[-1]
    assert "the credentials are not accepted" in told
    assert "log in again" in told


def test_a_reader_may_not_exec(namespace: Namespace, tmp_path: Path) -> None:
    """Dumps are missing with the right that is lacking and the role that has it; all else is there."""
    prefix = f"{tmp_path}/nccl_trace_rank_"
    scene = made_scene(namespace, tmp_path, TORCH_NCCL_DEBUG_INFO_TEMP_FILE=prefix)
    rules = next(yaml.safe_load_all(READER.read_text(encoding="utf-8")))["rules"]
    token = namespaces.make_user(namespace, "oncall", rules, whole_cluster=True)
    done = scene.collect(scene.config(token=token), "--deadline", "40s")
    done.is_fine(3, within_s=40)
    assert scene.pods == done.logs
    lacking = "not allowed: needs create and get on pods/exec (gpufleet-capture)"
    dumps = {why for what, why in done.missing.items() if what.startswith("Flight Recorder dump")}
    assert {lacking} == dumps
    (told,) = done.troubles
    assert lacking in told
    assert "Flight Recorder dump of rank 0" in told
    assert told.endswith("ask for that role, or give --dumps")


# --- Broken off -----------------------------------------------------------------------------------


def test_a_connection_is_reset_in_mid_body(scene: Scene, front: FaultProxy) -> None:
    """What came of the log is kept as a part, named as such, and read again by the second run."""
    front.reset(rf"/pods/{scene.pods[2]}/log", after_bytes=400)
    config = scene.config(url=front.url)
    done = scene.collect(config, "--deadline", "40s")
    done.is_fine(3, within_s=40)
    assert scene.pods[2] not in done.logs
    end = f"the end of the log of {scene.pods[2]}/trainer"
    assert "the connection broke off" == done.missing[end]
    (part,) = (done.place / "namespaces").rglob(f"{scene.pods[2]}/**/current.log")
    assert part.read_bytes().endswith(b"\n"), "whole lines"
    front.heal()
    again = scene.collect(config)
    again.is_fine(3)
    assert scene.pods == again.logs
    assert end not in again.missing


def _interrupt(scene: Scene, config: Path) -> Run:
    running = scene.start(config, "--deadline", "60s")
    scene.until_logs(2)
    running.send_signal(signal.SIGINT)
    return scene.ended(running)


@pytest.mark.usefixtures("interruptible")
def test_interrupted_half_way(scene: Scene) -> None:
    """Ctrl-C: 130, a bundle that can be read and that says what it lacks; the second run goes on."""
    config = scene.config()
    with ExitStack() as stack:
        for node in scene.nodes[2:]:
            stack.enter_context(nodes.hanging_kubelet(scene.cluster, node))
        done = _interrupt(scene, config)
    assert 130 == done.code, done.err
    assert "Traceback" not in done.err
    assert scene.pods[:2] == done.logs
    assert not done.manifest["complete"]
    for pod in scene.pods[2:]:
        assert "interrupted" == done.missing[f"log of {pod}/trainer"]
    assert str(done.place) == json.loads(done.out)["bundle"]
    assert "gpufleet: interrupted" == done.err.splitlines()[-1]
    assert any("to go on, run the same command again" in line for line in done.troubles)
    assert not (done.place / "kubernetes/log_reads.json").exists()
    assert "bundle" == scene.triage(None, str(done.place))["target"]["kind"]

    again = scene.collect(config)
    again.is_fine(3)
    assert again.manifest["complete"]
    assert scene.pods == again.logs
    assert 2 == again.manifest["requests"]["log"]
