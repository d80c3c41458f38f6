"""One incident as it is kept, what makes two records one incident, and how they become one record.

Records are joined as a set is: in any order, any number of times, with the same result. That is what lets
many people write into one folder without a lock. Of two verdicts the one that rested on more evidence
counts; of the times at which somebody looked, the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from hashlib import sha256
from typing import Annotated

import msgspec
from msgspec import Meta

from gpufleet_cli.redact import redact
from gpufleet_cli.verdict import JobState, Triage

SCHEMA = "gpufleet.incident/v2"
HOUR_NS = 3_600_000_000_000
DAY_NS = 24 * HOUR_NS
MOST_NODES, MOST_RANKS = 64, 64
IN_THE_NIGHT_NS = DAY_NS
"""Evidence older than that is read again by somebody who no longer waits for an answer."""

Time = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Name = Annotated[str, Meta(max_length=512)]


class Incident(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record. Times are Unix nanoseconds, None is not known.

    `at_ns`: when it was, as well as can be told. `began_ns`: when it began, where the evidence says so.
    `nodes`: those that the verdict names; `remedy` says whether the cause lies in them. `facts`: how much
    evidence the verdict rests on, `as_of_ns` of what time it was. `looked_ns` and `diagnosed_ns`: when the first
    triage, and the first that reached a verdict, had its answer, while somebody waited for it.
    """

    id: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    kind: Name
    schema: str = SCHEMA
    at_ns: Time | None = None
    began_ns: Time | None = None
    ended_ns: Time | None = None
    as_of_ns: Time | None = None
    looked_ns: Time | None = None
    diagnosed_ns: Time | None = None
    server: Name | None = None
    context: Name | None = None
    namespace: Name | None = None
    job: Name | None = None
    uid: Name | None = None
    attempt: Count | None = None
    state: Name = "unknown"
    action: Name = ""
    remedy: Name | None = None
    confidence: Annotated[float, Meta(ge=0, le=1)] = 0.0
    facts: Count = 0
    gpus: Count | None = None
    nodes: Annotated[tuple[Name, ...], Meta(max_length=MOST_NODES)] = ()
    ranks: Annotated[tuple[Count, ...], Meta(max_length=MOST_RANKS)] = ()
    xids: Annotated[tuple[Count, ...], Meta(max_length=64)] = ()
    lost_gpu_hours: Annotated[float, Meta(ge=0, le=1e15)] | None = None
    summary: Annotated[str, Meta(max_length=2_000)] = ""

    @property
    def is_decided(self) -> bool:
        return self.kind != "undecidable"

    @property
    def stopped_a_job(self) -> bool:
        return self.state in ("stalled", "aborted", "exited")

    @property
    def runs_on(self) -> bool:
        return self.state == "running"

    @property
    def is_node_fault(self) -> bool:
        """The cause lies in the nodes that it names. Records of old have no remedy."""
        if not self.nodes or not self.is_decided:
            return False
        return self.kind == "hardware" if self.remedy is None else self.remedy == "node"

    @property
    def singles_out(self) -> bool:
        """It names nodes for a fault of theirs, or for a rank that was lost there for no known cause."""
        return self.is_node_fault or (
            bool(self.nodes) and self.is_decided and self.remedy == "process"
        )


# --- From a triage --------------------------------------------------------------------------------


def of_triage(
    triage: Triage,
    manifest: Mapping[str, object] | None,
    *,
    now_ns: int | None = None,
    is_asked: bool = False,
) -> Incident | None:
    """What is kept of a triage; None for a job that is well, where no job has a name, and where neither a stop
    nor a cause is known: somebody who looks in vain at a job that runs has met no incident.

    A folder of files that does not say which job it is of is kept where somebody asks for it. `now_ns`: when the
    answer was there, None for an import.
    """
    job, verdict, advice = triage.job, triage.verdict, triage.recommendation
    name = job.name or (triage.target_name if triage.target_kind == "job" or is_asked else None)
    if verdict.kind == "healthy" or name is None:
        return None
    if verdict.kind == "undecidable" and job.state in (JobState.RUNNING, JobState.UNKNOWN):
        return None
    began_ns, ended_ns, as_of_ns = map(_time, (_began(triage), job.ended_ns, triage.as_of_ns))
    known = (began_ns, _time(job.last_step_ns), ended_ns, as_of_ns)
    looked_ns = _waited_for(now_ns, triage)
    culprits = verdict.culprits
    named = {*advice.nodes, *(c.node for c in culprits if c.node)}
    made = Incident(
        id="0" * 16,
        kind=str(verdict.kind),
        at_ns=next((at for at in known if at is not None), None),
        began_ns=began_ns,
        ended_ns=ended_ns,
        as_of_ns=as_of_ns,
        looked_ns=looked_ns,
        diagnosed_ns=None if verdict.kind == "undecidable" else looked_ns,
        server=_text(manifest, "server"),
        context=_text(manifest, "context"),
        namespace=_short(job.namespace),
        job=_short(name),
        uid=_text(manifest, "uid"),
        attempt=job.attempt,
        state=str(job.state),
        action=str(advice.action),
        remedy=str(verdict.remedy),
        confidence=round(verdict.confidence, 4),
        facts=sum(one.facts for one in triage.files),
        gpus=job.world_size,
        nodes=tuple(sorted(_short(one) or "" for one in named)[:MOST_NODES]),
        ranks=tuple(sorted({c.rank for c in culprits if c.rank is not None})[:MOST_RANKS]),
        xids=_causes(triage),
        lost_gpu_hours=advice.lost_gpu_hours,
        summary=redact(verdict.summary)[:400],
    )
    return with_id(made)


