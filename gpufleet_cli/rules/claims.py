"""How rules word their claims, and the weights they share (log likelihood ratios).

Starting ratios from facts/localisation section 8: judgement, to be fitted on simulated worlds.
"""

from __future__ import annotations

import math
from dataclasses import replace

from gpufleet_cli.facts import GroupStatus, LogSign, Origin, Sign, WatchdogTimeout
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.op_names import op_type
from gpufleet_cli.reason.placed import NS, Placed, PlacedSign
from gpufleet_cli.reason.recorder_finding import Root
from gpufleet_cli.timestamps import format_clock
from gpufleet_cli.verdict import Claim, CollectiveRef

DECISIVE = math.log(50)
STRONG = math.log(30)
GOOD = math.log(20)
OUTLIER = math.log(10)
FAIR = math.log(6)
MODEST = math.log(4)
WEAK = math.log(2)
AGAINST_WAITING = math.log(0.02)
FLIGHTS_A_STOP = 0.3
"""Hangs in flight for each rank that stops: 43 of 419 against 148 and more (facts: formulas 2)."""
NO_DUMP_IF_GUILTY = 0.5
FLIGHT_WORTH_A_WORD = 0.1
"""Odds of a hang in flight from which on nobody is named for an end of the waiting without a dump."""


def claim(
    text: str,
    origin: Origin | None,
    weight: float,
    *,
    rank: int | None = None,
    at_ns: int | None = None,
) -> Claim:
    """One claim; keyword names for what it speaks of."""
    return Claim(text=text, origin=origin, weight=weight, rank=rank, at_ns=at_ns)


def hidden_weight(root: Root) -> float:
    """What an end of the waiting among missing ranks weighs for them."""
    weight = GOOD if len(root.ranks) == 1 else FAIR
    return weight - WEAK if root.share < 0.6 else weight


def flight_odds(case: Case, root: Root) -> float:
    """Log odds of an operation in flight, some of whose members lost their dumps by chance, against
    one missing rank that stopped and left none (facts: localisation 3, background loss). Those beside
    it on its node were ended with it."""
    assert case.graph is not None
    world = case.graph.world_size or case.graph.dumps
    units = (_unit(case, rank) for rank in root.ranks)
    lost_by_chance = set(case.graph.missing) - set(root.ranks) - {r for unit in units for r in unit}
    loss = (len(lost_by_chance) + 0.5) / (world + 1)
    some_lost = 1 - (1 - loss) ** len(root.flight)
    return math.log(FLIGHTS_A_STOP * some_lost / NO_DUMP_IF_GUILTY)


def may_fly(case: Case, root: Root) -> bool:
    """Whether an operation in flight explains the waiting nearly as well as the rank without a dump: its
    log, where it is at hand, would tell that it waited."""
    if not root.flight or any(_did_not_wait(case, rank) for rank in root.ranks):
        return False
    return flight_odds(case, root) > math.log(FLIGHT_WORTH_A_WORD)


def _did_not_wait(case: Case, rank: int) -> bool:
    """Whether it complained of nothing, by its own log, or by the logs of most, which hold no line of it."""
    if rank in case.witnesses:
        return False
    silence = case.silence.get(rank)
    is_known = silence is not None and silence.known
    return is_known or len(case.witnesses) > 0.5 * len(case.world)


def _unit(case: Case, rank: int) -> tuple[int, ...]:
    """The ranks of a rank's node, or of its pod where no node is known, if none of them left a dump."""
    place = case.topology.places.get(rank)
    if place is None or case.graph is None:
        return ()
    ranks = case.topology.by_node.get(place.node or "") or case.topology.by_pod.get(place.pod or "")
    return tuple(ranks) if ranks and set(ranks) <= set(case.graph.missing) else ()


def about(
    placed: Placed[LogSign] | Placed[WatchdogTimeout] | Placed[GroupStatus],
    text: str,
    weight: float,
) -> Claim:
    """A claim that stands on one placed log line."""
    return claim(text, placed.fact.origin, weight, rank=placed.rank, at_ns=placed.at_ns)


