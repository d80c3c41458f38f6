"""One JSON line for each incident in `gpufleet/history.jsonl` of the user's state folder.

An incident is known by its job, its attempt and the hour in which it began; triaged again with more
evidence, a new line stands for it, and the last one counts. Lines that cannot be read are passed over.
Nothing that triage says comes from here: a replay stays the same whatever was triaged before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import msgspec

from gpufleet_cli.node_card import PastIncident
from gpufleet_cli.redact import redact
from gpufleet_cli.settings import keeps_state, state_folder
from gpufleet_cli.verdict import Triage

SCHEMA = "gpufleet.incident/v1"
NS_AN_HOUR = 3_600_000_000_000
MOST_BYTES = 64 << 20
"""Of a longer file the newest end is read."""


class Incident(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. Times are Unix nanoseconds. `nodes` are those that the recommendation is for."""

    id: str
    kind: str
    schema: str = SCHEMA
    at_ns: int | None = None
    context: str | None = None
    job: str | None = None
    namespace: str | None = None
    attempt: int | None = None
    confidence: float = 0.0
    action: str = ""
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    xids: tuple[int, ...] = ()
    lost_gpu_hours: float | None = None
    summary: str = ""


def place() -> Path:
    return state_folder() / "history.jsonl"


def of_triage(triage: Triage, context: str | None) -> Incident | None:
    """What is kept of a triage; None for a job that is well, and where no job has a name."""
    job, verdict = triage.job, triage.verdict
    name = job.name or (triage.target_name if triage.target_kind == "job" else None)
    if verdict.kind == "healthy" or name is None or triage.target_kind == "directory":
        return None
    at_ns = _began(triage)
    hour = None if at_ns is None else at_ns // NS_AN_HOUR
    key = f"{context}\n{job.namespace}\n{name}\n{job.attempt}\n{hour}"
    culprits = verdict.culprits
    return Incident(
        id=sha256(key.encode("utf-8", "replace")).hexdigest()[:16],
        kind=str(verdict.kind),
        at_ns=at_ns,
        context=context,
        job=redact(name),
        namespace=job.namespace,
        attempt=job.attempt,
        confidence=round(verdict.confidence, 4),
        action=str(triage.recommendation.action.value),
        nodes=tuple(sorted({*triage.recommendation.nodes, *(c.node for c in culprits if c.node)})),
        ranks=tuple(sorted({c.rank for c in culprits if c.rank is not None}))[:64],
        xids=_causes(triage),
        lost_gpu_hours=triage.recommendation.lost_gpu_hours,
        summary=redact(verdict.summary)[:400],
    )


def _causes(triage: Triage) -> tuple[int, ...]:
    """XIDs that began it; a sticky gauge without a date may be of any day."""
    found = (e.xid for e in triage.hardware if e.role == "cause" and e.at_ns is not None)
    return tuple(sorted({xid for xid in found if xid is not None}))


def _began(triage: Triage) -> int | None:
    """When it began, by what more evidence changes least."""
    silent = [c.silent_since_ns for c in triage.verdict.culprits if c.silent_since_ns is not None]
    job = triage.job
    known = (min(silent, default=None), job.last_step_ns, job.ended_ns, triage.as_of_ns)
    return next((at for at in known if at is not None), None)


def remember(incident: Incident) -> None:
    """Add a line, unless the newest one of this incident says the same. OSError where it cannot be kept."""
    if not keeps_state():
        return
    path = place()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(path):
        before = {one.id: one for one in read(path)}
        if before.get(incident.id) == incident:
            return
        line = msgspec.json.encode(incident) + b"\n"
        with path.open("ab+") as file:
            if file.seek(0, os.SEEK_END) and _last_byte(file.fileno()) != b"\n":
                line = b"\n" + line  # a run was killed in the middle of its line
            file.write(line)


def read(path: Path | None = None) -> list[Incident]:
    """All incidents, oldest line first, each as its last line has it."""
    if not keeps_state():
        return []
    found: dict[str, Incident] = {}
    for line in _lines(place() if path is None else path):
        try:
            one = msgspec.json.decode(line, type=Incident)
        except (msgspec.DecodeError, ValueError, RecursionError):
            continue
        if one.schema == SCHEMA:
            found.pop(one.id, None)
            found[one.id] = one
    return list(found.values())


def of_node(incidents: Iterable[Incident], node: str, context: str | None) -> list[PastIncident]:
    """Those that name a node, newest first; of another context it is another node."""
    found = [
        PastIncident(
            at_ns=one.at_ns,
            kind=one.kind,
            action=one.action,
            job=one.job,
            namespace=one.namespace,
            xids=one.xids,
        )
        for one in incidents
        if node in one.nodes and (one.context is None or context is None or one.context == context)
    ]
    return sorted(found, key=lambda one: -(one.at_ns or 0))


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MOST_BYTES))
            yield from file.read(MOST_BYTES).split(b"\n")
    except OSError:
        return


def _last_byte(descriptor: int) -> bytes:
    return os.pread(descriptor, 1, os.fstat(descriptor).st_size - 1)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One writer at a time; the lock goes with its process."""
    import fcntl

    with path.with_name(f".{path.name}.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
