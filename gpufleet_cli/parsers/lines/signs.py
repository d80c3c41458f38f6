"""Making facts from one line, the same way in every recogniser.

A wrapper may have put a message of several lines into one `LogLine` (JSON logs), or one `LogLine`
per physical line (everything else): `continuation` reads both alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypedDict, Unpack

from gpufleet_cli.facts import Fact, GroupRef, LogSign, Sign, Speaker
from gpufleet_cli.parsers.log_line import Following, LogLine

TEXT_LIMIT = 400
DETAIL_LIMIT = 240


class SignFields(TypedDict, total=False):
    """The optional fields of a LogSign, by their own names, and who speaks if not the line's own."""

    speaker: Speaker
    at_ns: int | None
    detail: str | None
    group: GroupRef | None
    named_ranks: tuple[int, ...]
    ranks_are_group_local: bool
    peer: str | None
    device: str | None
    exit_code: int | None
    local_rank: int | None
    pid: int | None
    joined: int | None
    expected: int | None
    step: int | None
    value: float | None
    expected_value: float | None


def make_sign(sign: Sign, line: LogLine, **fields: Unpack[SignFields]) -> LogSign:
    """A LogSign of this line; text and detail are cut."""
    detail = fields.get("detail")
    if detail is not None:
        fields["detail"] = cut(detail)
    fields.setdefault("speaker", line.speaker)
    fields.setdefault("at_ns", line.at_ns)
    return LogSign(sign=sign, text=line.text[:TEXT_LIMIT], origin=line.origin, **fields)


def cut(text: str, limit: int = DETAIL_LIMIT) -> str:
    """White space squeezed, and no longer than the limit."""
    squeezed = " ".join(text[: 4 * limit].split())
    return squeezed if len(squeezed) <= limit else squeezed[: limit - 3] + "..."


def spoken_by(speaker: Speaker, *, host: str | None = None, pid: int | None = None) -> Speaker:
    """The speaker with host and pid added where the line states them and nothing else did."""
    return replace(
        speaker,
        host=speaker.host if speaker.host is not None else host,
        pid=speaker.pid if speaker.pid is not None else pid,
    )


def continuation(line: LogLine, following: Following, limit: int) -> Iterator[LogLine]:
    """The rest of a message of several lines: inside this line's own text first, then after it."""
    for text in line.text.split("\n")[1 : limit + 1]:
        yield line._replace(text=text)
    for later in following(limit):
        for text in later.text.split("\n"):
            yield later._replace(text=text) if text is not later.text else later


_RANK_LIST = re.compile(r"\d{1,7}(?:\s{0,4}-\s{0,4}\d{1,7})?")
RANK_LIST_LIMIT = 65_536


def parse_ranks(text: str) -> tuple[int, ...]:
    """Numbers of a list such as `[1, 3]`, `1,3` or `4-7`, in order, each once."""
    ranks: dict[int, None] = {}
    for found in _RANK_LIST.finditer(text):
        first, _, last = found.group().partition("-")
        low, high = int(first), int(last or first)
        for rank in range(low, min(high, low + RANK_LIST_LIMIT) + 1):
            ranks[rank] = None
            if len(ranks) >= RANK_LIST_LIMIT:
                return tuple(ranks)
    return tuple(ranks)


Handler = Callable[[LogLine, Following], Iterator[Fact]]
Rule = tuple[tuple[str, ...], Handler]


def patterns_of(rules: tuple[Rule, ...]) -> tuple[str, ...]:
    """The bytes-pass patterns of rules: their literals, so that nothing recognised is missed."""
    return tuple(re.escape(literal) for literals, _ in rules for literal in literals)


def by_literal(rules: tuple[Rule, ...], line: LogLine, following: Following) -> Iterator[Fact]:
    """The facts of every rule of which one literal stands in the line."""
    text = line.text
    for literals, handler in rules:
        if any(literal in text for literal in literals):
            yield from handler(line, following)


def fixed(sign: Sign, detail: str | None = None) -> Handler:
    """A handler for lines that say nothing beyond themselves."""

    def handler(line: LogLine, following: Following) -> Iterator[Fact]:
        yield make_sign(sign, line, detail=detail if detail is not None else line.text)

    return handler
