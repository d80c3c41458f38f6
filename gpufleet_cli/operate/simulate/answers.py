"""A person's answer to a made incident, judged by the rules that judge gpufleet's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from gpufleet_cli.operate.simulate.judge import FOR_NODES, Judged, has_culprits, judge
from gpufleet_cli.operate.simulate.truth import Truth
from gpufleet_cli.verdict import Action, Alternative, Culprit, Kind, Triage

Mark = Literal["right", "lucky", "close", "wrong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What somebody says. With the kind `undecidable` ranks and nodes are the set that is left; without
    both nobody is to blame. `action` None: not asked."""

    kind: Kind
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    action: Action | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """`mark`: lucky is who named the guilty where the files leave more; close is who has one of kind and
    culprits, the node without its rank, or a set that holds the guilty where the files single it out. `regret_gpu_hours`: what the action costs more than that of
    somebody who knows the truth; None where no action was said."""

    mark: Mark
    kind_right: bool
    who_right: bool
    node_only: bool
    regret_gpu_hours: float | None
    innocent_nodes: tuple[str, ...]

    @property
    def right(self) -> bool:
        return self.mark in ("right", "lucky")


def mark(truth: Truth, answer: Answer, like: Triage) -> Marked:
    """How good the answer is. `like` is any answer to the same files: what an answer of a person lacks
    is taken from there, and none of it is judged."""
    judged = judge(truth, _as_triage(truth, answer, like))
    leaves_it_open = answer.kind is Kind.UNDECIDABLE
    is_open_set = leaves_it_open and not truth.decided
    kind_right = answer.kind in truth.kinds or is_open_set
    who_right = _who_right(truth, answer, like, judged)
    node_only = judged.held is True and not judged.right and not leaves_it_open
    holds_it = leaves_it_open and judged.held is True and (judged.set_size or 0) <= truth.size // 2
    found: Mark = "wrong"
    if judged.right or (is_open_set and who_right) or (judged.exact and truth.decided):
        found = "right"
    elif judged.exact:
        found = "lucky"
    elif kind_right or who_right or node_only or holds_it:
        found = "close"
    return Marked(
        mark=found,
        kind_right=kind_right,
        who_right=who_right,
        node_only=node_only,
        regret_gpu_hours=None if answer.action is None else judged.regret_gpu_hours,
        innocent_nodes=() if answer.action is None else judged.innocent_nodes,
    )


def _who_right(truth: Truth, answer: Answer, like: Triage, judged: Judged) -> bool:
    """The culprits, whatever the kind. Who leaves it open without a set where the files do so too is
    right: to list the set is asked of a program."""
    if answer.kind is Kind.UNDECIDABLE:
        says_nothing = not (answer.ranks or answer.nodes)
        return judged.right or (not truth.decided and (judged.set_right or says_nothing))
    if answer.kind in truth.kinds:
        return judged.exact or judged.set_right
    tried = [
        judge(truth, _as_triage(truth, replace(answer, kind=kind), like))
        for kind in sorted(truth.kinds - {Kind.UNDECIDABLE})
    ]
    return any(again.exact or again.set_right for again in tried)


def _as_triage(truth: Truth, answer: Answer, like: Triage) -> Triage:
    """The answer in the form that is judged."""
    is_open = answer.kind is Kind.UNDECIDABLE
    on_nodes = tuple(r for r, node in enumerate(truth.node_of) if node in answer.nodes)
    everybody = tuple(sorted({*answer.ranks, *on_nodes}))
    left = Alternative(
        kind=answer.kind, ranks=everybody, nodes=(), confidence=1.0, why_less_likely=""
    )
    verdict = replace(
        like.verdict,
        kind=answer.kind,
        confidence=1.0,
        culprits=() if is_open else _culprits(truth, answer, everybody),
        alternatives=(left,) if is_open and everybody else (),
    )
    action = Action.COLLECT_MORE if answer.action is None else answer.action
    homes = {truth.node_of[rank] for rank in answer.ranks}
    nodes = tuple(sorted({*answer.nodes, *homes})) if action in FOR_NODES else ()
    advice = replace(like.recommendation, action=action, nodes=nodes)
    return replace(like, verdict=verdict, recommendation=advice)


def _culprits(truth: Truth, answer: Answer, everybody: tuple[int, ...]) -> tuple[Culprit, ...]:
    """Where nobody is to blame, a node that is named stands for its ranks."""
    ranks = answer.ranks if has_culprits(truth) else everybody
    named = [Culprit(rank=rank, node=truth.node_of[rank]) for rank in ranks]
    homes = {one.node for one in named}
    return (*named, *(Culprit(rank=None, node=n) for n in answer.nodes if n not in homes))
