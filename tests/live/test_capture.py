"""`--capture` on a real cluster: fresh dumps through real pipes, stacks by the real py-spy, and when it refuses."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from servers import cluster as clusters
from servers import jobs, namespaces, nodes, pods
from servers.jobs import Shape
from servers.namespaces import Namespace

from gpufleet_cli.cli import main
from live import cluster_stories as stories

FIRST = 70_400
"""Ranks that no other process of this machine claims to be."""
OLD, FRESH = b"\x80\x04}. old", b"\x80\x04}. fresh"


@contextmanager
def rank_that_listens(folder: Path, rank: int, asked: list[int]) -> Iterator[None]:
    """What torch's monitor thread does: a pipe of its own; any byte in it, and the dump is written anew."""
    pipe = folder / f"pipe_{rank}.pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    over = threading.Event()

    def listen() -> None:
        while not over.is_set():
            if select.select([reader], [], [], 0.1)[0] and os.read(reader, 4096):
                asked.append(rank)
                (folder / f"rank_{rank}").write_bytes(FRESH)
            else:
                time.sleep(0.02)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)
        os.close(reader)


class Job:
    """A job of two plain pods with a rank each, whose exec runs in one folder of this machine."""

    def __init__(
        self, namespace: Namespace, folder: Path, *, quiet_s: float, env: bool = True
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self.asked: list[int] = []
        settings = {
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/rank_",
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/pipe_",
        }
        (node,) = nodes.make(namespace, 1, gpus=8)
        shape = Shape(
            pods=2,
            gpus=1,
            nodes=[node],
            env=settings if env else {},
            args=("--nproc-per-node=1", "train.py"),
        )
        self.pods = jobs.plain_pods(namespace, "run6", shape)
        pods.wait(namespace, "job-id=run6", 2)
        at = stories.began(0) - timedelta(seconds=quiet_s + 60)
        pods.give_logs(
            namespace,
            {name: list(stories.steps(FIRST + n, 1, at, 60)) for n, name in enumerate(self.pods)},
            container="trainer",
        )
        for name in self.pods:
            pods.allow_exec(namespace, name, folder)


@pytest.fixture
def collect(
    kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[dict[str, str], Path]]:
    """`collect(*options)`: what is missing and why, and the bundle."""

    def run(*options: str, user: Path = kubeconfig) -> tuple[dict[str, str], Path]:
        place = tmp_path / "bundle"
        told = ["--to", str(place), "--kubeconfig", str(user)]
        code = main(["collect", "-l", "job-id=run6", *told, *options])
        said = capsys.readouterr()
        assert code in (0, 3), said.err
        manifest = json.loads((place / "manifest.json").read_text())
        return {one["what"]: one["why"] for one in manifest["missing"]}, place

    return run


def test_fresh_dumps_and_stacks(namespace: Namespace, collect: Any, tmp_path: Path) -> None:
    """The dump is that of after the question; the stack that of the rank's process, not of its loader."""
    if shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("py-spy is not installed: pip install '.[test]'")
    job = Job(namespace, tmp_path / "pod", quiet_s=30)
    (job.folder / f"rank_{FIRST}").write_bytes(OLD)
    with ExitStack() as stack:
        for rank in (FIRST, FIRST + 1):
            stack.enter_context(rank_that_listens(job.folder, rank, job.asked))
        stack.enter_context(process_of_a_rank(FIRST))
        missing, place = collect("--capture")
    assert [FIRST, FIRST + 1] == sorted(job.asked)
    for rank in (FIRST, FIRST + 1):
        assert FRESH == (place / f"dumps/nccl_trace_rank_{rank}").read_bytes(), missing
    text = (place / f"stacks/{job.pods[0]}/rank_{FIRST}.txt").read_text()
    assert "    wait_for_the_shard (" in text
    assert "    loader_worker (" not in text
    assert "hunter2hunter2" not in text, "arguments are redacted"
    assert (
        "no process has its RANK and a LOCAL_RANK" == missing[f"Python stack of rank {FIRST + 1}"]
    )
    manifest = json.loads((place / "manifest.json").read_text())
    assert manifest["files"][f"dumps/nccl_trace_rank_{FIRST}"]["captured"]
    assert "hunter2hunter2" not in json.dumps(manifest)


@contextmanager
def process_of_a_rank(rank: int) -> Iterator[None]:
    """A Python process in a function of a known name, with a child that inherits its environment."""
    child = "import time\ndef loader_worker(): time.sleep(600)\nloader_worker()"
    code = (
        f"import subprocess, sys, time\nchild = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "def wait_for_the_shard():\n  try: time.sleep(600)\n  finally: child.kill()\n"
        "import signal\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit())\nwait_for_the_shard()"
    )
    env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": "0"}
    words = [sys.executable, "-c", code, "--api-key", "hunter2hunter2"]
    with subprocess.Popen(words, env=env) as process:
        try:
            time.sleep(1)  # until it is where it waits
            yield
        finally:
            process.terminate()


def test_never_by_default(namespace: Namespace, collect: Any, tmp_path: Path) -> None:
    """What is there is read; nobody is asked for more."""
    job = Job(namespace, tmp_path / "pod", quiet_s=30)
    (job.folder / f"rank_{FIRST}").write_bytes(OLD)
    with rank_that_listens(job.folder, FIRST, job.asked):
        _, place = collect()
    assert [] == job.asked
    assert OLD == (place / f"dumps/nccl_trace_rank_{FIRST}").read_bytes()
    assert not (place / "stacks").exists()


def test_it_refuses_shortly_before_the_watchdog(
    namespace: Namespace, collect: Any, tmp_path: Path
) -> None:
    """How long it is quiet, and when the watchdog ends it, stand in the refusal."""
    job = Job(namespace, tmp_path / "pod", quiet_s=560)
    with rank_that_listens(job.folder, FIRST, job.asked):
        missing, _ = collect("--capture")
    assert [] == job.asked
    why = missing["fresh evidence (--capture)"]
    assert why.startswith("refused: quiet for 5"), why
    assert "the watchdog ends the job after 600 s (torch's default)" in why


def test_a_longer_watchdog_leaves_time(
    namespace: Namespace,
    kubeconfig: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`--watchdog-timeout` of triage says when it fires."""
    job = Job(namespace, tmp_path / "pod", quiet_s=560)
    saved = tmp_path / "saved"
    told = ["--kubeconfig", str(kubeconfig), "--save", str(saved), "--watchdog-timeout", "30m"]
    with rank_that_listens(job.folder, FIRST, job.asked):
        main(["triage", "-l", "job-id=run6", "--capture", *told])
    assert [FIRST] == job.asked, capsys.readouterr().err
    assert FRESH == (saved / f"dumps/nccl_trace_rank_{FIRST}").read_bytes()


def test_it_refuses_once_a_watchdog_fired(
    namespace: Namespace, collect: Any, tmp_path: Path
) -> None:
    """Its own dumps are under way, and would be overwritten."""
    job = Job(namespace, tmp_path / "pod", quiet_s=30)
    at = stories.began(0)
    lines = [*stories.steps(FIRST, 1, at, 10), *stories.timeouts(FIRST, 1, at)]
    pods.give_logs(namespace, {job.pods[0]: lines}, container="trainer")
    with rank_that_listens(job.folder, FIRST, job.asked):
        missing, _ = collect("--capture")
    assert [] == job.asked
    assert "refused: a watchdog fired at" in missing["fresh evidence (--capture)"]


def test_without_the_right_it_says_so_once(
    namespace: Namespace, collect: Any, tmp_path: Path
) -> None:
    """pods/exec is a right of its own; the rest goes on."""
    rules = [
        {
            "apiGroups": [""],
            "resources": ["pods", "pods/log", "events"],
            "verbs": ["get", "list"],
        }
    ]
    job = Job(namespace, tmp_path / "pod", quiet_s=30)
    token = namespaces.make_user(namespace, "reader", rules)
    context = clusters.kubeconfig_context(
        namespace.cluster, "reader", token=token, namespace=namespace.name
    )
    user = clusters.write_kubeconfig(tmp_path / "reader", {"reader": context}, current="reader")
    with rank_that_listens(job.folder, FIRST, job.asked):
        missing, place = collect("--capture", "-n", namespace.name, user=user)
    assert [] == job.asked
    assert (
        "not allowed: needs create and get on pods/exec (gpufleet-capture)"
        == missing["fresh evidence (--capture)"]
    )
    assert list(place.rglob("current.log"))


def test_ranks_that_cannot_be_asked(namespace: Namespace, collect: Any, tmp_path: Path) -> None:
    """No pipe, a pipe that nobody reads, a process that does not answer: each is told for its rank."""
    job = Job(namespace, tmp_path / "pod", quiet_s=30)
    os.mkfifo(job.folder / f"pipe_{FIRST}.pipe")
    missing, _ = collect("--capture")
    assert missing[f"fresh dump of rank {FIRST}"].startswith("nobody reads its pipe")
    assert missing[f"fresh dump of rank {FIRST + 1}"].startswith("it made no pipe")
    assert not (job.folder / f"pipe_{FIRST + 1}.pipe").exists(), "nothing is made in the container"


def test_a_pod_that_names_no_pipe(namespace: Namespace, collect: Any, tmp_path: Path) -> None:
    """Its environment has to."""
    job = Job(namespace, tmp_path / "pod", quiet_s=30, env=False)
    missing, _ = collect("--capture")
    what = f"fresh dumps of {', '.join(job.pods)}"
    assert "its environment does not set TORCH_NCCL_DEBUG_INFO_PIPE_FILE" == missing[what]


def test_nothing_is_captured_from_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bundle has no ranks that could be asked."""
    assert 2 == main(["triage", str(tmp_path), "--capture"])
    assert "--capture is for a job in the cluster" in capsys.readouterr().err
