"""Slurm's compressed host lists: `gpu-[001-128,130],cpu1` is 130 names.

Syntax: https://slurm.schedmd.com/scontrol.html (`scontrol show hostnames`). Zeros are kept, several
brackets multiply. Order is Slurm's: as written, first bracket slowest.

>>> expand_host_list("gpu-[08-10,12],cpu1")
('gpu-08', 'gpu-09', 'gpu-10', 'gpu-12', 'cpu1')
>>> expand_host_list("rack[1-2]n[1-2]")
('rack1n1', 'rack1n2', 'rack2n1', 'rack2n2')
"""

from __future__ import annotations

import re
from itertools import product

from gpufleet_cli.errors import ParseError

LIMIT = 100_000
MOST_CHARS = 1_000_000
_NONE = frozenset({"", "(null)", "null", "none", "none assigned", "n/a", "unknown", "(none)"})
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def expand_host_list(text: str, limit: int = LIMIT) -> tuple[str, ...]:
    """The names of a host list, in order. ParseError for a list that is none or too long."""
    text = text.strip()
    if text.lower() in _NONE:
        return ()
    if len(text) > MOST_CHARS:
        raise ParseError("a host list of over a million characters")
    names: list[str] = []
    for item in _items(text):
        names.extend(_expand(item, limit - len(names)))
    return tuple(names)


def _items(text: str) -> list[str]:
    """Split at the commas outside brackets."""
    items: list[str] = []
    depth, start = 0, 0
    for at, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            items.append(text[start:at])
            start = at + 1
        if depth not in (0, 1):
            raise ParseError(f"brackets do not match in the host list {text[:60]!r}")
    if depth:
        raise ParseError(f"the host list {text[:60]!r} is cut off")
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def _expand(item: str, room: int) -> list[str]:
    pieces = re.split(r"\[([^\[\]]*)\]", item)
    choices: list[list[str]] = []
    total = 1
    for index, piece in enumerate(pieces):
        found = _ranges(piece, room) if index % 2 else [piece]
        total *= len(found)
        if total > room:
            raise ParseError(f"the host list names more than {LIMIT:,} hosts")
        choices.append(found)
    return ["".join(parts) for parts in product(*choices)]


def _ranges(text: str, room: int) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise ParseError(f"{part[:40]!r} is no range of a host list")
        first, last = found[1], found[2] or found[1]
        count = int(last) - int(first) + 1
        if count < 1 or count + len(numbers) > room:
            raise ParseError(f"the range {part[:40]!r} of a host list is backwards or too long")
        numbers.extend(f"{n:0{len(first)}}" for n in range(int(first), int(last) + 1))
    return numbers
