"""Stories for the tests of the simulator's writers: a job of a size with one fault, made by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from random import Random

from gpufleet_cli.operate.simulate import faults, layout
from gpufleet_cli.operate.simulate.engine import Moments
from gpufleet_cli.operate.simulate.faults import HOWS
from gpufleet_cli.operate.simulate.story import (
    RUNNING,
    Class,
    Ending,
    Fault,
    How,
    Story,
    Style,
)

STYLE = Style(
    framework="plain",
    wrapper="pod-files",
    torch="2.6",
    timing=False,
    frames=False,
    ring=200,
    as_json=False,
    only_active=False,
    identity="topology",
    rank0_only=False,
    lost_prefixes=False,
)
BASES = {Class.RED_HERRING: Class.SKIPPED, Class.OTHER_JOB: Class.SEGFAULT}
OF_NODES = (Class.NODE_DEATH, Class.RENDEZVOUS)
NAMELESS = (Class.P2P_DEADLOCK, Class.IMBALANCE, Class.LONG_STEP, Class.COMPILE, Class.CHECKPOINT)


def story(
    cls: Class,
    *,
    seed: int = 1,
    size: int = 64,
    identity: str = "topology",
    wrapper: str = "pod-files",
    captured_s: float = 1200.0,
    skew_s: float = 0.0,
) -> Story:
    """The guilty rank is 5, an innocent of a decoy is on the last node."""
    job = _layout(seed, size)
    fault = _fault(BASES.get(cls, cls), job)
    decoys = ()
    if cls in BASES:
        at = -40.0 if cls is Class.RED_HERRING else -7200.0
        index = len(job.nodes) - 1
        decoys = (Fault(cls=cls, at_s=at, ranks=(job.size - 1,), node_indexes=(index,)),)
    is_running = cls in RUNNING
    return Story(
        seed=seed,
        cls=cls,
        layout=job,
        style=replace(STYLE, identity=identity, wrapper=wrapper),  # type: ignore[arg-type]
        programs=[],
        moments=Moments(enqueued=[], started=[], done=[]),
        start_ns=1_772_000_000_250_000_000,
        first_step=100,
        step_seconds=2.0,
        steps_before=100,
        step_ends=(),
        faults=(fault,),
        decoys=decoys,
        firings=(),
        signalled={},
        dumped={},
        endings=tuple(_ending(job, fault, rank, is_running) for rank in range(size)),
        saves=(),
        timeout_s=600.0,
        checkpoint_every=50,
        captured_s=captured_s,
        skew_s=tuple(skew_s * (i % 2) for i in range(len(job.nodes))),
    )


@lru_cache(maxsize=256)
def _layout(seed: int, size: int) -> layout.Layout:
    return layout.make(Random(seed), size=size)


def _fault(cls: Class, job: layout.Layout) -> Fault:
    ranks: tuple[int, ...] = (5,)
    indexes: tuple[int, ...] = (job.node_index(5),)
    if cls in OF_NODES:
        indexes = (1,)
        ranks = tuple(job.ranks_of(1))
    elif cls is Class.SWITCH:
        ranks, indexes = (), (0, 1)
    elif cls is Class.STORAGE:
        ranks, indexes = tuple(range(0, job.size, 2)), ()
    elif cls in NAMELESS:
        ranks, indexes = (), ()
    kinds = tuple(sorted(faults.KINDS_OF[cls]))
    return Fault(cls=cls, at_s=3.0, ranks=ranks, node_indexes=indexes, kinds=kinds, factor=1.6)


def _ending(job: layout.Layout, fault: Fault, rank: int, is_running: bool) -> Ending:
    if is_running or fault.cls is Class.RENDEZVOUS:
        return Ending(rank=rank, how="alive", at_s=None)
    if fault.cls is Class.NODE_DEATH and rank in fault.ranks:
        return Ending(rank=rank, how="vanished", at_s=fault.at_s)
    how = HOWS.get(fault.cls)
    if how is not None and job.node_index(rank) == job.node_index(fault.ranks[0]):
        if rank != fault.ranks[0]:
            return Ending(rank=rank, how="agent-sigterm", at_s=fault.at_s + 4, code=-15)
        word: How = next(h for h in _CODES if h == how)
        return Ending(rank=rank, how=word, at_s=fault.at_s + 0.2, code=_CODES[word])
    return Ending(rank=rank, how="watchdog-abort", at_s=fault.at_s + 640 + rank / 100, code=-6)


_CODES: dict[How, int] = {"exception": 1, "segfault": -11, "oom-kill": -9, "cuda-error": 1}
