"""JSON as it is found on disk: one document, several in a row, one a line, or cut off in the middle.

Nothing here trusts a type: the accessors answer None or nothing for a value that is not what the
format says. Nesting is limited by the decoders, which raise RecursionError; sizes by the bundle.

>>> list(documents(b'{"a": 1}\\n{"a": 2}'))
[{'a': 1}, {'a': 2}]
>>> text_at({"metadata": {"name": "p"}}, "metadata", "name"), text_at({"metadata": 3}, "metadata", "name")
('p', None)
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping

import msgspec

from gpufleet_cli.errors import ParseError

MOST_DOCUMENTS = 1_000_000
_SCHEMA = re.compile(rb'\A\s{0,80}\{\s{0,80}"schema"\s{0,8}:\s{0,8}"([\w./-]{1,80})"')
_EMPTY: Mapping[str, object] = {}
_BROKEN = (ValueError, RecursionError, msgspec.DecodeError)


def documents(data: bytes) -> Iterator[object]:
    """Every document of a file. ParseError when not even the first is one."""
    try:
        yield msgspec.json.decode(data)
        return
    except _BROKEN:
        pass
    decoder = json.JSONDecoder(parse_constant=lambda _name: None)
    content = data.decode("utf-8", "replace").lstrip("\ufeff")
    at = _skip(content, 0)
    for count in range(MOST_DOCUMENTS):
        if at >= len(content):
            break
        try:
            document, at = decoder.raw_decode(content, at)
        except _BROKEN as exc:
            if count == 0:
                raise ParseError(f"no JSON: {_why(exc)}") from exc
            return
        yield document
        at = _skip(content, at)


def _why(exc: BaseException) -> str:
    return "nested too deeply" if isinstance(exc, RecursionError) else str(exc)[:120]


def _skip(content: str, at: int) -> int:
    """Over what may stand between documents: blanks, commas, record separators."""
    while at < len(content) and content[at] in " \t\r\n,\x1e":
        at += 1
    return at


def salvage(data: bytes, key: str) -> list[object]:
    """The whole elements of the list `key` in a document that is cut off or broken further down."""
    content = data.decode("utf-8", "replace")
    name = content.find(f'"{key}"')
    at = content.find("[", name) + 1 if name >= 0 else 0
    if name < 0 and content.lstrip().startswith("["):
        at = content.find("[") + 1
    if at <= 0:
        return []
    decoder = json.JSONDecoder(parse_constant=lambda _name: None)
    found: list[object] = []
    while True:
        at = _skip(content, at)
        try:
            element, at = decoder.raw_decode(content, at)
        except _BROKEN:
            return found
        found.append(element)


# --- Values whose type nobody promises ----------------------------------------------------------


def names_schema(head: bytes, schema: str) -> bool:
    """Whether the first key of a JSON object is `schema`, and names this one: how our own files begin.

    >>> names_schema(b'{"schema": "gpufleet.x/v1", ', "gpufleet.x/v1")
    True
    """
    found = _SCHEMA.match(head)
    return found is not None and found[1] == schema.encode()


def mapping(value: object) -> Mapping[str, object]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else _EMPTY


def items(value: object) -> list[object]:
    """The list, or an empty one (`null` is a common empty list)."""
    return value if isinstance(value, list) else []


def at(value: object, *path: str) -> object:
    """The value under a path of keys, None when any is missing."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def text(value: object) -> str | None:
    """A non-empty string."""
    return value if isinstance(value, str) and value else None


def text_at(value: object, *path: str) -> str | None:
    """A non-empty string under a path of keys."""
    return text(at(value, *path))


def integer(value: object) -> int | None:
    """A whole number, also one written as text or float; never a bool."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else None
    if isinstance(value, str) and len(value) <= 19:
        digits = value.strip()
        plain = digits.removeprefix("-")
        return int(digits) if plain.isascii() and plain.isdecimal() else None
    return None


def number(value: object) -> float | None:
    """A finite number, also one written as text; never a bool."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None
