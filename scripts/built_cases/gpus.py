"""GPUs that leave the bus, controllers that halt, links, and codes that are code's own fault."""

from __future__ import annotations

from collections.abc import Iterator

from built_cases.fleet import (
    CORDON,
    EVICT,
    FIX,
    MMU,
    OFF_BUS,
    QUIET,
    RESTART,
    TIMEOUT_S,
    UNNAMED,
    WARP,
    Incident,
    aborted,
    at,
    bus,
    cleanup,
    job,
    kernel,
    ranks_on,
    running,
    said,
    stalled,
    steps,
    timed_out,
    topology,
    xid,
)

R, N = 35, "gpu-n05"


def incidents() -> Iterator[Incident]:
    yield from _controllers()
    yield from _off_the_bus()
    yield from _links()
    yield from _code_like()
    yield from _windows()
    yield from _quiet_codes()


def _controllers() -> Iterator[Incident]:
    one = stalled(
        "119-names-nvidia-smi",
        culprit=(R,),
        title="GSP timeout first seen by nvidia-smi; the text says GPU0",
        why="The GPU is that of the PCI address; the process that asked and the driver's instance number are no"
        " clue.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                -2.0 + 45 * i,
                f"NVRM: Xid (PCI:{bus(R)}): 119, pid=90211, name=nvidia-smi, Timeout after 45s of waiting for RPC"
                " response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x2080014b 0x5).",
            )
            for i in range(4)
        ],
    )
    yield one

    one = stalled(
        "120-and-innocent-45s",
        culprit=(R,),
        culprit_logs=False,
        witness_pods=(0, 2, 6),
        title="GSP task exception; clean-up lines everywhere after the abort",
        why="120 is the only cause code, at the onset.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                -1.1,
                xid(
                    R,
                    120,
                    "GSP task exception: exception 0x2, Illegal Instruction (cause:0x2) @ pc:0x0000000001b8f5e8",
                ),
            ),
        ],
    )
    for node, rank in (("gpu-n01", 2), ("gpu-n03", 17), ("gpu-n07", 50)):
        one.add(f"kernel/{node}.log", cleanup(rank, node, TIMEOUT_S + 62, 40))
    yield one

    one = stalled(
        "109-and-154-reboot",
        culprit=(R,),
        title="Context switch timeout; the driver asks for a reboot",
        why="109 asks for a reset, 154 is stricter: the node leaves.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                -0.8,
                xid(R, 109, "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005", pid=True),
            ),
            kernel(
                N,
                -0.7,
                xid(
                    R,
                    154,
                    "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
                ),
            ),
            *cleanup(R, N, 0.4, 8),
        ],
    )
    yield one

    one = running(
        "122-then-31-running",
        rank=R,
        verdict="hardware",
        ranks=(R,),
        actions=(CORDON, "watch"),
        title="PMU read failure on a job that steps on",
        why="122 is a controller fault; nothing slows, nothing is corrupt: the boundary will do.",
    )
    one.add(f"kernel/{N}.log", [kernel(N, 0, xid(R, 122, "SPI PMU RPC read failure"))])
    yield one


