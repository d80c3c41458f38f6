"""What a guard says: do it, there is nothing to do, or no, with the reason and the price.

Guards are pure: they read facts that somebody else has just read, and know neither cluster nor clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """`why` is one sentence for a person. `gpu_hours` is what the action that was asked for would cost,
    None where nobody can tell; `instead` is the command or the means that serves in its place."""

    answer: Literal["go", "done", "no"]
    why: str
    gpu_hours: float | None = None
    instead: str | None = None

    @property
    def goes(self) -> bool:
        return self.answer == "go"


def go(why: str, *, gpu_hours: float | None = None) -> Ruling:
    """The action may be done."""
    return Ruling(answer="go", why=why, gpu_hours=gpu_hours)


def done(why: str) -> Ruling:
    """What was asked for is so already: nothing is written, and that is no failure."""
    return Ruling(answer="done", why=why)


def no(why: str, *, gpu_hours: float | None = None, instead: str | None = None) -> Ruling:
    """The action is refused."""
    return Ruling(answer="no", why=why, gpu_hours=gpu_hours, instead=instead)