def _time(ns: int | None) -> int | None:
    """As a record holds it: a log may claim any year."""
    return ns if ns is not None and 0 <= ns < 1 << 63 else None


def _text(manifest: Mapping[str, object] | None, key: str) -> str | None:
    value = (manifest or {}).get(key)
    return _short(value) if isinstance(value, str) and value else None


def _short(text: str | None) -> str | None:
    return None if text is None else redact(text)[:500]


def _causes(triage: Triage) -> tuple[int, ...]:
    """XIDs that began it; a sticky gauge without a date may be of any day."""
    found = (e.xid for e in triage.hardware if e.role == "cause" and e.at_ns is not None)
    return tuple(sorted({xid for xid in found if xid is not None}))[:64]


def _began(triage: Triage) -> int | None:
    """When it began: a culprit's last sign of life, else the last step of a job that makes none any more."""
    silent = [c.silent_since_ns for c in triage.verdict.culprits if c.silent_since_ns is not None]
    if silent:
        return min(silent)
    stands = triage.job.state in (JobState.STALLED, JobState.ABORTED, JobState.EXITED)
    return triage.job.last_step_ns if stands else None


def _waited_for(now_ns: int | None, triage: Triage) -> int | None:
    if now_ns is None:
        return None
    if triage.target_kind == "job":
        return now_ns
    as_of_ns = triage.as_of_ns
    is_fresh = as_of_ns is not None and 0 <= now_ns - as_of_ns <= IN_THE_NIGHT_NS
    return now_ns if is_fresh else None


# --- Which incident it is -------------------------------------------------------------------------


def with_id(one: Incident) -> Incident:
    """The record under the id that anybody else's record of the incident has too."""
    bucket = None if one.at_ns is None else one.at_ns // _apart_ns(one)
    key = "\n".join(map(str, (*subject(one), one.runs_on, bucket)))
    return msgspec.structs.replace(one, id=sha256(key.encode("utf-8", "replace")).hexdigest()[:16])


def subject(one: Incident) -> tuple[object, ...]:
    """Whose incident it is: the job's uid where it has one, since contexts are named by each person."""
    if one.uid is not None:
        return ("uid", one.uid, one.attempt)
    return ("name", one.server or one.context, one.namespace, one.job, one.attempt)


def _apart_ns(one: Incident) -> int:
    """A job that runs on, slowly, has no moment at which it stopped: looks of one day are one incident."""
    return DAY_NS if one.runs_on else HOUR_NS


def joined(one: Incident, other: Incident) -> Incident:
    """One record of two of one incident."""
    view = max(one, other, key=_weight)
    return msgspec.structs.replace(
        view,
        looked_ns=_first(one.looked_ns, other.looked_ns),
        diagnosed_ns=_first(one.diagnosed_ns, other.diagnosed_ns),
    )


def _weight(one: Incident) -> tuple[int, int, float, bytes]:
    bare = msgspec.structs.replace(one, looked_ns=None, diagnosed_ns=None)
    return one.facts, one.as_of_ns or 0, one.confidence, encoded(bare)


def _first(one: int | None, other: int | None) -> int | None:
    return min((at for at in (one, other) if at is not None), default=None)


def encoded(one: Incident) -> bytes:
    """The record as its file has it; the same record has the same bytes."""
    return msgspec.json.encode(one) + b"\n"


def told_apart(records: Iterable[Incident]) -> list[Incident]:
    """One record an incident, oldest first: those of one id, and those of one subject that stand so close
    that only the turn of an hour is between them."""
    by_id: dict[str, list[Incident]] = {}
    for one in records:
        by_id.setdefault(one.id, []).append(one)
    found: dict[tuple[object, ...], list[Incident]] = {}
    for one in sorted((reduce(joined, same) for same in by_id.values()), key=_order):
        near = found.setdefault((*subject(one), one.runs_on), [])
        if near and _is_close(near[-1], one):
            near[-1] = joined(near[-1], one)
        else:
            near.append(one)
    return sorted((one for near in found.values() for one in near), key=_order)


def _is_close(one: Incident, other: Incident) -> bool:
    if one.at_ns is None or other.at_ns is None:
        return one.at_ns == other.at_ns
    return abs(other.at_ns - one.at_ns) < _apart_ns(one)


def _order(one: Incident) -> tuple[int, str]:
    return one.at_ns or 0, one.id
