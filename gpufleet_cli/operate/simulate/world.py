"""One made incident: seed, class, size and losses to files and truth.

The same arguments give the same bytes. Everything that a world draws comes from one seeded source
a part, so that losing more dumps of a world leaves its story as it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from gpufleet_cli.errors import UsageError
from gpufleet_cli.operate.simulate import (
    cluster_files,
    cluster_pods,
    dump_files,
    engine,
    faults,
    gathered,
    kernel_files,
    layout,
    log_files,
    log_wrappers,
    programs,
    teardown,
    told,
)
from gpufleet_cli.operate.simulate.engine import Moments, Upset
from gpufleet_cli.operate.simulate.faults import Plan, Setting
from gpufleet_cli.operate.simulate.layout import Layout
from gpufleet_cli.operate.simulate.story import (
    HEALTHY,
    RUNNING,
    Class,
    Clue,
    Ending,
    Rest,
    Save,
    Story,
    Style,
)
from gpufleet_cli.operate.simulate.teardown import Aftermath
from gpufleet_cli.operate.simulate.told import Replay, Seen, Told
from gpufleet_cli.operate.simulate.truth import Truth
from gpufleet_cli.verdict import Kind

STEPS, SLOW_STEPS = 3, 12
TRIES = 30
EPOCH_NS = 1_772_000_000_000_000_000
FRAMEWORKS = ("torchtitan", "megatron", "deepspeed", "lightning", "nemo", "plain")
SKEWS_S = (0.0, 0.1, 30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The files of an incident by path, and what is true of it. `clues`: the lines in them that speak
    of the true fault."""

    files: Mapping[str, bytes] = field(repr=False)
    truth: Truth
    story: Story = field(repr=False)
    clues: tuple[Clue, ...] = field(repr=False)

    def write(self, folder: Path) -> None:
        """Put the files below a folder, dated when the evidence was taken: stamps without a year are
        read by the date of their file. The truth is not among them."""
        taken = self.truth.as_of_ns
        for path, content in self.files.items():
            to = folder / path
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(content)
            os.utime(to, ns=(taken, taken))


def make(cls: Class, *, seed: int, size: int = 64, lost: float = 0.0) -> World:
    """A world of a class. `lost` is the part of the dumps that is gone; 0.95 and more: one node's are
    left, 1: none."""
    draw = _Draws(cls, seed)
    story, plan, replay = _happen(draw, cls, seed, size, no_dumps=lost >= 1)
    left, dumps = _dumps(story, plan, draw("dumps"), lost)
    logs = log_files.write(story, draw("logs"))
    cluster = cluster_files.write(story, draw("cluster"))
    kernel = kernel_files.write(story, draw("kernel"), bus_known=gathered.knows_buses(story))
    files = {**cluster.files, **kernel.files, **logs.files, **dumps}
    seen = Seen(
        dumps=frozenset(left),
        timed_out=logs.timed_out,
        clues=_as_tied(story, (*logs.clues, *kernel.clues, *cluster.clues)),
        timing=story.style.timing,
        complete=logs.complete,
        lost=min(lost, 0.95),
        captured_s=story.captured_s,
    )
    found = told.tell(plan, cls, seen, replay)
    truth = _truth(story, plan, found, lost)
    return World(files=files, truth=truth, story=story, clues=seen.clues)


def _as_tied(story: Story, clues: tuple[Clue, ...]) -> tuple[Clue, ...]:
    """A line that names a node leaves all ranks where no file tells which of them ran there."""
    if gathered.ties_ranks(story, is_elastic=cluster_pods.is_elastic(story)):
        return clues
    everyone = tuple(range(story.layout.size))
    return tuple(replace(c, ranks=everyone) if len(c.ranks) > 1 and c.nodes else c for c in clues)


class _Draws:
    """A source of randomness for each part of a world."""

    def __init__(self, cls: Class, seed: int) -> None:
        self.base = f"{cls}/{seed}"

    def __call__(self, part: str) -> Random:
        return Random(int.from_bytes(hashlib.sha256(f"{self.base}/{part}".encode()).digest()[:8]))


# --- What happens ----------------------------------------------------------------------------------


