"""The first screen: verdict on top, 80 columns, 23 lines, nothing hostile in it."""

from __future__ import annotations

import re

import builders
import pytest

from gpufleet_cli.node_card import Spares
from gpufleet_cli.render.layout import WIDTH, Look, cell_width
from gpufleet_cli.render.terminal import SCREEN_LINES, render
from gpufleet_cli.verdict import Action, Command, GpuRef, Kind, Question, RestartView, Triage

PLAIN = Look()
ASCII = Look(unicode=False)
COLOR = Look(color=True)

SCREENS = {
    "hardware": builders.triage(),
    "mismatch": builders.mismatch_triage(),
    "undecidable": builders.undecidable_triage(),
}
LONG = "an-extraordinarily-long-name-that-somebody-gave-to-a-thing-" * 4
HOSTILE = (
    "x\x1b[31m\x1b]0;t\x07\r\x08\x9b2J\u202e\u2066\u200b[red]<b onload=x>&amp;`$(reboot)`;rm -rf\n/"
)


def long_named() -> Triage:
    """Every name as long as Kubernetes allows."""
    culprits = tuple(
        builders.culprit(rank, pod=LONG, node=LONG, gpu=GpuRef(index=0, uuid=LONG))
        for rank in range(6)
    )
    return builders.triage(
        target_name=LONG,
        target_namespace=LONG,
        job=builders.job(name=LONG, namespace=LONG, state_why=LONG),
        verdict=builders.verdict(
            culprits=culprits,
            summary=f"{LONG} {LONG} {LONG}",
            would_settle=LONG,
            ruled_out=(LONG,) * 3,
        ),
        ranks=tuple(builders.rank_row(rank, pod=LONG, node=LONG, note=LONG) for rank in range(20)),
        recommendation=builders.recommendation(
            nodes=(LONG,) * 4,
            questions=tuple(
                Question(id=one.id, answer="unknown", why=LONG + " " + LONG, gpu_hours=1e7)
                for one in builders.questions()
            ),
            why=LONG,
            would_flip=LONG,
        ),
        missing=(builders.gap(what=LONG, why=LONG),) * 9,
    )


def hostile() -> Triage:
    """Every text that evidence can reach, full of what a terminal or a page would obey."""
    text = HOSTILE
    return builders.triage(
        target_name=text,
        job=builders.job(name=text, namespace=text, state_why=text),
        verdict=builders.verdict(
            kind=Kind.UNDECIDABLE,
            culprits=(builders.culprit(pod=text, node=text, gpu=GpuRef(index=0, pci_bus_id=text)),),
            summary=text,
            evidence=(builders.claim(text, origin=builders.origin(text)),),
            would_settle=text,
            settle_command=f"cat '{text}'",
            ruled_out=(text,),
        ),
        ranks=(builders.rank_row(0, pod=text, node=text, note=text, last_text=text),),
        recommendation=builders.recommendation(
            nodes=(text,),
            why=text,
            would_flip=text,
            commands=(Command(run=text, stops_job=True, note=text),),
        ),
        missing=(builders.gap(what=text, why=text),),
    )


def lines_of(triage: Triage, look: Look = PLAIN) -> list[str]:
    return render(triage, look).splitlines()


@pytest.mark.parametrize("name", SCREENS)
@pytest.mark.parametrize("look", [PLAIN, ASCII], ids=["unicode", "ascii"])
def test_screen_fits(name: str, look: Look) -> None:
    """80x24, with a line left for the prompt."""
    lines = lines_of(SCREENS[name], look)
    assert len(lines) <= SCREEN_LINES
    assert max(cell_width(line) for line in lines) <= WIDTH


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("look", [PLAIN, ASCII], ids=["unicode", "ascii"])
def test_long_names_fit(look: Look, verbose: bool) -> None:
    """Everything but a command is at most 80 wide, whatever things are called."""
    shown = Look(unicode=look.unicode, verbose=verbose)
    commands = {command.run for command in long_named().recommendation.commands}
    for line in lines_of(long_named(), shown):
        assert cell_width(line) <= WIDTH or line.split("  #")[0].strip() in commands


def test_long_names_keep_the_screen() -> None:
    """Explanations give way, the verdict and the commands do not."""
    lines = lines_of(long_named())
    assert len(lines) <= SCREEN_LINES + 6
    assert lines[2].strip().startswith("EVICT NOW")
    assert any("gpufleet cordon" in line for line in lines)


def test_wide_characters_count_twice() -> None:
    """A name in Chinese must not push the line over."""
    triage = builders.triage(job=builders.job(name="训练任务" * 12, namespace="空间"))
    assert max(cell_width(line) for line in lines_of(triage)) <= WIDTH


