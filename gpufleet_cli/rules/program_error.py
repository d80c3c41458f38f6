"""A rank's own program ended it: an exception, a signal, or the GPU's memory ran out.

Claims the rank whose own error stands before everybody else's complaint. What could look the same: a
consequence (a peer's death shows as an exception here too), an agent that ended its children, an
abort after a timeout. It cannot see a death without a word; `missing_rank` and `host_fault` can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from gpufleet_cli.facts import Origin, Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import NS, PlacedSign
from gpufleet_cli.rules import claims, container_exits, loader_timeouts
from gpufleet_cli.rules.claims import about, is_outside, ranks_text
from gpufleet_cli.rules.container_exits import CLOCKS_S, CONSEQUENCES, SAME_MOMENT_S, exit_words
from gpufleet_cli.verdict import Claim, Hypothesis, Kind, Remedy

NAME = "program_error"
OWN_ERRORS = (
    Sign.PYTHON_EXCEPTION,
    Sign.CUDA_OOM,
    Sign.DEVICE_ASSERT,
    Sign.ILLEGAL_ACCESS,
    Sign.LOADER_KILLED,
    Sign.FATAL_SIGNAL,
    Sign.FS_ERROR,
    Sign.CUDA_ERROR,
)
TOLD_ELSEWHERE = (
    Sign.MISMATCH,
    Sign.CLIENTS_JOINED,
    Sign.RENDEZVOUS_FAILED,
    Sign.BARRIER_MISSING,
    Sign.ECC_ERROR,
    Sign.CUDA_PEER_ERROR,
    Sign.NVLS_FAILED,
)
UNEXPLAINED = frozenset(
    {
        Sign.CUDA_ERROR,
        Sign.ILLEGAL_ACCESS,
        Sign.FATAL_SIGNAL,
        Sign.ROOT_CAUSE_BLOCK,
        Sign.CHILD_FAILED,
        Sign.TASK_EXIT,
    }
)
AMBIGUOUS = frozenset({Sign.CUDA_ERROR, Sign.FATAL_SIGNAL})
SIGNALLED = (Sign.FATAL_SIGNAL, Sign.ROOT_CAUSE_BLOCK, Sign.CHILD_FAILED, Sign.TASK_EXIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """How one rank ended by itself: the earliest own error, or the exit that its agent saw."""

    rank: int
    sign: PlacedSign
    kind: Kind
    remedy: Remedy
    what: str
    exit: PlacedSign | None

    @property
    def at_ns(self) -> int | None:
        """When it died: its own error's time, else when its agent saw it gone."""
        if self.sign.at_ns is None and self.exit is not None:
            return self.exit.at_ns
        return self.sign.at_ns


def propose(case: Case) -> Iterator[Hypothesis]:
    """One hypothesis: the ranks that died first by themselves."""
    deaths = _deaths(case)
    yield from container_exits.hypotheses(case, {death.rank for death in deaths})
    if not deaths:
        yield from _unplaced(case)
        return
    first = _first(deaths)
    same = [d for d in deaths if d.kind is first.kind and _same_moment(d, first)]
    same += _independent(case, first, [d for d in deaths if d not in same])
    ranks = tuple(sorted({d.rank for d in same}))
    at_hand = len(case.silence) or len(case.world)
    everybody = len(ranks) > 1 and len(ranks) * 2 > at_hand
    found = [_claim(case, death) for death in same[:3]]
    found += [about(d.exit, _exit_text(d), claims.FAIR) for d in same[:1] if d.exit is not None]
    if everybody:
        summary = f"{len(ranks)} of {len(case.world)} ranks ended with the same error: {first.what}"
    else:
        alone = "ended by itself:" if len(ranks) == 1 else "each ended by itself, the first with:"
        summary = f"{claims.sentence(ranks_text(ranks))} {alone} {first.what}"
    yield Hypothesis(
        kind=first.kind,
        rule=NAME,
        summary=summary.rstrip(". ") + ".",
        claims=tuple(found),
        remedy=first.remedy,
        generic=_is_unexplained(first.sign),
        ranks=() if everybody else ranks,
        onset_ns=first.sign.at_ns,
        reason_tag=first.what,
        degrades=True,
        would_settle="the full traceback of that rank, and the kernel log of its node",
    )


