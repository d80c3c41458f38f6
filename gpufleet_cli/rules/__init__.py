"""Why it happened. `RULES` is the registry, its order the order of work; rules never read each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from gpufleet_cli.reason import Case
from gpufleet_cli.rules import (
    collective_mismatch,
    gpu_fault,
    gpu_reading,
    gpu_signs,
    healthy,
    host_fault,
    missing_rank,
    named_rank,
    network_fault,
    node_fault,
    program_error,
    rendezvous,
    silent_kubelet,
    slow_rank,
    storage_fault,
)
from gpufleet_cli.verdict import Hypothesis


class Rule(Protocol):
    """A module that proposes explanations."""

    NAME: str

    def propose(self, case: Case) -> Iterator[Hypothesis]: ...


RULES: tuple[Rule, ...] = (
    collective_mismatch,
    gpu_fault,
    gpu_signs,
    gpu_reading,
    network_fault,
    host_fault,
    node_fault,
    storage_fault,
    program_error,
    rendezvous,
    missing_rank,
    silent_kubelet,
    named_rank,
    slow_rank,
    healthy,
)