def test_verdict_stands_on_top() -> None:
    """Action, node, kind and confidence in the third line."""
    first, _, verdict, *_ = lines_of(SCREENS["hardware"])
    assert first == "train-run-7 in train · 1,024 ranks on 128 nodes · aborted 03:51:19 UTC"
    assert verdict.split() == [
        "EVICT",
        "NOW",
        "gpu-node-0417",
        "hardware",
        "·",
        "confidence",
        "0.97",
    ]


def test_hardware_screen_says_all_of_it() -> None:
    """Who, where, since when, what it costs, what to paste, what was not seen."""
    text = render(SCREENS["hardware"], PLAIN)
    for said in ("rank 800", "train-run-7-worker-100", "GPU 0 (0000:4e:00.0)", "10m12s",
                 "1,023 more", "rank 344, 6 error lines", "1,024 GPU-h/h", "512 GPU-h",
                 "495 GPU-h: 174 waiting, 321 to recompute",
                 "gpufleet cordon gpu-node-0417 --reason 'XID 79'", "stops nothing",
                 "gpufleet evict train-run-7 -n train", "the job is down already",
                 "flight recorder dump of rank 800"):  # fmt: skip
        assert said in text


def test_undecidable_screen_says_who_it_could_be() -> None:
    """And what is ruled out, and the one command that would settle it, on a line of its own."""
    lines = lines_of(SCREENS["undecidable"])
    text = "\n".join(lines)
    assert "could be  ranks 8-15 on gpu-node-0318" in text
    assert "ruled out 56 ranks" in text
    assert "to settle the Flight Recorder dumps" in text
    assert "  gpufleet collect train-run-7 -n train --dumps exec:/tmp/nccl_trace_" in lines


def test_runner_up_is_shown_when_it_is_close() -> None:
    """A reader must know that the second explanation is nearly as good."""
    alternatives = builders.verdict().alternatives
    close = builders.verdict(alternatives=(alternatives[0].__class__(
        kind=Kind.NETWORK, ranks=(5,), nodes=(), confidence=0.3, why_less_likely=""),))  # fmt: skip
    assert "or else   network, rank 5 (confidence 0.30)" in render(
        builders.triage(verdict=close), PLAIN
    )
    assert "or else" not in render(builders.triage(), PLAIN)


def test_command_longer_than_the_screen_is_not_wrapped() -> None:
    """It is there to be pasted; its note stands above it."""
    run = "gpufleet cordon " + "n" * 90
    advice = builders.recommendation(commands=(Command(run=run, stops_job=True),))
    lines = lines_of(builders.triage(recommendation=advice))
    assert f"  {run}" in lines
    assert "  # stops the job" in lines


def test_notes_are_comments_of_the_shell() -> None:
    """Pasting a whole line runs the command alone."""
    for line in lines_of(SCREENS["hardware"]):
        if "gpufleet cordon" in line or "gpufleet evict" in line:
            assert "  # " in line


def test_nothing_hostile_is_left() -> None:
    """No control, escape, direction or zero-width character survives, in any look."""
    for look in (PLAIN, ASCII, Look(verbose=True)):
        text = render(hostile(), look)
        assert not [char for char in text if not char.isprintable() and char != "\n"]
        assert "\\u001b" in text
        assert "\\u202e" in text


def test_color_is_ours_alone() -> None:
    """Escapes in a coloured report are the six that we know, and taking them out gives the plain one."""
    text = render(hostile(), COLOR)
    assert re.sub(r"\x1b\[(?:0|2|1|1;3[1236])m", "", text) == render(hostile(), PLAIN)


@pytest.mark.parametrize(
    ("action", "code"),
    [(Action.EVICT_NOW, "1;31"), (Action.CORDON_AT_CHECKPOINT, "1;33"), (Action.NONE, "1;32"),
     (Action.COLLECT_MORE, "1;36")],
)  # fmt: skip
def test_color_means_something(action: Action, code: str) -> None:
    """Red: act. Yellow: care. Green: nothing. Cyan: not known."""
    triage = builders.triage(recommendation=builders.recommendation(action))
    assert f"\x1b[{code}m" in render(triage, COLOR).splitlines()[2]


def test_rich_markup_is_shown_as_it_is() -> None:
    """Evidence is never markup."""
    assert "[red]" in render(hostile(), PLAIN)


def test_ascii_is_ascii() -> None:
    """A terminal without UTF-8 gets bars of `#` and no question marks."""
    text = render(SCREENS["hardware"], ASCII)
    assert text.isascii()
    assert "#" * 28 in text


