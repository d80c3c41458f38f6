"""Facts of lines that come from no file: for doctests, tests and a line pasted by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gpufleet_cli.facts import Fact, Speaker
from gpufleet_cli.parsers.log_line import Following, LogLine

PASTED = "pasted"


def read(
    recognise: Callable[[LogLine, Following], Iterator[Fact]],
    text: str,
    *,
    at_ns: int | None = None,
    speaker: Speaker | None = None,
) -> list[Fact]:
    """What a recogniser says of the first line of a text; the other lines follow it."""
    who = speaker if speaker is not None else Speaker(stream=PASTED)
    lines = [
        LogLine(text, at_ns, True, who, PASTED, number)
        for number, text in enumerate(text.split("\n"), start=1)
    ]
    return list(recognise(lines[0], lambda count: lines[1 : 1 + count]))
