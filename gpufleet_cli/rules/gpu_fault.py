"""A GPU, NVLink, NVSwitch or PCIe fault that the evidence names, or a GPU whose completions stopped.

Claims the GPU of a cause code (Xid, SXid, the driver's "fallen off the bus", an ECC error in the rank's own
log) near the onset; the rank whose own completions stopped while its peers completed the same
collective; and the NVLink domain when several of its nodes fail together. What could look the same:
symptom codes on innocents (43, 45, 13, 31, 74 at the far end), an old code on a sticky gauge, a
pending remap that stops nothing. It cannot see a fault that leaves no line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpufleet_cli.facts import Sign
from gpufleet_cli.reason import Case
from gpufleet_cli.reason.placed import NS, PlacedXid
from gpufleet_cli.reason.topology import normal_pci
from gpufleet_cli.reason.xid_history import domain_faults
from gpufleet_cli.rules import claims
from gpufleet_cli.rules.claims import claim, ranks_text, waited_in
from gpufleet_cli.verdict import Claim, GpuRef, Hypothesis, Kind, Remedy

NAME = "gpu_fault"
UNCONTAINED = 95
DOUBLE_BIT = 48
CONTAINED = 94
CLOSE_S = 120.0
SELF_SIGNS = (Sign.ECC_ERROR, Sign.CUDA_PEER_ERROR, Sign.NVLS_FAILED, Sign.ROCM_GPU_HANG)
UNIT = re.compile(r"GPC \d{1,3}, TPC \d{1,3}")
NEW_CRASH_S = 180.0
RARELY = 0.1
START_S = 60.0
"""So long before its container's start an error may still be one of this job's."""
LINK_CODES = frozenset({74, *range(144, 151)})
LOST_CODES = frozenset({62, 79, 95, 119, 120})


def propose(case: Case) -> Iterator[Hypothesis]:
    """Domains first (no single tray is blamed for them), then GPUs by code, by log, by dumps."""
    domains = domain_faults(case.xids, case.topology)
    in_domain = {event.event.origin for events in domains.values() for event in events}
    for domain, events in domains.items():
        yield _domain(case, domain, events)
    seen: set[tuple[str | None, int | None, str | None]] = set()
    made: list[Hypothesis] = []
    for placed in case.xids:
        # One GPU is written in two ways by its kernel and by NVML.
        key = (placed.node, placed.rank, normal_pci(placed.event.pci_bus_id))
        if placed.event.origin in in_domain or key in seen or not _is_cause(placed):
            continue
        if _is_elsewhere(case, placed) or _is_sympathetic(case, placed):
            continue
        seen.add(key)
        made.append(_xid(case, placed))
    yield from _several_at_once(case, made)
    yield from _repeated(case)


def _is_cause(placed: PlacedXid) -> bool:
    """A cause code near the onset; codes that are either count only where the line says fatal or
    their usual answer takes the node out."""
    if not placed.relevant or placed.reading.role == "effect":
        return False
    if placed.reading.role == "cause":
        return True
    return placed.reading.fatal is True or placed.reading.disposition in (
        "evict-now",
        "cordon-at-checkpoint",
    )


def _is_sympathetic(case: Case, placed: PlacedXid) -> bool:
    """A link error beside a fatal NVSwitch error, or beside a peer GPU that was lost within the same
    minute, is the far end of that fault (xid-notes, 74)."""
    if placed.event.xid not in LINK_CODES or placed.at_ns is None:
        return False
    switch = any(
        s.event.fatal
        and s.node == placed.node
        and s.at_ns is not None
        and s.at_ns <= placed.at_ns + 5 * NS
        for s in case.sxids
        if s.relevant
    )
    lost = any(
        p.event.xid in LOST_CODES
        and p.node == placed.node
        and p.event.pci_bus_id != placed.event.pci_bus_id
        and p.at_ns is not None
        and abs(p.at_ns - placed.at_ns) <= 60 * NS
        for p in case.xids
    )
    return switch or lost


def _several_at_once(case: Case, made: list[Hypothesis]) -> Iterator[Hypothesis]:
    """GPUs that each have a cause of their own and a rank that fell silent: all of them are guilty."""
    guilty = [
        h
        for h in made
        if len(h.ranks) == 1
        and h.ranks[0] not in case.witnesses
        and sum(c.weight for c in h.claims) >= claims.STRONG
    ]
    if len({h.ranks for h in guilty}) < 2 or not case.stop.stopped:
        yield from made
        return
    first = guilty[0]
    ranks = tuple(sorted({r for h in guilty for r in h.ranks}))
    yield replace(
        first,
        ranks=ranks,
        nodes=tuple(sorted({n for h in guilty for n in h.nodes})),
        gpu=None,
        summary=f"{claims.sentence(ranks_text(ranks))} lost their GPUs: "
        + "; ".join(h.summary.rstrip(".") for h in guilty[:3])
        + ".",
        claims=tuple(c for h in guilty for c in h.claims),
        corrupts=any(h.corrupts for h in guilty),
    )
    yield from (h for h in made if h not in guilty)


def _silent_elsewhere(case: Case, placed: PlacedXid) -> tuple[int, Claim] | None:
    """The one rank of unknown node that went silent when this GPU failed, clocks allowed for."""
    if placed.at_ns is None or placed.node in case.topology.by_node:
        return None
    close = [
        silence
        for rank, silence in case.silence.items()
        if silence.known
        and not silence.complained
        and silence.last_sign_ns is not None
        and rank not in case.witnesses
        and case.topology.node_of(rank) is None
        and abs(placed.at_ns - silence.last_sign_ns) / NS <= CLOSE_S + silence.error_s
    ]
    if len(close) != 1 or not case.witnesses:
        return None
    silence = close[0]
    text = (
        f"rank {silence.rank} went silent{claims.when(silence.last_sign_ns)}, when this GPU failed;"
        " its node stands nowhere in the evidence"
    )
    return silence.rank, claim(
        text, silence.origin, claims.FAIR, rank=silence.rank, at_ns=silence.last_sign_ns
    )


def _stalled_elsewhere(case: Case, placed: PlacedXid) -> tuple[int, Claim] | None:
    """The one rank of unknown node whose GPU stands still by the dumps, where no file tells whose GPU the
    code is about."""
    if case.graph is None or placed.node in case.topology.by_node:
        return None
    stalled = {
        root.ranks[0]: root
        for root in case.graph.roots
        if root.kind == "gpu-stalled" and len(root.ranks) == 1
    }
    if len(stalled) != 1 or len(case.graph.roots) != 1:
        return None
    [(rank, root)] = stalled.items()
    if case.topology.node_of(rank) is not None:
        return None
    text = f"rank {rank}'s GPU stands still by the dumps; its node stands nowhere in the evidence"
    return rank, claim(text, root.claims[0].origin, claims.FAIR, rank=rank)


def _is_elsewhere(case: Case, placed: PlacedXid) -> bool:
    """On a node that the map of a running, or fully placed, job does not know: another job's."""
    if placed.rank is not None or placed.node is None or not case.topology.by_node:
        return False
    if placed.node in case.topology.by_node:
        return False
    size = case.topology.world_size
    complete = size is not None and len(case.topology.places) >= size
    return complete or not case.stop.stopped


