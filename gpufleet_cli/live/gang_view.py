"""From pods and job objects to the gangs of a cluster, worst first: pure functions on what was read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpufleet_cli.gang_card import GangCard, GangState, MarkedNode
from gpufleet_cli.live import first_facts, kinds, node_gangs
from gpufleet_cli.live.choose_attempt import LOOKBACK_S
from gpufleet_cli.live.gather import ranks_in
from gpufleet_cli.live.kinds import Object
from gpufleet_cli.live.node_gangs import JobRef
from gpufleet_cli.live.pods import Attempt, Pod, attempts_of
from gpufleet_cli.parsers import json_documents as js
from gpufleet_cli.parsers.kubernetes_pods import time_of
from gpufleet_cli.timestamps import format_clock

NS = 1_000_000_000
SILENT_S = 300.0
"""Half the usual watchdog timeout: a synchronous job that steps writes more often."""
OLD_S = 24 * 3600.0
_KNOWN = frozenset({kind.kind for kind in kinds.KINDS} | {"PodGroup", node_gangs.PLAIN})
FAILED = frozenset({"Failed", "FAILED", "Aborted", "Terminated"})
ENDED = frozenset({"Complete", "Completed", "Succeeded", "SUCCEEDED", "Finished", "STOPPED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The pods of one job and its object, where it was read."""

    job: JobRef
    pods: tuple[Pod, ...]
    attempts: tuple[Attempt, ...]
    found: Object | None

    @property
    def newest(self) -> tuple[Pod, ...]:
        """Pods with GPUs of the newest attempt; all of them where none says so."""
        pods = self.attempts[-1].pods if self.attempts else ()
        return tuple(pod for pod in pods if pod.state.gpus) or pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """An object of a kind of job, and whether a GPU is asked for anywhere in it."""

    found: Object
    has_gpus: bool


# --- Whose pods are whose -------------------------------------------------------------------------


def groups(pods: Sequence[Pod], objects: Sequence[Made]) -> tuple[list[Group], int]:
    """The gangs, also those that have no pod (yet), and how many other workloads hold GPUs."""
    by_uid = {
        uid: one.found for one in objects if (uid := js.text_at(one.found, "metadata", "uid"))
    }
    held: dict[JobRef, list[Pod]] = defaultdict(list)
    for pod in pods:
        held[node_gangs.whose(pod, by_uid)].append(pod)
    tops: dict[JobRef, Object] = {}
    for one in objects:
        ref = _top(one.found, by_uid)
        if ref is None:
            continue
        tops[ref] = one.found
        if ref not in held and one.has_gpus and not _is_ended(one.found):
            held[ref] = []
    found = [
        Group(
            job=ref, pods=tuple(own), attempts=tuple(attempts_of(own)) if own else (),
            found=tops.get(ref),
        )
        for ref, own in held.items()
        if ref.kind in _KNOWN
    ]  # fmt: skip
    return found, len(held) - len(found)


def _top(one: Object, by_uid: Mapping[str, Object]) -> JobRef | None:
    """The job that this object is, unless another job that was read made it."""
    for owner in js.items(js.at(one, "metadata", "ownerReferences")):
        if js.at(owner, "controller") is True and js.text_at(owner, "uid") in by_uid:
            return None
    kind = kinds.kind_of(js.text_at(one, "apiVersion") or "", js.text_at(one, "kind") or "")
    name = js.text_at(one, "metadata", "name")
    if kind is None or name is None:
        return None
    namespace = js.text_at(one, "metadata", "namespace") or "default"
    return JobRef(namespace=namespace, kind=kind.kind, name=name)


# --- What the object says -------------------------------------------------------------------------


def said(one: Object | None) -> tuple[str, str, int | None]:
    """The word of the object's own state, its reason, and since when."""
    for condition in js.items(js.at(one, "status", "conditions")):
        word = js.text_at(condition, "type") or ""
        if js.text_at(condition, "status") == "True" and word in FAILED | ENDED:
            since_ns = time_of(js.at(condition, "lastTransitionTime"))
            return word, js.text_at(condition, "reason") or "", since_ns
    for path in (("jobStatus",), ("jobDeploymentStatus",), ("state", "phase")):
        word = js.text_at(one, "status", *path) or ""
        if word in FAILED | ENDED:
            return word, js.text_at(one, "status", "reason") or "", _end_of(one)
    return "", "", None


def _end_of(one: Object | None) -> int | None:
    for path in (("endTime",), ("state", "lastTransitionTime")):
        found = time_of(js.at(one, "status", *path))
        if found is not None:
            return found
    return None


def _is_ended(one: Object) -> bool:
    return said(one)[0] in ENDED


def _is_suspended(one: Object | None) -> bool:
    return (
        js.at(one, "spec", "suspend") is True
        or js.at(one, "spec", "runPolicy", "suspend") is True
        or js.at(one, "spec", "replicas") == 0
    )


def _some_succeeded(value: object, depth: int = 4) -> bool:
    """Whether any part of a status counts pods that ended well: those are not in the list."""
    if depth == 0:
        return False
    if isinstance(value, dict):
        done = value.get("succeeded")
        if isinstance(done, int) and done > 0:
            return True
        return any(_some_succeeded(one, depth - 1) for one in value.values())
    return isinstance(value, list) and any(_some_succeeded(one, depth - 1) for one in value)


# --- A card ---------------------------------------------------------------------------------------


