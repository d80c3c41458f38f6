"""Commands and options for the shell's TAB, from a table that `tests/accept.py` makes of the program: no Typer is asked.

`data/words.csv` has a line for each word: the command that it stands behind, the word, and what it is.
"""

import os

TABLE = "words.csv"


def offered(given: list[str], current: str, lines: list[str]) -> list[tuple[str, str]] | None:
    """(word, what it is) of what fits at `current`, behind the command words `given`; None where a path may stand."""
    rows = [line.split(",", 2) for line in lines if line.count(",") > 1]
    command = _command(given, {row[0] for row in rows})
    if current.startswith("-"):
        return _fitting(rows, command, current)
    if given:
        return None
    return [one for one in _fitting(rows, "", current) if not one[0].startswith("-")]


def _command(given: list[str], known: set[str]) -> str:
    """`cost tail` where that is one, else the first word."""
    both = " ".join(given[:2])
    return both if both in known else "".join(given[:1])


def _fitting(rows: list[list[str]], command: str, current: str) -> list[tuple[str, str]]:
    return [(word, told) for of, word, told in rows if of == command and word.startswith(current)]


def place() -> str:
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  pathlib costs
    return f"{folder}/data/{TABLE}"
