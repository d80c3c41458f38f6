"""What is shown of cordons and of the nodes that wait: small records that `operate` fills and `render` lays out.

None means not known. Times are Unix nanoseconds by the server's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpufleet_cli.node_card import HeldGang, Missing

ItemState = Literal["pass", "fail", "unknown"]
GATE = ("reset", "xid-free", "diagnostics", "healthy", "gpus")
"""What must have passed before a node goes back to service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateItem:
    """One thing that must have passed. `stated`: what a person said in place of what could not be seen."""

    name: str
    state: ItemState
    why: str
    stated: str | None = None

    @property
    def is_met(self) -> bool:
        return self.state == "pass" or bool(self.stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonAnswer:
    """How it came out for one node. `answer` is a word of the manual, `code` the exit status by itself.

    `holds` are the gangs on it, `then` the commands that come next, `instead` what serves in place of what
    was refused.
    """

    node: str
    answer: str
    why: str
    code: int = 0
    sets_off: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    instead: str | None = None
    owner: str | None = None
    dry_run: bool = False
    gate: tuple[GateItem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """One node that carries our annotations. `is_cordoned` False: somebody uncordoned it by hand.

    `other_owner` is who cordoned it since, where the cordon is ours no more. `gangs` None: its pods could
    not be read.
    """

    node: str
    by: str
    at_ns: int | None
    reason: str
    incident: str | None
    is_cordoned: bool
    other_owner: str | None
    ready: str | None
    gpus: int | None
    gangs: tuple[HeldGang, ...] | None

    @property
    def held(self) -> tuple[HeldGang, ...]:
        return tuple(gang for gang in self.gangs or () if not gang.is_over)

    @property
    def idle_gpus(self) -> int | None:
        """GPUs that do nothing because it waits: each hour of it costs so many GPU-hours."""
        if not self.is_cordoned:
            return 0
        if self.gpus is None or self.gangs is None:
            return None
        return max(0, self.gpus - sum(gang.gpus for gang in self.held))


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """All nodes that wait for replacement, the most urgent first."""

    context: str | None
    server: str
    read_at_ns: int
    entries: tuple[QueueEntry, ...]
    missing: tuple[Missing, ...]
