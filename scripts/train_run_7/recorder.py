"""The Flight Recorder dumps: pickles of version 2.10, one for each rank that lived to write it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from train_run_7.world import (
    CULPRIT,
    FIRST_STEP,
    GPUS,
    LAST_STEP,
    LAST_STEP_NS,
    MS,
    OPS_BEFORE,
    RING,
    TIMEOUT_MS,
    WORLD,
    Node,
    S,
    enqueued_at,
    step_end,
)


class Pickler:
    """Protocol 2 with the few opcodes that torch's own writer uses; equal strings are shared.

    Not `pickle.dumps`, whose bytes depend on which of two equal objects are one object.
    """

    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self.memo: dict[str, int] = {}

    def put(self, key: str) -> None:
        slot = self.memo[key] = len(self.memo)
        self.out += b"q" + bytes([slot]) if slot < 256 else b"r" + slot.to_bytes(4, "little")

    def shared(self, key: str) -> bool:
        slot = self.memo.get(key)
        if slot is not None:
            self.out += b"h" + bytes([slot]) if slot < 256 else b"j" + slot.to_bytes(4, "little")
        return slot is not None

    def integer(self, value: int) -> None:
        if 0 <= value < 1 << 8:
            self.out += b"K" + bytes([value])
        elif 0 <= value < 1 << 16:
            self.out += b"M" + value.to_bytes(2, "little")
        elif -(1 << 31) <= value < 1 << 31:
            self.out += b"J" + value.to_bytes(4, "little", signed=True)
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self.out += b"\x8a" + bytes([len(data)]) + data

    def save(self, value: object) -> None:
        match value:
            case None | True | False:
                self.out += {None: b"N", True: b"\x88", False: b"\x89"}[value]
            case int():
                self.integer(value)
            case str():
                if not self.shared("s" + value):
                    data = value.encode()
                    self.out += b"X" + len(data).to_bytes(4, "little") + data
                    self.put("s" + value)
            case (first, second) if isinstance(value, tuple):
                self.save(first)
                self.save(second)
                self.out += b"\x86"
            case list():
                self.sequence(value)
            case dict():
                self.out += b"}("
                for key, item in value.items():
                    self.save(key)
                    self.save(item)
                self.out += b"u"
            case _:
                raise TypeError(type(value))

    def sequence(self, value: list[Any]) -> None:
        key = (
            "l" + json.dumps(value)
            if value and isinstance(value[0], dict) and "line" in value[0]
            else ""
        )
        if key and self.shared(key):
            return
        self.out += b"]"
        if key:
            self.put(key)
        self.out += b"("
        for item in value:
            self.save(item)
        self.out += b"e"


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One recorded operation of every step: where in the step, in which group, of what size."""

    after_ns: int
    group: int
    name: str
    numel_in: int
    numel_out: int
    dtype: str
    caller: tuple[str, str, int]


def program() -> tuple[Op, ...]:
    shard, full = 11_796_480, 94_371_840
    forward = ("forward", "/opt/train/torchtitan/models/llama3/model.py", 431)
    backward = ("post_backward", "/opt/train/torchtitan/distributed/fsdp.py", 212)
    metrics = ("train_step", "/opt/train/torchtitan/train.py", 497)
    clip = ("clip_grad_norm_", "/opt/train/torchtitan/distributed/utils.py", 391)
    table = (
        (3, 1, "_all_gather_base", shard, full, "BFloat16", forward),
        (41, 1, "_all_gather_base", shard, full, "BFloat16", forward),
        (88, 0, "all_reduce", 1, 1, "Long", metrics),
        (102, 1, "_all_gather_base", shard, full, "BFloat16", backward),
        (140, 1, "_reduce_scatter_base", full, shard, "Float", backward),
        (177, 1, "_reduce_scatter_base", full, shard, "Float", backward),
        (196, 2, "all_reduce", shard, shard, "Float", backward),
        (211, 0, "all_reduce", 1, 1, "Float", metrics),
        (219, 0, "all_reduce", 1, 1, "Float", metrics),
        (239, 0, "all_reduce", 1, 1, "Float", clip),
    )
    return tuple(
        Op(after_ns=at * MS, group=g, name=n, numel_in=i, numel_out=o, dtype=d, caller=c)
        for at, g, n, i, o, d, c in table
    )


