"""`gpufleet evict` on the real API server: what it takes down, what it refuses, and what it then has written.

A gang of three pods on three nodes. Who acts has `gpufleet-operator` and nothing else.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from servers import jobs, nodes, other_jobs, pods, proxy
from servers.jobs import Shape
from servers.running import wait_until

from gpufleet_cli.live import access
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.pods import pods_of
from gpufleet_cli.operate import boundary, tear_down_run
from gpufleet_cli.operate.writes import Writer
from live import cluster_stories as stories
from live.evict_hands import (
    SUSPEND,
    Make,
    append,
    audit_lines,
    meanwhile,
    replace_pod,
    user,
)

# --- What has stopped -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SUSPEND)
def test_a_gang_that_has_stopped_is_suspended(kind: str, make: Make) -> None:
    """With the token that triage printed; one patch; a bundle, a line and an Event are left; again is no harm."""
    gang = make(kind)
    gang.stall()
    advice = gang.triage()["recommendation"]
    token = advice["attempt_token"]
    where = f"{gang.name} -n {gang.namespace.name}"
    printed = f"gpufleet evict {where} --if-attempt {token}"
    assert printed in [one["run"] for one in advice["commands"]]
    code, out, err = gang.run(*printed.split()[1:], "--yes")
    assert 0 == code, err
    root, plural, field = SUSPEND[kind]
    path = gang.namespace.path(f"{plural}/{gang.name}", root)
    spec = gang.namespace.api.get(path)["spec"]
    for key in field:
        spec = spec[key]
    assert spec is True
    assert [f"patch {path}"] == gang.written()
    assert "kubectl patch" in out and "false" in out
    assert "logs" in err
    (kept,) = gang.folder.glob("gpufleet-evict-*")
    assert (kept / "manifest.json").is_file()
    assert ["done"] == [one["outcome"] for one in audit_lines()]
    on_node = [
        one
        for one in gang.namespace.api.items("/api/v1/namespaces/default/events")
        if one["reason"] == "GpufleetEvict" and gang.name in one["message"]
    ]
    assert on_node
    if kind == "job":  # the controllers of the others do not run here
        wait_until(lambda: not gang.standing(), "the pods went")
    code, out, err = gang.evict("--if-attempt", token)
    assert 0 == code, err
    assert "already" in out or "left to take down" in out
    assert 1 == len(gang.written())


def test_plain_pods_are_evicted_and_a_budget_stops_all_of_them(make: Make) -> None:
    """A budget that allows none leaves all three standing (5); without it they go, by the Eviction API."""
    gang = make("pods")
    gang.stall()
    budget = gang.namespace.path("poddisruptionbudgets", "/apis/policy/v1")
    gang.namespace.api.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep", "namespace": gang.namespace.name},
            "spec": {"minAvailable": 3, "selector": {"matchLabels": {"job-id": gang.name}}},
        }
    )
    wait_until(
        lambda: "observedGeneration" in gang.namespace.api.get(f"{budget}/keep").get("status", {}),
        "the budget was counted",
    )
    code, _, err = gang.evict("--no-collect")
    assert 5 == code, err
    assert "PodDisruptionBudget" in err and "nothing was touched" in err
    assert set(gang.pods) == gang.standing()
    assert [] == gang.written()
    gang.namespace.api.delete(f"{budget}/keep")
    code, out, err = gang.evict("--no-collect", "--dry-run")
    assert 0 == code, err
    assert out.startswith("dry run")
    assert [] == gang.written()
    code, out, err = gang.evict("--no-collect", "--grace-period", "1")
    assert 0 == code, err
    assert not gang.standing()
    assert 3 == sum(one.endswith("/eviction") for one in gang.written()) == len(gang.written())
    assert not list(gang.folder.glob("gpufleet-evict-*"))
    assert ["refused", "done"] == [one["outcome"] for one in audit_lines()]


def test_the_gang_of_a_node_is_evicted_by_the_node_s_name(make: Make) -> None:
    """The node says which job; a node without a gang is no failure."""
    gang = make("job")
    gang.stall()
    node = pods.read(gang.namespace, gang.pods[1])["spec"]["nodeName"]
    code, out, err = gang.run("evict", f"node/{node}", "--yes", "--dry-run")
    assert 0 == code, err
    assert gang.name in out
    assert f"without {node}: a restart will not place" in err
    assert [] == gang.written()
    (empty,) = nodes.make(gang.namespace, 1, gpus=2, prefix="empty")
    _code, _out, err = gang.run("evict", f"node/{node}", "--yes", "--dry-run")
    assert f"without {node}: a restart places" in err
    code, out, err = gang.run("evict", empty, "--yes")
    assert (0, True) == (code, "no gang holds" in out), err


def test_a_node_that_two_gangs_hold_and_a_part_of_a_job(make: Make) -> None:
    """Both are named, and one is to be chosen; the Job of a JobSet is not torn down without its JobSet."""
    gang = make("jobset")
    node = nodes.make(gang.namespace, 1, gpus=4, prefix="two")[0]
    for name in ("first", "second"):
        shape = Shape(pods=1, gpus=2, nodes=[node])
        jobs.pytorchjob(gang.namespace, name, shape)
        pods.wait(gang.namespace, f"training.kubeflow.org/job-name={name}", 1)
    code, _, err = gang.run("evict", f"node/{node}", "--yes")
    assert 5 == code, err
    assert "pytorchjob/first" in err and "pytorchjob/second" in err
    part = f"job/{gang.name}-workers-0"
    code, _, err = gang.run("evict", part, "-n", gang.namespace.name, "--yes")
    assert 2 == code, err
    assert f"gpufleet evict jobset/{gang.name} -n {gang.namespace.name}" in err
    code, _, err = gang.run("evict", "no/../../x", "--yes")
    assert 2 == code, err
    assert [] == gang.written()


def test_of_a_leader_worker_set_the_ill_group_alone_goes(make: Make) -> None:
    """Each group is a gang of its own: the healthy one is not touched."""
    gang = make("pods")
    nodes.make(gang.namespace, 4, gpus=2, prefix="lws")
    shape = Shape(pods=2, gpus=2, args=("--nproc-per-node=2", "train.py"))
    other_jobs.leaderworkerset(gang.namespace, "served", shape, groups=2)
    pods.wait(gang.namespace, "leaderworkerset.sigs.k8s.io/name=served", 4)
    ill = ["served-1", "served-1-1"]
    stories.stall(gang.namespace, ill, silent=1, at=stories.began())
    pods.restart(gang.namespace, ill[1], exit_code=134)
    where = ["-n", gang.namespace.name, "--yes", "--no-collect"]
    code, _, err = gang.run("evict", "lws/served", *where)
    assert 0 == code, err
    assert "its controller makes them anew at once" in err
    evicted = {one.split("/")[-2] for one in gang.written() if one.endswith("/eviction")}
    assert evicted and evicted <= set(ill)


# --- What is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["jobset", "pods"])
def test_a_job_that_runs_is_not_touched(kind: str, make: Make) -> None:
    """5, the price, its own controller's means; nothing written but the Event; there is no --force."""
    gang = make(kind)
    gang.step()
    code, out, err = gang.evict("--no-collect", "--grace-period", "0") if kind == "pods" else (
        gang.evict("--no-collect")
    )  # fmt: skip
    assert (5, "") == (code, out), err
    assert "kubectl" in err and "--at-checkpoint" in err and "GPU-h" in err
    assert set(gang.pods) == gang.standing()
    assert [] == gang.written()
    assert 2 == gang.evict("--force")[0]
    assert 2 == gang.evict("--state", "aborted")[0]
    assert 5 == gang.evict("--save", "old")[0]
    code, _, err = gang.evict("--save", "old")  # old evidence is no evidence
    assert 2 == code and "evict looks anew" in err, err
    assert [] == gang.written()