def _is_unexplained(sign: PlacedSign) -> bool:
    """An end that a cause elsewhere may explain: a signal, a bare exit, a worker that somebody killed."""
    if sign.fact.sign is Sign.LOADER_KILLED:
        return (sign.fact.detail or "").startswith("Killed")
    return sign.fact.sign in UNEXPLAINED


def _independent(case: Case, first: Death, others: list[Death]) -> list[Death]:
    """One more death, of another node, that no end of a peer explains: an error of its own code, or a signal
    of its own. Within the error of clocks, or where no line is dated, neither came first."""
    found = [
        d
        for d in others
        if d.kind is first.kind
        and d.sign.fact.sign in (Sign.PYTHON_EXCEPTION, *SIGNALLED)
        and (d.sign.fact.sign not in SIGNALLED or _is_segfault(d))
        and _is_elsewhere(case, d, first)
        and _is_close(d, first)
    ]
    return found if len(found) == 1 else []


def _is_elsewhere(case: Case, one: Death, other: Death) -> bool:
    """On another node; where nodes are not known, in another pod, or below another agent."""
    places = [case.topology.places.get(d.rank) for d in (one, other)]
    for name in ("node", "pod"):
        homes = [None if place is None else getattr(place, name) for place in places]
        if None not in homes:
            return homes[0] != homes[1]
    paths = {d.exit.fact.origin.path for d in (one, other) if d.exit is not None}
    return len(paths) == 2


def _is_segfault(death: Death) -> bool:
    code = death.sign.fact.exit_code
    return code in (-11, 139, -7, 135) or "egmentation" in (death.sign.fact.detail or "")


def _is_close(one: Death, other: Death) -> bool:
    if one.at_ns is None or other.at_ns is None:
        return one.at_ns is other.at_ns
    return abs(one.at_ns - other.at_ns) / NS <= CLOCKS_S


def _deaths(case: Case) -> list[Death]:
    """The earliest own error of every rank that is no consequence."""
    exits = _exits(case)
    told = {s.fact.origin for s in case.signs_of(*TOLD_ELSEWHERE)} | _shared_storage(case)
    told |= loader_timeouts.tracebacks(case)
    worded = {s.fact.origin for s in case.signs_of(*OWN_ERRORS[1:])}
    found: dict[int, Death] = {}
    for sign in case.signs_of(*OWN_ERRORS):
        rank = _rank_of(sign, case, exits)
        if rank is None or rank in found or sign.fact.origin in told:
            continue
        if sign.fact.sign is Sign.PYTHON_EXCEPTION and sign.fact.origin in worded:
            continue  # the same line, and the other reading of it says more
        if _is_effect(case, sign, rank):
            continue
        found[rank] = Death(
            rank=rank,
            sign=sign,
            kind=_kind(sign),
            remedy=Remedy.PROCESS if sign.fact.sign in AMBIGUOUS else Remedy.CODE,
            what=_what(sign),
            exit=exits.get(rank),
        )
    for rank, exit_sign in sorted(exits.items()):
        code = exit_sign.fact.exit_code
        if rank in found or code is None or _is_innocent_exit(case, rank, exit_sign):
            continue
        found[rank] = Death(
            rank=rank,
            sign=exit_sign,
            kind=Kind.RANK_CRASHED,
            remedy=Remedy.CODE if code in (1, -7, 135, -11, 139, -8, -4) else Remedy.PROCESS,
            what=exit_words(code),
            exit=exit_sign,
        )
    return sorted(found.values(), key=lambda d: _moment(d.sign))


def _shared_storage(case: Case) -> set[Origin]:
    """File system errors of several nodes, or of most ranks: the storage's, not a rank's."""
    errors = case.signs_of(Sign.FS_ERROR)
    ranks = {s.rank for s in errors if s.rank is not None}
    many = len(ranks) > 1 and len(ranks) * 2 > len(case.silence)
    nodes = {s.node for s in errors if s.node is not None}
    return {s.fact.origin for s in errors} if many or len(nodes) > 1 else set()