def _happen(
    draw: _Draws, cls: Class, seed: int, size: int, *, no_dumps: bool
) -> tuple[Story, Plan, Replay]:
    rng, style = draw("job"), _style(draw("style"), no_dumps=no_dumps)
    faulty = draw("fault")
    for _ in range(TRIES):
        setting, replay = _job(cls, rng, faulty, size)
        plan = _stopping(setting, cls, replay)
        if plan is not None:
            break
    else:
        raise UsageError(f"{size} ranks leave no place for a fault of the class {cls}")
    moments = replay.run(plan.upset, plan.programs)
    timeout_s = rng.choice((600.0, 600.0, 300.0, 1800.0))
    after = _after(draw("after"), cls, setting.layout, plan, moments, timeout_s, style)
    story = _story(draw, cls, seed, setting, plan, moments, after, timeout_s, style)
    return story, plan, replace(replay, moments=moments)


def _job(cls: Class, rng: Random, faulty: Random, size: int) -> tuple[Setting, Replay]:
    """A job in which nothing is wrong yet."""
    kinds: tuple[layout.Kind, ...] = layout.KINDS
    if cls in faults.PIPELINED:
        kinds = ("megatron", "experts")
    job = layout.make(rng, size=size, kind=rng.choice(kinds))
    kernels_s = rng.choice((0.3, 0.8, 2.0, 6.0))
    steps = SLOW_STEPS if cls in faults.SLOWING else STEPS
    calls = [programs.step(job, rank, seconds=kernels_s) * steps for rank in range(size)]
    ahead = rng.choice((4, 12, 30, 60))
    eager = rng.random() < 0.5 and cls is not Class.P2P_DEADLOCK
    seed = rng.randrange(1 << 30)
    linked = engine.link(job, calls, ahead=ahead)
    healthy = engine.play(linked, Upset(), eager=eager, seed=seed)
    setting = Setting(layout=job, programs=calls, healthy=healthy, steps=steps, rng=faulty)
    replay = Replay(layout=job, linked=linked, moments=healthy, ahead=ahead, eager=eager, seed=seed)
    return setting, replay


def _stopping(setting: Setting, cls: Class, replay: Replay) -> Plan | None:
    """A plan that really stops the job, where its class does; None: not in this layout."""
    for _ in range(TRIES):
        try:
            plan = faults.MAKERS[cls](setting, cls)
        except faults.NoPlaceError:
            return None
        if cls in RUNNING or cls is Class.RENDEZVOUS:
            return plan
        moments = replay.run(plan.upset, plan.programs)
        if _hangs(setting.layout, moments, plan) and _all_come_to_pass(plan, moments):
            return plan
    return None


def _all_come_to_pass(plan: Plan, moments: Moments) -> bool:
    """Of several faults each is one: a rank that already waits for the other's victim when its own fault
    would begin is none."""
    if len(plan.faults) < 2:
        return True
    return not any(
        at is not None and moments.done[rank][i] is None
        for rank in set(plan.upset.host_stops) - set(plan.crashes)
        for i, at in enumerate(moments.enqueued[rank])
        if plan.programs[rank][i].does in engine.EXCHANGED
    )


def _hangs(job: Layout, moments: Moments, plan: Plan) -> bool:
    """Nobody comes to the end of the window, but ranks that are guilty themselves."""
    ended = [r for r in range(job.size) if moments.done[r][-1] is not None]
    return not set(ended) - plan.culprits and len(ended) < job.size


def _style(rng: Random, *, no_dumps: bool) -> Style:
    torch = rng.choice(("2.4", "2.6", "2.8", "2.10") + (("2.1",) if no_dumps else ()))
    return Style(
        framework=rng.choice(FRAMEWORKS),
        wrapper=rng.choice(log_wrappers.WRAPPERS),
        torch=torch,
        timing=rng.random() < 0.4,
        frames=rng.random() < 0.7,
        ring=rng.choice((150, 250, 400)),
        as_json=rng.random() < 0.15,
        only_active=rng.random() < 0.08 and torch == "2.10",
        identity=rng.choice(("topology", "topology", "pods", "logs")),
        rank0_only=rng.random() < 0.12,
        lost_prefixes=rng.random() < 0.08,
    )


