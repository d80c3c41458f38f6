"""`gpufleet drill`: makes an incident, asks, and tells how it went."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpufleet_cli import cli
from gpufleet_cli.bundle import read_target
from gpufleet_cli.commands import drill_questions
from gpufleet_cli.errors import ExitCode, UsageError
from gpufleet_cli.facts import JobNumbers
from gpufleet_cli.operate.simulate import world
from gpufleet_cli.operate.simulate.story import Class
from gpufleet_cli.triage import triage_target
from gpufleet_cli.verdict import Action, Kind

XID = ["drill", "--class", "xid-79", "--seed", "3"]
GUILTY = "24"  # on gpu-node-0049
SMALL = ["drill", "--class", "segfault", "--seed", "2", "--ranks", "8"]


class Terminal(io.StringIO):
    """Somebody sits there and types this."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders are made where one is; nobody sits at the terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return tmp_path


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert cli.main([*arguments, "-o", "json"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# --- Making ----------------------------------------------------------------------------------------


def test_make_only_tells_folder_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    """A line each, and nothing of the truth."""
    assert cli.main([*SMALL, "--make-only"]) == ExitCode.OK
    folder, as_of = capsys.readouterr().out.splitlines()
    assert Path(folder).is_dir()
    assert as_of.endswith("Z")


def test_make_only_for_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    """One line of JSON; the truth where it was asked for."""
    assert cli.main([*SMALL, "--make-only", "-o", "json"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found = json.loads(out)
    assert not {"class", "seed", "truth", "replay"} & found.keys()
    assert found["triage"] == f"gpufleet triage {found['folder']} --as-of {found['as_of']}"
    told = document(capsys, *SMALL, "--make-only", "--truth")
    assert told["class"] == "segfault"
    assert told["truth"]["kinds"] == ["rank-crashed"]


def test_the_same_drill_has_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    """By class and seed, and by its id."""
    found = document(capsys, *SMALL, "--lost", "0.2", "--to", "one")
    cli.main([*SMALL, "--lost", "0.2", "--to", "two"])
    cli.main(["drill", "--id", found["id"], "--to", "three"])
    assert contents(Path("one")) == contents(Path("two")) == contents(Path("three")) != {}


def test_a_seed_alone_draws_its_class(capsys: pytest.CaptureFixture[str]) -> None:
    """The same one each time; without a seed another."""
    ids = [document(capsys, "drill", "--seed", "5", "--ranks", "8")["id"] for _ in range(2)]
    assert ids[0] == ids[1]
    other = document(capsys, "drill", "--ranks", "8")["id"]
    assert other != ids[0]


@pytest.mark.parametrize("cls", [Class.LOADER_STALL, Class.RED_HERRING, Class.COMPILE])
def test_nothing_of_the_truth_is_in_the_folder(
    cls: Class, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither in a name nor in a file; the evidence and nothing else."""
    found = document(capsys, "drill", "--class", cls, "--seed", "4", "--ranks", "16")
    made = world.make(cls, seed=4, size=16)
    assert contents(Path(found["folder"])) == dict(made.files)
    for path, content in contents(Path(found["folder"])).items():
        assert cls.encode() not in content, path
        assert b"drill" not in content, path
    assert cls not in json.dumps(found)


@pytest.mark.parametrize("cls", [Class.XID_94, Class.NODE_DEATH, Class.SLOW_GPU, Class.OTHER_JOB])
def test_triage_understands_every_file(cls: Class, capsys: pytest.CaptureFixture[str]) -> None:
    """What nobody knows what it is would give the drill away."""
    for seed in range(3):
        found = document(capsys, "drill", "--class", cls, "--seed", str(seed), "--ranks", "16")
        triage = triage_target(read_target(found["folder"]), JobNumbers(source="flag"), strict=True)
        assert [file.path for file in triage.files if not file.formats] == []


def test_nothing_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with anything else in it is refused; the same drill is there already."""
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("of last night", encoding="utf-8")
    assert cli.main([*SMALL, "--to", "mine"]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert list(contents(Path("mine"))) == ["notes.txt"]
    assert cli.main([*SMALL, "--to", "here"]) == ExitCode.OK
    Path("here/notes.txt").write_text("of tonight", encoding="utf-8")
    assert cli.main([*SMALL, "--to", "here"]) == ExitCode.OK
    Path("here/notes.txt").rename("here/topology.json")
    assert cli.main([*SMALL, "--to", "here"]) == ExitCode.USAGE


def test_without_a_terminal_it_says_how_to_answer_later(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And with which id, where the folder's name does not say it."""
    assert cli.main(XID) == ExitCode.OK
    out = capsys.readouterr().out
    (folder,) = Path().iterdir()
    assert f"gpufleet drill --score {folder} --kind" in out
    assert cli.main([*SMALL, "--to", "two words"]) == ExitCode.OK
    assert "--score 'two words' --id " in capsys.readouterr().out


def test_a_kind_that_is_none_names_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is made for an answer that is not understood."""
    assert cli.main([*XID, "--kind", "KIND"]) == ExitCode.USAGE
    err = capsys.readouterr().err
    for kind in Kind:
        assert str(kind) in err
    assert [] == list(Path().iterdir())


# --- Answers as options ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "mark"),
    [
        (["--kind", "hardware", "--rank", GUILTY, "--action", "evict-now"], "right"),
        (["--kind", "3", "--rank", GUILTY, "--node", "gpu-node-0049"], "right"),
        (["--kind", "hardware", "--rank", "25"], "close"),
        (["--kind", "healthy"], "wrong"),
        (["--kind", "undecidable", "--rank", "1,3", "--rank", "5-7"], "wrong"),
    ],
)
def test_scores(answer: list[str], mark: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Made, answered and judged at once, with gpufleet's own verdict beside it."""
    found = document(capsys, *XID, *answer)
    assert mark == found["answer"]["mark"]
    assert (mark == "right") == found["answer"]["right"]
    assert found["gpufleet"]["ranks"] == [int(GUILTY)]
    assert found["gpufleet"]["right"] is True
    assert found["clues"][0]["names_cause"] is True
    assert found["replay"] == "gpufleet drill --class xid-79 --seed 3"


def test_an_undecidable_incident(capsys: pytest.CaptureFixture[str]) -> None:
    """Who says so is right, and is told what the files leave."""
    made = world.make(Class.LINK_IN_FLIGHT, seed=2)
    assert not made.truth.decided
    assert made.truth.told is not None
    left = ",".join(map(str, sorted(made.truth.told)))
    drill = ["drill", "--class", "link-in-flight", "--seed", "2"]
    assert cli.main([*drill, "--kind", "undecidable", "--rank", left]) == ExitCode.OK
    out = capsys.readouterr().out
    assert out.startswith("  RIGHT")
    assert f"The files leave {len(made.truth.told)} ranks" in " ".join(out.split())
    guilty = ",".join(map(str, sorted(made.truth.culprits)))
    found = document(capsys, *drill, "--kind", "network", "--rank", guilty)
    assert found["answer"]["mark"] == "lucky"


def test_a_drill_is_scored_later(capsys: pytest.CaptureFixture[str]) -> None:
    """Known by its folder's name, or by its id."""
    made = document(capsys, *XID)
    answer = ["--kind", "hardware", "--rank", GUILTY]
    found = document(capsys, "drill", "--score", made["folder"], *answer)
    assert found["answer"]["mark"] == "right"
    Path(made["folder"]).rename("elsewhere")
    assert cli.main(["drill", "--score", "elsewhere", *answer]) == ExitCode.USAGE
    assert "--id" in capsys.readouterr().err
    for which in (["--id", made["id"]], XID[1:]):
        found = document(capsys, "drill", "--score", "elsewhere", *which, *answer)
        assert found["answer"]["mark"] == "right"


def test_files_that_were_changed_are_not_scored(capsys: pytest.CaptureFixture[str]) -> None:
    """The truth would be that of other files."""
    made = document(capsys, *SMALL)
    next(path for path in Path(made["folder"]).rglob("*") if path.is_file()).write_bytes(b"x")
    answer = ["--kind", "healthy"]
    assert cli.main(["drill", "--score", made["folder"], *answer]) == ExitCode.UNREADABLE
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--class", "gremlins"], ["--seed", "-1"], ["--seed", "99999999999"], ["--seed", "x"],
        ["--ranks", "63"], ["--ranks", "32768"], ["--ranks", "4"], ["--lost", "1.5"],
        ["--lost", "x"], ["--id", "abc"], ["--id", "cr6vkdk2tshi", "--seed", "1"], ["--truth"],
        ["--make-only", "--kind", "healthy"], ["--kind", "gremlins"], ["--rank", "3"],
        ["--kind", "hardware", "--rank", "64"], ["--kind", "hardware", "--rank", "7-3"],
        ["--kind", "hardware", "--rank", "x"], ["--kind", "hardware", "--node", "x"],
        ["--kind", "healthy", "--rank", "3"], ["--kind", "healthy", "--action", "pray"],
        ["--score", "nowhere"], ["--score", ".", "--seed", "1"], ["--score", ".", "--to", "x"],
        ["-o", "yaml"],
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    arguments: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing was made."""
    assert cli.main(["drill", *arguments]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert list(here.iterdir()) == []


def test_a_score_needs_a_folder_and_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    made = document(capsys, *SMALL)
    assert cli.main(["drill", "--score", made["folder"]]) == ExitCode.USAGE
    gone = [*SMALL, "--score", "nowhere", "--kind", "healthy"]
    assert cli.main(gone) == ExitCode.UNREADABLE


def test_a_folder_that_cannot_be_made(here: Path) -> None:
    """A file is in the way."""
    (here / "file").write_bytes(b"")
    assert cli.main([*SMALL, "--to", "file/below"]) == ExitCode.UNREADABLE


def test_classes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each."""
    assert cli.main(["drill", "--list"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(Class)
    assert max(map(len, lines)) <= 80
    assert len(document(capsys, "drill", "--list")["classes"]) == len(Class)


# --- Questions -------------------------------------------------------------------------------------


def play(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], drill: list[str], said: str
) -> tuple[str, str]:
    monkeypatch.setattr(sys, "stdin", Terminal(said))
    assert cli.main(drill) == ExitCode.OK
    return capsys.readouterr()


def test_a_drill_is_played(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not understood is asked again; both screens fit a terminal."""
    said = f"99\nhardware\n64\n{GUILTY}\n7\nevict now\n"
    out, err = play(monkeypatch, capsys, XID, said)
    assert out.startswith("  RIGHT     hardware, rank 24: kind right, who right\n")
    assert "gpu-node-0049.dmesg.txt:6" in out
    assert "gpufleet drill --class xid-79 --seed 3" in out
    assert "'99' is not a kind" in err
    assert "the ranks of this job are 0 to 63" in err
    for text in (out, err):
        assert max(map(len, text.splitlines())) <= 80
    assert len(out.splitlines()) <= 23


@pytest.mark.parametrize(
    "said",
    [
        "13\n\n6\n",
        "undecidable\nnobody\ncollect\n",
        "3\nundecidable\n\n6\n",
        "rank missing\n?\n\n6\n",
    ],
)
def test_undecidable_is_said_in_two_ways(
    said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a kind, or as who it is; then who it could be is asked."""
    out, err = play(
        monkeypatch, capsys, ["drill", "--class", "link-in-flight", "--seed", "2"], said
    )
    assert "Who could it be?" in err
    assert out.startswith("  RIGHT     undecidable: kind right, and you named no set")


def test_input_that_ends_is_answered_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _err = play(monkeypatch, capsys, SMALL, "1\n")
    assert out.startswith("  To answer later:\n  gpufleet drill --score ")
    assert "--kind KIND --rank RANKS --action ACTION\n" in out
    for word in (*Kind, *(action for action in Action if action is not Action.WATCH)):
        assert str(word) in out


def test_interrupt_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder stays."""

    class Interrupted(Terminal):
        def readline(self, *_: object) -> str:  # type: ignore[override]
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert cli.main(SMALL) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err.endswith("interrupted\n")
    assert list(Path().glob("gpufleet-drill-*"))


def test_what_people_type() -> None:
    """Names, numbers and short words; ranks and nodes in any order."""
    nodes = ["a.cluster", "a.cluster", "b.cluster", "b.cluster"]
    assert drill_questions.read_kind("Host_OOM") is Kind.HOST_OOM
    assert drill_questions.read_action("cordon now") is Action.CORDON_AT_CHECKPOINT
    assert drill_questions.read_action("1") is Action.NONE
    assert drill_questions.read_action("watch") is Action.WATCH
    assert drill_questions.read_who("nobody", nodes) == ((), ())
    assert drill_questions.read_who("ranks 0, 2-3 on node b", nodes) == ((0, 2, 3), ("b.cluster",))
    assert drill_questions.read_who("node/a", nodes) == ((), ("a.cluster",))
    for text in ("", "rank", "c", "4", "-1"):
        with pytest.raises(UsageError):
            drill_questions.read_who(text, nodes)
