"""Bytes of a line to text that is safe to look at."""

from __future__ import annotations

import re

TEXT_LIMIT = 65_536
"""Longer lines are read in pieces of this size."""

_ANSI = re.compile(
    r"\x1b(?:\[[0-9;:?<=>!]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_])"
)
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)


def decode(data: bytes) -> str:
    """UTF-8, and Latin-1 for a line that is not; a character cut in two at the end is dropped."""
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        if exc.start >= len(data) - 3 and len(data) >= TEXT_LIMIT:
            return data[: exc.start].decode()
        return data.decode("latin-1")


def printable(text: str) -> str:
    """Text without ANSI, C0, C1 and direction marks; tabs and newlines stay."""
    if text.isprintable():
        return text
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return _CONTROL.sub("", text)