def _after(
    rng: Random,
    cls: Class,
    job: Layout,
    plan: Plan,
    moments: Moments,
    timeout_s: float,
    style: Style,
) -> Aftermath:
    if cls not in RUNNING and cls is not Class.RENDEZVOUS:
        signals = style.torch not in ("2.1",)
        return teardown.follow(job, plan, moments, timeout_s=timeout_s, signals=signals, rng=rng)
    found = Aftermath()
    found.endings = [Ending(rank=r, how="alive", at_s=None) for r in range(job.size)]
    if cls is Class.RENDEZVOUS:
        found.captured_s = rng.uniform(700, 2000)
        return found
    if cls in HEALTHY:
        found.captured_s = plan.at_s + rng.uniform(0.02, 0.3) * timeout_s
    else:
        last = max(at for m in moments.done for at in m if at is not None)
        found.captured_s = 0.93 * last
    if rng.random() < 0.3:
        found.dumped = {r: found.captured_s - rng.uniform(0.0, 0.05) for r in range(job.size)}
    return found


def _story(
    draw: _Draws,
    cls: Class,
    seed: int,
    setting: Setting,
    plan: Plan,
    moments: Moments,
    after: Aftermath,
    timeout_s: float,
    style: Style,
) -> Story:
    rng = draw("story")
    job = setting.layout
    steps_before = rng.choice((40, 150, 700, 3000))
    every = rng.choice((20, 50, 100, 250))
    first = steps_before + rng.choice((0, 0, 5000))
    if cls is Class.CHECKPOINT:
        every = rng.choice((10, 20, 25))
    saving = cls in (Class.CHECKPOINT_STALL, Class.STORAGE, Class.CHECKPOINT)
    first = first - first % every if saving else first - first % every + every // 2
    healthy = _step_ends(setting.programs, setting.healthy, setting.steps)
    step_seconds = healthy[0][1] - healthy[0][0]
    ends = _step_ends(plan.programs, moments, setting.steps)
    if cls is Class.RENDEZVOUS:
        steps_before, first = 0, 0
    return Story(
        seed=seed,
        cls=cls,
        layout=job,
        style=style,
        programs=plan.programs,
        moments=moments,
        start_ns=EPOCH_NS + rng.randrange(20_000_000) * 1_000_000_000 + rng.randrange(10**9),
        first_step=first,
        step_seconds=step_seconds,
        steps_before=steps_before,
        step_ends=ends,
        faults=plan.faults,
        decoys=plan.decoys,
        firings=tuple(after.firings),
        signalled=after.signalled,
        dumped=after.dumped,
        endings=tuple(after.endings),
        saves=_saves(cls, plan, first, after.captured_s, rng) if saving else (),
        timeout_s=timeout_s,
        checkpoint_every=every,
        captured_s=after.captured_s,
        skew_s=_skews(rng, len(job.nodes)),
        rests=_rests(draw("rests"), cls, plan, first, steps_before, every, after.captured_s),
    )


def _rests(
    rng: Random, cls: Class, plan: Plan, first: int, before: int, every: int, captured_s: float
) -> tuple[Rest, ...]:
    """Saves and evaluations come again and again; compilations, and steps that take long for
    another reason, at times of their own."""
    if cls not in HEALTHY:
        return ()
    seconds = (captured_s - plan.at_s) / rng.uniform(0.25, 0.95)
    if cls is Class.CHECKPOINT:
        steps = list(range(first - every, first - before, -every))
    elif cls is Class.LONG_STEP and not plan.upset.slow:
        period = rng.choice((10, 20, 25))
        steps = list(range(first - period, first - before, -period))
    else:
        span = range(first - min(before, 60), first - 3)
        steps = sorted(rng.sample(span, rng.randint(0, 2)), reverse=True)
    return tuple(Rest(after_step=s, seconds=seconds * rng.uniform(0.85, 1.15)) for s in steps)


def _saves(cls: Class, plan: Plan, step: int, captured_s: float, rng: Random) -> tuple[Save, ...]:
    began = plan.at_s + 0.01
    ended = began + rng.uniform(2, 20) if cls is Class.CHECKPOINT_STALL else None
    return (Save(step=step, began_s=began, ended_s=ended),)


