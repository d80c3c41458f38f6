"""What `drain-check` says of a node, and what there is in its place: small records that are shown.

None means not known. GPU-hours are of the whole gang, since all of it stops with one of its pods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpufleet_cli.node_card import GangSpares, Missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What the end of a gang costs now. `*_by` say where a number comes from."""

    since_checkpoint_s: float | None
    since_checkpoint_by: str
    restart_s: float
    restart_by: str
    recompute_gpu_hours: float | None
    restart_gpu_hours: float

    @property
    def gpu_hours(self) -> float | None:
        """All of it; None where the work since the checkpoint is not known."""
        if self.recompute_gpu_hours is None:
            return None
        return self.recompute_gpu_hours + self.restart_gpu_hours


@dataclass(frozen=True, slots=True, kw_only=True)
class GangAtStake:
    """A gang that a drain of the node would kill. `pods` are those on the node that would be evicted."""

    namespace: str
    kind: str
    name: str
    size: int | None
    pods: tuple[str, ...]
    gpus: int
    gpus_here: int
    state: Literal["running", "starting"]
    since_ns: int | None
    price: Price


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAtStake:
    """Pods that hold GPUs of the node, or did, and are no running gang; `why` says what they are."""

    namespace: str
    kind: str
    name: str
    pods: tuple[str, ...]
    gpus: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainCard:
    """One node. `safe` None: it cannot be told, and `why` says why."""

    node: str
    safe: bool | None
    why: str
    read_at_ns: int
    gangs: tuple[GangAtStake, ...] = ()
    others: tuple[NotAtStake, ...] = ()
    spares: tuple[GangSpares, ...] | None = None
    missing: tuple[Missing, ...] = ()