def when(at_ns: int | None) -> str:
    """` at 03:41:07`, or nothing where the time is not known."""
    return "" if at_ns is None else f" at {format_clock(at_ns)}"


def ranks_text(ranks: tuple[int, ...] | list[int]) -> str:
    """`rank 5`, `ranks 9 and 14`, `ranks 0-7`, `ranks 1, 3, 5 and 12 more`.

    >>> ranks_text((5,)), ranks_text((9, 14)), ranks_text((0, 1, 2, 3)), ranks_text((1, 3, 5, 7, 9, 11))
    ('rank 5', 'ranks 9 and 14', 'ranks 0-3', 'ranks 1, 3, 5 and 3 more')
    """
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"ranks {ordered[0]}-{ordered[-1]}"
    if len(ordered) > 4:
        return f"ranks {', '.join(map(str, ordered[:3]))} and {len(ordered) - 3} more"
    return f"ranks {', '.join(map(str, ordered[:-1]))} and {ordered[-1]}"


def waited_in(case: Case) -> CollectiveRef:
    """The collective that most witnesses whose timeout began first waited in."""
    if case.graph is not None and case.graph.waited_on is not None:
        return in_one_language(case.graph.waited_on)
    starts: dict[CollectiveRef, tuple[int, int]] = {}
    for timeout in case.timeouts:
        fact = timeout.fact
        ref = CollectiveRef(
            group=None if fact.group is None else fact.group.name,
            desc=None if fact.group is None else fact.group.desc,
            op=fact.op,
            seq=fact.seq,
        )
        began = (timeout.at_ns or 0) - fact.ran_ms * 1_000_000
        count, first = starts.get(ref, (0, began))
        starts[ref] = (count + 1, min(first, began))
    named = {ref.seq: ref for ref in starts if ref.desc is not None}
    best = max(starts, key=lambda ref: (starts[ref][0], -starts[ref][1], repr(ref)), default=None)
    if best is None:
        return CollectiveRef()
    return named.get(best.seq, best)


def in_one_language(ref: CollectiveRef) -> CollectiveRef:
    """A collective with its operation spelled as the watchdog spells it."""
    return replace(ref, op=op_type(ref.op))


def collective_text(ref: CollectiveRef) -> str:
    """`ALLREDUCE 88214 of default_pg`, as far as it is known."""
    words = [ref.op or "a collective"]
    if ref.seq is not None:
        words.append(str(ref.seq))
    if ref.desc or ref.group:
        words.append(f"of {ref.desc or ref.group}")
    return " ".join(words)


def is_outside(sign: LogSign) -> bool:
    """Told to stop from outside. A cancelled step without a reason follows something else."""
    if sign.sign is not Sign.JOB_CANCELLED:
        return sign.sign in (Sign.PREEMPTION, Sign.AGENT_TOLD_TO_STOP)
    words = f"{sign.detail or ''} {sign.text}".lower()
    return "time limit" in words or "preempt" in words


def ended_by_agent(case: Case) -> frozenset[int]:
    """Ranks that their agent ended with SIGTERM because a sibling failed: innocent.

    A SIGTERM that comes after the first timeout explains no silence that began before it.
    """
    ended: set[int] = set()
    exited: set[int] = set()
    for sign in case.signs_of(Sign.CHILD_SIGTERM, Sign.ROOT_CAUSE_BLOCK, Sign.CHILD_FAILED):
        ahead = before_others_s(case, sign.at_ns)
        if ahead is None or ahead <= 0:
            continue
        own = () if sign.rank is None else (sign.rank,)
        named = sign.fact.named_ranks or own
        if sign.fact.sign is Sign.CHILD_SIGTERM:
            ended.update(sign.fact.named_ranks or _siblings(case, sign) or own)
        elif sign.fact.exit_code in (-15, 143):
            ended.update(named or _siblings(case, sign))
        else:
            exited.update(named)
    return frozenset(ended - exited)


