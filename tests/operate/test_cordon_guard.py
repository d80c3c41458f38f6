"""The guards of cordons over every combination of owner, marks, claims, machine, gate and right.

What is expected stands in tables that were written from the rules in words (never take over, never undo
another's, nothing to do is no failure), not from the guard.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import get_args

import pytest

from gpufleet_cli.cordon_card import GATE, GateItem
from gpufleet_cli.errors import SourceError
from gpufleet_cli.live import rights
from gpufleet_cli.live.rights import Reviewed
from gpufleet_cli.operate import cordon_facts, permits
from gpufleet_cli.operate.cordon_facts import CordonFacts, Kind, Marks, Owner
from gpufleet_cli.operate.cordon_guard import may_cordon, may_return, may_uncordon

MARKS = Marks(by="ml (anna@bastion)", at="2026-03-11T03:50:11Z", reason="XID 79")
OTHER = replace(MARKS, reason="slow link")
KINDS: tuple[Kind, ...] = get_args(Kind)
FOREIGN = tuple(kind for kind in KINDS if kind != "ours")


def owner(kind: Kind) -> Owner:
    return Owner(kind=kind, name=f"name-of-{kind}", undo=f"means-of-{kind}")


def facts(
    kind: Kind | None, marks: Marks | None = None, *, claim: bool = False, uid: str = "u"
) -> CordonFacts:
    return CordonFacts(
        node="n",
        uid=uid,
        version="7",
        is_cordoned=kind is not None,
        marks=marks,
        owner=None if kind is None else owner(kind),
        claims=(replace(owner("nvsentinel"), told_by="a label", holds=True),) if claim else (),
    )


def test_the_kinds_are_those_of_the_table() -> None:
    """No row speaks of an owner that no guard was tried on."""
    assert {row.kind for row in cordon_facts._table()} <= set(KINDS)


@pytest.mark.parametrize(
    ("kind", "marks", "claim"), list(product((None, *KINDS), (None, MARKS), (False, True)))
)
def test_cordon(kind: Kind | None, marks: Marks | None, claim: bool) -> None:
    """Written only where nobody cordoned; a cordon that is there is no failure, whoever made it."""
    answer = {"free": "go", "taken": "done"}["free" if kind is None else "taken"]
    found = may_cordon(facts(kind, marks, claim=claim), reason="XID 79")
    assert answer == found.answer
    assert ("not in our queue" in found.why) == (kind in FOREIGN)
    if kind in FOREIGN:
        assert f"name-of-{kind}" in found.why
    replaced = may_cordon(facts(kind, marks, uid="new"), reason="XID 79", first_uid="u")
    assert "no" == replaced.answer, "another machine has its name"


def test_the_first_reason_is_kept() -> None:
    """Ours already, with another reason: nothing to do, and both are told."""
    found = may_cordon(facts("ours", MARKS), reason="slow link")
    assert "done" == found.answer
    assert "XID 79" in found.why
    assert "the first reason is kept" in found.why
    assert "first reason" not in may_cordon(facts("ours", MARKS), reason="XID 79").why


# kind, our marks there, a claim of an agent, the marks that a person was shown -> answer
UNCORDON: tuple[tuple[Kind | None, Marks | None, bool, Marks | None, str], ...] = (
    (None, None, False, None, "done"),
    (None, None, True, None, "done"),
    (None, MARKS, False, MARKS, "go"),  # left of ours: cleared
    (None, MARKS, True, MARKS, "go"),
    ("ours", MARKS, False, MARKS, "go"),
    ("ours", MARKS, False, OTHER, "no"),  # another cordon than the one that was shown
    ("ours", MARKS, False, None, "no"),
    ("ours", MARKS, True, MARKS, "no"),  # NVSentinel works on it: uncordoning cancels its repair
    ("ours", MARKS, True, OTHER, "no"),
    *((kind, marks, claim, marks, "no") for kind in FOREIGN for marks in (None, MARKS) for claim in (False, True)),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "marks", "claim", "shown", "answer"), UNCORDON)
def test_uncordon(
    kind: Kind | None, marks: Marks | None, claim: bool, shown: Marks | None, answer: str
) -> None:
    """Ours alone, as it was shown, and with the means of whoever else's it is."""
    here = facts(kind, marks, claim=claim)
    found = may_uncordon(here, expected=shown, first_uid="u")
    assert answer == found.answer
    if kind in FOREIGN:
        assert f"means-of-{kind}" == found.instead
        assert f"name-of-{kind}" in found.why
    if answer == "go":
        new = may_uncordon(replace(here, uid="new"), expected=shown, first_uid="u")
        assert "no" == new.answer


