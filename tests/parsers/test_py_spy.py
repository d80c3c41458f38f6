"""py-spy's dumps: the main thread of one rank; never read as a log, whatever the functions are called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpufleet_cli.bundle import Evidence
from gpufleet_cli.cli import main
from gpufleet_cli.facts import Fact, Gap, ProcessStack
from gpufleet_cli.parsers import py_spy, training_log

# as py-spy 0.4.3 printed it
TEXT = b"""\
Process 412: /usr/bin/python -c import time
RuntimeError = 1 --api-key [hidden]
Python v3.11.7 (/usr/bin/python3.11)

Thread 415 (idle): "pt_autograd_0"
    run (threading.py:982)
Thread 412 (active+gil): "MainThread"
    RuntimeError.__init__ (errors.py:7)
    <listcomp> (torch/utils/data/_utils/fetch.py:51)
    train (<string>:88)
    ncclCommAbort (libnccl.so.2.21.5)
Thread 416 (idle): "tqdm"
    wait (threading.py:331)
"""


def parsed(text: bytes, path: str = "stacks/w-3/rank_3.txt") -> list[Fact]:
    return list(py_spy.parse(Evidence(path=path, size_bytes=len(text), content=text)))


def test_the_main_thread_innermost_first() -> None:
    """Its frames, its state, and the rank of the file's name."""
    assert py_spy.matches("x", TEXT)
    (found,) = parsed(TEXT)
    assert isinstance(found, ProcessStack)
    assert (3, "active+gil", 7) == (found.rank, found.state, found.origin.line)
    assert (
        "RuntimeError.__init__ (errors.py:7)",
        "<listcomp> (torch/utils/data/_utils/fetch.py:51)",
        "train (<string>:88)",
        "ncclCommAbort (libnccl.so.2.21.5)",
    ) == found.frames


def test_it_is_no_log() -> None:
    """`RuntimeError` in it is the name of a function."""
    assert not training_log.matches("stacks/w-3/rank_3.txt", TEXT)
    assert training_log.matches("w-3.log", b"Process 412: started\nstep 1 loss 2.3\n")


@pytest.mark.parametrize(
    ("text", "path", "why"),
    [
        (TEXT, "stack.txt", "no rank in its name"),
        (TEXT[:130], "rank_3.txt", "no frame of a main thread in it"),
        (TEXT.replace(b"MainThread", b"other"), "rank_3.txt", "no frame of a main thread in it"),
    ],
)
def test_what_it_lacks_is_a_gap(text: bytes, path: str, why: str) -> None:
    """Cut off, or of nobody."""
    (found,) = parsed(text, path)
    assert isinstance(found, Gap)
    assert why == found.why


def test_odd_bytes_are_survived() -> None:
    """Torn glyphs, doubled and cut lines."""
    for cut in range(0, len(TEXT), 7):
        assert len(parsed(TEXT[:cut] + b"\xe2\x82\0" + TEXT[cut:])) == 1
    assert not py_spy.matches("x", b"")
    (twice,) = parsed(TEXT + TEXT)
    assert isinstance(twice, ProcessStack)
    assert 4 == len(twice.frames)


def test_explain_shows_it_and_no_verdict_moves(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a rank was is shown beside it; the answer and its confidence stay."""
    for one in ("dumps", "logs", "topology.json"):
        (tmp_path / one).symlink_to(root / "fixtures/cases/fr/fr-04-tp-cascade-16" / one)
    before = answer(capsys, tmp_path)
    stack = tmp_path / "stacks" / "w-3" / "rank_3.txt"
    stack.parent.mkdir(parents=True)
    stack.write_bytes(TEXT)
    assert before == answer(capsys, tmp_path)
    main(["explain", str(tmp_path), "--rank", "3", "--follow-links"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "its main thread (active+gil) was in RuntimeError.__init__ (errors.py:7) <" in shown


def answer(capsys: pytest.CaptureFixture[str], place: Path) -> object:
    main(["triage", str(place), "-o", "json", "--follow-links"])
    found = json.loads(capsys.readouterr().out)
    assert 0 == found["files"]["not_understood_count"]
    return found["verdict"], found["recommendation"]
