"""`gpufleet watch` against a small API server: what it asks of it, and what it says when it cannot see."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpufleet_cli.cli import main
from live import fake_api
from live.fake_api import FakeApi, failure
from live.test_collect import INDEX, JOBS, PODS, text

Json = dict[str, Any]
Watched = Callable[..., tuple[int, list[Json], str]]


def job(fake: FakeApi, count: int = 2) -> None:
    """An Indexed Job whose rank 0 made its last step just now; the others print none."""
    made = {"name": "train", "namespace": "ml", "uid": "uid-train"}
    fake.add(JOBS, {"metadata": made, "spec": {"completions": count, "parallelism": count}})
    for index in range(count):
        labels = {"batch.kubernetes.io/job-name": "train", INDEX: str(index)}
        fake.add(PODS, fake_api.pod(f"train-{index}", labels=labels, node=f"gpu-{index}"))
        fake.logs[f"train-{index}", "trainer"] = b""
    steps(fake, 60)


def steps(fake: FakeApi, count: int, *, pod: str = "train-0") -> None:
    """So many steps up to now, one a second."""
    now = datetime.now(UTC)
    lines = [
        (now - timedelta(seconds=count - n - 1), f"[rank0]: step {1000 + n} loss 2.31 lr 1.0e-04")
        for n in range(count)
    ]
    fake.logs[pod, "trainer"] = text(lines)


@pytest.fixture
def watched(
    fake_kubeconfig: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Watched:
    """`watched(*options)`: exit status, events, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, list[Json], str]:
        code = main(
            [
                "watch",
                "train",
                "-n",
                "ml",
                "--kubeconfig",
                str(fake_kubeconfig),
                "-o",
                "json",
                *words,
            ]
        )
        told = capsys.readouterr()
        return code, [json.loads(line) for line in told.out.splitlines()], told.err

    return run


def kinds(events: list[Json]) -> list[str]:
    return [one["event"] for one in events]


def test_a_server_that_is_lost_is_no_stall(fake: FakeApi, watched: Watched) -> None:
    """Once said that it is not read, then that the job cannot be seen; no page about the job, which steps on; then it
    is seen, and ends well."""
    job(fake)
    begun: list[float] = []
    over = threading.Event()

    def for_s() -> float:
        """Since the first look, which read the log."""
        return time.monotonic() - begun[0] if begun else 0.0

    def lost(path: str, query: object) -> fake_api.Said | None:
        if path.endswith("/log") and not begun:
            begun.append(time.monotonic())
        is_asked = "/pods" in path or "/jobs" in path
        return failure(503) if is_asked and 2 < for_s() < 12 else None

    def live() -> None:
        count = 60
        while for_s() < 18 and not over.wait(0.5):
            count += 1
            steps(fake, count)
        for one in fake.collections[PODS]:
            one["status"]["phase"] = "Succeeded"
        fake.collections[JOBS][0]["status"] = {
            "conditions": [{"type": "Complete", "status": "True"}]
        }

    fake.odd.append(lost)
    alive = threading.Thread(target=live)
    alive.start()
    try:
        code, events, err = watched("--poll", "0.5s", "--watchdog-timeout", "14s")
    finally:
        over.set()
        alive.join()
    assert 0 == code, err
    told = kinds(events)
    assert {"cannot-see", "sees", "unread"} <= set(told), told
    assert not {"stalled", "failed"} & set(told), told
    assert "ended" == told[-1]