def gate(states: tuple[str, ...], stated: frozenset[str] = frozenset()) -> list[GateItem]:
    return [
        GateItem(
            name=name, state=state, why="why", stated="seen by anna" if name in stated else None
        )  # type: ignore[arg-type]
        for name, state in zip(GATE, states, strict=True)
    ]


@pytest.mark.parametrize("states", list(product(("pass", "fail", "unknown"), repeat=len(GATE))))
def test_the_gate(states: tuple[str, ...]) -> None:
    """All 243: open only where each item has passed; one that is stated counts, and all must be."""
    open_items = {name for name, state in zip(GATE, states, strict=True) if state != "pass"}
    here = facts("ours", MARKS)

    def answer(stated: frozenset[str]) -> str:
        found = may_return(here, gate(states, stated), expected=MARKS, first_uid="u")
        if found.answer == "no":
            left = open_items - stated
            assert all(f"{name}: " in found.why for name in left)
            assert all(f"{name}=WHY" in (found.instead or "") for name in left)
        else:
            assert all(f"{name} stated: seen by anna" in found.why for name in open_items)
        return found.answer

    assert ("no" if open_items else "go") == answer(frozenset())
    assert "go" == answer(frozenset(open_items))
    for left_out in open_items:
        assert "no" == answer(frozenset(open_items - {left_out}))


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_gate_that_has_passed_undoes_no_others_cordon(kind: Kind) -> None:
    """Nor one that an agent counts on, nor one that nobody checked."""
    passed = gate(("pass",) * len(GATE))
    assert "no" == may_return(facts(kind, MARKS), passed, expected=MARKS, first_uid=None).answer
    held = facts("ours", MARKS, claim=True)
    assert "no" == may_return(held, passed, expected=MARKS, first_uid=None).answer
    assert "no" == may_return(facts("ours", MARKS), [], expected=MARKS, first_uid=None).answer
    free = may_return(facts(None), passed, expected=None, first_uid=None)
    assert ("done", "it is not in the queue") == (free.answer, free.why)


@pytest.mark.parametrize("needed", [True, None, False])
@pytest.mark.parametrize("other", [True, None, False])
def test_a_right_that_is_missing(needed: bool | None, other: bool | None) -> None:
    """A firm no alone ends it; what could not be asked is tried."""
    rounds = [
        Reviewed(right=rights.PATCH_NODES, allowed=needed),
        Reviewed(right=rights.WRITE_EVENTS, allowed=other),
    ]
    found = permits.missing(rounds, (rights.PATCH_NODES,))
    assert ([rights.PATCH_NODES] if needed is False else []) == found
    if found:
        told = permits.refusal(found)
        assert "patch nodes" in told.message
        assert "gpufleet-operator" in (told.hint or "")


def test_nothing_is_written_through_kubectl_proxy() -> None:
    """That way is for reads: it refuses a patch, which would look like a right that is missing."""
    api = SimpleNamespace(access=SimpleNamespace(through_kubectl=True))
    with pytest.raises(SourceError, match="nothing was changed"):
        permits.require(api, (rights.PATCH_NODES,), print)  # type: ignore[arg-type]