def _exits(case: Case) -> dict[int, PlacedSign]:
    """The exit of each rank as its agent or srun saw it, earliest first."""
    found: dict[int, PlacedSign] = {}
    for sign in case.signs_of(Sign.ROOT_CAUSE_BLOCK, Sign.CHILD_FAILED, Sign.TASK_EXIT):
        if sign.fact.exit_code is None:
            continue
        ranks = sign.fact.named_ranks or (() if sign.rank is None else (sign.rank,))
        for rank in ranks or _by_local(sign, case):
            found.setdefault(rank, sign)
    return found


def _by_local(sign: PlacedSign, case: Case) -> tuple[int, ...]:
    local = sign.fact.local_rank
    if local is None:
        return ()
    pod = sign.fact.speaker.pod
    units = case.topology.by_pod.get(pod or "", ()) or case.topology.by_node.get(
        sign.node or "", ()
    )
    return tuple(r for r in units if case.topology.places[r].local_rank == local)


def _rank_of(sign: PlacedSign, case: Case, exits: dict[int, PlacedSign]) -> int | None:
    """The rank of an error: its own, or (no prefix) the one rank that its agent saw exit."""
    if sign.rank is not None:
        return sign.rank
    here = [
        rank
        for rank, seen in exits.items()
        if seen.fact.speaker.stream == sign.fact.speaker.stream
        or (seen.node is not None and seen.node == sign.node)
    ]
    own = [r for r in here if not _is_innocent_exit(case, r, exits[r])]
    return own[0] if len(own) == 1 else None


def _is_effect(case: Case, sign: PlacedSign, rank: int) -> bool:
    """A consequence by its own words, by coming after the complaints, or after its agent's SIGTERM."""
    detail = sign.fact.detail or ""
    if detail.startswith("effect") or _after_the_end(case, sign, rank):
        return True
    if _after_outside_stop(case, sign):
        return True
    if sign.at_ns is not None and case.first_timeout_ns is not None:
        if claims.is_late(case, sign):
            return True
    elif case.timeouts and sign.at_ns is None and _after_timeout_in_stream(case, sign):
        return True
    if sign.fact.sign is Sign.FATAL_SIGNAL and rank in case.witnesses:
        return True
    return sign.fact.sign is Sign.FS_ERROR and detail.startswith("weak")


def _after_the_end(case: Case, sign: PlacedSign, rank: int) -> bool:
    """After this rank's training loop had finished: teardown."""
    return any(
        done.rank in (rank, None)
        and (
            (done.at_ns is not None and sign.at_ns is not None and done.at_ns <= sign.at_ns)
            or (
                done.fact.origin.path == sign.fact.origin.path
                and (done.fact.origin.line or 0) < (sign.fact.origin.line or 0)
            )
        )
        for done in case.signs_of(Sign.FINISHED)
    )


def _after_outside_stop(case: Case, sign: PlacedSign) -> bool:
    """After somebody outside told the job to stop: a time limit, a preemption, a SIGTERM to an agent."""
    return any(
        is_outside(stop.fact) and not _moment(sign) < _moment(stop)
        for stop in case.signs_of(Sign.JOB_CANCELLED, Sign.PREEMPTION, Sign.AGENT_TOLD_TO_STOP)
        if (stop.at_ns is None) == (sign.at_ns is None)
        or stop.fact.origin.path == sign.fact.origin.path
    )


def _follows_an_effect(case: Case, rank: int, sign: PlacedSign) -> bool:
    """Exit code 1 of a rank that only repeats what its peers' end did to it."""
    shared = _shared_storage(case)
    own = [
        s
        for s in case.signs
        if s.rank == rank and (s.fact.sign in CONSEQUENCES or s.fact.origin in shared)
    ]
    errors = [
        s for s in own if s.fact.sign is Sign.PYTHON_EXCEPTION and s.fact.origin not in shared
    ]
    if any(not (s.fact.detail or "").startswith("effect") for s in errors):
        return False
    return sign.fact.exit_code == 1 and bool(own)


def _after_timeout_in_stream(case: Case, sign: PlacedSign) -> bool:
    return any(
        t.fact.origin.path == sign.fact.origin.path
        and (t.fact.origin.line or 0) < (sign.fact.origin.line or 0)
        for t in case.timeouts
    )


