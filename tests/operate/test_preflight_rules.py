"""Good manifests are silent; one mistake at a time is found, and nothing else is said at warning or above."""

from __future__ import annotations

import json
from collections import Counter

import preflight_mistakes as mistakes
import pytest

from gpufleet_cli.operate.preflight.check import checked
from gpufleet_cli.operate.preflight.documents import read_text
from gpufleet_cli.operate.preflight.registry import RULES
from gpufleet_cli.spec_check import SpecFinding

CASES = [(id_, name, edit) for id_, names, edit in mistakes.MISTAKES for name in names]


def standing(name: str, documents: mistakes.Documents) -> list[SpecFinding]:
    """Findings at warning or above."""
    found, unread = read_text(name, json.dumps(documents).encode())
    assert not unread
    return [one for one in checked(found).findings if one.severity != "info"]


@pytest.mark.parametrize("name", mistakes.EVERY)
def test_a_good_manifest_is_silent(name: str) -> None:
    """Nothing at warning or above, and it is taken for the training that it is."""
    path = mistakes.GOOD / f"{name}.yaml"
    found, unread = read_text(path.name, path.read_bytes())
    result = checked(found, unread)
    assert [one for one in result.findings if one.severity != "info"] == []
    assert [one.taken_as for one in result.read] == ["training gang"]


@pytest.mark.parametrize(
    ("id_", "name", "edit"), CASES, ids=[f"{i}-{id_}-{n}" for i, (id_, n, _) in enumerate(CASES)]
)
def test_one_mistake_is_found_and_nothing_else(id_: str, name: str, edit: mistakes.Edit) -> None:
    """By its id, with a message, a reason, a fix and a place."""
    documents = mistakes.good(name)
    edit(documents)
    found = standing(name, documents)
    assert {one.id for one in found} == {id_}, [one.message for one in found]
    assert all(one.message and one.why and one.fix and all(one.where) for one in found)


def test_every_rule_is_planted_at_least_twice() -> None:
    """Each rule that can stand at warning or above on manifests alone."""
    planted = Counter(id_ for id_, _, _ in CASES)
    stand = [rule for rule in RULES if rule.severity != "info" and not rule.of_cluster]
    assert {rule.id for rule in stand if planted[rule.id] < 2} == set()
    assert set(planted) <= {rule.id for rule in RULES}
