"""Hypotheses about the same ranks become one story: sets narrow one another, causes take what they explain."""

from __future__ import annotations

from gpufleet_cli.facts import Origin
from gpufleet_cli.stories import stories
from gpufleet_cli.verdict import Claim, Hypothesis, Kind, Remedy

from . import stories as incidents


def found(
    *ranks: int, suspects: tuple[int, ...] = (), weight: float = 1.8, kind: Kind = Kind.RANK_MISSING
) -> Hypothesis:
    text = f"{kind} {ranks or suspects}"
    return Hypothesis(
        kind=kind,
        rule="test",
        summary=text,
        claims=(Claim(text=text, origin=Origin(path="a.log", line=1), weight=weight),),
        remedy=Remedy.PROCESS,
        generic=kind is Kind.RANK_MISSING,
        ranks=ranks,
        suspects=suspects,
    )


def told(*hypotheses: Hypothesis) -> list[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """(ranks, suspects, number of claims) of each story."""
    case = incidents.case(incidents.hang(quiet={3}))
    return [(h.ranks, h.suspects, len(h.claims)) for h in stories(case, list(hypotheses))]


def test_a_wide_set_lends_to_the_rank_that_it_holds() -> None:
    """What the logs leave open, the dumps have closed: one story with two claims."""
    assert [((3,), (), 2)] == told(found(suspects=(1, 2, 3, 5)), found(3, weight=3.0))


def test_two_sets_leave_where_they_overlap() -> None:
    """One rank in both is named; two stay a set."""
    assert [((3,), (), 2)] == told(found(suspects=(1, 3)), found(suspects=(3, 5, 6)))
    assert [((), (3, 5), 2)] == told(found(suspects=(1, 3, 5)), found(suspects=(3, 5, 6, 7)))


def test_sets_that_share_nobody_stay_rivals() -> None:
    """Neither lends to the other."""
    assert 2 == len(told(found(suspects=(1, 2)), found(suspects=(5, 6))))


def test_two_ranks_that_are_each_named_stay_rivals() -> None:
    """Another rank's name is no set that holds this one."""
    assert 2 == len(told(found(3), found(5)))


def test_one_of_several_that_stopped_says_why() -> None:
    """The dumps convict two, a log explains one of them: both are guilty, in one story."""
    both = found(3, 5, weight=3.0)
    why = found(3, weight=3.0, kind=Kind.DATA_STALL)
    assert [((3, 5), (), 2)] == told(both, why)


def test_one_rank_of_two_that_are_named_together_lends_to_both() -> None:
    """The dumps convict both; the logs name one of them: nobody's rival."""
    assert [((3, 5), (), 3)] == told(found(3, 5, weight=5.0), found(3, weight=3.0), found(5))
