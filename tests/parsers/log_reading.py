"""Short ways to read log text in tests: every line with its speaker, or the facts of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import Fact, Speaker, Writes
from gpufleet_cli.parsers import log_documents, training_log
from gpufleet_cli.parsers.log_line import Following, LogLine
from gpufleet_cli.parsers.log_pages import page_of_entries, pages_of
from gpufleet_cli.parsers.log_reader import LineReader
from gpufleet_cli.parsers.log_stream import LogStream
from gpufleet_cli.parsers.wrappers import paths
from gpufleet_cli.timestamps import format_ns


class Line(NamedTuple):
    """What a test looks at: text, time as text, speaker, physical line."""

    text: str
    at: str | None
    who: dict[str, Any]
    line: int


class Anything:
    """A recogniser of every line, which keeps them."""

    PATTERNS = (r"[^\r]",)

    def __init__(self) -> None:
        self.read: list[LogLine] = []

    def recognise(self, line: LogLine, following: Following) -> Iterator[Fact]:
        self.read.append(line)
        return iter(())


def evidence_of(path: str, content: bytes | str) -> Evidence:
    data = content.encode() if isinstance(content, str) else content
    return Evidence(path=path, size_bytes=len(data), content=data)


def log_lines(
    content: bytes | str, *, path: str = "a.log", near_ns: int | None = None
) -> list[LogLine]:
    """Every line as recognisers get it, in file order."""
    anything = Anything()
    file = evidence_of(path, content)
    document = log_documents.read_document(file.head, file.read, file.size_bytes)
    pages = pages_of(file) if document is None else [page_of_entries(path, document.entries)]
    pages = training_log._in_time_order(pages)
    reader = LineReader(pages, paths.hints(path), near_ns=near_ns)
    LogStream(pages, reader, recognisers=(anything,)).read()
    return anything.read


def lines(content: bytes | str, *, path: str = "a.log", near_ns: int | None = None) -> list[Line]:
    """The same, short."""
    return [
        Line(
            line.text,
            None if line.at_ns is None else format_ns(line.at_ns),
            fields(line.speaker),
            line.line,
        )
        for line in log_lines(content, path=path, near_ns=near_ns)
    ]


def fields(speaker: Speaker) -> dict[str, Any]:
    """The known fields of a speaker but for its stream."""
    found = {name: getattr(speaker, name) for name in Speaker.__dataclass_fields__}
    return {n: v for n, v in found.items() if v is not None and v is not False and n != "stream"}


def facts_of(content: bytes | str, *, path: str = "a.log") -> list[Fact]:
    return list(training_log.parse(evidence_of(path, content)))


def writes(content: bytes | str, *, path: str = "a.log") -> list[Writes]:
    return [fact for fact in facts_of(content, path=path) if isinstance(fact, Writes)]
