"""A GPU fault that no Xid tells: the driver's own words, NVSwitch errors, the rank's own log, its dump.

Claims the GPU that fell off the bus without a number, the node of a fatal SXid (no single GPU of it), the
rank whose log names the hardware, the rank whose completions stopped while its peers completed the
same collective, and the GPU whose metrics ended. What could look the same: an exporter that went away.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufleet_cli.facts import HostSign, SeriesEnd, Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import PlacedHost, PlacedSign
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import about, claim, ranks_text, waited_in
from gpufleet_cli.verdict import GpuRef, Hypothesis, Kind, Remedy

NAME = "gpu_signs"
SELF_SIGNS = (Sign.ECC_ERROR, Sign.CUDA_PEER_ERROR, Sign.NVLS_FAILED, Sign.ROCM_GPU_HANG)


def propose(case: Case) -> Iterator[Hypothesis]:
    """Driver, switch, log, dump, metrics."""
    yield from _off_the_bus(case)
    yield from _switch(case)
    yield from _own_words(case)
    yield from _stopped_completions(case)
    yield from _series_end(case)


def _off_the_bus(case: Case) -> Iterator[Hypothesis]:
    """The driver's line without an Xid number, on a GPU that no cause code named."""
    named = {(p.node, p.rank) for p in case.xids if p.relevant and p.reading.role != "effect"}
    for placed in case.hosts:
        if placed.event.sign not in (HostSign.GPU_OFF_BUS, HostSign.AMD_GPU_ERROR):
            continue
        if not placed.relevant or (placed.node, placed.rank) in named:
            continue
        named.add((placed.node, placed.rank))
        yield _host_line(case, placed)


def _host_line(case: Case, placed: PlacedHost) -> Hypothesis:
    ranks = () if placed.rank is None else (placed.rank,)
    what = (
        "its GPU fell off the bus"
        if placed.event.sign is HostSign.GPU_OFF_BUS
        else "the amdgpu driver reports a hardware error"
    )
    return Hypothesis(
        kind=Kind.HARDWARE,
        rule=NAME,
        summary=f"{placed.node}: {what}.",
        claims=(
            claim(
                f"{placed.node}: {placed.event.text[:160]}",
                placed.event.origin,
                claims.STRONG,
                rank=placed.rank,
                at_ns=placed.at_ns,
            ),
            *claims.waited_itself(case, placed.rank, host_lives=True),
        ),
        remedy=Remedy.NODE,
        ranks=ranks,
        nodes=() if placed.node is None else (placed.node,),
        gpu=GpuRef(pci_bus_id=placed.event.pci_bus_id),
        onset_ns=placed.at_ns,
        worsens=True,
        worsens_why="the GPU does not come back without a reset",
        reason_tag="GPU lost",
    )


def _switch(case: Case) -> Iterator[Hypothesis]:
    """A fatal SXid takes the whole node's fabric: no single GPU of it is blamed."""
    done: set[str] = set()
    for placed in case.sxids:
        if not placed.relevant or not placed.event.fatal or placed.node is None:
            continue
        if placed.node in done:
            continue
        done.add(placed.node)
        yield Hypothesis(
            kind=Kind.HARDWARE,
            rule=NAME,
            summary=f"{placed.node}: fatal NVSwitch error (SXid {placed.event.sxid});"
            " all its GPUs are affected.",
            claims=(
                claim(
                    f"SXid {placed.event.sxid}, Fatal, on {placed.node}{claims.when(placed.at_ns)}",
                    placed.event.origin,
                    claims.STRONG,
                    at_ns=placed.at_ns,
                ),
            ),
            remedy=Remedy.NODE,
            nodes=(placed.node,),
            onset_ns=placed.at_ns,
            worsens=True,
            worsens_why="the fabric of the node must be reset",
            reason_tag=f"SXid {placed.event.sxid}",
        )


