"""Thousands of ranks become a few bars that tell who is quiet."""

from __future__ import annotations

import builders

from gpufleet_cli.render.silence import silence_groups


def test_culprit_stands_alone_and_first() -> None:
    """1,024 ranks are two bars."""
    culprit, rest = silence_groups(builders.rank_rows())
    assert (culprit.label, culprit.ranks, culprit.accused, culprit.share) == (
        "rank 800",
        (800,),
        True,
        1.0,
    )
    assert (rest.label, len(rest.ranks), rest.quiet_s) == ("1,023 more", 1023, 0.4)


def test_culprit_is_first_even_when_others_are_quieter() -> None:
    """A straggler is not the quietest rank."""
    rows = [builders.rank_row(0, quiet_s=600.0), builders.silent_row(1, quiet_s=5.0)]
    assert [group.ranks for group in silence_groups(rows)] == [(1,), (0,)]


def test_groups_split_at_the_widest_gaps() -> None:
    """Neighbours within a tenth of the longest silence are alike."""
    quiet = [0, 1, 2, 300, 301, 600]
    rows = [builders.rank_row(rank, quiet_s=float(q)) for rank, q in enumerate(quiet)]
    assert [group.ranks for group in silence_groups(rows)] == [(5,), (3, 4), (0, 1, 2)]


def test_no_more_groups_than_asked() -> None:
    """What does not fit is drawn together, and every rank is in one group."""
    rows = [builders.rank_row(rank, quiet_s=rank * 100.0) for rank in range(64)]
    for most in (2, 3, 4, 8):
        groups = silence_groups(rows, most=most)
        assert len(groups) <= most
        assert sorted(rank for group in groups for rank in group.ranks) == list(range(64))


def test_unknown_silence_is_not_silence() -> None:
    """A rank without a log is not drawn as quiet, and not left out."""
    rows = [builders.rank_row(0), builders.rank_row(1, silence_known=False, quiet_s=None)]
    known, unknown = silence_groups(rows)
    assert (known.quiet_s, unknown.quiet_s, unknown.ranks) == (0.4, None, (1,))


def test_a_healthy_job_has_no_full_bar() -> None:
    """Three seconds of quiet are not drawn like ten minutes."""
    (only,) = silence_groups([builders.rank_row(rank, quiet_s=3.0) for rank in range(8)])
    assert only.share < 0.5
    assert only.label == "8 ranks"


def test_no_rank_no_group() -> None:
    """Nothing to draw."""
    assert silence_groups([]) == ()
