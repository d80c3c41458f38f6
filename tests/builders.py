"""Short makers of facts and verdicts: `triage(verdict=verdict(kind=Kind.NETWORK))`.

Every maker has a full set of defaults that tell one incident, train-run-7: rank 800 of 1,024 went
silent at 03:41:07 when its GPU fell off the bus. A test names only what it is about.
"""

from __future__ import annotations

from dataclasses import replace

from gpufleet_cli.bundle import Evidence
from gpufleet_cli.facts import Gap, LogSign, Origin, Sign, Speaker, XidEvent
from gpufleet_cli.operate.simulate.story import Class
from gpufleet_cli.operate.simulate.truth import Truth
from gpufleet_cli.verdict import (
    Action,
    Alternative,
    Claim,
    CollectiveRef,
    Command,
    Culprit,
    DumpsReport,
    Explanation,
    FileRead,
    GpuRef,
    GroupReport,
    HardwareEvent,
    Input,
    JobState,
    JobView,
    Kind,
    Option,
    Question,
    RankRow,
    Recommendation,
    Remedy,
    Triage,
    Verdict,
    Witness,
)

SECOND = 1_000_000_000
SILENT_NS = 1_773_200_467_118_000_000  # 2026-03-11T03:41:07.118Z
ABORTED_NS = SILENT_NS + 612 * SECOND
NODE = "gpu-node-0417"
POD = "train-run-7-worker-100"
BUS = "0000:4e:00.0"


# --- Facts ----------------------------------------------------------------------------------------


def evidence(content: bytes = b"", path: str = "logs/a.log") -> Evidence:
    return Evidence(path=path, size_bytes=len(content), content=content)


def origin(path: str = f"logs/{POD}.log", line: int | None = 4113) -> Origin:
    return Origin(path=path, line=line)


def speaker(rank: int | None = None, **known: object) -> Speaker:
    return replace(Speaker(stream="logs/a.log", rank=rank), **known)  # type: ignore[arg-type]


def sign(kind: Sign = Sign.PYTHON_EXCEPTION, rank: int | None = None, **known: object) -> LogSign:
    made = LogSign(
        sign=kind, speaker=speaker(rank), at_ns=SILENT_NS, text="a line", origin=origin()
    )
    return replace(made, **known)  # type: ignore[arg-type]


def xid_event(xid: int = 79, **known: object) -> XidEvent:
    made = XidEvent(
        xid=xid,
        node=NODE,
        pci_bus_id=BUS,
        at_ns=SILENT_NS,
        text=f"NVRM: Xid (PCI:{BUS}): {xid}, GPU has fallen off the bus.",
        origin=origin("kernel/gpu-node-0417.log", 12),
        source="kernel",
    )
    return replace(made, **known)  # type: ignore[arg-type]


def gap(what: str = "flight recorder dump of rank 800", why: str = "no file") -> Gap:
    return Gap(what=what, why=why, would_settle="which collective it last entered", rank=800)


# --- Verdicts -------------------------------------------------------------------------------------


def claim(text: str = "rank 800 wrote nothing after 03:41:07", **known: object) -> Claim:
    made = Claim(text=text, origin=origin(), weight=3.2, rank=800, at_ns=SILENT_NS)
    return replace(made, **known)  # type: ignore[arg-type]


def culprit(rank: int | None = 800, **known: object) -> Culprit:
    made = Culprit(
        rank=rank,
        pod=POD,
        node=NODE,
        local_rank=0,
        gpu=GpuRef(index=0, pci_bus_id=BUS),
        silent_since_ns=SILENT_NS,
        quieter_by_s=612.3,
    )
    return replace(made, **known)  # type: ignore[arg-type]


