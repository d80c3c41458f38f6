"""Who is where and who talks to whom: nodes, ranks and process groups of a training job.

Ranks are laid out in Megatron's order: tensor fastest, then context, then data (experts are cut out
of data), then pipeline. FSDP and HSDP use the data dimension alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

Kind = Literal["fsdp", "hsdp", "megatron", "experts", "context"]
KINDS: tuple[Kind, ...] = ("fsdp", "hsdp", "megatron", "experts", "context")

# PCI bus numbers of the eight GPUs of common boards.
BOARDS = (
    ("1b", "43", "52", "61", "9d", "c3", "d1", "df"),
    ("07", "0f", "47", "4e", "87", "90", "b7", "bd"),
    ("04", "23", "45", "64", "84", "a3", "c5", "e4"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group. `role` is what the programs call it; `members` are global ranks."""

    number: int
    role: str
    desc: str
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A job on its nodes. `groups_of[rank]` maps a role to the rank's group of it."""

    kind: Kind
    size: int
    tp: int
    cp: int
    dp: int
    pp: int
    gpus_per_node: int
    nodes: tuple[str, ...]
    pods: tuple[str, ...]
    board: tuple[str, ...]
    groups: tuple[Group, ...]
    groups_of: tuple[dict[str, Group], ...] = field(repr=False)

    def node_index(self, rank: int) -> int:
        return rank // self.gpus_per_node

    def node_of(self, rank: int) -> str:
        return self.nodes[self.node_index(rank)]

    def pod_of(self, rank: int) -> str:
        return self.pods[self.node_index(rank)]

    def local_rank(self, rank: int) -> int:
        return rank % self.gpus_per_node

    def ranks_of(self, node_index: int) -> range:
        first = node_index * self.gpus_per_node
        return range(first, min(first + self.gpus_per_node, self.size))

    def bus(self, rank: int) -> str:
        """The PCI bus id as NVML prints it."""
        return f"0000:{self.board[self.local_rank(rank)]}:00.0"

    def place(self, rank: int) -> tuple[int, int, int, int]:
        """(tp, cp, dp, pp) of a rank."""
        tp, rest = rank % self.tp, rank // self.tp
        cp, rest = rest % self.cp, rest // self.cp
        return tp, cp, rest % self.dp, rest // self.dp


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    tp: int = 1
    cp: int = 1
    pp: int = 1
    expert: int = 1


def _shape(kind: Kind, size: int, gpus_per_node: int, rng: Random) -> _Shape:
    tp = min(rng.choice((2, 4)), gpus_per_node)
    match kind:
        case "fsdp" | "hsdp":
            return _Shape()
        case "megatron":
            return _Shape(tp=tp, pp=_fits(rng.choice((2, 4)), size // tp))
        case "experts":
            pp = _fits(2, size // 2)
            return _Shape(tp=2, pp=pp, expert=_fits(rng.choice((4, 8)), size // (2 * pp)))
        case "context":
            return _Shape(tp=2, cp=_fits(rng.choice((2, 4)), size // 2))


def _fits(wanted: int, room: int) -> int:
    while wanted > 1 and room % wanted:
        wanted //= 2
    return max(1, wanted)


def make(rng: Random, *, size: int, kind: Kind | None = None) -> Layout:
    """A layout of `size` ranks (a power of two from 8)."""
    chosen: Kind = rng.choice(KINDS) if kind is None else kind
    gpus_per_node = 8 if size > 16 else 4
    shape = _shape(chosen, size, gpus_per_node, rng)
    dp = size // (shape.tp * shape.cp * shape.pp)
    nodes, pods = _names(rng, -(-size // gpus_per_node))
    bare = Layout(
        kind=chosen,
        size=size,
        tp=shape.tp,
        cp=shape.cp,
        dp=dp,
        pp=shape.pp,
        gpus_per_node=gpus_per_node,
        nodes=nodes,
        pods=pods,
        board=rng.choice(BOARDS),
        groups=(),
        groups_of=(),
    )
    groups = _groups(bare, shape.expert)
    of: tuple[dict[str, Group], ...] = tuple({} for _ in range(size))
    for group in groups:
        for rank in group.members:
            of[rank][group.role] = group
    return replace(bare, groups=groups, groups_of=of)


def _names(rng: Random, count: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    stem = rng.choice(("gpu-node-{:04d}", "h100-{:03d}", "dgx-r{:02d}", "worker-{:04d}.cluster"))
    numbers = sorted(rng.sample(range(1, 10 * count + 90), count))
    job = rng.choice(("llm-pretrain", "moe-30b", "train-run-12", "sft-base"))
    form = rng.choice(("{}-worker-{}", "{}-{}"))
    return tuple(stem.format(n) for n in numbers), tuple(form.format(job, i) for i in range(count))


def _groups(layout: Layout, expert: int) -> tuple[Group, ...]:
    """All groups in the order in which a framework makes them: the world, then by dimension."""
    found: list[Group] = []

    def add(role: str, desc: str, key: Callable[[int], object]) -> None:
        members: dict[object, list[int]] = {}
        for rank in range(layout.size):
            members.setdefault(key(rank), []).append(rank)
        for ranks in members.values():
            found.append(Group(number=len(found), role=role, desc=desc, members=tuple(ranks)))

    add("world", "default_pg", lambda _rank: 0)
    if layout.kind == "fsdp":
        add("shard", "mesh_fsdp", lambda _rank: 0)
        return tuple(found)
    if layout.kind == "hsdp":
        add("shard", "mesh_shard", layout.node_index)
        add("replica", "mesh_replicate", layout.local_rank)
        return tuple(found)
    place = layout.place
    add("data", "DATA_PARALLEL_GROUP", lambda r: (place(r)[0], place(r)[1], place(r)[3]))
    if layout.cp > 1:
        add("context", "CONTEXT_PARALLEL_GROUP", lambda r: (place(r)[0], *place(r)[2:]))
    add("tensor", "TENSOR_MODEL_PARALLEL_GROUP", lambda r: place(r)[1:])
    if layout.pp > 1:
        add("pipe", "PIPELINE_MODEL_PARALLEL_GROUP", lambda r: place(r)[:3])
    if layout.kind == "experts":
        add(
            "expert",
            "EXPERT_MODEL_PARALLEL_GROUP",
            lambda r: (place(r)[0], place(r)[2] // expert, place(r)[3]),
        )
    return tuple(found)