def test_a_traceback_alone_is_no_proof_that_a_job_has_stopped(make: Make) -> None:
    """A second look: where a step follows it is refused, where none does it has stopped."""
    gang = make("pods")
    at = stories.began(3)
    logs = {pod: list(stories.steps(2 * i, 2, at, 60)) for i, pod in enumerate(gang.pods)}
    logs[gang.pods[1]] += [
        (at + timedelta(seconds=60), f"[rank2]: {text}")
        for text in (
            "Traceback (most recent call last):",
            '  File "/app/train.py", line 7, in <module>',
            "    main()",
            "RuntimeError: no such shard",
        )
    ]
    pods.give_logs(gang.namespace, logs)
    code, out, err = gang.evict("--dry-run")
    assert 0 == code, err
    assert "a second look" in err and out.startswith("dry run")
    with meanwhile(gang, lambda: append(gang, "[rank0]: step 5000 loss 2.31"), steps=False):
        code, _, err = gang.evict("--save", "kept")
    assert 5 == code, err
    assert "it made step 5000 while it was looked at" in err
    assert [] == gang.written()


def test_a_job_that_goes_on_while_a_person_thinks_is_left_alone(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had stopped when it was looked at, and steps by the time somebody typed its name."""
    gang = make("jobset")
    gang.stall()
    monkeypatch.setattr("gpufleet_cli.operate.evict.AT_ONCE_NS", -1)
    goes_on = partial(append, gang, "[rank0]: step 5000 loss 2.31")
    monkeypatch.setattr("gpufleet_cli.commands.evict.confirm", lambda *_, **__: goes_on())
    code, out, err = gang.run("evict", *gang.target)
    assert (5, "") == (code, out), err
    assert "it made step 5000 while it was looked at" in err
    assert set(gang.pods) == gang.standing()
    assert [] == gang.written()


def test_a_reader_is_refused_before_anything_is_read(make: Make) -> None:
    """4, with the right and the role; nobody is asked, nothing gathered."""
    gang = make("job")
    gang.stall()
    config = gang.config(token=user(gang.namespace, "reader"))
    code, out, err = gang.evict(config=config)
    assert (4, "") == (code, out), err
    assert "patch jobs.batch" in err and "gpufleet-operator" in err
    assert set(gang.pods) == gang.standing()
    assert not list(gang.folder.glob("gpufleet-evict-*"))


def test_a_pasted_command_does_not_hit_the_run_that_came_after(make: Make) -> None:
    """The pods are others by now: 5, the new one is named; the old token is worth nothing any more."""
    gang = make("pods")
    gang.stall()
    advice = gang.triage()["recommendation"]
    token = advice["attempt_token"]
    where = f"-l job-id={gang.name} -n {gang.namespace.name}"
    assert f"gpufleet evict {where} --if-attempt {token}" in [o["run"] for o in advice["commands"]]
    replace_pod(gang, gang.pods[2])
    code, _, err = gang.evict("--no-collect", "--if-attempt", token)
    assert 5 == code, err
    assert gang.pods[2] in err and token in err
    assert set(gang.pods) == gang.standing()
    assert [] == gang.written()


def test_a_pod_that_took_another_s_name_is_never_evicted(make: Make) -> None:
    """Between the last read and the eviction: the uid goes along, and the server refuses."""
    gang = make("pods")
    way = access.connect(kubeconfig=gang.config(), context=None)
    api = Api(way, deadline=Deadline(120))
    seen = pods_of(pods.found(gang.namespace))
    replace_pod(gang, gang.pods[0])
    result = tear_down_run.evict(Writer(api=api), seen, Deadline(30))
    assert "changed" == result.outcome
    assert set(gang.pods) == gang.standing()


def test_the_api_server_is_lost_between_two_pods(make: Make) -> None:
    """4, with who went and who stands; the same command, token and all, finishes it."""
    gang = make("pods")
    gang.stall()
    token = gang.triage()["recommendation"]["attempt_token"]
    cluster = gang.namespace.cluster
    there = pods.found(gang.namespace)
    there.sort(key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
    first, second, third = (str(pod["metadata"]["name"]) for pod in there)
    with proxy.running(cluster.url, folder=cluster.folder) as between:
        between.reset(rf"/pods/{second}/eviction$", after_bytes=0)
        between.reset(rf"/pods/{second}$", after_bytes=0)
        config = gang.config(url=between.url)
        code, out, err = gang.evict("--no-collect", "--if-attempt", token, config=config)
    assert (4, "") == (code, out), err
    assert f"evicted: {first}" in err
    assert second in err and third in err and "again finishes it" in err
    assert third in gang.standing()
    code, _, err = gang.evict("--no-collect", "--if-attempt", token)
    assert 0 == code, err
    assert not gang.standing()


# --- At the boundary ------------------------------------------------------------------------------


def test_at_the_next_checkpoint_it_is_taken_down(make: Make) -> None:
    """A running job saves while we wait; until then it stands."""
    gang = make("job")
    gang.step()
    before: list[set[str]] = []

    def save() -> None:
        before.append(gang.standing())
        saved = f"successfully saved checkpoint from iteration    {2030 + len(before)} to /ckpt/run"
        append(gang, saved)

    with meanwhile(gang, save):
        code, out, err = gang.evict("--at-checkpoint", "--save", "kept", "--deadline", "300s")
    assert 0 == code, err
    assert set(gang.pods) == before[0]
    assert "logged a durable checkpoint of step 203" in err
    assert "kubectl patch" in out
    wait_until(lambda: not gang.standing(), "the pods went")


def test_a_marker_that_the_job_writes_is_a_boundary_too(make: Make) -> None:
    """A file on a place that we see; plain pods then go one by one."""
    gang = make("pods")
    gang.step()
    marker = gang.folder / "latest"
    marker.write_text("step-1000")
    stamps = iter(range(2000, 3000))
    more = ("--save", "kept", "--deadline", "300s", "--checkpoint-marker", str(marker))
    with meanwhile(gang, lambda: marker.write_text(f"step-{next(stamps)}")):
        code, out, err = gang.evict("--at-checkpoint", *more)
    assert 0 == code, err
    assert f"{marker} was written" in err
    assert "3 pods evicted" in out
    assert not gang.standing()


def test_a_job_that_stops_stepping_while_it_is_waited_for_is_left_alone(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is another matter now: 5, nothing touched, look again. Ten steps, here without the least of a minute."""
    monkeypatch.setattr(boundary, "LEAST_STALL_S", 0.0)
    gang = make("job")
    gang.step()
    code, _, err = gang.evict("--at-checkpoint", "--no-collect", "--deadline", "300s")
    assert 5 == code, err
    assert "no step after 1059" in err and "nothing was touched" in err
    assert [] == gang.written()


def test_a_job_that_never_saves_is_left_alone(make: Make) -> None:
    """5 at the deadline, nothing touched."""
    gang = make("job")
    gang.step()
    with meanwhile(gang, None):
        code, _, err = gang.evict("--at-checkpoint", "--save", "kept", "--deadline", "8s")
    assert 5 == code, err
    assert "no checkpoint within 8 s" in err and "nothing was touched" in err
    assert [] == gang.written()


def test_a_job_that_dies_while_it_is_waited_for_is_left_alone(make: Make) -> None:
    """5, who died, and a fresh command; its logs are still there to be read."""
    gang = make("pods")
    gang.step()

    def die() -> None:
        if gang.pods[1] in gang.standing():
            pods.terminate(gang.namespace, gang.pods[1])

    with meanwhile(gang, die):
        code, _, err = gang.evict("--at-checkpoint", "--save", "kept", "--deadline", "300s")
    assert 5 == code, err
    assert f"the container of {gang.pods[1]} ended" in err
    assert "gpufleet evict" in err and "--if-attempt" in err
    assert [] == gang.written()


# --- Kueue ----------------------------------------------------------------------------------------


def test_under_kueue_its_workload_is_deactivated(make: Make) -> None:
    """The Job's own suspend is Kueue's: not ours to touch."""
    gang = make("job")
    gang.stall()
    path = gang.namespace.path(f"jobs/{gang.name}", "/apis/batch/v1")
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    gang.namespace.api.patch(path, {"metadata": {"labels": labels}})
    code, _, err = gang.evict("--no-collect")
    assert 5 == code, err
    assert "Kueue" in err
    job = {"apiVersion": "batch/v1", "kind": "Job"} | gang.namespace.api.get(path)
    workload = other_jobs.kueue_workload(gang.namespace, job, count=3)["metadata"]["name"]
    code, out, err = gang.evict("--no-collect")
    assert 0 == code, err
    kept = gang.namespace.path(f"workloads/{workload}", "/apis/kueue.x-k8s.io/v1beta1")
    assert gang.namespace.api.get(kept)["spec"]["active"] is False
    assert gang.namespace.api.get(path)["spec"]["suspend"] is False
    assert f"workloads.kueue.x-k8s.io {workload}" in out
