"""Attempts: facts of different attempts are never joined."""

from __future__ import annotations

from gpufleet_cli.facts import Fact, LogSign, Origin, Sign, Speaker
from gpufleet_cli.reason import attempts


def sign(**speaker: object) -> LogSign:
    return LogSign(
        sign=Sign.ABORT,
        speaker=Speaker(stream=str(speaker.get("pod", "s")), **speaker),  # type: ignore[arg-type]
        at_ns=None,
        text="x",
        origin=Origin(path="a", line=1),
    )


def test_previous_logs_are_an_earlier_attempt() -> None:
    """`kubectl logs --previous` never mixes with the current instance."""
    old, new = sign(pod="p", previous=True), sign(pod="p")
    found = attempts.split([old, new])
    assert (found.current, found.earlier) == ((new,), (old,))


def test_newest_torchrun_attempt_of_each_pod() -> None:
    """Attempt 1 supersedes attempt 0 of the same pod."""
    old, new = sign(pod="p", attempt=0), sign(pod="p", attempt=1)
    found = attempts.split([old, new])
    assert (found.current, found.attempt) == ((new,), 1)


def test_a_restarted_container_does_not_age_the_other_pods() -> None:
    """A container's restart count is its pod's own: the other ranks still belong to the subject."""
    restarted = sign(pod="p", pod_uid="u1", attempt=1)
    other = sign(pod="q", pod_uid="u2", attempt=0)
    assert attempts.split([restarted, other]).current == (restarted, other)


def test_a_node_that_never_reached_the_agents_attempt_is_left_out() -> None:
    """Two agents at attempt 2 make lines of attempt 1 elsewhere an earlier story."""
    facts: list[Fact] = [sign(pod=p, attempt=2) for p in ("a", "b")]
    late = sign(pod="c", attempt=1)
    found = attempts.split([*facts, late])
    assert found.earlier == (late,)


def test_in_process_cycles_are_kept_apart() -> None:
    """NVRx cycles of one process are attempts like any other."""
    old, new = sign(pod="p", cycle=0), sign(pod="p", cycle=3)
    found = attempts.split([old, new])
    assert (found.current, found.cycle) == ((new,), 3)


def test_nothing_to_split() -> None:
    """No facts, no attempt."""
    assert attempts.split([]) == attempts.Attempts(current=(), earlier=(), attempt=None, cycle=None)
