"""How many ranks the job has: who says so, in the order of trust."""

from __future__ import annotations

from collections.abc import Sequence

from gpufleet_cli.facts import IdentityLink, JobNumbers, Link, PodState, Speaker, WatchdogTimeout

FEW_RANKS = 16_384
Size = tuple[int, str]
"""Ranks, and the source that says so."""


def stated(
    given: Sequence[JobNumbers], timeouts: Sequence[WatchdogTimeout], recorded: int | None
) -> Size | None:
    """What a flag or a file gives; else, without dumps, what the size of a collective tells."""
    found = next(((n.world_size, n.source) for n in given if n.world_size is not None), None)
    if found is not None or recorded is not None:
        return found
    size = _by_numels(timeouts)
    return None if size is None else (size, "evidence")


def _by_numels(timeouts: Sequence[WatchdogTimeout]) -> int | None:
    """An all-gather of the default group puts out as many times what it takes in as there are ranks,
    a reduce-scatter the other way round."""
    for timeout in timeouts:
        group = timeout.group
        if (
            group is None
            or group.desc != "default_pg"
            or not timeout.numel_in
            or not timeout.numel_out
        ):
            continue
        small, large = sorted((timeout.numel_in, timeout.numel_out))
        if timeout.op.strip("_").startswith(("ALLGATHER", "REDUCE_SCATTER")) and large % small == 0:
            return large // small if large > small else None
    return None


def chosen(
    links: Sequence[IdentityLink],
    speakers: Sequence[Speaker],
    told: Size | None,
    recorder: int | None,
    gathered: int | None,
) -> tuple[int | None, str]:
    """`told` by flag, file or collective; then dumps, NCCL's init, what the gathered pods start, agents."""
    if told is not None:
        return told
    if recorder is not None:
        return recorder, "flight-recorder"
    sizes = [link.rank_in for link in links if link.rank_in is not None]
    if sizes:
        return max(sizes), "nccl-init"
    if gathered is not None and _highest(links, speakers) < gathered:
        return gathered, "pod-spec"
    agent = [link.rank for link in links if link.how is Link.AGENT and link.rank is not None]
    if not agent:
        return None, "unknown"
    # An agent names the rank that failed on its node; those beside it only write.
    spoken = _highest((), speakers)
    return max(*agent, spoken if spoken < FEW_RANKS else 0) + 1, "agent"


def _highest(links: Sequence[IdentityLink], speakers: Sequence[Speaker]) -> int:
    """The highest rank that anybody speaks of: no world is smaller."""
    spoken = [speaker.rank for speaker in speakers]
    spoken += [speaker.prefix_rank for speaker in speakers]
    return max(
        (rank for rank in [*spoken, *(x.rank for x in links)] if rank is not None), default=0
    )


def of_pods(pods: Sequence[PodState]) -> int | None:
    """What these pods start together, where each says how many."""
    sizes = [pod.nproc or pod.gpus for pod in pods if pod.gpus]
    return sum(size or 0 for size in sizes) if sizes and all(sizes) else None
