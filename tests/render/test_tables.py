"""`ranks`, `dumps` and `explain`."""

from __future__ import annotations

import json
from dataclasses import replace

import builders
import pytest

from gpufleet_cli.render import dumps_table, explain_card, ranks_table
from gpufleet_cli.render.layout import WIDTH, Look, cell_width
from gpufleet_cli.triage import explain
from gpufleet_cli.verdict import CollectiveRef, Kind

LOOK = Look()
LONG = "a-name-of-a-pod-that-goes-on-and-on-" * 6


def test_most_silent_rank_comes_first() -> None:
    """And those whose silence nobody knows come last."""
    rows = (
        builders.rank_row(0),
        builders.silent_row(1),
        builders.rank_row(2, quiet_s=None, silence_known=False),
    )
    assert [row.rank for row in ranks_table.by_silence(rows)] == [1, 0, 2]


def test_every_rank_is_a_line() -> None:
    """The culprit carries a mark; above them stands how they were placed."""
    lines = ranks_table.render(builders.triage(), LOOK).splitlines()
    assert lines[1].startswith("placed by: ")
    assert lines[1].endswith("(1,024)")
    assert len(lines) == 1024 + 3
    assert lines[3].split()[:3] == ["!", "800", "10m12s"]
    assert "ALLREDUCE 88213" in lines[3]
    assert lines[3].endswith("gpu-node-0417")


@pytest.mark.parametrize("verbose", [False, True])
def test_tables_fit(verbose: bool) -> None:
    """80 columns, whatever things are called; the ends of names stay."""
    row = builders.silent_row(
        16_383, pod=LONG + "worker-7", node=LONG + "node-9", note=LONG, last_text=LONG, last_step=10**9,
        collective=CollectiveRef(group=LONG, desc=LONG, op="_REDUCE_SCATTER_BASE" * 2, seq=10**9),
        origin=builders.origin(LONG),
    )  # fmt: skip
    triage = builders.triage(
        ranks=(row,), dumps=builders.dumps_report(finding=LONG, versions=(LONG,))
    )
    for look in (Look(verbose=verbose), Look(verbose=verbose, unicode=False)):
        for text in (ranks_table.render(triage, look), dumps_table.render(triage, look),
                     explain_card.render(builders.explanation(row=row, headline=LONG), look)):  # fmt: skip
            assert max(cell_width(line) for line in text.splitlines()) <= WIDTH
    assert "worker-7" in ranks_table.render(triage, LOOK)


def test_no_rank_is_said() -> None:
    """An empty table is a sentence."""
    assert "no rank is known" in ranks_table.render(builders.triage(ranks=()), LOOK)
    assert "no Flight Recorder dump" in dumps_table.render(builders.triage(dumps=None), LOOK)


def test_ranks_json_has_all_of_it() -> None:
    """One document, quietest first."""
    report = json.loads(ranks_table.render_json(builders.triage(), LOOK))
    assert report["schema"] == "gpufleet.ranks/v1"
    first = report["ranks"][0]
    assert (first["rank"], first["standing"], first["quiet_seconds"]) == (800, "culprit", 612.3)
    assert first["last_sign_at"] == "2026-03-11T03:41:07.118Z"
    assert len(report["ranks"]) == 1024


def test_dumps_says_who_waits_for_whom() -> None:
    """The finding, then each group in which somebody waits."""
    text = dumps_table.render(builders.triage(), Look(verbose=True))
    assert "1,023 ranks wait in ALLREDUCE 88214 of default_pg for rank 800" in text
    assert "waiting  1,023 ranks: 0-799, 801-1023" in text
    assert "rank 800  waited for by 0-7 in ALLREDUCE 88214" in text


def test_dumps_json() -> None:
    """With the edges, and with nothing when there was no dump."""
    report = json.loads(dumps_table.render_json(builders.triage(), LOOK))
    assert (report["dumps"], report["roots"], report["edges_count"]) == (1023, [800], 8)
    assert report["groups"][0]["behind"] == [800]
    none = json.loads(dumps_table.render_json(builders.triage(dumps=None), LOOK))
    assert (none["dumps"], none["groups"]) == (0, [])


def test_quiet_counts_from_the_time_beside_it() -> None:
    """A witness that complained to the end wrote last then, whenever its last ordinary line was."""
    ordinary = builders.SILENT_NS
    row = builders.rank_row(
        3, last_write_ns=ordinary + 600 * 10**9, last_sign_ns=ordinary, quiet_s=12.0
    )
    text = ranks_table.render(builders.triage(ranks=(row,)), LOOK)
    assert " 12s 03:51:07 " in text
    card = explain_card.render(builders.explanation(3, row=row), LOOK)
    assert "last write   2026-03-11 03:51:07" in card
    assert "last sign    2026-03-11 03:41:07 UTC: its last line that is no complaint" in card


def test_explain_says_why() -> None:
    """The answer, what is known, the claims with their origins, and what would turn it."""
    text = explain_card.render(builders.explanation(), LOOK)
    for said in ("rank 800  CULPRIT", "Rank 800 is the culprit", "quiet for    10m12s",
                 "logs/train-run-7-worker-100.log:4113", "would change it"):  # fmt: skip
        assert said in text


def test_explain_of_a_silent_rank_says_who_explains_it() -> None:
    """Others do only where somebody is blamed; undecidable, it says what would settle it."""
    quiet = builders.silent_row(3, standing="silent")
    blamed = builders.triage(ranks=(quiet,))
    assert "others explain it better" in explain(blamed, 3).headline
    nobody = replace(blamed, verdict=replace(blamed.verdict, kind=Kind.NETWORK, culprits=()))
    assert "no rank is to blame" in explain(nobody, 3).headline
    told = explain(replace(builders.undecidable_triage(), ranks=(quiet,)), 3)
    assert "singles nobody out" in told.headline
    assert told.would_change.startswith("the Flight Recorder dumps of gpu-node-0318 (gpufleet ")


def test_explain_of_a_rank_that_nobody_saw() -> None:
    """Unknown is an answer."""
    unknown = builders.explanation(7, row=None, standing="unknown", reasons=(), would_change="")
    assert "rank 7  UNKNOWN" in explain_card.render(unknown, LOOK)
    assert json.loads(explain_card.render_json(unknown, LOOK))["known"] is None


def test_hostile_text_is_visible() -> None:
    """In the tables as everywhere."""
    row = builders.silent_row(0, pod="p\x1b[2J", node="n\u202e", last_text="t\x07[red]")
    triage = builders.triage(ranks=(row,), dumps=builders.dumps_report(finding="f\x9b"))
    look = Look(verbose=True)
    for text in (ranks_table.render(triage, look), ranks_table.render_json(triage, look),
                 dumps_table.render(triage, look), dumps_table.render_json(triage, look),
                 explain_card.render(builders.explanation(row=row), look)):  # fmt: skip
        assert not [char for char in text if not char.isprintable() and char != "\n"]