def _is_innocent_exit(case: Case, rank: int, sign: PlacedSign) -> bool:
    """SIGTERM comes from outside; an abort is what a watchdog does; so is an exit after a timeout."""
    code = sign.fact.exit_code
    if code in (-15, 143, 0, None):
        return True
    if code in (-6, 134) or _after_outside_stop(case, sign) or _follows_an_effect(case, rank, sign):
        return True
    undated = sign.at_ns is None and bool(case.timeouts) and _after_timeout_in_stream(case, sign)
    return claims.is_late(case, sign) or undated or rank in case.witnesses


def _kind(sign: PlacedSign) -> Kind:
    if sign.fact.sign is Sign.CUDA_OOM:
        return Kind.CUDA_OOM
    return Kind.RANK_CRASHED


def _what(sign: PlacedSign) -> str:
    names = {
        Sign.CUDA_OOM: "CUDA out of memory",
        Sign.DEVICE_ASSERT: "a device-side assert failed",
        Sign.ILLEGAL_ACCESS: "illegal memory access",
        Sign.LOADER_KILLED: "a data loader worker was killed",
        Sign.FATAL_SIGNAL: "a fatal signal",
        Sign.CUDA_ERROR: "a CUDA error that code or hardware can cause",
    }
    detail = sign.fact.detail or ""
    return (names.get(sign.fact.sign) or detail or sign.fact.text)[:120] + (
        f" ({detail[:80]})" if sign.fact.sign in names and detail else ""
    )


def _exit_text(death: Death) -> str:
    assert death.exit is not None
    return (
        f"its agent saw rank {death.rank} exit first: {exit_words(death.exit.fact.exit_code or 0)}"
    )


def _claim(case: Case, death: Death) -> Claim:
    ahead = claims.before_others_s(case, death.sign.at_ns)
    is_before = ahead is not None and ahead >= 0
    early = f", {ahead:,.0f} s before the first timeout of another rank" if is_before else ""
    weight = claims.DECISIVE if is_before or not case.timeouts else claims.GOOD
    return about(
        death.sign,
        f"rank {death.rank}: {death.what}{claims.when(death.sign.at_ns)}{early}",
        weight,
    )


def _moment(sign: PlacedSign) -> tuple[bool, int, str, int]:
    origin = sign.fact.origin
    return (sign.at_ns is None, sign.at_ns or 0, origin.path, origin.line or 0)


def _first(deaths: list[Death]) -> Death:
    """The earliest death; one with its own words beats a bare exit within the same seconds."""
    first = deaths[0]
    close = [d for d in deaths if _same_moment(d, first)]
    worded = [d for d in close if d.sign.fact.sign in OWN_ERRORS]
    return (worded or close)[0]


def _same_moment(one: Death, other: Death) -> bool:
    if one.sign.at_ns is None or other.sign.at_ns is None:
        same_words = one.what == other.what and one.sign.fact.sign is other.sign.fact.sign
        return same_words or one.sign.fact.origin.path == other.sign.fact.origin.path
    return abs(one.sign.at_ns - other.sign.at_ns) / NS <= SAME_MOMENT_S


def _unplaced(case: Case) -> Iterator[Hypothesis]:
    """An own error whose rank no line tells: the kind is known, the rank is among those that
    share the stream."""
    told = {s.fact.origin for s in case.signs_of(*TOLD_ELSEWHERE)}
    errors = [
        s
        for s in case.signs_of(*OWN_ERRORS)
        if s.rank is None and s.fact.origin not in told and not _is_effect(case, s, -1)
    ]
    if not errors:
        return
    first = min(errors, key=_moment)
    kinds = Counter(_kind(s) for s in errors)
    ranks = case.topology.by_pod.get(first.fact.speaker.pod or "", ()) or (
        case.topology.by_node.get(first.node or "", ())
    )
    yield Hypothesis(
        kind=kinds.most_common(1)[0][0],
        rule=NAME,
        summary=f"A rank ended by itself: {_what(first)}; its line does not say which rank.",
        claims=(about(first, f"{_what(first)}{claims.when(first.at_ns)}", claims.GOOD),),
        remedy=Remedy.CODE,
        ranks=ranks if len(ranks) == 1 else (),
        onset_ns=first.at_ns,
        degrades=True,
        would_settle="a log with rank prefixes, or torchrun's error file",
    )
