"""`gpufleet evict` as an attacker of its guards would try it, on the real API server: a job that runs stays.

Each job here runs and is well; its logs, objects, clocks and metrics say otherwise, or seem to. The measure is
the server's own audit log: nothing was written but the Event of the refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import pytest
from servers import jobs, nodes, other_jobs, pods
from servers.jobs import Shape

from gpufleet_cli.operate import second_look
from live import cluster_stories as stories
from live.evict_hands import Gang, Make, append, meanwhile

Line = tuple[datetime, str]


def now(ago_s: float = 0.0) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=ago_s)


def slow_steps(rank: int, *, every_s: float, last_ago_s: float, count: int = 12) -> list[Line]:
    """Steps of a trainer that prints one now and then."""
    last = now(last_ago_s)
    return [
        (
            last - timedelta(seconds=every_s * (count - 1 - n)),
            f"[rank{rank}]: step {1000 + 100 * n} loss 2.31 lr 1.0e-04",
        )
        for n in range(count)
    ]


def watchdog(rank: int, ago_s: float) -> Line:
    """The words of a watchdog."""
    ((_, text),) = stories.timeouts(rank, 1, now(ago_s))
    return now(ago_s), text


def give(gang: Gang, logs: Mapping[int, Iterable[Line]]) -> None:
    """What each pod's rank wrote; nothing of the others."""
    every = {pod: list(logs.get(index, ())) for index, pod in enumerate(gang.pods)}
    pods.give_logs(gang.namespace, every, container=gang.container)


def refused(gang: Gang, *words: str, says: str) -> str:
    code, out, err = gang.evict(*words)
    print(err)
    assert (5, "") == (code, out), err
    assert says in err
    assert set(gang.pods) == gang.standing()
    assert [] == gang.written()
    return err


# --- Logs that lie --------------------------------------------------------------------------------


def test_a_watchdog_s_words_between_two_steps_of_a_slow_printer(make: Make) -> None:
    """It prints a step every ten minutes: that none came in half a minute says nothing."""
    gang = make("jobset")
    steps = {n: slow_steps(2 * n, every_s=600, last_ago_s=45) for n in range(3)}
    give(gang, {**steps, 1: [*steps[1], watchdog(2, 20)]})
    refused(gang, "--no-collect", says="it prints a step every 600 s")


def test_a_caught_exception_between_two_steps_of_a_slow_printer(make: Make) -> None:
    """A mere hint: two looks five seconds apart are no three step times."""
    gang = make("jobset")
    steps = {n: slow_steps(2 * n, every_s=12, last_ago_s=8) for n in range(3)}
    words = ("Traceback (most recent call last):", '  File "/app/train.py", line 7, in <module>',
             "    main()", "RuntimeError: no such shard")  # fmt: skip
    give(gang, {**steps, 1: [*steps[1], *((now(4), f"[rank2]: {text}") for text in words)]})
    with meanwhile(gang, lambda: append(gang, "[rank0]: step 2300 loss 2.31"), steps=False):
        refused(gang, "--save", "kept", says="it made step 2300")


@pytest.mark.parametrize("lie", ["watchdog", "exception"])
def test_a_lie_while_an_evaluation_is_open(make: Make, lie: str) -> None:
    """No step is made in an evaluation, and none is missed."""
    gang = make("pods")
    steps = {n: list(stories.steps(2 * n, 2, now(100), 40)) for n in range(3)}
    words = [watchdog(2, 20)]
    if lie == "exception":
        words = [(now(20), f"[rank2]: {text}") for text in
                 ("Traceback (most recent call last):", '  File "/app/train.py", line 7, in <module>',
                  "    main()", "RuntimeError: no such shard")]  # fmt: skip
    begins = (now(59), "[rank0]: Evaluating on the validation set at step 1039")
    give(gang, {0: [*steps[0], begins], 1: [*steps[1], *words], 2: steps[2]})
    refused(gang, "--no-collect", says="evaluation")


def test_a_lie_in_a_job_that_prints_no_step(make: Make) -> None:
    """Nobody can say whether it steps; that it writes is enough to leave it alone."""
    gang = make("pods")
    talk = [(now(120 - n), f"tokens seen {n * 4096}") for n in range(100)]
    give(gang, {0: talk, 1: [*talk, watchdog(2, 30)], 2: talk})
    with meanwhile(gang, lambda: append(gang, "tokens seen 99999999"), steps=False):
        code, _, err = gang.evict("--save", "kept")
    print(err)
    assert 5 == code, err
    assert [] == gang.written()


