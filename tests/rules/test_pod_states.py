"""What the state of pods and queues tells: who cannot start, who was killed or taken away, and what came too late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpufleet_cli.facts import (
    ClusterEvent,
    ContainerState,
    Fact,
    GangHeld,
    JobNumbers,
    Origin,
    PodState,
    Sign,
)
from gpufleet_cli.rules import host_fault, program_error, rendezvous, storage_fault
from gpufleet_cli.timestamps import format_clock
from gpufleet_cli.verdict import Kind

from .stories import GAVE_UP, STOPPED, S, ended_pod, hang, proposed, running, sign, verdict

HERE = Origin(path="kubernetes/pods.json", entry=0)


def pod(number: int, state: str = "running", reason: str | None = None, **more: object) -> PodState:
    """A pod of four ranks in that state."""
    known = ended_pod(number, STOPPED)
    one = ContainerState(
        name="c",
        state=state,  # type: ignore[arg-type]
        reason=reason,
        message="Back-off pulling image" if reason == "ImagePullBackOff" else None,
        exit_code=137 if reason == "OOMKilled" else None,
        started_ns=None,
        finished_ns=STOPPED if state == "terminated" else None,
        restarts=0,
        has_gpu=True,
    )
    phase = "Pending" if state == "waiting" else "Running"
    made = replace(known, containers=(one,), phase=phase, scheduled=True, node=f"node-{number}")
    return replace(made, **more)  # type: ignore[arg-type]


def unstarted(*pods: PodState) -> list[Fact]:
    """Nobody has written a line yet."""
    return [JobNumbers(source="file", world_size=8), *pods]


# --- Gangs that have not begun -------------------------------------------------------------------


def refused(message: str, reason: str = "FailedCreate", at_ns: int = STOPPED) -> ClusterEvent:
    return ClusterEvent(
        reason=reason,
        kind="Job",
        name="train",
        namespace="ml",
        message=message,
        warning=True,
        at_ns=at_ns,
        age_s=None,
        age_error_s=0.0,
        origin=HERE,
    )


QUOTA = (
    'Error creating: pods "train-1-x" is forbidden: exceeded quota: gpus, requested: x=4, used: x=4'
)
WEBHOOK = 'admission webhook "policy.example" denied the request: no owner label'


@pytest.mark.parametrize(
    ("message", "reason", "why", "command"),
    [
        (
            QUOTA,
            "FailedCreate",
            "exceeded quota: gpus",
            "kubectl describe resourcequota gpus -n ml",
        ),
        (
            QUOTA,
            "FailedCreatePod",
            "exceeded quota: gpus",
            "kubectl describe resourcequota gpus -n ml",
        ),
        (WEBHOOK, "FailedToCreateWorkerPod", "no owner label", "kubectl describe job train -n ml"),
    ],
)
def test_pods_that_may_not_be_made(message: str, reason: str, why: str, command: str) -> None:
    """By its controller's event, whatever the reason is called; half of the gang waits for the rest."""
    [found] = proposed(rendezvous, unstarted(pod(0), refused(message, reason)))
    assert "1 of its pods was refused" in found.summary and why in found.summary
    assert "1 others wait for it" in found.summary
    assert ((), (), command) == (found.ranks, found.pods, found.settle_command)


@pytest.mark.parametrize(
    "message",
    ["Error creating: timeout", 'container is forbidden: by the "runtime"'],
    ids=["another reason", "a sandbox"],
)
def test_an_event_that_is_no_refusal(message: str) -> None:
    """Nothing is proposed on it."""
    reason = "FailedCreatePodSandBox" if "container" in message else "FailedCreate"
    assert [] == proposed(rendezvous, unstarted(pod(0), refused(message, reason)))


def test_a_refusal_of_a_gang_that_is_whole_by_now_is_no_reason() -> None:
    """Events stand for an hour."""
    assert [] == proposed(rendezvous, unstarted(pod(0), pod(1), refused(QUOTA)))


def test_a_pod_that_cannot_start_is_named_before_anybody_gave_up() -> None:
    """No log says a word; the other pod waits."""
    [found] = proposed(rendezvous, unstarted(pod(0), pod(1, "waiting", "ImagePullBackOff")))
    assert (Kind.RENDEZVOUS_FAILURE, (), ("pod-1",)) == (found.kind, found.ranks, found.pods)
    assert "(ImagePullBackOff: Back-off pulling image); 1 others wait for it" in found.summary


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", "CrashLoopBackOff"])
def test_a_pod_on_its_way_or_after_a_crash_is_not(reason: str) -> None:
    """Every pod passes through these, or ran before."""
    assert [] == proposed(rendezvous, unstarted(pod(0), pod(1, "waiting", reason)))


def test_a_gang_none_of_which_can_start_names_nobody() -> None:
    """No pod of it is the odd one."""
    waiting = [pod(n, "waiting", "ImagePullBackOff") for n in range(2)]
    [found] = proposed(rendezvous, unstarted(*waiting))
    assert ((), (), ()) == (found.ranks, found.nodes, found.pods)
    assert "all 2 pods cannot start" in found.summary


def test_a_job_that_made_steps_began() -> None:
    """A pod that was replaced in mid-run is no gang that never started."""
    facts = running(pod(0), pod(1, "waiting", "ImagePullBackOff"))
    assert [] == proposed(rendezvous, facts, STOPPED)


