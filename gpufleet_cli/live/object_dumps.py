"""Flight Recorder dumps that somebody carried to a shared place: `--dumps s3://BUCKET/PATH/PREFIX`, any fsspec URL.

The prefix is torch's: a rank's number follows it. A location that ends in `/` is a folder, whose files
are told by their names. Listed first, within a bound, so that only what is there is read; where the place
may not be listed, each rank's file is asked for. A rank without a file is a gap.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from gpufleet_cli.errors import GpufleetError, SourceError
from gpufleet_cli.facts import MOST_RANKS
from gpufleet_cli.live import dump_gaps, shared_files, threads
from gpufleet_cli.live.api import Api
from gpufleet_cli.live.bundle_writer import BundleWriter
from gpufleet_cli.live.deadline import Deadline
from gpufleet_cli.live.find_job import Job
from gpufleet_cli.live.pods import Attempt
from gpufleet_cli.live.shared_files import Entry, NotListed, Place, Shelf
from gpufleet_cli.parsers import recorder_names
from gpufleet_cli.timestamps import format_ns

THREADS = 16
MOST_LISTED = 100_000
MOST_BYTES = 256 << 20
MOST_TOTAL = 8 << 30
NS = 1_000_000_000
SLACK_S = 60
"""The store's clock and the API server's may differ by so much."""
_SUFFIXES = r"(?:\.(?:json|pkl|pickle|bin|dump|gz|zst|zstd|bz2|xz)){0,2}"
_RANK_AND_SUFFIX = re.compile(rf"(\d{{1,7}}){_SUFFIXES}", re.IGNORECASE)
_AT_THE_END = re.compile(rf"{_SUFFIXES}$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """One file to read, of one rank."""

    rank: int
    entry: Entry

    @property
    def kept_as(self) -> str:
        suffixes = _AT_THE_END.search(self.entry.name)
        return f"dumps/nccl_trace_rank_{self.rank}{suffixes[0].lower() if suffixes else ''}"


def gather(api: Api, job: Job, attempt: Attempt, sink: BundleWriter, *, location: str) -> None:
    """The dumps of the job's ranks."""
    del job
    try:
        place = shared_files.place_of(location)
    except GpufleetError as exc:
        sink.gap("Flight Recorder dumps of all ranks", exc.message, dump_gaps.SETTLES)
        return
    package = shared_files.lacking(location)
    if package is not None:
        sink.gap(f"Flight Recorder dumps in {place.shown}", needs(package), dump_gaps.SETTLES)
        return
    known = sink.about.get("world_size")
    ranks = known if isinstance(known, int) else None
    refused: dict[str, list[tuple[int | None, str]]] = defaultdict(list)
    try:
        shelf = shared_files.opened(place)
        wanted = _wanted(shelf, place, ranks, api.deadline)
        if wanted is None:
            names = ((rank, f"{place.stem}{rank}") for rank in range(ranks or 0))
            wanted = {rank: Entry(name=name, size=None, modified=None) for rank, name in names}
    except GpufleetError as exc:
        sink.gap(f"Flight Recorder dumps in {place.shown}", exc.message, dump_gaps.SETTLES)
        return
    if not wanted:
        why = f"nothing there begins so: {place.shown}"
        sink.gap("Flight Recorder dumps of all ranks", why, dump_gaps.SETTLES)
        return
    for rank in range(ranks or 0):
        if rank not in wanted:
            refused[f"not in {place.shown}"].append((rank, ""))
    _read(api, shelf, attempt, wanted, refused, sink)
    dump_gaps.tell(refused, sink)


def needs(package: str) -> str:
    """What to install, in one line."""
    return f"{package} is not installed: pip install 'gpufleet[{shared_files.EXTRA}]'"


def _wanted(
    shelf: Shelf, place: Place, ranks: int | None, deadline: Deadline
) -> dict[int, Entry] | None:
    """The newest file of each rank of the job; None where the place cannot be listed and the names of
    the files are certain all the same."""
    try:
        return listed(shelf, place, ranks, deadline)
    except NotListed as exc:
        if ranks is not None and place.stem:
            return None
        raise SourceError(f"it cannot be listed: {exc.message}") from exc