def _step_ends(
    of: list[list[programs.Op]], moments: Moments, steps: int
) -> tuple[tuple[float, ...], ...]:
    """When each rank's CPU came to the end of each step: at its sync and what follows it."""
    found = []
    for program, enqueued in zip(of, moments.enqueued, strict=True):
        each = len(program) // steps
        ends = []
        for step in range(1, steps + 1):
            at = enqueued[min(step * each, len(program)) - 1]
            if at is None:
                break
            ends.append(at)
        found.append(tuple(ends))
    return tuple(found)


def _skews(rng: Random, nodes: int) -> tuple[float, ...]:
    widest = rng.choice(SKEWS_S)
    found = [rng.uniform(-widest, widest) for _ in range(nodes)]
    if nodes > 1 and rng.random() < 0.1:
        found[rng.randrange(nodes)] += 3600.0
    return tuple(found)


# --- What is left ----------------------------------------------------------------------------------


def _dumps(
    story: Story, plan: Plan, rng: Random, lost: float
) -> tuple[list[int], dict[str, bytes]]:
    """The ranks whose dumps are left, whole, and the files: some that are lost are cut or stale."""
    written = sorted(story.dumped)
    if lost >= 1 or not written:
        return [], {}
    gone = _lost(story, plan, rng, written, lost)
    left = [rank for rank in written if rank not in gone]
    files = dump_files.write(story, rng, ranks=written)
    damaged = rng.random() < 0.3
    for path in sorted(files):
        rank = int(path.rpartition("_")[2])
        if rank not in gone:
            continue
        content = files.pop(path)
        if damaged and rng.random() < 0.3:
            files[path] = content[: rng.randrange(len(content) // 2)]
    return left, files


def _lost(story: Story, plan: Plan, rng: Random, written: list[int], lost: float) -> set[int]:
    if lost >= 0.95:
        node = rng.randrange(len(story.layout.nodes))
        return set(written) - set(story.layout.ranks_of(node))
    gone = {rank for rank in written if rng.random() < lost}
    if lost > 0:
        if rng.random() < 0.4:
            gone |= plan.culprits
        if rng.random() < 0.15:
            gone |= set(story.layout.ranks_of(rng.randrange(len(story.layout.nodes))))
    return gone


def _truth(story: Story, plan: Plan, found: Told, lost: float) -> Truth:
    job = story.layout
    kinds = plan.kinds
    if not found.named and plan.culprits:
        kinds = kinds | {Kind.RANK_MISSING}
        if plan.crashes:
            kinds = kinds | {Kind.RANK_CRASHED}  # that it ended is told, and not why
    if not plan.culprits and (found.may_abstain or not found.decided):
        kinds = kinds | {Kind.UNDECIDABLE}
    culprits = plan.culprits if found.shown is None else found.shown
    nodes = {job.nodes[i] for i in plan.node_indexes}
    if found.shown is not None:
        nodes = {job.node_of(rank) for rank in culprits}
    return Truth(
        cls=story.cls,
        seed=story.seed,
        size=job.size,
        lost=lost,
        kinds=kinds,
        culprits=culprits,
        nodes=frozenset(nodes),
        by_node=plan.by_node or found.by_node,
        may_name=plan.may_name,
        told=found.ranks,
        decided=found.decided,
        settle=found.settle,
        side=plan.side,
        stopped=story.cls not in RUNNING,
        as_of_ns=story.wall_ns(story.captured_s),
        node_of=tuple(job.node_of(r) for r in range(job.size)),
        summary=_summary(story, plan),
    )


def _summary(story: Story, plan: Plan) -> str:
    what = " and ".join(str(fault.cls) for fault in plan.faults)
    who = ", ".join(map(str, sorted(plan.culprits))) or "nobody"
    return f"{what}: {who}"


def as_json(truth: Truth) -> str:
    """The truth as text, for a file beside the evidence and never in it."""
    plain = {
        "class": truth.cls,
        "seed": truth.seed,
        "size": truth.size,
        "kinds": sorted(truth.kinds),
        "culprits": sorted(truth.culprits),
        "nodes": sorted(truth.nodes),
        "told": None if truth.told is None else sorted(truth.told),
        "decided": truth.decided,
        "summary": truth.summary,
    }
    return json.dumps(plain, indent=1)
