"""More attacks on the guards of `gpufleet evict`: faults of others, budgets that take long, and containers that mislead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from servers import jobs, metrics, nodes, pods
from servers.jobs import Shape
from servers.running import wait_until

from live import cluster_stories as stories
from live.evict_hands import Make, append, meanwhile

UNCONTAINED = "NVRM: Xid (PCI:0000:1b:00): 95, pid=4242, name=python3, Uncontained ECC error."


def kernel_line(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}+00:00 {{node}} kernel: {UNCONTAINED}\n"


@pytest.mark.parametrize(("minutes_ago", "goes"), [(0.3, True), (6.0, False), (600.0, False)])
def test_a_fault_before_the_job_began_is_none_of_its(
    make: Make, tmp_path: Path, minutes_ago: float, goes: bool
) -> None:
    """An uncontained error while it runs stops it; one of the run before, a reset ago, does not."""
    gang = make("jobset")
    began = datetime.now(UTC)
    gang.step()
    node = pods.read(gang.namespace, gang.pods[1])["spec"]["nodeName"]
    folder = tmp_path / "kernel"
    folder.mkdir()
    at = datetime.now(UTC) if goes else began - timedelta(minutes=minutes_ago)
    (folder / f"{node}.log").write_text(kernel_line(at).format(node=node))
    code, out, err = gang.evict("--no-collect", "--dry-run", "--kernel-logs", str(folder))
    print(out, err)
    assert (0 if goes else 5) == code, err
    assert [] == gang.written()


def test_an_uncontained_error_on_the_gpu_of_another_job(
    make: Make, prometheus: Callable[..., str]
) -> None:
    """They share a node, and the metrics say whose GPU it was."""
    gang = make("pods")
    (node,) = nodes.make(gang.namespace, 1, gpus=8, prefix="big")
    shape = Shape(pods=1, gpus=2, nodes=[node], args=("--nproc-per-node=2", "train.py"))
    for name in ("well", "ill"):
        jobs.plain_pods(gang.namespace, name, shape)
        pods.wait(gang.namespace, f"job-id={name}", 1)
    at = datetime.now(UTC).replace(microsecond=0)
    lines = [
        (at - timedelta(seconds=60 - n), f"[rank{n % 2}]: step {1000 + n // 2} loss 2.31")
        for n in range(60)
    ]
    pods.give_log(gang.namespace, "well-0", lines)
    times = [at - timedelta(seconds=30 * n) for n in range(20, -1, -1)]
    values = [0.0] * 18 + [95.0] * 3
    series = metrics.xid_series(
        node, 4, list(zip(times, values, strict=True)), pod="ill-0", namespace=gang.namespace.name
    )
    url = prometheus([series])
    where = ["-l", "job-id=well", "-n", gang.namespace.name, "--yes", "--no-collect", "--dry-run"]
    code, out, err = gang.run("evict", *where, "--prometheus", url)
    print(out, err)
    assert 5 == code, err


def test_an_annotation_that_makes_a_helper_the_rank_s_container(make: Make) -> None:
    """A job without GPUs: the helper has ended, the program that trains has not."""
    gang = make("pods")
    more = {"name": "helper", "image": "registry.example/help:1"}
    shape = Shape(pods=1, gpus=0, others=[more],
                  annotations={"kubectl.kubernetes.io/default-container": "helper"})  # fmt: skip
    jobs.plain_pods(gang.namespace, "cpu", shape)
    (pod,) = pods.wait(gang.namespace, "job-id=cpu", 1)
    pods.terminate(gang.namespace, pod["metadata"]["name"], exit_code=1, container="helper")
    code, _, err = gang.run("evict", "-l", "job-id=cpu", "-n", gang.namespace.name, "--yes")
    print(err)
    assert 5 == code, err
    assert [] == gang.written()


def test_a_job_that_goes_on_while_a_budget_is_waited_for(make: Make) -> None:
    """It had stopped; by the time that the budget gives way it steps: none of its pods is touched."""
    gang = make("pods")
    gang.stall()
    path = gang.namespace.path("poddisruptionbudgets", "/apis/policy/v1")
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
              "metadata": {"name": "keep", "namespace": gang.namespace.name},
              "spec": {"minAvailable": 3, "selector": {"matchLabels": {"job-id": gang.name}}}}  # fmt: skip
    gang.namespace.api.create(budget)
    wait_until(
        lambda: "observedGeneration" in gang.namespace.api.get(f"{path}/keep").get("status", {}),
        "the budget was counted",
    )

    def asked() -> bool:
        return any(
            "/eviction" in one["requestURI"] for one in gang.namespace.cluster.audit(user=gang.user)
        )

    def later() -> None:
        wait_until(asked, "the budget was asked", within_s=120)
        append(gang, "[rank0]: step 5000 loss 2.31")
        gang.namespace.api.delete(f"{path}/keep")

    thread = threading.Thread(target=later)
    thread.start()
    code, _, err = gang.evict("--no-collect", "--deadline", "120s")
    thread.join()
    print(err)
    assert 5 == code, err
    assert "it made step 5000" in err and "nothing was touched" in err
    assert set(gang.pods) == gang.standing()
    assert [] == gang.written()


def test_an_event_that_quotes_an_xid(make: Make) -> None:
    """Whoever may write Events in the job's namespace may write anything: no node's kernel says it."""
    gang = make("jobset")
    gang.step()
    about = {"apiVersion": "v1", "kind": "Pod"} | pods.read(gang.namespace, gang.pods[1])
    node = {"kind": "Node", "metadata": {"name": about["spec"]["nodeName"]}}
    for one in (about, node | {"apiVersion": "v1"}):
        pods.report_event(gang.namespace, one, reason="GPUXid", message=f"kernel: {UNCONTAINED}")
    code, out, err = gang.evict("--no-collect", "--dry-run")
    print(out, err)
    assert 5 == code, err


@pytest.mark.parametrize("text", [
    "slurmstepd: error: *** JOB 123 ON node-1 CANCELLED AT 2026-03-11T03:51:19 DUE TO TIME LIMIT ***",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "Fatal Python error: Segmentation fault",
    "[rank2]:[E311 03:51:19.1 ProcessGroupNCCL.cpp:681] [Rank 2] To avoid data inconsistency, we are taking the"
    " entire process down.",
    "Killed process 4242 (python3) total-vm:1kB, anon-rss:1kB",
])  # fmt: skip
def test_dying_words_in_a_job_that_steps(make: Make, text: str) -> None:
    """A log may quote another's end; the ranks go on."""
    gang = make("pods")
    gang.step()
    at = datetime.now(UTC)
    lines = [(at - timedelta(seconds=60 - n), f"[rank{2 + n % 2}]: step {1000 + n // 2} loss 2.31")
             for n in range(60)]  # fmt: skip
    pods.give_log(gang.namespace, gang.pods[1], [*lines, (at, text)])
    with meanwhile(gang, None):
        code, _, err = gang.evict("--save", "kept")
    print(err)
    assert 5 == code, err
    assert [] == gang.written()


def test_numbers_of_the_settings_file_make_no_running_job_a_stopped_one(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A watchdog of a second and steps of a millisecond, in a job that evaluates while one of its logs lies."""
    gang = make("pods")
    config = tmp_path / "config" / "gpufleet" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        '[contexts."prod"]\nwatchdog_timeout = "1s"\nstep = "0.001s"\nrestart = "1s"\n'
        'checkpoint_interval = "1000h"\n'
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    at = datetime.now(UTC)
    for index, pod in enumerate(gang.pods):
        lines = list(stories.steps(2 * index, 2, at - timedelta(seconds=100), 40))
        if index == 0:
            lines.append((at - timedelta(seconds=59), "[rank0]: Evaluating on the validation set"))
        if index == 1:
            lines += stories.timeouts(2, 1, at - timedelta(seconds=20))
        pods.give_log(gang.namespace, pod, lines)
    more = ("--restart", "1s", "--checkpoint-interval", "2000h", "--deadline", "1s")
    code, _, err = gang.evict("--no-collect", *more)
    print(err)
    assert 5 == code, err
    assert "evaluation" in err
    assert [] == gang.written()