def verdict(kind: Kind = Kind.HARDWARE, **known: object) -> Verdict:
    made = Verdict(
        kind=kind,
        culprits=(culprit(),),
        confidence=0.97,
        summary=(
            "Rank 800 went silent at 03:41:07 when its GPU fell off the bus (XID 79). "
            "The other 1,023 ranks waited for it in ALLREDUCE 88214; they are innocent."
        ),
        collective=CollectiveRef(group="0", desc="default_pg", op="ALLREDUCE", seq=88214),
        evidence=(
            claim("its GPU fell off the bus: XID 79 on 0000:4e:00.0", weight=4.5),
            claim(),
            claim("its pod is still Running", weight=-0.3, rank=None, at_ns=None),
        ),
        witness_count=1023,
        loudest=(Witness(rank=344, error_lines=6, why_innocent="waited for 800"),),
        alternatives=(
            Alternative(
                kind=Kind.NETWORK,
                ranks=(),
                nodes=(),
                confidence=0.02,
                why_less_likely="no adapter of the node complained",
            ),
        ),
        remedy=Remedy.NODE,
    )
    return replace(made, **known)  # type: ignore[arg-type]


def questions() -> tuple[Question, ...]:
    return (
        Question(id="stops-job", answer="no", why="already stopped", gpu_hours=0.0),
        Question(
            id="degrading-now",
            answer="yes",
            why="1,024 GPUs do nothing",
            gpu_hours_per_hour=1024.0,
        ),
        Question(
            id="worse-if-left", answer="yes", why="a restart lands on it again", gpu_hours=512.0
        ),
    )


def recommendation(action: Action = Action.EVICT_NOW, **known: object) -> Recommendation:
    made = Recommendation(
        action=action,
        nodes=(NODE,),
        questions=questions(),
        options=(
            Option(option="evict-now", gpu_hours=0.0),
            Option(option="wait-for-boundary", gpu_hours=None),
            Option(option="leave", gpu_hours=512.0),
        ),
        decided_by="rule",
        would_flip="if the job still ran: cordon, and evict at the next checkpoint",
        lost_gpu_hours=495.0,
        lost_waiting_gpu_hours=174.0,
        lost_recompute_gpu_hours=321.0,
        commands=(
            Command(run="gpufleet cordon gpu-node-0417 --reason 'XID 79'", stops_job=False),
            Command(
                run="gpufleet evict train-run-7 -n train",
                stops_job=True,
                note="the job is down already",
            ),
        ),
        why="the job is stopped already, so an eviction loses nothing",
        inputs=(
            Input(name="GPUs held", value=1024, unit="", source="evidence"),
            Input(name="checkpoint interval", value=1800.0, unit="s", source="file"),
            Input(name="restart", value=300.0, unit="s", source="default"),
        ),
    )
    return replace(made, **known)  # type: ignore[arg-type]


def job(**known: object) -> JobView:
    made = JobView(
        name="train-run-7",
        namespace="train",
        world_size=1024,
        world_size_source="flight-recorder",
        nodes=128,
        attempt=0,
        state=JobState.ABORTED,
        state_why="1,023 ranks wrote their own abort lines",
        last_step=48211,
        last_step_ns=SILENT_NS - SECOND,
        step_s=0.418,
        last_checkpoint_step=48000,
        last_checkpoint_ns=SILENT_NS - 1100 * SECOND,
        checkpoint_interval_s=1800.0,
        watchdog_timeout_s=600.0,
        ended_ns=ABORTED_NS,
    )
    return replace(made, **known)  # type: ignore[arg-type]


def rank_row(rank: int = 0, **known: object) -> RankRow:
    made = RankRow(
        rank=rank,
        pod=f"train-run-7-worker-{rank // 8}",
        node=f"gpu-node-{317 + rank // 8:04}",
        local_rank=rank % 8,
        gpu=GpuRef(index=rank % 8),
        how_mapped="log",
        last_write_ns=ABORTED_NS,
        last_sign_ns=ABORTED_NS - SECOND * 4 // 10,
        quiet_s=0.4,
        quiet_error_s=0.05,
        silence_known=True,
        last_step=48211,
        collective=CollectiveRef(group="0", desc="default_pg", op="ALLREDUCE", seq=88214),
        standing="witness",
        error_lines=2,
        note="waited in ALLREDUCE 88214",
        last_text="step: 48211 loss: 2.31",
        origin=origin(),
    )
    return replace(made, **known)  # type: ignore[arg-type]


