"""Readings that stand still, noise in metrics, and more forms of kernel lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from built_cases.fleet import (
    DBE,
    EVICT,
    OFF_BUS,
    QUIET,
    RESTART,
    Incident,
    kernel,
    ranks_on,
    running,
    stalled,
    topology,
    xid,
)
from built_cases.hosts import XIDS, _answer, _scrapes, _series, _slowed

R, N = 35, "gpu-n05"
MISSING = {"verdict": "rank-missing", "actions": (RESTART,)}
HEALTHY = {"verdict": "healthy", "ranks": (), "actions": QUIET}


def incidents() -> Iterator[Incident]:
    yield from _standing_still()
    yield from _kernel_forms()


def _flat(
    name: str,
    odd: dict[int, str],
    usual: str,
    ranks: Iterable[int],
    *,
    first: float = -597,
    last: float = 663,
) -> list[dict[str, Any]]:
    return [_series(r, name, _scrapes(first, last, odd.get(r, usual))) for r in ranks]


def _standing_still() -> Iterator[Incident]:
    both = (*range(8), *ranks_on(N))
    one = stalled(
        "remap-pending-on-a-witness",
        culprit=(R,),
        **MISSING,
        title="A remap has been pending on a witness's GPU for as long as samples go back",
        why="A flag that never changed and stops nothing; the silent rank is missing.",
    )
    one.add(
        "metrics/remap.json", _answer(_flat("DCGM_FI_DEV_ROW_REMAP_PENDING", {3: "1"}, "0", both))
    )
    yield one

    one = stalled(
        "narrow-link-on-a-witness",
        culprit=(R,),
        **MISSING,
        title="A witness's GPU sits on an x8 link, always did",
        why="It was so before the incident; the silent rank is missing.",
    )
    one.add(
        "metrics/pcie.json", _answer(_flat("DCGM_FI_DEV_PCIE_LINK_WIDTH", {3: "8"}, "16", both))
    )
    yield one

    one = stalled(
        "throttled-witness-beside-79",
        culprit=(R,),
        title="A witness's GPU is warm and throttles; the silent rank's GPU left the bus",
        why="A slow GPU does not stop a job; 79 does.",
    )
    one.add(
        "metrics/clocks.json",
        _answer(_flat("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", {3: "32"}, "0", both)),
    )
    one.add(f"kernel/{N}.log", [kernel(N, -0.4, xid(R, 79, OFF_BUS))])
    yield one

    one = stalled(
        "idle-clock-of-the-dead-rank",
        culprit=(R,),
        **MISSING,
        title="After the stall one GPU idles at a low clock: the rank that died",
        why="Its process is gone, so the GPU idles while the others spin in NCCL: an effect of the stall, no cause.",
    )
    one.add(
        "metrics/clock.json",
        _answer(
            [
                _series(
                    r,
                    "DCGM_FI_DEV_SM_CLOCK",
                    _scrapes(-597, -27, "1980") + _scrapes(3, 663, "345" if r == R else "1980"),
                )
                for r in both
            ]
        ),
    )
    yield one

    one = running(
        "all-power-capped",
        rank=R,
        **HEALTHY,
        title="Every GPU reports the software power cap; steps keep their pace",
        why="Bit 0x4 on all is normal at full load.",
    )
    one.add(
        "metrics/clocks.json",
        _answer(_flat("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", {}, "4", both, last=123)),
    )
    yield one

    one = running(
        "idle-link-generation",
        rank=R,
        **HEALTHY,
        title="One GPU's clock dips in a save; steps keep their pace",
        why="One low sample is a pause, not a fault.",
    )
    one.add(
        "metrics/clock.json",
        _answer(
            [
                _series(
                    r,
                    "DCGM_FI_DEV_SM_CLOCK",
                    [
                        *_scrapes(-597, -27, "1980"),
                        (3, "345" if r == R else "1980"),
                        *_scrapes(33, 123, "1980"),
                    ],
                )
                for r in both
            ]
        ),
    )
    yield one

    one = running(
        "old-dbe-lifetime-counter",
        rank=R,
        **HEALTHY,
        title="Lifetime error counters of a card that was mended long ago",
        why="Lifetime counters that do not move are history.",
    )
    one.add(
        "metrics/ecc.json",
        _answer(
            _flat("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", {R: "12"}, "0", both, last=123)
            + _flat("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", {R: "3"}, "0", both, last=123)
        ),
    )
    yield one

    one = _slowed(
        "whole-job-slow-all-throttled",
        title="Every GPU throttles for heat: a hot aisle",
        why="All GPUs at hand throttle: no single GPU is to blame.",
        actions=("watch", "collect-more", "none"),
    )
    one.verdict, one.also, one.ranks, one.nodes, one.also_ranks = (
        "straggler",
        ("undecidable",),
        (),
        (),
        (),
    )
    one.add(
        "metrics/clocks.json",
        _answer(
            [
                _series(
                    r,
                    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
                    _scrapes(-597, -27, "0") + _scrapes(3, 363, "72"),
                )
                for r in both
            ]
        ),
    )
    yield one

    one = stalled(
        "exporter-of-one-node-gone",
        culprit=ranks_on(N),
        by_node=True,
        whole_node=True,
        also=("rank-missing",),
        title="All eight series of one node end at the onset, the others go on",
        why="The node or its exporter died under eight silent ranks.",
        actions=(EVICT, RESTART),
    )
    one.add(
        "metrics/temperature.json",
        _answer(
            [
                _series(
                    r,
                    "DCGM_FI_DEV_GPU_TEMP",
                    _scrapes(-1797, -27 if r in ranks_on(N) else 663, "61"),
                )
                for r in (*both, *ranks_on("gpu-n03"))
            ]
        ),
    )
    yield one

    one = running(
        "series-of-a-deleted-exporter",
        rank=R,
        **HEALTHY,
        title="One node's exporter was redeployed: its series end, the job steps on",
        why="The job steps on: nothing is lost.",
    )
    one.add(
        "metrics/xid.json",
        _answer(
            _flat(XIDS, {}, "0", range(8), last=123) + _flat(XIDS, {}, "0", ranks_on(N), last=-207)
        ),
    )
    yield one


def _kernel_forms() -> Iterator[Incident]:
    one = stalled(
        "rsyslog-fqdn-hosts",
        culprit=(R,),
        title="rsyslog's RFC 3339 form with full host names in one file for all nodes",
        why="gpu-n05.dc1.example.net is gpu-n05.",
    )
    one.add(
        "kernel/all-nodes.log",
        [
            f"2026-04-14T09:12:05.100000+00:00 gpu-n01.dc1.example.net kernel: [812340.10] {xid(3, 63, 'Row Remapper: New row (0x000000000030c2b5) marked for remapping, reset gpu to activate.')}",
            f"2026-04-14T09:12:06.900000+00:00 gpu-n05.dc1.example.net kernel: [912345.10] {xid(R, 79, OFF_BUS)}",
            f"2026-04-14T09:22:09.900000+00:00 gpu-n03.dc1.example.net kernel: [712345.10] {xid(18, 43, 'channel 0x00000002', pid=True)}",
        ],
    )
    yield one

    one = stalled(
        "dmesg-raw-level-prefix",
        culprit=(R,),
        title="dmesg -r: levels before the seconds since boot, boot time known",
        why="1,200,000.1 s after boot is the onset.",
    )
    one.files["topology.json"] = topology(dmesg_boot_epoch=1776157927 - 1_200_000)
    one.add(
        f"kernel/{N}.dmesg",
        [
            "<6>[1199000.100100] eth2: renamed from veth71ab3c0",
            f"<3>[1200000.100100] {xid(R, 48, DBE)}",
        ],
    )
    yield one

    one = stalled(
        "dmesg-T-chinese-weekday-utc",
        culprit=(R,),
        title="dmesg -T with a localised weekday and month",
        why="The date is readable without the words.",
    )
    one.add(
        f"kernel/{N}.dmesg-T.txt",
        [f"[二 4月 14 09:12:06 2026] {xid(R, 62, '32260b5e 000154b0 00000000 20208001')}"],
    )
    yield one

    one = stalled(
        "xid-in-the-pod-log",
        culprit=(R,),
        title="A monitor in the pod copies the kernel's line into the pod's log",
        why="The line names the GPU; the pod's node is known.",
    )
    one.add(
        f"logs/train-{R // 8}.log",
        [f"2026-04-14T09:12:06.950000Z gpu-monitor: kernel: {xid(R, 79, OFF_BUS)}"],
    )
    yield one

    one = stalled(
        "journal-export-form",
        culprit=(R,),
        title="`journalctl -o export` of one node",
        why="__REALTIME_TIMESTAMP dates it.",
    )
    one.add(
        f"kernel/{N}.export",
        [
            "__CURSOR=s=1;i=1",
            "__REALTIME_TIMESTAMP=1776157926900000",
            "__MONOTONIC_TIMESTAMP=912345100000",
            "_TRANSPORT=kernel",
            f"_HOSTNAME={N}",
            f"MESSAGE={xid(R, 119, 'Timeout after 45s of waiting for RPC response from GPU2 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20808513 0x598).')}",
            "",
        ],
    )
    yield one
