"""What `gpufleet` alone shows of each gang: small records that `live` fills and `render` lays out.

None means not known. Times are Unix nanoseconds by the server's clock where it told it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpufleet_cli.node_card import Missing

GangState = Literal["failed", "silent", "pending", "running", "suspended"]
"""`silent`: it runs, and the pods that were asked wrote nothing for minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedNode:
    """A node that is ill, or only cordoned, and that in a few words."""

    name: str
    what: str
    is_ill: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GangCard:
    """One gang. `why` says what speaks against it; `size` is how many pods must run together.

    `last_write_ns` is the newest line of the few pods that were asked.
    """

    kind: str
    name: str
    namespace: str
    state: GangState
    why: str
    since_ns: int | None
    ranks: int | None
    gpus: int
    pods: int
    size: int | None
    attempts: int
    last_write_ns: int | None
    nodes: int
    marked: tuple[MarkedNode, ...]

    @property
    def ill(self) -> tuple[MarkedNode, ...]:
        return tuple(one for one in self.marked if one.is_ill)

    @property
    def is_short(self) -> bool:
        """Fewer pods than must run together, as far as that is known."""
        return self.size is not None and self.pods < self.size

    @property
    def looks_ill(self) -> bool:
        """Somebody should look at it."""
        return self.state in ("failed", "silent", "pending") or bool(self.ill) or bool(self.why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gangs:
    """All gangs of a cluster or namespace, worst first; `spare` are marked nodes that hold none of them.

    `others` counts workloads with GPUs that are no training gang, `old` gangs that failed long ago.
    """

    context: str | None
    server: str
    namespace: str | None
    read_at_ns: int
    gangs: tuple[GangCard, ...]
    spare: tuple[MarkedNode, ...]
    others: int
    old: int
    missing: tuple[Missing, ...]