def card(
    group: Group,
    marked: Mapping[str, MarkedNode],
    *,
    wrote_ns: int | None,
    now_ns: int,
    is_whole: bool,
) -> GangCard:
    """One gang. `is_whole`: all pods were read, so that what is not there is not there."""
    pods = group.newest
    size = _size(group) if is_whole else None
    nodes = sorted({pod.state.node for pod in pods if pod.state.node is not None})
    state, why, since_ns = _state(group, wrote_ns, now_ns)
    if not why and size is not None and len(pods) < size:
        why = f"{len(pods)} of {size} pods are there"
    return GangCard(
        kind=group.job.kind,
        name=group.job.name,
        namespace=group.job.namespace,
        state=state,
        why=why,
        since_ns=since_ns,
        ranks=ranks_in(pods, size),
        gpus=sum(pod.state.gpus or 0 for pod in pods if pod.is_running),
        pods=len(pods),
        size=size,
        attempts=max(1, len(group.attempts)),
        last_write_ns=wrote_ns,
        nodes=len(nodes),
        marked=tuple(marked[name] for name in nodes if name in marked),
    )


def _size(group: Group) -> int | None:
    """Pods that must run together, unless some ended well and are therefore not in the list."""
    kind = group.job.job_kind
    if kind is None or group.found is None or _some_succeeded(js.at(group.found, "status")):
        return None
    return kind.gang(group.found)


def _state(group: Group, wrote_ns: int | None, now_ns: int) -> tuple[GangState, str, int | None]:
    word, reason, since_ns = said(group.found)
    if word in FAILED:
        ends = list(first_facts.ended(group.newest))
        return "failed", ends[0] if ends else reason, since_ns or _ended_ns(group)
    if _is_suspended(group.found) and not any(pod.is_running for pod in group.newest):
        return "suspended", "", None
    if not group.attempts:
        created_ns = time_of(js.at(group.found, "metadata", "creationTimestamp"))
        return "pending", "no pod of it is there yet", created_ns
    newest = group.attempts[-1]
    if newest.state == "failed" or _is_looping(group.newest):
        told = [*first_facts.ended(group.newest), *first_facts.waiting(group.newest, None)]
        return "failed", told[0] if told else "", _ended_ns(group)
    if newest.state == "pending" or any(pod.state.phase == "Pending" for pod in group.newest):
        told = list(first_facts.waiting(group.newest, None))
        return "pending", told[0] if told else _starting(group.newest), newest.started_ns
    if _is_silent(newest, wrote_ns, now_ns):
        return "silent", "", wrote_ns
    return "running", _before(group.attempts, now_ns) or _restarts(group.newest), newest.started_ns


def _ended_ns(group: Group) -> int | None:
    ends = [
        one.finished_ns
        for pod in group.newest
        for one in pod.state.containers
        if one.state == "terminated" and one.exit_code and one.finished_ns is not None
    ]
    ends += [pod.state.disrupted_ns for pod in group.newest if pod.state.disrupted_ns is not None]
    return min(ends, default=group.attempts[-1].ended_ns if group.attempts else None)


def _is_looping(pods: Sequence[Pod]) -> bool:
    return any(one.reason == "CrashLoopBackOff" for pod in pods for one in pod.state.containers)


def _starting(pods: Sequence[Pod]) -> str:
    waiting = sum(pod.state.phase == "Pending" for pod in pods)
    return f"{waiting} of {len(pods)} pods have not started"


def _is_silent(newest: Attempt, wrote_ns: int | None, now_ns: int) -> bool:
    """A line is known, it is old, and so is the attempt."""
    if wrote_ns is None or newest.started_ns is None:
        return False
    return now_ns - max(wrote_ns, newest.started_ns) > SILENT_S * NS


def _before(attempts: Sequence[Attempt], now_ns: int) -> str:
    """An earlier attempt that failed a short time ago."""
    for one in reversed(attempts[:-1]):
        if one.state == "failed" and one.ended_ns is not None:
            if now_ns - one.ended_ns > LOOKBACK_S * NS:
                return ""
            return f"attempt {one.number} failed at {format_clock(one.ended_ns)}"
    return ""


def _restarts(pods: Sequence[Pod]) -> str:
    """Containers that began again in place."""
    often = [
        (one.restarts, one.last_exit_code)
        for pod in pods
        for one in pod.state.containers
        if one.name == pod.state.rank_container and one.restarts
    ]
    if not often:
        return ""
    times, code = max(often, key=lambda one: one[0])
    last = f", the last time with exit {code}" if code is not None else ""
    return f"{len(often)} of {len(pods)} pods began again, up to {times} times{last}"


# --- Order ----------------------------------------------------------------------------------------


def ordered(cards: Iterable[GangCard], now_ns: int) -> tuple[list[GangCard], int]:
    """Worst first; those that failed more than a day ago are counted alone."""
    kept, old = [], 0
    for one in cards:
        age_s = 0.0 if one.since_ns is None else (now_ns - one.since_ns) / NS
        if one.state == "failed" and not one.gpus and age_s > OLD_S:
            old += 1
        else:
            kept.append((_urgency(one, age_s), -one.gpus, -(one.ranks or 0), one))
    kept.sort(key=lambda row: (*row[:3], row[3].namespace, row[3].name))
    return [row[3] for row in kept], old


def _urgency(one: GangCard, age_s: float) -> int:
    if one.state == "failed":
        return 0 if age_s <= LOOKBACK_S else 6
    if one.state == "silent":
        return 1
    if one.state == "running" and one.ill:
        return 2
    if one.state == "running" and one.is_short:
        return 3
    if one.state == "pending":
        return 4
    if one.state == "running":
        return 5 if one.why or one.marked else 7
    return 8
