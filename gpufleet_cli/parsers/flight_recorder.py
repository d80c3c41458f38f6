"""PyTorch Flight Recorder dumps: what each rank's last collectives were.

Written by torch 2.2 to 2.14 and by forks, as a pickle or as JSON, one file a rank, on a watchdog
timeout, through the trigger pipe, by `torch.distributed.debug`'s handlers or by hand. The
schema is https://github.com/pytorch/pytorch,
torch/csrc/distributed/c10d/FlightRecorder.hpp. A file that should be a dump and cannot be read
raises an UnreadableDump that names its rank: the rank wrote something, which says that it lived.

>>> sample = (
...     b'{"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg",'
...     b' "ranks": "[0, 1]"}}, "pg_status": {"0": {"last_enqueued_collective": "41",'
...     b' "last_started_collective": "-1", "last_completed_collective": "40"}}}'
... )
>>> matches("dumps/nccl_trace_rank_1.json", sample)
True
>>> dump, gap = parse(Evidence(path="nccl_trace_rank_1.json", size_bytes=1, content=sample))
>>> dump.rank, dump.groups[0].members, dump.groups[0].last_enqueued, gap.rank
(1, (0, 1), 41, 1)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpufleet_cli.bundle import Evidence
from gpufleet_cli.errors import ParseError
from gpufleet_cli.facts import Fact
from gpufleet_cli.parsers import recorder_names, recorder_reader
from gpufleet_cli.parsers.recorder_reader import UnreadableDump as UnreadableDump
from gpufleet_cli.parsers.recorder_reader import read_dump

MANY = 64
"""Above so many files, more than one process is worth its start."""


def matches(path: str, head: bytes) -> bool:
    """Whether the file is a dump, or stands where one should be and cannot be read."""
    return recorder_names.is_dump(path, head)


def is_pickled(head: bytes) -> bool:
    """Whether the content is a dump in the form that torch writes, whatever the file's name."""
    return recorder_names.is_pickled(head)


def parse(evidence: Evidence) -> Iterator[Fact]:
    """The dump of one rank, and what it lacks."""
    yield from read_dump(*_job(evidence))


def parse_many(
    evidences: Sequence[Evidence],
) -> Iterator[tuple[Evidence, list[Fact] | ParseError]]:
    """The same for many files, in their order, in other processes; each costs itself at worst.

    Even few files are read in a process of their own: a pickle may hold a key that takes for ever
    to hash, and nothing can stop that inside this one.
    """
    if not evidences:
        return
    from gpufleet_cli.parsers.recorder_workers import read_all  # costs an import of 30 ms

    results = read_all(
        len(evidences), lambda turn: _job(evidences[turn]), is_many=len(evidences) > MANY
    )
    for evidence, result in zip(evidences, results, strict=True):
        yield evidence, result if isinstance(result, ParseError) else list(result)


def _job(evidence: Evidence) -> recorder_reader.Job:
    if evidence.file is not None:
        return evidence.path, evidence.size_bytes, evidence.file, None
    return evidence.path, evidence.size_bytes, None, evidence.read()
