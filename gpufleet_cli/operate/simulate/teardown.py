"""After the fault: whose watchdog fires, who sees the signal, what is dumped, how each process ends.

A rank's watchdog fires a timeout after its oldest open call was enqueued. The first to fire tells
the others through the store; those who live dump, abort, and their agents end the siblings. A rank
that ends before its own timeout prints none: that is how innocents come to be as quiet as the guilty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from gpufleet_cli.operate.simulate.engine import EXCHANGED, Moments
from gpufleet_cli.operate.simulate.faults import Plan
from gpufleet_cli.operate.simulate.layout import Layout
from gpufleet_cli.operate.simulate.programs import Op
from gpufleet_cli.operate.simulate.story import Class, Ending, Firing, How

POLL_S = 1.0
CODES: dict[How, int | None] = {
    "alive": None,
    "frozen": -9,
    "exception": 1,
    "segfault": -11,
    "oom-kill": -9,
    "cuda-error": 1,
    "network-error": 1,
    "agent-sigterm": -15,
    "watchdog-abort": -6,
    "vanished": None,
}


@dataclass(slots=True)
class Aftermath:
    """What `story.Story` needs of it."""

    firings: list[Firing] = field(default_factory=list)
    signalled: dict[int, float] = field(default_factory=dict)
    dumped: dict[int, float] = field(default_factory=dict)
    endings: list[Ending] = field(default_factory=list)
    captured_s: float = 0.0


def follow(
    layout: Layout, plan: Plan, moments: Moments, *, timeout_s: float, signals: bool, rng: Random
) -> Aftermath:
    """The aftermath of a stopped job. `signals`: the release tells other ranks of a timeout."""
    found = Aftermath()
    ended = _ended_at_once(layout, plan, rng)
    due = _due(layout, plan.programs, moments, timeout_s, rng)
    noticed = _network_errors(layout, plan, ended, rng)
    for ending in noticed:
        ended.setdefault(ending.rank, ending)
    waiting = {rank: d for rank, d in due.items() if rank not in ended}
    first = min((at for at, _call in waiting.values()), default=None)
    if first is not None:
        _time_out(
            layout,
            found,
            ended,
            waiting,
            first,
            signals=signals,
            timeout_s=timeout_s,
            rng=rng,
            plan=plan,
        )
    for rank in range(layout.size):
        if rank not in ended:
            how: How = "frozen" if rank in _frozen(plan) else "alive"
            ended[rank] = Ending(rank=rank, how=how, at_s=None, code=CODES[how])
    found.endings = [ended[rank] for rank in sorted(ended)]
    last = max((e.at_s for e in found.endings if e.at_s is not None), default=plan.at_s + timeout_s)
    found.captured_s = last + rng.uniform(30, 900)
    return found


def _frozen(plan: Plan) -> set[int]:
    return {r for f in plan.faults if f.cls is Class.LOCK_STALL for r in f.ranks}


def _ended_at_once(layout: Layout, plan: Plan, rng: Random) -> dict[int, Ending]:
    """Processes that the fault itself ends, and the siblings that their agent ends with them."""
    ended: dict[int, Ending] = {}
    for fault in plan.faults:
        if fault.cls is Class.NODE_DEATH:
            for rank in fault.ranks:
                ended[rank] = Ending(rank=rank, how="vanished", at_s=fault.at_s)
    for rank, word in plan.crashes.items():
        how: How = next(h for h in CODES if h == word)
        fault = next(f for f in plan.faults if rank in f.ranks)
        at = fault.at_s + (rng.uniform(0.5, 6.0) if how == "cuda-error" else rng.uniform(0.0, 0.3))
        ended[rank] = Ending(rank=rank, how=how, at_s=at, code=CODES[how])
        _end_siblings(layout, ended, rank, at, rng)
    return ended


def _end_siblings(
    layout: Layout, ended: dict[int, Ending], rank: int, at_s: float, rng: Random
) -> None:
    """An agent sees the exit of one child and ends the others; one that is stuck takes a kill."""
    seen = at_s + rng.uniform(0.1, 4.0)
    for sibling in layout.ranks_of(layout.node_index(rank)):
        if sibling not in ended:
            end = seen + rng.uniform(0.0, 1.0)
            ended[sibling] = Ending(
                rank=sibling, how="agent-sigterm", at_s=end, code=CODES["agent-sigterm"]
            )


def _due(
    layout: Layout, programs: list[list[Op]], moments: Moments, timeout_s: float, rng: Random
) -> dict[int, tuple[float, int]]:
    """When each rank's watchdog would fire, and for which call."""
    due: dict[int, tuple[float, int]] = {}
    for rank in range(layout.size):
        open_calls = [
            (at, i)
            for i, at in enumerate(moments.enqueued[rank])
            if at is not None
            and moments.done[rank][i] is None
            and programs[rank][i].does in EXCHANGED
        ]
        if open_calls:
            at, i = min(open_calls)
            due[rank] = at + timeout_s + rng.uniform(0.0, 0.2), i
    return due