def _off_the_bus() -> Iterator[Incident]:
    one = stalled(
        "79-without-a-number",
        culprit=(R,),
        title="Off the bus, said without an Xid number",
        why="The driver's line names the address; the notice around it is one event.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(N, -0.3, f"NVRM: GPU {bus(R)}.0: GPU has fallen off the bus."),
            kernel(N, -0.29, f"NVRM: GPU {bus(R)}.0: GPU serial number is 1652222013414."),
            kernel(N, -0.28, "NVRM: A GPU crash dump has been created. If possible, please run"),
            kernel(N, -0.27, "NVRM: nvidia-bug-report.sh as root to collect this data before"),
            kernel(N, -0.26, "NVRM: the NVIDIA kernel module is unloaded."),
        ],
    )
    yield one

    one = stalled(
        "79-then-fatal-sxid",
        culprit=(R,),
        by_node=True,
        title="A GPU leaves; the switch loses its link a second later",
        why="79 comes first and is the cause; the SXid is the other end of the same loss.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(N, -0.9, xid(R, 79, OFF_BUS)),
            kernel(
                N,
                0.1,
                "nvidia-nvswitch3: SXid (PCI:0000:0a:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            ),
            kernel(
                N,
                0.1,
                "nvidia-nvswitch3: SXid (PCI:0000:0a:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00",
            ),
            kernel(
                N,
                0.1,
                "nvidia-nvswitch3: SXid (PCI:0000:0a:00.0): 20034, Data {0x00000000, 0x00000000}",
            ),
        ],
    )
    yield one

    one = stalled(
        "fatal-sxid-then-74-everywhere",
        culprit=ranks_on(N),
        by_node=True,
        whole_node=True,
        title="The switch fails; all eight GPUs of its node log link errors",
        why="The fatal SXid precedes the 74 lines: no single GPU is to blame, the node is.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                -1.2,
                "nvidia-nvswitch1: SXid (PCI:0000:08:00.0): 20034, Fatal, Link 12 LTSSM Fault Up",
            ),
            *(
                kernel(
                    N,
                    -0.8 + i * 0.01,
                    xid(
                        r,
                        74,
                        "NVLink: fatal error detected on link 6(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
                    ),
                )
                for i, r in enumerate(ranks_on(N))
            ),
        ],
    )
    yield one


def _links() -> Iterator[Incident]:
    peers = [r for r in ranks_on(N) if r != R]
    one = stalled(
        "74-on-peers-79-seconds-later",
        culprit=(R,),
        title="Seven GPUs log link errors before the eighth is reported off the bus",
        why="A peer on the node logged 79 in the same minute: the 74 lines are consequences, though earlier.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            *(
                kernel(
                    N,
                    -1.5 + i * 0.01,
                    xid(
                        r,
                        74,
                        "NVLink: fatal error detected on link 3(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
                    ),
                )
                for i, r in enumerate(peers)
            ),
            kernel(N, 5.0, xid(R, 79, OFF_BUS)),
        ],
    )
    yield one

    one = stalled(
        "74-common-end",
        culprit=(R,),
        title="One GPU logs link errors on many links, each peer on one",
        why="The GPU with many links is the common end.",
    )
    lines = [
        kernel(
            N,
            -1.5 + i * 0.02,
            xid(
                p,
                74,
                f"NVLink: fatal error detected on link {i}(0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
            ),
        )
        for i, p in enumerate(peers)
    ]
    lines += [
        kernel(
            N,
            -1.2 + i * 0.02,
            xid(
                R,
                74,
                f"NVLink: fatal error detected on link {link}(0x10, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
            ),
        )
        for i, link in enumerate((0, 1, 2, 4, 5, 8, 11))
    ]
    one.add(f"kernel/{N}.log", lines)
    yield one

    one = running(
        "74-ignorable-bits-running",
        rank=R,
        verdict="healthy",
        ranks=(),
        also=("hardware",),
        also_ranks=((R,),),
        actions=(*QUIET, CORDON),
        title="A link error whose bits ask for nothing, on a job that runs",
        why="Register 1 bit 0 and register 5 bit 20 go on; steps keep their pace.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                0,
                xid(
                    R,
                    74,
                    "NVLink: fatal error detected on link 2(0x1, 0x0, 0x0, 0x0, 0x100000, 0x0, 0x0)",
                ),
            )
        ],
    )
    yield one

    one = stalled(
        "149-far-end-and-150",
        culprit=(R,),
        title="Two GPUs report the far end of their link; the third reports its own link hardware",
        why="Sub-codes 0x21 and 0x23 blame the peer; 150 is the local engine of the GPU that they lost.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                -0.9,
                f"NVRM: Xid (PCI:{bus(33)}): 149, {UNNAMED}NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x021001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
            ),
            kernel(
                N,
                -0.8,
                f"NVRM: Xid (PCI:{bus(34)}): 149, {UNNAMED}NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x023001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
            ),
            kernel(
                N,
                -0.5,
                f"NVRM: Xid (PCI:{bus(R)}): 150, {UNNAMED}MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000000 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
            ),
        ],
    )
    yield one

    one = stalled(
        "149-link-down-remap-elsewhere",
        culprit=(R,),
        title="A link goes down for a local cause; its peers log the remap",
        why="145 within 30 s of a dropped link is a by-product; 149 with sub-code 4 stands on the origin.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            *(
                kernel(
                    N,
                    -0.6 + i * 0.1,
                    f"NVRM: Xid (PCI:{bus(r)}): 145, {UNNAMED}RLW_REMAP Nonfatal XC0 i0 Link 04 (0x00000004 0x00000004 0x00000000 0x00000000 0x00000000 0x00000000)",
                )
                for i, r in enumerate((32, 33, 36))
            ),
            kernel(
                N,
                -0.9,
                f"NVRM: Xid (PCI:{bus(R)}): 149, {UNNAMED}NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
            ),
        ],
    )
    yield one

    one = running(
        "149-ber-running",
        rank=R,
        verdict="healthy",
        ranks=(),
        also=("hardware",),
        also_ranks=((R,),),
        actions=(*QUIET, CORDON),
        title="Bit error rate events on a job that runs",
        why="BER events are non-fatal: look at cables when convenient.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                i * 20,
                f"NVRM: Xid (PCI:{bus(R)}): 149, {UNNAMED}NETIR_BER_EVENT Nonfatal XC0 i0 Link 11 (0x00000226 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)",
            )
            for i in range(3)
        ],
    )
    yield one


