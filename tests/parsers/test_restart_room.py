"""Whether a restart places without a node, read back from a bundle."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import evidence

from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import RestartRoom
from gpufleet_cli.parsers import restart_room
from gpufleet_cli.parsers.registry import PARSERS

PATH = "kubernetes/spares.json"


def document(*entries: Any) -> bytes:
    return json.dumps({"schema": restart_room.SCHEMA, "without": list(entries)}).encode()


def entry(node: object = "gpu-1", **known: Any) -> dict[str, Any]:
    full = {"places": True, "why": "all 2 pods find room", "cause": None, "nodes": ["gpu-9"]}
    return {"node": node, **full, "spare_nodes": 1, **known}


def facts(data: bytes) -> list[RestartRoom]:
    return [f for f in restart_room.parse(evidence(data, PATH)) if isinstance(f, RestartRoom)]


def test_one_fact_a_node() -> None:
    """With the words, the few names, and the place in the file."""
    no = entry("gpu-2", places=False, why="quota: none left", cause="quota", nodes=[])
    first, second = facts(document(entry(), no))
    assert (True, ("gpu-9",), 1) == (first.places, first.nodes, first.spare_nodes)
    assert (False, "quota: none left", "quota") == (second.places, second.why, second.cause)
    assert (PATH, 1) == (second.origin.path, second.origin.entry)


@pytest.mark.parametrize(
    "odd",
    [
        None, "x", 3, [], {}, entry(None), entry(["a"]), entry("--flag"), entry("a b"), entry("a;b"),
        entry(places="yes"), entry(places=1), entry(why=None), entry(why={}), entry(why=""),
    ],
)  # fmt: skip
def test_an_entry_of_another_form_costs_itself(odd: Any) -> None:
    """What stands beside it is read all the same."""
    assert ["gpu-5"] == [one.node for one in facts(document(odd, entry("gpu-5")))]


def test_lists_and_words_without_end_are_cut() -> None:
    """The file is evidence: whoever made it may have meant ill."""
    long = entry(why="\x1b[2J" * 5000, nodes=["n"] * 5000 + [3], spare_nodes="many", cause=7)
    found = facts(document(*[long] * (2 * restart_room.MOST_NODES)))
    assert len(found) == restart_room.MOST_NODES
    one = found[0]
    assert len(one.why) == restart_room.WHY_CHARS
    assert "\x1b" not in one.why
    assert len(one.nodes) == restart_room.MOST_NAMED
    assert (0, None) == (one.spare_nodes, one.cause)


def test_another_document_is_refused() -> None:
    """The top must be an object, and a list that is none holds nothing."""
    with pytest.raises(ParseError):
        facts(b'["schema"]')
    odd = json.dumps({"schema": restart_room.SCHEMA, "without": {"node": "a"}}).encode()
    assert [] == facts(odd)


def test_only_this_parser_takes_it() -> None:
    """It is no log and no list of Kubernetes objects."""
    data = document(entry())
    assert [restart_room] == [parser for parser in PARSERS if parser.matches(PATH, data)]
    assert not restart_room.matches("a.json", b'{"schema":"gpufleet.bundle/v1"}')
