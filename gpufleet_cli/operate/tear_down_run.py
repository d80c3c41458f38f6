"""A plan carried out: what was done, what stands, and whether the same command finishes it.

A patch carries the resourceVersion that was read with the pods; an eviction the pod's uid. Nothing is sent twice
but what the server said that it did not do. Where the server is lost, what it last said of each pod is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from gpufleet_cli.attempt_token import began_anew_ns
from gpufleet_cli.live.answers import Answer
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.pods import Object, Pod
from gpufleet_cli.operate import tear_down, writes
from gpufleet_cli.operate.tear_down import Plan
from gpufleet_cli.operate.writes import Writer
from gpufleet_cli.parsers import json_documents as js

TRIES = 3
LEAVING_S = 20.0
BUDGET_S = 120.0
"""So long a disruption budget is waited for where nobody says --deadline."""
_MOST_WAIT_S = 10.0
Outcome = Literal["done", "refused", "failed", "unknown", "changed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How it came out. `gone` and `stand` are pods, where they went one by one."""

    outcome: Outcome
    why: str
    gone: tuple[str, ...] = ()
    stand: tuple[str, ...] = ()


def patch(
    writer: Writer, planned: Plan, uid: str | None, again: Callable[[], str | None]
) -> Result:
    """Set the one field. `again` says why it must not be done any more, or None: asked between the read whose version
    the patch carries and the patch, so that whatever changes the object after that is a conflict."""
    for _ in range(TRIES):
        read = writer.api.get(planned.path, kind="object", tries=3)
        if not read.ok:
            return Result(outcome="failed", why=f"it cannot be read: {read.message}")
        top = _object(read)
        if planned.means == "suspend" and js.text_at(top, "metadata", "uid") != uid:
            return Result(outcome="changed", why="another object has its name now")
        if tear_down.is_down(top, planned):
            return Result(outcome="done", why=f"{'.'.join(planned.field)} was set already")
        reason = again()
        if reason is not None:
            return Result(outcome="changed", why=reason)
        version = js.text_at(top, "metadata", "resourceVersion") or ""
        answer = writer.patch(planned.path, planned.change, version=version)
        if answer.ok:
            if not tear_down.is_down(_object(answer), planned):
                field = ".".join(planned.field)
                return Result(outcome="failed", why=f"this version of its kind has no {field}")
            return Result(outcome="done", why=planned.says)
        if answer.status == 0:
            return _unconfirmed(writer.api, planned, answer)
        if not writes.is_conflict(answer):
            return Result(outcome="failed", why=writes.why_not(answer, planned.right.shown))
    return Result(outcome="failed", why=f"it was changed by others {TRIES} times in a row")


def _unconfirmed(api: Api, planned: Plan, answer: Answer) -> Result:
    """The patch got no answer: the object tells whether it was done."""
    read = api.get(planned.path, kind="object", tries=2)
    if read.ok and tear_down.is_down(_object(read), planned):
        return Result(outcome="done", why=planned.says)
    if read.ok:
        return Result(outcome="failed", why=f"not done: {answer.message}")
    return Result(outcome="unknown", why=writes.why_not(answer, planned.right.shown))


def command(writer: Writer, planned: Plan, job: Job) -> Result:
    """Volcano's way: an object that tells its controller what to do."""
    params = {"dryRun": "All"} if writer.dry_run else None
    answer = writer.api.write("POST", planned.path, tear_down.command_of(job), params=params)
    if answer.ok:
        return Result(outcome="done", why=planned.says)
    if answer.status == 404:
        why = "this Volcano takes no Commands (bus.volcano.sh)"
        return Result(outcome="failed", why=why)
    outcome: Outcome = "unknown" if answer.status == 0 else "failed"
    return Result(outcome=outcome, why=writes.why_not(answer, planned.right.shown))


def _object(answer: Answer) -> Object:
    try:
        return js.mapping(msgspec.json.decode(answer.body))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}


# --- Pod by pod -----------------------------------------------------------------------------------


def in_order(pods: Sequence[Pod]) -> list[Pod]:
    """Those that still run, the newest last: while one of these is left, the gang's token is the same."""
    running = [pod for pod in pods if pod.is_running and not pod.state.terminating]
    return sorted(
        running, key=lambda pod: (began_anew_ns(pod.state), pod.state.created_ns or 0, pod.name)
    )