def test_a_node_that_is_gone_is_no_stall_and_is_looked_at(
    fake: FakeApi, watched: Watched, tmp_path: Path
) -> None:
    """The kubelet of the one pod that tells steps does not answer: that is said, and evidence is gathered."""
    job(fake)
    begun = time.monotonic()
    told = "Get https://10.0.0.7:10250/x: dial tcp 10.0.0.7:10250: connect: connection refused"

    def gone(path: str, query: object) -> fake_api.Said | None:
        if any(
            json.loads(one.read_bytes())["complete"] for one in tmp_path.glob("*/manifest.json")
        ):
            for one in fake.collections[PODS]:
                one["status"]["phase"] = "Succeeded"
        is_its_log = path.endswith("/train-0/log") and time.monotonic() - begun > 3
        return failure(500, told) if is_its_log else None

    fake.odd.append(gone)
    code, events, err = watched("--poll", "0.5s", "--watchdog-timeout", "12s", "--deadline", "5s")
    assert 0 == code, err
    kind = kinds(events)
    assert "stalled" not in kind and "cannot-see" in kind and "evidence" in kind, kind
    (blind,) = (one for one in events if one["event"] == "cannot-see")
    assert "kubelet" in blind["text"]


def test_a_look_asks_a_few_things_whatever_the_size(fake: FakeApi, watched: Watched) -> None:
    """Of 300 pods at most eight logs until somebody tells steps, and no log twice but for the past."""
    job(fake, count=300)
    code, events, err = watched("--once")
    assert 0 == code, err
    assert ["watching", "steps", "look"] == [
        k for k in kinds(events) if k != "unread"
    ] or "look" in kinds(events)
    assert fake.count(r"/log$") <= 9
    assert fake.count(r"/pods$") <= 2
    asked = {path for path, _ in fake.asked if re.search(r"/log$", path)}
    assert len(asked) <= 8


def test_capture_is_for_the_evidence_of_a_stall(
    fake: FakeApi, watched: Watched, tmp_path: Path
) -> None:
    """As in a triage: what each rank was asked, or why not, stands among what is missing."""
    job(fake)
    early = datetime.now(UTC) - timedelta(seconds=400)
    lines = [(early + timedelta(seconds=n), f"[rank0]: step {n} loss 2.31") for n in range(60)]
    fake.logs["train-0", "trainer"] = text(lines)
    code, events, err = watched("--once", "--capture", "--save", "kept")
    assert code >= 10, err
    (evidence,) = (one for one in events if one["event"] == "evidence")
    manifest = json.loads((tmp_path / evidence["bundle"] / "manifest.json").read_text())
    assert any("fresh" in one["what"] for one in manifest["missing"]), manifest["missing"]


def test_a_job_that_shows_no_step_is_not_called_well(fake: FakeApi, watched: Watched) -> None:
    """3: nothing tells, and nothing is said of it."""
    job(fake)
    fake.logs["train-0", "trainer"] = text([(datetime.now(UTC), "loading the model")])
    code, events, _ = watched("--once")
    assert 3 == code
    assert "stalled" not in kinds(events)
    assert "no step was seen" in events[-1]["text"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--warn-at", "1.5"), "--warn-at"),
        (("--poll", "0"), "--poll"),
        (("--poll", "soon"), "--poll"),
        (("--watchdog-timeout", "0"), "--watchdog-timeout"),
        (("--last-step-metric", "a b"), "--last-step-metric"),
        (("--match", "job_id=7"), "matchers"),
        (("--alertmanager", "alerts:9093"), "--alertmanager"),
        (("--attempt", "2"), "newest attempt"),
        (("-o", "yaml"), "--output"),
    ],
)
def test_what_cannot_be_asked_is_said_before_anybody_is_asked(
    words: tuple[str, ...], said: str, fake: FakeApi, watched: Watched
) -> None:
    """2, one line, an empty standard output."""
    code, events, err = watched(*words)
    assert (2, []) == (code, events)
    assert said in err and 1 == err.count("\n")
    assert [] == fake.asked


def test_no_such_job(fake: FakeApi, watched: Watched) -> None:
    code, events, err = watched("--once")
    assert (4, []) == (code, events)
    assert "no job train" in err


def test_a_state_that_cannot_be_kept_costs_nothing(
    fake: FakeApi, watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said, and the job is looked at all the same."""
    job(fake)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.delenv("GPUFLEET_NO_STATE")
    code, events, _ = watched("--once")
    assert 0 == code
    assert 1 == sum("not kept" in one["text"] for one in events)
