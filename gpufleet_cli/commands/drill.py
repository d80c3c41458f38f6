"""`gpufleet drill`: an incident with a known truth, to practise on. Imported when it runs: the simulator."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpufleet_cli.commands.options import one_of
from gpufleet_cli.commands.output import emit, look
from gpufleet_cli.commands.progress import announced, shown
from gpufleet_cli.errors import TargetError, UsageError
from gpufleet_cli.settings import Settings

if TYPE_CHECKING:
    from gpufleet_cli.operate.simulate.answers import Answer
    from gpufleet_cli.operate.simulate.drill_id import Drill
    from gpufleet_cli.operate.simulate.world import World
    from gpufleet_cli.render.drill_page import Briefing
    from gpufleet_cli.render.layout import Look
    from gpufleet_cli.verdict import Triage


def _classes() -> list[str]:
    from gpufleet_cli.operate.simulate.story import Class

    return [str(cls) for cls in Class]


def _kinds() -> list[str]:
    from gpufleet_cli.verdict import Kind

    return [str(kind) for kind in Kind]


def _actions() -> list[str]:
    from gpufleet_cli.verdict import Action

    return [str(action) for action in Action]


def drill(
    *,
    cls: Annotated[
        str | None,
        typer.Option(
            "--class",
            metavar="NAME",
            help="What goes wrong; drawn if not given.",
            autocompletion=_classes,
        ),
    ] = None,
    list_classes: Annotated[bool, typer.Option("--list", help="List the classes.")] = False,
    seed: Annotated[
        str | None, typer.Option(metavar="N", help="Which incident; the same one each time.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(metavar="N", help="Size: a power of two from 8 to 16384 (64).")
    ] = None,
    lost: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Share of the dumps that is lost: 0.2 (0).")
    ] = None,
    drill_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The drill with this id, in place of these."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the files go (a new folder here).")
    ] = None,
    make_only: Annotated[
        bool, typer.Option("--make-only", help="Ask nothing; print folder and as-of time.")
    ] = False,
    truth: Annotated[
        bool, typer.Option("--truth", help="With --make-only: print the truth too.")
    ] = False,
    score: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Answer a drill that was made before.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Your answer: what kind.", autocompletion=_kinds),
    ] = None,
    rank: Annotated[
        list[str] | None, typer.Option(metavar="RANKS", help="Your answer: which ranks, as 3,5-7.")
    ] = None,
    node: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="Your answer: which node.")
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(metavar="ACTION", help="Your answer: what to do.", autocompletion=_actions),
    ] = None,
    settings: Settings,
) -> int:
    """Practise: triage a made incident, answer, see how it went.

    Its truth is known. Without a terminal and without an answer it makes the incident and says how to answer later.

    Examples:
      gpufleet drill
      gpufleet drill --seed 7 --ranks 256 --lost 0.2
      gpufleet drill --make-only --to practice/   # and its score later:
      gpufleet drill --score practice/ --kind hardware --rank 3 --action evict-now
    """
    output = one_of(settings.output, ("text", "json"))
    if list_classes:
        emit(_listed(look(settings), as_json=output == "json"))
        return 0
    gives_answer = bool(kind or rank or node or action)
    from gpufleet_cli.commands import drill_options, drill_questions, drill_shown

    drill_options.check(
        (truth and not make_only, "--truth goes with --make-only"),
        (make_only and gives_answer, "--make-only takes no answer"),
        (
            score is not None and (make_only or to is not None),
            "--score takes a folder that is there",
        ),
    )
    wanted = drill_options.wanted(cls, seed, ranks, lost, drill_id, score)
    chosen, world = _made(wanted, is_drawn=cls is None and drill_id is None and score is None)
    folder = score or to or _default_folder(chosen)
    answer: Answer | None = None
    if gives_answer:  # before anything is written
        answer = drill_questions.from_options(
            kind=kind,
            ranks=rank or (),
            nodes=node or (),
            action=action,
            node_of=world.truth.node_of,
        )
    _store_or_find(world, folder, is_there=score is not None)
    brief = drill_shown.briefing(chosen, world, folder)
    if make_only:
        emit(_only_made(chosen, world, brief, as_json=output == "json", with_truth=truth))
        return 0
    asks = answer is None and sys.stdin.isatty()
    if asks:
        answer = _asked(world, brief, settings)
    if answer is not None:
        emit(_scored(chosen, world, brief, answer, settings))
        return 0
    if score is not None:
        raise UsageError("--score needs an answer", hint="--kind, --rank or --node, --action")
    emit(_to_answer_later(brief, look(settings), as_json=output == "json", is_told=asks))
    return 0


# --- The incident and its folder -------------------------------------------------------------------


def _made(wanted: Drill, *, is_drawn: bool) -> tuple[Drill, World]:
    """The incident. A class that is drawn is drawn by the seed, so that the seed alone makes it again."""
    from random import Random

    from gpufleet_cli.operate import drill as drills

    with announced(f"making an incident of {wanted.size:,} ranks"):
        if not is_drawn:
            return wanted, drills.made(wanted)
        return drills.some(
            Random(f"drill/{wanted.seed}"),
            seed=wanted.seed,
            size=wanted.size,
            lost_parts=wanted.lost_parts,
        )


def _default_folder(drill: Drill) -> Path:
    from gpufleet_cli.operate import drill as drills

    return drills.default_folder(drill)


def _store_or_find(world: World, folder: Path, *, is_there: bool) -> None:
    from gpufleet_cli.operate import drill as drills

    if not is_there:
        with announced(f"writing {len(world.files):,} files"):
            drills.store(world, folder)
        return
    if not folder.is_dir():
        raise TargetError(f"{folder}: no such folder", hint="gpufleet drill makes one")
    wrong = drills.differing(world, folder)
    if wrong is not None:
        raise TargetError(
            f"{folder}: {wrong} is not as this drill makes it",
            hint="changed, of another drill, or made by another version of gpufleet",
        )


# --- What is shown ---------------------------------------------------------------------------------


def _listed(shape: Look, *, as_json: bool) -> str:
    from gpufleet_cli.operate.simulate.class_words import WORDS
    from gpufleet_cli.render.drill_page import class_list

    if as_json:
        rows = [{"class": str(name), "words": words} for name, words in WORDS.items()]
        return json.dumps({"classes": rows}, indent=2) + "\n"
    return class_list(((str(name), words) for name, words in WORDS.items()), shape)


def _only_made(
    drill: Drill, world: World, brief: Briefing, *, as_json: bool, with_truth: bool
) -> str:
    from gpufleet_cli.commands import drill_shown
    from gpufleet_cli.plain_text import visible
    from gpufleet_cli.render import drill_page
    from gpufleet_cli.timestamps import format_ns

    known = drill_shown.truth(world) if with_truth else None
    if as_json:
        more = None if known is None else drill_page.truth_dict(known, drill.seed, drill.lost)
        return drill_page.briefing_json(brief, with_truth=more)
    lines = [brief.folder, format_ns(brief.as_of_ns)]
    if known is not None:
        lines.append(f"{known.cls}: {' '.join(known.happened)} {known.told}")
    return "".join(f"{visible(line)}\n" for line in lines)


def _to_answer_later(brief: Briefing, shape: Look, *, as_json: bool, is_told: bool) -> str:
    from gpufleet_cli.render import drill_page

    if as_json:
        return drill_page.briefing_json(brief)
    told = "" if is_told else drill_page.briefing(brief, shape) + "\n"
    return told + drill_page.later(brief, shape)


def _asked(world: World, brief: Briefing, settings: Settings) -> Answer | None:
    """The answer of whoever sits there; None when they close the input."""
    from dataclasses import replace

    from gpufleet_cli.commands import drill_questions
    from gpufleet_cli.render import drill_page

    shape = replace(look(settings), color=False)
    sys.stderr.write(drill_page.briefing(brief, shape))
    try:
        answer = drill_questions.ask(world.truth.node_of, shape)
    except drill_questions.NoAnswerError:
        return None
    sys.stderr.write("\n")
    return answer


def _own_verdict(folder: Path, world: World) -> Triage:
    """What `gpufleet triage` says of the folder, by the command that was printed."""
    from gpufleet_cli.bundle import read_target
    from gpufleet_cli.facts import JobNumbers
    from gpufleet_cli.operate import drill as drills
    from gpufleet_cli.triage import triage_target

    read = read_target(folder)
    with shown(len(read.evidences)) as told:
        return triage_target(
            read, JobNumbers(source="flag"), as_of_ns=drills.as_of_ns(world), told=told
        )


def _scored(drill: Drill, world: World, brief: Briefing, answer: Answer, settings: Settings) -> str:
    from gpufleet_cli.commands import drill_shown
    from gpufleet_cli.operate.simulate.answers import mark
    from gpufleet_cli.render import drill_page

    own = _own_verdict(Path(brief.folder), world)
    marked = mark(world.truth, answer, own)
    result = drill_shown.result(drill, world, brief, answer, marked, own)
    render = drill_page.render_json if settings.output == "json" else drill_page.render
    return render(result, look(settings))
