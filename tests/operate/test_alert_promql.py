"""What a user typed for PromQL: read strictly, written safely, refused in one line."""

from __future__ import annotations

import pytest

from gpufleet_cli.errors import UsageError
from gpufleet_cli.operate.alerts import promql


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ('job_id="run7"', ['job_id="run7"']),
        ('{job_id="run7", env=~"prod|lab"}', ['job_id="run7"', 'env=~"prod|lab"']),
        ('a="x", b!="y",', ['a="x"', 'b!="y"']),
        ('a="say \\"hi\\""', ['a="say \\"hi\\""']),
        ('a=~"x\\\\.y"', ['a=~"x\\\\.y"']),
        ('a="}) or vector(1) #"', ['a="}) or vector(1) #"']),
        ('a="ü"', ['a="ü"']),
    ],
)
def test_matchers_are_written_anew(typed: str, written: list[str]) -> None:
    """Every quoting that PromQL has is read, and one is written."""
    assert [str(one) for one in promql.matchers(typed, "--match")] == written


@pytest.mark.parametrize(
    "typed",
    [
        "", "{}", "run7", "a='b'", "a=b", 'a="b', 'a="b"} or up{x="y"', 'a="b" b="c"', '__name__="up"', 'a=="b"',
        'a=~"("', 'a=~"(?=x)"', 'a=~"(x)\\\\1"', 'a="b\\nc"', '1a="b"', 'a="b",,b="c"', 'a="' + "x" * 3000 + '"',
        'a="\ud800"',
    ],
)  # fmt: skip
def test_what_is_no_matcher_is_refused(typed: str) -> None:
    """One error of usage, whatever is wrong."""
    with pytest.raises(UsageError, match="--match"):
        promql.matchers(typed, "--match")


@pytest.mark.parametrize(
    "typed", ["", ".*", "a*", "(", "[a", "a|", "(?!x)y", "a\nb", "x++", "a" * 3000]
)
def test_a_regex_of_pods_names_pods(typed: str) -> None:
    """What Prometheus would refuse, and what would match a series without any pod."""
    with pytest.raises(UsageError, match="--pods"):
        promql.regex(typed, "--pods")


def test_what_prometheus_takes_is_taken() -> None:
    """Also what Python's own expressions do not know."""
    for typed in (
        "run-.+",
        "run-7-(worker|master)-[0-9]+",
        "(?i)run-.+",
        "\\Qrun.7\\E-.+",
        "(?:a|b)c",
        "run-\\d{1,3}",
    ):
        assert promql.regex(typed, "--pods") == typed


@pytest.mark.parametrize("typed", ["", "a b", "megatron.training.x", "1a", "a{b}", "a" * 300])
def test_a_metric_name_is_one(typed: str) -> None:
    with pytest.raises(UsageError, match="--last-step-metric"):
        promql.metric_name(typed, "--last-step-metric")