def _code_like() -> Iterator[Incident]:
    one = stalled(
        "13-once-illegal-access",
        culprit=(R,),
        verdict="rank-crashed",
        actions=(FIX, RESTART),
        title="One warp exception and an illegal access on one rank",
        why="13 once is the application; the rank says so itself. No node is to blame.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(N, -0.2, f"NVRM: Xid (PCI:{bus(R)}): 13, pid=41877, name=python3, {WARP}"),
            kernel(N, 0.3, xid(R, 43, "channel 0x00000002", pid=True)),
        ],
    )
    one.add(
        f"logs/train-{R // 8}.log",
        [
            said(R, 0.1, "Traceback (most recent call last):"),
            said(R, 0.1, '  File "/app/train.py", line 212, in <module>'),
            said(R, 0.1, "    loss.backward()"),
            said(R, 0.1, "RuntimeError: CUDA error: an illegal memory access was encountered"),
        ],
    )
    yield one

    one = stalled(
        "13-same-tpc-for-days",
        culprit=(R,),
        verdict="hardware",
        also=("rank-crashed",),
        actions=(EVICT, RESTART),
        title="The same warp exception on the same GPC and TPC in three runs",
        why="Repeats on one GPC and TPC across runs mean possible hardware.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(N, when, f"NVRM: Xid (PCI:{bus(R)}): 13, pid={pid}, name=python3, {WARP}")
            for when, pid in (
                (-3 * 86400, 2211),
                (-2 * 86400 + 400, 9120),
                (-86400, 30412),
                (-0.2, 41877),
            )
        ],
    )
    one.add(
        f"logs/train-{R // 8}.log",
        [said(R, 0.1, "RuntimeError: CUDA error: an illegal memory access was encountered")],
    )
    yield one

    one = Incident(
        name="31-on-sixteen-gpus",
        verdict="rank-crashed",
        ranks=(),
        also_ranks=(range(16),),
        actions=(FIX,),
        title="The same memory fault on sixteen GPUs at once",
        why="Many GPUs with one pattern point to a bug; no node is to blame.",
        captured=90,
    )
    one.add("topology.json", topology())
    one.add("job.json", job())
    for pod, node in ((0, "gpu-n01"), (1, "gpu-n02")):
        own = range(pod * 8, pod * 8 + 8)
        one.add(
            f"kernel/{node}.log",
            [
                kernel(
                    node,
                    i * 0.01,
                    f"NVRM: Xid (PCI:{bus(r)}): 31, pid={5000 + r}, name=python3, {MMU}",
                )
                for i, r in enumerate(own)
            ],
        )
        one.add(
            f"logs/train-{pod}.log",
            steps(own, until=-1.0)
            + [
                said(
                    r,
                    0.2 + i * 0.01,
                    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
                )
                for i, r in enumerate(own)
            ],
        )
    yield one

    one = stalled(
        "43-45-storm-no-cause",
        culprit=(R,),
        verdict="rank-missing",
        actions=(RESTART,),
        title="Clean-up codes on innocents, nothing on the silent rank's node",
        why="43 and 45 after the abort are symptoms; the one silent rank is missing, its cause is not shown.",
    )
    for node, rank in (("gpu-n01", 2), ("gpu-n03", 17)):
        one.add(
            f"kernel/{node}.log",
            [
                kernel(node, TIMEOUT_S + 62, xid(rank, 43, "channel 0x00000002", pid=True)),
                *cleanup(rank, node, TIMEOUT_S + 62, 60),
            ],
        )
    one.add(f"kernel/{N}.log", [kernel(N, -7000, "eth2: renamed from veth71ab3c0")])
    yield one


