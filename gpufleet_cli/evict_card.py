"""What is shown of an eviction: one record that `operate` fills and `render` lays out. None means not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["done", "already", "refused", "failed", "unknown"]
"""Torn down; nothing to do; a guard, a budget or somebody's change said no; not done; the server was lost, and it may
have been done."""
Step = Literal[
    "starts-again", "finishes", "waits-for-checkpoint", "by-its-own-means", "looks-again"
]
"""What a command that is offered does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictCard:
    """How it came out. `why` is the guard's reason or what was done, `gpu_hours` the price of what was asked for.

    `means` is how its controller takes the gang down. `evicted` are the pods that were told to go, by us or by their
    controller, `standing` those that still run. `lines` is what a person reads where it was done.
    """

    outcome: Outcome
    why: str
    code: int
    node: str | None = None
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    means: str | None = None
    state: str | None = None
    state_why: str = ""
    gpu_hours: float | None = None
    evicted: tuple[str, ...] = ()
    standing: tuple[str, ...] = ()
    bundle: str | None = None
    attempt_token: str | None = None
    commands: tuple[tuple[Step, str], ...] = ()
    dry_run: bool = False
    lines: tuple[str, ...] = ()