def _siblings(case: Case, sign: Placed[LogSign]) -> tuple[int, ...]:
    """The ranks below an agent that says which process it ends, and not whose: all but those that it saw
    exit by themselves."""
    speaker = sign.fact.speaker
    for name in (speaker.pod, speaker.host, sign.node, speaker.node):
        ranks = case.topology.by_pod.get(name or "") or case.topology.by_node.get(name or "")
        if ranks:
            return ranks
    return ()


def waited_itself(case: Case, rank: int | None, *, host_lives: bool = False) -> list[Claim]:
    """Against a rank: it shows itself waiting on others, so it is not the one they wait for.

    Members of an operation that hangs in flight wait for nobody who is behind. `host_lives`: of a GPU
    that no longer runs anything the host's watchdog gives up like all others, so that its own timeout
    clears it only where somebody at hand gave up on nothing.
    """
    graph = case.graph
    if rank is None:
        return []
    if graph is not None and any(rank in root.ranks for root in graph.roots):
        return []
    if graph is not None and rank in graph.waiting:
        text = f"rank {rank}'s own dump shows it waiting for a rank that is behind"
        return [claim(text, None, AGAINST_WAITING, rank=rank)]
    own = next((t for t in case.timeouts if t.rank == rank), None)
    if own is None or (host_lives and not quiet_ranks(case)):
        return []
    return [about(own, f"rank {rank} reported a timeout itself: it waited", -GOOD)]


def quiet_ranks(case: Case) -> frozenset[int]:
    """Ranks whose log is at hand, that reported no timeout although others did, and whom nobody ended."""
    seen = {rank for rank, silence in case.silence.items() if silence.known}
    return frozenset(seen) - case.witnesses - ended_by_agent(case)


# What a rank says whose peers ended before it.
VICTIMS = (
    Sign.PEER_CLOSED,
    Sign.PEER_UNREACHABLE,
    Sign.STORE_LOST,
    Sign.REMOTE_ERROR,
    Sign.ASYNC_ERROR,
    Sign.PYTHON_EXCEPTION,
    Sign.CUDA_ERROR,
)


def stopped_by_itself(case: Case, rank: int, *, beside: frozenset[int]) -> bool:
    """Whether a rank stands still although nothing holds it: by its own dump, or as the only one outside
    `beside` (whom another fault took along) that lived and gave up on nothing."""
    graph = case.graph
    if graph is not None:
        if any(r.kind == "host-silent" and not r.virtual and rank in r.ranks for r in graph.roots):
            return True
        if rank in graph.waiting:
            return False
    if rank in case.witnesses or quiet_ranks(case) - beside != {rank}:
        return False
    if any(sign.rank == rank for sign in case.signs_of(*VICTIMS)):
        return False
    return any(sign.rank == rank for sign in case.signs_of(Sign.DUMP_SIGNAL_OTHER))


def sentence(text: str) -> str:
    """The text as the start of a sentence; names of nodes and pods keep their letters.

    >>> sentence("rank 5"), sentence("gpu-A")
    ('Rank 5', 'gpu-A')
    """
    return text[:1].upper() + text[1:] if text.startswith(("rank", "a ")) else text


def is_late(case: Case, sign: PlacedSign) -> bool:
    """Whether a line surely stands after the first watchdog gave up. Of a node whose clock nothing
    compares with the others', a time tells that only within the node."""
    if sign.at_ns is None or case.first_timeout_ns is None:
        return False
    if sign.clock is not None and sign.clock not in case.offsets:
        own_ns = [t.at_ns for t in case.timeouts if t.clock == sign.clock and t.at_ns is not None]
        return bool(own_ns) and sign.at_ns >= min(own_ns) - NS
    return sign.at_ns >= case.first_timeout_ns - NS


def before_others_s(case: Case, at_ns: int | None) -> float | None:
    """Seconds from a time to the first watchdog that gave up; None where either is not known."""
    if at_ns is None or case.first_timeout_ns is None:
        return None
    return (case.first_timeout_ns - at_ns) / NS


AFTERWARDS_S = 60.0


def is_after(case: Case, at_ns: int | None) -> bool:
    """Whether it came when the others had given up already: then it is what somebody did about the stall."""
    ahead = before_others_s(case, at_ns)
    return ahead is not None and ahead < -AFTERWARDS_S
