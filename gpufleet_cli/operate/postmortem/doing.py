"""What the culprits were doing: stack, last collective, last step, last lines; and what their hardware said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpufleet_cli.facts import Origin, ProcessStack, Writes
from gpufleet_cli.operate.postmortem.quotes import Lines, Stretch, last_lines
from gpufleet_cli.postmortem_card import AlikeEvents, Doing, HardwareHistory, Whose
from gpufleet_cli.reason import Case
from gpufleet_cli.timestamps import format_ns
from gpufleet_cli.triage import Inquiry
from gpufleet_cli.verdict import Culprit, HardwareEvent, RankRow

MOST = 4
MOST_EVENTS = 60
MOST_STATES = 40
MOST_REACH = 12


def doing(found: Inquiry, lines: Lines) -> tuple[Doing, ...]:
    """The culprits, or of an undecidable incident the first few whom the evidence leaves."""
    rows = {row.rank: row for row in found.triage.ranks}
    chosen: list[tuple[Culprit | None, RankRow | None]] = []
    for one in found.triage.verdict.culprits:
        if one.rank is not None:
            chosen.append((one, rows.get(one.rank)))
        else:
            chosen.append((one, _of_node(found, rows, one.node)))
    if not chosen:
        suspects = [row for row in found.triage.ranks if row.standing == "suspect"]
        chosen = [(None, row) for row in suspects]
    told = [_doing(found, lines, culprit, row) for culprit, row in chosen[:MOST]]
    left = tuple(row.rank for _, row in chosen[MOST:] if row is not None)
    if told and left:
        told[-1] = replace(told[-1], alike=left)
    return tuple(told)


def _of_node(found: Inquiry, rows: Mapping[int, RankRow], node: str | None) -> RankRow | None:
    """Of a node without a rank that is named: the first of its ranks that wrote."""
    own = [rows[rank] for rank in found.case.topology.by_node.get(node or "", ()) if rank in rows]
    return next((row for row in own if row.last_write_ns is not None), own[0] if own else None)


def _doing(found: Inquiry, lines: Lines, culprit: Culprit | None, row: RankRow | None) -> Doing:
    if row is None:
        assert culprit is not None
        return Doing(
            rank=culprit.rank, culprit=culprit, standing="culprit", pod=culprit.pod, node=culprit.node,
            stack=(), stack_from="", stack_origin=None, collective=found.triage.verdict.collective,
            last_step=None, last_sign_ns=culprit.silent_since_ns, last_text="", origin=None,
            lines=(), lines_of="",
        )  # fmt: skip
    stack, told_by, origin = _stack(found, row.rank)
    stretch = _stretch(found, row.rank)
    shown, whose = stretch, Whose.OWN
    if shown is None:
        shown, whose = _spoken_of(found, row.rank), Whose.ABOUT
    if shown is None:
        shown, whose = _of_its_pod(found, row), Whose.POD
    return Doing(
        rank=row.rank,
        culprit=culprit,
        standing=row.standing,
        pod=row.pod,
        node=row.node,
        stack=stack,
        stack_from=told_by,
        stack_origin=origin,
        collective=row.collective,
        last_step=row.last_step,
        last_sign_ns=row.last_sign_ns,
        last_text=row.last_text,
        origin=row.origin,
        lines=() if shown is None else last_lines(lines, shown),
        lines_of="" if shown is None else shown.path,
        whose=whose,
    )


def _stack(found: Inquiry, rank: int) -> tuple[tuple[str, ...], str, Origin | None]:
    """The newest of: a look into the process, its dump, its own watchdog's line."""
    for fact in found.facts:
        if isinstance(fact, ProcessStack) and fact.rank == rank:
            return fact.frames, f"py-spy, main thread {fact.state}", fact.origin
    graph = found.case.graph
    wait = None if graph is None else graph.standing.get(rank)
    if wait is not None and wait.frames:
        return wait.frames, "its Flight Recorder dump, of the operation it stands in", wait.origin
    for timeout in found.case.timeouts:
        if timeout.rank == rank and timeout.fact.frames:
            return timeout.fact.frames, "its own watchdog", timeout.fact.origin
    return _stack_of_a_peer(found)


def _stack_of_a_peer(found: Inquiry) -> tuple[tuple[str, ...], str, Origin | None]:
    """Where somebody stood who waited: the code that the missing one should have reached."""
    graph = found.case.graph
    for row in sorted(found.triage.ranks, key=lambda one: one.rank):
        wait = None if graph is None else graph.standing.get(row.rank)
        if row.standing in ("witness", "stuck") and wait is not None and wait.frames:
            told = f"no stack of its own; here rank {row.rank} waited, by its Flight Recorder dump"
            return wait.frames, told, wait.origin
    return (), "", None


def _stretch(found: Inquiry, rank: int) -> Stretch | None:
    """Where it wrote last. Who shares the file is told by the others' last lines in it."""
    places = found.case.topology.by_speaker
    own = [w for w in found.case.writes if places.get(w.speaker) == rank]
    if not own:
        return None
    row_path = next((r.origin.path for r in found.triage.ranks if r.rank == rank and r.origin), "")
    newest = max(own, key=lambda w: (w.path == row_path, w.last_ns or 0, w.last_line, w.path))
    in_file = [w for w in own if w.path == newest.path]
    others = {
        places.get(w.speaker)
        for w in found.case.writes
        if w.path == newest.path and places.get(w.speaker) not in (None, rank)
    }
    normal = max((w.last_normal_line for w in in_file if w.last_normal_line), default=None)
    return Stretch(
        path=newest.path,
        normal=normal,
        last=max(w.last_line for w in in_file),
        known=frozenset(_known(found.case, rank, newest.path, in_file)),
        alone=not others,
    )


