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

from live.evict_hands import Make, append

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
