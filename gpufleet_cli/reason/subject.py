"""What is known of the job and of each rank, in the shape that reports show."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gpufleet_cli.facts import WatchdogTimeout
from gpufleet_cli.reason import Case, pauses, world_size
from gpufleet_cli.reason.op_names import op_type
from gpufleet_cli.reason.placed import NS
from gpufleet_cli.verdict import (
    CollectiveRef,
    GpuRef,
    JobView,
    Kind,
    RankRow,
    RankStanding,
    Verdict,
)

USUAL_TIMEOUT_S = 600.0


def job_view(case: Case) -> JobView:
    """The job: size, state, progress, checkpoints, with None for what is not known."""
    name = next((n.name for n in case.given if n.name is not None), None)
    namespace = next((n.namespace for n in case.given if n.namespace is not None), None)
    places = case.topology.places.values()
    if namespace is None:
        namespace = next((p.namespace for p in places if p.namespace is not None), None)
    return JobView(
        name=name,
        namespace=namespace,
        world_size=case.topology.world_size,
        world_size_source=case.topology.world_size_source,
        nodes=_node_count(case) or None,
        attempt=case.attempt,
        state=case.stop.state,
        state_why=case.stop.why,
        last_step=case.steps.last_step,
        last_step_ns=case.steps.last_step_ns,
        step_s=None if case.steps.step_s is None else round(case.steps.step_s, 6),
        last_checkpoint_step=case.checkpoints.last_step,
        last_checkpoint_ns=case.checkpoints.last_ns,
        checkpoint_interval_s=case.checkpoints.interval_s,
        watchdog_timeout_s=None if case.timeout_source == "default" else case.timeout_s,
        ended_ns=case.stop.ended_ns,
        state_proof=case.stop.proof,
        step_interval_s=case.steps.interval_s,
        open_work=_open_work(case),
    )


def _open_work(case: Case) -> str | None:
    # A timeout may be a stranger's number, or that of a line which lies: none makes an evaluation shorter here.
    known = pauses.open_work(
        case.steps, case.signs, case.checkpoints, now_ns=case.as_of_ns,
        timeout_s=max(case.timeout_s, USUAL_TIMEOUT_S),
    )  # fmt: skip
    pause = known if known is not None else case.pause
    return None if pause is None else pause.why


def _node_count(case: Case) -> int:
    """Nodes that hold ranks, also those whose ranks nobody spoke for, where the pods make up the world; by
    arithmetic where only some ranks are placed and the rest is given."""
    seen = len(case.topology.by_node)
    size = case.topology.world_size
    if size is not None and world_size.of_pods(case.pods) == size:
        return max(seen, len({pod.node for pod in case.pods if pod.gpus and pod.node is not None}))
    per_node = next((n.gpus_per_node for n in case.given if n.gpus_per_node is not None), None)
    if size is not None and per_node and len(case.topology.places) < size:
        return max(seen, -(-size // per_node))
    return seen


def rank_rows(case: Case, verdict: Verdict, errors: Counter[int]) -> tuple[RankRow, ...]:
    """One row a rank, longest silence first, then by rank."""
    guilty = {c.rank for c in verdict.culprits if c.rank is not None}
    suspects = (
        set(verdict.alternatives[0].ranks)
        if verdict.kind is Kind.UNDECIDABLE and verdict.alternatives
        else set()
    )
    ranks = sorted(set(case.world) | set(case.topology.places) | set(case.silence))
    end = _end(case)
    waited = {t.rank: t.fact for t in reversed(case.timeouts) if t.rank is not None}
    rows = [
        _row(case, rank, end, _collective(case, rank, waited.get(rank)), guilty, suspects, errors)
        for rank in ranks
    ]
    order = {"culprit": 0, "suspect": 1}
    return tuple(
        sorted(
            rows,
            key=lambda r: (
                order.get(r.standing, 2),
                -(r.quiet_s if r.quiet_s is not None else -1.0),
                r.rank,
            ),
        )
    )


def _end(case: Case) -> int | None:
    """The end to count silence to: the last write of anybody, so that dead logs are comparable."""
    last = [s.last_ns for s in case.silence.values() if s.last_ns is not None]
    return max(last, default=case.as_of_ns)


def _row(
    case: Case,
    rank: int,
    end: int | None,
    collective: CollectiveRef,
    guilty: set[int],
    suspects: set[int],
    errors: Counter[int],
) -> RankRow:
    place = case.topology.places.get(rank)
    silence = case.silence.get(rank)
    last = None if silence is None else silence.last_ns
    quiet = None if end is None or last is None else max(0.0, (end - last) / NS)
    return RankRow(
        rank=rank,
        pod=None if place is None else place.pod,
        node=None if place is None else place.node,
        local_rank=None if place is None else place.local_rank,
        gpu=GpuRef() if place is None else place.gpu,
        how_mapped="unknown" if place is None else str(place.how),
        last_write_ns=last,
        last_sign_ns=None if silence is None else silence.last_sign_ns,
        quiet_s=None if quiet is None else round(quiet, 3),
        quiet_error_s=None if silence is None else silence.error_s,
        silence_known=silence is not None and silence.known,
        last_step=case.steps.by_rank.get(rank),
        collective=collective,
        standing=_standing(case, rank, guilty, suspects),
        error_lines=errors.get(rank, 0),
        note=_note(case, rank),
        last_text="" if silence is None else silence.text,
        origin=None if silence is None else silence.origin,
    )


def _collective(case: Case, rank: int, timeout: WatchdogTimeout | None) -> CollectiveRef:
    """The last collective of a rank, from its dump, else from its first watchdog line."""
    if case.graph is not None and rank in case.graph.standing:
        found = case.graph.standing[rank].collective
        return replace(found, op=op_type(found.op))
    if timeout is None:
        return CollectiveRef()
    return CollectiveRef(
        group=None if timeout.group is None else timeout.group.name,
        desc=None if timeout.group is None else timeout.group.desc,
        op=timeout.op,
        seq=timeout.seq,
    )


def _standing(case: Case, rank: int, guilty: set[int], suspects: set[int]) -> RankStanding:
    if rank in guilty:
        return "culprit"
    if rank in suspects:
        return "suspect"
    if rank in case.witnesses:
        return "witness"
    if case.graph is not None and rank in case.graph.waiting:
        return "stuck"
    if case.stop.state == "exited":
        return "finished"
    if case.stop.state == "running" and rank in case.silence:
        return "running"
    return "silent" if rank in case.silence and case.silence[rank].known else "unknown"


def _note(case: Case, rank: int) -> str:
    silence = case.silence.get(rank)
    if silence is None:
        return "no log of this rank"
    if not silence.known:
        return "kept out of the log by a filter: its silence is unknown"
    if silence.buffered:
        return "its log ends in a buffer: the last lines may be missing"
    return ""
