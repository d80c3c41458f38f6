"""What was missing, and how to have it next time: a way for each kind of evidence."""

from __future__ import annotations

import re

from gpufleet_cli.postmortem_card import Lacking
from gpufleet_cli.verdict import Triage

MOST = 40
WAYS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"flight recorder|dump", re.IGNORECASE),
        "TORCH_FR_BUFFER_SIZE above 0 and TORCH_NCCL_DUMP_ON_TIMEOUT=1, the dumps on a volume that outlives"
        " the pod; `gpufleet watch JOB` asks for them before the abort",
    ),
    (
        re.compile(r"kernel log|dmesg|xid", re.IGNORECASE),
        "ship kernel logs to the log store, or give them with `collect --kernel-logs FOLDER`",
    ),
    (
        re.compile(r"metric|prometheus|dcgm", re.IGNORECASE),
        "dcgm-exporter scraped by Prometheus, and `--prometheus URL` (or the settings file)",
    ),
    (
        re.compile(r"lease|node|kubelet", re.IGNORECASE),
        "`gpufleet collect JOB` while the nodes are still there, with the right to read nodes and leases",
    ),
    (
        re.compile(r"event", re.IGNORECASE),
        "collect within the hour for which the cluster keeps events, or ship them to a log store",
    ),
    (
        re.compile(r"log|line", re.IGNORECASE),
        "a log store (`--log-store URL`), or `gpufleet collect JOB` before the pods are deleted",
    ),
    (
        re.compile(r"identity|map|rank", re.IGNORECASE),
        "every rank's number on its lines (torchrun's --tee or --log-dir), or a topology.json",
    ),
)
OTHER = "`gpufleet doctor JOB` by daylight says what a triage would lack"


def lacking(triage: Triage) -> tuple[Lacking, ...]:
    """Each gap with a way to close it, those that would have settled something first."""
    ordered = sorted(
        enumerate(triage.missing), key=lambda item: (not item[1].would_settle, item[0])
    )
    return tuple(
        Lacking(gap=gap, remedy=_way(f"{gap.what} {gap.why}")) for _, gap in ordered[:MOST]
    )


def _way(text: str) -> str:
    return next((way for pattern, way in WAYS if pattern.search(text)), OTHER)
