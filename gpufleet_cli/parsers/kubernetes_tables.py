"""What kubectl prints for people: get events, get pods, get nodes (also -o wide, -A).

    LAST SEEN   TYPE      REASON     OBJECT                MESSAGE
    80s         Warning   Failed     pod/pt-job-worker-1   Error: ImagePullBackOff
    16m (x3 over 20m)   Normal   BackOff   pod/p   Back-off pulling image

    NAME       READY   STATUS             RESTARTS      AGE   IP         NODE
    trainer-0  0/1     CrashLoopBackOff   3 (5m ago)    1h    10.1.2.3   gpu-1

Columns stand under their headings; where an editor squeezed the blanks, at least two of them or, for
events, the first words tell. Ages are relative and cut: `14m` is any time within that minute.
`describe` is in `kubernetes_describe`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from gpufleet_cli.bundle import Evidence
from gpufleet_cli.facts import (
    ContainerState,
    Fact,
    IdentityLink,
    Link,
    NodeState,
    Origin,
    PodState,
)
from gpufleet_cli.parsers import kubernetes_describe, kubernetes_events

LINE_CHARS = 16_384

_HEADER = re.compile(
    r"^(?:NAMESPACE\s+)?(?:LAST SEEN\s+(?:COUNT\s+)?(?:FIRST SEEN\s+)?(?:NAME\s+)?.{0,60}\bREASON\b"
    r"|FIRST SEEN\s.{0,80}\bREASON\b"
    r"|NAME\s+READY\s+STATUS\s+RESTARTS\s+AGE|NAME\s+STATUS\s+ROLES\s+AGE\s+VERSION)"
)
_FIRST_WORDS = ("NAME", "LAST SEEN", "FIRST SEEN")
_EVENT_WORDS = re.compile(
    r"^(?:(?P<namespace>[a-z0-9][a-z0-9.-]{0,62})\s{1,8})?(?P<last>(?:\d\S{0,40}|<unknown>|<invalid>)"
    r"(?:\s\(x\d{1,9} over \S{1,20}\))?)\s{1,8}(?P<type>Normal|Warning)\s{1,8}"
    r"(?P<reason>\S{1,128})\s{1,8}(?P<object>[a-z][\w.]{0,80}/\S{1,253})\s{1,8}(?P<message>.{0,8000})$"
)
_HEADING = re.compile(r"LAST SEEN|FIRST SEEN|NOMINATED NODE|READINESS GATES|\S+")
_AGO = re.compile(r"(?<=\s)(\d{1,7}) \(\S{1,20} ago\)")
_RESTARTS = re.compile(r"^(\d{1,7})")


def matches(path: str, head: bytes) -> bool:
    """By a heading near the top, or by the first words of `describe`."""
    start = b"\n".join(head[:16_384].split(b"\n", 40)[:40])  # to find line ends in text is slow
    lines = start.decode("utf-8", "replace").splitlines()[:40]
    return any(
        _HEADER.match(line) for line in lines if line.startswith(_FIRST_WORDS)
    ) or kubernetes_describe.matches(lines)


def parse(evidence: Evidence) -> Iterator[Fact]:
    """Every table of the file; several may follow each other."""
    lines = evidence.read().decode("utf-8", "replace").splitlines()
    header = ""
    for number, line in enumerate(lines, 1):
        if _HEADER.match(line):
            header = line
        elif header and line.strip() and not line.startswith(("Name:", " ", "\t")):
            yield from _row(header, line[:LINE_CHARS], Origin(path=evidence.path, line=number))
        elif not line.strip():
            continue
        elif line.startswith("Name:"):
            header = ""
    yield from kubernetes_describe.parse(lines, evidence.path)


# --- Columns ------------------------------------------------------------------------------------


def _row(header: str, line: str, origin: Origin) -> Iterator[Fact]:
    names = _HEADING.findall(header)
    row = _by_position(header, names, line) or _by_blanks(names, line)
    if "REASON" in names:
        yield from _event(row, line, origin)
    elif "ROLES" in names:
        yield from _node(row, origin)
    else:
        yield from _pod(row, origin)


def _by_position(header: str, names: list[str], line: str) -> dict[str, str] | None:
    """Values under their headings, None where a value runs over a border: the blanks are not
    kubectl's."""
    starts: list[int] = []
    at = 0
    for name in names:
        at = header.index(name, at)
        starts.append(at)
        at += len(name)
    if any(start < len(line) and start > 0 and line[start - 1] != " " for start in starts):
        return None
    ends = [*starts[1:], len(line)]
    values = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    return dict(zip(names, values, strict=True)) if all(values[:2]) else None


def _by_blanks(names: list[str], line: str) -> dict[str, str]:
    """Values parted by two blanks or, where all were squeezed to one, by words."""
    text = _AGO.sub(r"\1", line.strip())
    parts = re.split(r"\s{2,}", text, maxsplit=len(names) - 1)
    if len(parts) < min(len(names), 4):
        parts = text.split(maxsplit=len(names) - 1)
    return dict(zip(names, parts, strict=False))


# --- Events -------------------------------------------------------------------------------------


