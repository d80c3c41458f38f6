"""What is shown of one node, and of one gang: small records that `live` fills and `render` lays out.

None means not known. Times are Unix nanoseconds, ages seconds at `read_at_ns` by the server's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Mark = Literal["bad", "third-party", "fine"]
PodPhase = Literal["running", "pending", "terminating", "failed", "exited"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What could not be had, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCondition:
    """One condition. `third-party`: no manual at hand describes its type; shown, never scored alone."""

    kind: str
    status: str
    reason: str
    message: str
    since_ns: int | None
    mark: Mark
    source: str | None = None
    words: str | None = None
    repair_at_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTaint:
    """`key=value:effect` as kubectl writes it, and what it means where it is known."""

    shown: str
    words: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCordon:
    """Who made it unschedulable, as far as the object tells; `told_by` is what in it says so."""

    by: str | None
    told_by: str | None
    at_ns: int | None = None
    reason: str | None = None
    incident: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPod:
    """One pod of a gang on this node; `ranks` is the first and the last one."""

    name: str
    phase: PodPhase
    gpus: int
    ranks: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGang:
    """A gang with pods on this node. `size` counts the pods that must run together.

    `ranks_by` says how the ranks of its pods are known; None where nothing but the logs can tell.
    """

    kind: str
    name: str
    namespace: str
    size: int | None
    pods: tuple[HeldPod, ...]
    ranks_by: str | None = None

    @property
    def gpus(self) -> int:
        return sum(pod.gpus for pod in self.pods)

    @property
    def is_over(self) -> bool:
        """No pod of it holds the node any more."""
        return all(pod.phase in ("failed", "exited") for pod in self.pods)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """GPUs as the device plugin counts them; `lost`: there by capacity or label, and not allocatable."""

    product: str | None
    capacity: int | None
    allocatable: int | None
    lost: int | None
    held: int
    driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class XidSeen:
    """One XID of this node in the metrics, and the pod that held the GPU then."""

    at_ns: int
    xid: int
    gpu_index: int | None = None
    pci_bus_id: str | None = None
    pod: str | None = None
    namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastIncident:
    """An incident of the history that named the node; `is_node_fault`: its cause lay in the node."""

    at_ns: int | None
    kind: str
    action: str
    is_node_fault: bool
    job: str | None = None
    namespace: str | None = None
    xids: tuple[int, ...] = ()


class FaultRate(NamedTuple):
    """Faults that a healthy node has in a day, and who said so; `history`: as many as were seen."""

    a_node_day: float
    source: Literal["flag", "file", "history", "default"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatTest:
    """Whether a node fails more often than chance. `chance` is that of a healthy node to show as many
    faults in so many days; `innocents` how many of the fleet's `nodes` are expected to."""

    faults: int
    days: int
    rate: FaultRate
    chance: float
    nodes: int | None
    innocents: float | None
    is_flagged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Spares:
    """Whether a gang places once a node is out. `places` None: it cannot be told, and `why` says why.

    `cause` is the one word of a no. `nodes` are a few of the `spare_nodes` that have room and neither
    hold a pod of the gang nor held one of its newest attempt.
    """

    places: bool | None
    why: str
    cause: str | None = None
    nodes: tuple[str, ...] = ()
    spare_nodes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSpares:
    """The answer for one gang."""

    namespace: str
    kind: str
    name: str
    spares: Spares


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCard:
    """One node in one screen. `xids` None: no metrics were asked; `incidents` None: no history is kept;
    `spares` None: nobody asked."""

    name: str
    context: str | None
    server: str | None
    read_at_ns: int
    ready: str | None
    ready_since_ns: int | None
    renewed_ns: int | None
    lease_age_s: float | None
    is_silent: bool | None
    cordon: NodeCordon | None
    conditions: tuple[NodeCondition, ...]
    taints: tuple[NodeTaint, ...]
    gpus: NodeGpus
    gangs: tuple[HeldGang, ...]
    other_pods: int | None
    uid: str | None
    created_ns: int | None
    boot_id: str | None
    provider_id: str | None
    place: str | None
    notes: tuple[str, ...]
    missing: tuple[Missing, ...]
    xids: tuple[XidSeen, ...] | None = None
    incidents: tuple[PastIncident, ...] | None = None
    repeat: RepeatTest | None = None
    spares: tuple[GangSpares, ...] | None = None

    @property
    def bad(self) -> tuple[NodeCondition, ...]:
        return tuple(one for one in self.conditions if one.mark == "bad")

    @property
    def is_ill(self) -> bool:
        """Something that its own product calls ill, a lost GPU, or silence."""
        return bool(self.bad or self.gpus.lost or self.is_silent)
