"""The token of an attempt: another word for every other run, the same for the same pods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpufleet_cli.attempt_token import token_of
from gpufleet_cli.facts import ContainerState, Origin, PodState

S = 1_000_000_000


def container(last_finished_s: int | None = None) -> ContainerState:
    return ContainerState(
        name="trainer", state="running", reason=None, message=None, exit_code=None, started_ns=0,
        finished_ns=None, restarts=0 if last_finished_s is None else 1, has_gpu=True,
        last_finished_ns=None if last_finished_s is None else last_finished_s * S,
    )  # fmt: skip


def pod(index: int, *, created_s: int = 100, uid: str | None = None) -> PodState:
    return PodState(
        name=f"run-{index}", namespace="train", uid=uid or f"uid-{index}", node=f"node-{index}",
        pod_ip=None, phase="Running", reason=None, created_ns=created_s * S, deleted_ns=None,
        containers=(container(),), rank_container="trainer", disruption=None, disrupted_ns=None,
        gpus=8, labels=(), node_rank=index, owner="Job/run", origin=Origin(path="pods.json"),
    )  # fmt: skip


PODS = [pod(0), pod(1, created_s=101), pod(2, created_s=101)]


def test_a_token_is_short_and_the_order_and_the_state_of_pods_are_nothing_to_it() -> None:
    """Ten characters; the same for pods in another order, in another phase, on another read."""
    token = token_of(PODS)
    assert token is not None and 10 == len(token) and token.isalnum()
    assert token == token_of([*reversed(PODS), PODS[0]])
    ended = [replace(one, phase="Failed", terminating=True) for one in PODS]
    assert token == token_of(ended)


def test_pods_that_went_without_a_successor_change_nothing() -> None:
    """A Job's controller deletes what still runs, a tear-down breaks off: nothing new is in danger."""
    assert token_of(PODS) == token_of(PODS[1:]) == token_of(PODS[2:])


@pytest.mark.parametrize(
    "change",
    [
        lambda pods: [*pods, pod(3, created_s=160)],
        lambda pods: [pods[0], pods[1], pod(2, created_s=160, uid="uid-2b")],
        lambda pods: [pod(n, created_s=300, uid=f"again-{n}") for n in range(3)],
        lambda pods: [replace(pods[0], containers=(container(last_finished_s=150),)), *pods[1:]],
        lambda pods: [replace(one, namespace="other") for one in pods],
    ],
    ids=["one-more", "replaced-by-name", "made-again", "restarted-in-place", "namesake"],
)  # fmt: skip
def test_whatever_runs_anew_has_another_token(
    change: Callable[[list[PodState]], list[PodState]],
) -> None:
    """A pasted command must not hit any of these."""
    assert token_of(PODS) != token_of(change(PODS))


def test_no_token_for_pods_of_unknown_age_or_of_several_namespaces() -> None:
    """Better none than one that means nothing."""
    assert token_of([replace(one, created_ns=None) for one in PODS]) is None
    assert token_of([*PODS, replace(pod(9), namespace="other")]) is None
