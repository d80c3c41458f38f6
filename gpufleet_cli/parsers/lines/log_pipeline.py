"""The log pipeline speaking of itself: lines lost by a shipper, logs that could not be had; preemption.

A stream that ends where its shipper dropped lines proves nothing about its rank. "unable to retrieve
container logs" is the kubelet's answer in place of a log, never a rank's last line.

>>> from gpufleet_cli.parsers.lines.pasted import read
>>> fact, = read(recognise, "unable to retrieve container logs for containerd://3f9c1d5e7a")
>>> fact.sign.value
'log-unavailable'
>>> fact, = read(recognise, "[2025/01/01 00:00:01] [ warn] [engine] failed to flush chunk '1-17.flb', retry in 9 s")
>>> fact.sign.value, fact.detail
('shipper-loss', 'weak: will be retried')
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.facts import Fact, Sign
from gpufleet_cli.parsers.lines.signs import (
    Rule,
    by_literal,
    fixed,
    make_sign,
    patterns_of,
)
from gpufleet_cli.parsers.log_line import Following, LogLine


def _loss(line: LogLine, following: Following) -> Iterator[Fact]:
    is_retried = "retry in" in line.text and "cannot be retried" not in line.text
    detail = "weak: will be retried" if is_retried else line.text
    yield make_sign(Sign.SHIPPER_LOSS, line, detail=detail)


_RULES: tuple[Rule, ...] = (
    (
        (
            "failed to flush chunk",
            "cannot be retried",
            "final error sending batch",
            "server returned HTTP status 429",
            "http_status=429",
            "HTTP status=429",
            "Events dropped",
            "dropping events",
            "log lines dropped",
            "chunk bytes limit exceeds",
        ),
        _loss,
    ),
    (
        (
            "unable to retrieve container logs",
            "failed to try resolving symlinks in path",
            "Error from server (NotFound): pods",
            "container not found (",
            "previous terminated container",
        ),
        fixed(Sign.LOG_UNAVAILABLE),
    ),
    (
        (
            "Spot interruption",
            "spot instance interruption",
            "Spot Instance interruption",
            "instance has been preempted",
            "instance was preempted",
            "node is being preempted",
            "Preempted by ",
            "preemption notice",
            "Preemption notice",
            "compute.instances.preempted",
        ),
        fixed(Sign.PREEMPTION),
    ),
)
PATTERNS: tuple[str, ...] = patterns_of(_RULES)


def recognise(line: LogLine, following: Following) -> Iterator[Fact]:
    """Losses of the pipeline, missing logs, notices of preemption."""
    return by_literal(_RULES, line, following)
