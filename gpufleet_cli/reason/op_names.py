"""Names of collectives: the recorder's profiling names as the watchdog's OpType prints them.

The two differ for the same operation (`nccl:_all_gather_base` and `_ALLGATHER_BASE`), and one report
should speak one language. OpType names: c10d's `opTypeToString`.
"""

from __future__ import annotations

OP_TYPES = {
    "all_reduce": "ALLREDUCE",
    "allreduce": "ALLREDUCE",
    "all_reduce_barrier": "ALLREDUCE",
    "allreduce_coalesced": "ALLREDUCE_COALESCED",
    "all_gather": "ALLGATHER",
    "_all_gather_base": "_ALLGATHER_BASE",
    "allgather_coalesced": "ALLGATHER_COALESCED",
    "all_gather_into_tensor_coalesced": "ALLGATHER_COALESCED",
    "reduce_scatter": "REDUCE_SCATTER",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE",
    "reduce_scatter_tensor_coalesced": "REDUCE_SCATTER_COALESCED",
    "all_to_all": "ALLTOALL",
    "alltoall": "ALLTOALL",
    "alltoall_base": "ALLTOALL_BASE",
    "all_to_all_single": "ALLTOALL_BASE",
    "broadcast": "BROADCAST",
    "reduce": "REDUCE",
    "gather": "GATHER",
    "scatter": "SCATTER",
    "barrier": "BARRIER",
    "coalesced": "COALESCED",
}


def op_type(name: str | None) -> str | None:
    """The OpType of a profiling name; what is unknown stays as it is.

    >>> op_type("all_reduce"), op_type("nccl:_all_gather_base"), op_type("ALLREDUCE"), op_type("send 0->1")
    ('ALLREDUCE', '_ALLGATHER_BASE', 'ALLREDUCE', 'SEND')
    """
    if name is None:
        return None
    bare = name.rsplit(":", 1)[-1]
    if bare.startswith(("send", "recv")):
        return bare[:4].upper()
    return OP_TYPES.get(bare.lower(), bare)
