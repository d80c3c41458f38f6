"""Small readings that every JSON wrapper shares: a time of any type, a text of any type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpufleet_cli.timestamps import from_epoch, parse_any, parse_rfc3339

Json = Mapping[str, Any]


def time_of(value: object) -> tuple[int | None, bool]:
    """(ns, zone_stated) of a JSON value: text, seconds, milli-, micro- or nanoseconds."""
    if isinstance(value, str):
        found = parse_rfc3339(value) or parse_any(value)
        return (None, False) if found is None else found
    if isinstance(value, int | float):
        return from_epoch(value), True
    if isinstance(value, Sequence) and len(value) == 1:
        return time_of(value[0])
    return None, False


def first(obj: Json, *names: str) -> object:
    """The value of the first of these names that is there; one-element lists count as their element."""
    for name in names:
        value = obj.get(name)
        if value is not None:
            if isinstance(value, list) and len(value) == 1:
                return value[0]
            return value
    return None


def text_of(value: object) -> str | None:
    """Text of a value; journald gives bytes that are no UTF-8 as a list of numbers."""
    if isinstance(value, str):
        return value
    if (
        isinstance(value, list)
        and value
        and all(isinstance(n, int) and 0 <= n < 256 for n in value)
    ):
        return bytes(value).decode("utf-8", "replace")
    return None


def number_of(value: object) -> int | None:
    """A whole number, or text of one; True is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value < 10**9 else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    return None
