"""What came of asking for logs, read back from a bundle."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import evidence

from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import KubeletReply
from gpufleet_cli.parsers import log_reads
from gpufleet_cli.parsers.registry import PARSERS

PATH = "kubernetes/log_reads.json"
SAID = "dial tcp 10.0.0.1:10250: connect: connection refused"


def document(**known: Any) -> bytes:
    return json.dumps({"schema": log_reads.SCHEMA, "replied": [], "silent": [], **known}).encode()


def read(node: str | None, pod: str = "w-1", **known: Any) -> dict[str, Any]:
    return {"pod": pod, "container": "t", "node": node, "said": SAID, **known}


def facts(data: bytes) -> list[KubeletReply]:
    return [f for f in log_reads.parse(evidence(data, PATH)) if isinstance(f, KubeletReply)]


def test_one_fact_a_node() -> None:
    """Those that replied, and those that did not with their pods, the words and the time."""
    silent = [read("gpu-1", at="2026-08-20T03:52:00Z"), read("gpu-1", "w-9"), read("gpu-2", "w-2")]
    well, first, second = facts(document(replied=["gpu-0"], silent=silent))
    assert ("gpu-0", True) == (well.node, well.replied)
    assert ("gpu-1", False, ("w-1", "w-9"), SAID) == (
        first.node,
        first.replied,
        first.pods,
        first.said,
    )
    assert 1_787_197_920_000_000_000 == first.at_ns
    assert (PATH, 2) == (second.origin.path, second.origin.entry)


def test_a_node_that_replied_is_not_silent() -> None:
    """Another of its logs came."""
    assert [True] == [f.replied for f in facts(document(replied=["a"], silent=[read("a")]))]


def test_what_is_not_of_the_form_is_passed_over() -> None:
    """Hostile or broken values cost themselves."""
    odd = document(replied=[None, 3, ""], silent=[read(None), "x", {"node": ["a"]}, None])
    assert [] == facts(odd)
    assert [] == facts(document(replied="abc", silent={"node": "a"}))
    with pytest.raises(ParseError):
        facts(b'["schema"]')


def test_controls_of_a_terminal_are_made_visible() -> None:
    """Names and words come from a server."""
    (one,) = facts(document(silent=[read("a\x1b[2J", said="x\x1b]0;y")]))
    assert "\x1b" not in one.node + one.said


def test_only_this_parser_takes_it() -> None:
    """It is no log and no list of Kubernetes objects."""
    data = document(replied=["a"], silent=[read("b")])
    assert [log_reads] == [parser for parser in PARSERS if parser.matches(PATH, data)]
    assert not log_reads.matches("a.json", b'{"schema":"gpufleet.bundle/v1"}')