def test_a_lie_on_a_node_whose_clock_is_half_an_hour_behind(make: Make) -> None:
    """What is new is told by each log itself, whatever its node's clock says."""
    gang = make("pods")
    behind = 1800
    steps = {n: list(stories.steps(2 * n, 2, now(60 + behind), 60)) for n in range(3)}
    give(gang, {**steps, 1: [*steps[1], watchdog(2, behind)]})

    def step() -> None:
        with gang.log.open("ab") as log:
            text = "[rank0]: step 1005 loss 2.31"  # it began anew at an older checkpoint
            log.write(pods.cri_line(now(behind), text))

    with meanwhile(gang, step, steps=False):
        code, _, err = gang.evict("--save", "kept")
    print(err)
    assert 5 == code, err
    assert [] == gang.written()


@pytest.mark.parametrize("code", [95, 48])
def test_an_xid_that_a_rank_prints_itself(make: Make, code: int) -> None:
    """A job may print what it likes: what may corrupt it is told by the node's own kernel or metrics."""
    gang = make("jobset")
    steps = {n: list(stories.steps(2 * n, 2, now(60), 60)) for n in range(3)}
    lie = f"[184022.771034] NVRM: Xid (PCI:0000:1b:00): {code}, pid=4242, name=python3, Ch 00000008"
    give(gang, {**steps, 1: [*steps[1], (now(20), lie)]})
    refused(gang, "--no-collect", says=f"XID {code}")


def test_it_says_that_it_has_finished_and_still_writes_its_model(make: Make) -> None:
    """Its containers run: the last save, or an upload, may be under way."""
    gang = make("jobset")
    steps = {n: list(stories.steps(2 * n, 2, now(90), 60)) for n in range(3)}
    end = [(now(29), "[rank0]: Training completed successfully"),
           (now(28), "[rank0]: Saving final checkpoint to /ckpt/final")]  # fmt: skip
    give(gang, {**steps, 0: [*steps[0], *end]})
    refused(gang, "--no-collect", says="run")