def silent_row(rank: int = 800, **known: object) -> RankRow:
    made = rank_row(
        rank,
        pod=POD,
        node=NODE,
        gpu=GpuRef(index=0, pci_bus_id=BUS),
        last_write_ns=SILENT_NS,
        last_sign_ns=SILENT_NS,
        quiet_s=612.3,
        collective=CollectiveRef(group="0", desc="default_pg", op="ALLREDUCE", seq=88213),
        standing="culprit",
        error_lines=0,
        note="nothing after 03:41:07",
    )
    return replace(made, **known)  # type: ignore[arg-type]


def rank_rows(size: int = 1024) -> tuple[RankRow, ...]:
    """Everybody waits for rank 800; rank 344 is the loudest."""
    return tuple(
        silent_row(rank)
        if rank == 800
        else rank_row(rank, error_lines=6)
        if rank == 344
        else rank_row(rank)
        for rank in range(size)
    )


def dumps_report(**known: object) -> DumpsReport:
    made = DumpsReport(
        dumps=1023,
        versions=("2.10",),
        groups=(
            GroupReport(
                name="0",
                desc="default_pg",
                members=tuple(range(1024)),
                op="ALLREDUCE",
                seq=88214,
                waiting=tuple(rank for rank in range(1024) if rank != 800),
                behind=(800,),
                missing=(800,),
                note="rank 800 wrote no dump",
            ),
        ),
        roots=(800,),
        finding="1,023 ranks wait in ALLREDUCE 88214 of default_pg for rank 800",
        edges=tuple((rank, 800, "ALLREDUCE 88214") for rank in range(8)),
    )
    return replace(made, **known)  # type: ignore[arg-type]


def explanation(rank: int = 800, **known: object) -> Explanation:
    made = Explanation(
        rank=rank,
        row=silent_row(rank),
        standing="culprit",
        headline="Rank 800 is the culprit: without it nobody would have waited.",
        reasons=(claim(), claim("its pod is still Running", weight=-0.3)),
        would_change="a dump of rank 800 that shows ALLREDUCE 88214 started",
    )
    return replace(made, **known)  # type: ignore[arg-type]


def triage(**known: object) -> Triage:
    made = Triage(
        target_kind="directory",
        target_name="train-run-7",
        target_namespace="train",
        as_of_ns=ABORTED_NS,
        job=job(),
        verdict=verdict(),
        hardware=(
            HardwareEvent(
                at_ns=SILENT_NS,
                node=NODE,
                gpu=BUS,
                xid=79,
                meaning="GPU has fallen off the bus",
                role="cause",
                origin=origin("kernel/gpu-node-0417.log", 12),
            ),
        ),
        recommendation=recommendation(),
        ranks=rank_rows(),
        dumps=dumps_report(),
        missing=(gap(),),
        files=(
            FileRead(
                path=f"logs/{POD}.log", size_bytes=120_000, formats=("training_log",), facts=31
            ),
            FileRead(path="notes.bin", size_bytes=12, formats=(), facts=0),
        ),
    )
    return replace(made, **known)  # type: ignore[arg-type]


