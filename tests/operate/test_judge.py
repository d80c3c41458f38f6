"""What an answer is worth: who was named, who was wronged, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable

import builders
import pytest

from gpufleet_cli import cost
from gpufleet_cli.operate.simulate.judge import (
    LOOK_S,
    NODE_OUT_S,
    RETRY_FAILS,
    UNNOTICED_S,
    Judged,
    judge,
    one_more_failure_gpu_hours,
)
from gpufleet_cli.operate.simulate.story import Class
from gpufleet_cli.operate.simulate.truth import Truth
from gpufleet_cli.verdict import Action, Alternative, Culprit, Kind, Triage

NODES = tuple(f"n{rank // 8}" for rank in range(64))
LOOK = cost.gpu_hours(64, LOOK_S)
AGAIN = one_more_failure_gpu_hours(64)
INNOCENT_NODE = cost.gpu_hours(8, NODE_OUT_S)


def nobody(**known: object) -> Truth:
    """A job that is well and runs."""
    fixed = {
        "cls": Class.COMPILE,
        "kinds": frozenset({Kind.HEALTHY}),
        "culprits": frozenset(),
        "nodes": frozenset(),
        "told": None,
        "side": "neither",
        "stopped": False,
    }
    return builders.made_truth(**{**fixed, **known})


def undecided(**known: object) -> Truth:
    return builders.made_truth(**{"told": frozenset(range(8, 16)), "decided": False, **known})


def says(
    kind: Kind = Kind.HARDWARE,
    *ranks: int,
    nodes: tuple[str, ...] = (),
    action: Action = Action.EVICT_NOW,
    acts_on: tuple[str, ...] | None = None,
) -> Triage:
    """A verdict that names `ranks`, each on its own node, and `nodes` whose rank is open."""
    culprits = [Culprit(rank=rank, node=NODES[rank]) for rank in ranks]
    culprits += [Culprit(rank=None, node=node) for node in nodes]
    named = tuple(sorted({c.node for c in culprits if c.node})) if acts_on is None else acts_on
    is_for_nodes = action in (Action.EVICT_NOW, Action.CORDON_AT_CHECKPOINT)
    return builders.triage(
        verdict=builders.verdict(kind, culprits=tuple(culprits), confidence=0.9),
        recommendation=builders.recommendation(action, nodes=named if is_for_nodes else ()),
    )


def leaves(*ranks: int) -> Triage:
    """An undecided answer with its suspects."""
    first = Alternative(
        kind=Kind.RANK_MISSING, ranks=ranks, nodes=(), confidence=0.7, why_less_likely=""
    )
    return builders.triage(
        verdict=builders.verdict(
            Kind.UNDECIDABLE,
            culprits=(),
            alternatives=(first,) if ranks else (),
            confidence=0.7,
        ),
        recommendation=builders.recommendation(Action.COLLECT_MORE, nodes=()),
    )


# --- Who was named -------------------------------------------------------------------------------


def test_the_right_rank_and_kind() -> None:
    """All is well, and costs nothing."""
    assert judge(builders.made_truth(), says(Kind.HARDWARE, 12)) == Judged(
        right=True,
        exact=True,
        set_right=False,
        held=True,
        confidence=0.9,
        abstained=False,
        set_size=None,
        node_right=True,
        acts=True,
        innocent_ranks=(),
        innocent_nodes=(),
        software_called_hardware=False,
        hardware_called_software=False,
        healthy_wrong=False,
        regret_gpu_hours=0.0,
    )


@pytest.mark.parametrize(
    "answer",
    [
        says(Kind.HARDWARE, 13),
        says(Kind.HARDWARE, 12, 13),
        says(Kind.HARDWARE),
        says(Kind.HARDWARE, nodes=("n1",)),
        says(Kind.RANK_CRASHED, 12),
        leaves(12),
        leaves(),
    ],
    ids=["other", "one too many", "nobody", "its node", "other kind", "suspect", "no set"],
)
def test_anything_else_is_not_exact(answer: Triage) -> None:
    """Where the files single the rank out, exactly it has to be named, with its kind."""
    found = judge(builders.made_truth(), answer)
    assert not found.exact
    assert not found.right


def test_rank_zero_is_a_rank() -> None:
    """Not known and 0 are two things."""
    first = builders.made_truth(
        culprits=frozenset({0}), nodes=frozenset({"n0"}), told=frozenset({0})
    )
    assert judge(first, says(Kind.HARDWARE, 0)).exact
    assert not judge(first, says(Kind.HARDWARE)).exact


def test_two_guilty_ranks_are_both_wanted() -> None:
    """Half of the truth is not the truth."""
    both = builders.made_truth(culprits=frozenset({12, 40}), nodes=frozenset({"n1", "n5"}))
    assert judge(both, says(Kind.HARDWARE, 40, 12)).exact
    assert not judge(both, says(Kind.HARDWARE, 12)).exact


NODE_DEATH = builders.made_truth(
    cls=Class.NODE_DEATH,
    culprits=frozenset(range(8, 16)),
    told=frozenset(range(8, 16)),
    by_node=True,
)


@pytest.mark.parametrize(
    ("answer", "exact"),
    [
        (says(Kind.HARDWARE, nodes=("n1",)), True),
        (says(Kind.HARDWARE, *range(8, 16)), True),
        (says(Kind.HARDWARE, 9, 11), True),
        (says(Kind.HARDWARE, nodes=("n2",)), False),
        (says(Kind.HARDWARE, nodes=("n1", "n2")), False),
        (says(Kind.HARDWARE, 9, 16), False),
        (says(Kind.HARDWARE), False),
    ],
)
def test_a_fault_of_a_node_is_named_by_its_node(answer: Triage, exact: bool) -> None:
    """The node alone, all of its ranks or some of them; no other node and no other rank."""
    assert judge(NODE_DEATH, answer).exact is exact


def test_nobody_is_to_blame() -> None:
    """Then nobody is named, but for those who may be."""
    mismatch = nobody(
        cls=Class.MISMATCH,
        kinds=frozenset({Kind.COLLECTIVE_MISMATCH}),
        may_name=frozenset({3, 4}),
        side="software",
        stopped=True,
    )
    fix = Action.FIX_CODE
    assert judge(mismatch, says(Kind.COLLECTIVE_MISMATCH, action=fix)).right
    assert judge(mismatch, says(Kind.COLLECTIVE_MISMATCH, 4, action=fix)).right
    assert not judge(mismatch, says(Kind.COLLECTIVE_MISMATCH, 5, action=fix)).right
    assert not judge(mismatch, says(Kind.COLLECTIVE_MISMATCH, nodes=("n0",), action=fix)).right


# --- Sets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "right", "size"),
    [
        (leaves(*range(8, 16)), True, 8),
        (leaves(12), True, 1),
        (leaves(11, 12), True, 2),
        (leaves(8, 9), False, 2),
        (leaves(12, 16), False, 2),
        (leaves(), False, 0),
        (says(Kind.HARDWARE, 12), False, None),
        (says(Kind.HARDWARE, nodes=("n1",)), True, None),
        (says(Kind.HARDWARE, nodes=("n5",)), False, None),
        (says(Kind.STRAGGLER, nodes=("n1",)), False, None),
    ],
)
def test_a_set_where_the_files_leave_one(answer: Triage, right: bool, size: int | None) -> None:
    """It holds the guilty and nobody whom the files clear; to name one is a guess, hit or not."""
    found = judge(undecided(), answer)
    assert (found.right, found.set_right, found.set_size) == (right, right, size)


def test_no_set_leaves_everybody() -> None:
    """Files that do not even tell how many ranks there are let nobody list them."""
    assert judge(undecided(told=frozenset(range(64))), leaves()).right
    assert not judge(undecided(told=frozenset(range(63))), leaves()).right


def test_a_guess_that_hits_is_exact_and_not_right() -> None:
    """Calibration counts the hit, the score does not."""
    found = judge(undecided(), says(Kind.HARDWARE, 12))
    assert (found.exact, found.held, found.right) == (True, True, False)


@pytest.mark.parametrize(
    ("told", "by_node", "right"),
    [
        (range(8, 16), False, True),
        (range(8, 14), False, False),
        (range(8, 14), True, True),
        (range(8, 17), False, True),
        ((*range(8, 14), 40), True, False),
    ],
)
def test_a_node_is_the_set_of_its_ranks(told: Iterable[int], by_node: bool, right: bool) -> None:
    """Neither too large (the files clear some of them) nor too small; never a wrong claim."""
    of = undecided(told=frozenset(told), by_node=by_node)
    found = judge(of, says(Kind.HARDWARE, nodes=("n1",)))
    assert (found.right, found.held) == (right, True)
    assert not judge(of, says(Kind.HARDWARE, nodes=("n2",))).right
    assert judge(of, says(Kind.HARDWARE, nodes=("n2",))).held is False


def test_a_set_where_nobody_is_to_blame() -> None:
    """No suspects, all ranks, or those who may be named; a handful of innocents is wrong."""
    outage = nobody(
        cls=Class.STORAGE, kinds=frozenset({Kind.STORAGE_STALL}), decided=False, stopped=True
    )
    assert judge(outage, leaves()).right
    assert judge(outage, leaves(*range(64))).right
    assert not judge(outage, leaves(3, 4)).right


def test_a_world_that_accepts_no_answer() -> None:
    """Nobody to blame, and `undecidable` among the kinds: right without suspects, wrong with some."""
    imbalance = nobody(
        cls=Class.IMBALANCE, kinds=frozenset({Kind.HEALTHY, Kind.STRAGGLER, Kind.UNDECIDABLE})
    )
    assert judge(imbalance, leaves()).right
    assert not judge(imbalance, leaves(25, 46)).right
    assert judge(imbalance, says(Kind.STRAGGLER, action=Action.WATCH)).right
    assert not judge(imbalance, says(Kind.STRAGGLER, 25)).right


def test_what_confidence_speaks_of() -> None:
    """Of a set: that the guilty are in it. Of no set: nothing."""
    assert judge(builders.made_truth(), leaves(11, 12)).held is True
    assert judge(builders.made_truth(), leaves(11)).held is False
    assert judge(builders.made_truth(), leaves()).held is None
    assert judge(nobody(), leaves(3)).held is False
    assert judge(nobody(), says(Kind.HEALTHY, action=Action.NONE)).held is True


# --- Who was wronged -----------------------------------------------------------------------------


def test_an_innocent_in_an_eviction() -> None:
    """The rank, and its node."""
    found = judge(builders.made_truth(), says(Kind.HARDWARE, 12, 40))
    assert (found.innocent_ranks, found.innocent_nodes) == ((40,), ("n5",))
    assert found.acted_on_innocents
    assert not found.node_right


def test_a_cordon_for_a_node_that_no_culprit_names() -> None:
    """What the advice is for counts, not the name alone."""
    answer = says(Kind.HARDWARE, 12, acts_on=("n1", "n6"), action=Action.CORDON_AT_CHECKPOINT)
    found = judge(builders.made_truth(), answer)
    assert found.exact
    assert found.innocent_nodes == ("n6",)


def test_to_name_is_not_to_act() -> None:
    """A wrong name with advice that touches no node wrongs nobody."""
    found = judge(builders.made_truth(), says(Kind.RANK_CRASHED, 40, action=Action.RESTART_JOB))
    assert not found.acts
    assert not found.acted_on_innocents


@pytest.mark.parametrize(
    ("side", "kind", "expected"),
    [
        ("software", Kind.HARDWARE, (True, False)),
        ("software", Kind.NETWORK, (True, False)),
        ("hardware", Kind.RANK_CRASHED, (False, True)),
        ("hardware", Kind.COLLECTIVE_MISMATCH, (False, True)),
        ("hardware", Kind.RANK_MISSING, (False, False)),
        ("software", Kind.RANK_MISSING, (False, False)),
        ("neither", Kind.HARDWARE, (False, False)),
    ],
)
def test_sides(side: str, kind: Kind, expected: tuple[bool, bool]) -> None:
    """A rank that is missing says nothing of why."""
    found = judge(builders.made_truth(side=side, kinds=frozenset({Kind.HOST_OOM})), says(kind, 12))
    assert (found.software_called_hardware, found.hardware_called_software) == expected


def test_a_kind_that_the_world_accepts_is_on_no_wrong_side() -> None:
    """A GPU fault of which only the crash is in the files."""
    known = builders.made_truth(kinds=frozenset({Kind.HARDWARE, Kind.RANK_CRASHED}))
    assert not judge(known, says(Kind.RANK_CRASHED, 12)).hardware_called_software


def test_a_healthy_job_called_ill() -> None:
    """Unsure is wrong too, unless the files do not tell."""
    assert judge(nobody(), says(Kind.STRAGGLER, 4, action=Action.WATCH)).healthy_wrong
    assert judge(nobody(), leaves()).healthy_wrong
    assert not judge(nobody(decided=False), leaves()).healthy_wrong
    assert not judge(nobody(), says(Kind.HEALTHY, action=Action.NONE)).healthy_wrong


def test_a_node_that_is_not_stated_is_not_right() -> None:
    """What is not stated cannot be cordoned; where no node is guilty the question does not arise."""
    bare = builders.verdict(Kind.HARDWARE, culprits=(Culprit(rank=12),))
    assert judge(builders.made_truth(), builders.triage(verdict=bare)).node_right is False
    assert judge(nobody(), says(Kind.STRAGGLER, 4)).node_right is None
    assert judge(builders.made_truth(), leaves(12)).node_right is None


# --- Regret --------------------------------------------------------------------------------------

STOPPED_BY_CODE = builders.made_truth(
    cls=Class.MISMATCH, kinds=frozenset({Kind.COLLECTIVE_MISMATCH}), side="software"
)
OUTAGE = nobody(cls=Class.STORAGE, kinds=frozenset({Kind.STORAGE_STALL}), stopped=True)


@pytest.mark.parametrize(
    ("of", "answer", "hours"),
    [
        (builders.made_truth(), leaves(12), LOOK),
        (builders.made_truth(), says(Kind.HARDWARE, 40), AGAIN + INNOCENT_NODE),
        (builders.made_truth(), says(Kind.HARDWARE, 12, 40), INNOCENT_NODE),
        (builders.made_truth(), says(Kind.RANK_CRASHED, 12, action=Action.RESTART_JOB), AGAIN),
        (builders.made_truth(), says(Kind.CUDA_OOM, 12, action=Action.FIX_CODE), AGAIN + LOOK),
        (
            builders.made_truth(),
            says(Kind.HEALTHY, action=Action.NONE),
            cost.gpu_hours(64, UNNOTICED_S),
        ),
        (builders.made_truth(), says(Kind.HARDWARE, 12, action=Action.CORDON_AT_CHECKPOINT), LOOK),
        (STOPPED_BY_CODE, says(Kind.COLLECTIVE_MISMATCH, 12, action=Action.FIX_CODE), 0.0),
        (STOPPED_BY_CODE, says(Kind.COLLECTIVE_MISMATCH, 13, action=Action.FIX_CODE), LOOK),
        (
            STOPPED_BY_CODE,
            says(Kind.RANK_MISSING, 12, action=Action.RESTART_JOB),
            RETRY_FAILS * AGAIN,
        ),
        (STOPPED_BY_CODE, says(Kind.HARDWARE, 12), RETRY_FAILS * AGAIN + INNOCENT_NODE),
        (OUTAGE, says(Kind.STORAGE_STALL, action=Action.RESTART_JOB), 0.0),
        (OUTAGE, says(Kind.HARDWARE, 3), RETRY_FAILS * AGAIN + INNOCENT_NODE),
    ],
)
def test_regret_of_a_stopped_job(of: Truth, answer: Triage, hours: float) -> None:
    """One term a mistake: a look, one more failure, a healthy node out of service."""
    assert judge(of, answer).regret_gpu_hours == pytest.approx(hours)


def test_a_running_job_stopped_for_nothing() -> None:
    """Half an interval of work and a restart: 64 GPUs for 20 minutes, and the innocent node."""
    found = judge(nobody(), says(Kind.HARDWARE, 3))
    assert found.regret_gpu_hours == pytest.approx(64 * 20 / 60 + INNOCENT_NODE)


def test_a_healthy_job_left_alone_costs_nothing() -> None:
    """Whatever it was called: nobody touched it."""
    for answer in (says(Kind.HEALTHY, action=Action.NONE), leaves(3)):
        assert judge(nobody(), answer).regret_gpu_hours == 0.0


SLOW = builders.made_truth(cls=Class.SLOW_GPU, kinds=frozenset({Kind.STRAGGLER}), stopped=False)


def test_a_slow_gpu_at_the_boundary() -> None:
    """With the default prices the boundary is the cheaper of the two; to leave it alone costs more."""
    cordon = judge(SLOW, says(Kind.STRAGGLER, 12, action=Action.CORDON_AT_CHECKPOINT))
    evict = judge(SLOW, says(Kind.STRAGGLER, 12))
    other = judge(SLOW, says(Kind.STRAGGLER, 40, action=Action.CORDON_AT_CHECKPOINT))
    watch = judge(SLOW, says(Kind.STRAGGLER, 12, action=Action.WATCH))
    assert cordon.regret_gpu_hours == 0.0 < evict.regret_gpu_hours < watch.regret_gpu_hours
    assert other.regret_gpu_hours > watch.regret_gpu_hours + INNOCENT_NODE


@pytest.mark.parametrize(
    "of", [builders.made_truth(), nobody(), SLOW, OUTAGE, STOPPED_BY_CODE, NODE_DEATH]
)
@pytest.mark.parametrize("action", list(Action))
def test_regret_is_never_a_gain(of: Truth, action: Action) -> None:
    """Nobody does better than the one who knows."""
    for answer in (says(Kind.HARDWARE, 12, action=action), says(Kind.HARDWARE, 40, action=action)):
        assert judge(of, answer).regret_gpu_hours >= 0.0
