"""The part of LogQL that the tests' Loki understands: selectors, line filters, `count_over_time`, `sum by`.

What is beyond it is a parse error with Loki's words, so that a query that Loki might take is never answered wrongly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_STRING = r'"(?:[^"\\]|\\.)*"|`[^`]*`'
_MATCHER = re.compile(rf"\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*({_STRING})\s*(,|(?=\}}))")
_FILTER = re.compile(rf"\s*(\|=|!=|\|~|!~)\s*({_STRING})")
_SUM = re.compile(r"\s*sum\s*(?:by\s*\(([^)]*)\))?\s*\((.*)\)\s*(?:by\s*\(([^)]*)\))?\s*$", re.S)
_COUNT = re.compile(r"\s*count_over_time\s*\((.*)\[(\d+)(ms|[smhdw])\]\s*\)\s*$", re.S)


class LogqlError(Exception):
    """Loki's words about a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is asked: which streams, which lines, and how they are counted (None: the lines themselves)."""

    matches: Callable[[Mapping[str, str]], bool]
    keeps: Callable[[str], bool]
    window_s: float | None = None
    by: tuple[str, ...] | None = None  # labels of `sum by`; None: each stream for itself


def parse(text: str) -> Query:
    """Read a query, or `LogqlError`."""
    summed, by = _SUM.match(text), None
    if summed:
        names = summed[1] or summed[3] or ""
        by = tuple(name.strip() for name in names.split(",") if name.strip())
        text = summed[2]
    counted, window_s = _COUNT.match(text), None
    if counted:
        text, window_s = counted[1], int(counted[2]) * _UNIT_S[counted[3]]
    elif summed:
        raise _unexpected(text, 0)
    matchers, at = _selector(text)
    filters = []
    while found := _FILTER.match(text, at):
        filters.append((found[1], _unquote(found[2])))
        at = found.end()
    if text[at:].strip():
        raise _unexpected(text, at)
    return Query(
        matches=lambda labels: all(test(labels) for test in matchers),
        keeps=lambda line: all(_line_passes(op, wanted, line) for op, wanted in filters),
        window_s=window_s,
        by=by,
    )


def _selector(text: str) -> tuple[list[Callable[[Mapping[str, str]], bool]], int]:
    """The tests of `{...}` and where it ends."""
    at = len(text) - len(text.lstrip())
    if text[at : at + 1] != "{":
        raise _unexpected(text, at)
    at += 1
    tests, narrows = [], False
    while found := _MATCHER.match(text, at):
        name, operator, wanted = found[1], found[2], _unquote(found[3])
        test = _label_test(name, operator, wanted)
        tests.append(test)
        narrows = narrows or (operator in ("=", "=~") and not test({}))
        at = found.end()
    at += len(text[at:]) - len(text[at:].lstrip())
    if text[at : at + 1] != "}" or not tests:
        raise _unexpected(text, at)
    if not narrows:
        raise LogqlError(
            "parse error : queries require at least one regexp or equality matcher that does not "
            'have an empty-compatible value. For instance, app=~".*" does not meet this '
            'requirement, but app=~".+" will'
        )
    return tests, at + 1


def _label_test(name: str, operator: str, wanted: str) -> Callable[[Mapping[str, str]], bool]:
    """One matcher. A label that is absent is the empty text; a regular expression covers the whole value."""
    if operator in ("=", "!="):
        return lambda labels: (labels.get(name, "") == wanted) == (operator == "=")
    whole = _compiled(wanted)
    return lambda labels: bool(whole.fullmatch(labels.get(name, ""))) == (operator == "=~")


def _line_passes(operator: str, wanted: str, line: str) -> bool:
    """One line filter; regular expressions match anywhere."""
    if operator in ("|=", "!="):
        return (wanted in line) == (operator == "|=")
    return bool(_compiled(wanted).search(line)) == (operator == "|~")


def _compiled(text: str) -> re.Pattern[str]:
    """A regular expression; what only Python knows is refused as RE2 would."""
    try:
        if re.search(r"\(\?[=!<]|\\[1-9]", text):
            raise re.error("invalid or unsupported Perl syntax")
        return re.compile(text)
    except re.error as error:
        raise LogqlError(f"parse error : error parsing regexp: {error}: `{text}`") from error


def _unquote(text: str) -> str:
    """The text of a string, quoted in either way."""
    if text.startswith("`"):
        return text[1:-1]
    try:
        return str(json.loads(text))
    except ValueError as error:
        raise LogqlError("parse error : invalid char escape") from error


def _unexpected(text: str, at: int) -> LogqlError:
    """A syntax error at this place."""
    what = text[at : at + 1] or "$end"
    return LogqlError(f"parse error at line 1, col {at + 1}: syntax error: unexpected {what}")
