"""What a run of `label-gangs` did: small records that `operate` fills and `render` lays out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpufleet_cli.node_card import Missing

Came = Literal["done", "not-needed", "gone", "overtaken", "refused", "unknown"]
"""How a change came out. `not-needed`: somebody had made it so; `gone`: the node is; `overtaken`: others
wrote each time; `refused`: the server did not let us; `unknown`: it gave no answer, or was not asked."""


NOT_ASKED = "not asked any more"
"""Why nothing is known of a node, after the server had ended the run for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """One node that was not marked as it should be. `job`: NAMESPACE/KIND/NAME of the gang."""

    node: str
    action: Literal["mark", "change", "clear"]
    job: str
    came: Came
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRun:
    """`gangs` and the `nodes` that hold them; `unchanged`: marked as they should be, or rightly not;
    `left`: marked for gangs that this run was not about; `others`: GPU workloads that are no gang."""

    gangs: int
    nodes: int
    others: int
    changes: tuple[NodeChange, ...]
    unchanged: int
    left: int
    dry_run: bool
    missing: tuple[Missing, ...]

    def count(self, action: str) -> int:
        """Changes of this kind that were made."""
        return sum(one.action == action and one.came == "done" for one in self.changes)

    @property
    def not_made(self) -> tuple[NodeChange, ...]:
        return tuple(one for one in self.changes if one.came in ("overtaken", "refused", "unknown"))

    @property
    def changes_made(self) -> bool:
        return any(one.came in ("done", "not-needed") for one in self.changes)

    @property
    def refusal(self) -> NodeChange | None:
        """The one that tells most about why the server did not let us, or was not there."""
        found = [one for one in self.not_made if one.came != "overtaken"]
        return min(
            found, key=lambda one: (one.came != "refused", one.why == NOT_ASKED), default=None
        )