def _repeated(case: Case) -> Iterator[Hypothesis]:
    """Xid 13 again and again on one GPC and TPC of one GPU, or 31 on one GPU over several crashes: what
    is an application's fault once is a sign of hardware then (xid-notes, 13 and 31)."""
    bursts: dict[tuple[str | None, str | None, int, str], list[PlacedXid]] = {}
    for placed in sorted(case.xids, key=lambda p: (p.at_ns or 0, str(p.event.origin))):
        if placed.event.xid not in (13, 31) or placed.at_ns is None:
            continue
        where = UNIT.search(placed.event.text)
        unit = where[0] if where is not None and placed.event.xid == 13 else ""
        listed = bursts.setdefault(
            (placed.node, placed.event.pci_bus_id, placed.event.xid, unit), []
        )
        if not listed or (placed.at_ns - (listed[-1].at_ns or 0)) / NS > NEW_CRASH_S:
            listed.append(placed)
    for (_node, _pci, code, unit), listed in bursts.items():
        if len(listed) < 3 or not listed[-1].relevant or (code == 13 and not unit):
            continue
        last = listed[-1]
        made = _xid(case, last)
        text = f"XID {code} {unit} for the {len(listed)}th time on this GPU, first{claims.when(listed[0].at_ns)}"
        again = claim(
            text, last.event.origin, claims.STRONG + claims.FAIR, rank=last.rank, at_ns=last.at_ns
        )
        yield replace(made, claims=(again, *made.claims[1:]), worsens=True)


