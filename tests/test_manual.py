"""Examples of `--help`, docs/commands and man pages say what the program does."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accept
import pytest
import typer

from gpufleet_cli import cli
from gpufleet_cli.errors import ExitCode
from scripts import manual

ROOT = Path(__file__).parents[1]


def pages(page: manual.Page) -> Iterator[manual.Page]:
    yield page
    for one in page.inner:
        yield from pages(one)


PAGES = list(pages(manual.root()))


def calls(line: str) -> list[list[str]]:
    """The calls of gpufleet in one line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|&;<>"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [part[1:] for part in parts if part[:1] == ["gpufleet"]]


def parse(arguments: list[str]) -> None:
    """As the program does before it runs a command; raises where it would end with 2."""
    command: Any = typer.main.get_command(cli.build())
    context: Any = command.make_context("gpufleet", list(arguments))
    while hasattr(command, "resolve_command") and context._protected_args + context.args:
        rest = context._protected_args + context.args
        name, command, rest = command.resolve_command(context, rest)
        assert command is not None, name
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_ends_its_help_with_examples(page: manual.Page) -> None:
    """Two to four lines, each with a call that the program can parse and that is of this command."""
    assert 2 <= len(page.examples) <= 4
    for line in page.examples:
        found = calls(line)
        assert found, line
        for arguments in found:
            parse(arguments)
            words = page.name.split()[1:]
            assert words == arguments[: len(words)], line


@pytest.mark.parametrize(
    "line", ["gpufleet triage x --no-such", "gpufleet no-such", "gpufleet xid 79 -o"]
)
def test_a_wrong_example_is_found(line: str) -> None:
    """An option, a command or a value that is not there."""
    with pytest.raises(typer.exceptions.TyperException):
        parse(calls(line)[0])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_help_fits_a_terminal(page: manual.Page, capsys: pytest.CaptureFixture[str]) -> None:
    """Examples too stand within 80 columns."""
    assert cli.main([*page.name.split()[1:], "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def test_manual_is_that_of_the_program() -> None:
    """`make accept` writes it; pages of commands that are gone are gone as well."""
    for path, content in accept.manual().items():
        assert path.exists(), path
        assert content == path.read_text(encoding="utf-8"), path
    assert accept.stale() == []


def test_every_exit_status_and_variable_is_told() -> None:
    """Those of errors.py, and those that the code reads."""
    assert set(manual.EXIT) == set(ExitCode)
    code = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "gpufleet_cli").rglob("*.py")
    )
    read = set(re.findall(r"\"(GPUFLEET_[A-Z_]+)\"", code))
    assert read == {name for name in manual.ENVIRONMENT if name.startswith("GPUFLEET_")}


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not here")
def test_man_pages_are_well_formed() -> None:
    """groff has nothing to say about them."""
    command = [
        "groff",
        "-man",
        "-Tutf8",
        "-ww",
        "-z",
        *sorted(map(str, (ROOT / "man").glob("*.1"))),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