def _windows() -> Iterator[Incident]:
    one = stalled(
        "79-days-before",
        culprit=(R,),
        verdict="rank-missing",
        actions=(RESTART,),
        title="Old bus losses on an innocent node and on the silent rank's node",
        why="Events of days ago explain no stop of today; the node came back since.",
    )
    one.add("kernel/gpu-n01.log", [kernel("gpu-n01", -4 * 86400, xid(3, 79, OFF_BUS))])
    one.add(
        f"kernel/{N}.log",
        [
            kernel(N, -6 * 86400, xid(33, 79, OFF_BUS)),
            kernel(
                N,
                -6 * 86400 + 900,
                "Linux version 5.15.0-1040-nvidia (buildd@lcy02) (gcc 11.4.0) #40-Ubuntu SMP",
            ),
        ],
    )
    yield one

    one = stalled(
        "79-after-the-abort",
        culprit=(R,),
        verdict="rank-missing",
        actions=(RESTART,),
        title="A bus loss on a witness's node a quarter of an hour after the abort",
        why="It comes after everything: it explains nothing of this incident.",
        captured=TIMEOUT_S + 1500,
    )
    one.add("kernel/gpu-n03.log", [kernel("gpu-n03", TIMEOUT_S + 960, xid(18, 79, OFF_BUS))])
    yield one

    one = stalled(
        "79-half-an-hour-before-noise",
        culprit=(R,),
        timeout_s=1800,
        title="An old stack with a watchdog of 30 minutes",
        why="The cause lies half an hour before the first complaint.",
    )
    one.add(f"kernel/{N}.log", [kernel(N, -0.5, xid(R, 79, OFF_BUS))])
    yield one

    one = stalled(
        "62-fourteen-minutes-before",
        culprit=(R,),
        title="A PMU halt 14 minutes before the rank falls silent; clean-up codes on others after the abort",
        why="62 is the only cause code, inside the look-back, on the silent rank's GPU.",
    )
    one.add(
        f"kernel/{N}.log",
        [kernel(N, -14 * 60, f"NVRM: Xid (PCI:{bus(R)}): 62, 32260b5e 000154b0 00000000 20208001")],
    )
    one.add("kernel/gpu-n01.log", cleanup(3, "gpu-n01", TIMEOUT_S + 62, 10))
    yield one

    one = stalled(
        "clock-a-minute-ahead",
        culprit=(R,),
        culprit_logs=False,
        witness_pods=(0, 2),
        title="The culprit's node clock is 55 s ahead",
        why="79 seems to come after the onset; clocks differ by up to a minute.",
    )
    one.add(f"kernel/{N}.log", [kernel(N, 55, xid(R, 79, OFF_BUS)), *cleanup(R, N, 56, 4)])
    one.add("kernel/gpu-n01.log", cleanup(3, "gpu-n01", TIMEOUT_S + 62, 10))
    yield one

    one = running(
        "79-on-a-job-that-goes-on",
        rank=R,
        pods=(0,),
        verdict="hardware",
        ranks=(R,),
        actions=(CORDON,),
        title="A GPU is lost, and two minutes later the others still step",
        why="Steps after the loss: the job goes on without it; at most a cordon.",
    )
    one.add(f"kernel/{N}.log", [kernel(N, 0, xid(R, 79, OFF_BUS))])
    yield one

    one = running(
        "79-on-a-node-of-another-job",
        rank=R,
        verdict="healthy",
        ranks=(),
        actions=QUIET,
        title="The kernel log of a node that this job does not use",
        why="Its GPU is no rank of this job.",
    )
    one.add("kernel/gpu-x77.log", [kernel("gpu-x77", 0, xid(R, 79, OFF_BUS))])
    yield one


