"""Practice on made incidents: which one, its files in a folder, and where in them the truth shows.

The folder holds the evidence and nothing else. What makes it again is in the drill's id, which is the
end of the folder's name unless another name was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from gpufleet_cli.errors import TargetError, UsageError
from gpufleet_cli.operate.simulate import world
from gpufleet_cli.operate.simulate.drill_id import ID_CHARS, Drill, decode, encode
from gpufleet_cli.operate.simulate.story import Class, Clue
from gpufleet_cli.operate.simulate.world import World
from gpufleet_cli.timestamps import NS_PER_S

FOLDER = "gpufleet-drill-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of the evidence that speaks of the true fault. `line` None: the file is one line."""

    path: str
    line: int | None
    text: str
    names_cause: bool


def some(rng: Random, *, seed: int, size: int, lost_parts: int) -> tuple[Drill, World]:
    """A drill of a class that is drawn, and its world: a class that this job has no place for is
    drawn again."""
    classes = list(Class)
    rng.shuffle(classes)
    for cls in classes:
        drill = Drill(cls=cls, seed=seed, size=size, lost_parts=lost_parts)
        try:
            return drill, made(drill)
        except UsageError:
            continue
    raise UsageError(f"no class of incident has a place in {size} ranks")


def made(drill: Drill) -> World:
    return world.make(drill.cls, seed=drill.seed, size=drill.size, lost=drill.lost)


def as_of_ns(of: World) -> int:
    """The second in which the evidence was taken has ended: short to type, and after every line."""
    return -(-of.truth.as_of_ns // NS_PER_S) * NS_PER_S


# --- The folder ------------------------------------------------------------------------------------


def default_folder(drill: Drill) -> Path:
    return Path(f"{FOLDER}{encode(drill)}")


def drill_of(folder: Path) -> Drill | None:
    """The drill that the end of a folder's name tells."""
    before, name = folder.resolve().name[:-ID_CHARS], folder.resolve().name[-ID_CHARS:]
    return decode(name.lower()) if before == "" or before.endswith("-") else None


def store(of: World, folder: Path) -> None:
    """Write the files; a folder that holds them already is left as it is, any other content refused."""
    try:
        if folder.is_dir() and any(folder.iterdir()):
            if differing(of, folder) is None:
                return
            raise UsageError(
                f"{folder} is not empty, and nothing is overwritten", hint="give another --to"
            )
        of.write(folder)
    except OSError as exc:
        reason = (exc.strerror or str(exc)).lower()
        raise TargetError(f"{folder} cannot be written: {reason}") from exc


def differing(of: World, folder: Path) -> str | None:
    """The first file that is not as it was made; files beside them do not matter."""
    for path, content in sorted(of.files.items()):
        file = folder / path
        try:
            if file.stat().st_size != len(content) or file.read_bytes() != content:
                return path
        except OSError:
            return path
    return None


# --- What to look at -------------------------------------------------------------------------------


def places(of: World) -> tuple[Place, ...]:
    """The lines that speak of the true fault: those that name a cause first, of them one of each file
    before the second of any, then those that leave the fewest ranks."""
    count: dict[tuple[str, bool], int] = {}
    order: dict[int, int] = {}
    for number, clue in enumerate(of.clues):
        order[number] = count[clue.path, clue.loud] = count.get((clue.path, clue.loud), -1) + 1
    found = sorted(
        enumerate(of.clues), key=lambda it: (not it[1].loud, order[it[0]], len(it[1].ranks))
    )
    return tuple(_places(of, [clue for _number, clue in found]))


def _places(of: World, clues: list[Clue]) -> Iterator[Place]:
    for clue in clues:
        content = of.files.get(clue.path)
        at = -1 if content is None else content.find(clue.text.encode())
        if content is None or at < 0:
            continue
        is_long = content.count(b"\n", 0, len(content) - 1) > 0
        line = content.count(b"\n", 0, at) + 1 if is_long else None
        text = clue.text.strip()
        yield Place(path=clue.path, line=line, text=text, names_cause=clue.loud)
