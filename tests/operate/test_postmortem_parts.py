"""The parts of a postmortem: times, silence, waiting, lines, each on a few facts of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builders import SECOND, SILENT_NS, dumps_report, rank_rows, triage, verdict
from page_check import faults

from gpufleet_cli.bundle import Evidence
from gpufleet_cli.evidence import Target
from gpufleet_cli.facts import Fact, JobNumbers, Origin
from gpufleet_cli.operate.postmortem.quotes import Lines, Stretch, last_lines, quoted
from gpufleet_cli.operate.postmortem.record import postmortem
from gpufleet_cli.operate.postmortem.silence_map import MOST_ROWS, silence_map
from gpufleet_cli.operate.postmortem.waiting import MOST_BOXES, waiting
from gpufleet_cli.postmortem_card import Instant, Times
from gpufleet_cli.render.postmortem import html
from gpufleet_cli.triage import inquire
from gpufleet_cli.verdict import CollectiveRef, GroupReport, Kind

TIMES = Times(
    first_cause=Instant(at_ns=SILENT_NS, why="it fell silent"),
    detected=Instant(at_ns=SILENT_NS + 600 * SECOND, why="a watchdog"),
    diagnosed=Instant(at_ns=None, why=""),
    recovered=Instant(at_ns=None, why=""),
    ended_ns=SILENT_NS + 612 * SECOND,
)


def target(**files: str) -> Target:
    return Target(
        kind="directory",
        name="t",
        evidences=tuple(
            Evidence(path=f"{name}.log", size_bytes=len(text), content=text.encode())
            for name, text in sorted(files.items())
        ),
        gaps=(),
    )


# --- Silence --------------------------------------------------------------------------------------


def test_a_thousand_alike_are_one_row() -> None:
    """The culprit by itself, its neighbours, and all others together."""
    found = silence_map(triage(ranks=rank_rows(1024)), TIMES)
    assert found.rows[0].ranks == (800,)
    assert found.rows[0].tone == "culprit"
    assert len(found.rows) <= 3
    assert sum(len(row.ranks) for row in found.rows) == 1024
    assert sum(len(tile.ranks) for tile in found.tiles) == 1024


def test_as_many_silences_as_ranks_stay_few_rows() -> None:
    """What does not fit is drawn together, and no rank is lost."""
    rows = tuple(
        replace(row, last_write_ns=SILENT_NS + (row.rank * 7 % 600) * SECOND, standing="silent")
        for row in rank_rows(512)
    )
    found = silence_map(triage(ranks=rows), TIMES)
    assert len(found.rows) <= MOST_ROWS
    assert sum(len(row.ranks) for row in found.rows) == 512


def test_unknown_silence_is_no_silence() -> None:
    """Without a time of any rank nothing is drawn over time, and the tiles are still there."""
    rows = tuple(
        replace(row, last_write_ns=None, silence_known=False, standing="unknown")
        for row in rank_rows(16)
    )
    found = silence_map(triage(ranks=rows), TIMES)
    assert (found.start_ns, found.end_ns) == (None, None)
    assert {row.tone for row in found.rows} == {"unknown"}
    assert len([rank for tile in found.tiles for rank in tile.ranks]) == 16


# --- Waiting --------------------------------------------------------------------------------------


def group(
    name: str, waiting: tuple[int, ...], behind: tuple[int, ...], seq: int = 7
) -> GroupReport:
    return GroupReport(
        name=name, desc=f"tp_{name}", members=(*waiting, *behind), op="ALLREDUCE", seq=seq,
        waiting=waiting, behind=behind, missing=(), note="",
    )  # fmt: skip


def test_groups_of_one_kind_that_lead_to_one_end_are_one_box() -> None:
    """Sixty-four tensor groups that wait for the culprit's group, and that for the culprit."""
    others = [group(str(n), (10 * n, 10 * n + 1), (802,)) for n in range(1, 65)]
    report = replace(
        dumps_report(), groups=(*others, group("own", (801, 802), (800,), seq=9)), missing=()
    )
    found = waiting(triage(ranks=rank_rows(1024), dumps=report))
    assert found is not None
    assert [box.kind for box in found.boxes] == ["waits", "waits", "culprit"]
    assert len(found.boxes[0].ranks) == 128
    assert found.arrows == ((0, 1), (1, 2))


def test_an_arrow_that_others_lead_to_is_left_out() -> None:
    """Who waits for A through B is drawn to B alone."""
    report = replace(
        dumps_report(), missing=(),
        groups=(group("a", (1,), (2, 800)), group("b", (2,), (800,), seq=8)),
    )  # fmt: skip
    found = waiting(triage(ranks=rank_rows(1024), dumps=report))
    assert found is not None
    assert found.arrows == ((0, 1), (1, 2))


def test_a_circle_ends() -> None:
    """Ranks that wait for one another are drawn as such."""
    groups = (group("a", (1,), (2,)), group("b", (2,), (1,), seq=8))
    report = replace(dumps_report(), groups=groups, missing=())
    found = waiting(triage(ranks=rank_rows(8), dumps=report))
    assert found is not None
    assert set(found.arrows) == {(0, 1), (1, 0)}


def test_a_great_many_kinds_are_cut() -> None:
    """And their number is told."""
    groups = tuple(
        replace(group(str(n), (n,), (800,)), op=f"OP{chr(65 + n % 26)}{chr(65 + n // 26)}")
        for n in range(60)
    )
    report = replace(dumps_report(), groups=groups, missing=())
    found = waiting(triage(ranks=rank_rows(1024), dumps=report))
    assert found is not None
    assert len([box for box in found.boxes if box.kind == "waits"]) == MOST_BOXES
    assert found.left_out == 60 - MOST_BOXES


