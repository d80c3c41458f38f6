"""From a made incident and an answer to what the page of a drill shows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path, PurePath

from gpufleet_cli.operate import drill as drills
from gpufleet_cli.operate.simulate.answers import Answer, Marked
from gpufleet_cli.operate.simulate.class_words import WORDS
from gpufleet_cli.operate.simulate.drill_id import Drill, encode
from gpufleet_cli.operate.simulate.judge import has_culprits, judge
from gpufleet_cli.operate.simulate.story import HEALTHY, Class, Fault, Story
from gpufleet_cli.operate.simulate.world import World
from gpufleet_cli.render.drill_page import AnswerShown, Briefing, PlaceShown, Result, TruthShown
from gpufleet_cli.render.layout import clock, counted, date_clock, rank_list
from gpufleet_cli.timestamps import format_ns
from gpufleet_cli.verdict import Triage

WORTH_SAYING_S = 1.0
MIXED = frozenset({Class.TWO_FAULTS, Class.RED_HERRING, Class.OTHER_JOB})


def briefing(drill: Drill, world: World, folder: Path) -> Briefing:
    """What may be said before the answer."""
    at = drills.as_of_ns(world)
    place = shlex.quote(str(folder))
    by_id = "" if drills.drill_of(folder) == drill else f" --id {encode(drill)}"
    return Briefing(
        id=encode(drill),
        folder=str(folder),
        ranks=drill.size,
        nodes=len(world.story.layout.nodes),
        as_of_ns=at,
        size_bytes=sum(map(len, world.files.values())),
        parts=tuple(_parts(world)),
        triage_command=f"gpufleet triage {place} --as-of {format_ns(at)}",
        score_command=(
            f"gpufleet drill --score {place}{by_id} --kind KIND --rank RANKS --action ACTION"
        ),
    )


def _parts(world: World) -> Iterator[str]:
    """`dumps/ 51 files`, `topology.json`."""
    counts: dict[str, int] = {}
    for path in sorted(world.files):
        top, *below = PurePath(path).parts
        name = f"{top}/" if below else top
        counts[name] = counts.get(name, 0) + 1
    for name, number in counts.items():
        yield f"{name} {counted(number, 'file')}" if name.endswith("/") else name


def truth(world: World) -> TruthShown:
    """What happened, in words."""
    known = world.truth
    return TruthShown(
        cls=str(known.cls),
        words=WORDS[known.cls],
        happened=tuple(_happened(world)),
        kinds=tuple(sorted(map(str, known.kinds))),
        ranks=tuple(sorted(known.culprits)),
        nodes=tuple(sorted(known.nodes)),
        node_is_enough=known.by_node,
        left=None if known.told is None else tuple(sorted(known.told)),
        decided=known.decided,
        told=_told(world),
        side=known.side,
        stopped=known.stopped,
    )


def _happened(world: World) -> Iterator[str]:
    story = world.story
    if not has_culprits(world.truth):
        nodes = ", ".join(sorted(world.truth.nodes))
        whom = f"No rank is to blame; it was at {nodes}" if nodes else "Nobody is to blame"
        when = "" if world.truth.cls in HEALTHY else f", {_when(story, story.faults[0])}"
        yield f"{whom}{when}."
        return
    for fault in story.faults:
        what = f"{fault.cls}: {WORDS[fault.cls]}: " if world.truth.cls in MIXED else ""
        ranks = fault.ranks if len(story.faults) > 1 else tuple(world.truth.culprits)
        named = f"{'rank' if len(ranks) == 1 else 'ranks'} {rank_list(ranks)}"
        homes = sorted({story.layout.node_of(rank) for rank in ranks})
        yield f"{what}{named} on {', '.join(homes)}, {_when(story, fault)}."
    for decoy in story.decoys:
        homes = sorted({story.layout.node_of(rank) for rank in decoy.ranks})
        yield f"Rank {rank_list(decoy.ranks)} on {', '.join(homes)} is innocent, whatever stands there."


def _when(story: Story, fault: Fault) -> str:
    """By the true clock, and by that of its node where somebody who looks there would miss it."""
    found = f"from {date_clock(story.wall_ns(fault.at_s))} UTC"
    skews = {story.skew_s[index] for index in fault.node_indexes}
    if len(skews) == 1 and abs(min(skews)) >= WORTH_SAYING_S:
        own = clock(story.wall_ns(fault.at_s, fault.node_indexes[0]))
        return f"{found} ({own} by its node's clock)"
    return found


def _told(world: World) -> str:
    known = world.truth
    settle = f" To settle it: {known.settle}." if known.settle else ""
    if known.told is None:
        return "The files tell it." if known.decided else f"The files do not tell it.{settle}"
    guilty = {rank for fault in world.story.faults for rank in fault.ranks}
    if known.decided and known.culprits < guilty and len(world.story.faults) > 1:
        return f"The files tell of rank {rank_list(known.culprits)} alone."
    if known.decided:
        return "The files single it out." if len(known.told) == 1 else "The files tell it."
    return (
        f"The files leave {counted(len(known.told), 'rank')}: {rank_list(known.told, 40)}.{settle}"
    )


def result(
    drill: Drill, world: World, shown: Briefing, answer: Answer, marked: Marked, own: Triage
) -> Result:
    """All that is told after the answer."""
    judged = judge(world.truth, own)
    return Result(
        briefing=shown,
        seed=drill.seed,
        lost=drill.lost,
        truth=truth(world),
        answer=AnswerShown(
            kind=str(answer.kind),
            ranks=answer.ranks,
            nodes=answer.nodes,
            action=None if answer.action is None else str(answer.action),
            mark=marked.mark,
            kind_right=marked.kind_right,
            who_right=marked.who_right,
            node_only=marked.node_only,
            regret_gpu_hours=marked.regret_gpu_hours,
            innocent_nodes=marked.innocent_nodes,
        ),
        own=own,
        own_right=judged.right or judged.exact,
        own_regret_gpu_hours=judged.regret_gpu_hours,
        places=tuple(
            PlaceShown(path=p.path, line=p.line, text=p.text, names_cause=p.names_cause)
            for p in drills.places(world)
        ),
        has_dumps=any(path.startswith("dumps/") for path in world.files),
        replay_command=f"gpufleet drill {drill.options}",
    )