def _xid(case: Case, placed: PlacedXid) -> Hypothesis:
    event, reading = placed.event, placed.reading
    rank = placed.rank
    onset = case.onset_ns if case.onset_ns is not None else placed.at_ns
    found = [
        claim(
            f"XID {event.xid} on {placed.node or 'an unnamed node'}"
            f" GPU {event.pci_bus_id or event.gpu_uuid or '?'}{claims.when(placed.at_ns)}:"
            f" {reading.summary}",
            event.origin,
            _weight(case, placed),
            rank=rank,
            at_ns=placed.at_ns,
        )
    ]
    found.extend(_same_gpu_silent(case, placed))
    if event.xid not in (UNCONTAINED, DOUBLE_BIT):
        lives = event.xid in LOST_CODES or event.xid == CONTAINED
        found.extend(claims.waited_itself(case, rank, host_lives=lives))
    guess = None
    if rank is None:
        guess = _stalled_elsewhere(case, placed) or _silent_elsewhere(case, placed)
    if guess is not None:
        rank = guess[0]
        found.append(guess[1])
    ranks = () if rank is None else (rank,)
    nodes = () if placed.node is None else (placed.node,)
    is_ours = not _is_of_a_run_before(case, placed) and not _may_be_anothers(case, placed)
    corrupts = is_ours and _is_uncontained(case, placed)
    worse = reading.entry.worsens
    return Hypothesis(
        kind=Kind.HARDWARE,
        rule=NAME,
        summary=_xid_summary(case, placed),
        claims=tuple(found),
        remedy=Remedy.NODE,
        ranks=ranks,
        nodes=nodes,
        gpu=GpuRef(index=event.gpu_index, uuid=event.gpu_uuid, pci_bus_id=event.pci_bus_id),
        collective=waited_in(case),
        onset_ns=onset,
        degrades={"yes": True, "no": False}.get(reading.entry.degrades),
        degrades_why=f"XID {event.xid} {_degrading(reading.entry.degrades)}",
        worsens=True if corrupts else {"yes": True, "no": False}.get(worse),
        worsens_why="the next save may carry the corruption"
        if corrupts
        else _worsening(reading.entry.worsens, reading.entry.returns_to_service_after),
        corrupts=corrupts,
        xid=event.xid,
        reason_tag=f"XID {event.xid}",
        would_settle="" if ranks else "the GPU's rank: NCCL init lines or DCGM labels of that node",
    )


def _xid_summary(case: Case, placed: PlacedXid) -> str:
    event, reading = placed.event, placed.reading
    what = f"{reading.summary} (XID {event.xid})"
    if placed.rank is None:
        return f"{placed.node or 'A GPU'}: {what}."
    silence = case.silence.get(placed.rank)
    went_silent = silence is not None and not silence.complained and case.stop.stopped
    if silence is not None and went_silent and silence.last_sign_ns is not None:
        return f"Rank {placed.rank} went silent{claims.when(silence.last_sign_ns)}: {what}."
    return f"Rank {placed.rank}: {what}."


def _degrading(answer: str) -> str:
    return {"yes": "slows the run", "no": "does not slow a run that goes on"}.get(
        answer, "may slow the run"
    )


def _worsening(answer: str, returns_after: str) -> str:
    base = {
        "yes": "the GPU does not recover by itself",
        "no": "the fault is stable",
        "maybe": "it may fail again",
    }.get(answer, "not known for this code")
    return f"{base}; back in service after: {returns_after}" if returns_after else base


