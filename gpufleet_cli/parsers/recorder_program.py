"""The end of a recorder's ring in a few kilobytes: which operations, in which order.

Program comparison and role replay need the order of a rank's last operations over all its groups,
but only for the few ranks in question. So a dump carries it packed: a table of the kinds of operation that
occur (some thirty), and for each entry the row of its kind and its sequence number.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import msgspec

_FULL_SYNC = re.compile(r"_?(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier)", re.I)


@lru_cache(maxsize=1024)
def is_full_sync(op: str) -> bool:
    """Whether no member can complete the operation before all have entered it. Rooted ones
    (broadcast, reduce, gather, scatter) and sends prove nothing (facts: localisation 1).

    >>> is_full_sync("_reduce_scatter_base"), is_full_sync("ALLGATHER_coalesced")
    (True, True)
    >>> is_full_sync("broadcast"), is_full_sync("reduce"), is_full_sync("coalesced")
    (False, False, False)
    """
    return _FULL_SYNC.match(op) is not None


@dataclass(frozen=True, slots=True)
class OpKind:
    """One kind of operation. `group` is the place in `RankDump.groups`; `peers` as in OpenOp."""

    group: int
    op: str
    is_p2p: bool
    sizes: str
    dtypes: str
    peers: tuple[tuple[int, bool], ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Operation i is `kinds[order[i]]` with number `seqs[i]`, oldest first."""

    kinds: tuple[OpKind, ...]
    order: Sequence[int]
    seqs: Sequence[int]


_Packed = tuple[list[tuple[int, str, bool, str, str, list[tuple[int, bool]]]], bytes, bytes]
_decoder = msgspec.msgpack.Decoder(_Packed)


def pack(kinds: Sequence[OpKind], order: Sequence[int], seqs: Sequence[int]) -> bytes:
    """The program as bytes."""
    rows = [(k.group, k.op, k.is_p2p, k.sizes, k.dtypes, k.peers) for k in kinds]
    packed = (rows, array("H", order).tobytes(), array("q", seqs).tobytes())
    return msgspec.msgpack.encode(packed)


def unpack(packed: bytes) -> Program:
    """The program again; an empty one from no bytes.

    >>> kind = OpKind(0, "all_reduce", False, "64", "Float", ())
    >>> unpack(pack([kind], [0, 0], [7, 8])).seqs[-1]
    8
    """
    if not packed:
        return Program((), (), ())
    rows, order_bytes, seq_bytes = _decoder.decode(packed)
    order, seqs = array("H"), array("q")
    order.frombytes(order_bytes)
    seqs.frombytes(seq_bytes)
    kinds = tuple(OpKind(*row[:5], tuple(row[5])) for row in rows)
    return Program(kinds, order, seqs)


def operations(program: Program) -> list[tuple[OpKind, int]]:
    """(kind, number) in program order, each batch as one: its parts never complete by themselves and
    stand before the `coalesced` entry that ends it, which takes their peers.

    >>> part = OpKind(0, "send", True, "64", "Float", ((1, True),))
    >>> end = OpKind(0, "coalesced", True, "64", "Float", ())
    >>> [(kind.op, kind.peers) for kind, _ in operations(Program((part, end), (0, 1), (7, 7)))]
    [('coalesced', ((1, True),))]
    """
    found: list[tuple[OpKind, int]] = []
    ends: dict[tuple[OpKind, tuple[tuple[int, bool], ...]], OpKind] = {}
    for row, seq in zip(program.order, program.seqs, strict=True):
        kind = program.kinds[row]
        if kind.op.endswith("coalesced"):
            peers: list[tuple[int, bool]] = []
            while found and _is_part(*found[-1], kind, seq):
                peers[:0] = found.pop()[0].peers
            key = (kind, tuple(peers))
            if key not in ends:
                ends[key] = replace(kind, peers=tuple(dict.fromkeys(peers)))
            kind = ends[key]
        found.append((kind, seq))
    return found


def _is_part(part: OpKind, number: int, end: OpKind, seq: int) -> bool:
    same = (part.group, number, part.is_p2p) == (end.group, seq, end.is_p2p)
    return same and not part.op.endswith("coalesced")