def evict(
    writer: Writer,
    pods: Sequence[Pod],
    deadline: Deadline,
    *,
    grace_s: int | None = None,
    waits: bool = False,
    again: Callable[[], str | None] = lambda: None,
) -> Result:
    """All pods, one after the other. A first round asks the server without doing it, so that a budget that
    forbids even one leaves all of them standing; where it `waits`, until the deadline, and `again` says after a wait
    why it must not be done any more."""
    left = in_order(pods)
    dry = Writer(api=writer.api, dry_run=True)
    while not writer.dry_run and (refused := _forbidden(dry, left, grace_s)) is not None:
        if not waits or refused.outcome != "refused" or deadline.is_over():
            return refused
        deadline.pause(_MOST_WAIT_S / 2)
        if (reason := again()) is not None:
            return Result(
                outcome="changed", why=f"{reason}; nothing was touched", stand=_names(left)
            )
    gone: list[str] = []
    for index, pod in enumerate(left):
        failed = _one(writer, pod, deadline, grace_s)
        if failed is not None:
            stand = tuple(one.name for one in left[index:])
            return Result(outcome=failed[0], why=failed[1], gone=tuple(gone), stand=stand)
        gone.append(pod.name)
    return Result(outcome="done", why=f"{len(gone)} pods evicted", gone=tuple(gone))


def _forbidden(dry: Writer, pods: Sequence[Pod], grace_s: int | None) -> Result | None:
    """The first pod that may not go, before any has."""
    for pod in pods:
        answer = dry.evict(pod.namespace, pod.name, uid=pod.state.uid or "", grace_s=grace_s)
        if (
            answer.ok
            or answer.status == 404
            or (answer.status == 429 and not writes.is_budget(answer))
        ):
            continue
        outcome, why = _told(answer, pod.name)
        return Result(outcome=outcome, why=f"{why}; nothing was touched", stand=_names(pods))
    return None


def _one(
    writer: Writer, pod: Pod, deadline: Deadline, grace_s: int | None
) -> tuple[Outcome, str] | None:
    """None once the server took it, or it was gone."""
    while True:
        answer = writer.evict(pod.namespace, pod.name, uid=pod.state.uid or "", grace_s=grace_s)
        if answer.ok or answer.status == 404:
            return None
        if answer.status == 0:
            return _after_silence(writer, pod, answer)
        if answer.status != 429 or deadline.is_over():
            return _told(answer, pod.name)
        deadline.pause(min(_MOST_WAIT_S, max(1.0, writes.wait_s(answer))))


def _after_silence(writer: Writer, pod: Pod, answer: Answer) -> tuple[Outcome, str] | None:
    """Whether the eviction that got no answer was done, as far as a read can tell."""
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    read = writer.api.get(path, kind="pods", tries=2)
    if read.status == 404:
        return None
    found = _object(read)
    uid = js.text_at(found, "metadata", "uid")
    if read.ok and uid is not None:  # an answer that was cut off tells nothing
        is_going = js.text_at(found, "metadata", "deletionTimestamp") is not None
        if uid != pod.state.uid or is_going:
            return None
        return "failed", f"{pod.name} was not evicted: {answer.message}"
    return "unknown", f"{pod.name}: {writes.why_not(answer, 'create pods/eviction')}"


def _told(answer: Answer, pod: str) -> tuple[Outcome, str]:
    if writes.is_budget(answer):
        return "refused", f"a PodDisruptionBudget forbids the eviction of {pod}: {answer.message}"
    if writes.is_conflict(answer):
        return "changed", f"another pod has the name {pod} now: it was not touched"
    return "failed", f"{pod}: {writes.why_not(answer, 'create pods/eviction')}"


def _names(pods: Sequence[Pod]) -> tuple[str, ...]:
    return tuple(pod.name for pod in pods)


def leaving(pods: Callable[[], Sequence[Pod]], uids: frozenset[str | None]) -> list[str]:
    """The pods that still stand a while after they were told to go; a kubelet that is dead ends none."""
    wait = Deadline(LEAVING_S)
    while True:
        left = [pod.name for pod in pods() if pod.state.uid in uids and pod.is_running]
        if not left or wait.is_over():
            return left
        wait.pause(1.0)


def standing_lines(result: Result) -> Iterator[str]:
    """Which pods went and which did not."""
    for what, names in (("evicted", result.gone), ("standing", result.stand)):
        if names:
            more = f", and {len(names) - 8} more" if len(names) > 8 else ""
            yield f"{what}: {', '.join(names[:8])}{more}"