def test_without_dumps_the_watchdogs_tell() -> None:
    """Witnesses by their collective, and the culprit at whom they point."""
    rows = tuple(
        replace(row, standing="witness", collective=CollectiveRef(op="ALLREDUCE", seq=88214))
        if row.standing != "culprit"
        else row
        for row in rank_rows(16)
    )
    found = waiting(triage(ranks=rows, dumps=None))
    assert found is not None
    assert found.boxes[0].title.endswith("wait in ALLREDUCE 88214")
    assert found.boxes[-1].kind == "culprit"


def test_nobody_waits() -> None:
    """No picture of nothing."""
    assert waiting(triage(dumps=None, verdict=verdict(Kind.HEALTHY, culprits=()), ranks=())) is None


# --- Lines ----------------------------------------------------------------------------------------

MERGED = "\n".join(f"[rank{n % 4}]: line {n}" for n in range(40)) + "\n[rank1]: its end\n"


def test_of_a_merged_log_the_rank_alone() -> None:
    """By the tag of its lines; the last ordinary one is marked."""
    lines = Lines(target(merged=MERGED))
    stretch = Stretch(path="merged.log", normal=38, last=41, known=frozenset(), alone=False)
    found = last_lines(lines, stretch)
    assert all(line.text.startswith("[rank1]") for line in found)
    assert [line.number for line in found if line.mark] == [38]
    assert found[-1].text == "[rank1]: its end"


def test_a_progress_bar_shows_its_last_state() -> None:
    """Thousands of states on one line are one of them."""
    bar = "\r".join(f"{n}%" for n in range(101))
    lines = Lines(target(bar=bar + "\n"))
    assert lines.line(Origin(path="bar.log", line=1)) == "100%"


def test_lines_of_a_large_file_are_those_of_the_file(tmp_path: Path) -> None:
    """Found by counting, wherever a chunk ends; the last one without a newline too."""
    rows = [f"line {n} {'x' * (n * 37 % 500)}" for n in range(5_000)]
    rows[17], rows[4_000] = "", "y" * 200_000
    file = tmp_path / "big.log"
    file.write_text("\n".join(rows))
    data = file.read_bytes()
    on_disk = Evidence(path="big.log", size_bytes=len(data), file=file)
    for evidence in (on_disk, Evidence(path="big.log", size_bytes=len(data), content=data)):
        found = Lines(replace(target(), evidences=(evidence,))).of("big.log")
        assert len(found) == 5_000
        for n in (0, 1, 16, 17, 18, 2_500, 3_999, 4_001, 4_999):
            assert found[n] == rows[n].encode()
        assert found[4_000] == b"y" * 65_536


def test_a_long_progress_bar_shows_its_end() -> None:
    """However long the line is."""
    bar = "\r".join(f"{n} of 100000" for n in range(100_001))
    assert Lines(target(bar=bar)).line(Origin(path="bar.log", line=1)) == "100000 of 100000"


def test_two_bytes_a_character() -> None:
    """UTF-16, as PowerShell writes it, is quoted as text."""
    data = "first\nsecond\n".encode("utf-16")
    wide = Evidence(path="w.log", size_bytes=len(data), content=data)
    lines = Lines(replace(target(), evidences=(wide,)))
    assert lines.line(Origin(path="w.log", line=2)) == "second"


def test_lines_that_are_not_there() -> None:
    """A place beyond the end, in no file, or without a line has no text."""
    lines = Lines(target(a="one\n"))
    places = [
        Origin(path="a.log", line=9),
        Origin(path="b.log", line=1),
        Origin(path="a.log", entry=0),
    ]
    assert set(quoted(lines, places).values()) == {None}
    assert quoted(lines, [Origin(path="a.log", line=1)]) == {Origin(path="a.log", line=1): "one"}


# --- The whole ------------------------------------------------------------------------------------


def written_up(files: Target) -> tuple[Times, str]:
    numbers: Fact = JobNumbers(source="flag")
    assert isinstance(numbers, JobNumbers)
    made = postmortem(inquire(files, numbers, strict=True), files)
    return made.times, html.render(made)


def test_no_time_in_the_whole_evidence() -> None:
    """Nothing is made up: both times are not known, with the reason, and the page is whole."""
    told, page = written_up(target(rank_0="step: 1 loss: 2.0\nRuntimeError: no time here\n"))
    assert told.first_cause.at_ns is None
    assert told.first_cause.why
    assert faults(page) == []


@pytest.mark.parametrize("text", ["", "\n", "\x00" * 100, "nothing at all"])
def test_evidence_that_says_nothing(text: str) -> None:
    """A page all the same."""
    _, page = written_up(target(rank_0=text))
    assert faults(page) == []


def test_a_page_of_16384_ranks() -> None:
    """Each node a tile: it stays small enough to send."""
    base = inquire(target(rank_0="step: 1 loss: 2.0\n"), JobNumbers(source="flag"), strict=True)
    found = replace(base, triage=triage(ranks=rank_rows(16_384)))
    page = html.render(postmortem(found, target(rank_0="step: 1 loss: 2.0\n")))
    assert len(page.encode()) < 2_000_000
    assert faults(page) == []