def _spoken_of(found: Inquiry, rank: int) -> Stretch | None:
    """Of a rank that no line is known to be from: the line that a claim about it stands on, and what is before."""
    alone = [c.rank for c in found.triage.verdict.culprits] == [rank]
    claims = [c for c in found.triage.verdict.evidence if c.supports and c.origin is not None]
    about = [c for c in claims if c.rank == rank] or [c for c in claims if alone and c.rank is None]
    for claim in about:
        origin = claim.origin
        if origin is not None and origin.line is not None:
            return Stretch(
                path=origin.path, normal=None, last=origin.line, known=frozenset(), alone=True
            )
    return None


def _of_its_pod(found: Inquiry, row: RankRow) -> Stretch | None:
    """The end of the log of its pod, where nothing tells which lines are its own."""
    near = [
        w for w in found.case.writes
        if row.pod is not None and w.speaker.pod == row.pod and w.last_line
    ]  # fmt: skip
    newest = max(near, key=lambda w: (w.last_ns or 0, w.last_line, w.path), default=None)
    if newest is None:
        return None
    last = max(w.last_line for w in near if w.path == newest.path)
    return Stretch(path=newest.path, normal=None, last=last, known=frozenset(), alone=True)


def _known(case: Case, rank: int, path: str, own: Sequence[Writes]) -> Iterator[int]:
    """Lines that some fact of this rank stands on."""
    of_signs = [one.fact.origin for one in case.signs if one.rank == rank]
    of_timeouts = [one.fact.origin for one in case.timeouts if one.rank == rank]
    for origin in (*of_signs, *of_timeouts):
        if origin.path == path and origin.line is not None:
            yield origin.line
    for writes in own:
        yield writes.last_line


# --- Hardware -------------------------------------------------------------------------------------


def hardware_history(found: Inquiry) -> HardwareHistory:
    """XIDs, other kernel lines, conditions and ends of containers, of the blamed nodes first."""
    triage, case = found.triage, found.case
    nodes = {c.node for c in triage.verdict.culprits if c.node} | set(triage.recommendation.nodes)
    if not nodes:
        nodes = {one.node for one in triage.hardware if one.role == "cause" and one.node}
    dated = sorted(triage.hardware, key=lambda one: (one.at_ns is None, one.at_ns or 0))
    own = [one for one in dated if one.node in nodes]
    return HardwareHistory(
        nodes=tuple(sorted(nodes)),
        events=tuple(own[:MOST_EVENTS]),
        left_out=max(0, len(own) - MOST_EVENTS),
        elsewhere=_alike(one for one in dated if one.node not in nodes),
        states=tuple(_states(case, nodes))[:MOST_STATES],
        reach=tuple(_reach(case, nodes))[:MOST_REACH],
    )


def _alike(events: Iterable[HardwareEvent]) -> tuple[AlikeEvents, ...]:
    """Events of one code and one role together, in the order of the first of each."""
    groups: dict[tuple[int | None, str, str], list[HardwareEvent]] = {}
    for one in events:
        groups.setdefault((one.xid, one.meaning, one.role), []).append(one)
    return tuple(
        AlikeEvents(
            first=members[0],
            count=len(members),
            nodes=tuple(dict.fromkeys(one.node for one in members if one.node)),
        )
        for members in groups.values()
    )


def _states(case: Case, nodes: set[str]) -> Iterator[tuple[str, str, Origin | None]]:
    for host in case.hosts:
        if host.node in nodes and host.relevant:
            when = "" if host.at_ns is None else f"{format_ns(host.at_ns)} "
            yield host.node or "", f"{when}{host.event.text[:300]}", host.event.origin
    for node in case.nodes:
        if node.name not in nodes:
            continue
        if node.ready is not None:
            since = (
                "" if node.ready_since_ns is None else f" since {format_ns(node.ready_since_ns)}"
            )
            yield node.name, f"Ready: {node.ready}{since}", node.origin
        for name, status, reason, message, _since in node.bad_conditions:
            yield node.name, f"{name}: {status} {reason} {message[:200]}".strip(), node.origin
        if node.unschedulable:
            yield node.name, "cordoned when the evidence was taken", node.origin
        have, of = node.gpus_allocatable, node.gpus_capacity
        if have is not None and of is not None and have < of:
            yield node.name, f"{have} of {of} GPUs allocatable", node.origin
    for lease in case.leases:
        if lease.node in nodes:
            yield lease.node, f"its kubelet renewed its lease at {format_ns(lease.renewed_ns)}", lease.origin  # fmt: skip
    for reply in case.kubelets:
        if reply.node in nodes and not reply.replied:
            yield reply.node, f"its kubelet did not answer: {reply.said[:200]}", reply.origin


def _reach(case: Case, nodes: set[str]) -> Iterator[tuple[str, int | None, int | None, Origin]]:
    """From when to when the kernel logs of these nodes tell, where their lines have a year."""
    for span in case.kernel_spans:
        if span.node in nodes:
            first, last = (span.first_ns, span.last_ns) if span.year_stated else (None, None)
            yield span.node or "", first, last, span.origin
