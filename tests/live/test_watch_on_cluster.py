"""`gpufleet watch` beside a real API server, Prometheus and Alertmanager, on a job that trains while it is watched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from servers import alertmanager as managers
from servers import pods
from servers.namespaces import Namespace
from servers.running import wait_until

from live import training as trainings
from live.training import Rhythm, Training

Json = dict[str, Any]


def environment(folder: Path) -> dict[str, str]:
    """With a state of its own."""
    own = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    own.pop("GPUFLEET_NO_STATE", None)
    return own


class Watcher:
    """The process, and the events that it has printed so far."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.events: list[Json] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpufleet_cli", "watch", *command, "-o", "json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(folder), cwd=folder,
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.complaints = ""
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.events.append({**json.loads(line), "heard": time.time()})

    def _listen(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.complaints += line

    def of(self, kind: str) -> list[Json]:
        return [one for one in self.events if one["event"] == kind]

    def wait(self, kind: str, *, within_s: float = 120.0) -> Json:
        """The first event of that kind."""
        wait_until(
            lambda: self.of(kind) or self.process.poll() is not None,
            f"{kind} in {[one['event'] for one in self.events]}; {self.complaints}", within_s=within_s,
        )  # fmt: skip
        assert self.of(kind), f"{[one['event'] for one in self.events]}: {self.complaints}"
        return self.of(kind)[0]

    def ended(self, *, within_s: float = 120.0) -> int:
        code = self.process.wait(within_s)
        self.reader.join()
        self.listener.join()
        assert "Traceback" not in self.complaints
        return code


@pytest.fixture
def watching(kubeconfig: Path, tmp_path: Path) -> Iterator[Callable[..., Watcher]]:
    """`watching(training, "--poll", "1s")` starts a watch of it."""
    started: list[Watcher] = []

    def start(training: Training, *words: str) -> Watcher:
        where = ("-n", training.namespace.name, "--kubeconfig", str(kubeconfig))
        started.append(Watcher([training.name, *where, *words], tmp_path))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        one.reader.join()
        one.listener.join()


def test_a_stall_is_told_at_half_the_timeout_and_a_long_checkpoint_is_not(
    namespace: Namespace,
    prometheus: Callable[..., str],
    alertmanager: str,
    watching: Callable[..., Watcher],
    tmp_path: Path,
) -> None:
    """A save that takes longer than half the timeout, as saves of this job do, pages nobody; a stall does, its evidence
    is there before the watchdog fires, and Alertmanager has it. The job's clock is 90 s behind."""
    training = trainings.made(namespace, Rhythm(), ahead_s=-90.0)
    with trainings.exporting(training) as target:
        training.live_through(time.time())
        training.write_past()
        with training.stepping():
            url = prometheus(training.series(), targets=(target,), scrape_s=1)
            watcher = watching(
                training, "--prometheus", url, "--poll", "1s", "--watchdog-timeout", "24s",
                "--alertmanager", alertmanager, "--save", "kept",
            )  # fmt: skip
            watcher.wait("steps")
        training.save(lambda: watcher.of("excused") or watcher.of("stalled"))
        training.steps(4)
        assert not watcher.of("stalled"), watcher.events
        training.stall()
        stalled = watcher.wait("stalled")
        evidence = watcher.wait("evidence")
        (alert,) = managers.alerts(alertmanager)
        aborted = training.abort()
        assert evidence["heard"] < aborted
        assert 12 <= stalled["quiet_seconds"] < 24
        assert "GpufleetJobStalled" == alert["labels"]["alertname"]
        assert f"{namespace.name}/{training.name}" in alert["annotations"]["summary"]
        assert "gpufleet triage" in alert["annotations"]["command"]
        known = json.loads((tmp_path / evidence["bundle"] / "job.json").read_text())
        assert ("stalled", 24.0) == (known["state"], known["watchdog_timeout_seconds"])
        assert "gpufleet.triage/v1" == watcher.wait("triage")["triage"]["schema"]
        failed = watcher.wait("failed")
        assert failed["heard"] > aborted
        assert watcher.ended() >= 10


def test_by_logs_alone_one_look_tells_a_stall(
    namespace: Namespace, watching: Callable[..., Watcher]
) -> None:
    """`--once`: 10 or more, with evidence, for a job that is silent; asked again, the same stall is not gathered twice;
    0 when it steps again. Nothing is written on the cluster."""
    training = trainings.made(namespace, Rhythm(watchdog_s=600), announces=True)
    training.live_through(time.time() - 400)
    training.write_past()
    ill = watching(training, "--once", "--watchdog-timeout", "600s", "--save", "kept")
    assert ill.ended() >= 10, ill.complaints
    assert ill.of("stalled") and ill.of("evidence") and ill.of("triage"), ill.events
    again = watching(training, "--once", "--watchdog-timeout", "600s", "--save", "kept")
    assert 10 == again.ended(), again.complaints
    assert not again.of("evidence"), again.events
    training.steps(3)
    well = watching(training, "--once", "--watchdog-timeout", "600s")
    assert 0 == well.ended(), well.complaints
    assert "stepping" in well.wait("look")["text"]
    assert well.of("moves"), well.events
    own = namespace.name.removeprefix(
        "test-"
    )  # other tests share the cluster; its nodes bear it too
    written = [
        one
        for one in namespace.cluster.audit()
        if one["verb"] in ("create", "update", "patch", "delete")
        and "gpufleet" in one.get("userAgent", "")
        and own in f"{one['objectRef'].get('namespace')} {one['objectRef'].get('name')}"
        and one["objectRef"]["resource"]
        not in ("selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews")
    ]
    assert [] == written


@pytest.mark.usefixtures("interruptible")
def test_a_watch_ends_with_its_job_and_by_the_keyboard(
    namespace: Namespace, watching: Callable[..., Watcher]
) -> None:
    """Ctrl-C leaves a last line and 130; a container that began anew is another subject; a job that ends well ends the
    watch with 0."""
    training = trainings.made(namespace, Rhythm(watchdog_s=600))
    training.live_through(time.time())
    training.write_past()
    stopped = watching(training, "--poll", "1s")
    stopped.wait("steps")
    stopped.process.send_signal(signal.SIGINT)
    assert 130 == stopped.ended(), stopped.complaints
    assert "stopped" == stopped.events[-1]["event"]
    ending = watching(training, "--poll", "1s")
    ending.wait("watching")
    pods.restart(namespace, training.pods[0])
    ending.wait("attempt")
    training.end()
    assert 0 == ending.ended(), ending.complaints
    assert "ended" == ending.events[-1]["event"]
