"""Many log streams in a few processes (`worker_pool`), where there are enough bytes to pay for their
start. Results come back in the order of work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial

from gpufleet_cli.errors import ParseError
from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import Fact
from gpufleet_cli.parsers import training_log
from gpufleet_cli.parsers.safe_pickle import limited_memory, no_collection
from gpufleet_cli.parsers.worker_pool import Pool

Stream = Sequence[Evidence]
Answer = list[Fact] | ParseError

MANY_FILES = 64
MANY_BYTES = 48 << 20
FEW_BYTES = 4 << 20
AHEAD = 3
PATIENCE_S = 600.0
MEMORY_BYTES = 1200 << 20


def read_streams(
    streams: Sequence[Stream], *, near_ns: int | None
) -> Iterator[tuple[Stream, Answer]]:
    """Every stream with its facts, or with why it could not be read."""
    size = sum(evidence.size_bytes for stream in streams for evidence in stream)
    files = sum(len(stream) for stream in streams)
    if len(streams) < 2 or not (size > MANY_BYTES or (files > MANY_FILES and size > FEW_BYTES)):
        for stream in streams:
            yield stream, read_one(stream, near_ns)
        return
    largest_first = sorted(streams, key=lambda stream: -sum(e.size_bytes for e in stream))
    pool: Pool[Stream, list[Fact]] = Pool(
        len(streams),
        largest_first.__getitem__,
        reader=partial(_Reader, near_ns),
        decoder=lambda: list,
        is_heavy=_has_content,
        lost=lambda turn, why: ParseError(f"{largest_first[turn][-1].path}: {why}"),
        ahead=AHEAD,
        patience_s=PATIENCE_S,
    )
    with closing(pool.results(len(streams))) as results:
        for turn, answer in results:
            yield largest_first[turn], answer


def read_one(stream: Stream, near_ns: int | None) -> Answer:
    """The facts of one stream, in this process."""
    try:
        return _facts(stream, near_ns)
    except ParseError as exc:
        return exc


def _facts(stream: Stream, near_ns: int | None) -> list[Fact]:
    try:
        with limited_memory(MEMORY_BYTES), no_collection():
            return training_log.parse_stream(stream, near_ns=near_ns)
    except MemoryError:
        raise ParseError(f"{stream[-1].path} needs more memory than a log may take") from None


class _Reader:
    """In a worker: facts of one stream after the other."""

    def __init__(self, near_ns: int | None) -> None:
        self.near_ns = near_ns

    def __call__(self, stream: Stream) -> list[Fact]:
        return _facts(stream, self.near_ns)


def _has_content(stream: Stream) -> bool:
    return any(evidence.is_in_memory for evidence in stream)
