"""Logs of training jobs in any wrapper: what lines say (`parsers/lines`), and who wrote when.

Written by PyTorch, NCCL, torchrun, frameworks and applications; wrapped by container runtimes, log
collectors, schedulers and launchers (`parsers/wrappers`). Rotated files of one log are one stream.

    2025-05-12T09:57:45.01404004Z [rank3]:[titan] 2025-05-12 09:57:45,014 - root - INFO - step: 10 ...

`parse` reads one file, `parse_many` all of a target: it joins rotated files, gives stamps without a
year the year of the others, and uses several processes where that pays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpufleet_cli.errors import ParseError
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import Fact, Gap, IdentityLink, Link, Origin, Speaker
from gpufleet_cli.parsers import log_documents, log_lost, py_spy
from gpufleet_cli.parsers.log_pages import (
    Page,
    page_of_entries,
    pages_of,
    wide_encoding,
)
from gpufleet_cli.parsers.log_progress import joined
from gpufleet_cli.parsers.log_reader import LineReader
from gpufleet_cli.parsers.log_stream import LogStream
from gpufleet_cli.parsers.log_text import decode, printable
from gpufleet_cli.parsers.log_writes import StreamEnd, writes_of
from gpufleet_cli.parsers.wrappers import paths
from gpufleet_cli.timestamps import ISO, match_iso

_BINARY = (
    b"\x80\x02",
    b"\x80\x03",
    b"\x80\x04",
    b"\x80\x05",
    b"PK\x03\x04",
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b"\x7fELF",
    b"%PDF",
    b"\x89PNG",
    b"BZh",
    b"\xfd7zXZ",
)
_KERNEL = re.compile(
    rb"(?:<\d{1,3}>)?\[ {0,8}\+?\d{1,9}\.\d{6}\] |\S{3} [ \d]\d \d\d:\d\d:\d\d \S+ kernel: |"
    rb"\d{4}-\d\d-\d\dT\S{8,30} \S+ kernel: |\[\S{2,9} \S{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\] |"
    rb"(?:\S+: )?(?:kern|user|daemon): {1,8}\w+: \[|\{[^\n]{0,4096}\"_TRANSPORT\" ?: ?\"kernel\""
)
_TABLE = re.compile(
    rb"(?:NAMESPACE\s+)?(?:LAST SEEN|NAME|JOBID|PARTITION|NODELIST|STATE)\s{2,}|JobId=\d|NodeName=\S|"
    rb"[ \t]*JOBID\s|(?:JobID|JobIDRaw)(?:\||\s{2,})|(?:apiVersion|kind): \S|Name:\s{2,}\S|"
    rb"PARTITION\s+AVAIL|REASON\s{2,}USER|HOSTNAMES?\s|# (?:HELP|TYPE) \w"
)
_OTHER_FILES = re.compile(
    r"(?:^|/)(?:topology|job|case|manifest)\.json$|\.(?:md|py|sh|ya?ml|toml|html?|cfg|ini|rst|c|cpp|cu|h)$|"
    r"(?:^|/)(?:README|LICENSE|Makefile|Dockerfile)[^/]*$"
)

NO_YEAR = "no time in it has a year; its times are only relative"


def matches(path: str, head: bytes) -> bool:
    """Any text that is not surely another format: kernel logs, dumps, lists, tables, metrics."""
    if not head or head.isspace() or head.startswith(_BINARY) or _OTHER_FILES.search(path):
        return False
    if py_spy.matches(path, head):  # names of functions are no words of a log
        return False
    if wide_encoding(head) is not None:
        return True
    sample = head[:8192]
    odd = len(sample) - len(sample.translate(None, b"\x01\x02\x03\x05\x06"))
    if odd > 8 or not sample.translate(None, b"\0").strip():
        return False
    if sample.count(b"\0") * 2 > len(sample) or log_documents.is_other_json(head):
        return False
    lines = [line for line in head.split(b"\n", 40)[:40] if line.strip()]
    kernel = sum(1 for line in lines if _KERNEL.match(line))
    return kernel * 2 < len(lines) + (kernel == 0) and _TABLE.match(lines[0]) is None


def parse(evidence: Evidence, *, near_ns: int | None = None) -> Iterator[Fact]:
    """The facts of one file. `near_ns` is a time close to it, for stamps that have no year."""
    yield from parse_stream([evidence], near_ns=near_ns)


def parse_stream(files: Sequence[Evidence], *, near_ns: int | None = None) -> list[Fact]:
    """The facts of the files of one stream, oldest first."""
    hints = paths.hints(files[-1].path)
    pages: list[Page] = []
    facts: list[Fact] = []
    cut = False
    for evidence in files:
        document = log_documents.read_document(evidence.head, evidence.read, evidence.size_bytes)
        if document is None:
            pages += pages_of(evidence)
            damage = evidence.damage()
            if damage is not None:
                facts.append(_gap(evidence.path, damage))
            continue
        cut = cut or document.cut
        facts += [_gap(evidence.path, why) for why in document.gaps]
        if document.cut:
            facts.append(_gap(evidence.path, "the document is cut off"))
        if document.entries:
            pages.append(page_of_entries(evidence.path, document.entries))
    pages = _in_time_order(pages)
    if not pages:
        return facts
    reader = LineReader(pages, hints, near_ns=near_ns)
    stream = LogStream(pages, reader)
    stream.read()
    if not reader.year_known:
        facts.append(_gap(pages[0].path, NO_YEAR))
    end = _end_of(files[-1], pages[-1])
    return [
        *facts,
        *stream.facts,
        *stream.gaps,
        *_accounts(stream, cut=cut, end=end),
        *_links(stream),
    ]


def _in_time_order(pages: list[Page]) -> list[Page]:
    """Text of `logcli` is newest first: it is read as a document after all."""
    if len(pages) != 1 or pages[0].entries:
        return pages
    page = pages[0]
    head = [line for line in page.data[:65_536].split(b"\n", 16)[:16] if line]
    if not log_documents.is_logcli([printable(decode(line[:4096])) for line in head]):
        return pages
    lines = [printable(decode(line)) for line in page.data.split(b"\n")]
    return [page_of_entries(page.path, log_documents.sorted_logcli(lines).entries)]


def _gap(path: str, why: str) -> Gap:
    return Gap(what=f"all of {path}", why=why, origin=Origin(path=path))


def _end_of(last: Evidence, page: Page) -> StreamEnd:
    """Whether the stream ends inside a line, and whether that looks like an unflushed buffer."""
    if page.entries or not page.data:
        return StreamEnd(False, False, False, False)
    cut = not page.data.endswith(b"\n")
    size = last.size_bytes if last.file is not None else len(last.read())
    return StreamEnd(cut, cut and size > 0 and size % 4096 == 0, False, False)


def _accounts(stream: LogStream, *, cut: bool, end: StreamEnd) -> Iterator[Fact]:
    for (speaker, _, total_steps), found in stream.progress.items():
        yield joined(stream.accounts[speaker].speaker, total_steps, found)
    for account in stream.accounts.values():
        filtered = _is_filtered(stream, account.speaker)
        given = stream.reader.year_given
        writes = writes_of(account, StreamEnd(cut or end.cut, end.buffered, filtered, given))
        if writes is not None:
            yield writes


def _is_filtered(stream: LogStream, speaker: Speaker) -> bool:
    """Whether lines of this speaker may be missing although it wrote them.

    Ray prints one worker's line for several. A launcher's filter drops other ranks' lines: those who
    are printed are printed in full, so only what carries no rank stands for ranks that are not.
    """
    if speaker.stream in stream.repeated:
        return True
    return speaker.stream in stream.filtered and log_lost.is_nobody(speaker)


def _links(stream: LogStream) -> Iterator[IdentityLink]:
    """Global rank and local rank that one speaker's own lines or place give together."""
    done: set[tuple[object, ...]] = set()
    for account in stream.accounts.values():
        speaker = account.speaker
        if speaker.rank is None or speaker.local_rank is None or not account.seen:
            continue
        key = (speaker.rank, speaker.local_rank, speaker.pod, speaker.node, speaker.attempt)
        if key in done:
            continue
        done.add(key)
        first = account.seen[0]
        yield _link(speaker, first.path, first.line, certain=stream.reader.hints.certain)


