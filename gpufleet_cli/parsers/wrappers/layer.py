"""What one wrapper says of a line: the text inside, when, and who; and how such layers join.

`Who` is a tuple of (field of `Speaker`, value). Wrappers give the same object for the same names,
so that a whole line's speaker is one dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

Value = str | int | bool
Who = tuple[tuple[str, Value], ...]

NOBODY: Who = ()


class Layer(NamedTuple):
    """A wrapper taken off. `rest` is what it held; None where the line is not meant for us at all.

    `coarse`: the time has minutes only. `partial`: the text goes on in the next line of the same
    byte stream. `follows`: the wrapper allows further ones inside (False where `rest` is the
    message and nothing but the message).
    """

    rest: str | None
    ns: int | None = None
    zone_stated: bool = False
    who: Who = NOBODY
    coarse: bool = False
    partial: bool = False


class Wrapper(Protocol):
    """A module that takes one family of wrappers off.

    `STARTS` are the characters that such a line can begin with, "" for any. A module whose form
    could also be ordinary text has `fits(sample)` as well, and is used only in files it fits.
    """

    STARTS: str

    def peel(self, text: str) -> Layer | None: ...


Peel = Callable[[str], Layer | None]
Fits = Callable[[Sequence[str]], bool]


class Entry(NamedTuple):
    """One message of a JSON or CSV document, in document order."""

    text: str
    ns: int | None
    zone_stated: bool
    who: Who
    partial: bool = False


def who_of(fields: Mapping[str, Value | None]) -> Who:
    """The known ones of these fields, sorted, so that equal facts are equal objects of text."""
    return tuple(sorted((name, value) for name, value in fields.items() if value is not None))


def join(parts: Iterable[Who]) -> dict[str, Value]:
    """Fields of all layers, inner over outer.

    A rank prefix inside a local-rank prefix was written by the process itself: it is global
    (facts: log-formats 0.2), so it moves from `prefix_rank` to `rank`.
    """
    fields: dict[str, Value] = {}
    for part in parts:
        fields.update(part)
    if "local_rank" in fields and "prefix_rank" in fields:
        fields.setdefault("rank", fields["prefix_rank"])
        del fields["prefix_rank"]
    return fields


def majority(
    has_form: Callable[[str], object], sample: Sequence[str], *, share: float = 0.8
) -> bool:
    """Whether enough lines of a sample have a form for it to be the file's form.

    Looks no further than it takes to tell: a file has one form of many, so most answers are no.
    """
    found = lacking = 0
    for line in sample:
        if has_form(line):
            found += 1
        elif line.strip():
            lacking += 1
            if len(sample) - lacking < share * len(sample):
                return False
    return found >= 3 and found >= share * (found + lacking)