def _weight(case: Case, placed: PlacedXid) -> float:
    """Codes that stop a job weigh more than codes that usually do not (facts: localisation 8); one that
    hardly ever does is no story of a stop by itself."""
    prior = placed.reading.entry.stop_prior
    mean = 0.5 if prior is None else prior.mean
    if case.stop.stopped and mean < RARELY:
        return claims.WEAK / 2
    if placed.reading.disposition == "evict-now" or mean >= 0.85:
        weight = claims.STRONG
    elif mean >= 0.3:
        weight = claims.FAIR
    else:
        weight = claims.MODEST
    return weight - (claims.WEAK if not placed.event.zone_stated else 0.0)


def _same_gpu_silent(case: Case, placed: PlacedXid) -> list[Claim]:
    """The rank on this GPU went quiet within two minutes of the event, clocks allowed for."""
    if placed.rank is None or placed.at_ns is None:
        return []
    silence = case.silence.get(placed.rank)
    if silence is None or silence.last_sign_ns is None or not silence.known:
        return []
    gap = (placed.at_ns - silence.last_sign_ns) / NS
    margin = CLOSE_S + silence.error_s + placed.event.resolution_s
    if silence.complained or abs(gap) > margin:
        return []
    return [
        claim(
            f"rank {placed.rank} wrote its last ordinary line{claims.when(silence.last_sign_ns)},"
            f" {abs(gap):,.0f} s {'before' if gap >= 0 else 'after'} the event",
            silence.origin,
            claims.OUTLIER,
            rank=placed.rank,
            at_ns=silence.last_sign_ns,
        )
    ]


def _is_uncontained(case: Case, placed: PlacedXid) -> bool:
    """XID 95, or 48 without 94 on the same GPU: state may be corrupt."""
    if placed.event.xid == UNCONTAINED:
        return True
    same_gpu = {
        p.event.xid
        for p in case.xids
        if p.node == placed.node and p.event.pci_bus_id == placed.event.pci_bus_id and p.relevant
    }
    if UNCONTAINED in same_gpu:
        return True
    return DOUBLE_BIT in same_gpu and CONTAINED not in same_gpu


def _is_of_a_run_before(case: Case, placed: PlacedXid) -> bool:
    """Whether every program of this job on the node began later: what was corrupt then went with the one before. The
    kernel and the kubelet have one clock."""
    began = [
        container.started_ns
        for pod in case.pods
        if pod.node == placed.node
        for container in pod.containers
        if container.started_ns is not None
        and (container.has_gpu or container.name == pod.rank_container)
    ]
    if not began or placed.at_ns is None:
        return False
    return placed.at_ns < min(began) - START_S * NS


def _may_be_anothers(case: Case, placed: PlacedXid) -> bool:
    """Whether nothing says that the GPU is this job's, and it has only some of the node's."""
    if placed.rank is not None:
        return False
    own = sum(pod.gpus or 0 for pod in case.pods if pod.node == placed.node)
    there = next((node.gpus_capacity for node in case.nodes if node.name == placed.node), None)
    return bool(own) and there is not None and own < there


def _domain(case: Case, domain: str, events: tuple[PlacedXid, ...]) -> Hypothesis:
    nodes = tuple(sorted({e.node for e in events if e.node is not None}))
    return Hypothesis(
        kind=Kind.HARDWARE,
        rule=NAME,
        summary=f"NVLink domain {domain}: fabric errors on {len(nodes)} of its nodes within 30 s;"
        " no single tray is to blame.",
        claims=tuple(
            claim(
                f"XID {e.event.xid} on {e.node}{claims.when(e.at_ns)}: {e.reading.summary}",
                e.event.origin,
                claims.STRONG if i == 0 else claims.FAIR,
                rank=e.rank,
                at_ns=e.at_ns,
            )
            for i, e in enumerate(events[:4])
        ),
        remedy=Remedy.OUTSIDE,
        nodes=nodes,
        onset_ns=min(e.at_ns for e in events if e.at_ns is not None),
        worsens=True,
        worsens_why="a restart on the same domain runs into the same fabric",
        reason_tag=f"NVLink domain {domain}",
        would_settle="the state of the domain's switches and Fabric Manager / IMEX logs",
    )
