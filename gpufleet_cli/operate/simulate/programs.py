"""What each rank does in one step, as calls to host, GPU and process groups.

Shapes and orders follow public trainers: FSDP gathers parameters ahead of use and scatters gradients
behind it; Megatron's stages run their microbatches forward and back with tensor collectives in each
layer; experts exchange tokens; context groups pass keys and values around a ring in batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpufleet_cli.operate.simulate.layout import Group, Layout

# host: work of the CPU alone; compute: a kernel; call: a collective; send, recv: of two ranks;
# ring: one batch of a send onward and a receive; wait: the compute stream waits for what the group
# has in flight; sync: the CPU waits for the GPU.
Does = Literal["host", "compute", "call", "send", "recv", "ring", "wait", "sync"]
Phase = Literal["data", "forward", "backward", "reduce", "optimizer", "checkpoint"]

LAYERS, MICROBATCHES, BUCKETS = 3, 2, 2
HIDDEN = (4096, 1, 5120)


@dataclass(frozen=True, slots=True)
class Op:
    """One call. `seconds` is how long it takes alone; `peer` is a rank inside the group.

    `blocks`: the compute stream goes on only after it (a collective that is waited for at once).
    """

    does: Does
    phase: Phase
    seconds: float
    group: Group | None = None
    name: str = ""
    size: tuple[int, ...] = ()
    peer: int | None = None
    blocks: bool = True
    dtype: str = "BFloat16"


def step(layout: Layout, rank: int, *, seconds: float) -> list[Op]:
    """The program of one step, whose kernels take about `seconds` together."""
    if layout.kind in ("fsdp", "hsdp"):
        ops = list(_sharded(layout, rank))
    else:
        ops = list(_pipelined(layout, rank))
    kernels = sum(op.does == "compute" for op in ops)
    each = seconds / max(1, kernels)
    return [Op("compute", op.phase, each) if op.does == "compute" else op for op in ops]


def _call(group: Group, phase: Phase, name: str, size: tuple[int, ...], *, blocks: bool) -> Op:
    return Op("call", phase, 0.002, group, name, size, blocks=blocks)


def _sharded(layout: Layout, rank: int) -> Iterator[Op]:
    groups = layout.groups_of[rank]
    shard, world = groups["shard"], groups["world"]
    yield Op("host", "data", 0.004)
    for layer in range(LAYERS):
        size = (11_000_000 + layer,)
        yield _call(shard, "forward", "_all_gather_base", size, blocks=True)
        yield Op("compute", "forward", 0.0)
    for layer in reversed(range(LAYERS)):
        size = (11_000_000 + layer,)
        yield _call(shard, "backward", "_all_gather_base", size, blocks=True)
        yield Op("compute", "backward", 0.0)
        yield _call(shard, "backward", "_reduce_scatter_base", size, blocks=False)
        if "replica" in groups:
            yield Op("wait", "backward", 0.0, shard)
            yield _call(groups["replica"], "backward", "all_reduce", (1_400_000,), blocks=False)
    yield from (Op("wait", "reduce", 0.0, groups[r]) for r in ("shard", "replica") if r in groups)
    yield _call(world, "optimizer", "all_reduce", (1,), blocks=True)
    yield Op("sync", "optimizer", 0.0)
    yield Op("compute", "optimizer", 0.0)


def _pipelined(layout: Layout, rank: int) -> Iterator[Op]:
    groups = layout.groups_of[rank]
    stage = layout.place(rank)[3]
    yield Op("host", "data", 0.004)
    for _ in range(MICROBATCHES):
        if stage > 0:
            yield Op("recv", "forward", 0.001, groups["pipe"], "recv", HIDDEN, stage - 1)
        yield from _layers(groups, "forward")
        if stage < layout.pp - 1:
            yield Op("send", "forward", 0.001, groups["pipe"], "send", HIDDEN, stage + 1)
    for _ in range(MICROBATCHES):
        if stage < layout.pp - 1:
            yield Op("recv", "backward", 0.001, groups["pipe"], "recv", HIDDEN, stage + 1)
        yield from _layers(groups, "backward")
        if stage > 0:
            yield Op("send", "backward", 0.001, groups["pipe"], "send", HIDDEN, stage - 1)
    for bucket in range(BUCKETS):
        size = (25_000_000 + bucket,)
        yield _call(groups["data"], "reduce", "_reduce_scatter_base", size, blocks=False)
    yield Op("wait", "reduce", 0.0, groups["data"])
    yield _call(groups["world"], "optimizer", "all_reduce", (1,), blocks=True)
    yield Op("sync", "optimizer", 0.0)
    yield Op("compute", "optimizer", 0.0)
    yield _call(groups["data"], "optimizer", "_all_gather_base", (25_000_000,), blocks=True)


def _layers(groups: dict[str, Group], phase: Phase) -> Iterator[Op]:
    for _ in range(LAYERS - 1):
        yield Op("compute", phase, 0.0)
        yield _call(groups["tensor"], phase, "all_reduce", HIDDEN, blocks=True)
        if "context" in groups:
            yield Op("ring", phase, 0.001, groups["context"], "ring", (1024, 1, 1024))
        if "expert" in groups:
            yield _call(groups["expert"], phase, "all_to_all", (2048, 5120), blocks=True)
            yield Op("compute", phase, 0.0)
            yield _call(groups["expert"], phase, "all_to_all", (2048, 5120), blocks=True)