def _quiet_codes() -> Iterator[Incident]:
    one = running(
        "unknown-code-running",
        rank=R,
        verdict="healthy",
        ranks=(),
        also=("hardware",),
        also_ranks=((R,),),
        actions=QUIET,
        title="A code that no table knows, on a job that runs",
        why="Unknown is neither the worst nor the mildest case: watch.",
    )
    one.add(f"kernel/{N}.log", [kernel(N, 0, xid(R, 213, "unrecognised event 0x51"))])
    yield one

    one = stalled(
        "unknown-code-on-innocent",
        culprit=(R,),
        verdict="rank-missing",
        actions=(RESTART,),
        title="A code that no table knows on a witness, nothing on the silent rank",
        why="The witness waited; the silent rank is missing.",
    )
    one.add("kernel/gpu-n01.log", [kernel("gpu-n01", -1, xid(3, 213, "unrecognised event 0x51"))])
    yield one

    mig = Incident(
        name="mig-instance-error",
        verdict="hardware",
        ranks=(35,),
        nodes=(N,),
        actions=(EVICT,),
        innocent=list(range(8)),
        captured=TIMEOUT_S + 75,
        title="An uncontained error on a MIG instance",
        why="The event belongs to an instance; its parent GPU is that of rank 35.",
    )
    mig.add("topology.json", topology())
    mig.add("job.json", job())
    mig.add(
        "logs/train-0.log", steps(range(8), until=-1.0) + timed_out(range(8)) + aborted(range(8))
    )
    mig.add(
        f"logs/train-{R // 8}.log", steps((35, 36), until=-1.0) + timed_out((36,)) + aborted((36,))
    )
    mig.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                -0.4,
                f"NVRM: Xid (PCI:{bus(35)} GPU-I:05): 95, pid=41877, name=python3, Uncontained: LTC TAG (0x2,0x1). RST: Yes, D-RST: No",
            )
        ],
    )
    yield mig

    one = stalled(
        "pasted-stamps-of-two-zones",
        culprit=(R,),
        culprit_logs=False,
        title="The kernel log in +08:00, the pods' logs in UTC",
        why="17:12:06+08:00 is 09:12:06 UTC.",
    )
    local = at(-0.6)
    one.add(
        f"kernel/{N}.log",
        [
            f"2026-04-14T{local.hour + 8:02d}:{local:%M:%S}+0800 {N} kernel: {xid(R, 79, OFF_BUS)}",
            f"2026-04-14T{at(TIMEOUT_S).hour + 8:02d}:{at(TIMEOUT_S):%M:%S}+0800 {N} kernel: {xid(33, 45, 'Ch 00000008', pid=True)}",
        ],
    )
    yield one
