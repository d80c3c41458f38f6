"""Memory errors: 48, 63, 64, 92, 94, 95 in the combinations of NVIDIA's workflows."""

from __future__ import annotations

from collections.abc import Iterator

from built_cases.fleet import (
    CONTAINED,
    CORDON,
    DBE,
    EVICT,
    QUIET,
    REMAP,
    REMAP_FAILED,
    UNCONTAINED,
    Incident,
    bus,
    cleanup,
    kernel,
    running,
    said,
    stalled,
    xid,
)

R, N = 35, "gpu-n05"


def incidents() -> Iterator[Incident]:
    one = stalled(
        "48-alone-stopped",
        culprit=(R,),
        title="A double bit error stops one rank",
        why="48 on the silent rank's GPU a second before its silence; alone it asks for a reset.",
    )
    one.add(f"kernel/{N}.log", [kernel(N, -0.4, xid(R, 48, DBE)), *cleanup(R, N, 0.3)])
    yield one

    one = stalled(
        "48-and-63-own-ecc-error",
        culprit=(R,),
        state=True,
        title="Double bit error, remap recorded, the rank says ECC itself",
        why="48 with 63: drain and reset; the job is stopped, so now is the free moment.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(N, -0.4, xid(R, 48, DBE)),
            kernel(N, -0.1, xid(R, 63, REMAP)),
            *cleanup(R, N, 0.3, 20),
            kernel(
                N,
                0.9,
                xid(
                    R,
                    154,
                    "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
                ),
            ),
        ],
    )
    one.add(
        f"logs/train-{R // 8}.log",
        [said(R, 0.6, "RuntimeError: CUDA error: uncorrectable ECC error encountered")],
    )
    yield one

    one = running(
        "48-and-64-running",
        rank=R,
        verdict="hardware",
        ranks=(R,),
        actions=(EVICT,),
        title="Double bit error whose remap failed, while steps go on",
        why="48 without 94 may corrupt state: the node must not take part in another save.",
    )
    one.add(
        f"kernel/{N}.log", [kernel(N, 0, xid(R, 48, DBE)), kernel(N, 0.2, xid(R, 64, REMAP_FAILED))]
    )
    yield one

    one = stalled(
        "48-and-94-stopped",
        culprit=(R,),
        title="Contained double bit error ends its process",
        why="94 is the origin, 45 the clean-up; the job is stopped: reset at once.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(N, -0.4, xid(R, 48, DBE)),
            kernel(N, -0.3, xid(R, 94, CONTAINED, pid=True)),
            *cleanup(R, N, -0.2, 12),
        ],
    )
    yield one

    one = running(
        "48-and-94-running",
        rank=R,
        verdict="hardware",
        ranks=(R,),
        actions=(CORDON,),
        also=("healthy",),
        also_ranks=((),),
        title="A contained error killed another process on that GPU; the job steps on",
        why="Contained uncorrectable errors wait for the boundary.",
    )
    one.add(
        f"kernel/{N}.log",
        [kernel(N, 0, xid(R, 48, DBE)), kernel(N, 0.1, xid(R, 94, CONTAINED, pid=True))],
    )
    yield one

    one = running(
        "48-and-95-running",
        rank=R,
        verdict="hardware",
        ranks=(R,),
        actions=(EVICT,),
        title="An uncontained error while steps go on",
        why="95: everything on that GPU is suspect.",
    )
    one.add(
        f"kernel/{N}.log",
        [kernel(N, 0, xid(R, 48, DBE)), kernel(N, 0.1, xid(R, 95, UNCONTAINED, pid=True))],
    )
    yield one

    one = stalled(
        "94-alone-aborted",
        culprit=(R,),
        culprit_logs=False,
        witness_pods=(0, 1, 7),
        title="94 alone on a node whose pod log was not collected",
        why="The only cause code is on that GPU right at the onset; the job is down.",
    )
    one.add(
        f"kernel/{N}.log",
        [kernel(N, -0.3, xid(R, 94, CONTAINED, pid=True)), *cleanup(R, N, -0.2, 12)],
    )
    yield one

    one = stalled(
        "95-over-witness-timeout",
        culprit=(R,),
        culprit_logs=False,
        title="An uncontained error on a rank that later timed out like everybody",
        why="95 is the only cause code, at the onset: the rank hung in the kernel and its own watchdog"
        " fired too.",
    )
    one.add(f"logs/train-{R // 8}.log", [])
    one.add(
        f"kernel/{N}.log",
        [kernel(N, -0.3, xid(R, 95, UNCONTAINED, pid=True)), *cleanup(R, N, 601, 12)],
    )
    yield one

    one = running(
        "63-pending-journal-json",
        rank=R,
        verdict="hardware",
        ranks=(R,),
        also=("healthy",),
        also_ranks=((),),
        actions=(CORDON, *QUIET),
        title="Remap pending while training runs; the journal as JSON",
        why="Work goes on without loss; the reset waits for the boundary.",
    )
    one.add(
        f"kernel/{N}.jsonl",
        [
            '{"__REALTIME_TIMESTAMP":"1776157927300000","_TRANSPORT":"kernel","SYSLOG_IDENTIFIER":"kernel",'
            f'"_HOSTNAME":"{N}","MESSAGE":"{xid(R, 63, REMAP)}"}}'
        ],
    )
    yield one

    one = running(
        "64-running",
        rank=R,
        verdict="hardware",
        ranks=(R,),
        actions=(CORDON,),
        title="A remap that could not be recorded, while steps go on",
        why="64 asks for a reset; nothing is slow, nothing is corrupt: the boundary will do.",
    )
    one.add(f"kernel/{N}.log", [kernel(N, 0, xid(R, 64, REMAP_FAILED))])
    yield one

    one = running(
        "92-single-bit-noise",
        rank=R,
        verdict="healthy",
        ranks=(),
        also=("hardware",),
        also_ranks=((R,),),
        actions=QUIET,
        title="Corrected errors on a job that runs",
        why="92 asks for nothing by itself.",
    )
    one.add(f"kernel/{N}.log", [kernel(N, 0, xid(R, 92, "High single-bit ECC error rate"))])
    yield one

    one = stalled(
        "63-on-innocent-62-on-culprit",
        culprit=(R,),
        witness_pods=(0, 2),
        title="A pending remap on a witness, a PMU halt on the silent rank (Talos kernel log)",
        why="63 stops nothing and its rank waited; 62 is the cause.",
    )
    one.add("kernel/gpu-n01.log", [kernel("gpu-n01", -20, xid(3, 63, REMAP))])
    one.add(
        f"kernel/{N}.talos.log",
        [
            f"{N}: kern:     err: [2026-04-14T09:12:06.900000000Z]: NVRM: Xid (PCI:{bus(R)}): 62,"
            " 32260b5e 000154b0 00000000 20208001 5b3f2e11 00000044"
        ],
    )
    yield one