def groups_of(rank: int) -> tuple[dict[str, str], ...]:
    shard = list(range(rank - rank % GPUS, rank - rank % GPUS + GPUS))
    replicas = list(range(rank % GPUS, WORLD, GPUS))
    return (
        {"name": "0", "desc": "default_pg", "ranks": str(list(range(WORLD)))},
        {"name": str(9 + rank // GPUS), "desc": "mesh_dp_shard", "ranks": str(shard)},
        {"name": str(1 + rank % GPUS), "desc": "mesh_dp_replicate", "ranks": str(replicas)},
    )


def frames(op: Op) -> list[dict[str, Any]]:
    call = op.name.strip("_").removesuffix("_base")
    library = "/opt/venv/lib/python3.12/site-packages/torch/distributed"
    rows = (
        (call, f"{library}/distributed_c10d.py", 2930),
        ("wrapper", f"{library}/c10d_logger.py", 81),
        op.caller,
        ("train", "/opt/train/torchtitan/train.py", 566),
    )
    return [{"name": name, "filename": path, "line": line} for name, path, line in rows]


def entries(node: Node, rank: int) -> Iterator[dict[str, Any]]:
    """The last ops of one witness; all but the last one were done when it dumped."""
    ops, groups = program(), groups_of(rank)
    steps = LAST_STEP + 1 - FIRST_STEP
    counts = [sum(op.group == g for op in ops) for g in range(3)]
    seqs = [steps * counts[0] + OPS_BEFORE, steps * counts[1], steps * counts[2]]
    recent = [(step, op) for step in range(LAST_STEP - 8, LAST_STEP + 1) for op in ops][-RING:]
    for _, op in recent:
        seqs[op.group] -= 1
    done = 0
    for index, (step, op) in enumerate(recent):
        seqs[op.group] += 1
        open_op = index == RING - 1
        created = step_end(step) + op.after_ns + node.within(0, 3 * MS)
        # The watchdog polls ten times a second and goes through its list in order.
        done = max(done, created + node.within(9 * MS, 109 * MS) + node.offset_ns)
        if open_op:
            created = enqueued_at(rank)
        group = groups[op.group]
        yield {
            "frames": frames(op),
            "record_id": steps * len(ops) + OPS_BEFORE - RING + index,
            "pg_id": op.group,
            "process_group": (group["name"], group["desc"]),
            "thread_name": "pt_autograd_0" if op.caller[0] == "post_backward" else "python3",
            "thread_id": str(140_000_000_000_000 + rank),
            "collective_seq_id": seqs[op.group],
            "p2p_seq_id": 0,
            "op_id": seqs[op.group],
            "profiling_name": f"nccl:{op.name}",
            "time_created_ns": created + node.offset_ns,
            "input_sizes": [[op.numel_in]],
            "input_dtypes": [op.dtype],
            "output_sizes": [[op.numel_out]],
            "output_dtypes": [op.dtype],
            "state": "scheduled" if open_op else "completed",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None if open_op else done,
            "retired": not open_op,
            "timeout_ms": TIMEOUT_MS,
            "is_p2p": False,
        }


def dump(node: Node, rank: int) -> bytes:
    recorded = list(entries(node, rank))
    last = {e["pg_id"]: e["collective_seq_id"] for e in recorded}
    names = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
    pickler = Pickler()
    pickler.save(
        {
            "version": "2.10",
            "comm_lib_version": "2.27.5",
            "pg_config": {group["name"]: group for group in groups_of(rank)},
            "pg_status": {
                str(g): dict(zip(names, (last[g], -1, last[g] - (g == 0)), strict=True))
                for g in range(3)
            },
            "entries": recorded,
        }
    )
    return bytes(pickler.out + b".")


def dumps_tar(fleet: list[Node]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for node in fleet:
            for rank in node.ranks:
                if rank == CULPRIT:
                    continue
                data = dump(node, rank)
                member = tarfile.TarInfo(f"nccl_trace_rank_{rank}")
                member.size, member.mode = len(data), 0o644
                member.mtime = (LAST_STEP_NS + 602 * S + node.offset_ns) // S
                tar.addfile(member, io.BytesIO(data))
    return out.getvalue()
