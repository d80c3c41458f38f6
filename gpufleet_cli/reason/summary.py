"""From files to summaries, and from summaries to facts: the only way in which evidence is read.

`summarise` takes files, one or many, to what each of them says; it reads nothing else and keeps
nothing. `merge` joins summaries in any order and any grouping to the same summary, so that shards of a
target can be read by processes or machines that never see the whole. What they must share is told
beforehand: files of one log are one piece (`pieces`), and stamps without a year take theirs from
the newest time of all (`newest_year_hint`, of which the largest counts).

>>> parts = [
...     summarise([Evidence(path=f"rank_{n}.log", size_bytes=5, content=b"step: 1 loss: 2.0")])
...     for n in range(3)
... ]
>>> one, two, three = parts
>>> merge([merge([three, one]), two]) == merge(parts)
True
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from gpufleet_cli.errors import Fault, ParseError
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import Fact, Gap, Origin, Writes
from gpufleet_cli.guard import guarded
from gpufleet_cli.parsers import flight_recorder, training_log
from gpufleet_cli.parsers.registry import PARSERS, Parser
from gpufleet_cli.parsers.safe_pickle import limited_memory
from gpufleet_cli.verdict import FileRead

RECORDER = PARSERS.index(flight_recorder)
MOST_NAMED = 8
FILE_MEMORY = 1200 << 20
_UNKNOWN = -1

Told = Callable[[int], None]
"""Is told how many further files have been read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """What one file says: for each parser that takes it, by its place in `PARSERS`, the facts.

    The place is -1 for the gap of a file whose format could not even be asked for. `is_blank`: there
    is nothing in it, and `damage` tells why where that is known.
    """

    path: str
    name: str
    size_bytes: int
    parts: tuple[tuple[int, tuple[Fact, ...]], ...] = ()
    is_blank: bool = False
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """What some files say, sorted by path."""

    files: tuple[FileSummary, ...]


# --- Files to a summary ---------------------------------------------------------------------------


def pieces(evidences: Sequence[Evidence]) -> list[list[Evidence]]:
    """The files that must be read together: rotated parts of one log; all others are alone."""
    return training_log.streams_of(sorted(evidences, key=lambda e: e.path))


def newest_year_hint(evidences: Iterable[Evidence]) -> int | None:
    """A time with a year from the logs among some files; of several shards the largest counts."""
    logs = (e for e in evidences if training_log.matches(e.path, e.head))
    return max((ns for e in logs if (ns := training_log.year_hint(e)) is not None), default=None)


def summarise(
    evidences: Sequence[Evidence],
    *,
    near_ns: int | None = None,
    strict: bool = False,
    told: Told | None = None,
) -> Summary:
    """What these files say. A file that breaks its parser costs itself and leaves a gap.

    The result depends on the files and `near_ns` alone; whether processes help is for the parsers to
    decide, by the number of files and their size.
    """
    listed = sorted(evidences, key=lambda e: e.path)
    parts: list[dict[int, tuple[Fact, ...]]] = [{} for _ in listed]
    wanted: list[list[int]] = [[] for _ in PARSERS]
    blank: set[int] = set()
    for index, evidence in enumerate(listed):
        formats = guarded(f"file {evidence.path}", partial(_formats, evidence), strict=strict)
        if isinstance(formats, Gap):
            parts[index][_UNKNOWN] = (formats,)
            continue
        if formats is None:
            blank.add(index)
            continue
        for order in formats:
            wanted[order].append(index)
    for order, parser in enumerate(PARSERS):
        chosen = [listed[index] for index in wanted[order]]
        by_evidence = {id(listed[index]): index for index in wanted[order]}
        for evidence, facts in _parse(parser, chosen, near_ns=near_ns, strict=strict):
            parts[by_evidence[id(evidence)]][order] = tuple(facts)
            if told is not None:
                told(1)
    return Summary(
        tuple(
            FileSummary(
                path=evidence.path,
                name=evidence.name,
                size_bytes=evidence.size_bytes,
                parts=tuple(sorted(parts[index].items(), key=lambda part: part[0])),
                is_blank=index in blank,
                damage=evidence.damage() if index in blank else None,
            )
            for index, evidence in enumerate(listed)
        )
    )


def _formats(evidence: Evidence) -> list[int] | None:
    """The parsers that take this file, by order (a pickled dump is nothing else); None for a file of blanks that none takes."""
    head = evidence.head
    if flight_recorder.matches(evidence.path, head) and flight_recorder.is_pickled(head):
        return [RECORDER]
    found = [order for order, parser in enumerate(PARSERS) if parser.matches(evidence.path, head)]
    return found if found or (head and not head.isspace()) else None