def mismatch_triage() -> Triage:
    """Rank 3 of 8 brings another size to the same collective: user code, nobody to evict."""
    rows = tuple(
        rank_row(
            rank, quiet_s=601.0, note="size 4096", standing="culprit" if rank == 3 else "stuck"
        )
        for rank in range(8)
    )
    return triage(
        job=job(world_size=8, nodes=1, world_size_source="log"),
        ranks=rows,
        verdict=verdict(
            kind=Kind.COLLECTIVE_MISMATCH,
            culprits=(culprit(3, pod="train-run-7-worker-0", quieter_by_s=None),),
            confidence=0.93,
            summary=(
                "Rank 3 called ALLREDUCE 412 with 1,048,577 elements, the other 7 ranks with "
                "1,048,576: a bug in the program. No machine is at fault."
            ),
            witness_count=7,
            loudest=(Witness(rank=5, error_lines=4, why_innocent="waited for rank 3"),),
            remedy=Remedy.CODE,
        ),
        hardware=(),
        recommendation=recommendation(
            Action.FIX_CODE,
            nodes=(),
            questions=(
                Question(id="stops-job", answer="no", why="already stopped", gpu_hours=0.0),
                Question(id="degrading-now", answer="yes", why="8 GPUs do nothing",
                         gpu_hours_per_hour=8.0),
                Question(id="worse-if-left", answer="yes", why="a restart meets the same bug",
                         gpu_hours=1.3),
            ),
            lost_gpu_hours=3.8,
            lost_waiting_gpu_hours=1.3,
            lost_recompute_gpu_hours=2.5,
            commands=(
                Command(run="gpufleet explain train-run-7 --rank 3", stops_job=False,
                        note="the two calls side by side"),
            ),
        ),
        missing=(),
    )  # fmt: skip


def undecidable_triage() -> Triage:
    """One of ranks 8 to 15, and nothing in the evidence that tells which."""
    rows = tuple(
        rank_row(rank, quiet_s=605.0, standing="suspect" if 8 <= rank < 16 else "witness")
        for rank in range(64)
    )
    return triage(
        job=job(world_size=64, nodes=8, world_size_source="log"),
        ranks=rows,
        verdict=verdict(
            kind=Kind.UNDECIDABLE,
            culprits=(),
            confidence=0.86,
            summary=(
                "One of the 8 ranks of gpu-node-0318 stopped the job, and the evidence does not "
                "say which: none of them left a log."
            ),
            witness_count=56,
            alternatives=(
                Alternative(
                    kind=Kind.RANK_MISSING,
                    ranks=tuple(range(8, 16)),
                    nodes=("gpu-node-0318",),
                    confidence=0.86,
                    why_less_likely="",
                ),
            ),
            remedy=Remedy.NOTHING,
            would_settle="the Flight Recorder dumps of gpu-node-0318",
            settle_command="gpufleet collect train-run-7 -n train --dumps exec:/tmp/nccl_trace_",
            ruled_out=("56 ranks that waited in ALLREDUCE 88214", "a fault of the network"),
        ),
        hardware=(),
        recommendation=recommendation(
            Action.COLLECT_MORE,
            nodes=(),
            questions=(
                Question(id="stops-job", answer="no", why="already stopped", gpu_hours=0.0),
                Question(id="degrading-now", answer="unknown", why="nobody knows which node"),
                Question(id="worse-if-left", answer="unknown", why="the cause is not known"),
            ),
            commands=(),
            lost_gpu_hours=None,
            lost_waiting_gpu_hours=None,
            lost_recompute_gpu_hours=None,
        ),
    )


def made_truth(**known: object) -> Truth:
    """Rank 12's GPU stopped the job, and the files single it out."""
    made = Truth(
        cls=Class.XID_79,
        seed=1,
        size=64,
        lost=0.0,
        kinds=frozenset({Kind.HARDWARE}),
        culprits=frozenset({12}),
        nodes=frozenset({"n1"}),
        by_node=False,
        may_name=frozenset(),
        told=frozenset({12}),
        decided=True,
        settle="",
        side="hardware",
        stopped=True,
        as_of_ns=ABORTED_NS,
        node_of=tuple(f"n{rank // 8}" for rank in range(64)),
        summary="xid-79: 12",
    )
    return replace(made, **known)  # type: ignore[arg-type]
