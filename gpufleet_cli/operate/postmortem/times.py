"""When it began, when anybody could see it, when the evidence was taken, and when the job worked again.

The first cause is the earliest of what the chosen explanation names as its beginning, of the hardware events
that it stands on, and of the first operation that never ended: an effect cannot come before its cause. The
first sign is the first error line, watchdog, kernel line or cluster event from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpufleet_cli.evidence import Target
from gpufleet_cli.facts import Fact, Origin, Progress, Speaker, StepPoint
from gpufleet_cli.operate.postmortem.signs import WORDS, Seen
from gpufleet_cli.postmortem_card import Instant, Times
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import NS
from gpufleet_cli.triage import Inquiry
from gpufleet_cli.verdict import Kind

BEFORE_S = 2.0
"""Clocks of nodes differ: what is dated this much before the first cause still followed it."""
KERNEL_TIE_S = 60.0
"""A kernel log's own line of the fault is its cause, whatever the clocks of those say who waited for it."""
TIE_S = 5.0
"""Of beginnings this close, the one that a claim stands on is taken, then one that a line states: clocks of nodes
do not tell them apart, and who waits may have begun to before the one that it waits for broke."""
NO_TIME = "no line of the evidence has a time"


def claim_id(index: int) -> str:
    """The id of a claim of the verdict, as `triage -o json` counts them."""
    return f"e{index + 1}"


def claims_at(found: Inquiry, origin: Origin | None) -> tuple[str, ...]:
    """The claims that stand on a place."""
    return tuple(
        claim_id(index)
        for index, claim in enumerate(found.triage.verdict.evidence)
        if origin is not None and claim.origin == origin
    )


def times(found: Inquiry, seen: Sequence[Seen], target: Target) -> Times:
    """The four times, each with what it rests on."""
    if not has_fault(found, seen):
        why = "nothing is wrong with the job, as far as the evidence tells"
        if found.triage.verdict.kind is Kind.UNDECIDABLE:
            why = "whether there is a fault at all is not decided"
        none = Instant(at_ns=None, why=why)
        return Times(
            first_cause=none, detected=none, diagnosed=_diagnosed(target), recovered=none,
            ended_ns=found.triage.job.ended_ns,
        )  # fmt: skip
    cause = _first_cause(found, seen, target)
    return Times(
        first_cause=cause,
        detected=_detected(found, seen, cause),
        diagnosed=_diagnosed(target),
        recovered=_recovered(found, cause),
        ended_ns=found.triage.job.ended_ns,
    )


def has_fault(found: Inquiry, seen: Sequence[Seen]) -> bool:
    """A verdict that names one, or a job that stopped or complained without anybody being singled out."""
    kind = found.triage.verdict.kind
    if kind is not Kind.UNDECIDABLE:
        return kind is not Kind.HEALTHY
    return is_complained_of(found, seen) or found.triage.verdict.confidence > 0