def test_text_is_the_same_twice() -> None:
    """Same triage, same bytes."""
    assert render(SCREENS["hardware"], PLAIN) == render(SCREENS["hardware"], PLAIN)


def test_bare_triage_is_a_screen_too() -> None:
    """Nothing known: no rank, no name, no numbers."""
    nothing = builders.triage(
        target_name=None, target_namespace=None, as_of_ns=None, ranks=(), hardware=(), missing=(), files=(),
        dumps=None,
        job=builders.job(name=None, namespace=None, world_size=None, nodes=None, ended_ns=None),
        verdict=builders.verdict(kind=Kind.UNDECIDABLE, culprits=(), alternatives=(), evidence=(),
                                 loudest=(), witness_count=0, summary="Nothing was read."),
        recommendation=builders.recommendation(Action.COLLECT_MORE, nodes=(), questions=(), options=(),
                                               commands=(), inputs=(), lost_gpu_hours=None),
    )  # fmt: skip
    lines = lines_of(nothing, Look(verbose=True))
    assert lines[0] == "this job · aborted"
    assert "COLLECT MORE" in lines[2]


def test_rank_without_number_is_not_rank_zero() -> None:
    """The node may be known where the rank is not, and rank 0 is a rank."""
    unknown = builders.triage(verdict=builders.verdict(culprits=(builders.culprit(None),)))
    assert "rank not known" in render(unknown, PLAIN)
    zero = builders.triage(verdict=builders.verdict(culprits=(builders.culprit(0),)))
    assert "  rank 0  " in render(zero, PLAIN)
    assert "explain --rank 0" in render(zero, PLAIN).replace("\n  ", " ")


def test_verbose_adds_what_the_verdict_stands_on() -> None:
    """Claims with origin, alternatives, witnesses, events, options, inputs, gaps and files."""
    text = render(SCREENS["hardware"], Look(verbose=True))
    for said in ("Evidence", "kernel/gpu-node-0417.log:12", "Less likely", "0.02  network",
                 "Loud, and innocent", "Hardware events", "Options", "wait-for-boundary  no price",
                 "would flip", "checkpoint interval", "(file)", "(default)", "Not seen", "Files",
                 "not understood: notes.bin"):  # fmt: skip
        assert said in text


def test_ranks_of_which_nothing_else_is_known_share_a_line() -> None:
    """Dumps alone tell ranks and no machine."""
    bare = tuple(
        builders.culprit(rank, pod=None, node=None, gpu=GpuRef(), local_rank=None)
        for rank in (9, 14)
    )
    text = render(builders.triage(verdict=builders.verdict(culprits=bare)), PLAIN)
    assert "  ranks 9, 14\n" in text


def test_gap_of_the_culprit_is_the_one_that_is_named() -> None:
    """Of many things not seen the one that matters most stands on the screen."""
    gaps = (
        *(builders.gap(what=f"file {n}") for n in range(3)),
        builders.gap(what="log of rank 800"),
    )
    others = tuple(gap.__class__(what=gap.what, why=gap.why, rank=None) for gap in gaps[:3])
    text = render(builders.triage(missing=(*others, gaps[3])), PLAIN)
    assert "Not seen: log of rank 800 and 3 more." in text


def test_loudest_witness_stands_below_the_bars_when_it_does_not_fit() -> None:
    """Never cut in the middle of a name."""
    loud = (
        builders.verdict()
        .loudest[0]
        .__class__(rank=344, error_lines=6, why_innocent="waited " * 12)
    )
    lines = lines_of(builders.triage(verdict=builders.verdict(loudest=(loud,))))
    at = next(number for number, line in enumerate(lines) if "1,023 more" in line)
    assert lines[at].endswith("0.4s")
    assert lines[at + 1].strip().startswith("loudest: rank 344")


@pytest.mark.parametrize("places", [True, False, None])
def test_whether_a_restart_places_is_one_line(places: bool | None) -> None:
    """Unless it could not be told: then the screen says nothing of it. The page keeps its height."""
    spares = Spares(places=places, why="quota: " + "long " * 40, nodes=("gpu-1",), spare_nodes=1)
    advice = builders.recommendation(restart=RestartView(node=builders.NODE, spares=spares))
    lines = lines_of(builders.triage(recommendation=advice))
    told = [line for line in lines if line.startswith("  a restart ")]
    assert len(told) == (places is not None)
    assert len(lines) <= SCREEN_LINES
    assert all(cell_width(line) <= WIDTH for line in told)