def _link(speaker: Speaker, path: str, line: int, *, certain: bool) -> IdentityLink:
    return IdentityLink(
        how=Link.LOG if certain else Link.DERIVED,
        origin=Origin(path=path, line=line),
        rank=speaker.rank,
        local_rank=speaker.local_rank,
        pod=speaker.pod,
        pod_uid=speaker.pod_uid,
        container=speaker.container,
        namespace=speaker.namespace,
        node=speaker.node,
        host=speaker.host,
        pid=speaker.pid,
        attempt=speaker.attempt,
        cycle=speaker.cycle,
        stream=speaker.stream,
    )


# --- Many files -----------------------------------------------------------------------------------


def streams_of(evidences: Sequence[Evidence]) -> list[list[Evidence]]:
    """The files of each stream together, oldest first, streams by the place of their newest file."""
    groups: dict[str, list[Evidence]] = {}
    for evidence in evidences:
        groups.setdefault(paths.hints(evidence.path).stream, []).append(evidence)
    return [sorted(files, key=lambda e: paths.hints(e.path).order) for files in groups.values()]


def year_hint(evidence: Evidence) -> int | None:
    """The first time with a year in the head of a file, as context for files that have none."""
    found = ISO.search(evidence.head.decode("latin-1"))
    stamp = None if found is None else match_iso(found[0])
    return None if stamp is None else stamp.ns


Result = tuple[Evidence, tuple[Fact, ...] | ParseError]


def parse_many(evidences: Sequence[Evidence], *, near_ns: int | None = None) -> Iterator[Result]:
    """(file, its facts or why it could not be read) for every file, as they are done."""
    from gpufleet_cli.parsers import log_workers

    streams = streams_of(evidences)
    if near_ns is None:
        near_ns = max((ns for e in evidences if (ns := year_hint(e)) is not None), default=None)
    for files, result in log_workers.read_streams(streams, near_ns=near_ns):
        for evidence in files:
            yield (
                evidence,
                result if isinstance(result, ParseError) else _own(result, evidence, files),
            )


def _own(facts: Sequence[Fact], evidence: Evidence, files: Sequence[Evidence]) -> tuple[Fact, ...]:
    """The facts of a stream that stand in one of its files."""
    if len(files) == 1:
        return tuple(facts)
    newest = files[-1].path
    return tuple(fact for fact in facts if (_path_of(fact) or newest) == evidence.path)


def _path_of(fact: Fact) -> str | None:
    origin = getattr(fact, "origin", None)
    return origin.path if isinstance(origin, Origin) else getattr(fact, "path", None)
