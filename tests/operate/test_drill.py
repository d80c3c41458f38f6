"""Ids of drills, answers of people, and the places in the files where the truth shows."""

from __future__ import annotations

from pathlib import Path
from random import Random

import builders
import pytest

from gpufleet_cli.operate import drill as drills
from gpufleet_cli.operate.simulate.answers import Answer, Marked, mark
from gpufleet_cli.operate.simulate.class_words import WORDS
from gpufleet_cli.operate.simulate.drill_id import (
    ID_CHARS,
    LOST_PARTS,
    MOST_SEED,
    SIZES,
    Drill,
    decode,
    encode,
)
from gpufleet_cli.operate.simulate.story import Class
from gpufleet_cli.verdict import Action, Kind

NODES = tuple(f"n{rank // 8}" for rank in range(64))
ON_N1 = tuple(range(8, 16))

# --- Ids -----------------------------------------------------------------------------------------


def test_an_id_says_which_drill() -> None:
    """Any class, seed, size and loss comes back, in characters that suit a folder's name."""
    rng = Random(1)
    for _ in range(2000):
        seed = rng.choice((rng.randrange(100), rng.randrange(MOST_SEED + 1)))
        lost = rng.randrange(LOST_PARTS + 1)
        drill = Drill(
            cls=rng.choice(list(Class)), seed=seed, size=rng.choice(SIZES), lost_parts=lost
        )
        found = encode(drill)
        assert len(found) == ID_CHARS
        assert found.isalnum()
        assert decode(found) == drill


def test_drills_that_differ_little_have_ids_that_differ_much() -> None:
    """Who has seen one xid-79 does not know the next by its id."""
    ids = [encode(Drill(cls=Class.XID_79, seed=seed)) for seed in range(64)]
    assert len({found[:4] for found in ids}) > 40


@pytest.mark.parametrize("text", ["", "abc", "aaaaaaaaaaaa", "0189!?0189!?", "cr6vkdk2tshj" * 2])
def test_other_words_are_no_ids(text: str) -> None:
    assert decode(text) is None


def test_options_make_it_again() -> None:
    """What is as by default is left out."""
    assert Drill(cls=Class.XID_79, seed=17).options == "--class xid-79 --seed 17"
    odd = Drill(cls=Class.SWITCH, seed=1, size=128, lost_parts=200)
    assert odd.options == "--class switch --seed 1 --ranks 128 --lost 0.2"


def test_every_class_has_its_words() -> None:
    assert set(WORDS) == set(Class)
    assert max(map(len, WORDS.values())) <= 55


# --- Answers -------------------------------------------------------------------------------------


OPEN = {"told": frozenset(ON_N1), "decided": False}
NOBODY = {
    "cls": Class.SWITCH,
    "kinds": frozenset({Kind.NETWORK}),
    "culprits": frozenset(),
    "told": None,
    "may_name": frozenset(ON_N1),
}


def marked(
    known: dict[str, object],
    kind: Kind,
    *ranks: int,
    nodes: tuple[str, ...] = (),
    action: Action | None = None,
) -> Marked:
    answer = Answer(kind=kind, ranks=ranks, nodes=nodes, action=action)
    return mark(builders.made_truth(**known), answer, builders.triage())


@pytest.mark.parametrize(
    ("known", "kind", "ranks", "nodes", "expected"),
    [
        ({}, Kind.HARDWARE, (12,), (), "right"),
        ({}, Kind.HARDWARE, (12,), ("n1",), "right"),
        ({}, Kind.HARDWARE, (13,), (), "close"),
        ({}, Kind.NETWORK, (12,), (), "close"),
        ({}, Kind.HARDWARE, (), ("n1",), "close"),
        ({}, Kind.NETWORK, (13,), (), "wrong"),
        ({}, Kind.HEALTHY, (), (), "wrong"),
        ({}, Kind.UNDECIDABLE, (), (), "wrong"),
        ({}, Kind.UNDECIDABLE, (12, 13), (), "close"),
        ({}, Kind.UNDECIDABLE, tuple(range(64)), (), "wrong"),
        ({"by_node": True}, Kind.HARDWARE, (), ("n1",), "right"),
        (OPEN, Kind.HARDWARE, (12,), (), "lucky"),
        (OPEN, Kind.UNDECIDABLE, ON_N1, (), "right"),
        (OPEN, Kind.UNDECIDABLE, (), ("n1",), "right"),
        (OPEN, Kind.UNDECIDABLE, (), (), "right"),
        (OPEN, Kind.UNDECIDABLE, (20, 21), (), "close"),
        (NOBODY, Kind.NETWORK, (), (), "right"),
        (NOBODY, Kind.NETWORK, (), ("n1",), "right"),
        (NOBODY, Kind.NETWORK, (), ("n2",), "close"),
    ],
)
def test_answers(
    known: dict[str, object],
    kind: Kind,
    ranks: tuple[int, ...],
    nodes: tuple[str, ...],
    expected: str,
) -> None:
    """Kind and culprits count; where the files leave more than the guilty, who knew it is right and
    who named them guessed."""
    assert expected == marked(known, kind, *ranks, nodes=nodes).mark


def test_an_action_has_its_price() -> None:
    """An eviction of the right node costs nothing more, of another one a node and a failure."""
    right = marked({}, Kind.HARDWARE, 12, action=Action.EVICT_NOW)
    wrong = marked({}, Kind.HARDWARE, 20, action=Action.EVICT_NOW)
    assert (0.0, ()) == (right.regret_gpu_hours, right.innocent_nodes)
    assert ("n2",) == wrong.innocent_nodes
    assert wrong.regret_gpu_hours is not None
    assert wrong.regret_gpu_hours > 32
    assert marked({}, Kind.HARDWARE, 20).regret_gpu_hours is None


# --- Files ---------------------------------------------------------------------------------------


def test_places_stand_where_they_say(tmp_path: Path) -> None:
    """Path and line of every clue lead to its text; what names the cause comes first."""
    of = drills.made(Drill(cls=Class.XID_79, seed=3))
    of.write(tmp_path)
    places = drills.places(of)
    assert places[0].names_cause
    assert [p.names_cause for p in places] == sorted((p.names_cause for p in places), reverse=True)
    for place in places:
        lines = (tmp_path / place.path).read_text(encoding="utf-8").splitlines()
        assert place.line is not None
        assert place.text in lines[place.line - 1]


def test_files_are_dated_when_they_were_taken(tmp_path: Path) -> None:
    """A stamp without a year is read by the date of its file."""
    of = drills.made(Drill(cls=Class.GC_STALL, seed=1, size=8))
    of.write(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {of.truth.as_of_ns // 1000} == {path.stat().st_mtime_ns // 1000 for path in files}
    assert 0 <= drills.as_of_ns(of) - of.truth.as_of_ns < 10**9


def test_a_folder_s_name_may_tell_its_drill(tmp_path: Path) -> None:
    """At its end, and nowhere else."""
    drill = Drill(cls=Class.GC_STALL, seed=1, size=8)
    found = encode(drill)
    assert drills.drill_of(tmp_path / f"practice-{found}") == drill
    assert drills.drill_of(tmp_path / found.upper()) == drill
    assert drills.drill_of(tmp_path / f"x{found}") is None
    assert drills.drill_of(tmp_path / f"{found}-x") is None
    assert drills.drill_of(drills.default_folder(drill)) == drill
