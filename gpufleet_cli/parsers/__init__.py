"""What the evidence says. `PARSERS` is the registry; a file may match several of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from gpufleet_cli.bundle import Evidence
from gpufleet_cli.facts import Fact


class Parser(Protocol):
    """A module that reads one file format."""

    __name__: str

    def matches(self, path: str, head: bytes) -> bool: ...
    def parse(self, evidence: Evidence) -> Iterator[Fact]: ...