def _parse(
    parser: Parser, evidences: Sequence[Evidence], *, near_ns: int | None, strict: bool
) -> Iterator[tuple[Evidence, list[Fact]]]:
    """Facts per file of one parser; a batch for parsers that can share the work."""
    batch = getattr(parser, "parse_many", None)
    if not evidences or batch is None:
        for evidence in evidences:
            yield evidence, _one(parser, evidence, strict=strict)
        return
    if parser is training_log:
        batch = partial(batch, near_ns=near_ns)
    results = iter(batch(evidences))
    done: set[int] = set()
    while True:
        found = guarded(
            f"the parser {parser.__name__}", partial(next, results, None), strict=strict
        )
        if found is None:
            return
        if isinstance(found, Gap):  # the file that breaks the batch costs itself, not the rest
            for evidence in evidences:
                if id(evidence) not in done:
                    yield evidence, _one(parser, evidence, strict=strict)
            return
        evidence, result = found
        if strict and isinstance(result, Fault):
            raise result
        done.add(id(evidence))
        yield (
            evidence,
            [_gap_of(evidence, result)] if isinstance(result, ParseError) else list(result),
        )


def _one(parser: Parser, evidence: Evidence, *, strict: bool) -> list[Fact]:
    try:
        found = guarded(f"file {evidence.path}", partial(_facts, parser, evidence), strict=strict)
    except ParseError as exc:
        return [_gap_of(evidence, exc)]
    facts: list[Fact] = [found] if isinstance(found, Gap) else found
    damage = evidence.damage()
    if damage is not None:
        facts.append(
            Gap(what=f"file {evidence.path}", why=damage, origin=Origin(path=evidence.path))
        )
    return facts


def _facts(parser: Parser, evidence: Evidence) -> list[Fact]:
    try:
        with limited_memory(FILE_MEMORY):
            return list(parser.parse(evidence))
    except MemoryError:
        raise ParseError("it needs more memory than one file may take: not read") from None


def _gap_of(evidence: Evidence, exc: ParseError) -> Gap:
    return Gap(
        what=f"file {evidence.path}",
        why=exc.message,
        would_settle=exc.hint or "",
        rank=getattr(exc, "rank", None),
        origin=Origin(path=evidence.path),
    )


# --- Summaries to one, and to facts ---------------------------------------------------------------


def merge(summaries: Iterable[Summary]) -> Summary:
    """One summary of many, whatever their order and however they were merged before."""
    found: dict[str, FileSummary] = {}
    for summary in summaries:
        for file in summary.files:
            found[file.path] = file
    return Summary(tuple(found[path] for path in sorted(found)))


def facts_of(summary: Summary, gaps: Sequence[Gap]) -> tuple[list[Fact], tuple[FileRead, ...]]:
    """Every fact, in the order of paths and parsers, and what each file gave."""
    facts: list[Fact] = [*gaps, *_blank_gaps([file for file in summary.files if file.is_blank])]
    files: list[FileRead] = []
    for file in summary.files:
        own = [fact for _, part in file.parts for fact in part]
        formats = tuple(
            PARSERS[order].__name__.rsplit(".", 1)[-1] for order, _ in file.parts if order >= 0
        )
        facts.extend(own)
        if all(map(_says_nothing, own)) and not file.is_blank:
            facts.append(_not_understood(file.path, formats))
        counted = sum(len(part) for order, part in file.parts if order >= 0)
        files.append(
            FileRead(path=file.path, size_bytes=file.size_bytes, formats=formats, facts=counted)
        )
    return facts, tuple(files)


def _blank_gaps(files: Sequence[FileSummary]) -> Iterator[Gap]:
    """Files with nothing in them: one gap for all, and one for each that is only too damaged."""
    empty = [file.name for file in files if file.damage is None]
    for file in files:
        if file.damage is not None:
            origin = Origin(path=file.name)
            yield Gap(what=f"file {file.name}", why=file.damage, origin=origin)
    if len(empty) == 1:
        yield Gap(what=f"file {empty[0]}", why="empty", origin=Origin(path=empty[0]))
    elif empty:
        more = ", ..." if len(empty) > MOST_NAMED else ""
        names = ", ".join(empty[:MOST_NAMED])
        yield Gap(what=f"{len(empty)} empty files", why=f"nothing is in {names}{more}")


def _says_nothing(fact: Fact) -> bool:
    """Lines of nobody at no time: that they are there is all that a log parser can say."""
    if not isinstance(fact, Writes) or fact.dated or fact.complained:
        return False
    who = fact.speaker
    ids = (who.rank, who.prefix_rank, who.local_rank, who.node_rank, who.task, who.pid, who.pod)
    return all(value is None for value in (*ids, who.node, who.host))


def _not_understood(path: str, formats: Sequence[str]) -> Gap:
    why = (
        f"read as {', '.join(formats)}, but nothing in it was recognised"
        if formats
        else "it fits no format that gpufleet reads"
    )
    return Gap(what=f"file {path}", why=why, origin=Origin(path=path))