def test_the_log_of_the_rank_that_steps_cannot_be_read(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet that does not answer is no silence of the job, however long it is waited for."""
    monkeypatch.setattr(second_look, "RHYTHM_S", 8.0)
    gang = make("pods")
    steps = list(stories.steps(0, 2, now(100), 40))
    give(gang, {0: steps, 1: [watchdog(2, 20)], 2: []})
    node = pods.read(gang.namespace, gang.pods[0])["spec"]["nodeName"]
    path = f"/api/v1/nodes/{node}"
    where = gang.namespace.api.get(path)["status"]["daemonEndpoints"]
    where["kubeletEndpoint"]["Port"] = 1
    gang.namespace.api.patch(path + "/status", {"status": {"daemonEndpoints": where}})
    refused(gang, "--no-collect", says="read")


# --- Objects that lie -----------------------------------------------------------------------------


def test_labels_that_match_two_gangs(make: Make) -> None:
    """One stalled, one well: both are named, and none is touched."""
    gang = make("pods")
    gang.stall()
    nodes.make(gang.namespace, 2, gpus=2, prefix="more")
    jobs.plain_pods(gang.namespace, "well", Shape(pods=2, gpus=2, labels={"team": "a"}))
    pods.wait(gang.namespace, "job-id=well", 2)
    for pod in gang.pods:
        path = gang.namespace.path(f"pods/{pod}")
        gang.namespace.api.patch(path, {"metadata": {"labels": {"team": "a"}}})
    before = gang.standing()
    code, _, err = gang.run("evict", "-l", "team=a", "-n", gang.namespace.name, "--yes")
    print(err)
    assert 5 == code, err
    assert "job-id=well" in err and f"job-id={gang.name}" in err
    assert before == gang.standing()


def test_a_pod_of_another_job_that_carries_the_label_of_this_one(make: Make) -> None:
    """It is in the way of no eviction of ours: whose a pod is, its owner says."""
    gang = make("pods")
    nodes.make(gang.namespace, 4, gpus=2, prefix="lws")
    shape = Shape(pods=2, gpus=2, args=("--nproc-per-node=2", "train.py"))
    other_jobs.leaderworkerset(gang.namespace, "served", shape)
    ours = pods.wait(gang.namespace, "leaderworkerset.sigs.k8s.io/name=served", 2)
    jobs.indexed_job(gang.namespace, "well", Shape(pods=1, gpus=2))
    (stranger,) = pods.wait(gang.namespace, "batch.kubernetes.io/job-name=well", 1)
    name = stranger["metadata"]["name"]
    labels = {"leaderworkerset.sigs.k8s.io/name": "served",
              "leaderworkerset.sigs.k8s.io/group-index": "0",
              "leaderworkerset.sigs.k8s.io/worker-index": "7"}  # fmt: skip
    gang.namespace.api.patch(gang.namespace.path(f"pods/{name}"), {"metadata": {"labels": labels}})
    ill = [pod["metadata"]["name"] for pod in ours]
    stories.stall(gang.namespace, ill, silent=1, at=stories.began())
    where = ["-n", gang.namespace.name, "--yes", "--no-collect"]
    code, _, err = gang.run("evict", "lws/served", *where)
    print(code, err)
    assert name in gang.standing()
    assert not [one for one in gang.written() if f"/{name}/" in one]


def test_a_second_container_with_gpus_still_trains(make: Make) -> None:
    """One of two has ended in each pod; the job has not."""
    gang = make("pods")
    more = {"name": "second", "image": "registry.example/train:1",
            "resources": {"limits": {"nvidia.com/gpu": "1"}}}  # fmt: skip
    nodes.make(gang.namespace, 1, gpus=2, prefix="two")
    jobs.plain_pods(gang.namespace, "twins", Shape(pods=1, gpus=1, others=[more]))
    (pod,) = pods.wait(gang.namespace, "job-id=twins", 1)
    pods.terminate(gang.namespace, pod["metadata"]["name"], exit_code=0, container="trainer")
    code, _, err = gang.run("evict", "-l", "job-id=twins", "-n", gang.namespace.name, "--yes")
    print(err)
    assert 5 == code, err
    assert [] == gang.written()


def test_a_workload_that_another_job_owns(make: Make) -> None:
    """Its label names our job, its owner another: deactivating it would stop the other one."""
    gang = make("job")
    gang.stall()
    path = gang.namespace.path(f"jobs/{gang.name}", "/apis/batch/v1")
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    gang.namespace.api.patch(path, {"metadata": {"labels": labels}})
    nodes.make(gang.namespace, 1, gpus=2, prefix="more")
    jobs.indexed_job(gang.namespace, "well", Shape(pods=1, gpus=2))
    well = gang.namespace.api.get(gang.namespace.path("jobs/well", "/apis/batch/v1"))
    workload = other_jobs.kueue_workload(
        gang.namespace, {"apiVersion": "batch/v1", "kind": "Job"} | well
    )
    kept = gang.namespace.path(
        f"workloads/{workload['metadata']['name']}", "/apis/kueue.x-k8s.io/v1beta1"
    )
    uid = gang.namespace.api.get(path)["metadata"]["uid"]
    gang.namespace.api.patch(kept, {"metadata": {"labels": {"kueue.x-k8s.io/job-uid": uid}}})
    code, _, err = gang.evict("--no-collect")
    print(err)
    assert 5 == code, err
    assert [] == gang.written()


# --- While somebody thinks ------------------------------------------------------------------------


def test_a_container_that_began_anew_in_place_leaves_no_last_state(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet that was restarted forgets the container before; the count of restarts still tells."""
    gang = make("jobset")
    gang.stall()

    def again() -> None:
        for pod in gang.pods:
            path = gang.namespace.path(f"pods/{pod}")

            def change(found: dict) -> None:  # type: ignore[type-arg]
                one = found["status"]["containerStatuses"][0]
                one["restartCount"] += 1

            gang.namespace.api.update(path, change, part="/status")

    monkeypatch.setattr("gpufleet_cli.commands.evict.confirm", lambda *_, **__: again())
    code, out, err = gang.run("evict", *gang.target, "--no-collect")
    print(err)
    assert (5, "") == (code, out), err
    assert [] == gang.written()
