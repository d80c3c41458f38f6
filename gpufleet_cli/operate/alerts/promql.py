"""What a user typed, made safe to stand in PromQL: matchers, regular expressions, metric names.

>>> quoted('a"b')
'"a\\\\"b"'
>>> [one.text for one in matchers('job_id="run7", env=~"prod|lab"', "--match")]
['job_id="run7"', 'env=~"prod|lab"']
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from gpufleet_cli.errors import UsageError

MOST = 2_000
"""No matcher or regular expression that a person types is longer."""
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}", re.ASCII)
_MATCHER = re.compile(
    r"""\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)\s*""",
    re.ASCII | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
_NOT_RE2 = re.compile(r"\(\?(?:[=!>(#]|<[=!]|P=)|\\[1-9]|[*+?}]\+")
"""What Python takes in a regular expression and Prometheus does not."""
_NOT_PYTHON = re.compile(r"\\[pPQEzC]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One label matcher of a selector."""

    label: str
    how: str
    value: str

    @property
    def text(self) -> str:
        return f"{self.label}{self.how}{quoted(self.value)}"


def quoted(text: str) -> str:
    """A string literal of PromQL: Go's escapes, which those of JSON are as long as no surrogate is written."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\x7f")


def plain(text: str) -> str:
    """A text that Prometheus's templates leave as it is.

    >>> plain("a {{ b")
    'a {{"{{"}} b'
    """
    return text.replace("{{", '{{"{{"}}')


def literal(text: str) -> str:
    """A regular expression that means this text and nothing else.

    >>> literal("run-7.a")
    'run-7\\\\.a'
    """
    return re.sub(r"([^A-Za-z0-9_-])", r"\\\1", text)


def metric_name(text: str, option: str) -> str:
    """The name as it is, or one line that says why it can be none."""
    if not _METRIC.fullmatch(text):
        raise UsageError(
            f"{option} {text!r} is not a metric name", hint="letters, digits, _ and : alone"
        )
    return text


def regex(text: str, option: str) -> str:
    """A regular expression that Prometheus will take, too narrow to match a series without the label."""
    problem = _regex_problem(text)
    if problem:
        raise UsageError(f"{option} {text!r} {problem}", hint="Prometheus takes RE2, anchored")
    if _matches_nothing(text):
        raise UsageError(
            f"{option} {text!r} matches also what has no pod at all", hint="name the job's pods"
        )
    return text


def _regex_problem(text: str) -> str:
    if len(text) > MOST:
        return f"is longer than {MOST} characters"
    if not text.isprintable():
        return "holds characters that cannot be printed"
    if _NOT_RE2.search(text):
        return "is not a regular expression of RE2"
    if _NOT_PYTHON.search(text):
        return ""  # RE2's own, which nothing here can try
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return "is not a regular expression"
    return ""


def _matches_nothing(text: str) -> bool:
    return not _NOT_PYTHON.search(text) and re.compile(text).fullmatch("") is not None


def matchers(text: str, option: str) -> tuple[Matcher, ...]:
    """`a="x", b=~"y.*"`, with or without braces around, read strictly and written anew."""
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    wrong = UsageError(
        f"{option} {text[:200]!r} is not a list of label matchers", hint="""write 'job_id="run7"'"""
    )
    if not inner or len(inner) > MOST:
        raise wrong
    found: list[Matcher] = []
    at = 0
    while at < len(inner):
        one = _MATCHER.match(inner, at)
        if one is None or one[1] == "__name__":
            raise wrong
        found.append(_matcher(one[1], one[2], one[3], option))
        at = one.end()
        if at < len(inner) and inner[at] != ",":
            raise wrong
        at += 1
    return tuple(found)


def _matcher(label: str, how: str, raw: str, option: str) -> Matcher:
    value = raw[1:-1] if raw[0] == "`" else _ESCAPE.sub(_unescaped, raw[1:-1])
    if not value.isprintable():
        raise UsageError(f"{option}: the value of {label} holds characters that cannot be printed")
    if how in ("=~", "!~"):
        problem = _regex_problem(value)
        if problem:
            raise UsageError(f"{option}: the value of {label}, {value!r}, {problem}")
    return Matcher(label=label, how=how, value=value)


def _unescaped(found: re.Match[str]) -> str:
    return _SIMPLE.get(found[1], f"\\{found[1]}")


def span(seconds: float) -> str:
    """A duration of PromQL, whole seconds, at least one.

    >>> span(1200), span(90), span(0.2), span(86400)
    ('20m', '90s', '1s', '1d')
    """
    whole = max(1, round(seconds))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def number(value: float) -> str:
    """A number of PromQL, short.

    >>> number(0.4 * 1.18), number(1e6), number(600.0)
    ('0.472', '1000000', '600')
    """
    return f"{value:.6f}".rstrip("0").rstrip(".") if abs(value) < 1e15 else repr(value)