def _network_errors(
    layout: Layout, plan: Plan, ended: Mapping[int, Ending], rng: Random
) -> list[Ending]:
    """In some jobs the peers of a dead process or a dead adapter see their connections break."""
    cls = plan.faults[0].cls
    breaks = cls in (Class.NIC_DOWN, Class.RAIL_FLAP, Class.SWITCH)
    if len(plan.faults) > 1:
        return []  # the second fault would leave no trace: its world would be one of the first alone
    if not (breaks or plan.crashes) or rng.random() < (0.3 if breaks else 0.6):
        return []
    begin = min((e.at_s for e in ended.values() if e.at_s is not None), default=plan.at_s)
    found: dict[int, Ending] = {}
    peers = sorted(plan.suspects) or list(range(layout.size))
    delay = rng.uniform(8, 25) if breaks else rng.uniform(1, 10)
    for rank in peers:
        if rank not in ended and rng.random() < 0.8:
            at = begin + delay + rng.uniform(0, 3)
            found[rank] = Ending(
                rank=rank, how="network-error", at_s=at, code=CODES["network-error"]
            )
    for rank in list(found):
        at_s = found[rank].at_s
        assert at_s is not None
        others = dict(found)
        _end_siblings(layout, others, rank, at_s, rng)
        for sibling in others.keys() - found.keys() - ended.keys():
            found[sibling] = others[sibling]
    return list(found.values())


def _time_out(
    layout: Layout,
    found: Aftermath,
    ended: dict[int, Ending],
    waiting: Mapping[int, tuple[float, int]],
    first: float,
    *,
    signals: bool,
    timeout_s: float,
    rng: Random,
    plan: Plan,
) -> None:
    """Everybody who lives fires or sees the signal, dumps, and aborts or is ended."""
    frozen = _frozen(plan)
    store_dead = 0 in ended and ended[0].how == "vanished"
    alive = [r for r in range(layout.size) if r not in ended and r not in frozen]
    grace = rng.uniform(1.0, 4.0) if rng.random() < 0.15 else rng.uniform(15.0, 60.0)
    killed: dict[int, float] = {}
    for rank in sorted(alive, key=lambda r: waiting.get(r, (first + POLL_S, 0))[0]):
        fires_at, call = waiting.get(rank, (float("inf"), -1))
        end = killed.get(rank, float("inf"))
        tells = signals and not store_dead
        sees_at = first + rng.uniform(0.05, POLL_S) if tells else float("inf")
        if fires_at < end:
            ran = round((timeout_s + rng.uniform(0.01, 0.9)) * 1000)
            found.firings.append(Firing(rank=rank, call=call, at_s=fires_at, ran_ms=ran))
        if sees_at < min(end, fires_at) and sees_at < float("inf"):
            found.signalled[rank] = sees_at
        wakes = min(fires_at, sees_at)
        if wakes == float("inf"):
            continue
        dumps_at = wakes + rng.uniform(0.1, 2.0)
        if dumps_at < end:
            found.dumped[rank] = dumps_at
        aborts = fires_at + grace if fires_at < float("inf") else wakes + grace + rng.uniform(0, 5)
        if aborts < end:
            ended[rank] = Ending(
                rank=rank, how="watchdog-abort", at_s=aborts, code=CODES["watchdog-abort"]
            )
            for sibling in layout.ranks_of(layout.node_index(rank)):
                killed.setdefault(sibling, aborts + rng.uniform(0.2, 4.0))
    for rank, at in killed.items():
        if rank not in ended:
            how: How = "frozen" if rank in frozen else "agent-sigterm"
            ended[rank] = Ending(rank=rank, how=how, at_s=at, code=CODES[how])