def _own_words(case: Case) -> Iterator[Hypothesis]:
    """The rank's own log names the hardware: ECC, NVLink peer access, NVLS, a ROCm hang."""
    for sign in case.signs_of(*SELF_SIGNS):
        if claims.is_late(case, sign) or (sign.rank is None and sign.node is None):
            continue
        sign = _same_with_a_rank(case, sign)
        node_wide = sign.fact.sign in (Sign.NVLS_FAILED, Sign.CUDA_PEER_ERROR, Sign.ROCM_GPU_HANG)
        ranks: tuple[int, ...] = () if sign.rank is None else (sign.rank,)
        if node_wide:
            of_pod = case.topology.by_pod.get(sign.fact.speaker.pod or "", ranks)
            ranks = () if sign.node is not None else of_pod
        yield Hypothesis(
            kind=Kind.HARDWARE,
            rule=NAME,
            summary=f"{claims.sentence(ranks_text(ranks) if ranks else sign.node or 'a node')}"
            f" reports a hardware error: {(sign.fact.detail or sign.fact.text)[:100]}",
            claims=(about(sign, sign.fact.text[:160], claims.STRONG),),
            remedy=Remedy.NODE,
            ranks=ranks,
            nodes=() if sign.node is None else (sign.node,),
            onset_ns=sign.at_ns,
            worsens=None,
            worsens_why="depends on the kernel log of that node",
            reason_tag=str(sign.fact.sign),
            would_settle="the kernel log of that node",
        )
        return


def _same_with_a_rank(case: Case, first: PlacedSign) -> PlacedSign:
    """The line itself, or one of the same kind and node that tells the rank where it does not."""
    if first.rank is not None:
        return first
    told = (s for s in case.signs_of(first.fact.sign) if s.rank is not None)
    return next((s for s in told if s.node == first.node), first)


def _stopped_completions(case: Case) -> Iterator[Hypothesis]:
    """A rank's own completions stopped while its peers completed the same collective."""
    graph = case.graph
    if graph is None:
        return
    for root in graph.roots:
        if root.kind != "gpu-stalled":
            continue
        weight = claims.DECISIVE if root.share >= 0.6 else claims.GOOD
        yield Hypothesis(
            kind=Kind.HARDWARE,
            rule=NAME,
            summary=f"{claims.sentence(ranks_text(root.ranks))}: the GPU stopped completing collectives"
            " that its peers completed.",
            claims=tuple(
                claim(c.text, c.origin, weight if i == 0 else claims.WEAK, rank=c.rank)
                for i, c in enumerate(root.claims)
            ),
            remedy=Remedy.NODE,
            ranks=root.ranks,
            collective=waited_in(case),
            onset_ns=graph.onset_ns,
            worsens=None,
            worsens_why="no XID is at hand: the kernel log of its node would tell",
            reason_tag="GPU stalled",
            would_settle="the kernel log (XID) of the nodes of those ranks",
        )


def _exporter_gone(node: str | None, ends: list[SeriesEnd]) -> Hypothesis:
    """Several series of a node that end together: the node, or only its exporter."""
    return Hypothesis(
        kind=Kind.HARDWARE,
        rule=NAME,
        summary=f"{node}: the metrics of {len(ends)} GPUs ended: the node, or only its exporter.",
        claims=(
            claim(
                f"{len(ends)} series of {node} end{claims.when(ends[0].last_ns)}",
                ends[0].origin,
                claims.MODEST,
                at_ns=ends[0].last_ns,
            ),
        ),
        remedy=Remedy.NODE,
        nodes=() if node is None else (node,),
        onset_ns=ends[0].last_ns,
        reason_tag="metrics ended",
        would_settle=f"whether {node} answers",
    )


def _series_end(case: Case) -> Iterator[Hypothesis]:
    """One GPU's metrics ended while its neighbours' went on: the GPU is gone."""
    by_node: dict[str | None, list[SeriesEnd]] = {}
    for end in case.series_ends:
        last_step = case.steps.last_step_ns
        if case.stop.stopped or last_step is None or last_step < end.last_ns:
            by_node.setdefault(end.node, []).append(end)
    for node, ends in sorted(by_node.items(), key=lambda item: str(item[0])):
        if len(ends) > 1:
            yield _exporter_gone(node, ends)
            continue
        end = ends[0]
        rank = case.topology.rank_of_gpu(node, end.pci_bus_id, end.gpu_uuid)
        yield Hypothesis(
            kind=Kind.HARDWARE,
            rule=NAME,
            summary=f"{node}: the metrics of one GPU ended while its neighbours' went on.",
            claims=(
                claim(
                    f"the series of GPU {end.pci_bus_id or end.gpu_uuid} on {node} ends"
                    f"{claims.when(end.last_ns)}, the others go on until"
                    f"{claims.when(end.others_last_ns)[3:]}",
                    end.origin,
                    claims.FAIR,
                    rank=rank,
                    at_ns=end.last_ns,
                ),
            ),
            remedy=Remedy.NODE,
            ranks=() if rank is None else (rank,),
            nodes=() if node is None else (node,),
            onset_ns=end.last_ns,
            reason_tag="GPU lost",
            would_settle="the kernel log of that node",
        )
