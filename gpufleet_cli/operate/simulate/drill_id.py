"""Which incident a drill is: class, seed, size and losses, and an id that says so and spoils nothing.

The id is 12 characters, good for a folder's name: 52 bits of what it stands for, mixed so that they
cannot be read at a glance, and 8 bits that tell an id from any other word.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from dataclasses import dataclass

from gpufleet_cli.operate.simulate.story import Class

SIZES = tuple(1 << power for power in range(3, 15))
"""8 to 16,384 ranks."""
DEFAULT_SIZE = 64
MOST_SEED = (1 << 32) - 1
LOST_PARTS = 1000
"""Losses are counted in thousandths."""
ID_CHARS = 12
_SEED_BITS, _LOST_BITS, _SIZE_BITS, _ALL_BITS = 32, 10, 4, 52
_CLASSES = tuple(Class)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """One incident to make. `lost_parts`: how many of a thousand dumps are lost."""

    cls: Class
    seed: int
    size: int = DEFAULT_SIZE
    lost_parts: int = 0

    @property
    def lost(self) -> float:
        return self.lost_parts / LOST_PARTS

    @property
    def options(self) -> str:
        """The options that make it again; those that are as by default are left out."""
        parts = ["--class", str(self.cls), "--seed", str(self.seed)]
        if self.size != DEFAULT_SIZE:
            parts += ["--ranks", str(self.size)]
        if self.lost_parts:
            parts += ["--lost", f"{self.lost:g}"]
        return shlex.join(parts)


def encode(drill: Drill) -> str:
    """The id of a drill.

    >>> drill = Drill(cls=Class.XID_79, seed=17)
    >>> decode(encode(drill)) == drill
    True
    """
    number = _CLASSES.index(drill.cls)
    number = number << _SIZE_BITS | SIZES.index(drill.size)
    number = number << _LOST_BITS | min(drill.lost_parts, (1 << _LOST_BITS) - 1)
    number = number << _SEED_BITS | drill.seed
    check = _check(number)
    mixed = check << _ALL_BITS | (number ^ _stream(check))
    whole = (mixed << 4).to_bytes(8)  # 60 bits are 12 characters, and 64 are 8 bytes
    return base64.b32encode(whole).decode().rstrip("=")[:ID_CHARS].lower()


def decode(text: str) -> Drill | None:
    """The drill of an id; None for a text that is none."""
    if len(text) != ID_CHARS:
        return None
    try:
        whole = base64.b32decode(text.upper() + "A===")
    except ValueError:
        return None
    mixed = int.from_bytes(whole) >> 4
    check = mixed >> _ALL_BITS
    number = (mixed & ((1 << _ALL_BITS) - 1)) ^ _stream(check)
    if _check(number) != check:
        return None
    rest, seed = number >> _SEED_BITS, number & MOST_SEED
    rest, lost_parts = rest >> _LOST_BITS, rest & ((1 << _LOST_BITS) - 1)
    cls, size = rest >> _SIZE_BITS, rest & ((1 << _SIZE_BITS) - 1)
    if cls >= len(_CLASSES) or size >= len(SIZES) or lost_parts > LOST_PARTS:
        return None
    return Drill(cls=_CLASSES[cls], seed=seed, size=SIZES[size], lost_parts=lost_parts)


def _check(number: int) -> int:
    return hashlib.sha256(b"check" + number.to_bytes(8)).digest()[0]


def _stream(check: int) -> int:
    found = hashlib.sha256(b"stream" + bytes([check])).digest()
    return int.from_bytes(found[:8]) >> (64 - _ALL_BITS)
