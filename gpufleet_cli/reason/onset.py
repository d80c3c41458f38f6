"""When an incident began, as far as its own lines and dumps tell."""

from __future__ import annotations

from collections.abc import Sequence

from gpufleet_cli.facts import Sign, WatchdogTimeout
from gpufleet_cli.reason.placed import NS, Placed, PlacedSign, Steps
from gpufleet_cli.reason.recorder_finding import GraphFinding

CAUSE_SIGNS = frozenset(
    {
        Sign.CUDA_OOM,
        Sign.HOST_OOM,
        Sign.ECC_ERROR,
        Sign.CUDA_ERROR,
        Sign.CUDA_PEER_ERROR,
        Sign.ILLEGAL_ACCESS,
        Sign.DEVICE_ASSERT,
        Sign.NIC_ERROR,
        Sign.LOADER_KILLED,
        Sign.PYTHON_EXCEPTION,
        Sign.MISMATCH,
        Sign.PEER_UNREACHABLE,
        Sign.FATAL_SIGNAL,
        Sign.NODE_FAILED,
        Sign.TASK_EXIT,
        Sign.CHILD_FAILED,
        Sign.ASYNC_ERROR,
        Sign.ROOT_CAUSE_BLOCK,
        Sign.FS_ERROR,
    }
)


def began_ns(
    timeouts: Sequence[Placed[WatchdogTimeout]],
    graph: GraphFinding | None,
    signs: Sequence[PlacedSign],
    steps: Steps,
) -> int | None:
    """When it began: the earliest start of an operation that timed out, the last completion that
    the recorder saw, or the first line that is a cause."""
    started = [t.at_ns - t.fact.ran_ms * 1_000_000 for t in timeouts if t.at_ns is not None]
    causes = [s.at_ns for s in signs if s.fact.sign in CAUSE_SIGNS and s.at_ns is not None]
    if started:
        first = min(started)
        before = [at for at in causes if first - 120 * NS <= at < first]
        return min([first, *before])
    if graph is not None and graph.onset_ns is not None:
        return graph.onset_ns
    if causes:
        return min(causes)
    return steps.last_step_ns