def held(kind: str, reason: str = "Pending") -> GangHeld:
    return GangHeld(
        kind=kind, name="g", reason=reason, message="no quota", since_ns=STOPPED, origin=HERE
    )


def test_a_queue_tells_more_than_suspend() -> None:
    """Kueue sets `suspend` itself; its own words are the reason. A gang that runs is held by nobody."""
    [found] = proposed(rendezvous, unstarted(held("Job", "Suspended"), held("Workload")))  # type: ignore[arg-type]
    assert "Kueue has not admitted it (Pending: no quota)" in found.summary
    assert [] == proposed(rendezvous, [*unstarted(pod(0)), held("Workload")])


def test_a_queue_is_named_with_a_command() -> None:
    """The queue, since when, and what shows the rest; of a name that is none there is no command."""
    queued = replace(held("Workload"), namespace="ml", queue="team-a")
    [found] = proposed(rendezvous, unstarted(queued))  # type: ignore[arg-type]
    assert f"since {format_clock(STOPPED)}; its queue: team-a." in found.summary
    assert "kubectl describe workloads.kueue.x-k8s.io g -n ml" == found.settle_command
    [found] = proposed(rendezvous, unstarted(replace(held("JobSet"), namespace="ml")))  # type: ignore[arg-type]
    assert "kubectl describe jobset g -n ml" == found.settle_command
    [found] = proposed(rendezvous, unstarted(replace(queued, name="--all")))  # type: ignore[arg-type]
    assert found.settle_command is None


# --- Killed, taken away --------------------------------------------------------------------------


def test_a_killed_container_of_several_ranks_is_named_by_its_pod() -> None:
    """Which of its ranks the kernel chose is not told; the pod is known."""
    facts = hang(pod(1, "terminated", "OOMKilled"), quiet=(4, 5, 6, 7))
    [found] = [h for h in proposed(host_fault, facts) if h.kind is Kind.HOST_OOM]
    assert ((), ("pod-1",)) == (found.ranks, found.pods)
    told = verdict(facts)
    assert [(None, "pod-1")] == [(c.rank, c.pod) for c in told.culprits]


def test_what_came_after_the_timeouts_is_no_cause() -> None:
    """Somebody evicted the pod, and a container was killed for memory, ten minutes after all had given up."""
    late = GAVE_UP + 600 * S
    evicted = pod(1, disruption="EvictionByEvictionAPI", disrupted_ns=late)
    assert [] == [h for h in proposed(host_fault, hang(evicted)) if h.rule == "host_fault"]
    known = pod(1, "terminated", "OOMKilled")
    killed = replace(known, containers=(replace(known.containers[0], finished_ns=late),))
    assert [] == [h for h in proposed(host_fault, hang(killed)) if h.kind is Kind.HOST_OOM]


def preempted(name: str, at: int) -> ClusterEvent:
    return ClusterEvent(
        reason="Preempted",
        kind="Pod",
        name=name,
        namespace=None,
        message="Preempted by pod x on node node-1",
        warning=False,
        at_ns=at,
        age_s=None,
        age_error_s=0.0,
        origin=HERE,
    )


@pytest.mark.parametrize(
    ("name", "at", "named"),
    [
        ("pod-7", STOPPED, True),  # a sibling whose object is gone
        ("other-7", STOPPED, False),  # a pod of another job
        ("pod-7", STOPPED - 7200 * S, False),  # of an earlier attempt
        ("pod-7", GAVE_UP + 600 * S, False),  # after the stall
    ],
)
def test_an_event_about_a_pod_that_is_gone(name: str, at: int, named: bool) -> None:
    """Only of this job, and only where it can be the cause."""
    found = proposed(host_fault, hang(preempted(name, at), pod(0), quiet=(4, 5, 6, 7)))
    assert ([(name,)] if named else []) == [h.pods for h in found if h.kind is Kind.RANK_CRASHED]


# --- Data ----------------------------------------------------------------------------------------


def test_a_loader_that_gave_up_is_a_data_stall() -> None:
    """Its exception is chained to an empty queue's, which stands first."""
    ends = [
        sign(Sign.PYTHON_EXCEPTION, 3, STOPPED, detail="Empty (at queues.py:114 in get)"),
        sign(Sign.DATA_RETRY, 3, STOPPED, detail="data loader timed out after 300 s"),
        sign(Sign.PYTHON_EXCEPTION, 3, STOPPED, detail="RuntimeError: DataLoader timed out"),
    ]
    assert [] == [h for h in proposed(program_error, hang(*ends)) if not h.generic]
    [found] = proposed(storage_fault, hang(*ends))
    assert (Kind.DATA_STALL, (3,)) == (found.kind, found.ranks)
    assert Kind.DATA_STALL is verdict(hang(*ends)).kind


def test_an_exception_long_after_a_slow_loader_is_its_own() -> None:
    """Another error of the same rank, minutes later."""
    ends = [
        sign(Sign.DATA_RETRY, 3, STOPPED - 300 * S, detail="data loader timed out after 30 s"),
        sign(Sign.PYTHON_EXCEPTION, 3, STOPPED, detail="IndexError: 7"),
    ]
    [found] = [h for h in proposed(program_error, hang(*ends)) if not h.generic]
    assert (Kind.RANK_CRASHED, (3,)) == (found.kind, found.ranks)
