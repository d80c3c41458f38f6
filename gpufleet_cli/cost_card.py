"""What `gpufleet cost` answers: figures with their units, a curve, and the formula's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal[
    "s", "GPU-h", "GPU-h/h", "per hour", "per day", "share", "nodes", "x", "action", "GPU-h range"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number of the answer. `name` is its key in JSON, `words` what a person reads; a value that is
    None has its reason in `why_none`."""

    name: str
    words: str
    value: float | str | tuple[float, float | None] | None
    unit: Unit
    why_none: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One row of a curve: where (seconds if it is a number), how much, and whether the answer speaks of it."""

    label: str | float
    value: float
    is_chosen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """How one number goes with another; drawn as bars."""

    title: str
    unit: Unit
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCard:
    """The answer to one topic. `notes` are whole sentences, the ones that matter first."""

    title: str
    figures: tuple[Figure, ...]
    formula: str
    notes: tuple[str, ...] = ()
    curve: Curve | None = None
