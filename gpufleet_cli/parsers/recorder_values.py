"""Values of a recorder's entries, checked: a hostile file may nest, stretch or bend them at will.

To hash, compare or print a value that nests without end may take for ever, so types and lengths
are looked at first, by whole columns where there are many.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

from gpufleet_cli.errors import ParseError

LARGEST = 1 << 62
MAX_NAME = 200
MAX_SHAPES, MAX_DIMS, MAX_FRAMES = 512, 32, 8

_PEER = re.compile(r"(send|recv) \d{1,9}(?:->|<-)(\d{1,9})")


def only(values: list[Any], kinds: set[type]) -> list[Any]:
    """The values, if all are of these types."""
    if set(map(type, values)) - kinds:
        raise ParseError("an entry with a value of the wrong kind")
    return values


def integer(value: object, what: str) -> int:
    """A number of sane size, also where JSON made it a string or a float."""
    if type(value) is int and -LARGEST < value < LARGEST:
        return value
    if isinstance(value, float) and abs(value) < LARGEST:
        return int(value)
    if isinstance(value, str) and len(value) <= 20:
        try:
            return int(value)
        except ValueError:
            pass
    raise ParseError(f"an entry whose {what} is no usable number")


def text(value: object, default: str = "") -> str:
    """A short string, or the default."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST:
        return str(value)
    return value[:MAX_NAME] if isinstance(value, str) else default


def operation(name: str) -> str:
    """`nccl:send 0->1` as `send`.

    >>> operation("nccl:_all_gather_base"), operation("hccl:recv 1<-0")
    ('_all_gather_base', 'recv')
    """
    return name.rpartition(":")[2].split(" ", 1)[0][:60]


def peers(name: str) -> list[tuple[int, bool]]:
    found = _PEER.search(name[:80])
    return [(int(found[2]), found[1] == "send")] if found else []


def shapes(sizes: object) -> str:
    """Shapes as "64x64,8"; checks them, since a hostile file may nest them without end.

    >>> shapes([[64, 64], [8]]), shapes([]), shapes([[]])
    ('64x64,8', '', '1')
    """
    if not isinstance(sizes, list | tuple) or len(sizes) > MAX_SHAPES:
        raise ParseError("an entry whose sizes are no list of shapes")
    return ",".join(map(_shape, sizes))


def _shape(shape: object) -> str:
    if type(shape) is int:
        return str(integer(shape, "size"))
    if not isinstance(shape, list | tuple) or len(shape) > MAX_DIMS:
        raise ParseError("an entry whose sizes are no list of shapes")
    return "x".join(str(integer(value, "size")) for value in shape) or "1"


def dtypes(names: object) -> str:
    """The types of a tensor list as "Float,Long"; one name when they are all alike."""
    if not isinstance(names, list | tuple) or len(names) > MAX_SHAPES:
        return ""
    kinds = dict.fromkeys(text(name)[:40] for name in names)
    return ",".join(kinds)


def frames(raw: object) -> tuple[str, ...]:
    """Stack frames as "function (file:line)", innermost first."""
    if not isinstance(raw, list | tuple):
        return ()
    return tuple(
        f"{text(f.get('name'))} ({text(f.get('filename'))}:{text(f.get('line'))})"
        for f in raw[:MAX_FRAMES]
        if isinstance(f, dict)
    )


def check_shapes(sizes: list[Any]) -> None:
    """Lists of lists of numbers, none of them long: a hostile file may nest them without end."""
    only(sizes, {list, tuple})
    if max(map(len, sizes), default=0) > MAX_SHAPES:
        raise ParseError("an entry with more tensors than a call can have")
    shapes_ = [shape for shape in chain.from_iterable(sizes) if type(shape) is not int]
    only(shapes_, {list, tuple})
    if max(map(len, shapes_), default=0) > MAX_DIMS:
        raise ParseError("an entry with more dimensions than a tensor can have")
    only(list(chain.from_iterable(shapes_)), {int})
