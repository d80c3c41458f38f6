"""What is true of a made incident, for those who judge an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpufleet_cli.operate.simulate.story import Class
from gpufleet_cli.verdict import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """`culprits` are the guilty ranks, empty where nobody is to blame; with `by_node` a verdict that
    names exactly `nodes` and leaves the rank open is right too. `may_name`: ranks that may be named
    although nobody needs to be (both sides of a mismatch that nothing settles, a pod that never came).

    `told` is the smallest set of ranks that the files leave, by the simulator's own record (None where
    nobody is to blame), and `decided` says that it is exactly the guilty. Where it is not, `settle` is
    what would. `side`: where the cause lies.
    """

    cls: Class
    seed: int
    size: int
    lost: float
    kinds: frozenset[Kind]
    culprits: frozenset[int]
    nodes: frozenset[str]
    by_node: bool
    may_name: frozenset[int]
    told: frozenset[int] | None
    decided: bool
    settle: str
    side: Literal["software", "hardware", "neither"]
    stopped: bool
    as_of_ns: int
    node_of: tuple[str, ...]
    summary: str
