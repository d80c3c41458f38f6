"""May this node be cordoned, uncordoned, or returned to service? Pure, over facts read a moment ago.

The rule: whose cordon it is decides. Ours (anybody's who runs gpufleet on this cluster) is undone and nobody
else's, and none is ever taken over. A node that somebody else cordoned is no failure of `cordon`: no new pod
lands there, which was the aim; it stays out of our queue, and that is said.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpufleet_cli.cordon_card import GateItem
from gpufleet_cli.operate.cordon_facts import CordonFacts, Marks
from gpufleet_cli.operate.rulings import Ruling, done, go, no


def may_cordon(facts: CordonFacts, *, reason: str, first_uid: str | None = None) -> Ruling:
    """`first_uid` is the node's as it was first read: a machine put in its place is another one."""
    if _is_another(facts, first_uid):
        return no("another machine has taken its name in the meantime", instead=_look(facts))
    if facts.owner is None:
        if facts.marks is not None:
            return go(f"an older cordon {facts.marks.shown} was taken off by hand: cordoned anew")
        return go("no new pod lands here; nothing that runs is stopped")
    if facts.owner.kind != "ours":
        return done(
            f"cordoned already, not by us: {facts.owner.shown}: left alone, not in our queue"
        )
    kept = "" if facts.marks is None else facts.marks.shown
    if facts.marks is not None and facts.marks.reason != reason:
        return done(f"cordoned already {kept}; the first reason is kept")
    return done(f"cordoned already {kept}")


def may_uncordon(facts: CordonFacts, *, expected: Marks | None, first_uid: str | None) -> Ruling:
    """`expected` is the cordon that a person was shown: one made since then is another."""
    if _is_another(facts, first_uid):
        return no("another machine has taken its name in the meantime", instead=_look(facts))
    if facts.owner is None:
        if facts.marks is None:
            return done("it is not cordoned")
        return go("it is schedulable already: what is left of our cordon is removed")
    if facts.owner.kind != "ours":
        left = "; our annotations are left of an older cordon" if facts.marks is not None else ""
        return no(
            f"the cordon is not ours but that of {facts.owner.shown}{left}",
            instead=facts.owner.undo,
        )
    if facts.claims:
        claim = facts.claims[0]
        return no(
            f"the cordon is ours, but {claim.name} works on the node ({claim.told_by}) and"
            " counts on it",
            instead=claim.undo,
        )
    if facts.marks != expected:
        return no("its cordon is another one by now", instead=_look(facts))
    return go(f"ours, {'' if facts.marks is None else facts.marks.shown}")


def may_return(
    facts: CordonFacts,
    gate: Sequence[GateItem],
    *,
    expected: Marks | None,
    first_uid: str | None,
) -> Ruling:
    """Uncordon after the gate: whose cordon it is first, then every item of it."""
    ruling = may_uncordon(facts, expected=expected, first_uid=first_uid)
    if not ruling.goes:
        return done("it is not in the queue") if ruling.answer == "done" else ruling
    if not gate:
        return no("nothing was checked")
    open_items = [one for one in gate if not one.is_met]
    if open_items:
        told = "; ".join(f"{one.name}: {one.state}: {one.why}" for one in open_items)
        flags = " ".join(f"--accept '{one.name}=WHY'" for one in open_items)
        return no(told, instead=f"what you know otherwise, state it: {flags}")
    stated = [f"{one.name} stated: {one.stated}" for one in gate if one.state != "pass"]
    return go("; ".join(["the gate has passed", *stated]))


def _is_another(facts: CordonFacts, first_uid: str | None) -> bool:
    return first_uid is not None and facts.uid != first_uid


def _look(facts: CordonFacts) -> str:
    return f"look again: gpufleet node {facts.node}"