def _event(row: Mapping[str, str], line: str, origin: Origin) -> Iterator[Fact]:
    kind, _, name = row.get("OBJECT", "").partition("/")
    if not name or row.get("TYPE") not in ("Normal", "Warning"):
        found = _EVENT_WORDS.match(line)
        if found is None:
            return
        row = {
            "NAMESPACE": found["namespace"] or "",
            "LAST SEEN": found["last"],
            "TYPE": found["type"],
            "REASON": found["reason"],
            "MESSAGE": found["message"],
        }
        kind, _, name = found["object"].partition("/")
    message = row.get("MESSAGE", "")
    yield kubernetes_events.relative(
        kind=_kind(kind),
        name=name,
        namespace=row.get("NAMESPACE") or None,
        reason=row["REASON"],
        warning=row["TYPE"] == "Warning",
        message=message,
        seen=row.get("LAST SEEN", ""),
        first_seen=row.get("FIRST SEEN", ""),
        count=row.get("COUNT", ""),
        origin=origin,
    )
    yield from kubernetes_events.assigned(message, origin)


def _kind(word: str) -> str:
    """`pod` and `pod.v1` are Pod."""
    plain = word.split(".")[0]
    known = {"pod": "Pod", "node": "Node", "job": "Job", "jobset": "JobSet"}
    return known.get(plain.lower(), plain)


# --- Pods and nodes -----------------------------------------------------------------------------

_PHASES = {
    "Running": "Running",
    "Pending": "Pending",
    "ContainerCreating": "Pending",
    "PodInitializing": "Pending",
    "Completed": "Succeeded",
    "Succeeded": "Succeeded",
    "Error": "Failed",
    "Failed": "Failed",
    "OOMKilled": "Failed",
    "Evicted": "Failed",
    "Unknown": "Unknown",
}
_ENDED = {"Completed": 0, "Error": None, "OOMKilled": 137, "ContainerCannotRun": None}
_EXIT = re.compile(r"^(?:ExitCode|Signal):(\d{1,5})$")


def _pod(row: Mapping[str, str], origin: Origin) -> Iterator[Fact]:
    name, status = row.get("NAME", ""), row.get("STATUS", "")
    if not name or not status:
        return
    node = row.get("NODE", "")
    address = row.get("IP", "")
    is_alone = row.get("READY", "").endswith("/1")
    container = _container(status, row.get("RESTARTS", ""), row.get("READY", ""))
    state = PodState(
        name=name,
        namespace=row.get("NAMESPACE") or None,
        uid=None,
        node=node if node not in ("", "<none>") else None,
        pod_ip=address if address not in ("", "<none>") else None,
        phase=_PHASES.get(status.removeprefix("Init:")),
        reason=status if status in ("Evicted", "Terminating", "NodeLost") else None,
        created_ns=None,
        deleted_ns=None,
        containers=(container,),
        rank_container=container.name if is_alone else None,
        disruption=None,
        disrupted_ns=None,
        gpus=None,
        labels=(),
        node_rank=None,
        owner=None,
        origin=origin,
        scheduled=True if node not in ("", "<none>") else None,
        terminating=status == "Terminating",
    )
    yield state
    if state.node is not None:
        yield IdentityLink(
            how=Link.POD_SPEC,
            origin=origin,
            pod=name,
            namespace=state.namespace,
            node=state.node,
            pod_ip=state.pod_ip,
        )


def _container(status: str, restarts: str, ready: str) -> ContainerState:
    """kubectl shows one word for the whole pod: that of the container that is worst off."""
    state: Literal["waiting", "running", "terminated", "unknown"] = "waiting"
    exited = _EXIT.match(status)
    code = int(exited[1]) if exited else _ENDED.get(status)
    if exited or status in _ENDED:
        state = "terminated"
    elif status in ("Running", "NotReady"):
        state = "running" if status == "Running" else "unknown"
    elif status in ("Terminating", "Unknown", "Evicted", "NodeLost"):
        state = "unknown"
    if exited and status.startswith("Signal"):
        code = 128 + int(exited[1])
    again = _RESTARTS.match(restarts)
    return ContainerState(
        name="",
        state=state,
        reason=None if state == "running" else status,
        message=f"ready {ready}" if ready else None,
        exit_code=code,
        started_ns=None,
        finished_ns=None,
        restarts=int(again[1]) if again else 0,
        has_gpu=False,
    )


def _node(row: Mapping[str, str], origin: Origin) -> Iterator[Fact]:
    """`Ready,SchedulingDisabled`: kubectl says NotReady for False and for Unknown alike."""
    name, status = row.get("NAME", ""), row.get("STATUS", "").split(",")
    if not name or not status[0]:
        return
    ready: Literal["True", "False"] | None = None
    if "Ready" in status:
        ready = "True"
    elif "NotReady" in status:
        ready = "False"
    address = row.get("INTERNAL-IP", "")
    yield NodeState(
        name=name,
        ready=ready,
        ready_since_ns=None,
        ready_reason=None,
        unschedulable="SchedulingDisabled" in status,
        bad_conditions=(),
        gpus_capacity=None,
        gpus_allocatable=None,
        nvlink_domain=None,
        provider_id=None,
        internal_ip=address if address not in ("", "<none>") else None,
        created_ns=None,
        labels=(),
        taints=(),
        origin=origin,
    )
