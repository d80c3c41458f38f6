"""`PARSERS`: every file format, in the order of work; a file may match several of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from gpufleet_cli.evidence import Evidence
from gpufleet_cli.facts import Fact
from gpufleet_cli.parsers import (
    dcgm_metrics,
    flight_recorder,
    job_files,
    kernel_log,
    kubernetes_objects,
    kubernetes_tables,
    log_reads,
    py_spy,
    restart_room,
    slurm,
    training_log,
)


class Parser(Protocol):
    """A module that reads one file format. `parse_many` is optional: a batch that shares the work."""

    __name__: str

    def matches(self, path: str, head: bytes) -> bool: ...
    def parse(self, evidence: Evidence) -> Iterator[Fact]: ...


PARSERS: tuple[Parser, ...] = (
    job_files,
    flight_recorder,
    kernel_log,
    dcgm_metrics,
    kubernetes_objects,
    kubernetes_tables,
    log_reads,
    py_spy,
    restart_room,
    slurm,
    training_log,
)
