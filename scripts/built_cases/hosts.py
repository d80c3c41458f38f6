"""Kernel prefix forms, AMD GPUs, dying hosts, network adapters, metrics and slow GPUs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from built_cases.fleet import (
    CORDON,
    EVICT,
    HALT,
    OFF_BUS,
    RESTART,
    WORLD,
    Incident,
    bus,
    job,
    kernel,
    node_of,
    ranks_on,
    said,
    stalled,
    steps,
    topology,
    xid,
)

R, N = 35, "gpu-n05"


def incidents() -> Iterator[Incident]:
    yield from _prefixes()
    yield from _hosts()
    yield from _metrics()
    yield from _slow()


def _prefixes() -> Iterator[Incident]:
    boot = int(HALT.timestamp()) - 1_200_000
    one = stalled(
        "dmesg-since-boot-with-epoch",
        culprit=(R,),
        culprit_logs=False,
        title="dmesg counts from boot; the boot time is known",
        why="1,200,000.1 s after boot is the onset; an Xid 79 of eleven days before on another GPU is old.",
    )
    one.files["topology.json"] = topology(dmesg_boot_epoch=boot)
    one.add(
        f"kernel/{N}.dmesg.txt",
        [
            "[    0.000000] Linux version 5.15.0-1040-nvidia (buildd@lcy02) (gcc 11.4.0) #40-Ubuntu SMP",
            f"[250012.400100] {xid(33, 79, OFF_BUS)}",
            f"[1200000.100100] {xid(R, 79, OFF_BUS)}",
            f"[1200001.000100] {xid(R, 45, 'Ch 00000008', pid=True)}",
        ],
    )
    yield one

    one = stalled(
        "dmesg-since-boot-no-epoch",
        culprit=(R,),
        also=("rank-missing",),
        actions=(EVICT, RESTART),
        title="dmesg counts from boot and nobody knows the boot time",
        why="The one Xid of the silent rank's GPU cannot be dated, but it is on the silent rank's GPU; either"
        " reading names rank 35.",
    )
    one.add(f"kernel/{N}.dmesg.txt", [f"[1200000.100100] {xid(R, 79, OFF_BUS)}"])
    yield one

    one = stalled(
        "dmesg-T-local-zone",
        culprit=(R,),
        title="dmesg -T of a node at +02:00, which prints no zone",
        why="11:12:06 local is 09:12:06 UTC: whole hours off is a zone, not another incident.",
    )
    one.add(
        f"kernel/{N}.dmesg-T.txt",
        [
            f"[Tue Apr 14 11:12:06 2026] {xid(R, 79, OFF_BUS)}",
            f"[Tue Apr 14 11:22:09 2026] {xid(33, 43, 'channel 0x00000002', pid=True)}",
        ],
    )
    yield one

    one = stalled(
        "syslog-without-year",
        culprit=(R,),
        title="rsyslog's old form: no year, no zone",
        why="The year is that of the other evidence.",
    )
    one.add(
        f"kernel/{N}.kern.log",
        [
            f"Apr 14 09:12:06 {N} kernel: [812345.101773] {xid(R, 62, '32260b5e 000154b0 00000000 20208001')}",
            f"Apr 14 09:12:07 {N} kernel: [812346.101773] {xid(R, 45, 'Ch 00000008', pid=True)}",
        ],
    )
    yield one


def _hosts() -> Iterator[Incident]:
    one = stalled(
        "amdgpu-uncorrectable",
        culprit=(R,),
        title="An AMD GPU reports an uncorrectable error and is not reset",
        why="There is no Xid; the amdgpu lines at the onset are on the silent rank's GPU.",
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(
                N,
                -0.9,
                f"amdgpu {bus(R)}.0: amdgpu: {{1}}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
            ),
            kernel(N, -0.5, f"amdgpu {bus(R)}.0: amdgpu: GPU reset begin!. Source:  3"),
            kernel(N, 9.5, f"amdgpu {bus(R)}.0: amdgpu: GPU reset end with ret = -19"),
            kernel(N, 9.6, f"amdgpu {bus(R)}.0: amdgpu: device lost from bus!"),
        ],
    )
    yield one

    for name, title, lines in (
        (
            "machine-check-panic",
            "A machine check panics the node",
            (
                (
                    -0.8,
                    "mce: [Hardware Error]: CPU 37: Machine Check Exception: 5 Bank 4: bea0000000000108",
                ),
                (-0.8, "mce: [Hardware Error]: TSC 0 ADDR fef1a140 MISC d012000100000000"),
                (-0.7, "mce: [Hardware Error]: Machine check: Processor context corrupt"),
                (-0.7, "Kernel panic - not syncing: Fatal machine check"),
            ),
        ),
        (
            "kernel-panic",
            "The kernel of a node panics",
            (
                (-0.6, "BUG: unable to handle page fault for address: ffffb2a3c0de0000"),
                (-0.6, "Oops: 0002 [#1] SMP NOPTI"),
                (-0.4, "Kernel panic - not syncing: Fatal exception in interrupt"),
            ),
        ),
        (
            "soft-lockup",
            "The CPUs of a node lock up",
            (
                (20.0, "watchdog: BUG: soft lockup - CPU#37 stuck for 22s! [python3:41877]"),
                (48.0, "watchdog: BUG: soft lockup - CPU#37 stuck for 48s! [python3:41877]"),
                (60.0, "rcu: INFO: rcu_sched self-detected stall on CPU"),
            ),
        ),
    ):
        one = stalled(
            name,
            culprit=ranks_on(N),
            by_node=True,
            whole_node=True,
            title=title,
            why="All eight ranks of the node fall silent at once and its kernel says why.",
        )
        one.add(f"kernel/{N}.log", [kernel(N, when, text) for when, text in lines])
        yield one

    one = stalled(
        "nic-down-on-culprit-node",
        culprit=ranks_on(N),
        by_node=True,
        verdict="network",
        also=("hardware",),
        witness_pods=(0, 2, 4),
        whole_node=True,
        culprit_logs=False,
        title="The adapter of one node loses its link; everybody times out, its own ranks too",
        why="Only one node's adapter went down, at the onset, and it never came up again.",
        innocent=[*range(8), *range(16, 24)],
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(N, -0.5, "mlx5_core 0000:12:00.0: Port module event: module 0, Cable unplugged"),
            kernel(N, -0.5, "mlx5_core 0000:12:00.0 ib0: Link down"),
        ],
    )
    yield one


# --- Metrics -------------------------------------------------------------------------------------


def _series(rank: int, name: str, values: list[tuple[float, str]], **labels: str) -> dict[str, Any]:
    metric = {
        "__name__": name,
        "Hostname": node_of(rank),
        "gpu": str(rank % 8),
        "pci_bus_id": f"0000{bus(rank)}.0".upper(),
        "UUID": f"GPU-{node_of(rank)}-{rank % 8}",
        "exported_pod": f"train-{rank // 8}",
        "exported_namespace": "ml",
        "exported_container": "pytorch",
        "pod": "dcgm-exporter-x2v9q",
        "namespace": "gpu-operator",
        **labels,
    }
    return {
        "metric": metric,
        "values": [[HALT.timestamp() + when, value] for when, value in values],
    }


def _answer(series: list[dict[str, Any]]) -> str:
    return (
        json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}) + "\n"
    )


def _scrapes(first: float, last: float, value: str, step: float = 30) -> list[tuple[float, str]]:
    count = int((last - first) // step) + 1
    return [(first + i * step, value) for i in range(count)]


XIDS = "DCGM_FI_DEV_XID_ERRORS"


def _metrics() -> Iterator[Incident]:
    one = stalled(
        "dcgm-new-series-by-code",
        culprit=(R,),
        culprit_logs=False,
        title="The exporter starts a new series with err_code 79; a sticky 31 elsewhere",
        why="The new series is the event; the flat one has no transition in the window.",
    )
    one.add(
        "metrics/xid.json",
        _answer(
            [
                _series(R, XIDS, _scrapes(-3597, -27, "0"), err_code="0", err_msg="No Error"),
                _series(
                    R,
                    XIDS,
                    _scrapes(3, 663, "79"),
                    err_code="79",
                    err_msg="GPU has fallen off the bus",
                ),
                _series(
                    2,
                    XIDS,
                    _scrapes(-3597, 663, "31"),
                    err_code="31",
                    err_msg="GPU memory page fault",
                ),
            ]
        ),
    )
    yield one

    one = stalled(
        "dcgm-series-ends",
        culprit=(R,),
        culprit_logs=False,
        title="The metrics of one GPU end, its neighbours' go on",
        why="A GPU that left the bus is no longer reported; the seven others are.",
    )
    one.add(
        "metrics/temperature.json",
        _answer(
            [
                _series(r, "DCGM_FI_DEV_GPU_TEMP", _scrapes(-1797, -27 if r == R else 663, "61"))
                for r in ranks_on(N)
            ]
        ),
    )
    yield one

    one = stalled(
        "dcgm-exposition-text",
        culprit=(R,),
        verdict="rank-missing",
        also=("hardware",),
        actions=(RESTART, EVICT),
        title="One scrape as text: last codes without a history",
        why="The gauge is sticky: 74 on a witness says nothing; 79 on the silent rank's GPU is undated but"
        " fits. Either reading names rank 35.",
    )
    rows = [
        f'{XIDS}{{gpu="{r % 8}",UUID="GPU-{node_of(r)}-{r % 8}",pci_bus_id="0000{bus(r).upper()}.0",'
        f'device="nvidia{r % 8}",modelName="NVIDIA H100 80GB HBM3",Hostname="{node_of(r)}"}}'
        f" { {R: 79, 2: 74}.get(r, 0) }"
        for r in (*range(8), *ranks_on(N))
    ]
    one.add(
        "metrics/scrape.txt",
        [
            f"# HELP {XIDS} Value of the last XID error encountered.",
            f"# TYPE {XIDS} gauge",
            *rows,
        ],
    )
    yield one

    one = stalled(
        "dcgm-exporter-restart",
        culprit=(R,),
        verdict="rank-missing",
        actions=(RESTART,),
        title="The exporter's own pod restarts: the old code comes back under a new pod label",
        why="A new series of a pod label is no transition; the 48 on a witness is hours old.",
    )
    one.add(
        "metrics/xid.json",
        _answer(
            [
                _series(2, XIDS, _scrapes(-7197, -327, "48")),
                _series(2, XIDS, _scrapes(-297, 663, "48"), pod="dcgm-exporter-k7wz1"),
                _series(R, XIDS, _scrapes(-7197, 663, "0")),
            ]
        ),
    )
    yield one


# --- Slow, not stopped ---------------------------------------------------------------------------


def _slowed(name: str, **truth: Any) -> Incident:  # noqa: ANN401 - fields of one table
    """Steps take 2 s before and 3.6 s since; the job runs."""
    one = Incident(
        name=name,
        verdict="hardware",
        also=("straggler",),
        ranks=(R,),
        nodes=(N,),
        captured=364.0,
        innocent=list(range(8)),
        **{"actions": (EVICT,), **truth},
    )
    one.add("topology.json", topology())
    one.add("job.json", job())
    for pod in (0, R // 8):
        own = (pod * 8, R) if pod == R // 8 else (0,)
        one.add(
            f"logs/train-{pod}.log",
            steps(own, until=-1.0, count=60, first=4000)
            + steps(own, until=360.0, count=100, pace=3.6, first=4060),
        )
    return one


def _slow() -> Iterator[Incident]:
    one = _slowed(
        "thermal-slowdown-running",
        title="One GPU throttles for heat; the whole job slows",
        why="Hardware thermal slowdown on one GPU begins when the steps slow. It degrades the run now.",
    )

    def gauge(name: str, before: str, after: str) -> list[dict[str, Any]]:
        return [
            _series(
                r, name, _scrapes(-597, -27, before) + _scrapes(3, 363, after if r == R else before)
            )
            for r in ranks_on(N)
        ]

    one.add(
        "metrics/clocks.json",
        _answer(
            [
                *gauge("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "0", "72"),
                *gauge("DCGM_FI_DEV_GPU_TEMP", "61", "91"),
                *gauge("DCGM_FI_DEV_SM_CLOCK", "1980", "885"),
            ]
        ),
    )
    one.add(
        "metrics/violation.json",
        _answer(
            [
                _series(
                    r,
                    "DCGM_FI_DEV_THERMAL_VIOLATION",
                    _scrapes(-597, -27, "0")
                    + [
                        (3 + 30 * i, str((i + 1) * 22_000_000_000 if r == R else 0))
                        for i in range(13)
                    ],
                )
                for r in ranks_on(N)
            ]
        ),
    )
    yield one

    one = _slowed(
        "pcie-width-degraded-running",
        title="One GPU's PCIe link trains down to x4; the whole job slows",
        why="The link width falls from 16 to 4 when the steps slow. It degrades the run now.",
    )
    one.add(
        "metrics/pcie.json",
        _answer(
            [
                _series(
                    r,
                    "DCGM_FI_DEV_PCIE_LINK_WIDTH",
                    _scrapes(-597, -27, "16") + _scrapes(3, 363, "4" if r == R else "16"),
                )
                for r in ranks_on(N)
            ]
        ),
    )
    one.add(
        f"kernel/{N}.log",
        [
            kernel(N, -0.6, f"pcieport 0000:9a:01.0: AER: Corrected error received: {bus(R)}.0"),
            kernel(
                N,
                -0.5,
                f"nvidia {bus(R)}.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            ),
            kernel(
                N,
                0.1,
                f"pci {bus(R)}.0: 63.012 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x4 link"
                " at 0000:9a:01.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)",
            ),
        ],
    )
    yield one

    one = _slowed(
        "gpu-slower-by-report",
        actions=(CORDON, EVICT),
        title="A straggler report names one rank on a job that runs",
        why="Only rank 35's own section is slow.",
    )
    one.add(
        "logs/train-0.log",
        [
            said(0, 361 + i / 100, line)
            for i, line in enumerate(
                (
                    "=== Straggler Report at Step 4160 ===",
                    "forward-compute:",
                    *(
                        f"    Rank {r}: {1810.0 if r == R else 905.0 + r / 10:.2f}ms"
                        for r in range(WORLD)
                    ),
                    "    Min: 905.00ms Max: 1810.00ms Slowdown: 2.00x",
                )
            )
        ],
    )
    yield one
