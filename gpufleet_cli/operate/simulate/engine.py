"""When each call of a job happens: CPUs run ahead of GPUs, collectives are barriers.

Every call has up to three moments: the CPU enqueues it, its kernel starts, it is done. A moment is
the latest of those that it waits for, plus a duration, so the whole run is one pass over a graph in
any order; what waits for something that never happens, never happens. Streams: one for compute, one
for each group and for each pair of sends and receives; a collective waits for the compute that was
enqueued before it, and compute waits for a collective that blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from gpufleet_cli.operate.simulate.layout import Layout
from gpufleet_cli.operate.simulate.programs import Op

LAUNCH_S = 0.0003
JITTERS = 4096  # a table, so that one place has the same jitter in every run of a world
EXCHANGED = ("call", "send", "recv", "ring")

Programs = Sequence[Sequence[Op]]
Place = tuple[int, int]  # (rank, number of the call in its program)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upset:
    """What goes wrong, as the engine knows it. Places are (rank, number of the call).

    `host_stops[rank]`: its CPU never makes this call. `never_starts`, `never_ends`: kernels. `broken`:
    operations that all entered and that end for nobody, `partial`: for these ranks alone. `deaths`:
    seconds after which nothing of a rank happens. `slow`: (from call, factor) of a rank's kernels,
    `slow_links`: (from call, factor) of the exchanges that a rank takes part in, `late`: seconds that
    a call takes longer than it should.
    """

    host_stops: Mapping[int, int] = field(default_factory=dict)
    never_starts: frozenset[Place] = frozenset()
    never_ends: frozenset[Place] = frozenset()
    broken: frozenset[Place] = frozenset()
    partial: Mapping[Place, frozenset[int]] = field(default_factory=dict)
    deaths: Mapping[int, float] = field(default_factory=dict)
    slow: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    slow_links: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    late: Mapping[Place, float] = field(default_factory=dict)


@dataclass(slots=True)
class Moments:
    """Seconds from the start of the window, per rank and call; None: never."""

    enqueued: list[list[float | None]]
    started: list[list[float | None]]
    done: list[list[float | None]]


@dataclass(frozen=True, slots=True)
class Linked:
    """Programs with what each call waits for at home and where it meets others: made once, run often.

    Calls are numbered over all ranks from `first[rank]`. Nodes are numbers: 2n the CPU's part of call n,
    2n+1 the GPU's; `need` counts what a node waits for, `after[n]` are the nodes that wait for the end
    of call n. `meeting[n]` names the operation that it is part of, `members` how many calls that takes.
    """

    programs: Programs
    first: list[int]
    place: list[Place]
    need: list[int]
    after: list[list[int]]
    meeting: list[object]
    members: dict[object, int]


def run(
    layout: Layout, programs: Programs, upset: Upset, *, ahead: int, eager: bool, seed: int
) -> Moments:
    """All moments of a window of steps. `ahead`: how many calls a CPU may be ahead of its GPU;
    `eager`: small sends end without their receiver."""
    return play(link(layout, programs, ahead=ahead), upset, eager=eager, seed=seed)


def play(linked: Linked, upset: Upset, *, eager: bool, seed: int) -> Moments:
    """The moments of linked programs with something wrong in them."""
    return _Run(linked, upset, eager=eager, seed=seed).moments()


def link(layout: Layout, programs: Programs, *, ahead: int) -> Linked:
    """Programs ready to be run."""
    first = [0]
    for program in programs:
        first.append(first[-1] + len(program))
    count = first[-1]
    linked = Linked(
        programs=programs,
        first=first,
        place=[(r, i) for r, program in enumerate(programs) for i in range(len(program))],
        need=[0] * (2 * count),
        after=[[] for _ in range(count)],
        meeting=[None] * count,
        members={},
    )
    for rank in range(layout.size):
        _link(linked, rank, ahead)
    return linked


def _link(linked: Linked, rank: int, ahead: int) -> None:
    """What each call of a rank waits for at home, and where it meets others."""
    first, after, need = linked.first[rank], linked.after, linked.need
    program = linked.programs[rank]
    compute: int | None = None
    streams: dict[object, int] = {}
    nth: dict[object, int] = defaultdict(int)
    for i, op in enumerate(program):
        n = first + i
        need[2 * n] = 1 if i else 0
        if i >= ahead and program[i - ahead].does != "host":
            after[n - ahead].append(2 * n)
            need[2 * n] += 1
        if op.does == "host":
            continue
        before = set() if compute is None else {compute}
        stream = _stream(rank, op)
        if op.does == "sync":
            before |= set(streams.values())
            for other in before:
                after[other].append(2 * n)
            need[2 * n] += len(before)
            continue
        if op.does == "wait":
            assert op.group is not None
            before |= {at for key, at in streams.items() if key == op.group.number}
        elif stream is not None:
            before |= {streams[stream]} if stream in streams else set()
            streams[stream] = n
            _meet(linked, rank, n, op, nth)
        for other in before:
            after[other].append(2 * n + 1)
        need[2 * n + 1] = 1 + len(before)
        if op.does in ("compute", "wait") or op.blocks:
            compute = n


def _stream(rank: int, op: Op) -> object:
    if op.does not in EXCHANGED:
        return None
    assert op.group is not None
    if op.peer is None:
        return op.group.number
    return op.group.number, min(rank, op.group.members[op.peer])


def _meet(linked: Linked, rank: int, n: int, op: Op, nth: dict[object, int]) -> None:
    group = op.group
    assert group is not None
    if op.peer is not None:
        other = group.members[op.peer]
        ends = (rank, other) if op.does == "send" else (other, rank)
        key: object = (group.number, ends)
    else:
        key = group.number
    nth[key] += 1
    linked.meeting[n] = (key, nth[key])
    linked.members[linked.meeting[n]] = 2 if op.peer is not None else len(group.members)


class _Run:
    """One run: what nodes still wait for, the latest moment that each has been told, who has arrived."""

    def __init__(self, linked: Linked, upset: Upset, *, eager: bool, seed: int) -> None:
        self.programs, self.upset, self.eager = linked.programs, upset, eager
        rng = Random(seed)
        self.jitter = [1 + 0.02 * rng.random() for _ in range(JITTERS)]
        self.first, self.place = linked.first, linked.place
        self.after, self.meeting, self.members = linked.after, linked.meeting, linked.members
        self.need = list(linked.need)
        self.at = [0.0] * len(linked.need)
        self.arrived: dict[object, list[Place]] = defaultdict(list)
        self.broken = {self.first[r] + i for r, i in upset.broken}
        self.found = Moments(
            enqueued=[[None] * len(p) for p in self.programs],
            started=[[None] * len(p) for p in self.programs],
            done=[[None] * len(p) for p in self.programs],
        )

    def moments(self) -> Moments:
        ready = [2 * first for first, p in zip(self.first, self.programs, strict=False) if p]
        while ready:
            node = ready.pop()
            rank, i = self.place[node // 2]
            if node % 2:
                self._start(rank, i, self.at[node], ready)
            else:
                self._enqueue(rank, i, self.at[node], ready)
        return self.found

    def _feed(self, node: int, at: float, ready: list[int]) -> None:
        if at > self.at[node]:
            self.at[node] = at
        self.need[node] -= 1
        if self.need[node] == 0:
            ready.append(node)

    def _enqueue(self, rank: int, i: int, at: float, ready: list[int]) -> None:
        upset, op = self.upset, self.programs[rank][i]
        if upset.host_stops.get(rank, i + 1) <= i:
            return
        at += LAUNCH_S + upset.late.get((rank, i), 0.0)
        if op.does == "host":
            at += op.seconds
        if at > upset.deaths.get(rank, at):
            return
        self.found.enqueued[rank][i] = at
        n = self.first[rank] + i
        if op.does in ("host", "sync"):
            self.found.done[rank][i] = at
            for node in self.after[n]:
                self._feed(node, at, ready)
        else:
            self._feed(2 * n + 1, at, ready)
        if i + 1 < len(self.programs[rank]):
            self._feed(2 * n + 2, at, ready)

    def _start(self, rank: int, i: int, at: float, ready: list[int]) -> None:
        upset, op = self.upset, self.programs[rank][i]
        if (rank, i) in upset.never_starts or at > upset.deaths.get(rank, at):
            return
        self.found.started[rank][i] = at
        if op.does not in EXCHANGED:
            if (rank, i) not in upset.never_ends:
                self._end(rank, i, at + self._seconds(rank, i, op), ready)
            return
        if op.does == "send" and self.eager:
            self._end(rank, i, at + op.seconds, ready)
        meeting = self.meeting[self.first[rank] + i]
        here = self.arrived[meeting]
        here.append((rank, i))
        if len(here) == self.members[meeting]:
            self._exchange(here, ready)

    def _seconds(self, rank: int, i: int, op: Op) -> float:
        seconds = op.seconds * self.jitter[(rank * 7919 + i * 104_729) % JITTERS]
        since, factor = self.upset.slow.get(rank, (i + 1, 1.0))
        return seconds * factor if i >= since else seconds

    def _exchange(self, here: list[Place], ready: list[int]) -> None:
        """All members are in: it ends for all, if their calls agree and nothing is broken."""
        ops = [self.programs[rank][i] for rank, i in here]
        first = ops[0]
        if first.does == "call" and first.name != "all_to_all":
            if any(
                (op.name, op.size, op.dtype) != (first.name, first.size, first.dtype) for op in ops
            ):
                return
        elif any(op.does == "ring" for op in ops) and any(op.does != "ring" for op in ops):
            return
        if any(self.first[rank] + i in self.broken for rank, i in here):
            return
        began = max(self.found.started[rank][i] or 0.0 for rank, i in here)
        seconds = first.seconds
        for rank, i in here:
            since, factor = self.upset.slow_links.get(rank, (i + 1, 1.0))
            if i >= since:
                seconds = max(seconds, first.seconds * factor)
        left_out = next(
            (self.upset.partial[p] for p in here if p in self.upset.partial), frozenset()
        )
        for (rank, i), op in zip(here, ops, strict=True):
            is_over = op.does == "send" and self.eager
            if rank not in left_out and not is_over and (rank, i) not in self.upset.never_ends:
                self._end(rank, i, began + seconds, ready)

    def _end(self, rank: int, i: int, at: float, ready: list[int]) -> None:
        if at > self.upset.deaths.get(rank, at):
            return
        self.found.done[rank][i] = at
        for node in self.after[self.first[rank] + i]:
            self._feed(node, at, ready)
