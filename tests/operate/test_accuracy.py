"""The accuracy benchmark: short rules on small files, figures, and the page that keeps what a hand wrote."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from benchmarks import accuracy_baselines as baselines
from benchmarks import accuracy_tables as tables


def dump(enqueued: int) -> bytes:
    status = {"0": {"last_enqueued_collective": enqueued}}
    return pickle.dumps({"version": "2.4", "pg_config": {}, "entries": [], "pg_status": status})


FILES = {
    "logs/rank_0.log": b"2026-01-01 10:00:00 step 1\n2026-01-01 10:09:00 ERROR: timeout\n",
    "logs/rank_1.log": b"2026-01-01 10:00:01 step 1\n",
    "logs/rank_2.log": b"2026-01-01 10:00:02 step 1\n2026-01-01 10:08:00 Traceback\n",
    "dumps/rank_0": dump(7),
    "dumps/rank_1": dump(6),
    "dumps/rank_2": dump(6),
    "dumps/rank_3": b"\x80\x02cos\nsystem\n(S'true'\ntR.",
}


def test_short_rules() -> None:
    """Who fell silent first, who has the lowest number (of two the lower), who complained first."""
    found = baselines.named(FILES, Path(), size=4, analyser=None)
    assert found == {baselines.SILENT: 1, baselines.LOWEST: 1, baselines.LOUD: 2}


def test_short_rules_without_files_name_nobody() -> None:
    """Nobody is not rank 0."""
    found = baselines.named({}, Path(), size=4, analyser=None)
    assert set(found.values()) == {None}


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (
            "logs/pods/ml_job-worker-2_uid/pytorch/0.log",
            b"2026-01-01T10:00:00Z stderr F [default5]:x",
        ),
        ("logs/job-worker-2.log", b"2026-01-01T10:00:00Z [rank21]: x"),
        ("logs/kubectl-logs.txt", b"[pod/job-worker-2/pytorch] 2026-01-01T10:00:00Z [default5]:x"),
        ("logs/stern.txt", b"job-worker-2 pytorch 2026-01-01T10:00:00Z [default5]:x"),
        ("logs/slurm-4.out", b"21: 2026-01-01 10:00:00 x"),
        (
            "logs/loki-query-range.json",
            json.dumps(
                {
                    "data": {
                        "result": [
                            {
                                "stream": {"pod": "job-worker-2"},
                                "values": [["1767261600000000000", "[default5]:x"]],
                            }
                        ]
                    }
                }
            ).encode(),
        ),
    ],
)
def test_whose_line(path: str, content: bytes) -> None:
    """Rank 21 of 64 is local rank 5 of the third pod, however the line is wrapped."""
    found = [(rank, at) for rank, at, _text in baselines.log_lines({path: content}, 64)]
    assert found == [(21, 1767261600.0)]


def test_what_the_analyser_names() -> None:
    """Its first finding; the lowest of several missing ranks; nobody when it found nothing."""
    assert baselines.analyser_names("Culprit rank 9; Error\n missing ranks: {1}") == 9
    assert baselines.analyser_names("missing ranks: {12, 4}") == 4
    assert baselines.analyser_names("No errors found") is None


def test_shares_in_words() -> None:
    """With the interval; nothing of nothing is a dash."""
    assert str(tables.Share(count=8, total=10)) == "8/10 80% [49-94]"
    assert str(tables.Share(count=0, total=0)) == "-"


def test_the_page_keeps_what_a_hand_wrote(tmp_path: Path) -> None:
    """Figures are replaced, the sections between the markers are not."""
    found = tables.results([], lost=(0.0,), command="python benchmarks/accuracy.py")
    page = tmp_path / "docs" / "accuracy.md"
    tables.write_page(page, found)
    empty = page.read_text(encoding="utf-8")
    written = empty.replace(
        "<!-- by hand: misses -->\n", "<!-- by hand: misses -->\nTwo faults at once.\n\n"
    )
    page.write_text(written.replace("## Overall", "## Old figures"), encoding="utf-8")
    tables.write_page(page, found)
    assert page.read_text(encoding="utf-8") == written
