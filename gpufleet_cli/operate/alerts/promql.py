"""What a user typed, made safe to stand in PromQL: matchers, regular expressions, metric names.

>>> [str(one) for one in matchers('job_id="run7", env=~"prod|lab"', "--match")]
['job_id="run7"', 'env=~"prod|lab"']
"""

from __future__ import annotations

import re

from gpufleet_cli.errors import UsageError
from gpufleet_cli.live import metric_queries
from gpufleet_cli.live.metric_queries import Matcher

MOST = 2_000
"""No matcher or regular expression that a person types is longer."""
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}", re.ASCII)
_NOT_RE2 = re.compile(r"\(\?(?:[=!>(#]|<[=!]|P=)|\\[1-9]|[*+?}]\+")
"""What Python takes in a regular expression and Prometheus does not."""
_NOT_PYTHON = re.compile(r"\\[pPQEzC]")


def plain(text: str) -> str:
    """A text that Prometheus's templates leave as it is.

    >>> plain("a {{ b")
    'a {{"{{"}} b'
    """
    return text.replace("{{", '{{"{{"}}')


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
    """`a="x", b=~"y.*"`, with or without braces around, read strictly; one at least."""
    try:
        found = metric_queries.matchers(text[: MOST + 1])
    except UsageError as exc:
        raise _no_matchers(text, option) from exc
    if not found or len(text) > MOST or any(one.label == "__name__" for one in found):
        raise _no_matchers(text, option)
    for label, how, value in found:
        problem = "" if value.isprintable() else "holds characters that cannot be printed"
        if how in ("=~", "!~"):
            problem = problem or _regex_problem(value)
        if problem:
            raise UsageError(f"{option}: the value of {label}, {value!r}, {problem}")
    return found


def _no_matchers(text: str, option: str) -> UsageError:
    return UsageError(
        f"{option} {text[:200]!r} is not a list of label matchers", hint="""write 'job_id="run7"'"""
    )


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