def listed(shelf: Shelf, place: Place, ranks: int | None, deadline: Deadline) -> dict[int, Entry]:
    """The newest file of each rank below `ranks`. SourceError, NotListed where there may be files all the same."""
    found: dict[int, Entry] = {}
    for entry in _entries(shelf, place, deadline):
        rank = rank_of(entry.name, place.stem)
        if rank is None or rank >= (MOST_RANKS if ranks is None else ranks):
            continue
        before = found.get(rank)
        if before is None or _time(entry) > _time(before):
            found[rank] = entry
    return found


def _entries(shelf: Shelf, place: Place, deadline: Deadline) -> list[Entry]:
    """The listing by a thread of its own, so that a store that hangs holds nobody up."""
    listing = threads.each(
        lambda stem: list(shelf.entries(stem, MOST_LISTED)),
        [place.stem],
        threads=1,
        deadline=deadline,
    )
    for _, found in listing:
        return found
    raise SourceError("not listed by the deadline")


def rank_of(name: str, stem: str) -> int | None:
    """The rank behind the prefix; in a folder, the rank that the name tells.

    >>> rank_of("nccl_trace_rank_12", "nccl_trace_rank_"), rank_of("nccl_trace_rank_12.tmp", "nccl_trace_rank_")
    (12, None)
    >>> rank_of("run7-3.json.gz", "run7-"), rank_of("run7-3b", "run7-"), rank_of("dump_9", "")
    (3, None, 9)
    """
    if not stem:
        return recorder_names.rank_in_name(name) if recorder_names.is_dump(name, b"") else None
    found = _RANK_AND_SUFFIX.fullmatch(name, len(stem)) if name.startswith(stem) else None
    return None if found is None else int(found[1])


def _time(entry: Entry) -> datetime:
    return entry.modified or datetime.min.replace(tzinfo=UTC)


# --- Reading --------------------------------------------------------------------------------------


def _read(
    api: Api,
    shelf: Shelf,
    attempt: Attempt,
    wanted: Mapping[int, Entry],
    refused: dict[str, list[tuple[int | None, str]]],
    sink: BundleWriter,
) -> None:
    tasks = []
    total = 0
    for rank, entry in sorted(wanted.items()):
        one = _Wanted(rank=rank, entry=entry)
        if one.kept_as in sink.files or sink.has(one.kept_as):
            continue
        why = _stale(entry, attempt) or _too_large(entry, total)
        if why is not None:
            refused[why].append((rank, ""))
            continue
        total += entry.size or 0
        tasks.append(one)
    done: set[int] = set()
    read = partial(_one, shelf, attempt)
    for one, (data, why) in threads.each(read, tasks, threads=THREADS, deadline=api.deadline):
        done.add(one.rank)
        if data is None:
            refused[why].append((one.rank, ""))
        else:
            sink.add_bytes(one.kept_as, data, read_from=one.entry.name)
    for one in tasks:
        if one.rank not in done:
            refused["not there by the deadline"].append((one.rank, ""))


def _one(shelf: Shelf, attempt: Attempt, wanted: _Wanted) -> tuple[bytes | None, str]:
    try:
        found = shelf.read(wanted.entry.name, MOST_BYTES)
    except SourceError as exc:
        return None, exc.message
    if found is None:
        return None, "no such file in the store"
    entry, data = found
    stale = _stale(entry, attempt)
    if stale is not None:
        return None, stale
    return (data, "") if data else (None, "the file is empty")


def _too_large(entry: Entry, total: int) -> str | None:
    if (entry.size or 0) > MOST_BYTES:
        return f"over {MOST_BYTES >> 20} MB: not read"
    if total + (entry.size or 0) > MOST_TOTAL:
        return f"all dumps together are over {MOST_TOTAL >> 30} GB: the rest is not read"
    return None


def is_stale(entry: Entry, attempt: Attempt) -> bool:
    """Whether it lay there before the attempt began."""
    return _stale(entry, attempt) is not None


def _stale(entry: Entry, attempt: Attempt) -> str | None:
    """A file written before the attempt began is of an earlier one: nothing removes last week's."""
    if entry.modified is None or attempt.started_ns is None:
        return None
    written_ns = round(entry.modified.timestamp()) * NS
    if written_ns + SLACK_S * NS >= attempt.started_ns:
        return None
    began = format_ns(attempt.started_ns // NS * NS)
    return f"an earlier attempt's: put there before this one began at {began}"
