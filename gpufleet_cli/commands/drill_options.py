"""Which incident the options of a drill name. What they leave open is drawn."""

from __future__ import annotations

import re
from pathlib import Path
from random import SystemRandom

from gpufleet_cli.errors import UsageError
from gpufleet_cli.operate import drill as drills
from gpufleet_cli.operate.simulate.drill_id import (
    DEFAULT_SIZE,
    LOST_PARTS,
    MOST_SEED,
    SIZES,
    Drill,
    decode,
)
from gpufleet_cli.operate.simulate.story import Class

DRAWN_SEEDS = 100_000
_SHARE = re.compile(r"[01](?:\.\d{1,3})?|\.\d{1,3}", re.ASCII)
_SEED = re.compile(r"\d{1,10}", re.ASCII)


def check(*wrong: tuple[bool, str]) -> None:
    """The first of these that is wrong is told."""
    for is_wrong, message in wrong:
        if is_wrong:
            raise UsageError(message, hint="see gpufleet drill --help")


def wanted(
    cls: str | None,
    seed: str | None,
    ranks: int | None,
    lost: str | None,
    drill_id: str | None,
    score: Path | None,
) -> Drill:
    """The incident that the options name; what they leave open is drawn."""
    is_named = not (cls is None and seed is None and ranks is None and lost is None)
    if drill_id is not None:
        check((is_named, "--id says class, seed, ranks and lost: give it alone"))
        found = decode(drill_id.strip().lower())
        if found is None:
            raise UsageError(f"--id {drill_id!r} is not the id of a drill")
        return found
    if score is not None and not (cls is not None and seed is not None):
        check((is_named, "--score needs --class and --seed both, or --id, or neither"))
        found = drills.drill_of(score)
        if found is None:
            raise UsageError(
                f"{score}: its name does not say which drill it is", hint="give its --id"
            )
        return found
    if cls is not None and cls not in tuple(Class):
        raise UsageError(f"--class {cls!r} is not a class", hint="gpufleet drill --list")
    return Drill(
        cls=Class.XID_79 if cls is None else Class(cls),
        seed=SystemRandom().randrange(DRAWN_SEEDS) if seed is None else _seed(seed),
        size=DEFAULT_SIZE if ranks is None else _size(ranks),
        lost_parts=0 if lost is None else _lost_parts(lost),
    )


def _seed(text: str) -> int:
    if not _SEED.fullmatch(text) or int(text) > MOST_SEED:
        raise UsageError(f"--seed {text!r} is not a number from 0 to {MOST_SEED}")
    return int(text)


def _size(ranks: int) -> int:
    if ranks not in SIZES:
        raise UsageError(
            f"--ranks {ranks} is not a power of two from {SIZES[0]} to {SIZES[-1]}",
            hint="8, 64, 1024, ...",
        )
    return ranks


def _lost_parts(text: str) -> int:
    found = round(float(text) * LOST_PARTS) if _SHARE.fullmatch(text) else LOST_PARTS + 1
    if found > LOST_PARTS:
        raise UsageError(f"--lost {text!r} is not a share from 0 to 1", hint="0.2, or 0.125")
    return found
