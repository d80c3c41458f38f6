"""A write-up as sections of small blocks with links and times in them, which HTML and Markdown draw each in its way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gpufleet_cli.postmortem_card import Doing, LogLine, SilenceMap, WaitPicture


@dataclass(frozen=True, slots=True)
class At:
    """A time. `clock`: the time of day alone, to the millisecond; `exact`: as the record beside it has it."""

    ns: int
    form: Literal["clock", "date", "exact"] = "date"


@dataclass(frozen=True, slots=True)
class Ref:
    """A link to an entry of the appendix, by its id."""

    id: str


@dataclass(frozen=True, slots=True)
class Code:
    """A name or a line, as it stands in the evidence."""

    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    text: str


Inline = str | At | Ref | Code | Strong
Cell = tuple[Inline, ...]
Style = Literal["", "bad", "warn", "good", "ask", "soft"]


@dataclass(frozen=True, slots=True)
class Para:
    cell: Cell
    style: Style = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows below their titles; the first cell of a row is its head. `marks` give rows a style."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    marks: tuple[Style, ...] = ()


@dataclass(frozen=True, slots=True)
class Items:
    cells: tuple[Cell, ...]
    is_ordered: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Terms with what is known of them."""

    pairs: tuple[tuple[str, Cell], ...]


@dataclass(frozen=True, slots=True)
class Commands:
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Lines of a log with their numbers."""

    title: str
    lines: tuple[LogLine, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading one level below that of the section."""

    text: str


@dataclass(frozen=True, slots=True)
class SilenceBars:
    map: SilenceMap
    cause_ns: int | None
    detected_ns: int | None
    words: str


@dataclass(frozen=True, slots=True)
class RankTiles:
    map: SilenceMap
    words: str


@dataclass(frozen=True, slots=True)
class Waits:
    picture: WaitPicture
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the appendix: a claim, or a place that is cited."""

    id: str
    text: str
    about: Cell
    source: str
    quote: str | None


@dataclass(frozen=True, slots=True)
class Entries:
    entries: tuple[Entry, ...]


Block = (
    Para
    | Table
    | Items
    | Facts
    | Commands
    | Lines
    | Heading
    | SilenceBars
    | RankTiles
    | Waits
    | Entries
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """`id` is the anchor of the section."""

    id: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole write-up. `figures` are the few numbers that stand at its top."""

    title: str
    subtitle: str
    badge: str
    badge_style: Style
    summary: tuple[str, ...]
    figures: tuple[tuple[str, Cell, str], ...]
    sections: tuple[Section, ...]


def joined(cells: Iterable[Cell], between: str = ", ") -> Cell:
    """Several cells as one."""
    found: list[Inline] = []
    for cell in cells:
        if found:
            found.append(between)
        found += cell
    return tuple(found)


def refs(ids: Iterable[str]) -> Cell:
    """Links to several entries."""
    return joined(((Ref(one),) for one in ids), " ")


def doing_title(one: Doing) -> str:
    """Whose doings a part is about."""
    who = one.node or one.pod or "not known" if one.rank is None else f"Rank {one.rank}"
    places = [part for part in (one.pod, one.node) if part and part != who]
    return f"{who}{' · ' + ' · '.join(places) if places else ''}"