def is_complained_of(found: Inquiry, seen: Sequence[Seen]) -> bool:
    """Something dated tells of a fault; else somebody is suspected at most, as by a snapshot that names a rank."""
    case = found.case
    stopped = case.stop.stopped and case.stop.state != "exited"
    return stopped or case.onset_ns is not None or bool(seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dated:
    """A beginning. It stands for every one that is up to `tie_s` earlier and has less to stand on."""

    at_ns: int
    why: str
    origin: Origin | None = None
    claims: tuple[str, ...] = ()
    tie_s: float = TIE_S
    is_silence: bool = False


def _first_cause(found: Inquiry, seen: Sequence[Seen], target: Target) -> Instant:
    chosen = found.chosen
    is_suspicion = found.triage.verdict.kind is Kind.UNDECIDABLE
    if is_suspicion and not is_complained_of(found, seen):  # its claims are of a job that goes on
        return _instant(_earliest(list(_last_resorts(found.case, target))))
    named = [*_beginnings(found), *_cause_events(found)]
    if chosen is None or chosen.onset_ns is None:
        named += _claimed(found)
    named += _silences(found, named)
    fallbacks: tuple[Iterable[_Dated], ...] = (
        named,
        _claimed(found),
        (_Dated(at_ns=one.at_ns, why=f"the first sign: {one.what}", origin=one.origin) for one in seen),
        _last_resorts(found.case, target),
    )  # fmt: skip
    for dated in fallbacks:
        first = _earliest(list(dated))
        if first is not None:
            return _instant(first)
    return _instant(None)


def _instant(one: _Dated | None) -> Instant:
    if one is None:
        return Instant(at_ns=None, why=NO_TIME)
    return Instant(at_ns=one.at_ns, why=one.why, origin=one.origin, claims=one.claims)


def _earliest(dated: Sequence[_Dated]) -> _Dated | None:
    if not dated:
        return None
    least = min(one.at_ns for one in dated)
    close = [one for one in dated if one.at_ns <= least + round(one.tie_s * NS)]
    return min(close, key=lambda one: (_standing(one), one.at_ns))


def _standing(one: _Dated) -> int:
    """What a claim stands on, then the silence of the culprit, then what a line states, then the rest."""
    if one.is_silence:
        return 1
    return 0 if one.claims else 2 if one.origin is not None else 3


def _silences(found: Inquiry, others: Sequence[_Dated]) -> list[_Dated]:
    """A culprit's last ordinary line, where it is close to what is known to have begun: in many pods
    one rank alone logs its steps, and the last line of another may be of hours before."""
    kind = found.triage.verdict.kind
    if not others or kind not in (Kind.RANK_MISSING, Kind.DATA_STALL):
        return []
    least = min(one.at_ns for one in others)
    rows = {row.rank: row for row in found.triage.ranks}
    told = []
    for one in found.triage.verdict.culprits:
        row, at_ns = rows.get(one.rank or 0), one.silent_since_ns
        if one.rank is None or row is None or at_ns is None or abs(at_ns - least) > TIE_S * NS:
            continue
        why = f"rank {one.rank} wrote its last ordinary line"
        if kind is Kind.RANK_MISSING:
            why += ", and never came to where the others waited"
        told.append(_Dated(at_ns=at_ns, why=why, origin=row.origin, is_silence=True))
    return told


def _beginnings(found: Inquiry) -> Iterator[_Dated]:
    case, chosen = found.case, found.chosen
    if chosen is not None and chosen.kind is Kind.RENDEZVOUS_FAILURE:
        claimed = min((one.at_ns for one in _claimed(found)), default=None)
        joined = case.onset_ns
        if claimed is None or joined is None or claimed > joined - 60 * NS:
            yield from _waited_since(case)
    if case.onset_ns is not None:
        yield _onset(case, case.onset_ns)
    if chosen is not None and chosen.onset_ns is not None:
        at, origin = _claim_at(found, chosen.onset_ns)
        yield _Dated(
            at_ns=chosen.onset_ns,
            why=_reason(found, at) or "the explanation counts from here, and no line states it",
            origin=origin,
            claims=at,
        )


def _onset(case: Case, at_ns: int) -> _Dated:
    """What it is that began at the onset, and where it stands."""
    for timeout in case.timeouts:
        fact = timeout.fact
        if timeout.at_ns is not None and timeout.at_ns - fact.ran_ms * 1_000_000 == at_ns:
            called = fact.op if fact.seq is None else f"{fact.op} {fact.seq}"
            who = "a rank" if timeout.rank is None else f"rank {timeout.rank}"
            why = f"{who} entered {called}, which never ended (its watchdog tells)"
            return _Dated(at_ns=at_ns, why=why, origin=fact.origin)
    for sign in case.signs:
        if sign.at_ns == at_ns and sign.fact.sign in WORDS:
            who = "" if sign.rank is None else f"rank {sign.rank}: "
            return _Dated(at_ns=at_ns, why=f"{who}{WORDS[sign.fact.sign]}", origin=sign.fact.origin)
    if case.graph is not None and case.graph.onset_ns == at_ns:
        return _Dated(at_ns=at_ns, why="the last completion that the Flight Recorders saw")
    if case.steps.last_step_ns == at_ns:
        why = "the last step was complete, and nothing followed it"
        return _Dated(at_ns=at_ns, why=why, origin=case.steps.last_origin)
    return _Dated(at_ns=at_ns, why="from here on nothing went on as before")


def _waited_since(case: Case) -> Iterator[_Dated]:
    """Who waits for ranks that never come does so from its first line on."""
    first = min(
        (one for one in case.writes if one.first_ns is not None),
        key=lambda one: (one.first_ns or 0, one.path),
        default=None,
    )
    if first is not None and first.first_ns is not None:
        yield _Dated(
            at_ns=first.first_ns,
            why="the first rank wrote: from here on it waited for those that never came",
            origin=Origin(path=first.path),
        )


def _reason(found: Inquiry, ids: Sequence[str]) -> str:
    return found.triage.verdict.evidence[int(ids[0][1:]) - 1].text if ids else ""


def _claim_at(found: Inquiry, at_ns: int) -> tuple[tuple[str, ...], Origin | None]:
    """The claims that speak of this very time."""
    ids, origin = [], None
    for index, claim in enumerate(found.triage.verdict.evidence):
        if claim.at_ns == at_ns:
            ids.append(claim_id(index))
            origin = origin or claim.origin
    return tuple(ids), origin


def _cause_events(found: Inquiry) -> Iterator[_Dated]:
    for event in found.triage.hardware:
        if event.role != "cause" or event.at_ns is None:
            continue
        code = "" if event.xid is None else f"XID {event.xid}: "
        ids = claims_at(found, event.origin)
        where = f" on {event.node}" if event.node else ""
        is_kernel = event.origin in {
            one.event.origin for one in found.case.xids if one.event.source == "kernel"
        }
        yield _Dated(
            at_ns=event.at_ns,
            why=f"{code}{event.meaning}{where}",
            origin=event.origin,
            claims=ids,
            tie_s=KERNEL_TIE_S if is_kernel and ids else TIE_S,
        )


def _claimed(found: Inquiry) -> list[_Dated]:
    """Supporting claims with a time; what an earlier attempt did is no beginning."""
    earlier = {sign.fact.origin for sign in found.case.earlier_signs}
    return [
        _Dated(at_ns=claim.at_ns, why=claim.text, origin=claim.origin, claims=(claim_id(index),))
        for index, claim in enumerate(found.triage.verdict.evidence)
        if claim.supports and claim.at_ns is not None and claim.origin not in earlier
    ]


def _last_resorts(case: Case, target: Target) -> Iterator[_Dated]:
    """Times that it cannot be later than, where nothing says when it was."""
    late = "no line says when it began: it was not later than"
    if case.stop.ended_ns is not None:
        yield _Dated(at_ns=case.stop.ended_ns, why=f"{late} the end of the job")
    elif case.as_of_ns is not None:
        yield _Dated(at_ns=case.as_of_ns, why=f"{late} the time of the analysis")
    else:
        dates = [e.file.stat().st_mtime_ns for e in target.evidences if e.file is not None]
        if dates:
            newest = max(dates) // NS * NS
            yield _Dated(at_ns=newest, why=f"{late} the newest date of its files")


def _detected(found: Inquiry, seen: Sequence[Seen], cause: Instant) -> Instant:
    if cause.at_ns is None:
        return Instant(at_ns=None, why=NO_TIME)
    since = cause.at_ns - round(BEFORE_S * NS)
    visible = [
        _Dated(at_ns=one.at_ns, why=_told(one), origin=one.origin)
        for one in seen
        if one.at_ns >= since
    ]
    at_ns = cause.at_ns
    first = min(
        visible,
        key=lambda one: (max(one.at_ns, at_ns), one.origin != cause.origin),
        default=None,
    )
    if first is None and is_complained_of(found, seen):
        later = [one for one in _claimed(found) if one.at_ns >= cause.at_ns]
        first = min(later, key=lambda one: one.at_ns, default=None)
    if first is None:
        return _seen_at_last(found, cause)
    ids = first.claims or claims_at(found, first.origin)
    return Instant(
        at_ns=max(first.at_ns, cause.at_ns), why=first.why, origin=first.origin, claims=ids
    )


def _told(one: Seen) -> str:
    who = "" if one.rank is None else f"rank {one.rank}: "
    return f"{who}{one.what}" if who or not one.who else f"{one.who}: {one.what}"


def _seen_at_last(found: Inquiry, cause: Instant) -> Instant:
    """No line tells: whoever looked at the end of the evidence could see that it stood still."""
    assert cause.at_ns is not None
    ends = (found.case.stop.ended_ns, found.case.as_of_ns)
    at = next((end for end in ends if end is not None and end >= cause.at_ns), cause.at_ns)
    return Instant(at_ns=at, why="no line complains: at the end of the evidence it could be seen")


def _diagnosed(target: Target) -> Instant:
    if target.captured_ns is None:
        why = "no manifest says when the evidence was gathered"
        return Instant(at_ns=None, why=why)
    return Instant(
        at_ns=target.captured_ns,
        why="the evidence was gathered, so this verdict could be given",
        origin=Origin(path="manifest.json"),
    )


# --- Recovery -------------------------------------------------------------------------------------


def _recovered(found: Inquiry, cause: Instant) -> Instant:
    case = found.case
    after = case.stop.ended_ns if case.stop.ended_ns is not None else cause.at_ns
    first = None if after is None else _first_step(case, found.facts, after)
    if first is not None:
        return first
    if not case.stop.stopped:
        return Instant(at_ns=None, why="the job is not known to have stopped")
    later = [
        one
        for one in found.triage.job.attempts
        if found.triage.job.attempt is not None and one.number > found.triage.job.attempt
    ]
    if later:
        return Instant(
            at_ns=None,
            why=f"attempt {later[0].number} began, and no step of it is in the evidence",
        )
    return Instant(at_ns=None, why="no later attempt is in the evidence")


Key = tuple[int, int, int]


def _attempt(speaker: Speaker) -> Key:
    """Attempts in their order: what `kubectl logs --previous` gave is older than what came after."""
    attempt = -1 if speaker.attempt is None else speaker.attempt
    return 0 if speaker.previous else 1, attempt, -1 if speaker.cycle is None else speaker.cycle


def _first_step(case: Case, facts: Sequence[Fact], after_ns: int) -> Instant | None:
    """The first step that a later attempt printed after the job had ended."""
    own = max((_attempt(one.speaker) for one in case.writes), default=(0, -1, -1))
    best: tuple[int, Progress, StepPoint] | None = None
    for fact in facts:
        if not isinstance(fact, Progress) or fact.series != "train":
            continue
        if _attempt(fact.speaker) <= own:
            continue
        for point in fact.points:
            if point.at_ns is not None and point.at_ns > after_ns:
                if best is None or point.at_ns < best[0]:
                    best = point.at_ns, fact, point
                break
    if best is None:
        return None
    at_ns, fact, point = best
    return Instant(
        at_ns=at_ns,
        why=f"step {point.step:,}, the first that a later attempt printed",
        origin=Origin(path=fact.path, line=point.line),
    )
