"""The sections that look ahead: cost, decision, what was missing, and where this run is known by another name."""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.postmortem_card import BillLine, Postmortem
from gpufleet_cli.render.clean import cut
from gpufleet_cli.render.drain_page import spares_words
from gpufleet_cli.render.layout import counted, gpu_hours
from gpufleet_cli.render.postmortem.blocks import (
    At,
    Block,
    Cell,
    Code,
    Commands,
    Heading,
    Items,
    Para,
    Strong,
    Table,
)
from gpufleet_cli.render.words import commands_of, input_value, question_words
from gpufleet_cli.spec_check import SpecFinding

ID_WORDS = {
    "run_id": "run of the experiment tracker",
    "job_uid": "uid of the job",
    "image_digest": "image digest",
    "commit": "commit of the code",
}
MOST_FINDINGS = 40


def cost_blocks(made: Postmortem) -> Iterator[Block]:
    rows: list[tuple[Cell, ...]] = []
    for line in made.bill:
        exact = "not known" if line.gpu_hours is None else f"{line.gpu_hours:,.2f}"
        if line.gpu_hours is None and not line.counted:
            exact = "not in the sum"
        name: Cell = (Strong(line.name),) if line.name == "lost" else (line.name,)
        rows.append((name, (exact,), _counted(line)))
    yield Table(
        caption="GPU-hours, with the arithmetic",
        head=("What", "GPU-hours", "How it is counted"),
        rows=tuple(rows),
    )
    lost = made.triage.recommendation.lost_gpu_hours
    if lost is not None:
        yield Para((f"Together {gpu_hours(lost)}, as ", Code("gpufleet triage"), " counts it."))


def _counted(line: BillLine) -> Cell:
    if line.span is None:
        return (line.arithmetic,)
    since, until = line.span
    return (f"{line.arithmetic}, ", At(since), " to ", At(until), " UTC")


def decision_blocks(made: Postmortem) -> Iterator[Block]:
    advice = made.triage.recommendation
    nodes = f" for {', '.join(advice.nodes)}" if advice.nodes else ""
    yield Para(
        (Strong(f"{advice.action}{nodes}"), f", decided by the {advice.decided_by}: {advice.why}.")
    )
    if advice.would_flip:
        yield Para(("What would have flipped it: ", advice.would_flip, "."))
    yield Table(
        caption="The three questions",
        head=("Question", "Answer", "Why", "Cost"),
        rows=tuple(
            (
                (question_words(one.id),), (one.answer,), (cut(one.why),),
                (gpu_hours(one.gpu_hours_per_hour, per_hour=True) or gpu_hours(one.gpu_hours) or "not known",),
            )
            for one in advice.questions
        ),
    )  # fmt: skip
    if advice.options:
        yield Table(
            caption="The options, from now on",
            head=("Option", "Price"),
            rows=tuple(
                ((one.option,), (gpu_hours(one.gpu_hours) or "no price",)) for one in advice.options
            ),
        )
    if advice.inputs:
        yield Table(
            caption="Inputs of the arithmetic",
            head=("Input", "Value", "From"),
            rows=tuple(
                ((one.name.replace("_", " "),), (input_value(one),), (one.source,))
                for one in advice.inputs
            ),
        )
    if advice.restart is not None:
        yield Para((f"Without {advice.restart.node}: {spares_words(advice.restart.spares)}",))
    if commands := commands_of(made.triage):
        yield Para(("What triage would have you paste:",))
        yield Commands(commands)


# --- What was missing -----------------------------------------------------------------------------


def missing_blocks(made: Postmortem) -> Iterator[Block]:
    if made.lacking:
        yield Table(
            caption="Evidence that was not there",
            head=("What", "Why not", "What it would settle", "How to have it next time"),
            rows=tuple(
                (
                    (cut(one.gap.what),), (cut(one.gap.why),), (cut(one.gap.would_settle) or "nothing more",),
                    (one.remedy,),
                )
                for one in made.lacking
            ),
        )  # fmt: skip
        left = len(made.triage.missing) - len(made.lacking)
        if left > 0:
            yield Para((f"And {counted(left, 'more gap')}.",), "soft")
    else:
        yield Para(("Nothing that a triage asks for was missing.",))
    yield Heading("Preflight of this job")
    yield from _preflight(made)


def _preflight(made: Postmortem) -> Iterator[Block]:
    found = made.specs
    if found is None:
        where: Cell = (Code("gpufleet preflight JOB"), " checks the job in its cluster.")
        yield Para(("No pod spec is in the evidence. ", *where))
        return
    yield Para((f"Checked: {made.specs_read_as}.",), "soft")
    stands = [one for one in found.findings if one.severity != "info"][:MOST_FINDINGS]
    notes = [one for one in found.findings if one.severity == "info"][:MOST_FINDINGS]
    if not stands:
        yield Para(("Nothing in it stands at warning or above.",))
    else:
        yield Table(
            caption="Findings, worst first",
            head=("Finding", "Severity", "What", "How to mend it", "Where"),
            rows=tuple(
                (
                    (Code(one.id),), (one.severity,), (f"{cut(one.message, 300)} ({cut(one.why, 200)})",),
                    (cut(one.fix, 300),), _places(one),
                )
                for one in stands
            ),
            marks=tuple("bad" if one.severity == "error" else "" for one in stands),
        )  # fmt: skip
    if notes:
        yield Para((f"{counted(len(notes), 'note')} besides:",))
        yield Items(tuple((Code(one.id), f": {cut(one.message)}; {cut(one.fix)}") for one in notes))
    if found.silenced:
        reasons: tuple[Cell, ...] = tuple(
            (Code(one.finding.id), f": {one.reason} ({one.by})") for one in found.silenced
        )
        yield Para((f"{counted(len(found.silenced), 'finding')} silenced:",))
        yield Items(reasons)


def _places(one: SpecFinding) -> Cell:
    left = len(one.where) - 2
    return (Code(cut("; ".join(one.where[:2]), 200)), f" and {left} more" if left > 0 else "")


def tracking_blocks(made: Postmortem) -> Iterator[Block]:
    if not made.tracking:
        yield Para(
            ("No run id, job uid, image digest or commit stands in the objects of the evidence.",)
        )
        return
    yield Table(
        caption="Names by which other systems know this run",
        head=("What", "Value", "Under", "Where"),
        rows=tuple(
            ((ID_WORDS[one.kind],), (Code(one.value),), (Code(one.name),), (cut(one.source),))
            for one in made.tracking
        ),
    )
